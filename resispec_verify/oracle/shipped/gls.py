"""Rowan, Phan, Khisti (2025), Gumbel-max List Sampling: Algorithm 2, by races of exponential clocks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from ..laws import Law
from ..registry import Blocks, Chain, Path, Tree, transcribes_trees

__all__ = ["gls"]

#: A function of time, a sum of multiples of exp(-rate t): by rate.
Decays = dict[Fraction, Fraction]


@transcribes_trees("gls", "iid")
def gls(target: Chain, draft: Chain, tree: Tree) -> Blocks:
    """Active paths are those that have drawn what was emitted; the next token wins the race over all of them.

    Given the drafted tokens: path k's token x won the race of ``S_i / q_i``, and what is emitted wins that of
    ``min over k of S_i / p_i`` over the same clocks S, fresh at every token.
    """
    if any(below and len(below) != 1 for below in _below(tree)):
        raise ValueError("gls verifies paths of one length that part at the root")
    blocks: Blocks = {}

    def walk(prefix: Path, active: Sequence[Tree], chance: Fraction) -> None:
        drawn = tuple(branch[0][0] for branch in active)
        for y, mass in enumerate(_emitted(tuple(target(prefix)), tuple(draft(prefix)), tuple(sorted(drawn)))):
            going = [branch[0][1] for branch in active if branch[0][0] == y]
            if mass == 0:
                continue
            if not going:
                blocks[(*prefix, y)] = blocks.get((*prefix, y), Fraction(0)) + chance * mass
            elif going[0]:
                walk((*prefix, y), going, chance * mass)
            else:
                for z, last in enumerate(target((*prefix, y))):
                    key = (*prefix, y, z)
                    blocks[key] = blocks.get(key, Fraction(0)) + chance * mass * last

    walk((), [(branch,) for branch in tree], Fraction(1))
    return {block: mass for block, mass in blocks.items() if mass}


def _below(tree: Tree) -> list[Tree]:
    """What is below each node, but for the root."""
    return [below for _, subtree in tree for below in (subtree, *_below(subtree))]


@lru_cache(maxsize=1 << 16)
def _emitted(p: Law, q: Law, drawn: Path) -> Law:
    """The law of the token emitted, given what each of the active paths has drawn."""
    joint = []
    for y, mass in enumerate(p):
        total = Fraction(0)
        for winner in range(len(drawn)):  # the path whose clock was the first of all, at rate 1 each
            decays: Decays = {Fraction(0): Fraction(1)}
            for k, x in enumerate(drawn):
                decays = _product(decays, _draws(p, q, x, y if k == winner else None))
            total += sum(c / (rate + len(drawn)) for rate, c in decays.items())
        joint.append(mass * total)
    given = sum(joint, Fraction(0))
    return tuple(mass / given for mass in joint)


def _draws(p: Law, q: Law, x: int, y: int | None) -> Decays:
    """Probability that a path draws x, given that its clocks ``S_i`` exceed ``p_i t``, and S_y equals it.

    By the time u = v t at which x wins, S_x = q_x u: of the others none may come before, ``S_i > q_i u``,
    which is more than is known from ``v > p_i / q_i`` on.
    """
    ratio = {i: p[i] / q[i] for i in range(len(p)) if q[i]}
    start, end = ratio[x], ratio.get(y) if y is not None else None
    if x == y:  # it comes at its own time: nothing before
        late = sum((q[i] * start - p[i] for i in ratio if q[i] * start > p[i]), Fraction(0))
        return {late: Fraction(1)}
    stops = sorted({start, *(r for r in ratio.values() if r > start)})
    found: Decays = {}
    for low, high in zip(stops, [*stops[1:], None], strict=True):
        if end is not None and low >= end:
            break
        inside = [i for i, r in ratio.items() if r <= low]  # x among them
        speed = sum((q[i] for i in inside), Fraction(0))
        known = sum((p[i] for i in inside), Fraction(0))
        found[speed * low - known] = found.get(speed * low - known, Fraction(0)) + q[x] / speed
        if high is not None:
            found[speed * high - known] = found.get(speed * high - known, Fraction(0)) - q[x] / speed
    return found


def _product(a: Decays, b: Decays) -> Decays:
    found: Decays = {}
    for rate, c in a.items():
        for other, d in b.items():
            found[rate + other] = found.get(rate + other, Fraction(0)) + c * d
    return found
