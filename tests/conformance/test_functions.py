"""Every public array function on every array library; a new one is a row of `ROWS`.

A row calls the function on arrays of the library; the right value is the same call on NumPy's. What it
returns must be of the namespace and device of its input and within the row's bound, and its input unchanged.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from array_api_compat import array_namespace
from libraries import VOCAB, Unchanged, assert_close, check_like, eps, logits, pair, to_numpy

import resispec_verify.device
import resispec_verify.evidence
import resispec_verify.kernels
from resispec_verify.device.batched_paths import path_sums, shaped_marginals
from resispec_verify.distributions import Sampling, pair_from_logits
from resispec_verify.evidence.given_candidates import outcome_given_candidates
from resispec_verify.evidence.marginal import (
    Marginals,
    bound_of_sums,
    magnified,
    rounding_bound,
    summation_error,
    tv_interval,
    underflow,
)
from resispec_verify.kernels.elementwise.divergences import (
    distances,
    divergence_bounds,
    emitted_beside,
    kl_terms,
    kullback_leibler,
    placed_excess,
    printed_kl,
    total_variation,
)
from resispec_verify.kernels.elementwise.probabilities import at, filter_logits, one_hot, softmax, temper
from resispec_verify.kernels.elementwise.residuals import (
    accept_ratio,
    density_ratio,
    normalize,
    positive_part_condition,
    proxy,
    ratio_or_all,
    share_of,
    standard_residual,
)
from resispec_verify.kernels.elementwise.sampling_steps import (
    ban,
    keep_joint,
    keep_top_k,
    keep_top_n_sigma,
    keep_top_p,
    keep_typical,
    penalise_counts,
    penalise_repetition,
    without_top_choices,
)
from resispec_verify.kernels.optimal.candidate_limits import pairs_limit, without_replacement_limit
from resispec_verify.kernels.optimal.reserved import reserve, taken_share
from resispec_verify.kernels.optimal.sequential import levels, levels_by_reductions, overlap
from resispec_verify.kernels.optimal.transport import transport_limit, transport_limit_by_sorting
from resispec_verify.rules import ResiSpec, SpecInfer
from resispec_verify.samplers import verify_optimal_joint, verify_optimal_sequential, verify_specinfer

SUM = summation_error(VOCAB)
# A libm's exponential and logarithm are good to a few units; torch's vectorised ones to less than 4.
TRANSCENDENTAL = 8
# Values at most 1, or p log(p/q) with p/q <= 60: |log| < 5.
DIVERGENCE = 5 * (TRANSCENDENTAL + 2 * SUM)


@dataclasses.dataclass(frozen=True)
class Row:
    """How a function is called, and how well its result is known.

    Attributes
    ----------
    call : callable
        Takes the arrays.
    arrays : callable
        The input as NumPy arrays of a given floating dtype.
    roundings : float
        Units in the last place of 1, in the precision of the result; 0 where it must be equal.
    same_dtype : bool
        Whether results have the dtype of the first array.
    wide : bool
        Whether the right value is the one in float64, whatever the precision of the input.
    """

    call: Callable[..., Any]
    arrays: Callable[[str], tuple[np.ndarray, ...]] = pair
    roundings: float = 2 * (SUM + 8)
    same_dtype: bool = True
    wide: bool = False


def one(dtype: str) -> tuple[np.ndarray, ...]:
    return (logits(dtype),)


def generic(dtype: str) -> tuple[np.ndarray, ...]:
    """Rows without ties; sixty-fourths, so that float32 is the same input."""
    target = np.array([[30, 2, 9, 1, 17, 5], [3, 25, 7, 11, 6, 12], [1, 2, 33, 5, 10, 13]]) / 64
    draft = np.array([[11, 19, 4, 15, 8, 7], [22, 6, 3, 18, 10, 5], [9, 16, 12, 21, 2, 4]]) / 64
    return target.astype(dtype), draft.astype(dtype)


def drawn(n: int, uniforms: int) -> Callable[[str], tuple[np.ndarray, ...]]:
    """Pairs with candidates and uniforms, none of which lies within rounding of a decision."""

    def arrays(dtype: str) -> tuple[np.ndarray, ...]:
        rng = np.random.default_rng(n)
        target, draft = (np.repeat(rows, 20, axis=0) for rows in generic(dtype))
        u = rng.random((len(draft), n)) * draft.cumsum(-1)[:, -1:]
        candidates = (draft.cumsum(-1)[:, None, :] <= u[..., None]).sum(-1)
        numbers = rng.integers(0, 1 << 20, (len(draft), uniforms)) / (1 << 20)  # exact in float32 too
        return target, draft, candidates, numbers.astype(dtype)

    return arrays


def with_tokens(dtype: str) -> tuple[np.ndarray, ...]:
    return *pair(dtype), np.array([[1, 3], [0, 2], [5, 5]])


def with_levels(dtype: str) -> tuple[np.ndarray, ...]:
    return *pair(dtype), np.array([0.0, 1.5, 3.0], dtype)


def with_round(dtype: str) -> tuple[np.ndarray, ...]:
    """Levels of a round, the weight of looking at its candidate, and a residual to fall back on."""
    p, q = pair(dtype)
    return p, q, *(np.array([[t], [1.5 * t], [2 * t]], dtype) for t in (0.75, 0.25, 0.5)), q


def partly_placed(dtype: str) -> tuple[np.ndarray, ...]:
    p = pair(dtype)[0]
    placed = np.where(np.arange(VOCAB) % 2 == 0, p, 0).astype(dtype)
    return placed, p, (1 - placed.sum(axis=-1)).astype(dtype), p > 0


def mixed(dtype: str) -> tuple[np.ndarray, ...]:
    """A marginal inside the target's support where p is; infinitely far elsewhere."""
    p, q = pair(dtype)
    return 0.5 * p + 0.5 * q, q


