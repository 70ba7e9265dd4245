"""`resispec-verify picture`: target, draft and residuals of one position."""

from dataclasses import dataclass
from typing import Any

from resispec_verify.cli.one_position import PositionOptions
from resispec_verify.cli.options.group import check_range, refuse_by_hand
from resispec_verify.cli.options.outputs import PlotOptions
from resispec_verify.cli.options.work import RuleOptions
from resispec_verify.cli.output import files_read
from resispec_verify.cli.parameters import Count, DumpFile, File
from resispec_verify.cli.tokenizer import token_texts
from resispec_verify.errors import InputError
from resispec_verify.report.table import print_lines, print_records, printable
from resispec_verify.rules import Rule
from resispec_verify.schema import envelope
from resispec_verify.tables.drift import MOST_CANDIDATES, check_sequential
from resispec_verify.tables.position import Position, look_at

MOST_TOKENS = 60  # a figure of more is too high to look at


@dataclass(frozen=True, kw_only=True)
class LookOptions(RuleOptions):
    """What is shown of a position."""

    candidates: Count = 2
    """Candidates at the position (n)."""
    rejected: Count | None = None
    """The token that was rejected. Default: the one that is most often rejected."""
    tokens: Count = 12
    """Tokens shown; the others are summed up."""
    tokenizer: File | None = None
    """A tokenizer.json, for the text of the tokens."""

    def rules(self) -> tuple[Rule, ...]:
        """The rules, once all is checked."""
        if not 2 <= self.candidates <= MOST_CANDIDATES:
            raise InputError(
                f"--candidates must be in 2..{MOST_CANDIDATES} for a next candidate to exist, got "
                f"{self.candidates}"
            )
        check_range(1, MOST_TOKENS, tokens=self.tokens)
        rules = self.chosen()
        check_sequential(rules)
        return rules


def picture(
    *files: DumpFile,
    source: PositionOptions = PositionOptions(),
    look: LookOptions = LookOptions(),
    output: PlotOptions = PlotOptions(),
) -> int:
    """Target, draft and what rules leave of the target after one rejection, token by token.

    Parameters
    ----------
    output.csv
        Write one line a token here.
    """
    source, tokenizer, shown = source.joined(files), look.tokenizer, look.tokens
    output.check([*files_read(source.paths), *([] if tokenizer is None else [tokenizer])])
    if (source.logits is None) == (not source.by_hand):
        raise InputError("give one of FILE, or --target and --draft")
    rules = look.rules()
    if source.by_hand:
        refuse_by_hand(position=source.position, temperature=source.temperature, input=source.input)
    pair = source.one_pair()
    found = look_at(pair.target, pair.draft, rules, look.candidates, look.rejected)
    names = None if tokenizer is None else token_texts(tokenizer, found.tokens(shown).tolist())
    records = found.records(shown, names)
    result = {
        **pair.facts,
        "candidates": look.candidates,
        "rejected": found.rejected,
        "next_accepted": found.next_accepted,
        "l1": found.l1,
        "tokens": records,
    }
    console = output.write(
        envelope("picture", [result]),
        lambda: records,
        lambda: _figure(found, pair.title, names, shown),
    )
    _print(found, records, pair.title, console)
    return 0


def _figure(found: Position, title: str, names: dict[int, str] | None, tokens: int) -> Any:
    from resispec_verify.report.plots.position import plot_position

    return plot_position(found, title, names, tokens)


def _print(found: Position, records: list[dict[str, Any]], title: str, console: Any) -> None:
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
