"""Evidence and ResiSpec's rules on every array library: one result, like its inputs, which stay as they were.

"Like" means the same namespace, dtype and device.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from array_api_compat import device
from libraries import ROWS, VOCAB, Unchanged, assert_close, check_like, eps, pair, to_numpy

from resispec_verify.evidence import draw_candidates, operational_marginals, path_identity
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.evidence.marginal import summation_error, tv_interval
from resispec_verify.rules import (
    Greedy,
    Iid,
    ResiSpec,
    SpecInfer,
    Speculative,
    WithoutReplacement,
    get_proxy,
)

EVERYTHING = Budget(gap=0.0, most_paths=math.inf, most_states=math.inf, until_decided=False)
RULES = [
    Speculative(),
    SpecInfer(),
    *(
        ResiSpec(redistribution, budget, hole)
        for redistribution in ("proportional", "water-filling")
        for budget in ("local", "floor")
        for hole in ("excluded", "literal")
    ),
]


@pytest.fixture(params=RULES, ids=lambda rule: ",".join([rule.name, *rule.options().values()]))
def rule(request):
    return request.param


# Evidence


def test_operational_marginals(library, dtype, rule):
    p, q = pair(dtype)
    right = operational_marginals(rule, p, q, 2, budget=EVERYTHING)
    target, draft = library.array(p), library.array(q)
    with Unchanged(target, draft):
        marginals = operational_marginals(rule, target, draft, 2, budget=EVERYTHING)
    # The rule that sums its own paths does so in float64, whatever the precision it is given.
    own = isinstance(rule, ResiSpec) and rule.hole == "excluded"
    for values in (marginals.placed, marginals.acceptance, marginals.unexpanded, marginals.rounding):
        check_like(values, target, same_dtype=not own)
    bound = float(to_numpy(marginals.rounding).max() + right.rounding.max())
    assert_close(marginals.placed, right.placed, 2 * bound)
    assert_close(marginals.acceptance, right.acceptance, 2 * bound)
    np.testing.assert_array_equal(to_numpy(marginals.gap), np.zeros(ROWS))
    for ours, theirs in zip(tv_interval(marginals, target), tv_interval(right, p), strict=True):
        assert_close(ours, theirs, bound)


def test_marginals_within_a_budget(library, dtype, rule):
    # The same paths are left out everywhere: the gap is NumPy's, up to rounding.
    p, q = pair(dtype)
    budget = Budget(gap=1e-2, until_decided=False)
    right = operational_marginals(rule, p, q, 3, budget=budget)
    marginals = operational_marginals(rule, library.array(p), library.array(q), 3, budget=budget)
    bound = float(to_numpy(marginals.rounding).max() + right.rounding.max())
    assert_close(marginals.unexpanded, right.unexpanded, 2 * bound)
    assert_close(marginals.placed, right.placed, 2 * bound)
    assert marginals.expansions == right.expansions
    assert marginals.exhausted == right.exhausted


@pytest.mark.parametrize("proposal", [Iid(), WithoutReplacement(), Greedy()], ids=lambda p: p.name)
def test_marginals_of_another_proposal(library, dtype, proposal):
    p, q = pair(dtype)
    drawn = np.roll(q, 1, axis=-1)
    options = {"proposal": proposal, "budget": EVERYTHING}
    right = operational_marginals(SpecInfer(), p, q, 2, drawn_from=drawn, **options)
    target = library.array(p)
    marginals = operational_marginals(
        SpecInfer(), target, library.array(q), 2, drawn_from=library.array(drawn), **options
    )
    check_like(marginals.placed, target)
    bound = float(to_numpy(marginals.rounding).max() + right.rounding.max())
    assert_close(marginals.placed, right.placed, 2 * bound)


def test_path_identity(library, dtype, rule):
    p, q = pair(dtype)
    tokens = np.array([[1, 3], [0, 2], [5, 5]])
    target, draft, lists = library.array(p), library.array(q), library.array(tokens)
    with Unchanged(target, draft, lists):
        emitted = path_identity(target, draft, rule.proxy, lists, 2)
    check_like(emitted, target)
    # The right value is the target itself; a round multiplies by one row sum and divides by it.
    bound = 0.5 * eps(dtype) * 3 * (2 * summation_error(VOCAB) + 8)
    assert_close(emitted, p, 2 * bound)


def test_drawn_candidates(library, dtype):
    p, q = pair(dtype)
    uniforms = np.array([[0.0, 0.5], [0.3, 0.999], [0.25, 0.75]])
    right = draw_candidates(q, 2, uniforms)
    draw = draw_candidates(library.array(q), 2, uniforms)
    for i in range(2):
        tokens = draw(i, library.array(p))
        assert device(tokens) == device(library.array(q))
        np.testing.assert_array_equal(to_numpy(tokens), right(i, p))


# Rules


@pytest.mark.parametrize("redistribution", ["proportional", "water-filling"])
@pytest.mark.parametrize("budget", ["local", "floor"])
@pytest.mark.parametrize("hole", ["excluded", "literal"])
def test_get_proxy(library, dtype, redistribution, budget, hole):
    p, q = (rows[0] for rows in pair(dtype))
    options = {"redistribution": redistribution, "budget": budget, "hole": hole}
    target, draft = library.array(p), library.array(q)
    right = get_proxy(p, q, 1, **options)
    with Unchanged(target, draft):
        computed = get_proxy(target, draft, 1, **options)
    for ours, theirs in zip(computed[:-1], right[:-1], strict=True):
        check_like(ours, target)
        assert_close(ours, theirs, 2 * eps(dtype) * (summation_error(VOCAB) + 8))
    assert bool(computed.capped) == bool(right.capped)


def test_one_round_of_each_rule(library, dtype, rule):
    p, q = pair(dtype)
    target, draft = library.array(p[0]), library.array(q[0])
    tokens = np.array([1, 3])
    with Unchanged(target, draft):
        state = rule.start(target, draft, 1)
        accept = rule.accept(state)
        after = rule.reject(state, None if rule.depends_on == "nothing" else library.array(tokens))
        final = rule.final(after)
    right = rule.start(p[0], q[0], 1)
    gone = rule.reject(right, None if rule.depends_on == "nothing" else tokens)
    assert after.round == 1
    for ours, theirs in ((accept, rule.accept(right)), (final, rule.final(gone)), (after.draft, gone.draft)):
        check_like(ours, target)
        assert_close(ours, theirs, 2 * eps(dtype) * (summation_error(VOCAB) + 8))