def interval(placed: Any, target: Any, gap: Any, allowed: Any) -> Any:
    nothing = gap[:, None]
    return tv_interval(Marginals(placed, placed, nothing, nothing, gap, [], []), target)


def double(array: Any) -> Any:
    return array_namespace(array).astype(array, array_namespace(array).float64)


def reached(find: Callable[..., Any], n: int) -> Callable[..., Any]:
    """What levels are for, the acceptance phi(T_1), and that they descend to 0: levels need not be unique."""

    def call(target: Any, draft: Any) -> Any:
        xp, T = array_namespace(target), find(target, draft, n)
        assert T.dtype == xp.float64
        assert bool(xp.all(T[..., :-1] >= T[..., 1:]))
        assert bool(xp.all(T[..., -1] == 0))
        return overlap(double(target), double(draft), T[..., 0])

    return call


SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0.0),
    Sampling(temperature=1e-6),
    Sampling(temperature=0.6),
    Sampling(top_k=2),
    Sampling(top_p=0.8),
    Sampling(min_p=0.2),
    Sampling(temperature=1.3, top_k=4, top_p=0.9, min_p=0.05),
    Sampling(temperature=1.3, top_k=4, top_p=0.7, min_p=0.05, order="sglang"),
    Sampling(temperature=1.3, top_k=4, top_p=0.7, typical_p=0.8, xtc_probability=0.4, order="llama.cpp"),
]
NO_FILTER = {"top_k": None, "top_p": None, "min_p": None}


def widened(function: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[Any, Any], Any]:
    """A function of pairs that works in float64."""

    def call(*pair: Any) -> Any:
        xp = array_namespace(*pair)
        return function(*(xp.astype(rows, xp.float64) for rows in pair), *arguments, **options)

    return call


# What `evidence` allows a path sum on each side: at most 5 + 6 * 5 + 6 * 6 * 5 paths of three candidates.
PATHS = 2 * 4 * (3 * VOCAB + 215 + 24)


def filtered(name: str, value: float) -> Callable[[Any], Any]:
    return lambda x: filter_logits(temper(x, 1.0, dtype=x.dtype), **{**NO_FILTER, name: value})


