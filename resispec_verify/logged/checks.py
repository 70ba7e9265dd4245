"""One thing that `replay` recomputed, and how a logged decision stands to what it should have been."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

__all__ = ["Check", "Decided", "status_of"]

Decided = tuple[bool, float | None, float | None, Literal["agree", "near-tie", "divergence"]]
"""Whether a decision was recomputed as accepted, its margin and allowance, and its status."""


@dataclass(frozen=True)
class Check:
    """One thing that was recomputed: an acceptance, or the token emitted after a rejection or at the end.

    Under block verification an acceptance is the test of one prefix, and ``ratio`` the probability that it
    passes. ``status`` is ``near-tie`` where ``margin``, the distance of the coin from the recomputed
    probability, is within the ``allowance`` that rounding has in that direction. ``node`` is the node of a
    tree that was tested, or after which the token was drawn: then ``index`` is the depth at which it was
    decided, and ``ratio`` what the coin was compared with.
    """

    path: str
    round: int
    index: int
    kind: Literal["acceptance", "residual", "bonus"]
    token: int
    p: float
    q: float | None
    ratio: float | None
    u: float | None
    logged: str
    recomputed: str
    margin: float | None
    allowance: float | None
    status: Literal["agree", "near-tie", "divergence"]
    node: int | None = None


def status_of(logged: bool, values: np.ndarray, u: float | None, slack: float) -> Decided | None:
    """What a decision of probability ``values`` (as stored, lowest, highest) should have been.

    Parameters
    ----------
    u, slack : float
        The coin, and how far storing may have moved it.

    Returns
    -------
    tuple or None
        (recomputed, margin, allowance, status). Without a coin only what is impossible is told, else None.
    """
    a, low, high = values.tolist()
    if u is None:
        return (False, None, None, "divergence") if logged and high == 0 else None
    recomputed, margin, allowance = u < a, abs(u - a), (high - a if u >= a else a - low)
    near = u - slack < high if u >= a else u + slack >= low
    status = "near-tie" if near else "agree" if recomputed == logged else "divergence"
    return recomputed, margin, allowance + slack, status
