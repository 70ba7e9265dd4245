"""Of a rejected law of several positions: the first position that is off, and after which tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from resispec_verify.sampler_check.frequencies import beyond_noise

__all__ = ["first_off"]

# Tokens up to which the laws of the position are told.
_NARROW = 32


def first_off(source: Any, counts: np.ndarray, error: float) -> dict[str, Any] | None:
    """The shortest beginning of a sequence that comes too often or too seldom, and the laws after its prefix.

    Parameters
    ----------
    source : source of draws with ``sequences``
    counts : int array (V ** n,)
        How often each sequence came.
    error : float
        Probability that any beginning is named by chance.

    Returns
    -------
    dict or None
        ``position`` from 1 and ``positions``; ``prefix`` and ``token``; how often the two together came,
        ``seen``, and are due, ``target``; after the prefix ``target_law``, ``seen_law``, and ``draft_law``,
        where the path has such a position. None where nothing is beyond noise by itself.
    """
    sequences, draws = source.sequences, int(counts.sum())
    v, n = sequences.vocab, sequences.length
    for i in range(n):
        law, came = (values.reshape(v ** (i + 1), -1).sum(axis=1) for values in (sequences.law, counts))
        seen = came / max(1, draws)
        beyond = beyond_noise(seen, law, draws, error / (n * len(law)))
        if not beyond.any():
            continue
        worst = int(np.argmax(np.where(beyond, np.abs(seen - law), -1.0)))
        prefix = [worst // v ** (i - k) % v for k in range(i)]
        last = prefix[-1] if prefix else 0
        found = {
            "position": i + 1, "positions": n, "prefix": prefix, "token": worst % v,
            "target": float(law[worst]), "seen": float(seen[worst]),
        }  # fmt: skip
        if v <= _NARROW:
            after = came.reshape(-1, v)[worst // v]
            drafts = source.drafts if source.kind == "block" else []
            found |= {
                "target_law": (sequences.after[i - 1][last] if i else sequences.first).tolist(),
                "seen_law": (after / after.sum()).tolist() if after.any() else None,
                "draft_law": drafts[i][last].tolist() if i < len(drafts) else None,
            }
        return found
    return None
