"""Replay a scalar log: recompute each decision from p, q and u, and test what no uniform was logged for.

Everything is kept in sums: memory does not grow with the log. Five tests share the level evenly: acceptances,
uniforms, repeated uniforms, and the next tokens after a rejection and after full acceptance. Half of the
share of the acceptances is for all together, and of the other half depth d gets ``1 / ((d + 1) (d + 2))``:
these sum to 1, however deep rounds are, and no number of depths has to be known beforehand.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from resispec_verify.errors import InputError
from resispec_verify.evidence.acceptance_bets import BETS, AcceptanceBets, Evidence
from resispec_verify.evidence.uniform_intervals import UniformIntervals
from resispec_verify.logged.reported import Reported
from resispec_verify.logged.scalars.acceptance import Acceptance
from resispec_verify.logged.scalars.lines import Block, blocks
from resispec_verify.logged.scalars.precision import FLOAT32, Precision
from resispec_verify.logged.scalars.repeats import Repeats

__all__ = ["TESTS", "Decision", "Depth", "ScalarReplay", "replay_scalars"]

#: Tests that share the level.
TESTS = 5
#: Decisions that differ of which the numbers are kept.
KEPT = 1000
# Rounding of a cumulative sum in float32, in absolute terms: blocked, as parallel scans are.
_SCAN = 32 * FLOAT32
# Of a float32 log-softmax over 2^18 tokens: log2 V + 10 roundoffs.
_SOFTMAX = 28 * FLOAT32
_PARTS = 8
_DEEPEST = 4096


@dataclass(frozen=True)
class Decision:
    """One decision that differs from the rule."""

    line: int
    p: float
    q: float
    ratio: float
    u: float | None
    logged: str
    recomputed: str
    margin: float | None
    allowance: float | None


@dataclass
class Depth:
    """Sums of the decisions at one place in the round, or of all."""

    evidence: Evidence
    alpha: float
    decisions: int = 0
    accepted: int = 0
    expected: float = 0.0


@dataclass
class ScalarReplay:
    """What a scalar log gave.

    Attributes
    ----------
    rule : str
    decisions, agree, near_ties, near_ties_differing, divergences : int
        As of rounds; the middle three of decisions with a uniform.
    differing : list of Decision
        The first `KEPT` divergences.
    all_depths : Depth
    depths : dict of int to Depth
        By `depth`.
    """

    path: str
    rule: str
    acceptance: Acceptance
    alpha: float
    uniforms: bool
    decisions: int = 0
    with_u: int = 0
    agree: int = 0
    near_ties: int = 0
    near_ties_differing: int = 0
    divergences: int = 0
    undraftable: int = 0
    differing: list[Decision] = field(default_factory=list)
    depths: dict[int, Depth] = field(default_factory=dict)
    impossible_next: int = 0
    next_tokens: int = 0
    others: set[str] = field(default_factory=set)
    precision: dict[str, Precision] = field(default_factory=dict)
    reported: Reported = field(default_factory=Reported)
    keys: frozenset[str] | None = None

    def __post_init__(self) -> None:
        share = self.alpha / TESTS
        self.all_depths = Depth(Evidence(BETS).watch(share / 2), share / 2)
        self.bets = AcceptanceBets()
        self.coins = UniformIntervals({"the one before": _PARTS, "p/q": _PARTS}, share)
        self.next_laws = {kind: UniformIntervals(alpha=share) for kind in ("residual", "bonus")}
        self.repeats = Repeats()
        self.last_u = math.nan
        self.last: tuple[Any, float, bool] | None = None


def replay_scalars(
    path: str | os.PathLike[str],
    rule: str,
    acceptance: Acceptance,
    *,
    alpha: float = 1e-6,
    uniforms: bool = True,
    precision: str | None = None,
    advance: Callable[[int], Any] = lambda done: None,
) -> ScalarReplay:
    """Recompute the decisions of one log.

    Parameters
    ----------
    rule : str
        Its name, for the report.
    precision : str, optional
        What p, q and u were rounded to: "float32", "float16", "bfloat16" or a number of decimals. Default:
        the coarsest that all numbers of a column lie on.

    Raises
    ------
    InputError
        Bad lines; see `blocks`.
    """
    result = ScalarReplay(str(path), rule, acceptance, alpha, uniforms)
    for key in ("p", "q", "u", "next_p", "next_cdf"):
        result.precision[key] = Precision(precision)
    for key in ("reported", "next_reported"):
        result.precision[key] = Precision()
    for block in blocks(path):
        _add(result, block)
        advance(len(block))
    return result


def _add(result: ScalarReplay, block: Block) -> None:
    _check(result, block)
    for key, kind in result.precision.items():
        if key in block.columns:
            kind.see(block.columns[key])
    p, q, accepted = block.get("p"), block.get("q"), block.get("accepted") > 0
    halves = {key: kind.half(block.get(key)) for key, kind in result.precision.items()}
    value, low, high = result.acceptance.interval(p, q, halves["p"], halves["q"])
    fixed = result.acceptance.target_only
    nothing = (q == 0) & (not fixed)
    low, high = np.where(nothing, 0.0, low), np.where(nothing, 1.0, high)
    result.decisions += len(block)
    result.undraftable += int(nothing.sum())
    logs, impossible = result.bets.gains(accepted, p, np.ones_like(p) if fixed else q, low, high)
    _rates(result, block, accepted, value, logs, impossible)
    u = block.get("u") if result.uniforms else np.full(len(block), np.nan)
    _decide(result, block, accepted, u, (value, low, high), halves["u"], impossible)
    if result.uniforms and "u" in block.columns:
        _coins(result, block, u, value, halves["u"])
    _next(result, block, accepted, halves)
    _reported(result, block, accepted, halves)


def _check(result: ScalarReplay, block: Block) -> None:
    """What must be on every line or on none, and that a round ends with its rejection."""
    always = ("u", "depth", "round")
    keys = frozenset(key for key in always if key in block.columns)
    for key in always:
        missing = np.isnan(block.get(key))
        if result.keys is not None and (key in result.keys) != (key in keys):
            missing = np.ones(len(block), bool)
            if key in keys:
                missing = ~missing
        elif key not in keys:
            continue
        if missing.any() or (result.keys is not None and key in keys and key not in result.keys):
            i = int(np.argmax(missing)) if missing.any() else 0
            raise InputError(
                f"{result.path}: line {block.line[i]} {'has no' if missing.any() else 'has'} {key}, and "
                f"others {'have' if missing.any() else 'have not'}; log {key} on every line or on none"
            )
    result.keys = keys
    depth = block.get("depth")
    if "depth" in keys and (depth > _DEEPEST).any():
        i = int(np.argmax(depth > _DEEPEST))
        raise InputError(
            f"{result.path}: line {block.line[i]}: depth is {depth[i]:.0f}; log the place in the round, "
            "from 0"
        )
    result.others |= block.others
    if "round" in keys:
        _one_rejection(result, block)


def _one_rejection(result: ScalarReplay, block: Block) -> None:
    """Refuse a decision that follows a rejection of its own round on the next line: it was not made."""
    rounds, accepted = block.get("round"), block.get("accepted") > 0
    request = block.request or [None] * len(block)
    same = (rounds[1:] == rounds[:-1]) & ~accepted[:-1]
    late = [int(i) + 1 for i in np.flatnonzero(same) if request[i] == request[i + 1]]
    if result.last is not None and result.last == (request[0], rounds[0], False):
        late.insert(0, 0)
    if late:
        raise InputError(
            f"{result.path}: line {block.line[late[0]]}: a decision of round {rounds[late[0]]:.0f} after its "
            "rejection; log decisions up to the first rejection of a round"
        )
    result.last = (request[-1], float(rounds[-1]), bool(accepted[-1]))


def _rates(
    result: ScalarReplay,
    block: Block,
    accepted: np.ndarray,
    value: np.ndarray,
    logs: np.ndarray,
    impossible: np.ndarray,
) -> None:
    places: list[tuple[Depth, Any]] = [(result.all_depths, slice(None))]
    if "depth" in block.columns:
        depth = block.columns["depth"].astype(np.int64)
        share = result.alpha / TESTS / 2
        for d in np.unique(depth).tolist():
            if d not in result.depths:
                level = share / ((d + 1) * (d + 2))
                result.depths[d] = Depth(Evidence(BETS).watch(level), level)
            places.append((result.depths[d], depth == d))
    for place, here in places:
        place.evidence.add(logs[here], impossible[here])
        place.decisions += len(value[here])
        place.accepted += int(accepted[here].sum())
        place.expected += float(value[here].sum())


def _decide(
    result: ScalarReplay,
    block: Block,
    accepted: np.ndarray,
    u: np.ndarray,
    values: tuple[np.ndarray, np.ndarray, np.ndarray],
    u_half: np.ndarray,
    impossible: np.ndarray,
) -> None:
    """Decisions with a uniform recomputed; without, only those that no uniform gives."""
    value, low, high = values
    known = ~np.isnan(u)
    recomputed = np.where(known, (u < value) | (low >= 1), accepted ^ impossible)
    with np.errstate(invalid="ignore"):
        near = known & (u >= low - u_half) & (u <= high + u_half)
    # Where rounding leaves nothing open, a coin cannot be near: u < 1 always accepts at 1, and never at 0.
    near &= ~((low >= 1) | (high <= 0))
    differ = recomputed != accepted
    wrong = differ & ~near
    result.with_u += int(known.sum())
    result.agree += int((known & ~differ).sum())
    result.near_ties += int(near.sum())
    result.near_ties_differing += int((near & differ).sum())
    result.divergences += int(wrong.sum())
    words = ("rejected", "accepted")
    p, q = block.get("p"), block.get("q")
    for i in np.flatnonzero(wrong)[: KEPT - len(result.differing)].tolist():
        allowance = high[i] - value[i] if u[i] >= value[i] else value[i] - low[i]
        coin = bool(known[i])
        result.differing.append(
            Decision(
                int(block.line[i]), float(p[i]), float(q[i]),
                float(p[i] / q[i]) if q[i] else math.inf if p[i] else 0.0, float(u[i]) if coin else None,
                words[int(accepted[i])], words[int(recomputed[i])],
                float(abs(u[i] - value[i])) if coin else None, float(allowance + u_half[i]) if coin else None,
            )
        )  # fmt: skip


def _coins(result: ScalarReplay, block: Block, u: np.ndarray, value: np.ndarray, half: np.ndarray) -> None:
    before = np.concatenate([[result.last_u], u[:-1]])
    before = np.where(np.isnan(before), 0.0, before)
    parts = [np.minimum((x * _PARTS).astype(np.int64), _PARTS - 1) for x in (before, value)]
    result.coins.add(u - half, 2 * half, half + FLOAT32, parts)
    result.repeats.add(u, result.precision["u"].bits())
    result.last_u = float(u[-1])


def _next(result: ScalarReplay, block: Block, accepted: np.ndarray, halves: Mapping[str, np.ndarray]) -> None:
    p, cdf = block.get("next_p"), block.get("next_cdf")
    there = ~np.isnan(p)
    result.next_tokens += int(there.sum())
    impossible = there & (p + halves["next_p"] <= 0)
    result.impossible_next += int(impossible.sum())
    slack = np.where(there, halves["next_p"] + halves["next_cdf"] + _SCAN, 0.0)
    for kind, which in (("residual", ~accepted), ("bonus", accepted)):
        here = there & which & ~np.isnan(cdf)
        result.next_laws[kind].add(cdf[here], p[here], slack[here])


def _reported(
    result: ScalarReplay, block: Block, accepted: np.ndarray, halves: Mapping[str, np.ndarray]
) -> None:
    """`reported` against p of accepted drafts, `next_reported` against the target's p of the next token."""
    after = "the target after temperature and filters"
    for kind, key, which, laws in (
        ("accepted", "reported", accepted, {after: "p", "the raw target": "p_raw", "the draft": "q"}),
        ("corrected", "next_reported", ~accepted, {after: "next_target_p", "the raw target": "next_p_raw",
         "the residual": "next_p"}),
        ("bonus", "next_reported", accepted, {after: "next_target_p" if "next_target_p" in block.columns
         else "next_p", "the raw target": "next_p_raw"}),
    ):  # fmt: skip
        reported = block.get(key)
        here = which & ~np.isnan(reported)
        if not here.any():
            continue
        found = {}
        for name, column in laws.items():
            p = block.get(column)[here]
            half = result.precision["p" if not column.startswith("next") else "next_p"].half(p)
            with np.errstate(divide="ignore", invalid="ignore"):
                value = np.log(p)
                slack = -np.log1p(-np.minimum(half / p, 1 - 1e-9)) + halves[key][here]
                slack += _SOFTMAX + 4 * FLOAT32 * np.abs(value)
            found[name] = (value, np.where(np.isfinite(slack), slack, 0.0))
        result.reported.add(kind, block.line[here], reported[here], found)
