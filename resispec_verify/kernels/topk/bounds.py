"""What rules do on the two extreme completions of pairs of listed laws, rounded outwards, row by row.

Every functional here is one of ``M(s) = sum (p - s q)_+``. A computed M errs by at most ``error (1 + s)``
plus what the laws as logged may be off by; docs/explanation/top-k-bounds.md says how that passes into
each result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from resispec_verify.kernels.jit import jit
from resispec_verify.kernels.topk.completions import complete
from resispec_verify.kernels.topk.laws import excess_at

__all__ = [
    "ANY", "FIRST", "JOINT", "K_SEQ", "SEQUENTIAL", "STANDARD", "Found", "bound_rows", "empty_found",
    "part_of",
]  # fmt: skip

#: How a rule accepts: unknown, known of the first candidate alone, or as one of the exact rules does.
ANY, FIRST, STANDARD, SEQUENTIAL, JOINT, K_SEQ = range(6)
_EPS = float(np.finfo(np.float64).eps)
_HALVINGS = 60  # of [1, n] to neighbouring floats


class Found(NamedTuple):
    """Results of N positions, low and high in the last axis.

    Attributes
    ----------
    tv, limit, acceptance, kl : float64 (N, 2)
        Total variation of target and draft, the limit of exact rules, acceptance, KL(target || draft).
    biased : float64 (N,)
        What the emitted law of ResiSpec is at least away from the target.
    attained : bool (N, 2)
        Whether the least and the greatest completion have room.
    rounding : float64 (N,)
        What the ends of the acceptance were moved by, at most.
    """

    tv: NDArray[np.float64]
    limit: NDArray[np.float64]
    acceptance: NDArray[np.float64]
    kl: NDArray[np.float64]
    biased: NDArray[np.float64]
    attained: NDArray[np.bool_]
    rounding: NDArray[np.float64]


def empty_found(rows: int) -> Found:
    """Room for the results."""
    tv, limit, acceptance, kl = np.empty((4, rows, 2))
    return Found(tv, limit, acceptance, kl, np.zeros(rows), np.empty((rows, 2), np.bool_), np.empty(rows))


def part_of(found: Found, rows: slice) -> Found:
    """Views of some of the rows."""
    return Found(
        found.tv[rows],
        found.limit[rows],
        found.acceptance[rows],
        found.kl[rows],
        found.biased[rows],
        found.attained[rows],
        found.rounding[rows],
    )


@jit(inner=True)
def _limit(law, n):
    """``min_H 1 + p(H) - q(H)^n``: H is empty, all, or a prefix of the atoms."""
    least, m = 0.0, law.size[0]
    for j in range(m):
        p, q = law.above_p[0] - law.above_p[j], law.above_q[0] - law.above_q[j]
        least = min(least, p - max(q, 0.0) ** n)
    return 1.0 + least


@jit(inner=True)
def _end(law, t, n):
    """Where the recursion of the optimal sequential rule's levels ends from ``T_1 = t``; z."""
    z = min(excess_at(law, t), 1.0)
    level = t - 1.0
    for _ in range(1, n):
        phi = 1.0 - excess_at(law, level) if level > 0.0 else level
        level -= z + phi
    return level, z


@jit(inner=True)
def _sequential(law, n):
    """The least and the greatest probability with which the optimal sequential rule rejects all."""
    low, high = 1.0, float(n)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _end(law, middle, n)[0] > 0.0:
            high = middle
        else:
            low = middle
    return excess_at(law, high), excess_at(law, low)


@jit(inner=True)
def _k_seq(law, n):
    """The same of K-SEQ: rho in [1, n] with ``1 - (1 - b)^n = rho b``, ``rho b = 1 - M(rho)``."""
    low, high = 1.0, float(n)
    for _ in range(_HALVINGS):
        rho = 0.5 * (low + high)
        phi = 1.0 - excess_at(law, rho)
        if phi - 1.0 + max(1.0 - phi / rho, 0.0) ** n > 0.0:
            high = rho
        else:
            low = rho
    return excess_at(law, high), excess_at(law, low)


