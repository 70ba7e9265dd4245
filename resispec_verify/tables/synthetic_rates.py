"""Acceptance by position as engines take it for benchmarks: synthetic acceptance.

vLLM and llama.cpp both want *unconditional* rates: entry i is the probability that the first i + 1 draft
tokens are all accepted. There are as many as tokens are drafted, each in [0, 1] and none larger than the one
before it; the engine divides neighbours to get the probability of a token given that all before it were
accepted. Read in vLLM 0.33.0 (``vllm/config/speculative.py``) and llama.cpp (``docs/speculative.md`` and
``common/speculative.cpp`` as of llama-cpp-python 0.3.36).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from resispec_verify.schema import envelope

__all__ = ["of_conditional", "settings_report"]

_DECIMALS = 6


def of_conditional(rates: Sequence[float]) -> list[float]:
    """Unconditional rates of those given that all tokens before were accepted."""
    return np.cumprod(rates).tolist()


def settings_report(rates: Sequence[float], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The file, JSON-ready.

    Parameters
    ----------
    rates : sequence of float
        Unconditional, one a draft token.
    facts : mapping
        Of which rule and what they were measured on.
    """
    # Rounding may have put a rate above the one before it, or outside; engines refuse that.
    shown = [round(float(rate), _DECIMALS) for rate in np.minimum.accumulate(np.clip(rates, 0.0, 1.0))]
    return envelope(
        "acceptance",
        [
            {
                **facts,
                "draft_tokens": len(shown),
                "unconditional_rates": shown,
                "mean_length": round(1 + sum(shown), _DECIMALS),
            }
        ],
        vllm={
            "rejection_sample_method": "synthetic",
            "num_speculative_tokens": len(shown),
            "synthetic_acceptance_rates": shown,
        },
        llama_cpp=[
            "--spec-draft-n-max", str(len(shown)), "--spec-synth-rates", ",".join(f"{r:g}" for r in shown),
        ],
    )  # fmt: skip
