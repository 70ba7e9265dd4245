"""Block verification of logged rounds: every prefix of a block has a test of its own, and the longest wins.

Convention (Sun et al. 2024, Algorithm 2; vLLM's kernel): the uniform at index i - 1 tests the prefix of i
drafted tokens, which passes where ``u <= h_i``; all prefixes are tested, and the longest that passes is
accepted. So an accepted length says that its own test passed and that all longer ones failed, and of shorter
ones nothing.

What a log always decides. Where a text ends, at the m-th drafted token or because no more than m may be
emitted, an engine may log ``min(K, m)`` for the accepted length K, and nothing after it. Tests of single
prefixes from the longest down would then be seen in some outcomes only: the tests longer than m all failed in
rounds where K < m, and are unknown in the others, which biases them. From the shortest up there is no such
choice: for i < m, whether K > i is seen in every round with K >= i, and for i >= m in none, whatever m is, if
it was fixed before the coins fell. With ``A_i = P(K >= i) = 1 - prod_(j >= i) (1 - h_j)``,

    ``P(K >= i + 1 | K >= i) = A_(i+1) / A_i``,    ``A_i = h_i + (1 - h_i) A_(i+1)``, ``h_0 = 1``.

It rises with ``A_(i+1)``, so with all later h, and falls with ``h_i``.
"""

from __future__ import annotations

import numpy as np

from resispec_verify.logged.round_rows import UNIT, RoundRows, tv_slack

__all__ = ["goes_on", "passes", "weights"]


def weights(rows: RoundRows, path: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``w_0, ..., w_m`` along ``path (m,)``, as stored, lowest and highest: ``w_i = min(1, w p / q)``."""
    here = np.arange(rows.target.shape[-1]) == path[:, None]
    part = rows.at(slice(0, len(path)))
    laws = ((part.p, part.q), part.moved(~here), part.moved(here))
    found = []
    for pair, rounding in zip(laws, (0.0, -2 * rows.rounding, 2 * rows.rounding), strict=True):
        p, q = (np.take_along_axis(law, path[:, None], axis=-1)[:, 0] for law in pair)
        ratio = np.divide(p, q, out=np.zeros_like(p), where=q > 0) * (1 + rounding)
        weight = [1.0]
        for value in ratio:
            weight.append(min(1.0, weight[-1] * float(value)))
        found.append(np.array(weight))
    value, low, high = found
    return value, np.minimum(low, value), np.maximum(high, value)


def passes(rows: RoundRows, path: np.ndarray) -> np.ndarray:
    """Probability that each prefix passes, ``h_1, ..., h_g``; as stored, lowest and highest, ``(3, g)``.

    ``h_i = S / (S + 1 - w_i)`` rises with ``S = sum (w_i p - q)_+`` and with w. S moves by no more than the
    total variations of p and q, and w.
    """
    p, q = rows.p, rows.q
    g = len(path)
    found = np.empty((3, g))
    w = weights(rows, path)
    for i in range(1, g + 1):
        value, low, high = (float(one[i]) for one in w)
        if i == g:
            found[:, i - 1] = value, low, high
            continue
        moved = 4 * rows.rounding + sum(
            tv_slack(law, logits, slack, rows.sampling)
            for law, logits, slack in (
                (p[i], rows.target[i], rows.target_slack[i]), (q[i], rows.draft[i], rows.draft_slack[i]),
            )
        )  # fmt: skip
        room = float(np.clip(value * p[i] - q[i], 0.0, None).sum())
        least = max(0.0, float(np.clip(low * p[i] - q[i], 0.0, None).sum()) - moved)
        most = float(np.clip(high * p[i] - q[i], 0.0, None).sum()) + moved
        found[:, i - 1] = _chance(room, value), _chance(least, low), _chance(most, high)
    # The quotient itself is rounded in float32 too.
    low, high = found[1] * (1 - 4 * UNIT), np.minimum(found[2] * (1 + 4 * UNIT), 1.0)
    return np.stack([found[0], np.minimum(found[0], low), np.maximum(found[0], high)])


def goes_on(tests: np.ndarray) -> np.ndarray:
    """Probability that more than i drafts are accepted if i are, for i = 0, ..., g - 1; as stored, lowest and
    highest, ``(3, g)``; from the ``tests (3, g)`` of `passes`. 0 where nothing longer can pass.
    """
    g = tests.shape[-1]
    found = np.empty((3, g))
    after = np.zeros(3)  # A_(i + 1)
    for i in range(g - 1, -1, -1):
        after = tests[:, i] + (1 - tests[:, i]) * after
        own = tests[[0, 2, 1], i - 1] if i else np.ones(3)
        found[:, i] = np.divide(after, own + (1 - own) * after, out=np.zeros(3), where=after > 0)
    return np.minimum(found, 1.0)


def _chance(room: float, weight: float) -> float:
    """Both are 0 where p = q and w = 1: the prefix then passes whenever it is reached."""
    total = room + 1.0 - weight
    return min(1.0, room / total) if total > 0 else 1.0
