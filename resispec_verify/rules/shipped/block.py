"""Block verification: a path of L tokens is verified as a whole, and its longest accepted prefix is kept.

Sun et al., Block verification accelerates speculative decoding, ICLR 2025, arXiv 2403.10444 (Algorithm 2).
Along the path ``w_0 = 1``, ``w_i = min(1, w_{i-1} p(x_i) / q(x_i))``. With ``S_i = sum (w_i p - q)_+`` over
the next token, prefix i passes with ``h_i = S_i / (S_i + 1 - w_i)`` for i < L, and ``h_L = w_L``; all
prefixes are tested independently and the longest that passes is accepted. The next token is drawn from
``norm((w_i p - q)_+)``, or from the target after the whole path.

Guarantee: exact over the block (the accepted tokens, the corrected one, and the target's own continuation),
and no rule that is accepts more tokens on average. Assumption: the path is drawn from the declared drafts.
No deviations by default.

Two options are what vllm-ascend did instead, ``sample/rejection_sampler.py`` and
``ops/triton/reject_sample.py`` (its issue 7807). ``coins="product"``: prefix i passes if ``u_1 ... u_i <=
w_i``, with one uniform u a token. ``residual="token"``: the next token comes from ``norm((p - q)_+)``. Both
until 2f4d55e7 (pull request 7808, April 2026); the coins again from 526141cf (8308, May 2026), and in its
Triton kernels the residual from 77ff2865 (9772, June 2026), to 182b75ea at least. Neither is exact, alone
or together. Its code without Triton takes the product of ``min(1, p/q)`` for w; that is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.probabilities import at
from resispec_verify.kernels.elementwise.residuals import normalize
from resispec_verify.rules.path_rule import PathRule

__all__ = ["Block"]


@dataclass(frozen=True)
class Block(PathRule):
    """Block verification of one path.

    Attributes
    ----------
    residual : {"block", "token"}
        What the next token is drawn from: ``(w_i p - q)_+``, or ``(p - q)_+``.
    coins : {"independent", "product"}
        How prefixes are tested: each with ``h_i`` and a coin of its own, or ``w_i`` against the product of
        the coins so far.
    """

    residual: Literal["block", "token"] = "block"
    coins: Literal["independent", "product"] = "independent"

    name = "block"
    claims_exact = True
    source = "Block verification (Sun et al. 2024, arXiv 2403.10444)"
    place = 210
    inexact_with: ClassVar[Mapping[str, Any] | None] = {"residual": "token"}
    exact_if = (
        "its residual is the block's and its coins are independent, the defaults; else pairs of tokens are "
        "wrong, even where the first one is right"
    )

    def __post_init__(self) -> None:
        for name, choices in (("residual", ("block", "token")), ("coins", ("independent", "product"))):
            if getattr(self, name) not in choices:
                raise InputError(f"block: {name} must be {' or '.join(choices)}, got {getattr(self, name)!r}")

    def outcome(self, targets: Array, drafts: Array, path: Any) -> tuple[Array, Array]:
        """See `PathRule.outcome`."""
        xp = array_namespace(targets, drafts, path)
        length = path.shape[-1]
        weight = xp.ones(path.shape[:-1], dtype=targets.dtype, device=targets.device)
        weights, passes, rows = [], [], []
        for i in range(length + 1):
            if i > 0:
                token = path[..., i - 1 : i]
                p = at(targets[..., i - 1, :], token)[..., 0]
                q = at(drafts[..., i - 1, :], token)[..., 0]
                reached = weight * p
                below = reached < q
                ratio = xp.where(below, reached / xp.where(below, q, 1.0), 1.0)
                weight = xp.where(q > 0, ratio, 0.0)
                weights.append(weight)
            target = targets[..., i, :]
            if i == length:
                passes.append(weight)
                rows.append(target)
                continue
            excess = xp.clip(weight[..., None] * target - drafts[..., i, :], 0.0, None)
            room = xp.sum(excess, axis=-1)
            total = room + 1.0 - weight
            # Both are 0 where p = q and w = 1: the next prefix then passes whenever it is reached.
            passes.append(xp.where(total > 0, room / xp.where(total > 0, total, 1.0), 1.0))
            if self.residual == "token":
                excess = xp.clip(target - drafts[..., i, :], 0.0, None)
            rows.append(normalize(excess, target))
        if self.coins == "product":
            return _longest(weights, weight), xp.stack(rows, axis=-2)
        lengths, longer_fail = [], xp.ones_like(weight)
        for i in range(length, 0, -1):
            lengths.append(longer_fail * passes[i])
            longer_fail = longer_fail * (1.0 - passes[i])
        lengths.append(longer_fail)
        return xp.stack(lengths[::-1], axis=-1), xp.stack(rows, axis=-2)


def _longest(weights: list[Any], like: Array) -> Array:
    """Chance that ``U_i <= w_i`` holds last at i = 0, ..., L, U_i a product of i coins; ``(..., L + 1)``."""
    xp = array_namespace(like)
    length = len(weights)
    none_from = [_none_passes(weights, k, like) for k in range(length)] + [xp.ones_like(like)]
    # None from i + 1 on, less none from i on; the difference of two that are equal may round below 0.
    exactly = [xp.clip(none_from[i] - none_from[i - 1], 0.0, None) for i in range(1, length + 1)]
    return xp.stack([none_from[0], *exactly], axis=-1)


def _none_passes(weights: list[Any], first: int, like: Array) -> Array:
    """Probability that ``U_i > w_i`` for every prefix i from the one of ``weights[first]`` on.

    From the last prefix to the first: given ``U_i = u``, no later one passes with probability ``1 + sum_j a_j
    ln(u)^j / u`` above the greatest later weight, and 0 up to it; a coin times u is uniform below u, and the
    integral raises j by one.
    """
    xp = array_namespace(like)
    factors: list[Any] = []
    greatest = xp.zeros_like(like)
    for i in reversed(range(len(weights))):
        greatest = xp.maximum(greatest, weights[i]) if i >= first else greatest
        raised = [factor / (j + 1) for j, factor in enumerate(factors)]
        log = xp.log(xp.where(greatest > 0, greatest, 1.0))
        below = greatest
        for j, factor in enumerate(raised):
            below = below + factor * log ** (j + 1)
        factors = [-below, *raised]
    return 1.0 + factors[0] if factors else xp.ones_like(like)
