"""Replay the decisions of real speculative rounds: every acceptance, and what was emitted after it.

Speculative sampling (Leviathan et al. 2023, Appendix A.1; Chen et al. 2023, Algorithm 2) accepts draft token
``x_i`` where ``u_i < min(1, p_i(x_i) / q_i(x_i))``, stops at the first rejection, then emits one token from
``norm((p_i - q_i)_+)``, or from ``p_g`` where all were accepted. Another rule's own acceptance and residual
take the place of these two.

What a log cannot decide is kept apart. Its logits were rounded when they were stored, and the engine's
softmax was rounded too: the probability that the engine compared its coin with lies somewhere in the interval
that `_acceptance` computes. A coin inside is a near-tie, whichever way it fell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from resispec_verify.analysis.rounds_input import Rounds, half_ulp
from resispec_verify.distributions import Sampling
from resispec_verify.dumps.mapped import release
from resispec_verify.dumps.rows import rows_of
from resispec_verify.errors import InputError
from resispec_verify.rules import Rule

__all__ = [
    "Check",
    "Replay",
    "replay",
]

#: Unit roundoff of float32, the precision an engine's own softmax has at best.
_UNIT = 2.0**-24


@dataclass(frozen=True)
class Check:
    """One thing that was recomputed: an acceptance, or the token emitted after a rejection or at the end.

    ``status`` is ``near-tie`` where ``margin``, the distance of the coin from the recomputed probability, is
    within the ``allowance`` that rounding has in that direction.
    """

    path: str
    round: int
    index: int
    kind: Literal["acceptance", "residual", "bonus"]
    token: int
    p: float
    q: float | None
    ratio: float | None
    u: float | None
    logged: str
    recomputed: str
    margin: float | None
    allowance: float | None
    status: Literal["agree", "near-tie", "divergence"]


@dataclass
class Replay:
    """What the rounds of one dump gave under one rule.

    Attributes
    ----------
    checks : list of Check
        In order. Acceptances without a coin appear only where they are impossible.
    tallies : dict
        By position in the round: (accepted, its probability, lowest, highest) of each decision, given the
        drafted token (``"tokens"``), and given only the rows (``"rows"``: ``sum min(p, q)``).
    undraftable : int
        Draft tokens to which the declared draft gives probability 0.
    repeated : int
        Rounds whose coins all came in an earlier round.
    """

    rounds: Rounds
    rule: Rule
    temperatures: list[float] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    tallies: dict[str, dict[int, list[tuple[bool, float, float, float]]]] = field(default_factory=dict)
    undraftable: int = 0
    repeated: int = 0
    notes: list[str] = field(default_factory=list)

    def diverges(self) -> list[Check]:
        """The checks that contradict the rule."""
        return [check for check in self.checks if check.status == "divergence"]


@dataclass(frozen=True)
class _Rows:
    """Logits ``(m, V)`` of target and draft in float64, and how far each may be from the engine's own."""

    target: np.ndarray
    draft: np.ndarray
    target_slack: np.ndarray
    draft_slack: np.ndarray
    sampling: Sampling

    def probabilities(self, up: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Target and draft as stored, or where the tokens ``up`` are as likely as can be in the target and as
        unlikely as can be in the draft, and all others the other way round.
        """
        p, q = self.target, self.draft
        if up is not None:
            p = p + np.where(up, self.target_slack, -self.target_slack)
            q = q - np.where(up, self.draft_slack, -self.draft_slack)
        return tuple(self.sampling.probabilities(rows, dtype=np.float64) for rows in (p, q))  # type: ignore


def _rows(where: str, entry: Mapping[str, Any], rows: slice, sampling: Sampling) -> _Rows:
    arrays = []
    for key in ("target_logits", "draft_logits"):
        stored = rows_of(entry[key], rows.start or 0, min(rows.stop, entry[key].shape[0]))
        values = stored.astype(np.float64)
        release(entry[key])
        highest = values.max(axis=-1, keepdims=True)
        if not np.isfinite(highest).all():
            i = int(np.argmax(~np.isfinite(highest[:, 0])))
            raise InputError(f"{where}: {key}, row {i + (rows.start or 0)} has NaN or +inf, or only -inf; "
                             "log finite logits")  # fmt: skip
        arrays.append(values)
        # An engine's softmax in float32 rounds the shift and the division: 2 roundoffs of the distance.
        distance = np.where(np.isfinite(values), highest - values, 0.0)
        arrays.append(half_ulp(values, stored.dtype) + 2 * _UNIT * distance)
    target, target_slack, draft, draft_slack = arrays
    return _Rows(target, draft, target_slack, draft_slack, sampling)


def _acceptance(rule: Rule, rows: _Rows, tokens: np.ndarray) -> np.ndarray:
    """Acceptance probability of ``tokens (m,)``, lowest and highest; ``(3, m)``.

    With all logits inside their slack, p(x) is greatest, and q(x) least, where x's own logit moves one way
    and all others the other; an acceptance that rises with p(x) and falls with q(x) has its extremes there.
    On top comes the float32 rounding of exp (4 roundoffs), of the sum (log2 V + 4) and of the quotient, for
    each of p and q. Filters are applied after the move; which *others* of several tied tokens stay is not
    varied.
    """
    here = np.arange(rows.target.shape[-1]) == tokens[:, None]
    found = []
    for up in (None, ~here, here):
        state = rule.start(*rows.probabilities(up), 1)
        found.append(np.take_along_axis(rule.accept(state), tokens[:, None], axis=-1)[:, 0])
    value, low, high = found
    rounding = 2 * _UNIT * (math.log2(rows.target.shape[-1]) + 10)
    low, high = low * (1 - rounding), np.minimum(high * (1 + rounding), 1.0)
    return np.stack([value, np.minimum(low, value), np.maximum(high, value)])


def _after(rule: Rule, rows: _Rows, rejected: int | None, up: np.ndarray | None = None) -> np.ndarray:
    """The law of the next token ``(V,)``: of the rejected token's residual, or the target itself."""
    p, q = rows.probabilities(up)
    if rejected is None:
        return p[0]
    state = rule.start(p[0], q[0], 1)
    tokens = None if rule.depends_on == "nothing" else np.asarray([rejected])
    return np.asarray(rule.final(rule.reject(state, tokens))).reshape(-1)


def replay(
    rounds: Rounds,
    rule: Rule,
    options: Mapping[str, Any] | None = None,
    *,
    uniforms: bool = True,
    advance: Callable[[int], Any] = lambda done: None,
) -> Replay:
    """Recompute the rounds of one dump.

    Parameters
    ----------
    options : mapping
        Fields of `Sampling` that replace what the dump states.
    uniforms : bool
        Use logged coins; without them only what is impossible, and the statistics, can speak.

    Raises
    ------
    InputError
        Logits that are not finite (file, round, key and row are named).
    """
    result = Replay(rounds, rule, tallies={"tokens": {}, "rows": {}})
    seen: set[bytes] = set()
    for r, entry in enumerate(rounds.rounds):
        sampling = rounds.sampling(r, options or {})
        if sampling.temperature not in result.temperatures:
            result.temperatures.append(sampling.temperature)
        if entry["u"] is not None and len(entry["u"]):
            key = entry["u"].tobytes()
            result.repeated += key in seen
            seen.add(key)
        _decisions(result, r, entry, sampling, entry["u"] if uniforms else None)
        if entry["next_token"] is not None:
            result.checks.append(_next_token(result, r, entry, sampling, uniforms))
        advance(1)
    _compare_output(result)
    return result


def _decisions(
    result: Replay, r: int, entry: Mapping[str, Any], sampling: Sampling, coins: np.ndarray | None
) -> None:
    """Append the acceptances of a round, up to its first rejection, to checks and tallies."""
    accepted, g = entry["accepted"], len(entry["draft_tokens"])
    decided = min(accepted + 1, g)
    if not decided:
        return
    tokens = entry["draft_tokens"][:decided]
    rows = _rows(f"{result.rounds.path}: round {r}", entry, slice(0, decided), sampling)
    p, q = rows.probabilities()
    values = _acceptance(result.rule, rows, tokens)
    for i, x in enumerate(tokens.tolist()):
        a, low, high = values[:, i].tolist()
        px, qx = float(p[i, x]), float(q[i, x])
        logged, u = i < accepted, None if coins is None else float(coins[i])
        result.undraftable += qx == 0
        result.tallies["tokens"].setdefault(i, []).append((logged, a, low, high))
        if type(result.rule).accept is Rule.accept and type(result.rule).start is Rule.start:
            overlap = _overlap(p[i], q[i], rows, i)
            result.tallies["rows"].setdefault(i, []).append((logged, *overlap))
        recomputed, margin, allowance = logged, None, None
        status = "divergence" if logged and high == 0 else "agree"
        if u is not None:
            recomputed, margin, allowance = u < a, abs(u - a), (high - a if u >= a else a - low)
            near = u - entry["u_slack"] < high if u >= a else u + entry["u_slack"] >= low
            allowance += entry["u_slack"]
            status = "near-tie" if near else "agree" if recomputed == logged else "divergence"
        elif status == "agree":
            continue
        else:
            recomputed = False
        ratio = px / qx if qx > 0 else math.inf if px > 0 else 0.0
        words = ("rejected", "accepted")
        result.checks.append(
            Check(result.rounds.path, r, i, "acceptance", x, px, qx, ratio, u, words[logged],
                  words[recomputed], margin, allowance, status)
        )  # fmt: skip


def _overlap(p: np.ndarray, q: np.ndarray, rows: _Rows, i: int) -> tuple[float, float, float]:
    """``sum min(p, q)``, lowest and highest: it moves by no more than the TV that p and q move by.

    With ``p'_j = p_j e^d_j / E_p[e^d]`` and ``|d_j| <= h_j``, TV(p, p') is at most
    ``E_p[e^h - 1] / E_p[e^-h]``.
    """
    value, moved = float(np.minimum(p, q).sum()), 0.0
    if rows.sampling.temperature == 0:
        return value, 0.0, 1.0
    for law, slack in ((p, rows.target_slack[i]), (q, rows.draft_slack[i])):
        h = np.minimum(slack / rows.sampling.temperature, 300.0)  # e^600 is finite, and the bound is vacuous
        moved += float(law @ np.expm1(h) / (law @ np.exp(-h)))
    return value, max(0.0, value - moved), min(1.0, value + moved)


def _next_token(
    result: Replay, r: int, entry: Mapping[str, Any], sampling: Sampling, uniforms: bool
) -> Check:
    """Whether the token after a rejection, or after full acceptance, can have been drawn; or was."""
    at, y, path = entry["accepted"], entry["next_token"], result.rounds.path
    rejected = int(entry["draft_tokens"][at]) if at < len(entry["draft_tokens"]) else None
    rows = _rows(f"{path}: round {r}", entry, slice(at, at + 1), sampling)
    p, q = (row[0, y].item() if len(row) else None for row in rows.probabilities())
    tokens = np.arange(rows.target.shape[-1])

    def law(up: np.ndarray | None) -> np.ndarray:
        return _after(result.rule, rows, rejected, up)

    mass = law(None)
    possible = "agree" if mass[y] > 0 else "near-tie" if law(tokens == y)[y] > 0 else "divergence"
    status, recomputed, margin, v = possible, str(y) if possible == "agree" else f"not {y}", None, None
    if uniforms and entry["u_next"] is not None:
        v = float(entry["u_next"][0])
        steps = np.cumsum(mass)
        drawn = int(min(np.searchsorted(steps, v * steps[-1], side="right"), len(steps) - 1))
        recomputed, margin = str(drawn), float(min(abs(v - steps[y]), abs(v - (steps[y] - mass[y]))))
        # The sum up to y is greatest where all of these tokens gain; that before y is least where they lose.
        below = float(law(tokens >= y)[:y].sum())
        through = float(law(tokens <= y)[: y + 1].sum())
        inside = below - _UNIT <= v <= through + _UNIT
        if drawn != y:
            status = "near-tie" if possible != "divergence" and inside else "divergence"
    return Check(path, r, at, "bonus" if rejected is None else "residual", y, p or 0.0, q, None, v, str(y),
                 recomputed, margin, None, status)  # fmt: skip


def _compare_output(result: Replay) -> None:
    """Note where ``output_tokens`` is not what the rounds emitted."""
    rounds, output = result.rounds.rounds, result.rounds.output
    if output is None or any(entry["next_token"] is None for entry in rounds):
        return
    emitted = [t for e in rounds for t in (*e["draft_tokens"][: e["accepted"]].tolist(), e["next_token"])]
    try:
        logged = np.asarray(output).reshape(-1).tolist()
    except ValueError:  # rows of different lengths
        logged = []
    if emitted != logged:
        k = next((i for i, (a, b) in enumerate(zip(emitted, logged, strict=False)) if a != b),
                 min(len(emitted), len(logged)))  # fmt: skip
        result.notes.append(f"output_tokens differs from what the rounds emitted, first at index {k}")
