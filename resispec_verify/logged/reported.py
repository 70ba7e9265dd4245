"""Log-probabilities that an engine reported, held against what each token's own probability says.

Engines report the log-probability of what they emit, and after verification it is easily another row's, or
none. Three conventions are right: of the raw target (temperature 1), after temperature, after temperature
and filters. A class of tokens (accepted drafts, corrections after a rejection, bonus tokens, tokens of
rounds without drafts) follows a convention if *every* token of it does, to rounding. Where none is followed,
known faults are looked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["CLASSES", "RIGHT", "Reported"]

#: Classes of tokens.
CLASSES = ("accepted", "corrected", "bonus", "speculative", "ordinary")
#: Conventions, in the order in which they are named.
RIGHT = ("the raw target", "the target after temperature", "the target after temperature and filters")
ZERO = "0 for every token"


@dataclass
class _Candidate:
    count: int = 0
    misfits: int = 0
    largest: float = 0.0


@dataclass
class _Class:
    count: int = 0
    zeros: int = 0
    laws: dict[str, _Candidate] = field(default_factory=dict)
    first: dict[str, tuple[Any, float, float]] = field(default_factory=dict)


class Reported:
    """Collects tokens by class."""

    def __init__(self) -> None:
        self._classes: dict[str, _Class] = {}

    def add(
        self,
        kind: str,
        where: np.ndarray,
        reported: np.ndarray,
        laws: Mapping[str, tuple[np.ndarray, np.ndarray]],
    ) -> None:
        """Add tokens of one class.

        Parameters
        ----------
        kind : str
            One of `CLASSES`.
        where : int64 array (n,)
            What to name each by.
        reported : float64 array (n,)
            Log-probabilities.
        laws : mapping of name to two float64 arrays (n,)
            The log-probability that each law gives, and how far rounding may have moved it or what was
            reported. NaN where a law is not known there.
        """
        if not len(reported):
            return
        found = self._classes.setdefault(kind, _Class())
        found.count += len(reported)
        found.zeros += int((reported == 0).sum())
        for name, (value, slack) in laws.items():
            known = ~np.isnan(value)
            if not known.any():
                continue
            law = found.laws.setdefault(name, _Candidate())
            with np.errstate(invalid="ignore"):
                off = np.where(value == reported, 0.0, np.abs(value - reported))
            wrong = known & ~(off <= slack)
            law.count += int(known.sum())
            law.misfits += int(wrong.sum())
            law.largest = max(law.largest, float(off[known].max()))
            if wrong.any() and name not in found.first:
                i = int(np.argmax(wrong))
                found.first[name] = (where[i].item(), float(reported[i]), float(value[i]))

    def summary(self) -> dict[str, Any] | None:
        """What fits each class, and a verdict: `agree`, or `differs` where a class follows no convention.

        None where nothing was reported. A law that is not known for every token of a class cannot fit it.
        """
        if not self._classes:
            return None
        classes = [_summary(kind, self._classes[kind]) for kind in CLASSES if kind in self._classes]
        judged = [one for one in classes if one["verdict"] != "unknown"]
        shared = set(RIGHT).intersection(*(one["fits"] for one in judged)) if judged else set()
        wrong = any(one["verdict"] == "wrong" for one in judged)
        mixed = bool(judged) and not wrong and not shared
        verdict = "differs" if wrong or mixed else "agree" if judged else "unknown"
        return {
            "verdict": verdict,
            "convention": next((name for name in RIGHT if name in shared), None),
            "mixed_conventions": mixed,
            "classes": classes,
        }


def _summary(kind: str, found: _Class) -> dict[str, Any]:
    fits = [name for name, law in found.laws.items() if law.count == found.count and not law.misfits]
    right = [name for name in RIGHT if name in fits]
    known = [name for name in RIGHT if name in found.laws]
    looks = [] if right else [name for name in fits if name not in RIGHT]
    zeros = found.zeros == found.count
    if zeros and not right:
        looks = [ZERO, *looks]
    nearest = min(known, key=lambda name: found.laws[name].misfits) if known else None
    first = None if right or nearest is None else found.first.get(nearest)
    return {
        "class": kind,
        "tokens": found.count,
        "verdict": "right" if right else "wrong" if known or looks else "unknown",
        "fits": right,
        "looks_like": looks,
        "nearest": None if right else nearest,
        "misfits": 0 if right or nearest is None else found.laws[nearest].misfits,
        "largest_difference": None if nearest is None or right else found.laws[nearest].largest,
        "first": None if first is None else dict(zip(("at", "reported", "expected"), first, strict=True)),
        "zeros": found.zeros,
    }
