"""`resispec-verify limits`: acceptance of every rule beside what no exact rule can exceed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from resispec_verify.backends import get_backend
from resispec_verify.cli.options.acceptance import AcceptanceOptions, demands_in_words, unmet
from resispec_verify.cli.options.group import check_range, refuse_without
from resispec_verify.cli.options.outputs import OutputOptions
from resispec_verify.cli.options.readings import ProposedReadingOptions
from resispec_verify.cli.options.sources import OpeningOptions, SourceOptions
from resispec_verify.cli.options.work import BackendOption, JobsOption, RuleOptions
from resispec_verify.cli.output import files_read
from resispec_verify.cli.over_dumps import finish, over_pairs
from resispec_verify.cli.parameters import Count, DumpFile
from resispec_verify.cli.top_files import all_top, closed_only, limits_of_top
from resispec_verify.dumps import open_dump as open_quietly
from resispec_verify.errors import InputError
from resispec_verify.report.answers import print_limits
from resispec_verify.report.table import print_lines
from resispec_verify.rules import RULES, Iid, Rule
from resispec_verify.tables.acceptance_band import expectation, prompts_of
from resispec_verify.tables.limits import add_limits, limit_records, limits_report
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import PairBatch
from resispec_verify.tables.row import Row
from resispec_verify.tables.synthetic_rates import of_conditional


@dataclass(frozen=True, kw_only=True)
class ExpectedOptions(AcceptanceOptions):
    """What is demanded of the acceptance, and where it goes.

    Attributes
    ----------
    draft_tokens
        For --acceptance-out: so many draft tokens a step, each with the mean acceptance of a position.
    """

    draft_tokens: Count | None = None

    def check(self, rule: Sequence[str] | None) -> None:
        """Refuse what would mean nothing."""
        super().check(rule)
        check_range(1, 1024, draft_tokens=self.draft_tokens)
        if self.acceptance_out is None:
            refuse_without("--acceptance-out", draft_tokens=self.draft_tokens)
        elif self.draft_tokens is None:
            raise InputError(
                "--acceptance-out: a flat dump does not say how many tokens are drafted; give --draft-tokens "
                "K, or record rounds or trees, in which every position has its own acceptance"
            )


def limits(
    *files: DumpFile,
    source: SourceOptions = SourceOptions(),
    rules: RuleOptions = RuleOptions(),
    reading: ProposedReadingOptions = ProposedReadingOptions(),
    backend: BackendOption = BackendOption(),
    run: JobsOption = JobsOption(),
    demands: ExpectedOptions = ExpectedOptions(),
    output: OutputOptions = OutputOptions(),
) -> int:
    """Acceptance of each rule beside the limits; a rule above the limit cannot be exact.

    Parameters
    ----------
    rules.rule
        A rule, with options of its own as in resispec:budget=floor, or FILE.py:NAME or package.module:NAME,
        whose code is executed; repeat for several.
        Default: all for independent candidates that need no enumeration, and resispec.
    """
    source = source.joined(files)
    output.check(files_read(source.paths), acceptance_out=demands.acceptance_out)
    demands.check(rules.rule)
    _check_demands(demands, source, rules)
    if all_top(source.paths):
        source.check("measure")
        closed_only(backend=None if backend.backend in ("auto", "numpy") else backend.backend)
        return limits_of_top(source, reading, _chosen(rules), rules.candidates, run.threads(), output)
    how, chosen = reading.reading(), _chosen(rules)
    jobs = run.threads()
    source.check("measure", reading, run)

    def add(rows: dict[Any, Row], batch: PairBatch) -> None:
        add_limits(rows, chosen, batch, rules.candidates)

    evaluation = Evaluation(chosen, rules.candidates)
    rows, failures = over_pairs(source, how, evaluation, add, get_backend(backend.backend), jobs)
    if rows:
        report = limits_report(rows)
        unit = _add_expected(report["results"], rows, demands, source) if demands.given else ""
        if demands.draft_tokens is not None:
            demands.write_rates([_rates(r, demands.draft_tokens) for r in report["results"]])
        console = output.write(report, lambda: limit_records(rows))
        print_limits(report["results"], console)
        print_lines(console, _inexact(rows))
        if demands.given:
            print_lines(console, [line for r in report["results"] for line in demands_in_words(r, unit)])
            return finish(failures, int(unmet(report["results"])))
    return finish(failures)


def _inexact(rows: Sequence[Row]) -> list[str]:
    """Name the rules that are not exact although nothing in the table shows it."""
    from resispec_verify.catalogue.measured import CATALOGUE, emits_another_law

    quiet = {row.rule.name: row for row in rows if not row.rule.changed_options()}
    for row in rows:
        if row.above_limit():
            quiet.pop(row.rule.name, None)
    ours = {name: row for name, row in quiet.items() if type(row.rule) is CATALOGUE.get(name)}
    names = [name for name, row in ours.items() if emits_another_law(name, row.candidates)]
    if not names:
        return []
    return [
        f"{', '.join(names)}: not exact, though not above the limit here: being below it proves nothing "
        "(measured by 'resispec-verify rules'; kl says what is emitted)"
    ]


def _check_demands(demands: ExpectedOptions, source: SourceOptions, rules: RuleOptions) -> None:
    """Refuse demands on what has no band, and counters that count something else."""
    if demands.given and source.by_hand:
        raise InputError("--min-acceptance and --drafted need dumps: one position by hand has no band")
    if (demands.given or demands.acceptance_out) and all_top(source.paths):
        raise InputError("demands on the acceptance need whole rows, and these files list the top tokens")
    for rule in _chosen(rules) if demands.drafted is not None or demands.acceptance_out else ():
        if rule.verifiable(rules.candidates) != 1:
            raise InputError(
                f"--drafted and --acceptance-out are about single draft tokens, and {rule.name} gets "
                f"{rule.verifiable(rules.candidates)} candidates; give --candidates 1"
            )


def _rates(result: dict[str, Any], tokens: int) -> tuple[list[float], dict[str, Any]]:
    """Rates by position if every token is accepted like a position on average; what they were measured on."""
    named = ("label", "temperature", "positions")
    assumed = "every draft token is accepted with the mean acceptance of a position, whatever came before it"
    facts = {name: result[name] for name in named} | {"assumes": assumed}
    return of_conditional([result["acceptance_mean"]] * tokens), facts


def _add_expected(
    results: list[dict[str, Any]], rows: list[Row], demands: ExpectedOptions, opening: OpeningOptions
) -> str:
    """Add what is expected to each result; what is independent, in words."""
    prompts = {
        path: prompts_of(open_quietly(Path(path), pad_vocab=opening.pad_vocab, shards=opening.shards))
        for path in dict.fromkeys(rows[0].source)
    }
    for result, row in zip(results, rows, strict=True):
        clusters = []
        for path, position in zip(row.source, row.position, strict=True):
            known = prompts[path]
            clusters.append((path, "position", position) if known is None else ("prompt", known[position]))
        low, high = zip(*row.certified_acceptance(), strict=True)
        result["expected"] = expectation(demands.demand(1), low, high, clusters)
    if all(known is not None for known in prompts.values()):
        return "prompts"
    return "positions, taken as independent (which are of one prompt is not known)"


def _chosen(options: RuleOptions) -> tuple[Rule, ...]:
    """The rules that were named; by default those that need no enumeration."""
    if options.rule:
        return options.chosen()
    # Candidates that must differ can run out at any position, which would end a run nobody asked them of.
    cheap = [
        name
        for name, rule in RULES.items()
        if isinstance(rule.proposal, Iid)
        and (name == "resispec" or rule.depends_on in ("nothing", "tuple"))
        and rule.least_candidates <= options.candidates
    ]
    return replace(options, rule=cheap).chosen()
