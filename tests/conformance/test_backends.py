"""Every rule and kernel on every array library: one result, like its inputs, which stay as they were.

"Like" means the same namespace, dtype and device. The right value is NumPy's on the same input; libraries
may differ by rounding only, so each comparison has the derived bound of what is compared.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from array_api_compat import array_namespace, device

from resispec_verify.distributions import Sampling
from resispec_verify.evidence import draw_candidates, operational_marginals, path_identity
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.evidence.marginal import summation_error, tv_interval
from resispec_verify.kernels.divergences import (
    distances,
    divergence_bounds,
    kl_terms,
    kullback_leibler,
    placed_excess,
    total_variation,
)
from resispec_verify.kernels.probabilities import at, filter_logits, one_hot, softmax, temper
from resispec_verify.kernels.residuals import accept_ratio, normalize, standard_residual
from resispec_verify.kernels.transport import transport_limit
from resispec_verify.rules import (
    Greedy,
    Iid,
    ResiSpec,
    SpecInfer,
    Speculative,
    WithoutReplacement,
    get_proxy,
)

EVERYTHING = Budget(gap=0.0, most_paths=math.inf, most_states=math.inf, until_decided=False)
VOCAB, ROWS = 6, 3


@dataclass(frozen=True)
class Library:
    """An array library, and the device its arrays are made on."""

    name: str
    module: str
    place: str | None = None
    read_only: bool = False

    def array(self, values: Any, dtype: str | None = None) -> Any:
        values = np.array(values, dtype=dtype)
        if self.module == "numpy":
            values.flags.writeable = not self.read_only
            return values
        xp = importlib.import_module(self.module)
        if self.place is None:
            return xp.asarray(values)
        return xp.asarray(values, device=xp.Device(self.place))


LIBRARIES = [
    Library("numpy", "numpy"),
    Library("read-only", "numpy", read_only=True),
    Library("strict", "array_api_strict"),
    # Memory that NumPy cannot read, like a GPU's: nothing may move there or back behind the caller's back.
    Library("strict, another device", "array_api_strict", place="device1"),
    Library("torch", "torch"),
]
RULES = [
    Speculative(),
    SpecInfer(),
    *(
        ResiSpec(redistribution, budget, hole)
        for redistribution in ("proportional", "water-filling")
        for budget in ("local", "floor")
        for hole in ("excluded", "literal")
    ),
]


# Read-only rows compile every kernel again: in float64 only.
SETTINGS = [(library, dtype) for library in LIBRARIES for dtype in ("float64", "float32")]
SETTINGS = [(library, dtype) for library, dtype in SETTINGS if not (library.read_only and dtype == "float32")]


@pytest.fixture(params=SETTINGS, ids=lambda setting: f"{setting[0].name}-{setting[1]}")
def setting(request) -> tuple[Library, str]:
    if request.param[0].module != "numpy":
        pytest.importorskip(request.param[0].module)
    return request.param


@pytest.fixture
def library(setting) -> Library:
    return setting[0]


@pytest.fixture
def dtype(setting) -> str:
    return setting[1]


@pytest.fixture(params=RULES, ids=lambda rule: ",".join([rule.name, *rule.options().values()]))
def rule(request):
    return request.param


def to_numpy(array: Any) -> np.ndarray:
    """Back to NumPy, from memory that it cannot read too."""
    if isinstance(array, np.ndarray):
        return array
    xp = array_namespace(array)
    if "array_api_strict" in xp.__name__:
        array = xp.asarray(array, device=xp.Device("CPU_DEVICE"))
    return np.from_dlpack(array)


def eps(dtype: str) -> float:
    return float(np.finfo(dtype).eps)


def pair(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Sixty-fourths: exact in either precision, with zeros on both sides, a tie, and a row with p = q."""
    target = np.array([[20, 4, 8, 0, 16, 16], [1, 1, 1, 1, 0, 60], [12, 12, 12, 12, 12, 4]]) / 64
    draft = np.array([[4, 20, 8, 16, 16, 0], [16, 16, 16, 0, 8, 8], [12, 12, 12, 12, 12, 4]]) / 64
    return target.astype(dtype), draft.astype(dtype)


