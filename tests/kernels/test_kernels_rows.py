"""The kernels that go through whole rows against the array functions they stand for.

`compilable` says no for the arrays' way, so that no compiled loop takes part in it.
"""

from __future__ import annotations

import numpy as np
import pytest

from resispec_verify.evidence.enumeration import operational_marginals
from resispec_verify.evidence.marginal import summation_error
from resispec_verify.evidence.path_identity import draw_candidates, identity_of, path_identity
from resispec_verify.kernels.elementwise import compiled, proxy_rows, rows
from resispec_verify.kernels.elementwise.divergences import distances, emitted_beside
from resispec_verify.rules import OptimalSequential, ResiSpec, SpecInfer

SIZES = [1, 2, 3, 127, 128, 129, 1000]  # around the loops' block of 128


def given_levels(target, draft, n):
    """Levels that the search, which differs between the two ways, has no part in."""
    return np.broadcast_to(np.linspace(0.9, 0.0, n + 1), (target.shape[0], n + 1))


RULES = [SpecInfer(), OptimalSequential(given_levels)]
EXTREMES = {
    "p = q": ([0.25, 0.75], [0.25, 0.75]),
    "an ulp apart": ([0.25, 0.75], [np.nextafter(0.25, 1), np.nextafter(0.75, 0)]),
    "nowhere together": ([1.0, 0.0, 0.0], [0.0, 0.5, 0.5]),
    "a residual without reciprocal": ([1.0, 3e-310, 0.0], [1.0, 1e-310, 2e-310]),
    "the smallest residual": ([1.0, 1e-323, 0.0], [1.0, 5e-324, 5e-324]),
    "ratios that overflow": ([0.5, 0.5, 0.0], [5e-324, 1.0, 0.0]),
    "ties": ([0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0]),
    "one token": ([1.0], [1.0]),
    "empty after one round": ([0.6, 0.4, 0.0], [0.2, 0.4, 0.4]),
}


@pytest.fixture
def arrays(monkeypatch):
    """Call a function with no compiled loop."""

    def call(function, *arguments, **options):
        with monkeypatch.context() as patch:
            patch.setattr(compiled, "compilable", lambda *arrays: False)
            return function(*arguments, **options)

    return call


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    return request.param


@pytest.fixture(params=SIZES)
def pair(request, dtype):
    """Target, draft, another law: zeros on every side, p = q, and rows where they do not meet."""
    vocab = request.param
    rng = np.random.default_rng(vocab)
    laws = rng.dirichlet(np.full(vocab, 0.5), size=(3, 5))
    p, q, _ = laws
    p[0, ::3], q[0, 1::3] = 0.0, 0.0
    p[0, -1] += 1.0
    q[0, 0] += 1.0
    q[1] = p[1]
    p[2], q[2] = 0.0, 0.0
    p[2, 0] = q[2, -1] = 1.0
    q[3] = p[3] * (1 + 1e-3 * rng.standard_normal(vocab))
    return [(law / law.sum(axis=-1, keepdims=True)).astype(dtype) for law in laws]


@pytest.fixture(params=EXTREMES)
def extreme(request):
    return [np.asarray([row]) for row in EXTREMES[request.param]]


def bound(array, rounds=1) -> float:
    """A weight and a normalisation a round, by sums on either side; entries are at most 1."""
    return (rounds + 1) * float(np.finfo(array.dtype).eps) * (2 * summation_error(array.shape[-1]) + 8)


def agree(found, right, rounds, slack=0.0):
    """Two ways to the same marginals: as near as the arrays' sums and divisions can tell."""
    assert found.placed.dtype == right.placed.dtype
    near = bound(found.placed, rounds) + slack
    for name in ("placed", "acceptance", "first", "unexpanded"):
        ours, theirs = getattr(found, name), getattr(right, name)
        assert ours.shape == theirs.shape
        assert float(np.abs(ours - theirs).max(initial=0.0)) <= near, name
    assert (found.expansions, found.exhausted) == (right.expansions, right.exhausted)


@pytest.mark.parametrize("rounds", [0, 1, 2, 4])
@pytest.mark.parametrize("rule", RULES)
def test_rounds_are_those_of_the_rule(pair, arrays, rule, rounds):
    p, q, _ = pair
    found = operational_marginals(rule, p, q, rounds)
    right = arrays(operational_marginals, rule, p, q, rounds)
    agree(found, right, rounds)
    assert float(np.abs(found.rounding - right.rounding).max()) <= bound(p, rounds)


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("rule", RULES)
def test_rounds_of_candidates_from_another_law(pair, arrays, rule, rounds):
    """Divisions magnify rounding then, on both ways; the bounds say by how much."""
    found, right = (
        way(operational_marginals, rule, pair[0], pair[1], rounds, drawn_from=pair[2])
        for way in (lambda call, *given, **named: call(*given, **named), arrays)
    )
    slack = np.minimum(found.rounding + right.rounding, 1.0)
    apart = 0.5 * np.abs(found.placed - right.placed).sum(axis=-1)
    assert (apart <= slack).all()
    assert (np.abs(found.acceptance - right.acceptance).max(axis=-1) <= slack).all()
    sure = np.isfinite(right.rounding) & (right.rounding < 0.5)
    np.testing.assert_allclose(found.rounding[sure], right.rounding[sure], rtol=0.05)


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("rule", RULES)
def test_rounds_at_the_ends_of_float64(extreme, arrays, rule, rounds):
    p, q = extreme
    found = operational_marginals(rule, p, q, rounds)
    agree(found, arrays(operational_marginals, rule, p, q, rounds), rounds)
    assert float(np.abs(found.placed - p).sum()) <= 2 * float(found.rounding[0])


