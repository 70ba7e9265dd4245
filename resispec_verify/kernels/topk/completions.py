"""The completions of a pair of listed laws that are hardest and easiest to tell apart, row by row.

With ``M(s) = sum_x (p(x) - s q(x))_+``, one completion has the least M at every s at once and one the
greatest (docs/explanation/top-k-bounds.md has the proofs). Each is kept as few atoms in ascending order
of p/q: tokens that are
filled to one ratio are one atom, and so are those whose p, or whose q, is 0.
"""

from __future__ import annotations

import numpy as np

from resispec_verify.kernels.jit import jit

__all__ = ["FAR", "WIDE", "complete", "reduce_rows"]

#: How far listed probabilities and tail may be from 1 together, and how wide the tail's interval may be.
FAR, WIDE = 1e-3, 0.1
_EPS = float(np.finfo(np.float64).eps)
_MOST_STEPS = 200  # of a search that ends on its segment in a handful
_FEW = 24  # are sorted by insertion
#: What less is taken for, but 0: M then errs by less than rounding, KL is not more, and no level overflows.
_TINY = 1e-300


@jit(inner=True)
def _slot(token, row, keys, stamps):
    """Where a token stands in the table, or the free place it would take."""
    mask = keys.shape[0] - 1
    at = (token * 2654435761) & mask
    while stamps[at] == row and keys[at] != token:
        at = (at + 1) & mask
    return at


@jit(inner=True)
def _lifted(x):
    return max(x, _TINY) if x > 0.0 else x


@jit(inner=True)
def _meet(target, draft, i, row):
    """Part the listed tokens into known, target's alone and draft's alone; False if one is listed twice."""
    first, second = target.tokens.shape[1], draft.tokens.shape[1]
    keys, stamps, places = row.keys, row.stamps, row.places
    for b in range(second):
        token = np.int64(draft.tokens[i, b])
        if token >= 0:
            at = _slot(token, i, keys, stamps)
            if stamps[at] == i:
                return False
            keys[at], stamps[at], places[at] = token, i, b
    known = alone = 0
    for a in range(first):
        token = np.int64(target.tokens[i, a])
        if token < 0:
            continue
        at = _slot(token, i, keys, stamps)
        if stamps[at] != i:
            keys[at], stamps[at], places[at] = token, i, -1
            row.p_only[alone] = _lifted(target.probabilities[i, a])
            alone += 1
        elif places[at] >= 0:
            row.known_p[known] = target.probabilities[i, a]
            row.known_q[known] = draft.probabilities[i, places[at]]
            known += 1
            places[at] = -1
        else:
            return False
    row.counts[0], row.counts[1] = known, alone
    rest = 0
    for b in range(second):
        token = np.int64(draft.tokens[i, b])
        if token >= 0 and places[_slot(token, i, keys, stamps)] >= 0:
            row.q_only[rest] = _lifted(draft.probabilities[i, b])
            rest += 1
    row.counts[2] = rest
    return True


@jit(inner=True)
def _tail(lists, i, vocab):
    """The tail's mass, what the law may be off by, and whether it is a law.

    A tail that was logged keeps its digits, where 1 less the listed is rounding. Errors of the listed that
    cancel in their sum are seen only where it is said how large they may be.
    """
    total, listed = 0.0, 0
    for j in range(lists.tokens.shape[1]):
        if lists.tokens[i, j] >= 0:
            total += lists.probabilities[i, j]
            listed += 1
    low, high = lists.tail[i, 0], lists.tail[i, 1]
    left = 1.0 - total
    mass = 0.0 if listed == vocab else min(max(left, low), high)
    known = lists.off[i]
    if known >= 0.0:  # half of all that may differ, and of what listed and tail miss 1 by
        off = 0.5 * (known + max(high - mass, mass - low, 0.0) + abs(left - mass))
    else:
        off = max(high - left, left - low, 0.0)
        off = off / max(1.0 - high, off) if off > 0.0 else 0.0
    far = FAR + max(known, 0.0)
    is_law = (
        low - far <= left <= high + far
        and high - low <= WIDE
        and known <= WIDE
        and (lists.most[i] > 0.0 or mass <= FAR)
        and (vocab < 0 or mass <= (vocab - listed) * lists.most[i] + FAR)
    )
    return mass, min(off, 1.0), is_law


