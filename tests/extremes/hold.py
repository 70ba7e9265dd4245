"""One rule on one extreme pair, held against fractions: `trouble` says what is wrong, in words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction as F
from typing import Any

import numpy as np
from extreme_pairs import exact
from truth import law_of

from resispec_verify.distributions import Pair
from resispec_verify.evidence.path_rules import path_marginal
from resispec_verify.kernels.optimal.layouts import best_layout
from resispec_verify.kernels.optimal.sibling_values import accepted_masses
from resispec_verify.kernels.optimal.two_distinct import two_distinct
from resispec_verify.oracle import (
    block_law,
    complete,
    fixed,
    limit_by_prefixes,
    limit_fixed,
    total_variation,
)
from resispec_verify.rules import (
    EASD,
    RULES,
    OptimalSequential,
    OptimalSiblings,
    Rule,
    SGLang,
    Synthetic,
    make_rule,
)
from resispec_verify.tables.marginals import Evaluation, evaluate
from resispec_verify.tables.reading import Clock, by_hand
from resispec_verify.tables.row import Row, label
from resispec_verify.verdict import RESOLUTION, Verdict

__all__ = ["SETTINGS", "Held", "Setting", "hold", "hold_path"]

Numbers = np.ndarray
OPTIONS = [
    {"redistribution": redistribution, "budget": budget, "hole": hole}
    for redistribution in ("proportional", "water-filling")
    for budget in ("local", "floor")
    for hole in ("excluded", "literal")
]
VALUES = (1.0, 0.5, 0.25, 2.0)
# Tokens by candidates for which the fractions take well under a second.
WIDE, PATHS, TUPLES = (60, 40, 24, 16), (40, 12, 6, 4), (24, 8, 4, 3)


@dataclass(frozen=True)
class Setting:
    """A rule with options, and the options of its transcription.

    Attributes
    ----------
    most_tokens : tuple of int
        The largest vocabulary for 1, 2, ... candidates.
    chosen : callable (rule, target, draft, n) -> dict, optional
        What the rule computes and may choose freely: handed to the transcription, so that both are one rule.
    """

    rule: Rule
    most_tokens: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    chosen: Callable[[Rule, Numbers, Numbers, int], dict[str, Any]] | None = None

    def __str__(self) -> str:
        return f"{self.rule.name}{list(self.rule.options().values()) or ''}"


def _times(rule: Any, p: Numbers, q: Numbers, n: int) -> dict[str, Any]:
    return {"times": [F(float(t)) for t in rule.find_levels(p, q, n)]}


def _pieces(rule: Rule, p: Numbers, q: Numbers, n: int) -> dict[str, Any]:
    """The layout, stretched to the exact draft."""
    layout, law = best_layout(p, q, n), exact(q)
    pieces = [(int(x), F(float(length))) for x, length in zip(layout.token, layout.length, strict=True)]
    owned = {x: sum(length for y, length in pieces if y == x) for x, _ in pieces}
    return {"pieces": [(x, length * law[x] / owned[x]) for x, length in pieces]}


def _first(rule: Rule, p: Numbers, q: Numbers, n: int) -> dict[str, Any]:
    if n < 2:
        return {}
    most = [min(a, b) for a, b in zip(exact(p), exact(q), strict=True)]
    return {"first": [min(F(float(a)), b) for a, b in zip(two_distinct(p, q).first, most, strict=True)]}


def _masses(rule: Any, p: Numbers, q: Numbers, n: int) -> dict[str, Any]:
    return {"masses": [[F(float(a)) for a in row] for row in accepted_masses(p, q, rule.values[:n])]}


def _thresholds(rule: Any, p: Numbers, q: Numbers, n: int) -> dict[str, Any]:
    """SGLang compares a float with a float: the law, divided by its sum, is compared with as much less."""
    return {"threshold_single": F(rule.threshold_single) / sum(F(float(x)) for x in p)}


def _settings() -> list[Setting]:
    shaped = {"resispec", "sequoia+resispec", "eagle+resispec"}
    special = {
        "optimal-sequential": Setting(OptimalSequential(), WIDE, {}, _times),
        "optimal-joint": Setting(make_rule("optimal-joint"), TUPLES, {}, _pieces),
        "optimal-without-replacement": Setting(
            make_rule("optimal-without-replacement"), (60, 24), {}, _first
        ),
        "k-seq": Setting(make_rule("k-seq"), (60, 30, 20, 12)),
    }
    plain = set(RULES) - shaped - set(special)
    found = [Setting(make_rule(name), _most(make_rule(name))) for name in sorted(plain)]
    found += special.values()
    found += [
        Setting(make_rule(name, **options), PATHS, dict(options))
        for name in sorted(shaped)
        for options in OPTIONS
    ]
    found += [
        Setting(SGLang(0.3, 1.0), WIDE, {"threshold_acc": F(1)}, _thresholds),
        Setting(SGLang(0.5, 0.75), WIDE, {"threshold_acc": F(0.75)}, _thresholds),
        Setting(OptimalSiblings(VALUES), (30, 20, 12, 8), {"values": VALUES}, _masses),
        Setting(Synthetic(0.3), WIDE[:1], {"rate": F(0.3)}),
    ]
    for rejects in ("position", "overlap"):
        options = {"target_entropy": 0.7, "draft_entropy": 0.6, "top_n": 2, "overlap": 0.5}
        found.append(Setting(EASD(**options, rejects=rejects), (60,), {**options, "rejects": rejects}))
    return found


def _most(rule: Rule) -> tuple[int, ...]:
    by_count = WIDE if rule.depends_on == "nothing" or rule.proposal.name == "fixed" else PATHS
    if rule.name == "token-match":
        by_count = TUPLES
    if rule.name == "specinfer-skip-duplicates":
        by_count = (40, 16, 8, 5)
    return by_count[: rule.most_candidates]


SETTINGS = _settings()


@dataclass(frozen=True)
class Held:
    """What one comparison found.

    Attributes
    ----------
    trouble : list of str
        Empty where all is right.
    error_over_bound : float
        Distance in total variation between what was placed and the law, over the bound on it.
    verdict : str
    tv : float
        The true total variation.
    """

    trouble: list[str]
    error_over_bound: float
    verdict: str
    tv: float


def hold(setting: Setting, target: Numbers, draft: Numbers, n: int, proposal: Numbers | None = None) -> Held:
    """Evaluate as ``kl`` does, and compare with the rule's law in fractions."""
    rule, p, q = setting.rule, exact(target), exact(draft)
    chosen = setting.chosen(rule, target, draft, n) if setting.chosen else {}
    drawn = None if proposal is None else exact(proposal)
    right = law_of(rule.name, p, q, n, drawn, **setting.options, **chosen)
    rows: dict[tuple[str, str], Row] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(
            by_hand(Pair(target[None, :], draft[None, :], None if proposal is None else proposal[None, :])),
            Evaluation((rule,), n),
            rows,
            clock=Clock(),
        )
    operational = rows[label(rule), "operational"]
    held = _compare(operational, right, p)
    for row in rows.values():
        if row is not operational and not row.tv[0] <= operational.rounding[0]:
            held.trouble.append(f"path identity off by {row.tv[0]:.3g}")
    limit = operational.limit[0]
    if limit is not None and rule.proposal.name in _LIMITS:
        right_limit = _LIMITS[rule.proposal.name](p, q if drawn is None else drawn, n)
        slack = F(operational.rounding[0])
        if not right_limit - slack <= F(limit) <= right_limit + slack:
            held.trouble.append(f"limit {limit!r}, right {float(right_limit)!r} +- {float(slack):.2g}")
    return held