def test_an_empty_residual_stays_what_it_was():
    """R = q, or R within a draft whose sum is more than 1: the round leaves nothing, and R is as it was."""
    same, first = np.asarray([[0.25, 0.75]]), np.asarray([[1.0, 0.0]])
    found = rows.standard_rounds(same, same, 3, first)
    np.testing.assert_array_equal(found.left, np.zeros((1, 3)))
    np.testing.assert_array_equal(found.weights, [[1.0, 0.0, 0.0, 0.0]])
    found = rows.standard_rounds(np.asarray([[0.0, 1.0]]), np.asarray([[0.5, 1.0]]), 2, first)
    np.testing.assert_array_equal(found.weights, [[1.0, 1.0, 1.0]])
    np.testing.assert_array_equal(found.placed, [[0.0, 1.0]])


def test_an_empty_residual_after_others():
    """R_1 = (0, 1, 0) lies within the draft, and is made again from the target each time."""
    p, q, s = ([0.25, 1.25, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 1.0])
    found = rows.standard_rounds(np.asarray([p]), np.asarray([q]), 3, np.asarray([s]))
    np.testing.assert_array_equal(found.left, [[0.25, 0.0, 0.0]])
    np.testing.assert_array_equal(found.placed, [[0.0, 1.0, 0.0]])
    np.testing.assert_array_equal(found.weights, [[1.0, 1.0, 1.0, 1.0]])


def test_masses_and_weights_by_hand():
    """p = (1/2, 1/2, 0), q = (1/4, 1/4, 1/2): all numbers are binary."""
    p, q = np.asarray([[0.5, 0.5, 0.0]]), np.asarray([[0.25, 0.25, 0.5]])
    found = rows.standard_rounds(p, q, 2)
    np.testing.assert_array_equal(found.placed, p)
    np.testing.assert_array_equal(found.accepted, [[0.5, 0.25]])
    np.testing.assert_array_equal(found.weights, [[1.0, 0.5, 0.25]])
    np.testing.assert_array_equal(found.left, [[0.5, 0.5]])
    np.testing.assert_array_equal(found.sums, [[1.0, 1.0]])


def test_rows_that_are_not_packed_or_not_writable(pair):
    p, q, _ = pair
    wide = [np.repeat(law, 2, axis=0)[::2] for law in (p, q)]
    for law in wide:
        law.flags.writeable = False
    found, right = (rows.standard_rounds(a, b, 2) for a, b in (wide, (p, q)))
    np.testing.assert_array_equal(found.placed, right.placed)


@pytest.mark.parametrize("rule", [SpecInfer(), ResiSpec()], ids=lambda rule: rule.name)
def test_identities_are_the_target(pair, dtype, rule):
    """And of rows whose sum is not 1: they telescope to whatever they begin with."""
    p, q, _ = pair
    n = 3
    tokens = np.random.default_rng(1).integers(0, p.shape[1], size=(p.shape[0], n))
    drawn = draw_candidates(q, n, np.random.default_rng(2).random((p.shape[0], n)))
    for candidates in (tokens, drawn):
        found = identity_of(rule, p, q, candidates, n)
        assert found.dtype == p.dtype
        assert float(np.abs(found - p).sum(axis=-1).max()) <= bound(p, n)


def test_weights_of_the_identity_are_what_is_left(pair):
    """By round as `compiled.split`: the sum itself could not tell."""
    p, q, _ = pair
    found = rows._all_rounds(p, q, 3, None, telescoping=True)
    current, weight, total = p, np.ones((len(p), 1), p.dtype), np.zeros_like(p)
    for i in range(3):
        weight, current = compiled.split(total, q, current, weight)
        assert float(np.abs(found.weights[:, i + 1] - weight[:, 0]).max()) <= bound(p, i + 1)


def test_rounds_of_the_proxy_are_those_of_the_rule(pair, arrays):
    """Round by round against GetProxy on arrays, for every token: the sum itself could not tell."""
    p, q, _ = pair
    blocks = (p.shape[1] + 127) // 128
    for b, x0 in np.ndindex(p.shape[0], min(p.shape[1], 130)):
        rest, total = p[b].copy(), np.zeros_like(p[b])
        sums = np.empty((2, blocks), p.dtype)
        one = p.dtype.type(1)
        proxy_rows._open(rest, one, q[b], sums)
        mass = proxy_rows._proportional_round(rest, q[b], total, p.dtype.type(0.5), x0, sums)
        k = arrays(ResiSpec().proxy, p[b : b + 1], q[b : b + 1], np.asarray([x0]))[0]
        emitted = np.minimum(k, p[b])
        assert float(np.abs(total - 0.5 * emitted).max()) <= bound(p)
        assert float(np.abs(rest - (p[b] - emitted)).max()) <= bound(p)
        assert abs(float(mass - (p[b] - emitted).sum())) <= bound(p)


