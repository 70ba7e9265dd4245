"""`resispec-verify check`: somebody's sampler against the target, statistically."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Literal

from resispec_verify.cli.output import (
    check_writable,
    files_read,
    print_lines,
    printable,
    table_console,
    write_json,
)
from resispec_verify.cli.parameters import Count, File, Files, Flag, Names, Number, Text
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from resispec_verify.sampler_check.check import CheckResult, CheckSettings

__all__ = ["check"]

PROGRAM = "resispec-verify"
# Of a dump, unless --positions says which.
FIRST_POSITIONS = 4
COLOURS = {"rejected": "bold red", "error": "bold red", "not-rejected": "yellow"}


def check(
    sampler: Text,
    /,
    *,
    style: Literal["tokens", "candidates", "block"] = "tokens",
    candidates: Count = 2,
    proposal: Literal["iid", "without-replacement", "top"] = "iid",
    rule: Text | None = None,
    ragged: Flag = False,
    input: Names | None = None,
    target: Text | None = None,
    draft: Text | None = None,
    logits: Files | None = None,
    positions: Text | None = None,
    temperature: Number | None = None,
    alpha: Number = 1e-9,
    power: Number = 0.99,
    draws: Count | None = None,
    seconds: Number = 600.0,
    call_seconds: Number = 60.0,
    no_search: Flag = False,
    no_boundary: Flag = False,
    seed: Count = 0,
    json: File | None = None,
) -> int:
    """Is a sampler lossless? Draws from it, tested at a stated error rate; "not rejected" is no proof.

    Exit status: 0 not rejected; 1 rejected, or the sampler failed; 2 bad usage.

    Parameters
    ----------
    sampler
        module:callable, path/to/file.py:callable, or "cmd:PROGRAM ARGUMENTS". Its code is executed.
    style
        How it is called: tokens, sampler(target, draft, rng); candidates, sampler(target, draft, candidates,
        rng); block, sampler(targets, drafts, path, rng).
    candidates
        Candidates a row, for --style candidates.
    proposal
        How those are drawn from the draft.
    rule
        The rule whose acceptance a reported acceptance is compared with.
    ragged
        For --style block: also paths of different lengths, padded with -1.
    input
        A pair of the fixed battery by name; repeat for several. Default: all.
    target
        Target probabilities by hand, "0.5,0.3,0.2", instead of the battery.
    draft
        Draft probabilities by hand.
    logits
        Also the positions of these dumps.
    positions
        Range A:B of positions of a dump, 0-based, B excluded. Default: the first four.
    temperature
        For --logits: sampling temperature.
    alpha
        Probability that a lossless sampler is rejected, in the whole run.
    power
        With which the TV that is stated would have been found.
    draws
        Draws a pair at most (1048576; less for wide ones).
    seconds
        Stop after this long.
    call_seconds
        A call that takes longer is an error.
    no_search
        Do not search for the worst pair for this sampler.
    no_boundary
        Do not try uniforms of 0 and 1 - 2**-53.
    seed
        Of all draws.
    json
        Write the report here ("-": standard output).
    """
    from resispec_verify.cli.check_apart import Job, run_apart
    from resispec_verify.sampler_check.settings import DRAWS, CheckSettings, check_report

    check_writable(json=json, inputs=files_read(logits or []))
    settings = CheckSettings(
        style=style, candidates=candidates, proposal=proposal, ragged=ragged, alpha=alpha, power=power,
        draws=DRAWS if draws is None else draws, seconds=seconds, call_seconds=call_seconds,
        search=not no_search, boundary=not no_boundary, seed=seed,
    )  # fmt: skip
    inputs = _inputs(settings, input, target, draft, logits, positions, temperature)
    result = run_apart(Job(sampler, settings, rule, inputs))
    write_json(json, check_report(sampler, settings, result))
    again = {
        "--rule": rule, "--ragged": ragged, "--input": input, "--target": target, "--draft": draft,
        "--logits": logits, "--positions": positions, "--temperature": temperature, "--draws": draws,
        "--no-search": no_search, "--no-boundary": no_boundary,
    }  # fmt: skip
    _print(sampler, result, _again(sampler, result, settings, again), table_console(json))
    return 0 if result.verdict == "not-rejected" else 1


def _inputs(
    settings: CheckSettings,
    names: list[str] | None,
    target: str | None,
    draft: str | None,
    logits: list[Any] | None,
    positions: str | None,
    temperature: float | None,
) -> list[Any] | None:
    """Pairs by name, by hand, and of dumps; None for the whole battery."""
    if (target is None) != (draft is None):
        raise InputError("--target and --draft go together")
    if settings.style == "block" and (names or target is not None or logits):
        raise InputError("--style block has chains of its own; leave out --input, --target and --logits")
    if (positions is not None or temperature is not None) and not logits:
        raise InputError("--positions and --temperature are for --logits")
    from resispec_verify.sampler_check.battery import Input, battery
    from resispec_verify.sampler_check.check import named_inputs

    found: list[Any] = named_inputs(names or [])
    if target is not None:
        from resispec_verify.cli.kl_settings import pair_by_hand

        pair = pair_by_hand(target, draft)
        found.append(Input("by hand", pair.target, pair.draft))
    if not logits:
        return found or None
    return [*(found or battery()), *_of_dumps(logits, positions, temperature)]


def _of_dumps(paths: list[Any], positions: str | None, temperature: float | None) -> list[Any]:
    from dataclasses import replace

    import numpy as np

    from resispec_verify.backends import get_backend
    from resispec_verify.cli.kl_settings import make_reading
    from resispec_verify.cli.output import open_dump
    from resispec_verify.sampler_check.battery import Input
    from resispec_verify.tables.reading import Clock, pairs_of

    temperatures = None if temperature is None else [temperature]
    reading = make_reading(
        temperatures, (None, None, None), (None, None, None), None, "float64", positions, None
    )
    found = []
    for path in paths:
        dump = open_dump(path)
        if positions is None:
            reading = replace(reading, stop=min(FIRST_POSITIONS, dump.positions))
        share = min(1.0, 64 / dump.vocab)
        for members in pairs_of(dump, reading, backend=get_backend("numpy"), clock=Clock()):
            laws = (np.asarray(members.pair.target), np.asarray(members.pair.draft))
            found += [
                Input(f"{path}, position {int(position)}", p, q, share)
                for position, p, q in zip(members.positions, *laws, strict=True)
            ]
    return found


def _print(sampler: str, result: CheckResult, again: str, console: Any) -> None:
    from resispec_verify.sampler_check.lines import lines

    console.print(f"{printable(sampler)}: ", end="", markup=False)
    console.print(result.verdict.replace("-", " "), style=COLOURS[result.verdict], end="")
    console.print(f" ({result.draws} draws, {result.seconds:.1f} s, stopped: {result.stopped})", markup=False)
    print_lines(console, [_printable(line) for line in lines(result)])
    if result.verdict == "rejected":
        print_lines(console, [_printable(again)])


def _printable(text: str) -> str:
    """On one line of a terminal, whatever a sampler's message holds."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _again(sampler: str, result: CheckResult, settings: CheckSettings, given: dict[str, Any]) -> str:
    """A command that leads to the same draws: on the pair that was rejected alone, where it is small."""
    witness = result.witness or {}
    if "target" in witness:
        given = {name: value for name, value in given.items() if name in ("--rule", "--no-boundary")}
        given |= {f"--{law}": ",".join(map(repr, witness[law])) for law in ("target", "draft")}
    given |= {
        f"--{name.replace('_', '-')}": getattr(settings, name)
        for name, default in (("style", "tokens"), ("candidates", 2), ("proposal", "iid"), ("alpha", 1e-9))
        if getattr(settings, name) != default
    }
    words = [PROGRAM, "check", sampler]
    for name, value in given.items():
        if value is True:
            words.append(name)
        elif isinstance(value, list):
            words += [word for one in value for word in (name, str(one))]
        elif value is not None and value is not False:
            words += [name, str(value)]
    return f"Again: {shlex.join([*words, '--seed', str(settings.seed)])}"
