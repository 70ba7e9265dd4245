"""The two extreme completions, against linear programs and completions drawn at random."""

import numpy as np
import pytest
from scipy.optimize import linprog
from topk_helpers import excess, random_completion, random_pairs

from resispec_verify import topk
from resispec_verify.dumps.kinds.top_rows import TopPairs, TopRows
from resispec_verify.errors import InputError

LEVELS = (0.0, 0.05, 0.3, 0.8, 1.0, 1.4, 2.5, 7.0, 40.0)
ERROR = 1e-6  # of the linear programs: ten times the tolerance of their constraints


def pair(target, draft, k, j=None):
    target, draft = (np.atleast_2d(np.asarray(law, np.float64)) for law in (target, draft))
    return TopPairs(topk.cut(target, k), topk.cut(draft, k if j is None else j))


def m_of(laws, s):
    """M(s) of a completion's atoms ``(2, 1, m)``."""
    return excess(laws[0, 0], laws[1, 0], s)


def least_by_program(pairs, s):
    """The least M(s) over all completions."""
    vocab = pairs.target.vocab
    bounds, fixed = [], []
    for rows in (pairs.target, pairs.draft):
        known = dict(zip(rows.tokens[0].tolist(), rows.probabilities[0].tolist(), strict=True))
        bounds += [(known[x],) * 2 if x in known else (0.0, rows.most[0]) for x in range(vocab)]
        fixed.append(1.0)
    bounds += [(0.0, None)] * vocab
    cost = np.r_[np.zeros(2 * vocab), np.ones(vocab)]
    above = np.hstack([np.eye(vocab), -s * np.eye(vocab), -np.eye(vocab)])
    sums = np.zeros((2, 3 * vocab))
    sums[0, :vocab] = sums[1, vocab : 2 * vocab] = 1.0
    found = linprog(cost, above, np.zeros(vocab), sums, fixed, bounds=bounds)
    assert found.status == 0
    return found.fun


@pytest.mark.parametrize("seed", range(40))
def test_the_least_is_that_of_the_linear_program_at_every_level(seed):
    rng = np.random.default_rng(seed)
    pairs = random_pairs(rng, 1)
    found = topk.reduced(pairs)
    attained = topk.bounds(pairs, _specinfer(), 1).attained[0, 0]
    for s in LEVELS:
        ours, least = m_of(found.least, s), least_by_program(pairs, s)
        assert ours <= least + ERROR
        if attained:
            assert ours >= least - ERROR


@pytest.mark.parametrize("seed", range(20))
def test_no_completion_leaves_the_two(seed):
    rng = np.random.default_rng(100 + seed)
    pairs = random_pairs(rng, 1)
    found = topk.reduced(pairs)
    for _ in range(50):
        p, q = random_completion(pairs, rng)
        for s in LEVELS:
            m = excess(p, q, s)
            assert m_of(found.least, s) - 1e-12 <= m <= m_of(found.greatest, s) + 1e-12


def test_the_greatest_is_a_completion_where_there_is_room():
    pairs = pair([0.4, 0.3, 0.1, 0.1, 0.05, 0.05], [0.1, 0.5, 0.3, 0.05, 0.03, 0.02], 2)
    bounds = topk.bounds(pairs, _specinfer(), 1)
    assert bounds.attained.tolist() == [[True, True]]
    # p's tail of .3 on token 3, q's tail of .2 on token 4; token 0 has q = 0 and token 2 has p = 0.
    assert bounds.tv[0, 1] == pytest.approx(0.5 * (0.4 + 0.2 + 0.3 + 0.3 + 0.2), abs=1e-12)


def test_the_least_by_hand():
    # Token 0 known; .2 at token 1 of the target alone, .1 at 2 of the draft; tails .3 and .4, no caps.
    target = TopRows(
        np.array([[0, 1]], np.int32), np.array([[0.5, 0.2]]), np.array([[0.3, 0.3]]), np.ones(1), 20
    )
    draft = TopRows(
        np.array([[0, 2]], np.int32), np.array([[0.5, 0.1]]), np.array([[0.4, 0.4]]), np.ones(1), 20
    )
    found = topk.reduced(TopPairs(target, draft))
    p, q = found.least[:, 0]
    assert p.sum() == pytest.approx(1.0, abs=1e-15)
    assert excess(p, q, 1.0) == pytest.approx(0.0, abs=1e-15)  # all else at the ratio .5/.5


