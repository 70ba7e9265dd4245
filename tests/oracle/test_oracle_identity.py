"""Appendix B's path identity equals the target for every choice of proxies, and so tests no sampler."""

from __future__ import annotations

from fractions import Fraction as F

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resispec_verify.oracle import get_proxy, marginal, normalise, path_identity

P = (F(3, 10), F(4, 10), F(3, 10))
Q = (F(6, 10), F(3, 10), F(1, 10))


@st.composite
def chains(draw):
    """A target over 1 to 4 tokens and up to 4 arbitrary proxies: negative, unnormalised, or covering."""
    size = draw(st.integers(1, 4))
    counts = draw(st.lists(st.integers(0, 4), min_size=size, max_size=size).filter(any))
    entry = st.one_of(st.fractions(-2, 2, max_denominator=6), st.just(F(50)))
    proxy = st.lists(entry, min_size=size, max_size=size)
    return normalise([F(count) for count in counts]), draw(st.lists(proxy, max_size=4))


@settings(max_examples=150, deadline=None)
@given(chains())
def test_equals_the_target_for_any_proxies(chain):
    target, proxies = chain
    identity = path_identity(target, proxies)
    assert identity.law == target
    assert len(identity.paths) == len(proxies) + 1
    assert len(identity.betas) == len(proxies)


def test_a_round_with_beta_one_ends_the_sum():
    identity = path_identity(P, [Q, [1, 1, 1], [5, 5, 5]])
    assert identity.betas == (F(7, 10), 1, 0)
    assert identity.law == P
    assert identity.paths[2:] == ((0, 0, 0), (0, 0, 0))


def test_no_proxies_and_one_token():
    assert path_identity(P, []).law == P
    assert path_identity([1], [[F(1, 3)], [1]]).law == (1,)


def test_it_is_blind_to_an_inexact_sampler():
    """ResiSpec's own proxy: the identity gives p, the sampler does not."""
    proxy = get_proxy(P, Q, 0)
    assert path_identity(P, [proxy.k]).law == P
    assert path_identity(P, [proxy.k]).betas == (1 - proxy.Z,)
    assert marginal("resispec", P, Q, 1).law != P


def test_a_proxy_of_another_length_is_refused():
    with pytest.raises(ValueError, match="proxy 1 must have the target's 3 tokens, got 2"):
        path_identity(P, [Q, [1, 0]])
