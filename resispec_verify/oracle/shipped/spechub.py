"""SpecHub's rule for pairs that hold the draft's best token.

Sun et al. (2024), SpecHub: Provable Acceleration to Multi-Draft Speculative Decoding, and the comments of
the authors' code, which give the order of the four tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..engine import Joint, Outcomes
from ..laws import Law, normalise
from ..proposals import hub, hub_pairs
from ..registry import transcribes

__all__ = ["FORCE_ABOVE", "spechub"]

#: The authors' EAGLE code accepts the hub outright where the target gives it more than this.
FORCE_ABOVE = 1 - Fraction(1, 1000)


@dataclass(frozen=True)
class _Tests:
    """The four acceptance probabilities and the law drawn from at the end.

    Attributes
    ----------
    first : tuple of Fraction, length V
        i under (i, a).
    second : tuple of Fraction, length V
        i under (a, i), from what the target has left of i.
    hub_first, hub_second : Fraction
        a under (a, i), and then under (i, a), from what the target and the pairs have left.
    final : tuple of Fraction, length V
        The target's leftover, normalised.
    """

    first: Law
    second: Law
    hub_first: Fraction
    hub_second: Fraction
    final: Law


def _ratio(wanted: Fraction, offered: Fraction) -> Fraction:
    return min(Fraction(1), wanted / offered) if offered > 0 else Fraction(0)


def _minus(left: list[Fraction], right: list[Fraction]) -> list[Fraction]:
    return [max(a - b, Fraction(0)) for a, b in zip(left, right, strict=True)]


def _tests(p: Law, q: Law, a: int) -> _Tests:
    others = [x != a for x in range(len(p))]
    offered_ia = [q[x] if others[x] else Fraction(0) for x in range(len(p))]
    offered_ai = [q[a] * mass / (1 - q[a]) for mass in offered_ia]
    wanted = [p[x] if others[x] else Fraction(0) for x in range(len(p))]
    first = tuple(map(_ratio, wanted, offered_ia))
    left, idle_ia = _minus(wanted, offered_ia), sum(_minus(offered_ia, wanted), Fraction(0))
    second = tuple(map(_ratio, left, offered_ai))
    rest, idle_ai = _minus(left, offered_ai), sum(_minus(offered_ai, left), Fraction(0))
    hub_first = _ratio(p[a], idle_ai)
    hub_left = max(p[a] - idle_ai, Fraction(0))
    hub_second = _ratio(hub_left, idle_ia)
    rest[a] = max(hub_left - idle_ia, Fraction(0))
    return _Tests(first, second, hub_first, hub_second, normalise(rest, fallback=p))


@transcribes("spechub", "pairs", least=2, most=2)
def spechub(*, force: bool = False) -> Joint:
    """SpecHub's rule over a pair (i, a) or (a, i) of `hub_pairs`.

    i first under (i, a), then i under (a, i), then a under (a, i), then a under (i, a): each from what the
    target has left and the pairs have not used. How much of a each order accepts is the code's choice; the
    marginal and the total do not depend on it.

    Parameters
    ----------
    force : bool
        Accept a outright where ``p(a) > 1 - 1e-3``, as the authors' EAGLE code does (their Sequoia code
        does not).
    """

    def rule(p: Law, q: Law, tokens: tuple[int, ...]) -> Outcomes:
        a = hub(q)
        if tokens not in hub_pairs(q):
            raise ValueError(f"SpecHub verifies pairs that hold the hub {a} once, got {tokens}")
        place = tokens.index(a)
        if force and p[a] > FORCE_ABOVE:
            return [(a, place, Fraction(1))]
        if len(tokens) == 1:  # q(a) = 1: one certain candidate, tested as such
            return [(x, 0 if x == a else None, mass) for x, mass in enumerate(p)]
        i = tokens[1 - place]
        tests = _tests(p, q, a)
        other, center = (
            (tests.first[i], tests.hub_second) if place == 1 else (tests.second[i], tests.hub_first)
        )
        rejected = (1 - other) * (1 - center)
        outcomes: Outcomes = [(i, 1 - place, other), (a, place, (1 - other) * center)]
        return outcomes + [(x, None, rejected * mass) for x, mass in enumerate(tests.final)]

    return rule


@transcribes("spechub-force", "pairs", least=2, most=2)
def spechub_force() -> Joint:
    """The authors' EAGLE code."""
    return spechub(force=True)
