"""A small decoder that logs one line a decision: right, or with a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["FAULTS", "lines", "write"]

FAULTS = (
    "q/p instead of p/q", "temperature ignored", "accepts 0.02 too often", "u of the decision before",
    "the target instead of the residual", "bonus at temperature 1",
)  # fmt: skip
GAMMA = 4


def _softmax(rows: np.ndarray) -> np.ndarray:
    e = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _draw(law: np.ndarray, v: np.ndarray) -> np.ndarray:
    steps = np.cumsum(law, axis=-1)
    return np.minimum((v[:, None] * steps[:, -1:] >= steps).sum(axis=-1), law.shape[-1] - 1)


def lines(
    seed: int, decisions: int, fault: str | None = None, *, vocab: int = 24, u: bool = True
) -> list[dict[str, Any]]:
    """That many decisions of rounds of four drafts, at temperature 0.7; p and q as float32."""
    rng = np.random.default_rng([seed, 19])
    logits = rng.normal(0, 2.0, (decisions, vocab))
    drafts = logits + rng.normal(0, 1.0, (decisions, vocab))
    last = rng.normal(0, 2.0, (decisions, vocab))
    p, q, bonus = _softmax(logits / 0.7), _softmax(drafts / 0.7), _softmax(last / 0.7)
    at = np.arange(decisions)
    x = _draw(q, rng.random(decisions))
    coin = rng.random(decisions).astype(np.float32).astype(np.float64)
    px, qx = (law[at, x].astype(np.float32).astype(np.float64) for law in (p, q))
    if fault == "u of the decision before":
        again = (at % GAMMA == 1) & (rng.random(decisions) < 0.5)
        coin[again] = coin[at[again] - 1]
    wrong = {"q/p instead of p/q": qx / px, "temperature ignored": (_softmax(logits) / q)[at, x]}
    ratio = wrong.get(fault or "", px / qx)
    accepted = coin < ratio
    if fault == "accepts 0.02 too often":
        accepted |= rng.random(decisions) < 0.02
    left = np.maximum(p - q, 0)
    left /= left.sum(axis=-1, keepdims=True)
    drawn = p if fault == "the target instead of the residual" else left
    told = _softmax(last) if fault == "bonus at temperature 1" else bonus
    v = rng.random(decisions)
    rejected_token, bonus_token = _draw(drawn, v), _draw(told, v)
    found, depth, number = [], 0, 0
    for i in range(decisions):
        line: dict[str, Any] = {"round": number, "depth": depth, "token": int(x[i]), "p": px[i], "q": qx[i]}
        line |= {"accepted": bool(accepted[i])} | ({"u": coin[i]} if u else {})
        depth += 1
        if not accepted[i] or depth == GAMMA:
            law, y = (bonus[i], bonus_token[i]) if accepted[i] else (left[i], rejected_token[i])
            # Summed from the most probable token on.
            above = law[(law > law[y]) | ((law == law[y]) & (np.arange(vocab) < y))].sum()
            target = bonus[i, y] if accepted[i] else p[i, y]
            line |= {"next_token": int(y), "next_p": law[y], "next_cdf": above, "next_target_p": target}
            depth, number = 0, number + 1
        found.append(line)
    return found


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """As JSON lines."""
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows), encoding="utf-8")
    return path