@jit(inner=True)
def _water(weights, count, most, budget):
    """The least u with ``sum min(most, u w) >= budget``; inf where there is none."""
    if budget <= 0.0:
        return 0.0
    total, positive = 0.0, 0
    for j in range(count):
        if weights[j] > 0.0:
            total += weights[j]
            positive += 1
    if budget >= most * positive:
        return np.inf
    u = budget / total
    for _ in range(positive):  # concave: Newton's steps go up to the root and stay below it
        below, left = 0.0, budget
        for j in range(count):
            if weights[j] > 0.0:
                if u * weights[j] >= most:
                    left -= most
                else:
                    below += weights[j]
        new = left / below if below > 0.0 else u
        if not new > u:
            break
        u = new
    return u


@jit(inner=True)
def _common_level(row, most_p, most_q, low, high):
    """The ratio r at which ``tp - b(r) = r (tq - a(r))``, and by how much it is missed."""
    tp, tq = row.masses[0], row.masses[1]
    s = tp / tq if tp > 0.0 else low
    error = 0.0
    for step in range(_MOST_STEPS):
        intercept, slope = tp, tq
        for j in range(row.counts[2]):
            if s * row.q_only[j] >= most_p:
                intercept -= most_p
            else:
                slope += row.q_only[j]
        for j in range(row.counts[1]):
            if row.p_only[j] >= s * most_q:
                slope -= most_q
            else:
                intercept += row.p_only[j]
        value = intercept - s * slope
        error = abs(value)
        if value > 0.0:
            low = max(low, s)
        elif value < 0.0:
            high = min(high, s)
        else:
            break
        new = intercept / slope if slope > 0.0 else np.inf
        if not (low <= new <= high) or new == np.inf or step > 50:
            if high == np.inf:
                new = 2.0 * max(s, low)
            elif low == 0.0:
                new = 0.5 * high
            else:
                new = np.sqrt(low) * np.sqrt(high)
        if new == s:
            break
        s = new
    return s, error


@jit(inner=True)
def _rounding(row):
    return 4.0 * (row.counts[0] + row.counts[1] + row.counts[2] + 4) * _EPS


@jit(inner=True)
def _fill(row, most_p, most_q):
    """Atoms of the tokens that are not known of the completion with the least M; returns their number.

    Where the target's tokens and the draft's can each be filled to its own ratio, nothing is left; else all
    stand at one common ratio, and so does what is left.
    """
    tp, tq = row.masses[0], row.masses[1]
    level_q = _water(row.q_only, row.counts[2], most_p, tp)
    inverse = _water(row.p_only, row.counts[1], most_q, tq)
    level_p = np.inf if inverse == 0.0 else 1.0 / inverse
    error = 0.0
    common = level_q > level_p
    if common:
        level_p, error = _common_level(row, most_p, most_q, level_p, level_q)
        level_q = level_p
        inverse = 1.0 / level_p if level_p > 0.0 else np.inf
    used, p_sum, q_sum, a, b = 1, 0.0, 0.0, 0.0, 0.0
    for j in range(row.counts[1]):
        p = row.p_only[j]
        if p == 0.0:
            continue
        if inverse == np.inf or p * inverse >= most_q:
            row.more_p[used], row.more_q[used] = p, most_q
            used += 1
            a += most_q
        else:
            p_sum, q_sum, a = p_sum + p, q_sum + p * inverse, a + p * inverse
    row.more_p[0], row.more_q[0] = p_sum, q_sum
    p_sum = q_sum = 0.0
    for j in range(row.counts[2]):
        q = row.q_only[j]
        if q == 0.0:
            continue
        if level_q == np.inf or q * level_q >= most_p:
            row.more_p[used], row.more_q[used] = most_p, q
            used += 1
            b += most_p
        else:
            p_sum, q_sum, b = p_sum + q * level_q, q_sum + q, b + q * level_q
    row.more_p[used], row.more_q[used] = p_sum, q_sum
    left_p, left_q = max(tp - b, 0.0), max(tq - a, 0.0)
    if common:  # what is left stands at the ratio: none of one is none of the other
        if left_p == 0.0 or left_q == 0.0:
            left_p = left_q = 0.0
    else:  # a budget that was met leaves rounding
        left_p = left_p if level_q == np.inf else 0.0
        left_q = left_q if inverse == np.inf else 0.0
        # Caps that hold the tail but for rounding: what is over need not lie where the draft has nothing.
        if left_q == 0.0 and left_p <= 3.0 * _rounding(row):
            left_p, error = 0.0, left_p
    row.masses[4] = error
    row.more_p[used + 1], row.more_q[used + 1] = left_p, left_q
    return used + 2


@jit(inner=True)
def _ratio(p, q):
    return p / q if q > 0.0 else np.inf


