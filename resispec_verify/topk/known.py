"""What is proved of rules for every pair of laws, and how each accepts."""

from __future__ import annotations

from resispec_verify.kernels.topk import bounds as kernel
from resispec_verify.rules import Rule, make_rule

__all__ = ["PROOFS", "acceptance_kind", "biased_kind", "is_iid", "proof_of"]

#: Rules with their default parameters that are exact for every pair of laws, and where that is argued.
PROOFS = {
    "speculative": "docs/explanation/theory.md, Eq. 1-2",
    "specinfer": "docs/explanation/theory.md, Eq. 1-2",
    "token-match": "docs/reference/rules.md",
    "k-seq": "docs/reference/rules.md",
    "optimal-sequential": "docs/explanation/optimal-rules.md",
    "optimal-joint": "docs/explanation/optimal-rules.md",
    "optimal-without-replacement": "docs/explanation/optimal-rules.md",
    "sequoia": "docs/reference/rules.md",
    "eagle": "docs/reference/rules.md",
    "spechub": "docs/reference/rules.md",
}
_KINDS = {
    "speculative": kernel.STANDARD,
    "specinfer": kernel.STANDARD,
    "optimal-sequential": kernel.SEQUENTIAL,
    "optimal-joint": kernel.JOINT,
    "k-seq": kernel.K_SEQ,
}


def _is_shipped(rule: Rule) -> bool:
    """Whether it is the package's own, with its default parameters: names prove nothing, nor equality."""
    if rule.name not in PROOFS:
        return False
    ours = make_rule(rule.name)
    return type(rule) is type(ours) and rule == ours


def proof_of(rule: Rule) -> str | None:
    """Where it is proved that the rule is exact for every pair, or None."""
    return PROOFS[rule.name] if _is_shipped(rule) else None


def acceptance_kind(rule: Rule) -> int:
    """How a rule accepts, as the kernel numbers it."""
    if biased_kind(rule):
        return kernel.FIRST
    return _KINDS.get(rule.name, kernel.ANY) if _is_shipped(rule) else kernel.ANY


def biased_kind(rule: Rule) -> int:
    """Which bound on the bias of ResiSpec holds: 1 for the local budget, 2 for another, 0 for other rules."""
    from resispec_verify.rules import ResiSpec

    if type(rule) is not ResiSpec:
        return 0
    return 1 if rule.budget == "local" else 2


def is_iid(rule: Rule) -> bool:
    """Whether its candidates are drawn independently from the draft."""
    return rule.proposal.name == "iid"
