"""`resispec-verify replay`: recompute what an engine decided in logged rounds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from resispec_verify.cli.options.acceptance import RatesOption
from resispec_verify.cli.options.group import Options, refuse_beside, refuse_without
from resispec_verify.cli.options.outputs import CaseOptions, OutputOptions
from resispec_verify.cli.options.readings import InputOption, OneSamplingOptions
from resispec_verify.cli.options.sources import DumpOptions
from resispec_verify.cli.output import progress
from resispec_verify.cli.over_dumps import finish, over_dumps
from resispec_verify.cli.parameters import Counts, DumpFile, Flag, Names, Number, Text
from resispec_verify.cli.user_rules import any_rule
from resispec_verify.errors import InputError
from resispec_verify.logged.other_history import with_other_history
from resispec_verify.logged.replay import Replay, replayable
from resispec_verify.logged.replay_summary import check_records, replay_report
from resispec_verify.logged.scalars.acceptance import acceptance_of
from resispec_verify.logged.scalars.lines import is_scalar_log
from resispec_verify.logged.scalars.replay import ScalarReplay, replay_scalars
from resispec_verify.logged.scalars.summary import differing_records, scalar_report
from resispec_verify.logged.seeded import with_seeded_uniforms
from resispec_verify.logged.tree_input import read_any_rounds
from resispec_verify.logged.tree_replay import replay_any
from resispec_verify.report.answers import print_replay
from resispec_verify.report.demands import replay_cases
from resispec_verify.report.scalars import print_scalars
from resispec_verify.rules import Block, PathRule, Rule
from resispec_verify.tables.synthetic_rates import of_conditional


@dataclass(frozen=True, kw_only=True)
class LoggedOptions(InputOption, OneSamplingOptions):
    """What was logged, and how it was sampled."""

    eos: Counts | None = None
    """Token that ends a text; repeat for several. Default: what meta["eos_token_id"] says."""
    no_uniforms: Flag = False
    """Ignore logged uniforms: test only rates, and laws of drawn tokens."""
    uniforms: Literal["vllm", "sglang"] | None = None
    """Recompute uniforms that were not logged, as this engine draws them from seed and position."""
    history: Literal["token", "block-start"] | None = None
    """What penalties at a drafted token have seen: those drafted before it, or only what preceded the block.
    Default: what the dump states, or else as the engine's order has it."""

    def given(self) -> dict[str, Any]:
        """What replaces what the dump states."""
        return super().given() | ({} if self.history is None else {"history": self.history})


@dataclass(frozen=True, kw_only=True)
class FormOptions(Options):
    """What kind of log it is."""

    form: Literal["rounds", "scalars"] | None = None
    """rounds with whole rows, or scalars: one line a decision, JSON lines or CSV. Default: by the file."""
    precision: Text | None = None
    """What p, q and u of scalars were rounded to: float32, float16, bfloat16 or a number of decimals.
    Default: the coarsest that all of them lie on."""


@dataclass(frozen=True, kw_only=True)
class AgreementOptions(CaseOptions):
    """How sure the tests are to be, and what the exit status is to say.

    Attributes
    ----------
    alpha
        Level of all statistical tests together.
    require_agreement
        Exit with 1 on any divergence, where a test rejects (acceptance rates, drawn tokens, repeated
        uniforms), where output_tokens are not what the rounds emitted, and where reported
        log-probabilities are not the tokens' own.
    """

    alpha: Number = 1e-6
    require_agreement: Flag = False

    def judged(self, rows: list[dict[str, Any]], failures: list[str]) -> int:
        """Say whether the results meet the demand; the exit status."""
        cases = replay_cases(rows, require_agreement=self.require_agreement)
        return self.tell("replay", cases, failures)


