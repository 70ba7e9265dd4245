"""Reference samplers: verification rules as programs to drop into a decoder (NumPy, torch; batched).

Written once against the array API, without a Python loop over rows; only `verify_optimal_joint` lays out its
rows one after the other, on the CPU. They take the candidates and the uniform
numbers, so that the caller owns all randomness.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.backends import to_numpy
from resispec_verify.errors import InputError
from resispec_verify.inputs import arrays, laws, token_ids
from resispec_verify.kernels.elementwise.probabilities import at
from resispec_verify.kernels.elementwise.residuals import accept_ratio, standard_residual
from resispec_verify.kernels.optimal.layouts import best_layout, places, race_law
from resispec_verify.kernels.optimal.sequential import levels

__all__ = ["Verified", "verify_optimal_joint", "verify_optimal_sequential", "verify_specinfer"]


Sampler = Callable[[Any, Any, Any, Any], "Verified"]


class Verified(NamedTuple):
    """What verification emits.

    Attributes
    ----------
    tokens : int64 array (B,)
        The emitted token of each row.
    accepted : int64 array (B,)
        Index of the accepted candidate; n where all were rejected and the token was drawn afresh.
    """

    tokens: Any
    accepted: Any


def _checked(more: int) -> Callable[[Sampler], Sampler]:
    """Check what a sampler is handed; ``more``: how many uniforms it needs besides one a candidate."""

    def decorate(sampler: Sampler) -> Sampler:
        @functools.wraps(sampler)
        def verify(target: Array, draft: Array, candidates: Array, uniforms: Array) -> Verified:
            rows = laws(dimensions=2, target=target, draft=draft)
            target, draft = rows["target"], rows["draft"]
            count, vocab = target.shape
            candidates = token_ids("candidates", candidates, vocab, (count, None), target)
            uniforms = arrays(target=target, uniforms=uniforms)["uniforms"]
            wanted = (count, candidates.shape[1] + more)
            if tuple(uniforms.shape) != wanted:
                raise InputError(
                    f"uniforms must have shape {wanted}, one a candidate and {more} more in each row; "
                    f"got {tuple(uniforms.shape)}"
                )
            xp = array_namespace(uniforms)
            if not bool(xp.all((uniforms >= 0) & (uniforms < 1))):
                raise InputError("uniforms must lie in [0, 1): draw them with rng.random")
            return sampler(target, draft, candidates, uniforms)

        return verify

    return decorate


@_checked(1)
def verify_optimal_sequential(target: Array, draft: Array, candidates: Array, uniforms: Array) -> Verified:
    """Optimal sequential verification of n candidates a row; exact, and the most accepting such rule.

    Parameters
    ----------
    target, draft : array (B, V)
        Probabilities, float32 or float64. The candidates must really be drawn from the draft, i.i.d.
    candidates : integer array (B, n)
    uniforms : array (B, n + 1)
        Independent, in [0, 1): one for each candidate and one for the draw when all are rejected.

    Returns
    -------
    Verified

    Raises
    ------
    InputError
        Rows that are no probabilities, a token outside the vocabulary, uniforms outside [0, 1), shapes that
        do not fit.
    """
    xp = array_namespace(target, draft, candidates, uniforms)
    n = candidates.shape[-1]
    T = xp.astype(levels(target, draft, n), target.dtype, copy=False)
    rest = xp.clip(target - T[:, :1] * draft, 0.0, None)
    z = xp.sum(rest, axis=-1)
    weights = [z + xp.sum(xp.minimum(target, T[:, k, None] * draft), axis=-1) for k in range(1, n)]
    weight = xp.stack([xp.ones_like(z), *weights][:n], axis=-1) if n else T[:, :0]
    p, q = at(target, candidates), at(draft, candidates)
    mass = xp.minimum(p, T[:, :-1] * q) - xp.minimum(p, T[:, 1:] * q)
    return _emit(uniforms[:, :n] * weight * q < mass, candidates, rest, target, uniforms[:, n])


@_checked(2)
def verify_optimal_joint(target: Array, draft: Array, candidates: Array, uniforms: Array) -> Verified:
    """Optimal joint verification of n candidates a row; exact, and the most accepting exact rule there is.

    Parameters
    ----------
    target, draft, candidates
        As for `verify_optimal_sequential`.
    uniforms : array (B, n + 2)
        Independent, in [0, 1): a place for each candidate, the test of the winner, and the draw when it is
        rejected.

    Returns
    -------
    Verified
    """
    xp = array_namespace(target, draft, candidates, uniforms)
    n = candidates.shape[-1]
    if n == 0:
        nothing = xp.zeros((target.shape[0], 0), dtype=xp.bool, device=target.device)
        return _emit(nothing, candidates, target, target, uniforms[:, 1])
    winners, laws = [], []
    for p, q, x, u in zip(*(to_numpy(a) for a in (target, draft, candidates, uniforms)), strict=True):
        p, q = p.astype(np.float64), q.astype(np.float64)
        layout = best_layout(p, q, n)
        winners.append(np.argmin(places(layout, x, u[:n])))
        laws.append(race_law(layout, q, q, n))
    m = xp.asarray(np.asarray(laws), dtype=target.dtype, device=target.device)
    winner = xp.asarray(np.asarray(winners), device=target.device)[:, None]
    won = xp.arange(n, device=target.device)[None, :] == winner
    token = xp.take_along_axis(candidates, winner, axis=-1)
    accept = won & (uniforms[:, n : n + 1] * at(m, token) < at(target, token))
    return _emit(accept, candidates, xp.clip(target - m, 0.0, None), target, uniforms[:, n + 1])


@_checked(1)
def verify_specinfer(target: Array, draft: Array, candidates: Array, uniforms: Array) -> Verified:
    """SpecInfer's multi-step verification, for comparison; arguments as `verify_optimal_sequential`."""
    xp = array_namespace(target, draft, candidates, uniforms)
    n = candidates.shape[-1]
    residual, accept = target, []
    for i in range(n):
        accept.append(uniforms[:, i : i + 1] < at(accept_ratio(residual, draft), candidates[:, i : i + 1]))
        residual = standard_residual(residual, draft)
    decisions = xp.concat(accept, axis=-1) if n else xp.zeros((target.shape[0], 0), dtype=xp.bool)
    return _emit(decisions, candidates, residual, target, uniforms[:, n])


