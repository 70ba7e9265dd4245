"""Published rules over trees: none of them is the longest over trees, each with its smallest pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from resispec_verify.oracle import block_law, fork, longest_step, memoryless, tree_law

from ._laws import laws, pairs, show
from ._report import ProofReport

__all__ = ["of_any_rule", "prove"]

STATEMENT = (
    "'The published rule accepts as many tokens as any lossless rule can over the trees that it is for' "
    "is false for gbv (independent paths), traversal (trees drawn without replacement) and univer (the "
    "draft's best and one drawn). It is true for all three, and for block and hsd, on one path; and for "
    "univer at one node, for every V and number of children."
)
LINES = (
    "What is claimed, as far as it was read (abstracts, code, and reports of them; not the papers'",
    "texts): GBV calls the optimum over several paths intractable and is greedy, so it claims no such",
    "thing; UniVer has the best acceptance 'under the conditional framework', which is not all lossless",
    "rules; of traversal verification no claim of an optimum over trees was read. SpecTr-GBV claims one",
    "for i.i.d. drafts: there is no source of the rule, and no verdict.",
    "One path: all are block there, which is longest (longest-tree).",
    "univer at one node: with s the law of the drawn child, a = min(1, p/s) is accepted of it, min(p,",
    "s) in all, and p(k) (1 - a)/Z of a certain child k, with Z = sum (s - p)_+ = E[1 - a]: p(k) in the",
    "mean. So it accepts p of the certain tokens and min(p, s) of the others, and no lossless rule",
    "exceeds either. If Z = 0, p = s.",
    "gbv, smallest without two tokens of one ratio p/q: at one node the greater of two draws has its",
    "own law s, and sum min(p, s) is less than what both draws allow. With two tokens of one ratio the",
    "order is a choice: for p = q = (1/2, 1/2) the file's choice accepts 3/4 of what speculative",
    "sampling accepts always.",
)
#: Rule, siblings, shape, what it is called, number of tokens, denominators, whether ratios must differ.
SOUGHT: tuple[tuple[str, str, Any, str, int, range, bool], ...] = (
    ("gbv", "iid", fork(2, 1), "2 siblings", 2, range(2, 7), True),
    ("gbv", "iid", fork(2, 2), "2 paths of 2", 2, range(2, 7), True),
    ("traversal", "without-replacement", fork(2, 1), "2 siblings", 3, range(2, 5), False),
    ("traversal", "without-replacement", (((),), ()), "2 siblings, 1 child and none", 2, range(2, 5), False),
    ("univer", "best-and-one", fork(2, 2), "2 paths of 2", 2, range(2, 5), False),
)

Best = Callable[[Any, Any, Any, str], Fraction]


def of_any_rule(target: Any, draft: Any, shape: Any, siblings: str) -> Fraction:
    """The longest step of any lossless rule."""
    return longest_step(target, draft, shape, siblings).value


def prove(*, best: Best = of_any_rule) -> ProofReport:
    """Search for the smallest pairs.

    Parameters
    ----------
    best : callable (target, draft, shape, siblings) -> accepted tokens
        Anything smaller than `of_any_rule` is a mutation, which must fail.
    """
    checks: list[tuple[str, bool]] = []
    lines: list[str] = list(LINES)
    for rule, siblings, shape, called, size, denominators, apart in SOUGHT:
        found = next(_shorter(rule, siblings, shape, size, denominators, apart, best), None)
        checks.append((f"{rule}, {called}: a pair exists on which it is not the longest", found is not None))
        if found is not None:
            p, q, accepted, longest = found
            lines.append(
                "{}, {}: p = {}, q = {}: accepts {}, the longest {}".format(
                    rule, called, *show(p, q), accepted, longest
                )
            )
    path = node = True
    family = list(pairs(range(2, 4), range(3, 4)))
    for p, q in family:
        target, draft = memoryless(p), memoryless(q)
        most = best(target, draft, fork(1, 2), "iid")
        path &= all(
            _length(tree_law(rule, target, draft, fork(1, 2))) == most
            for rule in ("gbv", "traversal", "univer")
        )
        path &= all(_length(block_law(rule, target, draft, 2)) == most for rule in ("block", "hsd"))
        for count in (2, 3)[: len(p) - 1]:
            accepted = _length(tree_law("univer", target, draft, fork(count, 1)))
            node &= accepted == best(target, draft, fork(count, 1), "best-and-one")
    checks += [
        (f"on one path all are the longest, {len(family)} pairs", path),
        ("univer, one node: it is the longest, the same with 2 and 3 children", node),
    ]
    return ProofReport(
        STATEMENT, "refuted", ("rational",), tuple(checks), tuple(lines),
        left="the sums over tokens for univer at one node in words; what the papers claim is as reported",
    )  # fmt: skip


def _shorter(
    rule: str, siblings: str, shape: Any, size: int, denominators: range, apart: bool, best: Best
) -> Iterator[tuple[Any, Any, Fraction, Fraction]]:
    """Pairs on which a rule accepts less than the longest step, the smallest first."""
    for denominator in denominators:
        family = list(laws(size, denominator, int(apart)))
        for p in family:
            for q in family:
                if apart and len({a / b for a, b in zip(p, q, strict=True)}) < size:
                    continue
                accepted = _length(tree_law(rule, memoryless(p), memoryless(q), shape))
                longest = best(memoryless(p), memoryless(q), shape, siblings)
                if accepted < longest:
                    yield p, q, accepted, longest


def _length(blocks: dict[Any, Fraction]) -> Fraction:
    """Accepted tokens, without the corrected one."""
    return sum((mass * (len(block) - 1) for block, mass in blocks.items()), Fraction(0))
