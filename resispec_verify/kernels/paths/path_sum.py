"""What a sum over rejection paths returns: the one record of all of them, of a row or of a batch of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["PathSum"]


@dataclass(frozen=True)
class PathSum:
    """What the paths that were followed place, and what was left.

    Arrays are float64, and live where the rows that were summed do. A batch adds an axis ``B`` in front.

    Attributes
    ----------
    mass : array (V,) or (B, V)
        Placed mass by token, in token order; non-negative.
    acceptance : array (n,) or (B, n)
        Placed probability that candidate ``i + 1`` is the one emitted.
    unexpanded : array (n + 1,) or (B, n + 1)
        Probability of what was not followed further, by the number of candidates known to be rejected.
    paths : int or array (B,)
        Rejection paths evaluated; whole numbers.
    rounding : float
        Bound on the rounding of ``mass`` in total variation, and of each entry of ``acceptance``, besides
        what the engine bounds for every path sum.
    acceptance_error : float
        Certified bound on what each entry of ``acceptance`` errs by besides rounding; ``mass`` has no such
        error.
    """

    mass: Any
    acceptance: Any
    unexpanded: Any
    paths: Any
    rounding: float = 0.0
    acceptance_error: float = 0.0
