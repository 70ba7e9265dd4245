"""`resispec-verify picture`: target, draft and residuals of one position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from resispec_verify.cli.explore import position_of_dump
from resispec_verify.cli.kl_settings import make_reading, pair_by_hand, refuse_by_hand
from resispec_verify.cli.output import (
    check_writable,
    files_read,
    print_lines,
    printable,
    table_console,
    write_csv,
    write_figure,
    write_json,
)
from resispec_verify.cli.parameters import Count, File, Files, Names, Number, Text
from resispec_verify.errors import InputError
from resispec_verify.schema import envelope

if TYPE_CHECKING:
    from resispec_verify.tables.position import Position

__all__ = ["picture"]

MOST_TOKENS = 60  # a figure of more is too high to look at


def picture(
    *,
    logits: Files | None = None,
    target: Text | None = None,
    draft: Text | None = None,
    position: Count | None = None,
    rule: Names | None = None,
    rejected: Count | None = None,
    candidates: Count = 2,
    tokens: Count = 12,
    tokenizer: File | None = None,
    temperature: Number | None = None,
    input: Literal["logits", "probabilities", "log-probabilities"] | None = None,
    json: File | None = None,
    csv: File | None = None,
    plot: File | None = None,
) -> int:
    """Target, draft and what rules leave of the target after one rejection, token by token.

    Parameters
    ----------
    logits
        A dump of target and draft logits.
    target
        Target probabilities by hand, "0.3,0.4,0.3", instead of a dump.
    draft
        Draft probabilities by hand.
    position
        Position of the dump, 0-based. Default: 0.
    rule
        A rule; repeat for several. Default: resispec and specinfer.
    rejected
        The token that was rejected. Default: the one that is most often rejected.
    candidates
        Candidates at the position (n).
    tokens
        Tokens shown; the others are summed up.
    tokenizer
        A tokenizer.json, for the text of the tokens.
    temperature
        Sampling temperature. Default: what the dump states, or else 1.
    input
        What the dump holds. Default: logits, refused where they look like probabilities.
    json
        Write the report here ("-": standard output).
    csv
        Write one line a token here.
    plot
        Write a plot here (.png, .svg or .pdf).
    """
    from resispec_verify.cli.tokenizer import token_texts
    from resispec_verify.cli.user_rules import choose_rules
    from resispec_verify.tables.drift import MOST_CANDIDATES, check_sequential
    from resispec_verify.tables.position import look_at

    read = [*files_read(logits or []), *([tokenizer] if tokenizer is not None else [])]
    check_writable(json=json, csv=csv, plot=plot, inputs=read)
    if (logits is None) == (target is None and draft is None):
        raise InputError("give one of --logits PATH, or --target and --draft")
    if not 2 <= candidates <= MOST_CANDIDATES:
        raise InputError(
            f"--candidates must be in 2..{MOST_CANDIDATES} for a next candidate to exist, got {candidates}"
        )
    if not 1 <= tokens <= MOST_TOKENS:
        raise InputError(f"--tokens must be in 1..{MOST_TOKENS}, got {tokens}")
    rules = choose_rules(rule or ["resispec", "specinfer"], candidates)
    check_sequential(rules)
    if logits is not None:
        reading = make_reading(
            None if temperature is None else [temperature], (None, None, None), (None, None, None),
            input, "float64", None, None,
        )  # fmt: skip
        p, q, facts, title = position_of_dump(logits, reading, 0 if position is None else position)
    else:
        refuse_by_hand(position=position, temperature=temperature, input=input)
        pair = pair_by_hand(target, draft)
        p, q, facts, title = pair.target, pair.draft, {"position": 0}, "the given pair"
    found = look_at(p, q, rules, candidates, rejected)
    names = None if tokenizer is None else token_texts(tokenizer, found.tokens(tokens).tolist())
    records = found.records(tokens, names)
    result = {
        **facts,
        "candidates": candidates,
        "rejected": found.rejected,
        "next_accepted": found.next_accepted,
        "l1": found.l1,
        "tokens": records,
    }
    write_json(json, envelope("picture", [result]))
    write_csv(csv, records)
    write_figure(plot, lambda: _figure(found, title, names, tokens))
    _print(found, records, title, table_console(json, csv))
    return 0


def _figure(found: Position, title: str, names: dict[int, str] | None, tokens: int) -> Any:
    from resispec_verify.report.plots.position import plot_position

    return plot_position(found, title, names, tokens)


def _print(found: Position, records: list[dict[str, Any]], title: str, console: Any) -> None:
    from resispec_verify.cli.kl_table import print_records

    shown = [
        {
            name: f"{value:.4f}" if isinstance(value, float) else printable(value)
            for name, value in record.items()
        }
        for record in records
    ]
    print_records(console, f"after rejecting token {found.rejected}: {printable(title)}", shown)
    print_lines(
        console,
        [
            f"{name}: the next candidate is accepted with probability {accepted:.4f}; L1(residual, draft) = "
            f"{found.l1[name]:.4f}."
            for name, accepted in found.next_accepted.items()
        ],
    )
