"""Rules from a user's own file, ``--rule path/to/file.py:Name``. Loading one executes that file."""

import sys
import types
from pathlib import Path
from typing import Any

from resispec_verify.errors import InputError
from resispec_verify.rules import NEED_PARAMETERS, PATH_RULES, RULES, TREE_RULES, Rule
from resispec_verify.rules.checked import CheckedRule, check_interface
from resispec_verify.rules.foreign import muted, reason_of
from resispec_verify.rules.given import check_counts
from resispec_verify.rules.spec import options_in, parse_rule
from resispec_verify.tables.row import label


class StartedInside(BaseException):
    """The module that is loaded for a check starts one itself: it has been loaded far enough."""


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
        if not _is_file(name):
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


def _refuse_same_label(rule: Rule, others: list[Rule]) -> None:
    """Refuse what would be one row with another rule: a value from a file whose parameter no text can say."""
    if label(rule) in map(label, others):
        raise InputError(
            f"--rule {label(rule)}: a rule from a file has this label too; run them one after the other"
        )


def _refuse_idle(given: dict[str, Any], names: list[str]) -> None:
    """Refuse options that no rule of the run takes; a rule from a file or with the option itself does not."""
    ours = [name for name in names if not _is_file(name)]
    for option in given:
        having = [name for name, rule in RULES.items() if option in getattr(rule, "__dataclass_fields__", {})]
        asked = [name for name in ours if parse_rule(name).name in having]
        if all(option in options_in(name) for name in asked):
            why = "each rule that has it says it" if asked else "no rule of this run has it"
            raise InputError(
                f"--{option.replace('_', '-')} would do nothing: {why} (rules that do: {', '.join(having)}); "
                "leave it out"
            )


def _is_file(name: str) -> bool:
    path, _, _ = name.rpartition(":")
    return path.endswith(".py") or name.endswith(".py")


def load_rule(name: str) -> Rule:
    """Execute the file of ``path/to/file.py:Name`` and return its rule, with its interface checked.

    Raises
    ------
    InputError
        No such file or name, a file that does not run, or something that is not a usable rule.
    """
    where = f"--rule {name}"
    path, _, attribute = name.rpartition(":")
    if name.endswith(".py") or not attribute:
        raise InputError(f"{where}: say which rule of the file, as in {path or name}:Name")
    module = _execute(Path(path), where)
    found = vars(module).get(attribute)
    if found is None:
        raise InputError(f"{where}: the file has no {attribute!r}{_others(module)}")
    # A rule of ours with the user's parameters.
    if isinstance(found, Rule) and type(found).__module__.startswith("resispec_verify."):
        return found
    return CheckedRule(check_interface(found, where), where)


def _execute(path: Path, where: str) -> types.ModuleType:
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{where}: not a regular file; give a file of Python code")
        source = path.read_bytes()
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror})") from None
    module = types.ModuleType(f"_resispec_user_rule_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        with muted:
            exec(compile(source, str(path), "exec"), vars(module))
    except KeyboardInterrupt:
        raise
    except StartedInside:  # a script that checks its own sampler: what comes before is all it takes
        pass
    except BaseException as error:
        line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else _line(error, str(path))
        at = "" if line is None else f", line {line}"
        raise InputError(f"{where}: the file fails{at}: {reason_of(error)}") from None
    return module


def _line(error: BaseException, path: str) -> int | None:
    """The last line of the file that the error came through."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _others(module: types.ModuleType) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Rule) and value.__module__ == module.__name__
    ]
    return f" (rules in it: {', '.join(names)})" if names else ""
