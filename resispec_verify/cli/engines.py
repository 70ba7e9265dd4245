"""`resispec-verify engines`: which engine verifies with which rule, and what a configuration does."""

from dataclasses import dataclass
from typing import Any

from resispec_verify.cli.options.group import Options, check_range
from resispec_verify.cli.options.outputs import JsonOption
from resispec_verify.cli.parameters import File, Number, Text
from resispec_verify.engines import (
    Answer,
    Engine,
    Setting,
    decide,
    engine_named,
    engine_of,
    known_engines,
    read_command_line,
    read_config,
)
from resispec_verify.errors import InputError
from resispec_verify.report.table import print_lines, print_records, printable
from resispec_verify.schema import envelope

TITLE = (
    "rules read in engines' sources, and whether enumeration finds the target's law at temperature above 0"
)
# Columns that a narrow terminal can do without, in the order in which they go.
DISPENSABLE = ("upstream", "T = 0", "version")
#: By law; what is unknown is neither exact nor bad input.
STATUS = {"exact": 0, "lossy": 1, "unknown": 3}


@dataclass(frozen=True, kw_only=True)
class ConfigurationOptions(Options):
    """What an engine is started with."""

    config: File | None = None
    """Answer for this configuration file of the engine NAME (.json, .yaml, .toml). Nothing in it is run, and
    no file that it names is opened."""
    command_line: Text | None = None
    """Answer for this command, quoted as one word. It is not run. Beside --config it goes over the file."""
    temperature: Number | None = None
    """Of the requests, for --config and --command-line. Default: what the options state, else above 0."""


def engines(
    name: Text | None = None,
    /,
    *,
    law: Text | None = None,
    configuration: ConfigurationOptions = ConfigurationOptions(),
    output: JsonOption = JsonOption(),
) -> int:
    """Which engine verifies with which rule, and whether a configuration keeps the target's law.

    Exit status, with --config or --command-line: 0 exact; 1 lossy; 3 unknown; 2 bad usage.

    Parameters
    ----------
    name
        Only this engine, in full.
    law
        Only settings that are exact, lossy or unknown.
    """
    output.check([path for path in [configuration.config] if path is not None])
    check_range(0, temperature=configuration.temperature)
    if law is not None and law not in STATUS:
        raise InputError(f"--law must be exact, lossy or unknown, got {law!r}")
    if configuration.config is None and configuration.command_line is None:
        if configuration.temperature is not None:
            raise InputError(
                "--temperature needs --config or --command-line, which are not given; leave it out"
            )
        return _table(name, law, output)
    if law is not None:
        raise InputError("--law is for the table; leave it out beside --config and --command-line")
    return _answer(name, configuration, output)


def _table(name: str | None, law: str | None, output: JsonOption) -> int:
    chosen = list(known_engines().values()) if name is None else [engine_named(name)]
    rows = [(e, s) for e in chosen for s in e.settings if law in (None, s.law)]
    console = output.write(envelope("engines", [_row(*row) for row in rows]))
    if not rows:
        print_lines(console, [f"{name or 'the table'}: no setting is {law}"])
        return 0
    records = [_record(*row) for row in rows]
    print_records(console, TITLE, records, dispensable=DISPENSABLE, left=tuple(records[0]))
    if name is None:
        print_lines(console, ["* the default. resispec-verify engines NAME says more of one engine."])
        return 0
    for _, setting in rows:
        print_lines(console, ["", *_details(setting)])
    print_lines(console, ["", f"read: {chosen[0].read}", f"note: {chosen[0].limits}"])
    return 0


def _row(engine: Engine, setting: Setting) -> dict[str, Any]:
    """One setting, as JSON has it."""
    return {
        "engine": engine.engine,
        "version": engine.version,
        "read": engine.read,
        "setting": setting.name,
        "default": setting.default,
        "options": setting.when,
        "rule": setting.rule,
        "rule_options": setting.options,
        "in_words": setting.in_words,
        "law": setting.law,
        "law_at_temperature_0": setting.greedy,
        "measured": setting.measured,
        "says": setting.says,
        "limits": engine.limits,
        "upstream": setting.upstream,
    }