def _emit(accept: Array, candidates: Array, rest: Array, target: Array, uniform: Array) -> Verified:
    """The first accepted candidate, or a draw from ``rest`` (from the target where that has no mass)."""
    xp = array_namespace(candidates)
    n = candidates.shape[-1]
    law = xp.where(xp.sum(rest, axis=-1, keepdims=True) > 0, rest, target)
    cumulative = xp.cumulative_sum(law, axis=-1)
    below = cumulative <= uniform[:, None] * cumulative[:, -1:]
    drawn = xp.sum(xp.astype(below, xp.int64), axis=-1)
    last = law.shape[-1] - 1 - xp.argmax(xp.astype(xp.flip(law, axis=-1) > 0, xp.int64), axis=-1)
    drawn = xp.minimum(drawn, xp.astype(last, xp.int64))
    if n == 0:
        return Verified(drawn, xp.zeros_like(drawn))
    any_accepted = xp.any(accept, axis=-1)
    first = xp.astype(xp.argmax(xp.astype(accept, xp.int64), axis=-1), xp.int64)
    token = xp.astype(at(candidates, first[:, None])[:, 0], xp.int64)
    n_rows = xp.full(drawn.shape, n, dtype=xp.int64, device=drawn.device)
    return Verified(xp.where(any_accepted, token, drawn), xp.where(any_accepted, first, n_rows))
