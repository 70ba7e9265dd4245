"""`resispec-verify replay`: recompute what an engine decided in logged rounds."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resispec_verify.cli.options.group import Options
from resispec_verify.cli.options.outputs import OutputOptions
from resispec_verify.cli.options.readings import InputOption, OneSamplingOptions
from resispec_verify.cli.options.sources import DumpOptions
from resispec_verify.cli.output import print_lines, printable, progress
from resispec_verify.cli.over_dumps import finish, over_dumps
from resispec_verify.cli.parameters import Counts, DumpFile, Flag, Names, Number
from resispec_verify.errors import InputError
from resispec_verify.logged.replay import Replay
from resispec_verify.logged.replay import replay as replay_rounds
from resispec_verify.logged.replay_summary import check_records, replay_report
from resispec_verify.logged.rounds_input import read_rounds
from resispec_verify.rules import Block, Rule
from resispec_verify.rules.spec import parse_any_rule


@dataclass(frozen=True, kw_only=True)
class LoggedOptions(InputOption, OneSamplingOptions):
    """What was logged, and how it was sampled.

    Attributes
    ----------
    eos
        Token that ends a text; repeat for several. Default: what meta["eos_token_id"] says.
    no_uniforms
        Ignore logged uniforms: test only rates, and laws of drawn tokens.
    """

    eos: Counts | None = None
    no_uniforms: Flag = False


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
    rules, sampling = _rules(rule or ["speculative"]), logged.given()
    if logged.eos and min(logged.eos) < 0:
        raise InputError(f"--eos must be a token id, got {min(logged.eos)}")
    found, failures = over_dumps(paths, lambda path: _replayed(path, rules, logged, sampling), "rounds")
    results = [result for of_dump in found for result in of_dump]
    report = replay_report(results, demand.alpha)
    rows = report["results"]
    if rows:
        console = output.write(report, lambda: list(check_records(results)))
        for row in rows:
            print_lines(console, _lines(row))
    return finish(failures, int(demand.require_agreement and any(map(_differs, rows))))


def _differs(row: dict[str, Any]) -> bool:
    """Whether anything speaks against agreement."""
    rejected = row["statistics"]["verdict"] == "rejected"
    return bool(row["divergences"]) or rejected or row["output_differs_at"] is not None


def _rules(names: list[str]) -> list[Rule | Block]:
    rules: list[Rule | Block] = []
    for name in names:
        rule = parse_any_rule(name)
        if not isinstance(rule, (Rule, Block)):
            raise InputError(f"--rule {name}: replay knows of the rules for paths only block")
        if isinstance(rule, Rule) and (rule.depends_on == "tuple" or rule.least_candidates > 1):
            raise InputError(
                f"--rule {name}: decides about several candidates of one position at once; replay needs a "
                "rule that verifies one draft token a position, such as speculative, or block"
            )
        rules += [] if rule in rules else [rule]
    return rules


def _replayed(
    path: Path, rules: list[Rule | Block], logged: LoggedOptions, sampling: dict[str, Any]
) -> list[Replay]:
    """One file, by each rule."""
    rounds = read_rounds(path, kind=logged.input, stops=logged.eos or [], options=sampling)
    uniforms = not logged.no_uniforms
    with progress(rounds.path, len(rounds.rounds) * len(rules)) as advance:
        return [replay_rounds(rounds, rule, sampling, uniforms=uniforms, advance=advance) for rule in rules]


def _lines(row: dict[str, Any]) -> list[str]:
    """What a reader needs of one row, in words and one small table."""
    temperature = "by round" if row["temperature"] is None else f"{row['temperature']:g}"
    lines = [
        f"{row['path']}: {row['rounds']} rounds, rule {row['rule']}, T = {temperature}",
        f"  tokens: {row['tokens_emitted']}, {row['tokens_per_round']:.4g} a round"
        + (f"; the output of {row['rounds_cut']} rounds was cut" if row["rounds_cut"] else ""),
        _decisions_in_words(row),
        f"  next tokens: {row['next_tokens_possible']} of {row['next_tokens']} possible"
        + (f", {row['next_tokens_redrawn']} of them redrawn exactly" if row["next_tokens_redrawn"] else ""),
    ]
    if first := row["first_divergence"]:
        lines.append(f"  divergences: {row['divergences']}; the first: {_divergence_in_words(first)}")
    if row["acceptance_by_position"]:
        lines += _position_lines(row)
    tests = (row["draft_token_test"], *row["next_token_tests"])
    lines += [_draws_in_words(test) for test in tests if test]
    statistics = row["statistics"]
    lines.append(f"  acceptance rates: {row['acceptance_verdict']}")
    lines.append(
        f"  together: {statistics['verdict']} at alpha {statistics['alpha']:g} over "
        f"{statistics['tests']} tests"
        + ("; that proves nothing exact" if statistics["verdict"] == "not-rejected" else "")
    )
    if row["undraftable_tokens"]:
        lines.append(
            f"  {row['undraftable_tokens']} draft tokens cannot come from the declared draft, whatever "
            "rounding did: they were drawn from something else"
        )
    if row["repeated_uniforms"]:
        chance = row["repeated_uniforms_p_value"]
        lines.append(f"  {row['repeated_uniforms']} rounds repeat the uniforms of an earlier round"
                     + ("" if chance is None else f", p-value {chance:.2g}"))  # fmt: skip
    return [*lines, *(f"  {printable(note)}" for note in row["notes"]), ""]


def _decisions_in_words(row: dict[str, Any]) -> str:
    if not row["decisions"]:
        return "  decisions: not replayed, there are no uniforms"
    text = f"  decisions: {row['agree']} of {row['decisions']} agree"
    if row["near_ties"]:
        text += (
            f"; within the rounding of {row['dtype']} logits: {row['near_ties']}, of which "
            f"{row['near_ties_differing']} went the other way"
        )
    return text


def _draws_in_words(test: dict[str, Any]) -> str:
    """One line on the law of the draft, residual or bonus draws."""
    text = f"  {test['kind']} draws: {test['draws']}, {test['verdict']}, p-value {test['p_value']:.2g}"
    if test["impossible"]:
        return text + f": {test['impossible']} of them impossible"
    if test["verdict"] == "rejected":
        return text + f" after {test['found_after']}; most like: {test['looks_like']}"
    if test["detectable_tv"] >= 1:
        return text + "; too few to exclude any law"
    return text + f"; a TV of {test['detectable_tv']:.2f} would have been found"


def _divergence_in_words(first: dict[str, Any]) -> str:
    def shown(name: str) -> str:
        value = first[name]
        return "none" if value is None else value if isinstance(value, str) else f"{value:.6g}"

    where = f"round {first['round']}, index {first['index']}, token {first['token']}"
    if first["kind"] != "acceptance":
        source = "residual" if first["kind"] == "residual" else "target"
        drawn = "" if first["u"] is None else f", its uniform {shown('u')} draws {first['recomputed']}"
        return f"{where} cannot come from the {source} (p = {shown('p')}, q = {shown('q')}){drawn}"
    margin = "" if first["margin"] is None else (
        f"; margin {shown('margin')}, rounding allows {shown('allowance')}"
    )  # fmt: skip
    return (
        f"{where}: p = {shown('p')}, q = {shown('q')}, p/q = {shown('ratio')}, u = {shown('u')}: logged "
        f"{first['logged']}, recomputed {first['recomputed']}{margin}"
    )


def _position_lines(row: dict[str, Any]) -> list[str]:
    """Acceptances by position beside their expectation, in 75 columns.

    The p-values are those the verdict uses, which hold for one continued text; --json has the exact ones too.
    """
    lines = ["  position  reached  accepted  expected  p-value   over drafts  p-value"]
    for entry in row["acceptance_by_position"]:
        over, p = entry["expected_over_drafts"], entry["p_value_sequential_over_drafts"]
        tail = "          -        -" if over is None else f"{over:11.2f}  {p:7.2g}"
        lines.append(
            f"  {entry['position']:8d}  {entry['reached']:7d}  {entry['accepted']:8d}  "
            f"{entry['expected']:8.2f}  {entry['p_value_sequential']:7.2g}   {tail}"
        )
    return lines
