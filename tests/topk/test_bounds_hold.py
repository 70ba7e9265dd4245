"""Laws on which intervals once left the truth out: rounded lists with exact tails, subnormals, full caps."""

import numpy as np
import pytest

import resispec_verify as rv
from resispec_verify import topk
from resispec_verify.dumps.kinds.top_rows import TopPairs, TopRows
from resispec_verify.errors import InputError
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.rules import ResiSpec, SpecInfer, make_rule
from resispec_verify.tables.top_drift import check_standard
from resispec_verify.verdict import Verdict


def listed(path, p, q, k, dtype, tails):
    arrays: dict = {"vocab": p.shape[1]}
    for role, law in (("target", p), ("draft", q)):
        ids = np.argsort(-law, axis=1)[:, :k]
        arrays[f"{role}_top_ids"] = ids
        with np.errstate(under="ignore"):
            arrays[f"{role}_top_logprobs"] = np.log(np.take_along_axis(law, ids, axis=1)).astype(dtype)
        arrays[f"{role}_ranked"] = np.array(k)
        others = law.copy()
        np.put_along_axis(others, ids, 0.0, axis=1)
        if tails:
            arrays[f"{role}_tail"] = others.sum(axis=1)
    np.savez(path, **arrays)
    dump = rv.open_top_pairs(path)
    return dump.pairs(0, dump.positions)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("k", [5, 20, 50])
@pytest.mark.parametrize("tails", [True, False])
def test_errors_that_cancel_in_the_sum_widen_the_intervals(tmp_path, dtype, k, tails):
    """The listed and the tail are 1 together, and yet every listed number is rounded."""
    rng = np.random.default_rng(1)
    logits = 3.0 * rng.standard_normal((400, 50))
    p, q = (
        np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
        for x in (logits, logits + 0.3 * rng.random((400, 50)))
    )
    found = topk.bounds(listed(tmp_path / "x.npz", p, q, k, dtype, tails), make_rule("specinfer"), 1)
    tv, kl = 0.5 * np.abs(p - q).sum(axis=1), (p * np.log(p / q)).sum(axis=1)
    assert np.all((found.tv[:, 0] <= tv) & (tv <= found.tv[:, 1]))
    assert np.all((found.kl[:, 0] <= kl) & (kl <= found.kl[:, 1]))
    assert np.all((found.acceptance[:, 0] <= 1 - tv) & (1 - tv <= found.acceptance[:, 1]))
    if k == 50:  # no more than what half precision, or single, loses
        assert np.all(np.diff(found.tv) < (2e-2 if dtype is np.float16 else 2e-6))


def test_a_logarithm_below_the_normal_numbers_of_half_precision(tmp_path):
    """-2e-8 is stored as 0, and a tail of 2e-8 with it."""
    p = np.array([[1 - 2e-8, 1e-8, 1e-8]])
    for tails in (False, True):
        tail = listed(tmp_path / "x.npz", p, p, 1, np.float16, tails).target.tail[0]
        assert tail[0] <= 2e-8 <= tail[1]
    arrays = dict(np.load(tmp_path / "x.npz")) | {"target_tail": np.zeros(1, np.float16)}
    np.savez(tmp_path / "y.npz", **arrays)  # type: ignore[arg-type]
    assert rv.open_top_pairs(tmp_path / "y.npz").pairs(0, 1).target.tail[0, 1] >= 2e-8