def hold_path(rule: Any, target: Numbers, draft: Numbers, length: int, turning: bool) -> Held:
    """A rule that verifies a path, on chains over the two laws, against fractions."""

    def chain(row: Any) -> Callable[[tuple[int, ...]], Any]:
        """After a prefix the law is turned by the sum of its tokens, or as it was."""
        return lambda prefix: tuple(np.roll(row, -sum(prefix) if turning else 0))

    options: dict[str, Any] = {}
    if rule.name == "medusa":  # its heads propose the draft's best token
        draft = np.where(np.arange(target.size) == np.argmax(draft), 1.0, 0.0)
        options = {"top": 1, "correction": rule.correction}
        turning = False
    p, q = chain(np.array(exact(target), object)), chain(np.array(exact(draft), object))
    size = target.size
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = path_marginal(
            rule, _levels(chain(target), size, length + 1), _levels(chain(draft), size, length)
        )
    right = complete(block_law(rule.name, p, q, length, **options), p, length + 1)
    goal = complete({(): F(1)}, p, length + 1)
    tv = sum((abs(right.get(key, F(0)) - goal.get(key, F(0))) for key in {*right, *goal}), F(0)) / 2
    joint = {key: F(float(found.joint[key])) for key in np.ndindex(found.joint.shape)}
    off = sum((abs(mass - right.get(key, F(0))) for key, mass in joint.items()), F(0)) / 2
    trouble = []
    if abs(F(found.tv) - tv) > F(found.rounding):
        trouble.append(f"TV {found.tv:.3g}, right {float(tv):.3g} +- {found.rounding:.2g}")
    if off > F(found.rounding):
        trouble.append(f"joint law off by {float(off):.3g}, bound {found.rounding:.2g}")
    return Held(trouble, float(off / F(found.rounding)), "path", float(tv))