@jit(inner=True)
def _standard(least, greatest, n, slack):
    """A lower bound on the probability with which SpecInfer rejects all, ``M(s_n)``, and the greatest; s_n.

    ``s + M(s)`` does not fall, so the levels ``s_{i+1} = s_i + M(s_i)`` are at most those of the greatest M.
    Of all completions that one is rejected most often (docs/explanation/top-k-bounds.md).
    """
    level = high = 1.0
    for _ in range(1, n):
        level += excess_at(greatest, level)
        high += min(excess_at(greatest, high) + slack[0] + high * slack[1], 1.0)
    return excess_at(least, high), excess_at(greatest, level), high


@jit(inner=True)
def _kl_between(law, low, high):
    """The integral of ``(M(s) - (1 - s)_+) / s`` from low to high: an f-divergence, linear outside."""
    total = 0.0
    for j in range(law.size[0]):
        p, q, ratio = law.p[j], law.q[j], law.ratio[j]
        at = min(max(ratio, low), high)
        total += q * (1.0 - at) + p * np.log(at)
    return total


@jit(inner=True)
def _kl(law, error, off_p, off_q):
    """Of the least completion, rounded down: terms ``x log(x/y) - x + y`` by their sizes.

    Where the laws may be off by more, M is less by ``off_p + s off_q`` at most, and the part of KL between
    two levels by the integral of that over s.
    """
    if off_p + off_q > error:
        off_p, off_q, best = off_p + error, off_q + error, 0.0
        for power in (0.25, 0.5, 0.75):
            low, high = max(off_p, off_q), max(off_p, off_q) ** -power
            part = _kl_between(law, low, high) - off_p * np.log(high / low) - off_q * (high - low)
            best = max(best, part - error * (1.0 + np.log(high / low)))
        return best
    total, size, steepest = 0.0, 0.0, 0.0
    for j in range(law.size[0]):
        p, q = law.p[j], law.q[j]
        if p == 0.0:
            total += q
            continue
        if q == 0.0:
            return np.inf
        part = np.log(p) - np.log(q)
        total += p * part - p + q
        size += p * abs(part) + p + q
        steepest = max(steepest, abs(part))
    return max(total - (error * (1.0 + size) + off_p + off_q) * (1.0 + steepest), 0.0)


@jit(inner=True)
def _emitted_after(gaps, below, p, q):
    """``sum min(g q, p)`` over the gaps g, which ascend and of which ``below`` has the sums."""
    few = np.searchsorted(gaps, p / q if q > 0.0 else np.inf)
    return q * below[few] + (len(gaps) - few) * p


@jit(inner=True)
def _biased(row, most_p, local, off_p):
    """A lower bound on the total variation of ResiSpec's emitted law from the target, for every n >= 1.

    After x is rejected, y is emitted with at least min(q(y), p(y)/Z): by tokens that are known, more than
    they lack. Where p may be off by ``off_p``, what that takes off is most where all of it is on one y, for
    the sum over x is concave in p(y). What else errs is a few times what the laws are off by.
    """
    known, rest = row.counts[0], row.counts[2]
    gaps = np.empty(known + rest)
    count, total = 0, 0.0
    for j in range(known):
        if row.known_q[j] > row.known_p[j]:
            gaps[count] = row.known_q[j] - row.known_p[j]
            count += 1
    for j in range(rest):
        if row.q_only[j] > most_p:
            gaps[count] = row.q_only[j] - most_p
            count += 1
    gaps = np.sort(gaps[:count])
    below = np.zeros(count + 1)
    for j in range(count):
        below[j + 1] = below[j] + gaps[j]
    lost = 0.0
    for j in range(known):
        p, q = row.known_p[j], row.known_q[j]
        own = max(q - p, 0.0)
        if local:
            every = _emitted_after(gaps, below, p, q)
            lost = max(lost, every - _emitted_after(gaps, below, max(p - off_p, 0.0), q))
            gain = every - min(own * q, p if own > 0.0 else 0.0)
        else:
            gain = min(q, p) * (below[count] - own)
        total += max(gain - max(p - q, 0.0), 0.0)
    return total - lost