def logits(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((ROWS, VOCAB)) * 3
    rows[0, 2] = -np.inf
    rows[1, 1] = rows[1, 4] = rows[1].max()  # a tie for the best
    return rows.astype(dtype)


def check_like(result: Any, like: Any, *, same_dtype: bool = True) -> None:
    assert array_namespace(result) is array_namespace(like)
    assert device(result) == device(like)
    if same_dtype:
        assert result.dtype == like.dtype


def assert_close(result: Any, right: np.ndarray, bound: float) -> None:
    computed, right = to_numpy(result), np.asarray(right)
    assert computed.shape == right.shape
    np.testing.assert_array_equal(np.isinf(computed), np.isinf(right))
    finite = np.isfinite(right)
    error = np.abs(computed[finite].astype(np.float64) - right[finite].astype(np.float64))
    assert error.size == 0 or float(error.max()) <= bound


class Unchanged:
    """Inputs that must be the same, bit for bit, after the block."""

    def __init__(self, *arrays: Any) -> None:
        self.arrays = arrays

    def __enter__(self) -> None:
        self.before = [to_numpy(array).copy() for array in self.arrays]

    def __exit__(self, kind: Any, *rest: Any) -> None:
        if kind is None:
            for array, before in zip(self.arrays, self.before, strict=True):
                np.testing.assert_array_equal(to_numpy(array), before)


# Evidence


def test_operational_marginals(library, dtype, rule):
    p, q = pair(dtype)
    right = operational_marginals(rule, p, q, 2, budget=EVERYTHING)
    target, draft = library.array(p), library.array(q)
    with Unchanged(target, draft):
        marginals = operational_marginals(rule, target, draft, 2, budget=EVERYTHING)
    # The rule that sums its own paths does so in float64, whatever the precision it is given.
    own = rule == ResiSpec()
    for values in (marginals.placed, marginals.acceptance, marginals.unexpanded, marginals.rounding):
        check_like(values, target, same_dtype=not own)
    bound = float(to_numpy(marginals.rounding).max() + right.rounding.max())
    assert_close(marginals.placed, right.placed, 2 * bound)
    assert_close(marginals.acceptance, right.acceptance, 2 * bound)
    np.testing.assert_array_equal(to_numpy(marginals.gap), np.zeros(ROWS))
    for ours, theirs in zip(tv_interval(marginals, target), tv_interval(right, p), strict=True):
        assert_close(ours, theirs, bound)


def test_marginals_within_a_budget(library, dtype, rule):
    # The same paths are left out everywhere: the gap is NumPy's, up to rounding.
    p, q = pair(dtype)
    budget = Budget(gap=1e-2, until_decided=False)
    right = operational_marginals(rule, p, q, 3, budget=budget)
    marginals = operational_marginals(rule, library.array(p), library.array(q), 3, budget=budget)
    bound = float(to_numpy(marginals.rounding).max() + right.rounding.max())
    assert_close(marginals.unexpanded, right.unexpanded, 2 * bound)
    assert_close(marginals.placed, right.placed, 2 * bound)
    assert marginals.expansions == right.expansions
    assert marginals.exhausted == right.exhausted


@pytest.mark.parametrize("proposal", [Iid(), WithoutReplacement(), Greedy()], ids=lambda p: p.name)
def test_marginals_of_another_proposal(library, dtype, proposal):
    p, q = pair(dtype)
    drawn = np.roll(q, 1, axis=-1)
    options = {"proposal": proposal, "budget": EVERYTHING}
    right = operational_marginals(SpecInfer(), p, q, 2, drawn_from=drawn, **options)
    target = library.array(p)
    marginals = operational_marginals(
        SpecInfer(), target, library.array(q), 2, drawn_from=library.array(drawn), **options
    )
    check_like(marginals.placed, target)
    bound = float(to_numpy(marginals.rounding).max() + right.rounding.max())
    assert_close(marginals.placed, right.placed, 2 * bound)


def test_path_identity(library, dtype, rule):
    p, q = pair(dtype)
    tokens = np.array([[1, 3], [0, 2], [5, 5]])
    target, draft, lists = library.array(p), library.array(q), library.array(tokens)
    with Unchanged(target, draft, lists):
        emitted = path_identity(target, draft, rule.proxy, lists, 2)
    check_like(emitted, target)
    # The right value is the target itself; a round multiplies by one row sum and divides by it.
    bound = 0.5 * eps(dtype) * 3 * (2 * summation_error(VOCAB) + 8)
    assert_close(emitted, p, 2 * bound)


def test_drawn_candidates(library, dtype):
    p, q = pair(dtype)
    uniforms = np.array([[0.0, 0.5], [0.3, 0.999], [0.25, 0.75]])
    right = draw_candidates(q, 2, uniforms)
    draw = draw_candidates(library.array(q), 2, uniforms)
    for i in range(2):
        tokens = draw(i, library.array(p))
        assert device(tokens) == device(library.array(q))
        np.testing.assert_array_equal(to_numpy(tokens), right(i, p))


# Rules


def test_proxy_of_each_rule(library, dtype, rule):
    p, q = pair(dtype)
    tokens = np.array([1, 0, 5])
    target, draft, rejected = library.array(p), library.array(q), library.array(tokens)
    with Unchanged(target, draft, rejected):
        k = rule.proxy(target, draft, rejected)
    check_like(k, target)
    # Entries at most 2, from one row sum and a handful of operations.
    assert_close(k, rule.proxy(p, q, tokens), 2 * eps(dtype) * (summation_error(VOCAB) + 8))


@pytest.mark.parametrize("redistribution", ["proportional", "water-filling"])
@pytest.mark.parametrize("budget", ["local", "floor"])
@pytest.mark.parametrize("hole", ["excluded", "literal"])
def test_get_proxy(library, dtype, redistribution, budget, hole):
    p, q = (rows[0] for rows in pair(dtype))
    options = {"redistribution": redistribution, "budget": budget, "hole": hole}
    target, draft = library.array(p), library.array(q)
    right = get_proxy(p, q, 1, **options)
    with Unchanged(target, draft):
        computed = get_proxy(target, draft, 1, **options)
    for ours, theirs in zip(computed[:-1], right[:-1], strict=True):
        check_like(ours, target)
        assert_close(ours, theirs, 2 * eps(dtype) * (summation_error(VOCAB) + 8))
    assert bool(computed.capped) == bool(right.capped)


def test_one_round_of_each_rule(library, dtype, rule):
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


# Kernels

# A libm's exponential and logarithm are good to a few units; torch's vectorised ones to less than 4.
TRANSCENDENTAL = 8
SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0.0),
    Sampling(temperature=1e-6),
    Sampling(temperature=0.6),
    Sampling(top_k=2),
    Sampling(top_p=0.8),
    Sampling(min_p=0.2),
    Sampling(temperature=1.3, top_k=4, top_p=0.9, min_p=0.05),
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_probabilities_from_logits(library, dtype, sampling):
    rows = logits(dtype)
    given = library.array(rows)
    with Unchanged(given):
        law = sampling.probabilities(given, dtype=given.dtype)
    check_like(law, given)
    # exp of a shifted logit: its rounding in the exponent is at most |shift| ulps, and |shift| e^shift < 1.
    bound = eps(dtype) * (TRANSCENDENTAL + summation_error(VOCAB))
    assert_close(law, sampling.probabilities(rows, dtype=rows.dtype), bound)