def test_drawn_tokens_are_those_of_the_loop(pair, dtype):
    p, q, _ = pair
    blocks = (p.shape[1] + 127) // 128
    unit = float(np.finfo(dtype).eps)
    for b, u in np.ndindex(len(p), 9):
        uniform = p.dtype.type((0, 0.03, 0.125, 0.3, 0.5, 0.77, 0.9, 0.99, 1 - unit)[u])
        rest, sums = p[b].copy(), np.empty((2, blocks), p.dtype)
        proxy_rows._open(rest, p.dtype.type(1), q[b], sums)
        token = proxy_rows._drawn(rest, q[b], sums[1], uniform)
        over = np.clip(q[b] - p[b], 0, None).astype(np.float64)
        over = over if over.sum() > 0 else q[b].astype(np.float64)
        edges = np.cumsum(over) / over.sum()
        slack = unit * (p.shape[1] + 8)
        assert over[token] > 0
        assert edges[token] >= uniform - slack
        assert token == 0 or edges[token - 1] <= uniform + slack


@pytest.mark.parametrize("n", [1, 2, 3])
def test_identities_at_the_ends_of_float64(extreme, n):
    p, q = extreme
    for rule in (SpecInfer(), ResiSpec()):
        found = identity_of(rule, p, q, draw_candidates(q, n, np.full((1, n), 0.5)), n)
        assert float(np.abs(found - p).sum()) <= bound(p, n)
        tokens = np.zeros((1, n), np.int64)
        right = path_identity(p, q, rule.proxy, tokens, n)
        assert float(np.abs(identity_of(rule, p, q, tokens, n) - right).sum()) <= bound(p, n)


@pytest.mark.parametrize("kind", ["near", "far", "elsewhere", "mixed"])
def test_what_is_said_of_a_marginal(pair, arrays, kind):
    p, q, s = pair
    m = {"near": p * p.dtype.type(1 + 1e-4), "far": q, "elsewhere": np.roll(p, 1, axis=-1)}.get(kind)
    if m is None:
        m = np.where(np.arange(p.shape[1]) < 128, p, s)
    found, right = emitted_beside(m, p), arrays(emitted_beside, m, p)
    for name in ("off_support_token", "silent"):
        np.testing.assert_array_equal(getattr(found, name), getattr(right, name))
    for name in ("tv", "kl", "off_support", "never_emitted"):
        ours, theirs = getattr(found, name), getattr(right, name)
        assert ours.dtype == np.float64
        np.testing.assert_array_equal(np.isinf(ours), np.isinf(theirs))
        held = np.isfinite(theirs)
        # A term is at most |log| < 100 of its mass.
        assert (np.abs(ours[held] - theirs[held]) <= 100 * bound(np.empty((1, p.shape[1])))).all(), name


def test_tiny_divergences_keep_their_digits():
    p = np.full((1, 300), 1 / 300)
    m = p.copy()
    m[0, :2] += (1e-12, -1e-12)
    tv, kl = distances(m, p)
    d = m[0] - p[0]
    np.testing.assert_allclose(tv, 0.5 * np.abs(d).sum(), rtol=1e-12)
    np.testing.assert_allclose(kl, (0.5 * d * d / p[0]).sum(), rtol=1e-9)
    assert [float(v[0]) for v in distances(p, p.copy())] == [0.0, 0.0]


def test_where_it_leaves_the_support_and_what_it_never_emits():
    p, m = np.full((1, 200), 1 / 180), np.full((1, 200), 1 / 180)
    p[0, [3, 150]] = 0.0
    m[0, 150] = 0.5
    m[0, 20:38] = 0.0
    found = emitted_beside(m, p)
    assert found.off_support_token[0] == 150
    assert float(found.off_support[0]) == pytest.approx(0.5 + 1 / 180)
    assert float(found.never_emitted[0]) == pytest.approx(0.1)
    assert found.silent[0].tolist() == list(range(20, 30))
    assert np.isinf(found.kl[0])


def test_divergences_over_subnormal_targets(arrays):
    p, m = np.asarray([[1.0, 5e-324, 1e-310, 0.0]]), np.asarray([[1.0, 1e-310, 5e-324, 0.0]])
    found, right = emitted_beside(m, p), arrays(emitted_beside, m, p)
    assert float(found.kl[0]) == pytest.approx(float(right.kl[0]), rel=1e-9, abs=1e-320)
    assert float(found.tv[0]) == pytest.approx(float(right.tv[0]), rel=1e-9)
