"""The rules beyond ResiSpec's own on every array library; see `test_backends` for what "like" means."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import ROWS, VOCAB, Unchanged, assert_close, check_like, eps, pair, to_numpy
from shipped_rules import values_of
from test_backends import EVERYTHING
from test_backends import RULES as BEFORE

from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.marginal import summation_error
from resispec_verify.rules import (
    NEED_PARAMETERS,
    PATH_RULES,
    RULES,
    Greedy,
    Iid,
    Pairs,
    Rule,
    TupleRule,
    WithoutReplacement,
)
from resispec_verify.rules.shipped.k_seq import solve_rho

# Every rule that needs no parameters is here, or in `test_backends`, by its name alone.
NAMES = [name for name in RULES if name not in {rule.name for rule in BEFORE}]
MORE = [*values_of({name: RULES[name] for name in NAMES} | NEED_PARAMETERS)]
PATHS = [*values_of(PATH_RULES)]


def sums_its_own_paths(rule) -> bool:
    """Such a rule does so in float64, whatever the precision it is given."""
    return type(rule).sum_paths is not Rule.sum_paths


def untested(rules) -> set[str]:
    return set(rules) - {rule.name for rule in (*BEFORE, *MORE, *PATHS)}


def test_every_rule_is_here():
    assert untested(RULES | NEED_PARAMETERS | PATH_RULES) == set()


def test_a_rule_that_is_not_here_is_noticed():
    assert untested([*RULES, "a-new-rule"]) == {"a-new-rule"}


def label(rule) -> str:
    return ",".join([rule.name, *rule.options().values()])


@pytest.fixture(params=MORE, ids=label)
def rule(request):
    return request.param


def test_operational_marginals(setting, rule):
    library, dtype = setting
    p, q = pair(dtype)
    right = operational_marginals(rule, p, q, 2, budget=EVERYTHING)
    target, draft = library.array(p), library.array(q)
    with Unchanged(target, draft):
        marginals = operational_marginals(rule, target, draft, 2, budget=EVERYTHING)
    for values in (marginals.placed, marginals.acceptance, marginals.unexpanded, marginals.rounding):
        check_like(values, target, same_dtype=not sums_its_own_paths(rule))
    bound = float(to_numpy(marginals.rounding).max() + right.rounding.max())
    assert_close(marginals.placed, right.placed, 2 * bound)
    assert_close(marginals.acceptance, right.acceptance, 2 * bound)
    np.testing.assert_array_equal(to_numpy(marginals.gap), np.zeros(ROWS))


def test_one_round(setting, rule):
    library, dtype = setting
    if isinstance(rule, TupleRule):
        return  # no round of its own; its tuples are in the test above
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


def test_rho(setting):
    library, dtype = setting
    p, q = pair(dtype)
    rho = solve_rho(library.array(p), library.array(q), 3)
    check_like(rho, library.array(p))
    b = np.minimum(q, p / to_numpy(rho)).sum(axis=-1, keepdims=True, dtype=np.float64)
    value = to_numpy(rho) * b - 1 + (1 - b) ** 3
    assert (np.abs(value) <= 3 * 16 * eps(dtype) + 2 * VOCAB * eps(dtype)).all()


@pytest.mark.parametrize("proposal", [Iid(), WithoutReplacement(), Greedy(), Pairs()], ids=lambda p: p.name)
def test_proposals_of_many_rows(setting, proposal):
    library, dtype = setting
    q = pair(dtype)[1]
    first = np.array([1, 0, 2])
    draft, drawn = library.array(q), library.array(first)
    for given, theirs in (((), ()), ((drawn,), (first,))):
        law = proposal.next(draft, given)
        check_like(law, draft)
        assert_close(law, proposal.next(q, theirs), eps(dtype) * (summation_error(VOCAB) + 2))


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("proposal", [Iid(), WithoutReplacement(), Greedy(), Pairs()], ids=lambda p: p.name)
def test_limits_of_proposals(setting, proposal, n):
    library, dtype = setting
    p, q = pair(dtype)
    target, draft = library.array(p), library.array(q)
    with Unchanged(target, draft):
        limit = proposal.limit(target, draft, n)
    right = proposal.limit(p.astype(np.float64), q.astype(np.float64), n)
    if right is None:
        assert limit is None
        return
    check_like(limit, target)
    assert_close(limit, right, eps(dtype) * (2 * VOCAB + 2 * summation_error(VOCAB) + n + 2))


def has(rule, ability: str) -> bool:
    """Whether a rule's own class says something about what `Rule` leaves at None."""
    return getattr(type(rule), ability) is not getattr(Rule, ability)


ALL = [*BEFORE, *(rule for rule in MORE if not isinstance(rule, TupleRule))]


@pytest.mark.parametrize("rule", [rule for rule in ALL if has(rule, "last_round")], ids=label)
def test_closed_form_of_the_last_round(setting, rule):
    library, dtype = setting
    p, q = pair(dtype)
    target, draft = library.array(p), library.array(q)
    with Unchanged(target, draft):
        closed = rule.last_round(rule.start(target, draft, 1))
    right = rule.last_round(rule.start(p, q, 1))
    for ours, theirs in zip(closed, right, strict=True):
        check_like(ours, target)
        # In float64 on the CPU: one code, rounded once to the input's precision.
        assert_close(ours, theirs, eps(dtype))


@pytest.mark.parametrize("rule", [rule for rule in ALL if has(rule, "proxy")], ids=label)
def test_proxy(setting, rule):
    library, dtype = setting
    p, q = pair(dtype)
    tokens = np.array([1, 0, 5])
    target, draft, rejected = library.array(p), library.array(q), library.array(tokens)
    with Unchanged(target, draft, rejected):
        k = rule.proxy(target, draft, rejected)
    check_like(k, target)
    # Entries at most 2, from one row sum and a handful of operations.
    assert_close(k, rule.proxy(p, q, tokens), 2 * eps(dtype) * (summation_error(VOCAB) + 8))


@pytest.mark.parametrize(
    "rule", PATHS, ids=lambda r: ",".join([r.name, r.correction] if r.name == "medusa" else [r.name])
)
def test_paths(setting, rule):
    library, dtype = setting
    p, q = pair(dtype)
    targets, drafts, path = np.stack([p, p[::-1]]), np.stack([q[:2], q[1:]]), np.array([[1, 2], [0, 5]])
    given = [library.array(values) for values in (targets, drafts, path)]
    with Unchanged(*given):
        computed = rule.outcome(*given)
    for ours, theirs in zip(computed, rule.outcome(targets, drafts, path), strict=True):
        check_like(ours, given[0])
        assert_close(ours, theirs, 4 * eps(dtype) * (summation_error(VOCAB) + 8))
