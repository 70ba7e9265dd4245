"""`resispec-verify check`: somebody's sampler against the target, statistically."""

import shlex
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from resispec_verify.cli import check_apart
from resispec_verify.cli.options.group import PROGRAM, Options, defaults_of, values_of, words_of
from resispec_verify.cli.options.outputs import CaseOptions, JsonOption
from resispec_verify.cli.options.readings import TemperatureOption
from resispec_verify.cli.options.sources import DumpOptions, HandOptions
from resispec_verify.cli.output import files_read, open_dump
from resispec_verify.cli.parameters import Count, Flag, Names, Number, Text
from resispec_verify.dumps import FlatDump
from resispec_verify.errors import InputError
from resispec_verify.report.answers import check_cases, print_check
from resispec_verify.report.table import print_lines, printable
from resispec_verify.sampler_check.battery import Input
from resispec_verify.sampler_check.settings import DRAWS, CheckSettings, check_report
from resispec_verify.sampler_check.sources.styles import STYLES, inputs_of, inputs_of_witness, named_inputs
from resispec_verify.tables.reading import Reading, pairs_of, resolved

# Of a dump, unless --positions says which.
FIRST_POSITIONS = 4
# Options on which draws depend, besides the seed; and those that only say where pairs come from.
AGAIN = (
    "rule", "ragged", "stop", "input", "target", "draft", "logits", "positions", "only_logits", "temperature",
    "draws", "no_search", "no_boundary", "fail_ends", "style", "candidates", "proposal", "flat", "uniforms",
    "give", "dtype", "offset", "arrays", "alpha",
)  # fmt: skip
OF_DUMPS = ("target", "draft", "logits", "positions", "only_logits", "temperature")
OF_INPUTS = ("ragged", "input", "logits", "positions", "only_logits", "temperature", "draws")


@dataclass(frozen=True, kw_only=True)
class CallOptions(Options):
    """How a sampler is called.

    Attributes
    ----------
    style
        How it is called: tokens, sampler(target, draft, rng); candidates, sampler(target, draft, candidates,
        rng); uniforms, the same with uniforms for rng; block, sampler(targets, drafts, path, rng); tree,
        sampler(targets, drafts, tokens, parents, rng); text, sampler(target, draft, prompt, length, rng).
    candidates
        Candidates a row, for --style candidates and uniforms.
    proposal
        How candidates are drawn from the draft: --style candidates, uniforms and tree; beams for tree only.
    rule
        The rule whose acceptance a reported acceptance is compared with.
    ragged
        For --style block: also paths of different lengths, padded with -1.
    stop
        For --style block: also paths that this draft-length policy cuts first; path/to/file.py:NAME, a
        StopPolicy. Its code is executed.
    flat
        For --style block: rows one after the other, with cumulative lengths, instead of padding.
    uniforms
        For --style block and tree: uniforms (rows, candidates + 1) in place of rng.
    give
        What laws are handed over as; the logarithm of 0 is minus infinity.
    dtype
        Of the laws that are handed over; the law of the rounded numbers is what is tested.
    offset
        Reserve tokens 0 to offset - 1: probability 0, and all others come after them.
    arrays
        Whose arrays are handed over, and on which device they are.
    """

    style: Literal["tokens", "candidates", "uniforms", "block", "tree", "text"] = "tokens"
    candidates: Count = 2
    proposal: Literal["iid", "without-replacement", "top", "beams"] = "iid"
    rule: Text | None = None
    ragged: Flag = False
    stop: Text | None = None
    flat: Flag = False
    uniforms: Flag = False
    give: Literal["probabilities", "logits", "log-probabilities"] = "probabilities"
    dtype: Literal["float64", "float32", "float16"] = "float64"
    offset: Count = 0
    arrays: Literal["numpy", "torch", "torch:cuda", "cupy"] = "numpy"


@dataclass(frozen=True, kw_only=True)
class PairOptions(TemperatureOption, DumpOptions, HandOptions):
    """The pairs of laws on which it is checked.

    Attributes
    ----------
    target
        Target probabilities by hand, "0.5,0.3,0.2", instead of the battery and the search.
    logits
        Also the positions of these dumps.
    temperature
        For --logits: sampling temperature.
    """

    input: Names | None = None
    """Only this input of the style's fixed battery, and no search; repeat for several. Default: all."""
    positions: Text | None = None
    """Range A:B of positions of a dump, 0-based, B excluded. Default: the first four."""
    only_logits: Flag = False
    """Only positions of dumps, each with all draws: no battery and no search."""

    def inputs(self, style: str) -> list[Any] | None:
        """Inputs by name, by hand, and of dumps; None for the whole battery."""
        if (self.target is None) != (self.draft is None):
            raise InputError("--target and --draft go together; give both")
        if STYLES[style].takes is not Input and (self.by_hand or self.logits):
            raise InputError(
                f"--style {style} is checked on inputs of several positions; leave out --target and --logits"
            )
        if (self.positions is not None or self.temperature is not None) and not self.logits:
            raise InputError(
                "--positions and --temperature are for dumps; give --logits DUMP, or leave them out"
            )
        if self.only_logits and not self.logits:
            raise InputError(
                "--only-logits leaves only positions of dumps, and no dump is given; give --logits DUMP"
            )
        if self.only_logits and (self.input or self.by_hand):
            raise InputError(
                "--only-logits leaves all other inputs out; leave out --input, --target and --draft"
            )
        found = named_inputs(self.input or [], style)
        if self.by_hand:
            pair = self.pair()
            found.append(Input("by hand", pair.target, pair.draft))
        if not self.logits:
            return found or None
        if not self.only_logits:
            found = found or [*inputs_of(style)]
        reading = self.reading(None, self.positions)
        for path in self.paths:
            dump = open_dump(path)
            if self.positions is None:
                reading = replace(reading, stop=min(FIRST_POSITIONS, dump.positions))
            found += _of_dump(dump, _of_logits(dump, reading), self.only_logits)
        return found


