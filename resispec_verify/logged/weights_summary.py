"""Weights to numbers: their mean, the effective sample size, what is lost, and a test that can fail.

Under the rule the truncated weight ``v_t = min(w_t, C)`` of a token has the known mean ``m_t = sum min(p, C
mu)`` given what came before, and lies in [0, C]. So ``prod (1 + s (v_t - m_t))`` has mean at most 1 for every
s in ``[-1 / (C - m_t), 1 / m_t]``, and averaged over several s it ever reaches 1 / alpha with probability at
most alpha (Ville). Tokens that were not drawn from mu push it up. Where mu is p every weight is 1, whatever
was drawn, and the test is blind: `blind` says so.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from resispec_verify.logged.weights import Weights
from resispec_verify.schema import plain
from resispec_verify.tables.row import label

__all__ = ["ALPHA", "effective_size", "mean_test", "summarize_weights"]

#: Level of the test of the mean.
ALPHA = 1e-6
#: Weights nearer to 1 than this are 1 for all that a mean can show.
_BLIND = 1e-9
# Shares of the largest bet that cannot lose everything.
_BETS = 2.0 ** -np.arange(1, 8)


def effective_size(log_low: np.ndarray, log_high: np.ndarray) -> tuple[float, float]:
    """Bounds on ``(sum w)^2 / sum w^2``, of weights ``(N,)`` whose logarithms lie between these."""
    if not log_low.size or np.isneginf(log_high).all():
        return 0.0, 0.0
    top = float(log_high.max())
    if math.isinf(top):
        return 1.0, float(len(log_low))
    low, high = np.exp(log_low - top), np.exp(log_high - top)
    least = float(low.sum()) ** 2 / float((high**2).sum())
    most = float(high.sum()) ** 2 / total if (total := float((low**2).sum())) > 0 else math.inf
    return max(1.0, least), min(float(len(low)), most)


def mean_test(found: Weights, alpha: float = ALPHA) -> dict[str, Any]:
    """Whether the truncated weights have the mean that they have under the rule."""
    v, m = (np.asarray(ends, np.float64).reshape(-1, 2) for ends in (found.truncated, found.kept))
    top = found.truncate
    # Intervals at the ends that speak least for a fault, in either direction.
    above = np.divide(v[:, 0] - m[:, 1], m[:, 1], out=np.zeros(len(v)), where=m[:, 1] > 0)
    room = top - m[:, 0]
    below = np.divide(m[:, 0] - v[:, 1], room, out=np.zeros(len(v)), where=room > 0)
    gains = [np.log1p(share * way).cumsum() for way in (above, below) for share in _BETS]
    evidence = np.logaddexp.reduce(np.stack(gains)) - math.log(len(gains))
    most = max(0.0, float(evidence.max())) if evidence.size else 0.0
    return {
        "alpha": alpha,
        "mean": [float(v[:, 0].mean()), float(v[:, 1].mean())],
        "expected": [float(m[:, 0].mean()), float(m[:, 1].mean())],
        "p_value": math.exp(-most),
        "verdict": "rejected" if most >= -math.log(alpha) else "not-rejected",
        "blind": max(found.tv) <= _BLIND,
    }


def summarize_weights(found: Weights, alpha: float = ALPHA) -> dict[str, Any]:
    """One object of ``"results"``."""
    low, high = np.asarray(found.log_weight, np.float64).reshape(-1, 2).T
    lost, kept = (np.asarray(ends, np.float64).reshape(-1, 2) for ends in (found.lost, found.kept))
    greatest = int(np.argmax(low))
    sequences = found.sequences()
    ends = np.asarray([log for _, _, log in sequences], np.float64).reshape(-1, 2)
    limit = math.log(found.truncate)
    with np.errstate(over="ignore"):
        least, most = np.exp(low), np.exp(high)
    impossible = [i for i, flag in enumerate(found.impossible) if flag]
    return plain({
        "rule": found.rule.name,
        "label": label(found.rule),
        "path": found.path,
        "candidates": found.candidates,
        "temperature": found.temperatures[0] if len(found.temperatures) == 1 else None,
        "tokens": len(found.token),
        "texts": len(sequences),
        "mean_weight": [float(least.mean()), float(most.mean())],
        "expected_mean_weight": [float(1 - lost[:, 1].mean()), float(1 - lost[:, 0].mean())],
        "effective_size": list(effective_size(low, high)),
        "effective_size_of_texts": list(effective_size(*ends.T)) if len(ends) else None,
        "farthest_from_1": float(max(np.abs(least - 1).max(), np.abs(most - 1).max())),
        "greatest_weight": [float(least[greatest]), float(most[greatest])],
        "greatest_at": _place(found, greatest),
        "truncate": found.truncate,
        "truncated_share": [float((low > limit).mean()), float((high > limit).mean())],
        "lost_mass": {"mean": lost.mean(axis=0).tolist(), "max": lost.max(axis=0).tolist()},
        "truncated_mass": {
            "mean": (1 - kept[:, ::-1]).mean(axis=0).tolist(),
            "max": (1 - kept[:, ::-1]).max(axis=0).tolist(),
        },
        "impossible": len(impossible),
        "first_impossible": _place(found, impossible[0]) if impossible else None,
        "mean_test": mean_test(found, alpha),
        "gap_max": max(found.gap),
        "rounding_max": max(found.rounding),
        "by_position": _by_position(found, low, high),
        "sequences": [
            {"text": text, "tokens": count, "log_weight": list(log)} for text, count, log in sequences
        ],
        "notes": found.notes,
    })  # fmt: skip


def _place(found: Weights, i: int) -> dict[str, Any]:
    names = ("text", "request", "position", "round", "depth", "token")
    return {name: getattr(found, name)[i] for name in names}


def _by_position(found: Weights, low: np.ndarray, high: np.ndarray) -> list[dict[str, Any]]:
    """Effective sizes of the weights at one position of several texts."""
    places: dict[int, list[int]] = {}
    for i, (text, position) in enumerate(zip(found.text, found.position, strict=True)):
        if text is not None:
            places.setdefault(position, []).append(i)
    return [
        {"position": position, "tokens": len(rows),
         "effective_size": list(effective_size(low[rows], high[rows]))}
        for position, rows in sorted(places.items())
        if len(rows) > 1
    ]  # fmt: skip
