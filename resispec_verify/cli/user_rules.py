"""Rules by name, or from a user's own code: ``--rule FILE.py:NAME``."""

from typing import Any

from resispec_verify.cli.user_code import load_object, names_code
from resispec_verify.errors import InputError
from resispec_verify.rules import NEED_PARAMETERS, PATH_RULES, RULES, TREE_RULES, PathRule, Rule
from resispec_verify.rules.checked import CheckedRule, check_interface
from resispec_verify.rules.given import check_counts
from resispec_verify.rules.spec import options_in, parse_any_rule, parse_rule
from resispec_verify.tables.row import label


def choose_rules(names: list[str], candidates: int, **options: Any) -> tuple[Rule, ...]:
    """The rules of these names, or from these files, each once; checked for the number of candidates.

    ``options`` are those of the rules that have them; None is one that was not given.

    Raises
    ------
    InputError
        Unknown or unusable rule, an option that none of the rules has, two rules of one name, or a number of
        candidates that a rule is not defined for.
    """
    names_taken = [*RULES, *NEED_PARAMETERS, *PATH_RULES, *TREE_RULES]
    given = {name: value for name, value in options.items() if value is not None}
    chosen: list[Rule] = []
    for name in dict.fromkeys(names):
        _refuse_list(name, names_taken)
        if not _is_code(name):
            rule = parse_rule(name, **given)
            if rule not in chosen:
                _refuse_same_label(rule, chosen)
                chosen.append(rule)
            continue
        rule = load_rule(name)
        ours = not isinstance(rule, CheckedRule)
        if rule.name in [*(() if ours else names_taken), *(other.name for other in chosen)]:
            raise InputError(f"--rule {name}: the name {rule.name!r} is taken; call the rule something else")
        chosen.append(rule)
    _refuse_idle(given, names)
    check_counts(chosen, candidates, "--candidates ")
    for rule in chosen:
        if isinstance(rule, CheckedRule):
            rule.dry_run(candidates)
    return tuple(chosen)


def _refuse_list(text: str, known: list[str]) -> None:
    """Refuse several rules in one word."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1 and all(part.partition(":")[0] in known for part in parts):
        each = " ".join(f"--rule {part}" for part in parts)
        raise InputError(f"--rule {text}: is several rules; repeat the option: {each}")


def any_rule(name: str) -> Rule | PathRule:
    """The rule of this name, which may verify paths, or from a user's code; for one candidate a position.

    Raises
    ------
    InputError
        Unknown or unusable rule.
    """
    if not _is_code(name):
        return parse_any_rule(name)
    rule = load_rule(name)
    if isinstance(rule, CheckedRule):
        rule.dry_run(1)
    return rule


def _refuse_same_label(rule: Rule, others: list[Rule]) -> None:
    """Refuse what would be one row with another rule: a value from a file whose parameter no text can say."""
    if label(rule) in map(label, others):
        raise InputError(
            f"--rule {label(rule)}: a rule from a file has this label too; run them one after the other"
        )


def _refuse_idle(given: dict[str, Any], names: list[str]) -> None:
    """Refuse options that no rule of the run takes; a rule from a file or with the option itself does not."""
    ours = [name for name in names if not _is_code(name)]
    for option in given:
        having = [name for name, rule in RULES.items() if option in getattr(rule, "__dataclass_fields__", {})]
        asked = [name for name in ours if parse_rule(name).name in having]
        if all(option in options_in(name) for name in asked):
            why = "each rule that has it says it" if asked else "no rule of this run has it"
            raise InputError(
                f"--{option.replace('_', '-')} would do nothing: {why} (rules that do: {', '.join(having)}); "
                "leave it out"
            )


def _is_code(name: str) -> bool:
    """Whether a rule is named in a user's code; a name of ours with options is not."""
    ours = (*RULES, *NEED_PARAMETERS, *PATH_RULES, *TREE_RULES)
    return names_code(name) and name.partition(":")[0] not in ours


def load_rule(name: str) -> Rule:
    """The rule that ``FILE.py:NAME`` or ``package.module:NAME`` names, with its interface checked.

    Raises
    ------
    InputError
        As `load_object`; or something that is not a usable rule.
    """
    where = f"--rule {name}"
    found = load_object(name, _like_a_rule, said=where)
    # A rule of ours with the user's parameters.
    if isinstance(found, Rule) and type(found).__module__.startswith("resispec_verify."):
        return found
    return CheckedRule(check_interface(found, where), where)


def _like_a_rule(value: Any) -> bool:
    return isinstance(value, Rule) or (isinstance(value, type) and issubclass(value, Rule))