@dataclass(frozen=True, kw_only=True)
class EffortOptions(Options):
    """How sure, and for how long."""

    alpha: Number = 1e-9
    """Probability that a lossless sampler is rejected, in the whole run."""
    power: Number = 0.99
    """With which the TV that is stated would have been found."""
    draws: Count | None = None
    """Draws a pair at most (1048576; less for wide ones)."""
    seconds: Number = 600.0
    """Stop after this long."""
    call_seconds: Number = 60.0
    """A call that takes longer is an error."""
    no_search: Flag = False
    """Do not search for the worst pair for this sampler."""
    search: Flag = False
    """Search for it also with --input, or --target and --draft, which are else all that is tried."""
    no_boundary: Flag = False
    """Do not try uniforms at their ends, 0 and the largest below 1."""
    fail_ends: Literal["all", "float32", "none"] = "all"
    """Faults at an end that fail a run: all; float32, those seen once in 2**25 draws or oftener; none."""
    seed: Count = 0
    """Of all draws."""

    def searching(self, pairs: PairOptions) -> bool:
        """Whether the worst pair is searched for: not where inputs are chosen, unless it is asked for."""
        if self.search and (self.no_search or pairs.only_logits):
            raise InputError("--search is excluded by --no-search and --only-logits; leave one of them out")
        chosen = pairs.input or pairs.by_hand or pairs.only_logits
        return self.search or not (self.no_search or chosen)


def check(
    sampler: Text,
    /,
    *,
    call: CallOptions = CallOptions(),
    pairs: PairOptions = PairOptions(),
    effort: EffortOptions = EffortOptions(),
    output: JsonOption = JsonOption(),
    ci: CaseOptions = CaseOptions(),
) -> int:
    """Is a sampler lossless? Draws from it, tested at a stated error rate; "not rejected" is no proof.

    Exit status: 0 not rejected; 1 rejected, or the sampler failed; 2 bad usage.

    Parameters
    ----------
    sampler
        FILE.py:NAME, package.module:NAME, or "cmd:PROGRAM ARGUMENTS". Its code is executed.
    """
    output.check(files_read(pairs.paths), junit=ci.file())
    if call.stop is not None and call.style != "block":
        raise InputError(f"--stop is for --style block, whose paths it cuts, not for {call.style}")
    settings = CheckSettings(
        style=call.style, candidates=call.candidates, proposal=call.proposal, ragged=call.ragged,
        flat=call.flat, uniforms=call.uniforms, give=call.give, dtype=call.dtype, offset=call.offset,
        arrays=call.arrays,
        alpha=effort.alpha, power=effort.power, draws=DRAWS if effort.draws is None else effort.draws,
        seconds=effort.seconds, call_seconds=effort.call_seconds,
        search=effort.searching(pairs), boundary=not effort.no_boundary,
        fail_ends=effort.fail_ends, seed=effort.seed,
    )  # fmt: skip
    result = check_apart.run_apart(
        check_apart.SamplerJob(sampler, settings, call.rule, call.stop, pairs.inputs(call.style))
    )
    console = output.write(check_report(sampler, call.style, result))
    print_check(sampler, result, console)
    if result.verdict == "rejected":
        again = _again(sampler, result.witness or {}, call, pairs, effort)
        print_lines(console, [printable(again, None)])
    return ci.tell("check", check_cases(sampler, result))


def _of_dump(dump: FlatDump, reading: Reading, alone: bool) -> list[Input]:
    """The pairs of a dump, each with fewer draws the wider it is, unless there are no others."""
    share = 1.0 if alone else min(1.0, 64 / dump.vocab)
    return [
        Input(f"{dump.path}, position {int(position)}", np.asarray(p), np.asarray(q), share)
        for members in pairs_of(dump, reading)
        for position, p, q in zip(members.positions, members.pair.target, members.pair.draft, strict=True)
    ]


def _of_logits(dump: FlatDump, reading: Reading) -> Reading:
    """The reading of logits. The refusal of other rows names an option that is another one here."""
    try:
        return resolved(dump, reading)
    except InputError as error:
        found = str(error).rpartition("; ")[0]
        raise InputError(
            f"{found}; check --logits takes logits only: save the logarithms of probabilities, and say "
            "--temperature 1 if they have their temperature already"
        ) from None


def _again(sampler: str, witness: dict[str, Any], *groups: Options) -> str:
    """A command that leads to a rejection again: on the input that was rejected alone, where it has a name or
    is small; else by the whole run.
    """
    values, names, what = values_of(*groups), AGAIN, "Again"
    if "target" in witness:
        values |= {law: ",".join(map(repr, witness[law])) for law in ("target", "draft")}
        names = tuple(name for name in AGAIN if name not in OF_INPUTS)
    elif (alone := inputs_of_witness(witness, values["style"])) is not None:
        values["input"] = alone
        names = tuple(name for name in AGAIN if name not in OF_DUMPS)
    else:
        what = "Again, the whole run"
    words = words_of({name: values[name] for name in names}, defaults_of(*groups))
    return f"{what}: {shlex.join([PROGRAM, 'check', sampler, *words, '--seed', str(values['seed'])])}"