def test_lists_of_the_whole_vocabulary_leave_nothing_open():
    rng = np.random.default_rng(3)
    p, q = rng.dirichlet(np.ones(7), 50), rng.dirichlet(np.full(7, 0.3), 50)
    for rule in ("specinfer", "optimal-sequential", "optimal-joint", "k-seq"):
        found = topk.bounds(pair(p, q, 7), _rule(rule), 3)
        for name in ("tv", "limit", "acceptance", "kl"):
            low, high = getattr(found, name).T
            assert np.all(high - low < 1e-11 * (1 + high)), name
        assert found.attained.all()
        tv = 0.5 * np.abs(p - q).sum(axis=1)
        assert np.all((found.tv[:, 0] <= tv) & (tv <= found.tv[:, 1]))


def test_a_law_beside_itself_may_be_equal():
    p = np.random.default_rng(4).dirichlet(np.ones(12), 5)
    found = topk.bounds(pair(p, p, 4), _specinfer(), 2)
    assert np.all(found.tv[:, 0] == 0.0)
    assert np.all(found.tv[:, 1] > 0.0)
    assert np.all(found.acceptance[:, 1] == 1.0)


def test_disjoint_lists():
    p, q = np.r_[0.5, 0.3, 0.1, 0.1, np.zeros(6)], np.r_[0.1, 0.1, 0.5, 0.3, np.zeros(6)]
    found = topk.bounds(pair(p, q, 2), _specinfer(), 1)
    # each tail is .2: the draft's fills at most .2 below the target's, and the other way round
    assert found.tv[0, 0] == pytest.approx(0.6, abs=1e-12)
    assert found.tv[0, 1] == pytest.approx(1.0, abs=1e-12)


def test_zeros_in_the_lists():
    p, q = np.r_[1.0, np.zeros(9)], np.r_[0.0, 0.6, 0.4, np.zeros(7)]
    found = topk.bounds(pair(p, q, 5), _specinfer(), 2)
    assert found.tv[0].tolist() == pytest.approx([1.0, 1.0], abs=1e-12)
    assert found.kl[0, 0] == np.inf


def test_single_precision_lists_hold_the_answer():
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.full(300, 0.1), (2, 64)).astype(np.float32)
    found = topk.bounds(TopPairs(topk.cut(p, 20), topk.cut(q, 20)), _specinfer(), 1)
    tv = 0.5 * np.abs(p.astype(float) - q).sum(axis=1)
    assert np.all((found.tv[:, 0] <= tv + 1e-7) & (tv <= found.tv[:, 1] + 1e-7))


def _rule(name):
    from resispec_verify.rules import make_rule

    return make_rule(name)


def _specinfer():
    return _rule("specinfer")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokens": np.array([[0, 0]], np.int32)}, "position 0: a token is listed twice"),
        ({"tail": np.array([[0.0, 1.0]])}, "log normalised probabilities"),
        ({"probabilities": np.array([[np.nan, 0.2]])}, "position 0: the target's list holds"),
        ({"probabilities": np.array([[-0.1, 0.2]])}, "position 0: the target's list holds"),
        ({"most": np.array([1e-4])}, "fit into the vocabulary"),
        ({"tokens": np.array([[0, 11]], np.int32)}, "or no token"),
    ],
)
def test_what_is_no_law_is_refused(change, says):
    rows = {
        "tokens": np.array([[0, 1]], np.int32),
        "probabilities": np.array([[0.5, 0.2]]),
        "tail": np.array([[0.3, 0.3]]),
        "most": np.array([0.2]),
        "vocab": 10,
    }
    good = TopRows(**rows)
    with pytest.raises(InputError, match=says):
        topk.bounds(TopPairs(TopRows(**(rows | change)), good), _specinfer(), 1)


def test_targets_and_drafts_of_different_numbers_of_positions_are_refused():
    laws = np.random.default_rng(6).dirichlet(np.ones(5), 3)
    pairs = TopPairs(topk.cut(laws[:1], 2), topk.cut(laws[1:], 2))
    with pytest.raises(InputError, match="1 positions of the target, 2 of the draft"):
        topk.bounds(pairs, _specinfer(), 1)
