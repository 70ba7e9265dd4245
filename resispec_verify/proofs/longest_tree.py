"""The longest step of any lossless rule over a drawn tree: which masses it can accept, and when all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import (
    TREE_RULES,
    block_law,
    complete,
    fork,
    longest_by_node,
    longest_step,
    memoryless,
    rotating,
    sequence_law,
    sum_bound,
    tree_law,
)
from resispec_verify.oracle.exact_programs import Program, optimum
from resispec_verify.oracle.tree_programs import inclusions, path_sets

from ._laws import pairs
from ._report import ProofReport

__all__ = ["antichains", "attains", "by_antichains", "prove"]

STATEMENT = (
    "A tree is drawn with any law, P is the target's chain, and A(s) the probability that what is "
    "accepted begins with s. A belongs to a lossless rule iff A() = 1, 0 <= A(sx) <= P(x | s) A(s), and "
    "sum over H of A <= Pr(the tree meets H) for every set H of texts none of which begins another. The "
    "longest step is the greatest sum of A: a linear program. On one path A(sx) = min(Q(sx), P(x | s) "
    "A(s)) is greatest at every text, and block has it: it is the longest rule on one path, whatever "
    "another knows. Over a tree sum min(P, pi), pi(s) the probability that s is a path of it, is attained "
    "iff pi(sx) <= P(x | s) pi(s) wherever pi(s) < P(s) and P(x | s) > 0, and sum over H of min(P, pi) <= "
    "Pr(the tree meets H) for every such H."
)
LINES = (
    "Lossless: a text begins with sx because sx was accepted, because s was and then corrected to x, or",
    "because an earlier correction led to it: P(s) = A(s) + C(s) and P(sx) = A(sx) + c(s, x) + C(s) P(x",
    "| s). So c(s, x) = P(x | s) A(s) - A(sx) >= 0. Given A so, the correction x after s with c(s, x)",
    "over its sum, whatever the tree, is lossless; c(s, .) adds up to e(s) = A(s) - sum A(sx), which is",
    ">= 0.",
    "Trees: a rule leaves a tree at a path of it, and at s with e(s) in all. By Hall (max-flow, min-",
    "cut) there is such a plan iff e(S) <= Pr(the tree has a path in S) for every set S. Extensions of",
    "members of S do not change the right-hand side: S may be all that begins with one of H, and e(S) =",
    "sum over H of A.",
    "One path: A(s) <= Q(s), since it must be drawn, so by induction nothing exceeds the least of the",
    "two. For it sum over H <= sum of Q over H = Pr(the path meets H). With block, A = Q w.",
    "Bound: A(s) <= P(s) by induction, and A(s) <= pi(s). So the sum is attained iff A = min(P, pi)",
    "will do. Where pi(s) >= P(s), A(sx) <= P(sx) = P(x | s) A(s). Elsewhere P(sx) > P(x | s) pi(s)",
    "unless P(x | s) = 0, so pi(sx) must be within it. On one path: q(x | s) <= p(x | s) wherever 0 <",
    "Q(s) < P(s) and p(x | s) > 0, and no more.",
    "p = (1/3, 2/3), q = (2/3, 1/3), two tokens: 11/9 is the longest, and sum min(P, Q) is 4/3.",
    "Two independent paths of two tokens, the same pair: 131/81 is the longest, 128/81 node by node,",
    "and the sum is 134/81.",
)
#: (shape, how siblings are drawn, number of tokens): small enough for all sets H.
CASES: tuple[tuple[Any, str, int], ...] = (
    (fork(1, 2), "iid", 2), (fork(1, 2), "iid", 3), (fork(2, 1), "iid", 3), (fork(2, 2), "iid", 2),
    ((((), ()), ((), ())), "iid", 2), (fork(2, 1), "without-replacement", 3),
    (fork(2, 2), "without-replacement", 2), ((((),), ()), "without-replacement", 2),
    ((((),), ()), "best-and-one", 2), (fork(2, 2, trunk=1), "iid", 2), (fork(2, 2), "fixed", 2),
)  # fmt: skip
Sets = Callable[[Sequence[Any]], Iterable[frozenset[Any]]]


def antichains(texts: Sequence[Any]) -> Iterator[frozenset[Any]]:
    """Every set of texts none of which begins another, the empty set left out."""
    texts = sorted(texts)
    for size in range(1, len(texts) + 1):
        found = False
        for chosen in itertools.combinations(texts, size):
            if all(b[: len(a)] != a for a, b in itertools.combinations(chosen, 2)):
                found = True
                yield frozenset(chosen)
        if not found:
            return


def drawn_and_near(drawn: Fraction, chance: Fraction, above: Fraction) -> Fraction:
    """The greatest A(sx) on one path: of ``Q(sx)`` and ``P(x | s) A(s)`` the lesser."""
    return min(drawn, chance * above)


def prove(*, sets: Sets = antichains, most: Callable[..., Fraction] = drawn_and_near) -> ProofReport:
    """Prove the theorem.

    Parameters
    ----------
    sets : callable (texts) -> sets of texts
        Any but `antichains` is a mutation, which must fail.
    most : callable (Q(sx), P(x | s), A(s)) -> A(sx) on one path
        Any but `drawn_and_near` is a mutation, which must fail.
    """
    same = lossless = needed = block = iff = near = True
    attained = 0
    cases = list(_cases())
    for target, draft, shape, siblings in cases:
        found = longest_step(target, draft, shape, siblings)
        same &= found.value == by_antichains(target, draft, shape, siblings, sets)
        depth = max(map(len, found.accepted), default=0)
        lossless &= _completed(found.accepted, target, depth + 1) == sequence_law(target, depth + 1)
        bound = sum_bound(target, draft, shape, siblings)
        iff &= (found.value == bound) == attains(target, draft, shape, siblings, sets)
        attained += found.value == bound
        if shape == fork(1, 2):
            greedy = _greedy(target, draft, 2, most)
            emitted = _accepted(block_law("block", target, draft, 2))
            block &= greedy == emitted and sum(greedy.values()) == found.value
        plain = siblings == "without-replacement" and shape in (fork(2, 1), fork(2, 2))
        if plain or shape == fork(1, 2):
            near &= longest_step(target, draft, shape, siblings, lookahead=0).value == longest_by_node(
                target, draft, shape, siblings
            )
        for name, (_, drawn) in TREE_RULES.items():
            if drawn == siblings and (shape == fork(len(shape), 2) or name in ("traversal", "univer")):
                masses = _accepted(tree_law(name, target, draft, shape))
                needed &= _allowed(masses, target, draft, shape, siblings, sets)
    checks = (
        (f"both programs, over plans and over A alone, have one optimum, {len(cases)} cases", same),
        ("the optimum's A, corrected by what is left, emits P, the same", lossless),
        ("traversal, gbv, gls and univer keep within A(sx) <= P A(s) and every H, the same", needed),
        ("one path: A = min(Q, P A) is block's, and the optimum", block),
        (f"sum min(P, pi) is attained ({attained} of {len(cases)}) exactly under the two conditions", iff),
        ("without looking ahead: the longest step by node, where the text says what shape is below", near),
        ("the pair of the block paper: 11/9 and 4/3", _pair()),
    )
    return ProofReport(
        STATEMENT, "proved", ("rational",), checks, LINES,
        left="the theorem of Hall, and inductions, in words; optima are certified in fractions",
    )  # fmt: skip


def _cases() -> Iterator[tuple[Any, Any, Any, str]]:
    """Chains with and without memory, with and without zeros, over the shapes of `CASES`."""
    for number, (shape, siblings, size) in enumerate(CASES):
        for smallest, count in ((1, 6), (0, 3)):
            family = list(pairs(range(size, size + 1), range(3, 6), smallest))
            for i, (p, q) in enumerate(family[number :: len(family) // count]):
                kind = (memoryless, rotating)[i % 2]
                yield kind(p), kind(q), shape, siblings


def by_antichains(target: Any, draft: Any, shape: Any, siblings: str, sets: Sets = antichains) -> Fraction:
    """The longest step, over A alone."""
    trees = path_sets(draft, shape, siblings)
    texts = sorted({s for tree in trees for s in tree})
    column = {s: j for j, s in enumerate(texts)}
    rows: list[dict[int, Fraction]] = []
    bounds: list[Fraction] = []
    for s in texts:
        p = target(s[:-1])[s[-1]]
        rows.append({column[s]: Fraction(1)} | ({column[s[:-1]]: -p} if len(s) > 1 and p else {}))
        bounds.append(Fraction(0) if len(s) > 1 else p)
    for chosen in sets(texts):
        rows.append({column[s]: Fraction(1) for s in chosen})
        bounds.append(_meets(trees, chosen))
    return optimum(Program([Fraction(1)] * len(texts), rows, bounds)).value


def attains(target: Any, draft: Any, shape: Any, siblings: str, sets: Sets = antichains) -> bool:
    """Whether sum min(P, pi) is attained, by the two conditions."""
    trees = path_sets(draft, shape, siblings)
    known, drawn = inclusions(target, trees)
    least = {s: min(known[s], mass) for s, mass in drawn.items() if s}
    for s in least:
        above, chance = s[:-1], target(s[:-1])[s[-1]]
        if chance and drawn[above] < known[above] and drawn[s] > chance * drawn[above]:
            return False
    return all(sum(least[s] for s in chosen) <= _meets(trees, chosen) for chosen in sets(list(least)))


def _meets(trees: dict[Any, Fraction], chosen: frozenset[Any]) -> Fraction:
    return sum((mass for tree, mass in trees.items() if tree & chosen), Fraction(0))


def _accepted(blocks: dict[Any, Fraction]) -> dict[Any, Fraction]:
    """A(s) > 0 of the blocks that a rule emits, s not empty."""
    found: dict[Any, Fraction] = {}
    for block, mass in blocks.items():
        for size in range(1, len(block)):
            if mass:
                found[block[:size]] = found.get(block[:size], Fraction(0)) + mass
    return found


def _completed(accepted: dict[Any, Fraction], target: Any, length: int) -> dict[Any, Fraction]:
    """The law of texts, where what is left of ``P(x | s) A(s)`` is the mass of a correction."""
    blocks: dict[Any, Fraction] = {}
    for s, mass in {(): Fraction(1), **accepted}.items():
        for x, p in enumerate(target(s)):
            blocks[(*s, x)] = p * mass - accepted.get((*s, x), Fraction(0))
    if min(blocks.values()) < 0:
        return {}
    return {text: mass for text, mass in complete(blocks, target, length).items() if mass}


def _allowed(
    masses: dict[Any, Fraction], target: Any, draft: Any, shape: Any, siblings: str, sets: Sets
) -> bool:
    """Whether A keeps within the conditions."""
    trees = path_sets(draft, shape, siblings)
    whole = {(): Fraction(1), **masses}
    below = all(mass <= target(s[:-1])[s[-1]] * whole[s[:-1]] for s, mass in masses.items())
    return below and all(
        sum(masses.get(s, Fraction(0)) for s in chosen) <= _meets(trees, chosen)
        for chosen in sets(sorted({s for tree in trees for s in tree}))
    )


def _greedy(target: Any, draft: Any, length: int, most: Callable[..., Fraction]) -> dict[Any, Fraction]:
    """A(s) > 0 on one path, from the first token on."""
    found: dict[Any, Fraction] = {(): Fraction(1)}
    for size in range(1, length + 1):
        for s, drawn in sequence_law(draft, size).items():
            if s[:-1] in found and (mass := most(drawn, target(s[:-1])[s[-1]], found[s[:-1]])):
                found[s] = mass
    del found[()]
    return found


def _pair() -> bool:
    p, q = (memoryless((Fraction(a, 3), Fraction(3 - a, 3))) for a in (1, 2))
    longest = longest_step(p, q, fork(1, 2), "iid").value
    return (longest, sum_bound(p, q, fork(1, 2), "iid")) == (Fraction(11, 9), Fraction(4, 3))
