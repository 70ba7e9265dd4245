"""A rule as a caller from Python may give it: an instance, or a registered name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resispec_verify.errors import InputError
from resispec_verify.inputs import shown
from resispec_verify.rules import PATH_RULES
from resispec_verify.rules.checked import check_interface
from resispec_verify.rules.interface import Rule
from resispec_verify.rules.path_rule import PathRule
from resispec_verify.rules.proposals import Proposal
from resispec_verify.rules.spec import parse_rule
from resispec_verify.rules.tuple_rule import TupleRule

__all__ = ["check_counts", "given_proposal", "given_rule", "is_ours"]


def given_rule(rule: Any) -> Rule:
    """The rule of a registered name, perhaps with options (`rules.spec`), or a rule as it is.

    Raises
    ------
    InputError
        An unknown name, with the nearest one; a class where its instance is meant; a rule that verifies paths
        of several tokens; a rule of the caller's own without what a rule must have; or no rule at all.
    """
    if isinstance(rule, str) and rule.rpartition(":")[0].endswith(".py"):
        raise InputError(f"rule {shown(rule)} is in a file: import it, and give its instance")
    if isinstance(rule, str) and rule not in PATH_RULES:
        return parse_rule(rule)
    if isinstance(rule, type) and issubclass(rule, (Rule, PathRule)):
        raise InputError(f"rule must be an instance, not a class: say {rule.__name__}()")
    if isinstance(rule, (PathRule, str)):
        name = rule if isinstance(rule, str) else rule.name
        raise InputError(
            f"rule {name!r} verifies paths of several tokens; evidence.path_rules.path_marginal enumerates it"
        )
    if not isinstance(rule, Rule):
        raise InputError(f"rule must be a Rule, or the name of one such as 'specinfer'; got {shown(rule)}")
    return rule if is_ours(rule) or isinstance(rule, TupleRule) else check_interface(rule, "rule")


def is_ours(rule: Rule) -> bool:
    """Whether a rule comes with this package."""
    return type(rule).__module__.startswith("resispec_verify.")


def given_proposal(proposal: Any) -> Proposal | None:
    """A way of drawing candidates, as far as an engine needs it; None stays None."""
    if proposal is None or (not isinstance(proposal, type) and callable(getattr(proposal, "next", None))):
        return proposal
    raise InputError(
        "proposal must be a value with a method next(draft, drawn), such as rules.Iid(); got "
        f"{shown(proposal)}"
    )


def check_counts(rules: Sequence[Rule], candidates: int, said: str) -> None:
    """Refuse a number of candidates for which a rule is not defined; too many are cut where that is right.

    ``said`` is how the caller gives it, before the number.
    """
    for rule in rules:
        least = rule.least_candidates
        if candidates < least or (least > 1 and least == rule.most_candidates != candidates):
            exactly = "exactly" if least == rule.most_candidates else "at least"
            raise InputError(
                f"rule {rule.name!r} verifies {exactly} {least} candidates, got {said}{candidates}; "
                f"say {said}{least}"
            )
