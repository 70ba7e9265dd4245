"""Intervals that hold for every completion of the tails, and verdicts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from resispec_verify.dumps.kinds.top_rows import TopPairs
from resispec_verify.errors import InputError
from resispec_verify.kernels.topk import bounds as kernel
from resispec_verify.kernels.topk.laws import empty_law, empty_row
from resispec_verify.rules import Rule
from resispec_verify.topk.cutting import shorten
from resispec_verify.topk.known import acceptance_kind, biased_kind, is_iid, proof_of
from resispec_verify.topk.reduction import blocks, refuse, vocab_of
from resispec_verify.verdict import Tier, Verdict, overall

__all__ = ["Bounds", "bounds", "least_k"]


@dataclass(frozen=True)
class Bounds:
    """What holds at N positions for every completion of the tails; low and high in the last axis.

    Attributes
    ----------
    rule : Rule
    candidates : int
    tv, kl : float64 array (N, 2)
        Total variation of target and draft, and KL(target || draft) in nats, inf where the draft may miss
        what the target has.
    limit : float64 array (N, 2)
        Of all exact rules for independent candidates; (0, 1) for a rule with other candidates.
    acceptance : float64 array (N, 2)
        The probability that one of the candidates is emitted.
    emitted_tv, emitted_kl : float64 array (N, 2)
        Of the emitted law from the target.
    attained : bool array (N, 2)
        Whether the completion hardest to tell apart, and the easiest, exist within the vocabulary. True where
        V is unknown: there is one for some V. Where one is missing the bounds hold and may be wide.
    tight : dict of str to (bool, bool)
        Of tv, kl, limit and acceptance: whether the low end, and the high one, is the value of one of the two
        completions, up to rounding.
    verdicts : list of Verdict
    proof : str or None
        Where it is proved that the rule is exact for every pair of laws.
    """

    rule: Rule
    candidates: int
    tv: NDArray[np.float64]
    kl: NDArray[np.float64]
    limit: NDArray[np.float64]
    acceptance: NDArray[np.float64]
    emitted_tv: NDArray[np.float64]
    emitted_kl: NDArray[np.float64]
    attained: NDArray[np.bool_]
    tight: dict[str, tuple[bool, bool]]
    verdicts: list[Verdict]
    proof: str | None

    def __len__(self) -> int:
        return len(self.tv)

    @property
    def verdict(self) -> Verdict:
        """Over all positions."""
        return overall(self.verdicts)

    @property
    def tier(self) -> Tier:
        """Of what is decided: a proof for every pair of laws, or certified at these positions."""
        return Tier.CERTIFIED if self.proof is None else Tier.PROVED


def bounds(pairs: TopPairs, rule: Rule, candidates: int) -> Bounds:
    """Intervals at every position, in blocks: O((k + j) log (k + j)) a position, whatever V is.

    Parameters
    ----------
    pairs : TopPairs
        N positions. Listed probabilities and tail must be 1 together up to 1e-3, and the tail known to 0.1;
        what they are off by widens the intervals.
    rule : Rule
        Its candidates are drawn from the draft as logged.
    candidates : int
        ``n >= 1``.

    Returns
    -------
    Bounds

    Raises
    ------
    InputError
        A token twice in a list, values that are no probabilities, a tail that is not known, more tail than
        the vocabulary has room for, lists of different numbers of positions, or a number of candidates that
        the rule does not take.
    """
    _check_candidates(rule, candidates)
    first, second = pairs.target.tokens.shape[1], pairs.draft.tokens.shape[1]
    atoms, vocab, rows = first + second + 3, vocab_of(pairs), len(pairs)
    found = kernel.empty_found(rows)
    settings = (acceptance_kind(rule), candidates, biased_kind(rule))
    for start, target, draft in blocks(pairs):
        laws = (empty_law(atoms), empty_law(atoms))
        part = kernel.part_of(found, slice(start, start + len(target.tokens)))
        row = empty_row(first, second)
        refuse(start, *kernel.bound_rows(target, draft, vocab, settings, row, laws, part))
    return _bounds(rule, candidates, found)


def least_k(pairs: TopPairs, rule: Rule, candidates: int, most: int | None = None) -> int | None:
    """The shortest lists that decide what these do: the least k with an overall verdict not `UNDECIDED`.

    None where lists of ``most`` tokens do not decide either, by default these; how much longer ones would is
    not in them.
    """

    def decides(k: int) -> bool:
        shorter = TopPairs(shorten(pairs.target, k), shorten(pairs.draft, k))
        return bounds(shorter, rule, candidates).verdict is not Verdict.UNDECIDED

    longest = max(pairs.target.tokens.shape[1], pairs.draft.tokens.shape[1])
    low, high = 0, longest if most is None else min(most, longest)
    if not decides(high):
        return None
    while high - low > 1:
        k = (low + high) // 2
        low, high = (low, k) if decides(k) else (k, high)
    return high


def _check_candidates(rule: Rule, candidates: int) -> None:
    most = rule.most_candidates
    if candidates < max(1, rule.least_candidates) or (most is not None and candidates > most):
        raise InputError(f"{rule.name} does not verify {candidates} candidates")


def _bounds(rule: Rule, n: int, found: kernel.Found) -> Bounds:
    """Verdicts, and what is known of the emitted law."""
    rows, kind, proof = len(found.tv), acceptance_kind(rule), proof_of(rule)
    limit, acceptance = found.limit, found.acceptance
    if not is_iid(rule):
        limit = np.broadcast_to([0.0, 1.0], (rows, 2))
    if kind == kernel.ANY and proof is not None:
        acceptance[:, 1] = np.minimum(acceptance[:, 1], limit[:, 1])
    emitted_tv = np.broadcast_to([0.0, 1.0], (rows, 2))
    emitted_kl = np.broadcast_to([0.0, np.inf], (rows, 2))
    verdicts = [Verdict.UNDECIDED] * rows
    if proof is not None:
        emitted_tv = emitted_kl = np.broadcast_to(0.0, (rows, 2))
        verdicts = [Verdict.EXACT] * rows
    elif biased_kind(rule):
        # What the first candidate is accepted with, min(p, q), is never taken back.
        emitted_tv = np.stack([found.biased, np.maximum(found.tv[:, 1], found.biased)], axis=1)
        emitted_kl = np.stack([2.0 * found.biased**2, np.full(rows, np.inf)], axis=1)  # Pinsker
        verdicts = [Verdict.INEXACT if low > 0.0 else Verdict.UNDECIDED for low in found.biased]
    both = kind > kernel.STANDARD or (kind in (kernel.FIRST, kernel.STANDARD) and n == 1)
    iid = is_iid(rule)
    tight = {
        "tv": (True, True),
        "kl": (True, True),
        "limit": (iid, iid),
        "acceptance": (both or kind == kernel.STANDARD, both),
    }
    return Bounds(
        rule, n, found.tv, found.kl, limit, acceptance, emitted_tv, emitted_kl, found.attained, tight,
        verdicts, proof,
    )  # fmt: skip
