"""Operational marginals of the one-position rules in exact rationals, by naive enumeration, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .engine import Result, TupleLaw, enumerate_rule
from .laws import as_law, read_pair
from .proposals import PROPOSALS
from .registry import MARGINALS, Entry

__all__ = ["marginal"]


def _tuples(
    entry: Entry, draft: Sequence[Any], candidates: int, proposal: Sequence[Any] | TupleLaw | None
) -> TupleLaw:
    """The law of the candidates: as given, or drawn the rule's own way from a law over tokens."""
    if isinstance(proposal, Mapping):
        return proposal
    law = as_law(draft, name="draft")
    if proposal is not None:
        law, size = as_law(proposal, name="proposal"), len(law)
        if len(law) != size:
            raise ValueError(f"proposal must have the draft's {size} tokens, got {len(law)}")
    return PROPOSALS[entry.proposal](law, candidates) if candidates else PROPOSALS["iid"](law, 0)


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
        The rule's own: those of its transcription in `oracle.shipped`.

    Returns
    -------
    Result
        Marginal, and acceptance by candidate.

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
    read_pair(target, draft, candidates)
    if entry.most is not None and candidates > entry.most:
        more = "; use specinfer for more" if rule == "speculative" else ""
        count = "one candidate" if entry.most == 1 else f"{entry.most} candidates"
        raise ValueError(f"{rule} verifies {count}, got candidates = {candidates}{more}")
    if 0 < candidates < entry.least:
        raise ValueError(f"{rule} verifies {entry.least} candidates, got candidates = {candidates}")
    made = entry.make(candidates, **options) if entry.counted else entry.make(**options)
    return enumerate_rule(made, target, draft, candidates, _tuples(entry, draft, candidates, proposal))
