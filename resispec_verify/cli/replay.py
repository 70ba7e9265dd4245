"""`resispec-verify replay`: recompute what an engine decided in logged rounds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from resispec_verify.cli.options.group import Options
from resispec_verify.cli.options.outputs import OutputOptions
from resispec_verify.cli.options.readings import InputOption, OneSamplingOptions
from resispec_verify.cli.options.sources import DumpOptions
from resispec_verify.cli.output import progress
from resispec_verify.cli.over_dumps import finish, over_dumps
from resispec_verify.cli.parameters import Counts, DumpFile, Flag, Names, Number
from resispec_verify.errors import InputError
from resispec_verify.logged.other_history import with_other_history
from resispec_verify.logged.replay import Replay, replayable
from resispec_verify.logged.replay import replay as replay_rounds
from resispec_verify.logged.replay_summary import check_records, replay_report
from resispec_verify.logged.rounds_input import read_rounds
from resispec_verify.report.answers import print_replay
from resispec_verify.rules import Block, Rule
from resispec_verify.rules.spec import parse_any_rule


@dataclass(frozen=True, kw_only=True)
class LoggedOptions(InputOption, OneSamplingOptions):
    """What was logged, and how it was sampled."""

    eos: Counts | None = None
    """Token that ends a text; repeat for several. Default: what meta["eos_token_id"] says."""
    no_uniforms: Flag = False
    """Ignore logged uniforms: test only rates, and laws of drawn tokens."""
    history: Literal["token", "block-start"] | None = None
    """What penalties at a drafted token have seen: those drafted before it, or only what preceded the block.
    Default: what the dump states, or else as the engine's order has it."""

    def given(self) -> dict[str, Any]:
        """What replaces what the dump states."""
        return super().given() | ({} if self.history is None else {"history": self.history})


@dataclass(frozen=True, kw_only=True)
class AgreementOptions(Options):
    """How sure the tests are to be, and what the exit status is to say.

    Attributes
    ----------
    alpha
        Level of all statistical tests together.
    require_agreement
        Exit with 1 on any divergence, where a test rejects (acceptance rates, drawn tokens, repeated
        uniforms), and where output_tokens are not what the rounds emitted.
    """

    alpha: Number = 1e-6
    require_agreement: Flag = False


def replay(
    *files: DumpFile,
    dumps: DumpOptions = DumpOptions(),
    rule: Names | None = None,
    logged: LoggedOptions = LoggedOptions(),
    demand: AgreementOptions = AgreementOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Recompute every logged accept or reject decision of real rounds; the first divergence, with numbers.

    Parameters
    ----------
    dumps.logits
        One or more dumps of rounds.
    rule
        The rule the engine should follow; repeat for several; block for block verification. Default:
        speculative.
    output.csv
        Write one line a recomputed decision here.
    """
    paths = dumps.joined(files).paths
    if not paths:
        raise InputError("nothing to replay: give --logits PATH...")
    output.check(paths)
    if not 0 < demand.alpha < 1:
        raise InputError(f"--alpha must be in (0, 1), got {demand.alpha:g}")
    names, sampling = rule or ["speculative"], logged.given()
    rules = list(dict.fromkeys(replayable(parse_any_rule(name), f"--rule {name}") for name in names))
    if logged.eos and min(logged.eos) < 0:
        raise InputError(f"--eos must be a token id, got {min(logged.eos)}")
    found, failures = over_dumps(
        paths, lambda path: _replayed(path, rules, logged, sampling, demand.alpha), "rounds"
    )
    results = [result for of_dump in found for result in of_dump]
    report = replay_report(results, demand.alpha)
    rows = report["results"]
    if rows:
        console = output.write(report, lambda: list(check_records(results)))
        for row in rows:
            print_replay(row, console)
    return finish(failures, int(demand.require_agreement and any(map(_differs, rows))))


def _differs(row: dict[str, Any]) -> bool:
    """Whether anything speaks against agreement."""
    rejected = row["statistics"]["verdict"] == "rejected"
    return bool(row["divergences"]) or rejected or row["output_differs_at"] is not None


def _replayed(
    path: Path, rules: list[Rule | Block], logged: LoggedOptions, sampling: dict[str, Any], alpha: float
) -> list[Replay]:
    """One file, by each rule."""
    rounds = read_rounds(path, kind=logged.input, stops=logged.eos or [], options=sampling)
    uniforms = not logged.no_uniforms
    with progress(rounds.path, len(rounds.rounds) * len(rules)) as advance:
        found = [replay_rounds(rounds, rule, sampling, uniforms=uniforms, advance=advance) for rule in rules]
    return [with_other_history(result, sampling, uniforms=uniforms, alpha=alpha) for result in found]