STEPS: dict[str, Callable[[Any], Any]] = {
    "keep_top_k": lambda x: keep_top_k(x, 2, ties="cut"),
    "keep_top_p": lambda x: keep_top_p(x, 0.7, ties="cut", inclusive=True),
    "keep_joint": lambda x: keep_joint(x, 3, 0.7, ties="cut", inclusive=True),
    "keep_typical: kept": lambda x: keep_typical(x, 0.6, ties="kept"),
    "keep_typical: cut": lambda x: keep_typical(x, 0.6, ties="cut"),
    "keep_top_n_sigma": lambda x: keep_top_n_sigma(x, 0.8),
    "without_top_choices": lambda x: without_top_choices(x, 0.2),
}

# By "module.function", with a word on the variant after a colon.
ROWS: dict[str, Row] = {
    # |logit| < 16: one subtraction and one division.
    **{
        f"probabilities.temper: {t}": Row(lambda x, t=t: temper(x, t, dtype=x.dtype), one, 2 * 32)
        for t in (0.0, 0.5, 1.0)
    },
    # exp of a shifted logit: its rounding in the exponent is at most |shift| ulps, and |shift| e^shift < 1.
    "probabilities.softmax": Row(lambda x: softmax(temper(x, 1.0, dtype=x.dtype)), one, TRANSCENDENTAL + SUM),
    **{
        f"probabilities.filter_logits: {k}": Row(filtered(k, v), one, 32)
        for k, v in (("top_k", 2), ("top_p", 0.7), ("min_p", 0.1))
    },
    **{
        f"sampling_steps.{name}": Row(lambda x, f=function: f(temper(x, 1.0, dtype=x.dtype)), one, 32)
        for name, function in STEPS.items()
    },
    "sampling_steps.ban": Row(lambda x: ban(x, x > 0.5), one, 0),
    "sampling_steps.penalise_repetition": Row(lambda x: penalise_repetition(x, x > -1, 1.5), one, 32),
    "sampling_steps.penalise_counts": Row(
        lambda p, q: penalise_counts(p, q, frequency=0.5, presence=0.25), pair, 8
    ),
    "probabilities.at": Row(lambda p, q, tokens: at(p, tokens), with_tokens, 0),
    "probabilities.one_hot": Row(lambda p, q, tokens: one_hot(tokens, VOCAB, dtype=p.dtype), with_tokens, 0),
    **{
        f"distributions.Sampling: {i}": Row(
            lambda x, s=s: s.probabilities(x, dtype=x.dtype), one, TRANSCENDENTAL + SUM
        )
        for i, s in enumerate(SAMPLINGS)
    },
    "distributions.pair_from_logits": Row(
        lambda x: pair_from_logits(
            x, x, sampling=Sampling(0.5), dtype=x.dtype, proposal_sampling=Sampling(top_k=3)
        ),
        one,
        TRANSCENDENTAL + SUM,
    ),
    "distributions.pair_from_logits: wider": Row(
        lambda x: pair_from_logits(x, x, sampling=Sampling(0.7), dtype=array_namespace(x).float64),
        one,
        TRANSCENDENTAL + SUM,
        same_dtype=False,
    ),
    "residuals.accept_ratio": Row(accept_ratio),
    "residuals.density_ratio": Row(density_ratio, roundings=64),  # quotients up to 60
    "residuals.normalize": Row(normalize),
    "residuals.share_of": Row(share_of),
    "residuals.ratio_or_all": Row(lambda p, q: ratio_or_all(p, p + q)),
    "residuals.positive_part_condition": Row(positive_part_condition, roundings=32 * SUM),  # what it says
    "marginal.magnified": Row(lambda p, q: magnified(p, 2.0 + q, 1e-9)),
    "marginal.underflow": Row(lambda p, q: 0.0 * p[:, 0] + underflow(p, q)),
    "residuals.standard_residual": Row(standard_residual),
    **{
        f"residuals.proxy: {redistribution}, {budget}, {hole}": Row(
            lambda p, q, tokens, options=(redistribution, budget, hole): proxy(
                p, q, tokens, **dict(zip(("redistribution", "budget", "hole"), options, strict=True))
            ),
            with_tokens,
        )
        for redistribution in ("proportional", "water-filling")
        for budget in ("local", "floor")
        for hole in ("excluded", "literal")
    },
    # Token 3 has p = 0: the law after its rejection.
    **{
        f"given_candidates.outcome_given_candidates: {rule.name}": Row(
            lambda p, q, rule=rule: outcome_given_candidates(rule, p[0, :], q[0, :], (3,)).rest
        )
        for rule in (SpecInfer(), ResiSpec())
    },
    "divergences.placed_excess": Row(placed_excess),
    "divergences.total_variation": Row(total_variation),
    "divergences.kl_terms": Row(kl_terms, roundings=DIVERGENCE),
    "divergences.kullback_leibler": Row(kullback_leibler, mixed, DIVERGENCE),
    "divergences.printed_kl": Row(printed_kl, mixed, DIVERGENCE),
    "divergences.distances": Row(distances, mixed, DIVERGENCE),
    "divergences.emitted_beside": Row(emitted_beside, mixed, DIVERGENCE, same_dtype=False),
    "divergences.divergence_bounds": Row(divergence_bounds, partly_placed, DIVERGENCE),
    "marginal.tv_interval": Row(interval, partly_placed, same_dtype=False),
    "marginal.rounding_bound": Row(lambda p, q: rounding_bound(p, q, 3, 100, 1e-16)),
    "marginal.bound_of_sums": Row(lambda p, q: bound_of_sums(p[:, 0], q[:, 0], 3, 100, 1e-16)),
    "sequential.overlap": Row(overlap, with_levels),
    "reserved.taken_share": Row(lambda p, q, t, u, w, _: taken_share(p, q, t, u, w), with_round, 0),
    # A sum, and the division by it.
    "reserved.reserve": Row(lambda p, q, t, u, _, r: reserve(p, q, t, u, r), with_round, 2 * VOCAB),
    # An end of the search may cost 4 n V eps of acceptance, the margin of its steps as much, on each side.
    **{
        f"sequential.{find.__name__}: {n}": Row(
            reached(find, n), roundings=16 * n * VOCAB, same_dtype=False, wide=True
        )
        for find in (levels, levels_by_reductions)
        for n in (1, 2, 4)
    },
    # Two prefix sums, a power and two subtractions.
    **{
        f"transport.transport_limit: {n}": Row(
            lambda p, q, n=n: transport_limit(p, q, n), roundings=2 * VOCAB + n + 2, wide=True
        )
        for n in (0, 1, 3)
    },
    "transport.transport_limit_by_sorting": Row(
        lambda p, q: transport_limit_by_sorting(p, q, 3), roundings=2 * VOCAB + 5, wide=True
    ),
    # Both in float64 on the CPU: one code, rounded once to the input's precision.
    **{
        f"candidate_limits.without_replacement_limit: {n}": Row(
            lambda p, q, n=n: without_replacement_limit(p, q, n), roundings=1, wide=True
        )
        for n in (0, 1, 2, 3)
    },
    "candidate_limits.pairs_limit": Row(pairs_limit, generic),
    **{
        f"batched_paths.path_sums: {n}, {theta}": Row(
            widened(path_sums, n, theta), roundings=PATHS, same_dtype=False
        )
        for n in (1, 2, 3)
        for theta in (0.0, 1e-3)
    },
    **{
        f"batched_paths.shaped_marginals: {n}, {gap}": Row(
            widened(partial(shaped_marginals, path_sums), n, gap=gap, most_paths=most),
            roundings=PATHS,
            same_dtype=False,
        )
        for n in (1, 2, 3)
        for gap, most in ((0.0, 1e9), (1e-2, 60.0))
    },
    **{
        f"samplers.{verify.__name__}: {n}": Row(verify, drawn(n, n + more), 0, same_dtype=False)
        for verify, more in (
            (verify_specinfer, 1),
            (verify_optimal_sequential, 1),
            (verify_optimal_joint, 2),
        )
        for n in (0, 1, 3)
    },
}
# Public functions without a row of their own.
ELSEWHERE = {
    "enumeration.operational_marginals": "test_backends and test_more_rules, with every rule",
    "tuple_rules.tuple_marginals": "test_more_rules, through every tuple rule",
    "tuple_rules.all_tuples": "test_more_rules, through every tuple rule",
    "door.operational_marginals": "test_door, and enumeration's in test_backends",
    "door.path_identity": "test_door, and path_identity's in test_backends",
    "door.transport_limit": "test_door, and transport's here",
    "door.get_proxy": "test_door, and resispec's in test_backends",
    "path_identity.path_identity": "test_backends and test_more_rules, with every proxy",
    "path_identity.draw_candidates": "test_backends",
    "path_identity.identity_of": "tests/kernels/test_kernels_rows.py; elsewhere it is path_identity",
    "marginal.summation_error": "a number",
    "marginal.number": "returns a float",
    "marginal.verdict_on": "returns a verdict",
    "expansion.eps_of": "returns a float",
    "expansion.fair_draws": "takes no arrays",
    "expansion.usable_candidates": "takes no arrays",
    "marginal.estimated_acceptance": "takes NumPy arrays",
    "transport.limit_in_buckets": "takes RatioBuckets, which are NumPy's",
    "batched_paths.chunks": "takes NumPy's counts",
    "batched_paths.collected": "path_sums, here",
    "batched_paths.room_for": "a number",
    "on_device.settled_on_device": "test_device_paths",
    "marginal.of_path_sum": "test_device_paths",
    "marginal.stacked": "every test of operational_marginals",
}


