"""The rules beyond ResiSpec's own on every array library; see `test_backends` for what "like" means."""

from __future__ import annotations

import numpy as np
import pytest
from test_backends import (
    EVERYTHING,
    ROWS,
    SETTINGS,
    VOCAB,
    Unchanged,
    assert_close,
    check_like,
    eps,
    pair,
    to_numpy,
)

from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.marginal import summation_error
from resispec_verify.rules import (
    CSD,
    EASD,
    RULES,
    Block,
    Greedy,
    Iid,
    Medusa,
    Pairs,
    SGLang,
    TupleRule,
    WithoutReplacement,
    make_rule,
)
from resispec_verify.rules.k_seq import solve_rho

NAMES = [name for name in RULES if name not in ("speculative", "specinfer", "resispec", "optimal-sequential")]
MORE = [
    *(make_rule(name) for name in NAMES),
    SGLang(0.5, 0.75),
    CSD(ratio=0.2, memory=[(1, 0), (3, 5)]),
    *(
        EASD(target_entropy=1.0, draft_entropy=1.0, top_n=3, overlap=0.3, rejects=rejects)
        for rejects in ("position", "overlap")
    ),
]
# One library of each kind; `test_backends` has the others.
KINDS = {("numpy", "float64"), ("numpy", "float32"), ("torch", "float64"), ("torch", "float32"),
         ("strict, another device", "float64")}  # fmt: skip
CHOSEN = [(library, dtype) for library, dtype in SETTINGS if (library.name, dtype) in KINDS]
# These sum their own paths, in float64 whatever the precision they are given.
OWN = ("token-match", "specinfer-skip-duplicates")


@pytest.fixture(params=CHOSEN, ids=lambda setting: f"{setting[0].name}-{setting[1]}")
def setting(request):
    if request.param[0].module != "numpy":
        pytest.importorskip(request.param[0].module)
    return request.param


@pytest.fixture(params=MORE, ids=lambda rule: ",".join([rule.name, *rule.options().values()]))
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
        check_like(values, target, same_dtype=rule.name not in OWN)
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


@pytest.mark.parametrize("rule", [Block(), Medusa(), Medusa(correction="target")], ids=lambda r: r.name)
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
