"""From logits to probabilities: temperature, softmax and filters, on values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from resispec_verify.distributions import Sampling
from resispec_verify.errors import InputError
from resispec_verify.evidence import draw_candidates
from resispec_verify.kernels.elementwise.divergences import kullback_leibler
from resispec_verify.kernels.elementwise.probabilities import filter_logits, one_hot, softmax, temper

EPS = float(np.finfo(np.float64).eps)
INF = math.inf
BASE = np.log(np.array([0.5, 0.3, 0.2]))
# log, a shift, exp, a sum and a division of numbers below 2
FEW = 16 * EPS


def law(logits, dtype=np.float64, **options):
    return Sampling(**options).probabilities(np.asarray(logits), dtype=dtype)


def close(computed, right):
    return float(np.abs(np.asarray(computed) - np.asarray(right)).max()) <= FEW


def test_temperature_0_is_the_first_argmax():
    # vllm#27077
    logits = np.array([[1.0, 3.0, 3.0], [2.0, -INF, -5.0], [-INF, -INF, 0.0]])
    assert law(logits, temperature=0.0).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert temper(logits, 0.0, dtype=np.float64)[0].tolist() == [-INF, 0.0, -INF]


def test_a_tiny_temperature_is_finite_and_shares_ties():
    # vllm#27077: at T = 1e-6 a logit 1 below the best is 1e6 below it; the two best are equal.
    for temperature in (1e-6, 1e-300, 5e-324):
        assert law([1.0, 3.0, 3.0], temperature=temperature).tolist() == [0.0, 0.5, 0.5]


@pytest.mark.parametrize("temperature", [-1.0, -1e-9, math.nan, INF])
def test_temperatures_that_make_no_sense(temperature):
    with pytest.raises(InputError, match="temperature must be a finite number >= 0, got"):
        Sampling(temperature=temperature)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_k": 0}, "top-k must be at least 1, got 0"),
        ({"top_p": 0.0}, r"top-p must be in \(0, 1\], got 0"),
        ({"top_p": 1.5}, r"top-p must be in \(0, 1\], got 1.5"),
        ({"top_p": math.nan}, r"top-p must be in \(0, 1\], got nan"),
        ({"min_p": -0.1}, r"min-p must be in \[0, 1\], got -0.1"),
        ({"min_p": 2.0}, r"min-p must be in \[0, 1\], got 2"),
    ],
)
def test_filters_that_make_no_sense(options, message):
    with pytest.raises(InputError, match=message):
        Sampling(**options)


def test_temperature_is_a_power_of_the_law():
    # softmax(log p / T) is p^(1/T) normalised: squares at T = 1/2.
    squares = np.array([0.25, 0.09, 0.04])
    assert close(law(BASE, temperature=0.5), squares / 0.38)
    assert close(law(BASE), [0.5, 0.3, 0.2])


@pytest.mark.parametrize("shift", [-1e4, 0.0, 700.0, 1e4])
def test_softmax_does_not_overflow(shift):
    logits = np.array([0.0, -1.0, -INF]) + shift
    # 1 / (1 + 1/e); the shift cancels exactly in float64 up to the rounding of 1e4.
    first = 1 / (1 + math.exp(-1))
    assert float(np.abs(law(logits) - [first, 1 - first, 0.0]).max()) <= FEW + abs(shift) * EPS


def test_half_precision_logits_are_cast_before_anything_is_computed():
    # In float16 the division by .7 would round to three digits.
    logits = np.array([3.0, 2.5, -1.0], np.float16)
    np.testing.assert_array_equal(
        law(logits, temperature=0.7), law(logits.astype(np.float64), temperature=0.7)
    )


def test_rows_masked_at_the_same_tokens_have_a_finite_divergence():
    # heretic#348: -inf in both rows is probability 0 in both, and adds nothing.
    a, b = law([[-INF, 0.0, 1.0, -INF]]), law([[-INF, 1.0, 0.0, -INF]])
    assert a[0, 0] == b[0, 0] == 0.0
    # Two tokens with odds e and 1/e: KL = (2 s - 1) for s = 1 / (1 + 1/e), the log-odds being 1 and -1.
    assert abs(float(kullback_leibler(a, b)[0]) - (2 / (1 + math.exp(-1)) - 1)) <= FEW


# Filters


def test_top_p_of_the_base_case():
    # vllm#10198: .5 + .3 reaches .8, on the boundary.
    assert close(law(BASE, top_p=0.8), [0.625, 0.375, 0.0])
    assert close(law(BASE, top_p=0.81), [0.5, 0.3, 0.2])
    assert close(law(BASE, top_p=0.79), [0.625, 0.375, 0.0])
    assert close(law(BASE, top_p=0.5), [1.0, 0.0, 0.0])


def test_top_p_always_keeps_the_best_token():
    assert law(BASE, top_p=1e-12).tolist() == [1.0, 0.0, 0.0]
    assert law(np.zeros(4), top_p=1e-12).sum() == 1.0


def test_top_p_drops_the_lower_index_of_a_tie_first():
    # Hugging Face sorts ascending and stable, and drops while the cumulative sum is at most 1 - p.
    assert law(np.zeros(4), top_p=0.5).tolist() == [0.0, 0.0, 0.5, 0.5]


def test_top_k_keeps_ties():
    # Two tokens tie for the second place.
    assert close(law([2.0, 1.0, 1.0, 0.0], top_k=2), law([2.0, 1.0, 1.0, -INF]))
    assert close(law([1.0, 1.0, 1.0], top_k=1), [1 / 3] * 3)
    assert close(law(BASE, top_k=2), [0.625, 0.375, 0.0])


@pytest.mark.parametrize("top_k", [3, 4, 1000])
def test_a_top_k_of_the_vocabulary_or_more_keeps_everything(top_k):
    assert close(law(BASE, top_k=top_k), [0.5, 0.3, 0.2])


def test_min_p_is_relative_to_the_best():
    # .5 min_p: .25 keeps .3 and not .2.
    assert close(law(BASE, min_p=0.5), [0.625, 0.375, 0.0])
    assert close(law(BASE, min_p=0.0), [0.5, 0.3, 0.2])
    assert close(law(BASE, min_p=1.0), [1.0, 0.0, 0.0])


def test_top_k_comes_before_top_p():
    # p = .4, .3, .2, .1. Cut to three first, .2 is 2/9 <= 1/4 and goes; the other order would keep it.
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1]))
    assert close(law(logits, top_k=3, top_p=0.75), [4 / 7, 3 / 7, 0.0, 0.0])
    assert close(law(logits, top_p=0.75), [4 / 9, 3 / 9, 2 / 9, 0.0])


def test_filters_see_each_row_by_itself():
    rows = np.stack([BASE, BASE[::-1]])
    assert close(law(rows, top_p=0.8), [[0.625, 0.375, 0.0], [0.0, 0.375, 0.625]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_top_p_in_a_large_vocabulary_does_not_depend_on_the_precision(dtype):
    # 2^17 equal logits: every probability and every partial sum is exact in either precision, and half of
    # the tokens sum to exactly 1 - p.
    vocab = 1 << 17
    kept = np.isfinite(filter_logits(np.zeros((1, vocab), dtype), top_k=None, top_p=0.5, min_p=None))
    assert int(kept.sum()) == vocab // 2


def test_softmax_of_a_one_hot_is_exact():
    assert softmax(np.array([[0.0, -INF], [-INF, 0.0]])).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert one_hot(np.array([1, 0]), 2, dtype=np.float32).tolist() == [[0.0, 1.0], [1.0, 0.0]]


# Drawing candidates of the path identity


def test_candidates_are_drawn_by_inversion_of_the_overhang():
    # (q - p)+ = (1/8, 0, 3/8, 0): a quarter of its mass on token 0, the rest on token 2.
    p, q = np.array([[1, 4, 1, 2]]) / 8, np.array([[2, 2, 4, 0]]) / 8
    for u, token in ((0.0, 0), (0.2499, 0), (0.25, 2), (0.9, 2), (1 - EPS / 2, 2)):
        for order in ("C", "F"):  # the single pass, and the array version
            draft = np.array(np.concatenate([q, q]), order=order)
            current = np.array(np.concatenate([p, p]), order=order)
            tokens = draw_candidates(draft, 1, np.full((2, 1), u))(0, current)
            assert tokens.tolist() == [token, token]


def test_candidates_come_from_the_draft_where_nothing_can_be_rejected():
    q = np.array([[0.0, 0.5, 0.0, 0.5]])
    for u, token in ((0.0, 1), (0.499, 1), (0.5, 3), (0.999, 3)):
        assert draw_candidates(q, 1, np.array([[u]]))(0, q).tolist() == [token]
