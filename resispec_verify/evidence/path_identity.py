"""The path identity of the paper's Appendix B (Eq. 25-28): a check that cannot fail.

Fix one list of candidates and the proxies k_1..k_n they give. With ``beta_i = sum min(k_i, R_{i-1})`` and
``R_i = (R_{i-1} - min(k_i, R_{i-1})) / (1 - beta_i)``, the sum

    sum_i prod_{j<i} (1 - beta_j) min(k_i, R_{i-1})  +  prod_j (1 - beta_j) R_n

telescopes to the target for *every* list of proxies, sensible or random. So its divergence from the target
is rounding noise by construction: it checks the arithmetic, not the sampler. It is computed because the
paper's Table 4 is this number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise import compiled
from resispec_verify.kernels.elementwise.residuals import normalize
from resispec_verify.rules.interface import Rule

__all__ = ["Drawn", "draw_candidates", "identity_of", "path_identity"]

#: ``proxy(current, draft, tokens (B,)) -> k (B, V)``
ProxyOf = Callable[[Any, Any, Any], Any]


def path_identity(target: Array, draft: Array, proxy: ProxyOf, candidates: Array, rounds: int) -> Array:
    """Eq. 25-27 summed over the paths of one list of candidates a row.

    Parameters
    ----------
    target, draft : array (B, V)
    proxy : callable
        Maps the current target, the draft and the rejected tokens ``(B,)`` to the proxies ``(B, V)``.
    candidates : callable or integer array (B, >= rounds)
        The rejected candidates, or ``candidates(round, current) -> (B,)`` to draw each from the state it is
        rejected in.
    rounds : int
        Number of candidates n.

    Returns
    -------
    array (B, V)
        Equal to the target up to rounding, whatever the proxies.

    Raises
    ------
    InputError
        Too few candidates, or a token outside the vocabulary.
    """
    xp = array_namespace(target, draft)
    if not callable(candidates):
        _check(candidates, target, rounds)
    current = target
    weight = xp.ones((*target.shape[:-1], 1), dtype=target.dtype, device=target.device)
    total = compiled.zeros_beside(target) if is_numpy_array(target) else xp.zeros_like(target)
    for i in range(rounds):
        tokens = candidates(i, current) if callable(candidates) else candidates[:, i]
        k = proxy(current, draft, tokens)
        if compiled.compilable(current, k, total):
            weight, current = compiled.split(total, k, current, weight)
            continue
        emitted = xp.minimum(k, current)
        rest = current - emitted
        total = total + weight * emitted
        # 1 - beta as the sum of what is left, so that the rounds telescope to the last bit that they can;
        # a round with beta = 1 ends the sum: its weight is 0.
        weight = weight * xp.sum(rest, axis=-1, keepdims=True)
        current = normalize(rest, current)
    return total + weight * current


def identity_of(rule: Rule, target: Array, draft: Array, candidates: Array, rounds: int) -> Array:
    """`path_identity` of the proxy of a rule, by the rule's own sum where it has one; None without a proxy.

    Parameters
    ----------
    rule : Rule
    target, draft : array (B, V)
    candidates : Drawn or integer array (B, >= rounds)
        As for `path_identity`.
    rounds : int

    Raises
    ------
    InputError
        As `path_identity`.
    """
    if compiled.compilable(target, draft):
        drawn = isinstance(candidates, Drawn)
        if not drawn:
            _check(candidates, target, rounds)
        tokens, uniforms = (None, candidates.uniforms) if drawn else (candidates, None)
        found = rule.sum_identity(target, draft, rounds, tokens, uniforms)
        if found is not None:
            return found
    xp = array_namespace(target)
    first = xp.zeros(1, dtype=xp.int64, device=target.device)
    if rule.proxy(target[:1, :], draft[:1, :], first) is None:
        return None
    return path_identity(target, draft, rule.proxy, candidates, rounds)


def _check(candidates: Array, target: Array, rounds: int) -> None:
    xp = array_namespace(candidates)
    if candidates.ndim != 2 or candidates.shape[0] != target.shape[0] or candidates.shape[1] < rounds:
        raise InputError(
            f"candidates have shape {tuple(candidates.shape)}; {rounds} at each of {target.shape[0]} "
            "positions are needed"
        )
    if rounds and bool(xp.any((candidates < 0) | (candidates >= target.shape[-1]))):
        raise InputError(f"a candidate is outside the vocabulary 0..{target.shape[-1] - 1}")


@dataclass(frozen=True)
class Drawn:
    """Candidates ``(round, current) -> (B,)`` of `draw_candidates`.

    Attributes
    ----------
    draft : array (B, V)
    uniforms : array (B, rounds)
        In [0, 1), in the type of the draft.
    """

    draft: Any
    uniforms: Any

    def __call__(self, i: int, current: Array) -> Array:
        """Draw from ``(q - R)_+`` by inversion."""
        draft, u = self.draft, self.uniforms
        xp = array_namespace(draft)
        if compiled.compilable(draft, current):
            return compiled.draw(draft, current, u[:, i])
        over = xp.clip(draft - current, 0.0, None)
        over = normalize(over, draft)
        cumulative = xp.cumulative_sum(over, axis=-1)
        below = cumulative <= u[:, i][:, None] * cumulative[..., -1:]
        token = xp.sum(xp.astype(below, xp.int64), axis=-1)
        # Rounding of u may point behind the last token that can be drawn.
        last = over.shape[-1] - 1 - xp.argmax(xp.astype(xp.flip(over, axis=-1) > 0, xp.int64), axis=-1)
        return xp.minimum(token, xp.astype(last, token.dtype))


def draw_candidates(draft: Array, rounds: int, uniforms: np.ndarray) -> Drawn:
    """Candidates drawn from what can be rejected: ``(q - R)_+`` by inversion of given uniforms.

    Where nothing can be rejected (p = q) the draw is from q, and the round ends the sum.

    Parameters
    ----------
    draft : array (B, V)
    rounds : int
    uniforms : float64 (B, rounds)
        In [0, 1).
    """
    xp = array_namespace(draft)
    return Drawn(draft, xp.asarray(uniforms, dtype=draft.dtype, device=draft.device))
