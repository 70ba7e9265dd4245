"""Accepted lengths along a text of the target, and by walks of a rule, against sums over all cases."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from resispec_verify.evidence.given_candidates import outcome_given_candidates
from resispec_verify.rules import make_rule

HERE = Path(__file__).parents[2] / "experiments"
sys.path.insert(0, str(HERE))

import lengths  # noqa: E402
from passages import FOUND, passage  # noqa: E402

V, LEVELS = 3, 4
RNG = np.random.default_rng(5)
TARGET, DRAFT = RNG.dirichlet(np.full(V, 0.7), (2, V))  # laws after each token


def masses(rule, n):
    """What the rule emits as a candidate, ``(V, V)``: after each token, of each token."""
    found = np.zeros((V, V))
    for last in range(V):
        for drawn in itertools.product(range(V), repeat=n):
            weight = np.prod(DRAFT[last, list(drawn)])
            emitted = outcome_given_candidates(rule, TARGET[last], DRAFT[last], drawn).emitted
            np.add.at(found[last], list(drawn), weight * emitted)
    return found


def reached(mass):
    """P(level l is reached) after token 0."""
    state, found = np.eye(V)[0], []
    for _ in range(LEVELS - 1):
        state = state @ mass
        found.append(state.sum())
    return np.asarray(found)


def along(estimate):
    """The mean of an estimate over all texts of the target after token 0."""
    total = 0.0
    for text in itertools.product(range(V), repeat=LEVELS - 1):
        before = [0, *text[:-1]]
        weight = np.prod(TARGET[before, list(text)])
        total = total + weight * estimate(TARGET[before], DRAFT[before], np.asarray(text))
    return total


ALONG = {
    "specinfer": lambda p, q, x, n: lengths.specinfer(p, q, x, n)[-1],
    "optimal-sequential": lengths.optimal_sequential,
    "optimal-joint": lengths.optimal_joint,
}


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", ALONG)
def test_a_text_of_the_target_tells_of_exact_rules(name, n):
    found = along(lambda p, q, x: ALONG[name](p, q, x, n).reached(1, LEVELS))
    assert found == pytest.approx(reached(masses(make_rule(name), n)), abs=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_and_of_both_bounds(n):
    among = 1.0 - (1.0 - DRAFT) ** n
    bound, accepted = np.zeros(LEVELS), masses(make_rule("optimal-joint"), n).sum(axis=1)
    for last in itertools.product(range(V), repeat=LEVELS - 1):  # OT, and below min(p, pi) of each token
        for level in range(1, LEVELS):
            if any(last[level - 1 :]):
                continue  # counted once for each text of level - 1 tokens
            path = [0, *last[: level - 1]]
            weight = np.prod([np.minimum(TARGET, among)[a, b] for a, b in itertools.pairwise(path)])
            bound[level] += weight * accepted[path[-1]]
    found = along(lambda p, q, x: lengths.limit(p, q, x, n).reached(1, LEVELS))
    assert found == pytest.approx(bound[1:], abs=1e-9)

    anything = [accepted[0]]
    for level in range(2, LEVELS):
        total = 0.0
        for text in itertools.product(range(V), repeat=level):
            steps = list(itertools.pairwise([0, *text]))
            inside = 1.0
            for a, b in reversed(steps):
                inside = 1.0 - (1.0 - DRAFT[a, b] * inside) ** n
            total += min(np.prod([TARGET[step] for step in steps]), inside)
        anything.append(total)
    found = along(lambda p, q, x: lengths.limit_of_any_rule(p, q, x, n, 1, LEVELS))
    assert found == pytest.approx(anything, abs=1e-9)


def test_on_every_text_the_bound_is_no_less_than_the_optimal_joint_rule():
    rng = np.random.default_rng(0)
    for n in (2, 3):
        p, q = rng.dirichlet(np.full(20, 0.3), (2, 12))
        text = rng.integers(20, size=12)
        joint, most = (f(p, q, text, n).reached(9, LEVELS) for f in (lengths.optimal_joint, lengths.limit))
        assert (joint <= most + 1e-9).all()


@pytest.mark.parametrize("name", ["resispec", "specinfer"])
def test_walks_have_the_mean_of_the_rule(name):
    """Many walks, a seed of their own; the error is that of their mean."""
    nodes = {0: 0}  # node: token

    def grow(tokens, parents):
        first = len(nodes)
        nodes.update(enumerate(tokens, first))
        return range(first, first + len(tokens))

    def laws(asked):
        return {node: (TARGET[nodes[node]], DRAFT[nodes[node]]) for node in asked}

    roads = [lengths.Walk(0, n, LEVELS) for n in (2, 3)]
    generator = np.random.default_rng(2)
    found = [lengths.walks(make_rule(name), roads, laws, grow, 2, generator) for _ in range(600)]
    for i, n in enumerate((2, 3)):
        mine = np.asarray([walk[i] for walk in found])
        error = mine.std(axis=0, ddof=1) / len(mine) ** 0.5
        assert (np.abs(mine.mean(axis=0) - reached(masses(make_rule(name), n))) < 4 * error + 1e-9).all()


def test_resispec_does_not_know_how_many_candidates_follow():
    """Walks at one node are shown the same candidates, as many of them as each has."""
    rule, drawn = make_rule("resispec"), [0, 2, 1, 1]
    whole = outcome_given_candidates(rule, TARGET[0], DRAFT[0], drawn).emitted
    for n in range(1, 4):
        part = outcome_given_candidates(rule, TARGET[0], DRAFT[0], drawn[:n]).emitted
        assert part == pytest.approx(whole[:n], abs=1e-12)


def test_passages_have_no_blank_left_and_hardly_repeat():
    texts = [passage(i, 2608) for i in range(480)]
    assert not any("{" in text or "}" in text for text in texts)
    assert len(set(texts)) > 470
    assert texts[3] == passage(3, 2608)
    assert texts[0] != passage(0, 2609)
    assert len(FOUND["forms"]) == 12
