"""Block verification: a path of L tokens is verified as a whole, and its longest accepted prefix is kept.

Sun et al., Block verification accelerates speculative decoding, ICLR 2025, arXiv 2403.10444 (Algorithm 2).
Along the path ``w_0 = 1``, ``w_i = min(1, w_{i-1} p(x_i) / q(x_i))``. With ``S_i = sum (w_i p - q)_+`` over
the next token, prefix i passes with ``h_i = S_i / (S_i + 1 - w_i)`` for i < L, and ``h_L = w_L``; all
prefixes are tested independently and the longest that passes is accepted. The next token is drawn from
``norm((w_i p - q)_+)``, or from the target after the whole path.

Guarantee: exact over the block (the accepted tokens, the corrected one, and the target's own continuation),
and no rule that is accepts more tokens on average. Assumption: the path is drawn from the declared drafts.
No deviations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from resispec_verify.arrays import Array
from resispec_verify.kernels.elementwise.probabilities import at
from resispec_verify.kernels.elementwise.residuals import normalize
from resispec_verify.rules.path_rule import PathRule

__all__ = ["Block"]


@dataclass(frozen=True)
class Block(PathRule):
    """Block verification of one path."""

    name = "block"
    claims_exact = True
    source = "Block verification (Sun et al. 2024, arXiv 2403.10444)"
    place = 210

    def outcome(self, targets: Array, drafts: Array, path: Any) -> tuple[Array, Array]:
        """See `PathRule.outcome`."""
        xp = array_namespace(targets, drafts, path)
        length = path.shape[-1]
        weight = xp.ones(path.shape[:-1], dtype=targets.dtype, device=targets.device)
        passes, rows = [], []
        for i in range(length + 1):
            if i > 0:
                token = path[..., i - 1 : i]
                p = at(targets[..., i - 1, :], token)[..., 0]
                q = at(drafts[..., i - 1, :], token)[..., 0]
                reached = weight * p
                below = reached < q
                ratio = xp.where(below, reached / xp.where(below, q, 1.0), 1.0)
                weight = xp.where(q > 0, ratio, 0.0)
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
            rows.append(normalize(excess, target))
        lengths, longer_fail = [], xp.ones_like(weight)
        for i in range(length, 0, -1):
            lengths.append(longer_fail * passes[i])
            longer_fail = longer_fail * (1.0 - passes[i])
        lengths.append(longer_fail)
        return xp.stack(lengths[::-1], axis=-1), xp.stack(rows, axis=-2)