def _levels(chain: Any, size: int, length: int) -> list[Numbers]:
    """A chain as the arrays that `path_marginal` takes."""
    found = []
    for i in range(length):
        level = np.empty((size,) * (i + 1))
        for prefix in np.ndindex(*(size,) * i):
            level[prefix] = chain(prefix)
        found.append(level)
    return found


_LIMITS: dict[str, Callable[..., Any]] = {
    "iid": limit_by_prefixes,
    "fixed": lambda p, q, n: limit_fixed(p, fixed(q, n).popitem()[0]),
}


def _compare(row: Row, right: Any, p: tuple[F, ...]) -> Held:
    low, high, slack = row.tv_low[0], row.tv_high[0], row.rounding[0]
    numbers = [low, high, slack, row.accepted_low[0], row.accepted_high[0], row.gap[0], *row.acceptance[0]]
    tv, accepted = total_variation(right.law, p), sum(right.acceptance)
    verdict = row.verdict[0]
    if not all(map(math.isfinite, numbers)) or math.isnan(row.kl[0]):
        return Held([f"not finite: {numbers}, kl {row.kl[0]}"], math.inf, verdict.value, float(tv))
    trouble = []
    below, above = F(low) - F(slack), F(high) + F(slack)
    if not below <= tv <= above:
        trouble.append(f"true TV {float(tv):.3g} outside [{low:.3g}, {high:.3g}] +- {slack:.2g}")
    under, over = F(row.accepted_low[0]) - F(slack), F(row.accepted_high[0]) + F(slack)
    if not under <= accepted <= over:
        trouble.append(
            f"true acceptance {float(accepted):.17g} outside "
            f"[{row.accepted_low[0]:.17g}, {row.accepted_high[0]:.17g}] +- {slack:.2g}"
        )
    if verdict is Verdict.INEXACT and tv == 0:
        trouble.append("says inexact of a rule that is exact here")
    if verdict is Verdict.EXACT and tv > 2 * F(RESOLUTION):
        trouble.append(f"says exact at a TV of {float(tv):.3g}")
    if row.above_limit() and tv == 0:
        trouble.append(f"claims acceptance above the limit ({row.limit[0]!r}) of an exact rule")
    emitted_outside = sum((a for a, b in zip(right.law, p, strict=True) if b == 0), F(0))
    if row.off_support[0] > 0 and emitted_outside == 0:
        trouble.append(f"claims mass {row.off_support[0]:.3g} off the target's support")
    acceptance_low, acceptance_high = F(row.accepted_low[0]), F(row.accepted_high[0])
    beyond = max(F(low) - tv, tv - F(high), acceptance_low - accepted, accepted - acceptance_high, F(0))
    used = float(beyond / F(slack)) if slack > 0 else 0.0
    return Held(trouble, used, verdict.value, float(tv))