@pytest.mark.parametrize("rule", ["specinfer", "optimal-sequential", "optimal-joint", "k-seq"])
def test_subnormal_probabilities_hold_no_more_than_the_tail(rule):
    """A level of tail over probability that is not finite once put the cap on a token, not the tail."""
    target = TopRows(np.array([[0]]), np.array([[0.7]]), np.array([[0.3, 0.3]]), np.ones(1), 2)
    draft = TopRows(np.array([[0, 1]]), np.array([[1.0, 1.6e-310]]), np.zeros((1, 2)), np.ones(1), 2)
    found = topk.bounds(TopPairs(target, draft), make_rule(rule), 2)
    assert found.tv[0] == pytest.approx([0.3, 0.3], abs=1e-12)
    assert found.acceptance[0] == pytest.approx([0.7, 0.7], abs=1e-12)
    assert found.limit[0] == pytest.approx([0.7, 0.7], abs=1e-12)
    assert 0.0 < found.kl[0, 0] <= 0.7 * np.log(0.7) + 0.3 * (np.log(0.3) - np.log(1.6e-310)) + 1e-9


@pytest.mark.parametrize(("vocab", "k"), [(10, 1), (10, 2), (14, 4)])
def test_a_tail_that_the_caps_just_hold_makes_no_infinite_divergence(vocab, k):
    """1/10 nine times is less than the sum of nine 1/10: what is over is rounding."""
    p = np.full((1, vocab), 1 / vocab)
    q = np.random.default_rng(100 * vocab + k).dirichlet(np.full(vocab, 5.0), 1)
    found = topk.bounds(TopPairs(topk.cut(p, k), topk.cut(q, vocab)), make_rule("specinfer"), 2)
    assert found.kl[0, 0] == pytest.approx((p * np.log(p / q)).sum(), abs=1e-12)


def test_what_lists_are_off_by_is_kept_and_checked():
    rows = TopRows(
        np.array([[0, 1]] * 3), np.full((3, 2), 0.5), np.zeros((3, 2)), np.ones(3), 4, np.full(3, 1e-3)
    )
    assert np.array_equal(topk.shorten(rows, 1)[1:].off, np.full(2, 1e-3))  # type: ignore[arg-type]
    found = topk.bounds(TopPairs(rows, rows), make_rule("specinfer"), 1)
    assert np.allclose(found.tv, [0.0, 1e-3])
    for off in (np.full(3, np.nan), np.full(3, -1.0), np.full(3, 0.2), np.zeros(2)):
        wrong = TopRows(rows.tokens, rows.probabilities, rows.tail, rows.most, 4, off)
        with pytest.raises(InputError):
            topk.bounds(TopPairs(wrong, rows), make_rule("specinfer"), 1)


class _Alike(SpecInfer):
    """Says that it equals what it is not."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def test_a_rule_that_calls_itself_equal_to_a_shipped_one_is_not_exact_for_that():
    law = topk.cut(np.array([[0.5, 0.3, 0.2]]), 2)
    found = topk.bounds(TopPairs(law, law), _Alike(), 2)
    assert found.proof is None
    assert found.verdict is Verdict.UNDECIDED
    assert found.acceptance.tolist() == [[0.0, 1.0]]
    with pytest.raises(InputError, match="needs whole rows"):
        check_standard([_Alike()])


def test_resispec_is_not_inexact_for_what_a_list_may_be_off_by():
    """One token's p, listed as 1e-3, is 0: many rejected tokens would each have given it that much."""
    vocab, off = 33, 1e-3
    p, q = np.zeros((1, vocab)), np.full((1, vocab), 1.0)
    p[0, -1], q[0, 0], q[0, -1] = 1.0, 8.0, 0.02
    q /= q.sum()
    ids = np.arange(vocab, dtype=np.int32)[None]
    listed = p.copy()
    listed[0, 0] += off
    exact = TopRows(ids, q, np.zeros((1, 2)), np.zeros(1), vocab)
    for said in (None, np.full(1, off)):
        pairs = TopPairs(TopRows(ids, listed, np.zeros((1, 2)), np.zeros(1), vocab, said), exact)
        for n in (1, 2):
            emitted = rv.operational_marginals(ResiSpec(), p, q, n)
            tv = tv_interval(emitted, p)[1][0]
            assert topk.bounds(pairs, ResiSpec(), n).emitted_tv[0, 0] <= tv + 1e-12