def public() -> set[str]:
    """Functions in the ``__all__`` of modules that are written against the array API."""
    packages = (resispec_verify.kernels, resispec_verify.evidence, resispec_verify.device)
    names = [m.name for p in packages for m in pkgutil.walk_packages(p.__path__, f"{p.__name__}.")]
    found = set()
    for name in (*names, "resispec_verify.samplers"):
        module = importlib.import_module(name)
        if "array_namespace" in vars(module):
            functions = (n for n in module.__all__ if inspect.isfunction(getattr(module, n)))
            found |= {f"{name.rsplit('.', 1)[1]}.{function}" for function in functions}
    return found


def missing(rows: set[str]) -> set[str]:
    return public() - {name.partition(":")[0] for name in rows}


def test_every_public_array_function_has_a_row():
    assert missing({*ROWS, *ELSEWHERE}) == set()
    assert set(ELSEWHERE) <= public()


@pytest.mark.parametrize("name", ["residuals.normalize", "samplers.verify_specinfer"])
def test_a_function_without_a_row_is_noticed(name):
    assert missing({row for row in ROWS if row.partition(":")[0] != name} | {*ELSEWHERE}) == {name}


def flat(result: Any) -> list[Any]:
    """The arrays of a result: one, a tuple of them, or a dataclass."""
    if dataclasses.is_dataclass(result):
        result = tuple(getattr(result, field.name) for field in dataclasses.fields(result))
    return (
        [v for v in result if v is not None and not isinstance(v, float)]
        if isinstance(result, tuple)
        else [result]
    )


@pytest.mark.parametrize("name", ROWS)
def test_function(library, dtype, name):
    row = ROWS[name]
    arrays = row.arrays(dtype)
    given = [library.array(values) for values in arrays]
    with Unchanged(*given):
        computed = flat(row.call(*given))
    right = flat(row.call(*(row.arrays("float64") if row.wide else arrays)))
    for ours, theirs in zip(computed, right, strict=True):
        floating = np.issubdtype(theirs.dtype, np.floating)
        check_like(ours, given[0], same_dtype=row.same_dtype and floating)
        if row.roundings == 0 or not floating:
            np.testing.assert_array_equal(to_numpy(ours), theirs)
        else:
            working = dtype if row.same_dtype else str(theirs.dtype)
            assert_close(ours, theirs, eps(working) * row.roundings)
