"""What an accepted length of SpecInfer's says about that of an exact rule on the same prefixes.

The step from one node to another law of acceptance is `resispec_verify.tables.specinfer_bound`: no exact
rule accepts more than r_n times as often as SpecInfer with n i.i.d. candidates.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq, linprog

from resispec_verify.tables.specinfer_bound import largest_ratio


def per_level(length: float, levels: int) -> float:
    """The a with ``1 + a + ... + a^(levels - 1)`` equal to an accepted length: the same at every level."""
    return float(brentq(lambda a: sum(a**k for k in range(levels)) - length, 0.0, 1.0))


def longest(length: float, levels: int, n: int) -> float:
    """The longest accepted length of an exact rule where SpecInfer's, on the same prefixes, is ``length``.

    For rules that decide at each node by its n i.i.d. candidates. Let s_l and x_l be the probabilities that
    SpecInfer and the other accept a token of level l. A text is accepted to level l with at most the
    target's probability of it. So ``x_1 <= r s_1`` and ``x_{l+1} <= r s_{l+1} + (1 - s_l)``: at texts that
    SpecInfer also accepts, with the probability that it does, r_n bounds the next level, at the others 1
    does. The largest ``1 + sum x`` under these, ``x_{l+1} <= x_l`` and ``1 + sum s = length`` is a
    linear program.
    """
    r, m = largest_ratio(n), levels - 1
    rows, right = [], []
    eye = np.eye(m)
    for level in range(m):
        bound = np.concatenate([-r * eye[level], eye[level]])  # (s, x)
        if level:
            bound[level - 1] += 1.0
            rows += [np.concatenate([eye[level] - eye[level - 1], np.zeros(m)])]
            rows += [np.concatenate([np.zeros(m), eye[level] - eye[level - 1]])]
            right += [0.0, 0.0]
        rows.append(bound)
        right.append(1.0 if level else 0.0)
    found = linprog(
        np.concatenate([np.zeros(m), -np.ones(m)]), np.asarray(rows), right,
        np.concatenate([np.ones(m), np.zeros(m)])[None], [length - 1.0], (0.0, 1.0), method="highs",
    )  # fmt: skip
    return 1.0 - float(found.fun)
