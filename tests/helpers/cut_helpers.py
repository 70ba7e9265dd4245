"""Dumps of whole rows, and the same cut to their most probable tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from resispec_verify import topk
from resispec_verify.dumps.importers.saving import save_top_pairs


def logits(rows: int, vocab: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Target and draft, float64, not far from each other."""
    rng = np.random.default_rng(seed)
    target = 2.0 * rng.standard_normal((rows, vocab))
    return target, target + rng.standard_normal((rows, vocab))


def save_whole(path: Path, target: np.ndarray, draft: np.ndarray) -> Path:
    """A flat dump."""
    np.savez(path, target_logits=target, draft_logits=draft)
    return path


def save_top(path: Path, target: np.ndarray, draft: np.ndarray, k: int, **others: Any) -> Path:
    """The same, cut to k tokens of each row."""
    mapping: dict[str, Any] = {"vocab": target.shape[-1]}
    for role, rows in (("target", target), ("draft", draft)):
        cut = topk.cut_logits(rows, k)
        mapping[f"{role}_top_ids"] = cut.tokens
        with np.errstate(divide="ignore"):
            mapping[f"{role}_top_logprobs"] = np.log(cut.probabilities)
        mapping[f"{role}_ranked"] = k
    mapping |= others
    save_top_pairs(path, {name: value for name, value in mapping.items() if value is not None})
    return path