def test_steps_from_logits_to_probabilities(library, dtype):
    rows = logits(dtype)
    given = library.array(rows)
    with Unchanged(given):
        for temperature in (0.0, 0.5, 1.0):
            tempered = temper(given, temperature, dtype=given.dtype)
            check_like(tempered, given)
            # |logit| < 16 here, one subtraction and one division
            assert_close(tempered, temper(rows, temperature, dtype=rows.dtype), 2 * 32 * eps(dtype))
        tempered, right = temper(given, 1.0, dtype=given.dtype), temper(rows, 1.0, dtype=rows.dtype)
        check_like(softmax(tempered), given)
        for options in ({"top_k": 2}, {"top_p": 0.7}, {"min_p": 0.1}):
            options = {"top_k": None, "top_p": None, "min_p": None, **options}
            check_like(filter_logits(tempered, **options), given)
            assert_close(filter_logits(tempered, **options), filter_logits(right, **options), 32 * eps(dtype))


def test_a_wider_working_precision_is_cast_first(library):
    rows = logits("float32")
    given = library.array(rows)
    xp = array_namespace(given)
    law = Sampling(temperature=0.7).probabilities(given, dtype=xp.float64)
    assert law.dtype == xp.float64
    right = Sampling(temperature=0.7).probabilities(rows.astype(np.float64), dtype=np.float64)
    assert_close(law, right, eps("float64") * (TRANSCENDENTAL + summation_error(VOCAB)))


