"""ResiSpec's other readings: the sums over all paths against expansion, residual by residual."""

from __future__ import annotations

from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import NAMES, OPTIONS, Enumerated, General, distance, everything, pairs
from test_wide import EXTREME, KINDS, compare, pair_of

from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.elementwise.water_level import level_of, levels_of
from resispec_verify.oracle import marginal
from resispec_verify.rules import ResiSpec, SequoiaResiSpec

SUMMED = [
    options for options in OPTIONS if options[2] == "excluded" and options[:2] != ("proportional", "local")
]


@pytest.mark.parametrize("options", SUMMED, ids=",".join)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_agree_with_expansion(options, kind):
    compare(ResiSpec(*options), Enumerated(*options), *pair_of(kind, 40, 2), 2)
    compare(ResiSpec(*options), General(*options), *pair_of(kind, 14, 3), 3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_floor_above_the_local_gaps(kind):
    # Close to the target every draft has Z* near 1, which exceeds nearly every local gap.
    p, q = pair_of(kind, 30, 7)
    p = 0.9 * q + 0.1 * p
    for redistribution in ("proportional", "water-filling"):
        compare(ResiSpec(redistribution, "floor"), Enumerated(redistribution, "floor"), p, q, 2)


@pytest.mark.parametrize("options", OPTIONS, ids=",".join)
@settings(max_examples=20)
@given(pair=pairs())
def test_one_candidate_has_a_closed_form_with_every_option(options, pair):
    target, draft = pair
    for name, rule in (("resispec", ResiSpec(*options)), ("sequoia+resispec", SequoiaResiSpec(*options))):
        found = everything(rule, target, draft, 1)
        right = marginal(name, target, draft, 1, **dict(zip(NAMES, options, strict=True)))
        assert float(found.gap[0]) == 0.0
        assert found.expansions == [2 * len(target)]
        assert distance(found.placed[0], right.law) <= float(found.rounding[0])


@pytest.mark.parametrize("options", SUMMED, ids=",".join)
@pytest.mark.parametrize("name", EXTREME)
@pytest.mark.parametrize("n", [2, 3])
def test_extreme_pairs_give_laws_and_no_warning(options, name, n):
    p, q = (tuple(F(x) for x in values) for values in EXTREME[name])
    total = [sum(law) for law in (p, q)]
    if total != [1, 1]:  # sums within a denormal of 1, which the oracle would not take
        p, q = (np.array(values)[None, :] for values in EXTREME[name])
        compare(ResiSpec(*options), General(*options), p, q, n)
        return
    found = everything(ResiSpec(*options), p, q, n)
    right = marginal("resispec", p, q, n, **dict(zip(NAMES, options, strict=True)))
    assert distance(found.placed[0], right.law) <= float(found.rounding[0])


def level(t: F, p, q, holes) -> F | None:
    """The level by trying every number of full tokens; None where all are full."""
    tokens = sorted((x for x in range(len(p)) if q[x] > 0 and x not in holes), key=lambda x: p[x] / q[x])
    full = F(0)
    for i, x in enumerate(tokens):
        found = (t - full) / sum(q[y] for y in tokens[i:])
        if found <= p[x] / q[x]:
            return found
        full += p[x]
    return None


@settings(max_examples=150)
@given(data=st.data())
def test_the_water_level(data):
    # Right value: the level in fractions; it places t off the holes.
    p, q = data.draw(pairs())
    size = len(p)
    rows = tuple(np.array([float(x) for x in law]) for law in (p, q))
    order = ratio_order(*rows)
    levels = levels_of(order)
    drafted = [j for j in range(size) if order.q[j] > 0 and 0 < order.p[j] < order.q[j]]
    if not drafted:
        return
    own, *others = data.draw(st.permutations(drafted))[: data.draw(st.integers(1, 3))]
    holes = {int(order.order[j]) for j in (own, *others)}
    room = sum(p[x] for x in range(size) if x not in holes)
    t = room * F(data.draw(st.integers(1, 1 << 20)), 1 << 20)
    if t == 0 or F(float(t)) != t:
        return
    right = level(t, p, q, holes)
    hole = np.array([[order.q[j], order.p[j]] for j in others]).reshape(-1, 2)
    found, rank, slope, share = level_of(
        float(t), (own, order.q[own], order.p[own]), len(others), hole, np.array(others, np.int64),
        (levels.top, levels.finite, levels.outside),
        order.ratio, order.table, order.prefix, order.q, levels.filled, levels.table, levels.suffix,
    )  # fmt: skip
    slack = 20 * size * float(np.finfo(float).eps)  # of t and of what the holes hold
    off = [x for x in range(size) if x not in holes]
    if rank < levels.finite:
        placed = sum(min(F(float(found)) * q[x], p[x]) for x in off if q[x] > 0)
        assert share == 0.0
    else:
        placed = sum(p[x] if q[x] > 0 else F(float(share)) * p[x] for x in off)
    assert abs(placed - t) <= slack
    if right is not None and rank < levels.finite:
        # A little higher, the sum grows by no more than the slope says.
        more = F(1, 1 << 10) * right
        grown = sum(min((right + more) * q[x], p[x]) for x in off if q[x] > 0) - t
        assert grown <= more * F(float(slope)) + F(slack)
