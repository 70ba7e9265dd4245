"""Gumbel-max list sampling: K paths and the target are drawn by the same exponential clocks.

Rowan, Phan, Khisti, List-Level Distribution Coupling with Applications to Speculative Decoding and Lossy
Compression, NeurIPS 2025, arXiv 2506.05632 (Algorithms 1 and 2). At every position path k has clocks
``S_i`` of its own, exponential and independent; it draws the token of least ``S_i / q_i``, and what is
emitted is that of least ``min over k of S_i / p_i``, over the paths that have drawn all that was emitted
so far. Paths that drew something else are dropped; when none is left, that token was the last.

Guarantee: exact, since the clocks of a position have not been looked at before it. Assumptions: K paths
of one length, whose randomness the verifier shares. This file has what follows for given paths, by
integration over the clocks: with the first of all clocks at t, path k draws x with a probability that is
a sum of decays exp(-a t), one for each piece between ratios p/q, so the law of the token is a rational
function of p and q. It takes (2V)^K terms, for toy chains; nobody needs it to decode. Deviation: one
draft for all paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.probabilities import at
from resispec_verify.kernels.elementwise.residuals import normalize
from resispec_verify.rules.tree_rule import Siblings, TreeRule, paths_of

__all__ = ["GLS"]

#: Rates and multiples of decays, ``(B, V or 1, terms)``.
Decays = tuple[Array, Array]


@dataclass(frozen=True)
class GLS(TreeRule):
    """Gumbel-max list sampling, given what the paths have drawn."""

    name = "gls"
    claims_exact = True
    source = "Gumbel-max list sampling (Rowan et al. 2025, arXiv 2506.05632)"
    place = 340
    siblings: ClassVar[Siblings] = "iid"
    paths_only = True

    def outcome(
        self, targets: Array, drafts: Array, tokens: Any, parents: tuple[int, ...]
    ) -> tuple[Array, Array]:
        """See `TreeRule.outcome`: the children of the root each begin a path, all of one length."""
        xp = array_namespace(targets, drafts, tokens)
        paths = [[0, *path] for path in paths_of(parents, self.name)]
        lead, (count, vocab) = targets.shape[:-2], targets.shape[-2:]
        p, q = (xp.reshape(x, (-1, count, vocab)) for x in (targets, drafts))
        tokens = xp.reshape(tokens, (-1, count))
        ends: list[Any] = [None] * count
        laws: list[Any] = [None] * count
        for k, path in enumerate(paths):
            reach = xp.ones(tokens.shape[:1], dtype=p.dtype, device=p.device)
            active = xp.ones((tokens.shape[0], len(paths)), dtype=xp.bool, device=p.device)
            for i, node in enumerate(path):
                # Paths that agree so far are one: the first of them counts.
                first = ~xp.any(active[:, :k], axis=-1) if k else xp.ones_like(active[:, 0])
                if i == len(path) - 1:
                    ends[node], laws[node] = xp.where(first, reach, 0.0), p[:, node, :]
                    break
                drawn = xp.stack([tokens[:, other[i + 1]] for other in paths], axis=-1)
                law = _emitted(p[:, node, :], q[:, node, :], drawn, active)
                missed = law
                for j in range(len(paths)):
                    hit = xp.arange(vocab, dtype=drawn.dtype, device=p.device) == drawn[:, j : j + 1]
                    missed = xp.where(hit & active[:, j : j + 1], 0.0, missed)
                if node or k == 0:
                    ends[node] = xp.where(first, reach * xp.sum(missed, axis=-1), 0.0)
                    laws[node] = normalize(missed, p[:, node, :])
                reach = reach * at(law, drawn[:, k : k + 1])[:, 0]
                active = active & (drawn == drawn[:, k : k + 1])
        return (
            xp.reshape(xp.stack(ends, axis=-1), (*lead, count)),
            xp.reshape(xp.stack(laws, axis=-2), (*lead, count, vocab)),
        )


def _emitted(p: Array, q: Array, drawn: Any, active: Array) -> Array:
    """The law of the token emitted ``(B, V)``, given what active paths have drawn, both ``(B, K)``."""
    xp = array_namespace(p, q, drawn)
    paths = drawn.shape[-1]
    free = [_draws(p, q, drawn[:, k], active[:, k], first=False) for k in range(paths)]
    bound = [_draws(p, q, drawn[:, k], active[:, k], first=True) for k in range(paths)]
    clocks = xp.sum(xp.astype(active, p.dtype), axis=-1)[:, None, None]
    total = xp.zeros_like(p)
    for winner in range(paths):
        rates, multiples = bound[winner]
        for k in range(paths):
            if k != winner:
                rates, multiples = _product((rates, multiples), free[k])
        share = xp.sum(multiples / (rates + clocks), axis=-1)
        total = total + xp.where(active[:, winner : winner + 1], share, 0.0)
    return normalize(xp.clip(p * total, 0.0, None), p)


def _draws(p: Array, q: Array, token: Any, active: Array, *, first: bool) -> Decays:
    """Probability that a path draws a token, by the time t of the first of all clocks.

    With ``first`` the clock is its own, and of each token in turn; else another path's. An inactive path
    counts as certain.
    """
    xp = array_namespace(p, q)
    ratio = xp.where(q > 0, p / xp.where(q > 0, q, 1.0), xp.inf)
    order = xp.argsort(ratio, axis=-1, stable=True)
    low = xp.take_along_axis(ratio, order, axis=-1)
    high = xp.concat([low[:, 1:], xp.full_like(low[:, :1], xp.inf)], axis=-1)
    speed = xp.cumulative_sum(xp.take_along_axis(q, order, axis=-1), axis=-1)
    known = xp.cumulative_sum(xp.take_along_axis(p, order, axis=-1), axis=-1)
    own = token[:, None]
    place = xp.arange(p.shape[-1], dtype=order.dtype, device=p.device)
    counts = (place >= at(xp.argsort(order, axis=-1), own)) & (low < xp.inf)
    rates = xp.stack([_rate(speed, low, known), _rate(speed, high, known)], axis=-1)
    part = xp.where(counts, at(q, own) / xp.where(counts, speed, 1.0), 0.0)
    multiples = xp.stack([part, xp.where(high < xp.inf, -part, 0.0)], axis=-1)
    rates, multiples = rates[:, None, :, :], multiples[:, None, :, :]
    if first:
        multiples = xp.where((low[:, None, :] < ratio[:, :, None])[..., None], multiples, 0.0)
        rates = xp.broadcast_to(rates, multiples.shape)
    terms = (*multiples.shape[:2], 2 * p.shape[-1])
    rates, multiples = xp.reshape(rates, terms), xp.reshape(multiples, terms)
    one = xp.concat([xp.ones_like(multiples[..., :1]), xp.zeros_like(multiples[..., 1:])], axis=-1)
    if first:
        sooner = xp.clip(xp.where(q > 0, q * at(xp.where(q > 0, ratio, 0.0), own) - p, 0.0), 0.0, None)
        late = xp.sum(sooner, axis=-1)[:, None, None]
        same = (xp.arange(p.shape[-1], dtype=token.dtype, device=p.device) == own)[..., None]
        rates, multiples = xp.where(same, late, rates), xp.where(same, one, multiples)
    idle = ~active[:, None, None]
    return xp.where(idle, 0.0, rates), xp.where(idle, one, multiples)


def _rate(speed: Array, ratio: Array, known: Array) -> Array:
    xp = array_namespace(speed)
    ends = ratio < xp.inf
    return xp.where(ends, xp.clip(speed * xp.where(ends, ratio, 0.0) - known, 0.0, None), 0.0)


def _product(a: Decays, b: Decays) -> Decays:
    """Of two functions of time, term by term."""
    xp = array_namespace(a[0])
    rates = a[0][..., :, None] + b[0][..., None, :]
    multiples = a[1][..., :, None] * b[1][..., None, :]
    shape = (*rates.shape[:-2], rates.shape[-2] * rates.shape[-1])
    return xp.reshape(rates, shape), xp.reshape(multiples, shape)
