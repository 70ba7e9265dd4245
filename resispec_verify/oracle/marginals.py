"""Operational marginals of the one-position rules in exact rationals, by naive enumeration, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from .basic import accept_ratio, positive_part_residual, resispec, specinfer
from .distinct import optimal_without_replacement
from .engine import Joint, Result, Transcription, TupleLaw, enumerate_joint, enumerate_rule
from .hub import spechub
from .iid_rules import easd, k_seq, skip_duplicates
from .joint import optimal_joint
from .laws import as_law
from .proposals import PROPOSALS
from .sequential import optimal_sequential
from .sibling_rules import (
    eagle,
    eagle_resispec,
    llama_cpp,
    sequoia,
    sequoia_resispec,
    sglang,
    token_match,
)
from .siblings import optimal_siblings

__all__ = [
    "MARGINALS",
    "Entry",
    "accept_ratio",
    "marginal",
    "positive_part_residual",
    "resispec",
    "specinfer",
]


@dataclass(frozen=True)
class Entry:
    """A rule's transcription, how its candidates are drawn, and how many it takes.

    Attributes
    ----------
    make : callable (**options) -> Transcription or joint rule
        The transcription; it is given the number of candidates first where `counted`.
    proposal : {"iid", "without-replacement", "fixed", "pairs"}
        The rule's own proposal.
    least, most : int
        Bounds on the number of candidates; `most` is None where there is none.
    counted : bool
        Whether the transcription depends on the number of candidates.
    """

    make: Callable[..., Transcription | Joint]
    proposal: str = "iid"
    least: int = 0
    most: int | None = None
    counted: bool = False

    def counts(self, up_to: int) -> range:
        """Numbers of candidates, from 1, that the rule takes."""
        return range(max(1, self.least), min(up_to, up_to if self.most is None else self.most) + 1)


def _token_match() -> Joint:
    return token_match


def _spechub_force() -> Joint:
    return spechub(force=True)


MARGINALS: dict[str, Entry] = {
    "speculative": Entry(specinfer, most=1),
    "specinfer": Entry(specinfer),
    "specinfer-skip-duplicates": Entry(skip_duplicates),
    "sequoia": Entry(sequoia, "without-replacement"),
    "eagle": Entry(eagle, "fixed"),
    "token-match": Entry(_token_match),
    "k-seq": Entry(k_seq, counted=True),
    "spechub": Entry(spechub, "pairs", least=2, most=2),
    "spechub-force": Entry(_spechub_force, "pairs", least=2, most=2),
    "sglang": Entry(sglang, "fixed"),
    "llama-cpp": Entry(llama_cpp, "fixed"),
    "resispec": Entry(resispec),
    "optimal-sequential": Entry(optimal_sequential, counted=True),
    "optimal-joint": Entry(optimal_joint, counted=True),
    "optimal-siblings": Entry(optimal_siblings, counted=True),
    "optimal-without-replacement": Entry(
        optimal_without_replacement, "without-replacement", most=2, counted=True
    ),
    "easd": Entry(easd, most=1),
    "sequoia+resispec": Entry(sequoia_resispec, "without-replacement"),
    "eagle+resispec": Entry(eagle_resispec, "fixed"),
}


def _tuples(
    entry: Entry, draft: Sequence[Any], candidates: int, proposal: Sequence[Any] | TupleLaw | None
) -> Mapping[tuple[int, ...], Fraction]:
    """The law of the candidates: as given, or drawn the rule's own way from a law over tokens."""
    if isinstance(proposal, Mapping):
        return proposal
    law = as_law(draft, name="draft")
    if proposal is not None:
        law, size = as_law(proposal, name="proposal"), len(law)
        if len(law) != size:
            raise ValueError(f"proposal must have the draft's {size} tokens, got {len(law)}")
    return PROPOSALS[entry.proposal](law, candidates) if candidates else {(): Fraction(1)}


def marginal(
    rule: str,
    target: Sequence[Any],
    draft: Sequence[Any],
    candidates: int,
    *,
    proposal: Sequence[Any] | TupleLaw | None = None,
    **options: Any,
) -> Result:
    """Compute the exact law of the token a rule emits.

    Parameters
    ----------
    rule : str
        The rule, a key of `MARGINALS`.
    target, draft : sequence of rationals, length V
        The target and the declared draft.
    candidates : int
        Number of candidates n >= 0; at most 1 for "speculative" and "easd", 2 for SpecHub's rules.
    proposal : sequence of rationals, or mapping from tuples to rationals, optional
        What the candidates are really drawn from: a law over tokens, drawn from in the rule's own way
        (i.i.d., without replacement, its best tokens, pairs), or the law of the tuple itself. By default
        the declared draft, in the rule's own way.
    **options
        The rule's own: `redistribution`, `budget` and `hole` of `get_proxy` for the rules with ResiSpec's
        residual, `rho` for "k-seq", `threshold_single` and `threshold_acc` for "sglang", `times` for
        "optimal-sequential", `pieces` for "optimal-joint", `first` for "optimal-without-replacement",
        `values` and `masses` for "optimal-siblings", and those of `easd`.

    Returns
    -------
    Result
        Marginal, acceptance by candidate, and the probability that a budget was capped.

    Raises
    ------
    ValueError
        If the rule is unknown, or an input is out of range.
    TypeError
        If an option does not belong to the rule.
    """
    if rule not in MARGINALS:
        raise ValueError(f"rule must be one of {', '.join(MARGINALS)}, got {rule!r}")
    entry = MARGINALS[rule]
    if entry.most is not None and candidates > entry.most:
        more = "; use specinfer for more" if rule == "speculative" else ""
        count = "one candidate" if entry.most == 1 else f"{entry.most} candidates"
        raise ValueError(f"{rule} verifies {count}, got candidates = {candidates}{more}")
    if 0 < candidates < entry.least:
        raise ValueError(f"{rule} verifies {entry.least} candidates, got candidates = {candidates}")
    made = entry.make(candidates, **options) if entry.counted else entry.make(**options)
    if candidates < 0:
        return enumerate_rule(specinfer(), target, draft, candidates)  # which says what is wrong
    tuples = _tuples(entry, draft, candidates, proposal)
    if isinstance(made, Transcription):
        return enumerate_rule(made, target, draft, candidates, tuples)
    if candidates == 0:
        return enumerate_rule(specinfer(), target, draft, 0)
    return enumerate_joint(made, target, draft, candidates, tuples)
