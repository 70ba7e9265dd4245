"""The token after the accepted drafts: whether it is possible, or redrawn, and evidence on its law."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.evidence.changing_laws import ChangingLaws
from resispec_verify.kernels.elementwise.residuals import normalize, standard_residual
from resispec_verify.logged.block import weights
from resispec_verify.logged.round_rows import UNIT, Box, RoundRows
from resispec_verify.rules import Block, Rule

__all__ = ["BONUS", "RESIDUAL", "NextToken", "bet_on", "redrawn"]

#: Laws that a wrong residual draw may come from.
RESIDUAL = (
    "the target instead of the residual",
    "the draft",
    "the target without the rejected token",
    "the draft above the target",
    "the residual of each token alone",
    "the target's row before",
    "the target's row after",
    "the target without temperature and filters",
)
#: Laws that a wrong bonus draw may come from.
BONUS = (
    "the target's row before",
    "the draft's row before",
    "the residual of the row before",
    "the target without temperature and filters",
)
_PLAIN = Sampling()
Status = Literal["agree", "near-tie", "divergence"]


class NextToken:
    """One draw after the accepted drafts.

    Attributes
    ----------
    kind : {"residual", "bonus"}
    law : float64 array (V,)
        As the rule says, from the logits as stored.
    box : Box
        Bounds of its masses ``(V,)``, not normalised.
    others : list
        Laws to bet on, as `RESIDUAL` or `BONUS` name them.
    """

    def __init__(self, rule: Rule | Block, rows: RoundRows, entry: Mapping[str, Any], first: int) -> None:
        """``rows`` begin at row ``first`` of the round: all before for block verification, else one."""
        at = entry["accepted"] - first
        tokens = entry["draft_tokens"]
        self.rule, self.at = rule, at
        self.rejected = int(tokens[entry["accepted"]]) if entry["accepted"] < len(tokens) else None
        self.kind: Literal["residual", "bonus"] = "bonus" if self.rejected is None else "residual"
        self.rows, self.here = rows, rows.at(slice(at, at + 1))
        self.path = tokens[: entry["accepted"]]
        self.p, self.q = rows.p[at], None if self.rejected is None else rows.q[at]
        self.law = self._law(None)
        self.box = self._box()
        self.others = self._others(rows.p, rows.q)

    def _law(self, up: np.ndarray | None) -> np.ndarray:
        """The law ``(V,)``: of the rejected token's residual, or the target itself."""
        p, q = (self.here.p, self.here.q) if up is None else self.here.moved(up)
        if self.rejected is None:
            return p[0]
        if isinstance(self.rule, Block):
            weight, _, high = self._weight
            weight = weight if up is None else high
            return normalize(np.clip(weight * p[0] - q[0], 0.0, None), p[0])
        state = self.rule.start(p[0], q[0], 1)
        tokens = None if self.rule.depends_on == "nothing" else np.asarray([self.rejected])
        return np.asarray(self.rule.final(self.rule.reject(state, tokens))).reshape(-1)

    @cached_property
    def _weight(self) -> tuple[float, float, float]:
        return tuple(float(w[-1]) for w in weights(self.rows, self.path))  # type: ignore[return-value]

    def _box(self) -> Box:
        target = self.here.target_box()
        if self.rejected is None:
            return Box(target.low[0], target.high[0])
        p, q = target.normalised(), self.here.draft_box().normalised()
        low, high = 1.0, 1.0
        if isinstance(self.rule, Block):
            _, low, high = self._weight
        elif not np.allclose(self.law, standard_residual(self.p, self.q), rtol=1e-9, atol=1e-13):
            return self._corners()
        return Box(
            np.clip(low * p.low[0] - q.high[0], 0, None), np.clip(high * p.high[0] - q.low[0], 0, None)
        )

    def _corners(self) -> Box:
        """For rules with a residual of their own: where the law goes when rounding favours these tokens, or
        those; and as far again on both sides. An estimate, not a bound.
        """
        above, here = self.p > self.q, np.arange(len(self.p)) == self.rejected
        laws = np.stack([self.law, *(self._law(up) for up in (above, ~above, here, ~here))])
        low, high = laws.min(axis=0), laws.max(axis=0)
        return Box(np.clip(2 * low - high, 0, None), 2 * high - low)

    def _others(self, p: np.ndarray, q: np.ndarray) -> list[np.ndarray | None]:
        at = self.at
        before = p[at - 1] if at else None
        plain = None if self.here.sampling == _PLAIN else _PLAIN.probabilities(
            self.here.target, dtype=np.float64
        )[0]  # fmt: skip
        if self.rejected is None:
            draft = q[at - 1] if at else None
            left = standard_residual(before, draft) if at else None
            return [before, draft, left, plain]
        without = self.p * (np.arange(len(self.p)) != self.rejected)
        after = p[at + 1] if len(p) > at + 1 else None
        return [
            self.p, self.q, normalize(without, self.p), normalize(np.clip(self.q - self.p, 0, None), self.q),
            standard_residual(self.p, self.q), before, after, plain,
        ]  # fmt: skip

    def check(self, y: int, v: float | None) -> tuple[Status, str, float | None]:
        """Status of token y, what was recomputed, and the margin; redrawn where its uniform is known."""
        return redrawn(self.law, self.box.high, y, v, self._law)


def redrawn(
    law: np.ndarray, high: np.ndarray, y: int, v: float | None, moved: Callable[[np.ndarray], np.ndarray]
) -> tuple[Status, str, float | None]:
    """Status of token y as a draw from a law, what was recomputed, and the margin.

    Parameters
    ----------
    law, high : float64 arrays (V,)
        The law, and the highest mass that rounding allows each token.
    v : float or None
        The uniform of the draw by inverting the cumulative sum in token order.
    moved : callable
        The law where these tokens are as likely as rounding allows, and all others as unlikely.
    """
    possible: Status = "agree" if law[y] > 0 else "near-tie" if high[y] > 0 else "divergence"
    if v is None:
        return possible, str(y) if possible == "agree" else f"not {y}", None
    steps = np.cumsum(law)
    drawn = int(min(np.searchsorted(steps, v * steps[-1], side="right"), len(steps) - 1))
    margin = float(min(abs(v - steps[y]), abs(v - (steps[y] - law[y]))))
    if drawn == y:
        return possible, str(drawn), margin
    # The sum up to y is greatest where all of these tokens gain; that before y is least where they lose.
    tokens = np.arange(len(law))
    below = float(moved(tokens >= y)[:y].sum())
    through = float(moved(tokens <= y)[: y + 1].sum())
    inside = below - UNIT <= v <= through + UNIT
    return "near-tie" if possible != "divergence" and inside else "divergence", str(drawn), margin


def bet_on(tests: dict[str, ChangingLaws], draw: NextToken, token: int) -> None:
    """Add the token to the tests; not where a rejection was impossible, and there is no residual."""
    if not draw.box.high.sum() > 0:
        return
    names = BONUS if draw.kind == "bonus" else RESIDUAL
    test = tests.setdefault(draw.kind, ChangingLaws(names))
    test.add(draw.box.low, draw.box.high, token, draw.others)