def replay(
    *files: DumpFile,
    dumps: DumpOptions = DumpOptions(),
    rule: Names | None = None,
    logged: LoggedOptions = LoggedOptions(),
    form: FormOptions = FormOptions(),
    demand: AgreementOptions = AgreementOptions(),
    rates: RatesOption = RatesOption(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Recompute every logged accept or reject decision of real rounds; the first divergence, with numbers.

    Parameters
    ----------
    dumps.logits
        The same as FILE: dumps of rounds, or scalar logs.
    rule
        The rule the engine should follow; repeat for several; block for block verification; FILE.py:NAME or
        package.module:NAME, whose code is executed. Default: speculative.
    output.csv
        Write one line a recomputed decision here; of scalars only those that differ, the first 1000.
    """
    paths = dumps.joined(files).paths
    if not paths:
        raise InputError("nothing to replay: give FILE..., logged rounds")
    output.check(paths, junit=demand.file(), acceptance_out=rates.acceptance_out)
    rates.check_rates()
    if not 0 < demand.alpha < 1:
        raise InputError(f"--alpha must be in (0, 1), got {demand.alpha:g}")
    if logged.uniforms and logged.no_uniforms:
        raise InputError("give --uniforms or --no-uniforms, not both")
    named = {name: any_rule(name) for name in rule or ["speculative"]}
    if _scalars(paths, form.form):
        refuse_beside("scalar logs, of which no round is whole", acceptance_out=rates.acceptance_out)
        return _replay_scalars(paths, named, logged, form, demand, output)
    refuse_without("--form scalars", precision=form.precision)
    sampling = logged.given()
    rules = list(dict.fromkeys(replayable(one, f"--rule {name}") for name, one in named.items()))
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
        if rates.acceptance_out:
            rates.write_rates([_rates(row, result) for row, result in zip(rows, results, strict=True)])
        for row in rows:
            print_replay(row, console)
    return finish(failures, demand.judged(rows, failures))


def _rates(row: dict[str, Any], result: Replay) -> tuple[list[float], dict[str, Any]]:
    """Rates by position in the round, and what they were measured on."""
    if row["candidates"] != 1 or isinstance(result.rule, Block):
        raise InputError(
            f"{row['path']}: --acceptance-out is of rounds that are verified token by token, by "
            "--rule speculative; for trees and blocks give tree length a tree dump"
        )
    entries = row["acceptance_by_position"]
    if len(entries) < result.rounds.longest:
        raise InputError(
            f"{row['path']}: --acceptance-out: rounds draft {result.rounds.longest} tokens, and no round got "
            f"as far as token {len(entries) + 1}; log more rounds"
        )
    given = [entry["expected"] / entry["reached"] for entry in entries]
    counted = [entry["accepted"] / entry["reached"] for entry in entries]
    facts = {name: row[name] for name in ("label", "temperature", "rounds")}
    return of_conditional(given), facts | {"counted_unconditional_rates": of_conditional(counted)}


def _scalars(paths: list[Path], form: str | None) -> bool:
    """Whether all files are scalar logs; both kinds at once are refused."""
    if form is not None:
        return form == "scalars"
    kinds = [path.exists() and is_scalar_log(path) for path in paths]
    if len(set(kinds)) > 1:
        odd = paths[kinds.index(not kinds[0])]
        raise InputError(f"{odd}: scalar logs and rounds are replayed one kind at a time; leave one kind out")
    return kinds[0]


def _replay_scalars(
    paths: list[Path],
    named: dict[str, Rule | PathRule],
    logged: LoggedOptions,
    form: FormOptions,
    demand: AgreementOptions,
    output: OutputOptions,
) -> int:
    """The whole command on scalar logs."""
    filters = {
        key: getattr(logged, key)
        for key in ("temperature", "top_k", "top_p", "min_p", "input", "eos", "uniforms", "history")
    }
    refuse_beside("a scalar log, which holds what was compared", **filters)
    rules = {name: acceptance_of(one, f"--rule {name}") for name, one in named.items()}

    def replayed(path: Path) -> list[ScalarReplay]:
        options = {"alpha": demand.alpha, "uniforms": not logged.no_uniforms, "precision": form.precision}
        with progress(str(path), None) as advance:
            return [
                replay_scalars(path, name, rule, advance=advance, **options) for name, rule in rules.items()
            ]

    found, failures = over_dumps(paths, replayed, "decisions")
    results = [result for of_log in found for result in of_log]
    report = scalar_report(results)
    if results:
        console = output.write(report, lambda: list(differing_records(results)))
        for row in report["results"]:
            print_scalars(row, console)
    return finish(failures, demand.judged(report["results"], failures))


def _replayed(
    path: Path, rules: list[Rule | Block], logged: LoggedOptions, sampling: dict[str, Any], alpha: float
) -> list[Replay]:
    """One file, by each rule."""
    rounds = read_any_rounds(path, kind=logged.input, stops=logged.eos or [], options=sampling)
    uniforms = not logged.no_uniforms
    scheme = logged.uniforms
    with progress(rounds.path, len(rounds.rounds) * len(rules)) as advance:
        found = [
            replay_any(
                rounds if scheme is None else with_seeded_uniforms(rounds, rule, scheme),
                rule, sampling, uniforms=uniforms, advance=advance,
            )
            for rule in rules
        ]  # fmt: skip
    return [with_other_history(result, sampling, uniforms=uniforms, alpha=alpha) for result in found]
