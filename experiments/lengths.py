"""Expected accepted lengths without the noise of the candidates: estimates, each with the right mean.

**Along a text of the target.** Let an exact rule that decides node by node emit x as a candidate at a node
with probability ``m(x)``, and accept one of them with ``a = sum m``. With n i.i.d. candidates at every node
both depend on the laws p and q there alone. After a prefix s the step has reached level k with

    P(A_k) = sum over tokens x_1 ... x_k of m(x_1) ... m(x_k)
           = E of m(x_1) / p(x_1) ... m(x_(k-1)) / p(x_(k-1)) a(s x_1 ... x_(k-1)),  x_i from the target,

since ``m <= p``. So a text of the target tells of every rule, every number of candidates and every place in
it as a start, and all factors are in [0, 1]: no candidate is drawn. The two bounds of
docs/explanation/trees.md come in the same way, without the skew of weights by 1 / pi: that of rules which
decide by node has ``OT`` for a and ``min(p, 1 - (1 - q)^n)`` for m; that of all exact rules is the mean of
``min(1, pi / p)`` of k tokens.

**By a rule's own walk.** A rule that is not exact may emit what the target never does, and its m is out of
reach. It walks by itself: at a node it is shown several sets of candidates, its acceptance is averaged over
them, and the next token is drawn from what it emitted over all of them. The product of these means along the
walk has mean ``P(A_k)`` too, since all sets are drawn independently of the past.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from resispec_verify.evidence.given_candidates import outcome_given_candidates
from resispec_verify.kernels.optimal.sequential import levels as sequential_levels
from resispec_verify.kernels.optimal.sequential import overlap
from resispec_verify.rules import Iid, Rule
from resispec_verify.rules.shipped.optimal_joint import OptimalJoint

Laws = tuple[np.ndarray, np.ndarray]


class Along(NamedTuple):
    """A rule, or a bound, at the places of a text.

    Attributes
    ----------
    accepted : array (places,)
        Probability that a candidate is accepted there.
    share : array (places,)
        Of the target's probability of the token that follows, what is emitted as a candidate.
    """

    accepted: np.ndarray
    share: np.ndarray

    def reached(self, starts: int, levels: int) -> np.ndarray:
        """P(level l is reached), l = 1 .. levels - 1, mean over the first starts: ``(levels - 1,)``."""
        before, found = np.ones(starts), []
        for depth in range(levels - 1):
            found.append(float(np.mean(before * self.accepted[depth : depth + starts])))
            before = before * self.share[depth : depth + starts]
        return np.asarray(found)


def _reach(p: np.ndarray, q: np.ndarray, tokens: np.ndarray, t: np.ndarray) -> Along:
    """Of a rule that emits ``min(p(x), t q(x))`` of x, t ``(places,)``."""
    at = np.arange(len(tokens)), tokens
    return Along(np.asarray(overlap(p, q, t)), np.minimum(1.0, t * q[at] / p[at]))


def specinfer(p: np.ndarray, q: np.ndarray, tokens: np.ndarray, most: int) -> list[Along]:
    """SpecInfer with 1 to `most` candidates: the next one adds what all before it rejected to t."""
    t, found = np.ones(len(p)), []
    for _ in range(most):
        found.append(_reach(p, q, tokens, t))
        t = t + 1.0 - found[-1].accepted
    return found


def optimal_sequential(p: np.ndarray, q: np.ndarray, tokens: np.ndarray, n: int) -> Along:
    """The optimal sequential rule, by the first of its levels."""
    return _reach(p, q, tokens, np.ascontiguousarray(np.asarray(sequential_levels(p, q, n))[:, 0]))


def optimal_joint(p: np.ndarray, q: np.ndarray, tokens: np.ndarray, n: int) -> Along:
    """Optimal joint verification: the winner of its race is accepted with ``min(1, p / winner)``."""
    rule, accepted, share = OptimalJoint(), [], []
    for target, draft, token in zip(p, q, tokens, strict=True):
        masses = np.minimum(target, rule.start(target, draft, n).extra["winner"])
        accepted.append(float(masses.sum()))
        share.append(float(masses[token] / target[token]))
    return Along(np.asarray(accepted), np.minimum(1.0, share))


def limit(p: np.ndarray, q: np.ndarray, tokens: np.ndarray, n: int) -> Along:
    """The bound of exact rules that decide node by node."""
    at = np.arange(len(tokens)), tokens
    among = -np.expm1(n * np.log1p(-np.minimum(q[at], 1.0 - 1e-16)))
    return Along(np.asarray(Iid().limit(p, q, n)), np.minimum(1.0, among / p[at]))


def limit_of_any_rule(
    p: np.ndarray, q: np.ndarray, tokens: np.ndarray, n: int, starts: int, levels: int
) -> np.ndarray:
    """The bound of all exact rules on P(level l is reached), mean over the starts: ``(levels - 1,)``."""
    at = np.arange(len(tokens)), tokens
    text, draft = p[at], q[at]
    found = [float(np.mean(np.asarray(Iid().limit(p[:starts], q[:starts], n))))]
    for length in range(2, levels):
        inside, whole = np.ones(starts), np.ones(starts)
        for depth in reversed(range(length)):
            here = slice(depth, depth + starts)
            inside = 1.0 - (1.0 - draft[here] * inside) ** n
            whole = whole * text[here]
        found.append(float(np.mean(np.minimum(1.0, inside / whole))))
    return np.asarray(found)


class Walk(NamedTuple):
    """Where a rule with n candidates at every node is to go from a node, and how many levels down."""

    node: int
    n: int
    levels: int


def walks(
    rule: Rule,
    roads: Sequence[Walk],
    laws: Callable[[Sequence[int]], Mapping[int, Laws]],
    grow: Callable[[Sequence[int], Sequence[int]], Sequence[int]],
    draws: int,
    generator: np.random.Generator,
) -> list[np.ndarray]:
    """P(level l is reached), l = 1 .. levels - 1, along one walk of a rule from each start.

    Parameters
    ----------
    rule : Rule
        A sequential one whose test of a candidate does not depend on how many follow.
    laws : callable
        Target and draft ``(V,)`` at nodes.
    grow : callable
        Adds children with these tokens to these nodes and returns their numbers.
    draws : int
        Sets of candidates at a node; walks at one node are shown the same.

    Returns
    -------
    list of arrays (levels - 1,)
    """
    at = [road.node for road in roads]
    reached, found = np.ones(len(roads)), [np.zeros(road.levels - 1) for road in roads]
    for depth in range(max(road.levels for road in roads) - 1):
        active = [i for i, road in enumerate(roads) if depth < road.levels - 1 and reached[i] > 0]
        here: dict[int, list[int]] = {}
        for i in active:
            here.setdefault(at[i], []).append(i)
        known, tokens, parents, going = laws(list(here)), [], [], []
        for node, those in here.items():
            most = max(roads[i].n for i in those)
            candidates, emitted = _shown(rule, known[node], draws, most, generator)
            for i in those:
                mine = emitted[:, : roads[i].n]
                reached[i] *= float(mine.sum()) / draws
                found[i][depth] = reached[i]
                if reached[i] > 0 and depth < roads[i].levels - 2:
                    tokens.append(int(candidates[:, : roads[i].n].ravel()[_pick(mine.ravel(), generator)]))
                    parents.append(node)
                    going.append(i)
        for i, child in zip(going, grow(tokens, parents) if tokens else (), strict=True):
            at[i] = child
    return found


def _shown(
    rule: Rule, laws: Laws, draws: int, n: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Sets of candidates ``(draws, n)``, and P(the i-th is emitted) given each set."""
    target, draft = laws
    candidates = np.stack([_pick(draft, generator, n) for _ in range(draws)])
    emitted = np.stack([outcome_given_candidates(rule, target, draft, row).emitted for row in candidates])
    return candidates, emitted


def _pick(weights: np.ndarray, generator: np.random.Generator, count: int | None = None) -> np.ndarray:
    """Places drawn with these weights, which need not add up to one."""
    rising = np.cumsum(weights)
    return np.searchsorted(rising, generator.random(count) * rising[-1], side="right")
