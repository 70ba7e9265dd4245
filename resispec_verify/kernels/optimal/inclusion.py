"""The probability that a token is among the first n candidates drawn without replacement.

With an exponential clock of rate q(y) on every token the order of the rings is the order of drawing, so

``P(x among the first n) = integral of q(x) exp(-q(x) t) P(fewer than n others have rung by t) dt``.

Only the likeliest tokens keep clocks of their own. The others are replaced by infinitely many of infinitely
small mass, of which a Poisson number has rung by t: splitting a token in two lets at least as many ring, so
what comes out is a lower bound, and the value itself where the support is not larger than `OWN_CLOCKS`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.optimal.candidate_limits import NODES, WEIGHTS

__all__ = ["OWN_CLOCKS", "included_without_replacement"]

OWN_CLOCKS = 64


def included_without_replacement(
    draft: NDArray[np.float64], token: int, candidates: int, *, above: bool = False
) -> NDArray[np.float64]:
    """``P(token among the first m)`` for m = 1 .. n, from below, ``(n,)``; O(V + n) and 326 nodes.

    Parameters
    ----------
    draft : float64 array (V,)
        Sums to 1.
    token : int
    candidates : int
        ``n >= 1``.
    above : bool
        From above instead: what has no clock of its own is one token, and rings once at most.
    """
    q = float(draft[token])
    size = min(OWN_CLOCKS, len(draft))
    top = np.argpartition(draft, len(draft) - size)[len(draft) - size :]
    own = draft[top[top != token]]
    tail = max(1.0 - q - float(own.sum()), 0.0) if len(draft) > size else 0.0
    fewer = np.empty((candidates, len(NODES)))  # P(j others have rung by t)
    fewer[0] = 1.0 if above else np.exp(-tail * NODES)
    fewer[1:] = 0.0
    if above:
        own = np.append(own, tail)
    else:
        for j in range(1, candidates):
            fewer[j] = fewer[j - 1] * tail * NODES / j
    for mass in own[own > 0]:
        silent = np.exp(-mass * NODES)
        for j in range(candidates - 1, 0, -1):
            fewer[j] = fewer[j] * silent + fewer[j - 1] * (1.0 - silent)
        fewer[0] *= silent
    rings = q * np.exp(-q * NODES) * WEIGHTS
    return np.clip(np.cumsum(fewer, axis=0) @ rings, 0.0, 1.0)
