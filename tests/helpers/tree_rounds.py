"""Rounds over trees as engines would log them: a right verifier, and faults that can be planted in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

PARENT = (-1, 0, 0, 1, 1, 2, 3)
VOCAB = 12


def law(row):
    e = np.exp(row.astype(np.float64) - row.max())
    return e / e.sum()


def drawn(weights, v):
    return int(np.searchsorted(np.cumsum(weights) / weights.sum(), v, side="right"))


def rounds(
    count: int = 30,
    *,
    rule: str = "eagle",
    seed: int = 0,
    fault: str = "",
    threshold: float = 1.0,
    dtype: Any = torch.float32,
    coins: Callable[[int], tuple[np.ndarray, float]] | None = None,
) -> list[dict]:
    """``rule``: eagle, sglang or specinfer; ``fault``: what the verifier does wrong; ``coins`` by round."""
    rng = np.random.default_rng(seed)
    return [_round(rng, rule, fault, threshold, dtype, coins and coins(i)) for i in range(count)]


def _round(rng, rule, fault, threshold, dtype, coins):
    m, parent = len(PARENT), PARENT
    stored = torch.tensor(rng.normal(size=(m, VOCAB)) * 2).to(dtype)
    drafts = torch.tensor(rng.normal(size=(m, VOCAB))).to(dtype) + stored / 2
    p, q = (np.stack([law(row.double().numpy()) for row in rows]) for rows in (stored, drafts))
    children = [[n for n in range(m) if parent[n] == node] for node in range(m)]
    tokens = np.full(m, -1)
    for node, below in enumerate(children):
        if not below:
            continue
        best = np.argsort(-q[node], kind="stable")
        tokens[below] = (
            rng.choice(VOCAB, len(below), p=q[node]) if rule == "specinfer" else best[: len(below)]
        )
    u, v = coins or (rng.random(m), float(rng.random()))
    path, node = [], 0
    while True:
        row = p[parent[node]] if fault == "parent's row" and node else p[node]
        residual, tried, taken = row.copy(), 0.0, None
        order = children[node][::-1] if fault == "siblings swapped" else children[node]
        for child in order:
            x = tokens[child]
            if rule == "sglang":
                tried += row[x]
                a = tried / (1.0 if fault == "threshold ignored" else threshold)
                coin = u[node]
            else:
                a = residual[x] if rule == "eagle" else residual[x] / q[node, x]
                coin = u[child]
            if coin < a:
                taken = child
                break
            if rule == "specinfer":
                residual = np.clip(residual - q[node], 0, None)
            else:
                residual[x] = 0
            residual = residual if rule == "sglang" else residual / residual.sum()
        if taken is None:
            break
        path.append(taken)
        node = taken
    if fault == "next from the parent" and path:
        residual = p[parent[node]]
    if fault == "next from the target":
        residual = p[node]
    entry = {
        "tokens": torch.tensor(tokens), "parent": torch.tensor(parent), "target_logits": stored,
        "accepted_path": torch.tensor(path, dtype=torch.int64), "next_token": drawn(residual, v),
        "u": torch.tensor(u), "u_next": v,
    }  # fmt: skip
    return entry | ({"draft_logits": drafts} if rule == "specinfer" else {})


def links(parent):
    """SGLang's links of a tree whose siblings are in ascending order."""
    m = len(parent)
    child, sibling = np.full(m, -1), np.full(m, -1)
    for node in range(m):
        below = [n for n in range(m) if parent[n] == node]
        if below:
            child[node] = below[0]
            sibling[below[:-1]] = below[1:]
    return child, sibling


def paths(parent):
    """EAGLE's paths from the root to each leaf."""
    leaves = [n for n in range(len(parent)) if n not in parent]
    found = []
    for leaf in leaves:
        row = [leaf]
        while row[0]:
            row.insert(0, parent[row[0]])
        found.append(row)
    found.sort()
    width = max(map(len, found))
    return np.array([row + [-1] * (width - len(row)) for row in found])
