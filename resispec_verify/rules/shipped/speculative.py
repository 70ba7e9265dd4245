"""Speculative sampling: one candidate.

Leviathan, Kalman and Matias, Fast inference from transformers via speculative decoding, ICML 2023 (Appendix
A.1); Chen et al., arXiv 2302.01318 (Algorithm 2). Accept with ``min(1, p/q)``, otherwise draw from
``norm((p - q)_+)``. Guarantee: exact, when the candidate is drawn from the declared draft. No deviations.
"""

from __future__ import annotations

from dataclasses import dataclass

from resispec_verify.rules.shipped.specinfer import SpecInfer

__all__ = ["Speculative"]


@dataclass(frozen=True)
class Speculative(SpecInfer):
    """SpecInfer with one candidate."""

    name = "speculative"
    source = "Leviathan et al. 2023; Chen et al. 2023"
    place = 10
    most_candidates = 1
    sum_rounds = SpecInfer.sum_rounds
    sum_identity = SpecInfer.sum_identity