@pytest.mark.parametrize(
    "kernel", [accept_ratio, standard_residual, normalize, placed_excess, total_variation, kl_terms]
)
def test_kernels_of_two_rows(library, dtype, kernel):
    p, q = pair(dtype)
    target, draft = library.array(p), library.array(q)
    with Unchanged(target, draft):
        computed = kernel(target, draft)
    check_like(computed, target)
    # Values at most 1, or p log(p/q) with p/q <= 60: |log| < 5.
    assert_close(computed, kernel(p, q), 5 * eps(dtype) * (TRANSCENDENTAL + summation_error(VOCAB)))


def test_distances(library, dtype):
    p, q = pair(dtype)
    m = 0.5 * p + 0.5 * q  # inside the support of q where p is; infinite elsewhere
    marginal, target = library.array(m), library.array(q)
    with Unchanged(marginal, target):
        tv, kl = distances(marginal, target)
    bound = 5 * eps(dtype) * (TRANSCENDENTAL + summation_error(VOCAB))
    for computed, right in ((tv, total_variation(m, q)), (kl, kullback_leibler(m, q))):
        check_like(computed, target)
        assert_close(computed, right, bound)


def test_divergence_bounds(library, dtype):
    p = pair(dtype)[0]
    placed = np.where(np.arange(VOCAB) % 2 == 0, p, 0).astype(dtype)
    gap = (1 - placed.sum(axis=-1)).astype(dtype)
    given = [library.array(values) for values in (placed, p, gap, p > 0)]
    with Unchanged(*given):
        bounds = divergence_bounds(*given)
    for computed, right in zip(bounds, divergence_bounds(placed, p, gap, p > 0), strict=True):
        check_like(computed, given[0])
        assert_close(computed, right, 5 * eps(dtype) * (TRANSCENDENTAL + 2 * summation_error(VOCAB)))


@pytest.mark.parametrize("n", [0, 1, 3])
def test_transport_limit(library, dtype, n):
    p, q = pair(dtype)
    target, draft = library.array(p), library.array(q)
    with Unchanged(target, draft):
        limit = transport_limit(target, draft, n)
    check_like(limit, target)
    # Two prefix sums, a power and two subtractions; the right value in float64.
    right = transport_limit(p.astype(np.float64), q.astype(np.float64), n)
    assert_close(limit, right, eps(dtype) * (2 * VOCAB + n + 2))


def test_gathering_and_one_hots(library, dtype):
    p = pair(dtype)[0]
    tokens = np.array([[5, 0], [1, 1], [3, 2]])
    values, given = library.array(p), library.array(tokens)
    np.testing.assert_array_equal(to_numpy(at(values, given)), np.take_along_axis(p, tokens, axis=-1))
    rows = one_hot(given, VOCAB, dtype=values.dtype)
    check_like(rows, values)
    np.testing.assert_array_equal(to_numpy(rows), np.eye(VOCAB, dtype=dtype)[tokens])
