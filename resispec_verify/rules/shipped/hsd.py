"""Hierarchical speculative decoding: a path is verified by ratios of joint probabilities, from its end.

Zhou et al., Overcoming Joint Intractability with Lossless Hierarchical Speculative Decoding, arXiv
2601.05724 (Algorithm 2), read in a public transcription of it that names its equations, and in its
authors' repository (ZhouYuxuanYX/Hierarchical-Speculative-Decoding). With ``r_i`` the ratio of the
target's to the draft's probability of prefix i, and ``m_i`` the largest of 1, r_1, ..., r_i, prefix i < L
passes with ``h_i = D / max(D, D')``, where ``D = sum (r_i p / m_i - q)_+`` and ``D' = sum (q - r_i p /
m_i)_+`` over the next token, and ``h_L = min(1, r_L / m_{L-1})``. The longest prefix that passes is kept;
the next token is drawn from ``norm((r_i p / m_i - q)_+)``.

Guarantee: exact over the block. This is `block` in other symbols, not a second rule: ``r_i / m_i`` is its
w_i (divide ``w_i = min(1, w_{i-1} p / q)`` out: w_i is the least of r_i / r_j over j <= i), and ``max(D,
D') = D' = D + 1 - w_i``. So it accepts as many tokens as block verification, whatever is claimed; and
that it could not accept more is block's optimality. Assumption: the path is drawn from the declared
drafts. No deviations by default.

``cap="last"`` is what the authors' `algorithm_clean.py` does (at 89745108) instead: ``min(1, r_i)`` in
the place of ``r_i / m_i``, so that a prefix which was more probable than drafted once keeps that credit.
Not exact. There, besides, a position is not stepped back from where r of the next prefix is 1 or more,
and a token may be missing after the accepted ones where p = q; neither is in this file.
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

__all__ = ["HSD"]


@dataclass(frozen=True)
class HSD(PathRule):
    """Hierarchical speculative decoding of one path.

    Attributes
    ----------
    cap : {"running", "last"}
        What a joint ratio is cut by: the largest of those before it, or by 1 at its own place alone.
    """

    cap: Literal["running", "last"] = "running"

    name = "hsd"
    claims_exact = True
    source = "HSD, Algorithm 2 (Zhou et al. 2026, arXiv 2601.05724)"
    place = 215
    inexact_with: ClassVar[Mapping[str, Any] | None] = {"cap": "last"}
    exact_if = "joint ratios are cut by the largest of the path so far, as in its Algorithm 2"

    def __post_init__(self) -> None:
        if self.cap not in ("running", "last"):
            raise InputError(f"hsd: cap must be running or last, got {self.cap!r}")

    def outcome(self, targets: Array, drafts: Array, path: Any) -> tuple[Array, Array]:
        """See `PathRule.outcome`."""
        xp = array_namespace(targets, drafts, path)
        length = path.shape[-1]
        ratio = xp.ones(path.shape[:-1], dtype=targets.dtype, device=targets.device)
        largest, passes, rows = ratio, [], []
        for i in range(length + 1):
            if i > 0:
                token = path[..., i - 1 : i]
                q = at(drafts[..., i - 1, :], token)[..., 0]
                step = at(targets[..., i - 1, :], token)[..., 0] / xp.where(q > 0, q, 1.0)
                ratio = xp.where(q > 0, ratio * step, 0.0)
                largest = xp.maximum(largest, ratio)
            weight = ratio / largest if self.cap == "running" else xp.clip(ratio, None, 1.0)
            target = targets[..., i, :]
            if i == length:
                passes.append(weight)
                rows.append(target)
                continue
            apart = weight[..., None] * target - drafts[..., i, :]
            above = xp.sum(xp.clip(apart, 0.0, None), axis=-1)
            most = xp.maximum(above, xp.sum(xp.clip(-apart, 0.0, None), axis=-1))
            # Both are 0 where the laws agree: the next prefix then passes whenever it is reached.
            passes.append(xp.where(most > 0, above / xp.where(most > 0, most, 1.0), 1.0))
            rows.append(normalize(xp.clip(apart, 0.0, None), target))
        lengths, longer_fail = [], xp.ones_like(ratio)
        for i in range(length, 0, -1):
            lengths.append(longer_fail * passes[i])
            longer_fail = longer_fail * (1.0 - passes[i])
        return xp.stack([longer_fail, *lengths[::-1]], axis=-1), xp.stack(rows, axis=-2)
