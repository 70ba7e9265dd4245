"""`resispec-verify replay`: recompute what an engine decided in logged rounds."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Literal

from resispec_verify.cli.output import (
    check_writable,
    print_lines,
    printable,
    progress,
    table_console,
    write_csv,
    write_json,
)
from resispec_verify.cli.parameters import Count, Counts, File, Files, Flag, Names, Number
from resispec_verify.errors import InputError

if TYPE_CHECKING:
    from resispec_verify.logged.replay import Replay
    from resispec_verify.rules import Block, Rule

__all__ = ["replay"]


def replay(
    *,
    logits: Files | None = None,
    rule: Names | None = None,
    temperature: Number | None = None,
    top_k: Count | None = None,
    top_p: Number | None = None,
    min_p: Number | None = None,
    input: Literal["logits", "probabilities", "log-probabilities"] | None = None,
    eos: Counts | None = None,
    no_uniforms: Flag = False,
    alpha: Number = 1e-6,
    json: File | None = None,
    csv: File | None = None,
    require_agreement: Flag = False,
) -> int:
    """Recompute every logged accept or reject decision of real rounds; the first divergence, with numbers.

    Parameters
    ----------
    logits
        One or more dumps of rounds.
    rule
        The rule the engine should follow; repeat for several; block for block verification. Default:
        speculative.
    temperature
        Sampling temperature. Default: what the dump states, or else 1.
    top_k
        Keep the k most probable tokens, in target and draft. Default: what the dump states.
    top_p
        Nucleus filter, in target and draft. Default: what the dump states.
    min_p
        Drop tokens below this fraction of the most probable one. Default: what the dump states.
    input
        What the rows are. Default: logits, refused where they look like probabilities.
    eos
        Token that ends a text; repeat for several. Default: what meta["eos_token_id"] says.
    no_uniforms
        Ignore logged uniforms: test only rates, and laws of drawn tokens.
    alpha
        Level of all statistical tests together.
    json
        Write the report here ("-": standard output).
    csv
        Write one line a recomputed decision here.
    require_agreement
        Exit with 1 on any divergence, where a test rejects (acceptance rates, drawn tokens, repeated
        uniforms), and where output_tokens are not what the rounds emitted.
    """
    from resispec_verify.logged.replay_summary import check_records, replay_report

    if not logits:
        raise InputError("nothing to replay: give --logits PATH...")
    check_writable(json=json, csv=csv, inputs=logits)
    if not 0 < alpha < 1:
        raise InputError(f"--alpha must be in (0, 1), got {alpha:g}")
    rules = _rules(rule or ["speculative"])
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    options = {key: value for key, value in given.items() if value is not None}
    _check_sampling(options)
    if eos and min(eos) < 0:
        raise InputError(f"--eos must be a token id, got {min(eos)}")
    results, failures = _from_dumps(logits, rules, options, not no_uniforms, input, eos or [])
    report = replay_report(results, alpha)
    rows = report["results"]
    if rows:
        write_json(json, report)
        write_csv(csv, list(check_records(results)))
        for row in rows:
            print_lines(table_console(json, csv), _lines(row))
    for failure in failures:
        print(f"resispec-verify: error: {failure}", file=sys.stderr)
    if failures:
        return 2
    unmet = any(
        row["divergences"]
        or row["statistics"]["verdict"] == "rejected"
        or row["output_differs_at"] is not None
        for row in rows
    )
    return 1 if require_agreement and unmet else 0


def _rules(names: list[str]) -> list[Rule | Block]:
    from resispec_verify.rules import PATH_RULES, Block, Rule, TupleRule, make_path_rule, make_rule

    rules: list[Rule | Block] = []
    for name in dict.fromkeys(names):
        value = make_path_rule(name) if name in PATH_RULES else make_rule(name)
        if isinstance(value, Block):
            rules.append(value)
            continue
        if not isinstance(value, Rule):
            raise InputError(f"--rule {name}: replay knows of the rules for paths only block")
        if isinstance(value, TupleRule) or value.least_candidates > 1:
            raise InputError(
                f"--rule {name}: decides about several candidates of one position at once; replay needs a "
                "rule that verifies one draft token a position, such as speculative, or block"
            )
        rules.append(value)
    return rules


def _check_sampling(options: dict[str, Any]) -> None:
    from resispec_verify.distributions import Sampling

    try:
        Sampling(**options)
    except InputError as error:  # its message begins with the field, spelled as in the option
        raise InputError(f"--{error}") from None


def _from_dumps(
    paths: Files,
    rules: list[Rule | Block],
    options: dict[str, Any],
    uniforms: bool,
    kind: str | None,
    stops: list[int],
) -> tuple[list[Replay], list[str]]:
    """Replays by file and rule, and one line for each file that could not be used."""
    from resispec_verify.logged.replay import replay as replay_rounds
    from resispec_verify.logged.rounds_input import read_rounds

    results: list[Replay] = []
    failures: list[str] = []
    seen: set[str] = set()
    for path in paths:
        try:
            if os.path.realpath(path) in seen:
                raise InputError(f"{path}: given twice; its rounds would count twice")
            rounds = read_rounds(path, kind=kind, stops=stops, options=options)
            seen.add(os.path.realpath(path))
            of_file = []
            with progress(rounds.path, len(rounds.rounds) * len(rules)) as advance:
                for rule in rules:
                    of_file.append(replay_rounds(rounds, rule, options, uniforms=uniforms, advance=advance))
            results += of_file
        except InputError as error:
            failures.append(str(error))
    return results, failures


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
