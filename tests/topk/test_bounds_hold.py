"""Laws on which intervals once left the truth out: rounded lists with exact tails, subnormals, full caps."""

import numpy as np
import pytest

import resispec_verify as rv
from resispec_verify import topk
from resispec_verify.dumps.kinds.top_rows import TopPairs, TopRows
from resispec_verify.errors import InputError
from resispec_verify.rules import make_rule


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
