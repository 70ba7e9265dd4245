"""Frequencies: whether one is farther from its probability than noise, and how one is written."""

from __future__ import annotations

import math

import numpy as np

from resispec_verify.evidence.eprocess import regret

__all__ = ["beyond_noise", "written"]


def beyond_noise(seen: np.ndarray, law: np.ndarray, draws: int, error: float) -> np.ndarray:
    """Whether frequencies are farther from these probabilities than independent draws of them ever are.

    Each by itself, at any number of draws with probability ``error`` at most: the mixture over the two cells,
    this token or another, is a likelihood ratio.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(seen > 0, seen * np.log(seen / law), 0.0)
        second = np.where(seen < 1, (1.0 - seen) * np.log((1.0 - seen) / (1.0 - law)), 0.0)
    return draws * (first + second) > regret(draws, 2) - math.log(error)


def written(value: float) -> str:
    """Four decimals, or two digits where these would show 0 or 1 for what is neither."""
    if 0.0 < value < 1e-4:
        return f"{value:.2g}"
    if 1.0 - 1e-4 < value < 1.0:
        return f"1 - {1.0 - value:.2g}"
    return f"{value:.4f}"
