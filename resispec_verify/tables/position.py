"""One position in full: what rules leave of the target after one rejection (ResiSpec's Figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.divergences import total_variation
from resispec_verify.rules import Rule
from resispec_verify.tables.drift import check_sequential
from resispec_verify.tables.row import label

__all__ = ["Position", "look_at"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Position:
    """A pair, and the residuals of some rules after one rejection.

    Attributes
    ----------
    target, draft : float64 (V,)
        Probabilities.
    rejected : int
        The token that was rejected.
    residuals : dict of float64 (V,)
        What the next candidate is tested against, by rule label.
    next_accepted : dict of float
        Probability that the next candidate is accepted then.
    l1 : dict of float
        Distance ``sum |R - D|`` of the residual from what the rule tests the next candidate with.
    """

    target: Floats
    draft: Floats
    rejected: int
    residuals: dict[str, Floats]
    next_accepted: dict[str, float]
    l1: dict[str, float]

    def series(self) -> dict[str, Floats]:
        """Draft, target and residuals, by name."""
        residuals = {f"residual, {name}": values for name, values in self.residuals.items()}
        return {"draft": self.draft, "target": self.target, **residuals}

    def tokens(self, most: int) -> NDArray[np.int64]:
        """The tokens that carry the mass in any of the laws, and the rejected one; the draft's best first."""
        weight = np.max(list(self.series().values()), axis=0)
        best = np.argsort(-weight, kind="stable")[:most]
        best = best[weight[best] > 0]
        if self.rejected not in best:
            best = np.append(best[: most - 1], self.rejected)
        return best[np.argsort(-self.draft[best], kind="stable")]

    def records(self, most: int, names: dict[int, str] | None = None) -> list[dict[str, Any]]:
        """One record a token, and a last one for all others; tokens are named where names are known."""
        chosen, series = self.tokens(most), self.series()
        rest = np.ones(self.target.size, bool)
        rest[chosen] = False
        records = []
        for token in chosen.tolist():
            record: dict[str, Any] = {"token": token}
            if names is not None:
                record["text"] = names[token]
            records.append(record | {name: float(values[token]) for name, values in series.items()})
        others: dict[str, Any] = {"token": f"{int(rest.sum())} others"}
        if names is not None:
            others["text"] = ""
        records.append(others | {name: float(values[rest].sum()) for name, values in series.items()})
        return records


def look_at(
    target: Floats, draft: Floats, rules: Sequence[Rule], candidates: int = 2, rejected: int | None = None
) -> Position:
    """The residuals of rules after the first of ``candidates`` candidates was rejected.

    Parameters
    ----------
    target, draft : float64 (V,)
        Probabilities.
    rules : rules
        That look at candidates one after the other.
    candidates : int
        ``n >= 2``.
    rejected : int, optional
        The rejected token; by default the one most often rejected by the first rule that tells tokens apart.

    Raises
    ------
    InputError
        A token outside the vocabulary, or one that a rule never rejects; no token that can be rejected.
    """
    check_sequential(rules)
    if rejected is not None and not 0 <= rejected < target.size:
        raise InputError(f"token {rejected} is outside the vocabulary 0..{target.size - 1}")
    states = [rule.start(np.array(target), np.array(draft), candidates) for rule in rules]
    laws = [rule.proposal.next(draft, ()) for rule in rules]
    rejections = [
        law * (1.0 - rule.accept(state)) for rule, state, law in zip(rules, states, laws, strict=True)
    ]
    telling = [i for i, rule in enumerate(rules) if rule.depends_on == "token"]
    if rejected is None:
        found = rejections[telling[0] if telling else 0]
        if not found.max() > 0:
            raise InputError("no token can be rejected here: the draft is nowhere above the target")
        rejected = int(np.argmax(found))
    residuals, accepted, l1 = {}, {}, {}
    for rule, state, rejection in zip(rules, states, rejections, strict=True):
        if rule.depends_on == "token":
            if not rejection[rejected] > 0:
                raise InputError(
                    f"rule {rule.name!r} never rejects token {rejected} (draft {draft[rejected]:.6g}, target "
                    f"{target[rejected]:.6g}); choose a token that it rejects"
                )
            after = rule.reject(state, np.asarray([rejected]))
            R, D, extra = after.residual[0], after.draft[0], {k: v[0] for k, v in after.extra.items()}
            after = type(after)(R, D, after.round, extra)
        else:
            after = rule.reject(state, None)
        name = label(rule)
        residuals[name] = np.asarray(after.residual, np.float64)
        law = rule.proposal.next(draft, (np.asarray(rejected),))
        accepted[name] = float(np.sum(law * rule.accept(after)))
        l1[name] = float(2.0 * total_variation(residuals[name], np.asarray(after.draft, np.float64)))
    return Position(target, draft, rejected, residuals, accepted, l1)
