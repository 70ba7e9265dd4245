"""The path identity emits the target for any proxies at all (resispec_verify/proofs/path_identity.py)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import EPS, OPTIONS, distance, pairs, row

from resispec_verify.evidence.marginal import summation_error
from resispec_verify.evidence.path_identity import draw_candidates, path_identity
from resispec_verify.oracle import get_proxy as rational_proxy
from resispec_verify.oracle import path_identity as rational_identity
from resispec_verify.rules import ResiSpec, SpecInfer, Speculative


def bound(vocab: int, n: int) -> float:
    """A round multiplies by one row sum and divides by it: relative errors, on mass that adds up to 1."""
    return 0.5 * EPS * (n + 1) * (2 * summation_error(vocab) + 8)


@settings(max_examples=150)
@given(st.data())
def test_random_proxies(data):
    target, draft = data.draw(pairs())
    size, n = len(target), data.draw(st.integers(0, 4))
    entries = st.floats(0.0, 2.0, allow_subnormal=False)
    proxies = data.draw(
        st.lists(st.lists(entries, min_size=size, max_size=size), min_size=n, max_size=n).map(np.array)
    )
    turn = iter(range(n))
    emitted = path_identity(
        row(target),
        row(draft),
        lambda current, q, tokens: proxies[next(turn)][None, :],
        np.zeros((1, n), int),
        n,
    )
    assert distance(emitted[0], target) <= bound(size, n)


@pytest.mark.parametrize("rule", [SpecInfer(), Speculative(), *(ResiSpec(*o) for o in OPTIONS)], ids=str)
@settings(max_examples=25)
@given(data=st.data())
def test_the_proxies_of_rules(rule, data):
    target, draft = data.draw(pairs())
    size, n = len(target), data.draw(st.integers(0, 4))
    candidates = data.draw(st.lists(st.integers(0, size - 1), min_size=n, max_size=n))
    emitted = path_identity(row(target), row(draft), rule.proxy, np.array([candidates], np.int64), n)
    assert distance(emitted[0], target) <= bound(size, n)


@settings(max_examples=60)
@given(st.data())
def test_drawn_candidates_can_be_rejected(data):
    target, draft = data.draw(pairs())
    uniform = data.draw(st.floats(0.0, 1.0, exclude_max=True))
    p, q = row(target), row(draft)
    token = int(draw_candidates(q, 1, np.array([[uniform]]))(0, p)[0])
    over = q[0] > p[0]
    # Where nothing can be rejected the draw is from q.
    assert over[token] if over.any() else q[0, token] > 0
    emitted = path_identity(p, q, ResiSpec().proxy, draw_candidates(q, 3, np.full((1, 3), uniform)), 3)
    assert distance(emitted[0], target) <= bound(len(target), 3)


@settings(max_examples=60)
@given(st.data())
def test_proxies_agree_with_the_oracle(data):
    # Algorithm 1 in fractions; only for tokens that can be rejected. A handful of roundings on mass <= 2.
    target, draft = data.draw(pairs())
    rejectable = [x for x in range(len(target)) if draft[x] > target[x]]
    if not rejectable:
        return
    token = data.draw(st.sampled_from(rejectable))
    options = data.draw(st.sampled_from(OPTIONS))
    names = dict(zip(("redistribution", "budget", "hole"), options, strict=True))
    right = rational_proxy(target, draft, token, **names)
    k = ResiSpec(*options).proxy(row(target), row(draft), np.array([token]))[0]
    assert distance(k, right.k) <= 2 * bound(len(target), 1)
    assert rational_identity(target, [right.k]).law == target
