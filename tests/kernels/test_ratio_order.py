"""Tokens in ascending order of p/q, which path sums and limits take for granted."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from resispec_verify.kernels.elementwise.ratio_order import SHORT, TIE, ratio_order


@pytest.mark.parametrize("run", [2, 3, SHORT, SHORT + 1])
@pytest.mark.parametrize("vocab", [64, 4096])
def test_ratios_that_agree_in_their_leading_bits_are_in_order(run, vocab):
    # All q are equal: p orders the tokens. Those of a run differ where a token's number takes the place of
    # the bits of its ratio, and the largest has the smallest number.
    p = 2.0 ** -np.arange(1, vocab + 1, dtype=np.float64).clip(max=500)
    p[:run] = 0.75 * (1.0 + np.arange(run)[::-1] * 2 * TIE)
    q = np.full(vocab, 2.0**-12)

    found = ratio_order(p, q)

    assert sorted(found.order) == list(range(vocab))
    assert found.order[-run:].tolist() == list(range(run))[::-1]
    exact = [Fraction(p[token]) / Fraction(q[token]) for token in found.order]
    assert all(later >= (1 - Fraction(TIE)) * former for former, later in pairwise(exact))