def _record(engine: Engine, setting: Setting) -> dict[str, str]:
    """One line of the table, by column."""
    return {
        "engine": engine.engine,
        "version": engine.version,
        "setting": setting.name + " *" * setting.default,
        "rule": _rule(setting),
        "law": setting.law,
        "T = 0": setting.greedy,
        "upstream": setting.upstream,
    }


def _rule(setting: Setting) -> str:
    options = ", ".join(f"{key}={value}" for key, value in setting.options.items())
    return "-" if setting.rule is None else f"{setting.rule}[{options}]" if options else setting.rule


def _details(setting: Setting) -> list[str]:
    return [
        f"{setting.name}: {setting.in_words}",
        f"  where: {_where(setting)}",
        f"  measured: {setting.measured}",
        f"  says of itself: {setting.says or '-'}",
        f"  upstream: {setting.upstream}",
    ]


def _where(setting: Setting) -> str:
    """What must hold of the options, in words."""
    if setting.when is None:
        return "the options do not tell"
    words = [
        f"{name} {wanted if isinstance(wanted, str) else ' or '.join(wanted)}"
        for name, wanted in setting.when.items()
    ]
    return "; ".join(words) or "nothing else is said"


def _answer(name: str | None, asked: ConfigurationOptions, output: JsonOption) -> int:
    line = asked.command_line
    engine = engine_named(name) if name is not None else None if line is None else engine_of(line)
    if engine is None:
        if line is None:
            raise InputError("--config needs the engine: resispec-verify engines NAME --config FILE")
        report = {
            "engine": None,
            "law": "unknown",
            "why": "no engine of the table is started by this command",
        }
        lines = [f"unknown: {report['why']}; name one: resispec-verify engines NAME"]
    else:
        options = {} if asked.config is None else read_config(engine, asked.config)
        options |= {} if line is None else read_command_line(engine, line)
        answer = decide(engine, options, temperature=asked.temperature, whole=asked.config is not None)
        report, lines = _report(answer), _lines(answer)
    print_lines(output.write(envelope("engines", [report])), lines)
    return STATUS[report["law"]]


def _report(answer: Answer) -> dict[str, Any]:
    """An answer, as JSON has it."""
    setting = answer.setting
    return {
        "engine": answer.engine.engine, "version": answer.engine.version, "law": answer.law,
        "temperature_0": answer.greedy, "setting": setting and setting.name, "rule": setting and setting.rule,
        "decided_by": [vars(decider) for decider in answer.decided_by], "why": answer.why,
        "measured": setting and setting.measured, "limits": answer.engine.limits,
        "passed_over": list(answer.passed_over), "row": setting and _row(answer.engine, setting),
    }  # fmt: skip


def _lines(answer: Answer) -> list[str]:
    """An answer in words."""
    engine, setting = answer.engine, answer.setting
    at = "temperature 0" if answer.greedy else "temperature above 0"
    lines = [f"{engine.engine} (read at {engine.version}): {answer.law} at {at}"]
    if setting is not None:
        lines.append(f"  setting: {setting.name}{', the default' * setting.default}; rule: {_rule(setting)}")
    for d in answer.decided_by:
        given = "" if d.given else " (the default)" if d.value != "not given" else ""
        lines.append(f"  decided by: {printable(d.option)} = {printable(d.value)}{given}")
    lines.append(f"  why: {printable(answer.why, None)}")
    if setting is not None:
        lines.append(f"  measured: {setting.measured}")
        if not answer.greedy and setting.greedy != answer.law:
            lines.append(f"  at temperature 0: {setting.greedy}")
        lines.append(f"  note: {engine.limits}")
    if answer.passed_over:
        lines.append(f"  not looked at: {printable(', '.join(answer.passed_over), 400)}")
    return lines