@jit(inner=True)
def _accept(least, greatest, kind, n, slack):
    """The interval of the acceptance before it is rounded outwards, and the last level it depends on."""
    if kind == ANY:
        return 0.0, 1.0, 0.0
    if kind == FIRST:
        return 1.0 - excess_at(greatest, 1.0), (1.0 - excess_at(least, 1.0) if n == 1 else 1.0), 1.0
    if kind == JOINT:
        return _limit(greatest, n), _limit(least, n), float(n)
    if kind == STANDARD:
        low, high, level = _standard(least, greatest, n, slack)
        return 1.0 - high, 1.0 - low, level
    if kind == SEQUENTIAL:
        return 1.0 - _sequential(greatest, n)[1], 1.0 - _sequential(least, n)[0], float(n)
    return 1.0 - _k_seq(greatest, n)[1], 1.0 - _k_seq(least, n)[0], float(n)


@jit()
def bound_rows(target, draft, vocab, settings, row, laws, found):
    """Fill ``found``; ``settings`` is (kind of acceptance, n, which bound of `_biased`: 0 none, 1 local, 2).

    Returns
    -------
    (int, int)
        A row that cannot be used, or -1, and what is wrong with it (`complete`).
    """
    least, greatest = laws
    kind, n, bias = settings
    for i in range(target.tokens.shape[0]):
        status, error, off_p, off_q, attained = complete(target, draft, i, vocab, row, least, greatest)
        if status:
            return i, status
        slack = (error + off_p, error + off_q)
        once = slack[0] + slack[1]
        tv = found.tv[i]
        tv[0] = max(excess_at(least, 1.0) - once, 0.0)
        tv[1] = min(excess_at(greatest, 1.0) + once, 1.0)
        times = slack[0] + n * slack[1]
        found.limit[i, 0] = max(_limit(greatest, n) - times, 0.0)
        found.limit[i, 1] = min(_limit(least, n) + times, 1.0)
        low, high, level = _accept(least, greatest, kind, n, slack)
        moved = (2 * n + 1) * (slack[0] + level * slack[1])
        most = found.limit[i, 1] if kind > FIRST else 1.0
        found.acceptance[i, 0] = max(low - moved, 0.0)
        found.acceptance[i, 1] = min(high + moved, most)
        found.rounding[i] = moved
        found.kl[i, 0] = max(_kl(least, error, off_p, off_q), 2.0 * tv[0] * tv[0])
        alone = row.masses[0] > 0.0
        for j in range(row.counts[1]):
            alone = alone or row.p_only[j] > 0.0
        at_most = np.inf if alone else _kl_above(greatest, error, off_p + off_q)
        found.kl[i, 1] = at_most
        found.attained[i, 0], found.attained[i, 1] = attained
        if bias:
            away = _biased(row, target.most[i], bias == 1, slack[0])
            found.biased[i] = max(away - 4.0 * once, 0.0)
    return -1, 0


@jit(inner=True)
def _kl_above(law, error, off):
    """KL of the greatest completion, rounded up; inf where a law is off by more than rounding."""
    total, size, steepest = 0.0, 0.0, 0.0
    for j in range(law.size[0]):
        p, q = law.p[j], law.q[j]
        if p == 0.0:
            total += q
            continue
        if q == 0.0 or off > error:
            return np.inf
        part = np.log(p) - np.log(q)
        total += p * part - p + q
        size += p * abs(part) + p + q
        steepest = max(steepest, abs(part))
    return total + (error * (1.0 + size) + off) * (1.0 + steepest)