@jit(inner=True)
def _sort(p, q, count):
    """Ascending order of p/q, in place."""
    if count > _FEW:
        keys = np.empty(count)
        for j in range(count):
            keys[j] = _ratio(p[j], q[j])
        order = np.argsort(keys)
        p[:count], q[:count] = p[:count][order], q[:count][order]
        return
    for j in range(1, count):
        a, b, key, i = p[j], q[j], _ratio(p[j], q[j]), j
        while i > 0 and _ratio(p[i - 1], q[i - 1]) > key:
            p[i], q[i] = p[i - 1], q[i - 1]
            i -= 1
        p[i], q[i] = a, b


@jit(inner=True)
def _append(law, p, q):
    """One atom more, unless it is none."""
    if p > 0.0 or q > 0.0:
        at = law.size[0]
        law.p[at], law.q[at], law.ratio[at] = p, q, _ratio(p, q)
        law.size[0] = at + 1


@jit(inner=True)
def _sums(law):
    m = law.size[0]
    law.above_p[m] = law.above_q[m] = 0.0
    for j in range(m - 1, -1, -1):
        law.above_p[j] = law.above_p[j + 1] + law.p[j]
        law.above_q[j] = law.above_q[j + 1] + law.q[j]


@jit(inner=True)
def _room(row, most_p, most_q):
    """Whether tokens of neither list can hold what the two completions put there: least, greatest."""
    rest, tp, tq = row.counts[3], row.masses[0], row.masses[1]
    if rest < 0:
        return True, True
    size = row.counts[0] + row.counts[1] + row.counts[2]
    left_p, left_q = row.masses[2], row.masses[3]
    rounding = size * _EPS
    least = left_p <= rest * most_p + rounding and left_q <= rest * most_q + rounding
    tokens = (np.ceil(tp / most_p) if tp > 0.0 else 0.0) + (np.ceil(tq / most_q) if tq > 0.0 else 0.0)
    return least, tokens <= rest


@jit(inner=True)
def complete(target, draft, i, vocab, row, least, greatest):
    """Fill the two laws of position i.

    Returns
    -------
    status : int
        0, or 1: a token twice in a list; 2: the target is no law; 3: the draft is none.
    error : float
        The first slack of M: M of ``least`` is at most ``error (1 + s)`` above the true least.
    off_p, off_q : float
        What the laws may be off by, as they were logged.
    attained : (bool, bool)
    """
    if not _meet(target, draft, i, row):
        return 1, 0.0, 0.0, 0.0, (False, False)
    tp, off_p, good_p = _tail(target, i, vocab)
    tq, off_q, good_q = _tail(draft, i, vocab)
    if not (good_p and good_q):
        return (3 if good_p else 2), 0.0, 0.0, 0.0, (False, False)
    most_p, most_q = _lifted(target.most[i]), _lifted(draft.most[i])
    tp, tq = _lifted(tp), _lifted(tq)
    row.masses[0], row.masses[1] = tp, tq
    known, alone, rest = row.counts[0], row.counts[1], row.counts[2]
    row.counts[3] = -1 if vocab < 0 else vocab - known - alone - rest
    _sort(row.known_p, row.known_q, known)
    more = _fill(row, most_p, most_q)
    row.masses[2], row.masses[3] = row.more_p[more - 1], row.more_q[more - 1]
    _sort(row.more_p, row.more_q, more)
    least.size[0] = greatest.size[0] = 0
    p_alone = q_alone = 0.0
    for j in range(alone):
        p_alone += row.p_only[j]
    for j in range(rest):
        q_alone += row.q_only[j]
    _append(greatest, 0.0, q_alone + tq)
    j = 0
    for c in range(known):
        p, q = row.known_p[c], row.known_q[c]
        ratio = _ratio(p, q)
        while j < more and _ratio(row.more_p[j], row.more_q[j]) <= ratio:
            _append(least, row.more_p[j], row.more_q[j])
            j += 1
        _append(least, p, q)
        _append(greatest, p, q)
    for at in range(j, more):
        _append(least, row.more_p[at], row.more_q[at])
    _append(greatest, p_alone + tp, 0.0)
    _sums(least)
    _sums(greatest)
    return 0, _rounding(row) + row.masses[4], off_p, off_q, _room(row, most_p, most_q)


@jit()
def reduce_rows(target, draft, vocab, row, laws, found):
    """The atoms of all rows into ``found (2, 2, N, m)``: least and greatest, p and q; returns a bad row."""
    least, greatest = laws
    for i in range(target.tokens.shape[0]):
        status, _, _, _, _ = complete(target, draft, i, vocab, row, least, greatest)
        if status:
            return i, status
        for which in range(2):
            law = least if which == 0 else greatest
            m = law.size[0]
            found[which, 0, i, :m], found[which, 1, i, :m] = law.p[:m], law.q[:m]
    return -1, 0
