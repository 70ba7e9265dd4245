"""`resispec-verify convert`: log-probabilities of engines as a file of top-k pairs."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from resispec_verify.cli.options.group import Options
from resispec_verify.cli.options.outputs import JsonOption
from resispec_verify.cli.output import not_written, say_notes
from resispec_verify.cli.parameters import Count, File, Number
from resispec_verify.errors import InputError
from resispec_verify.report.table import print_lines
from resispec_verify.schema import envelope

Source = Literal["vllm", "sglang", "openai", "llamacpp", "jsonl", "parquet"]


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(Options):
    """How the two files are read."""

    draft_from: Source | None = None
    """What wrote the draft's file, where that is something else."""
    tokenizer: File | None = None
    """A tokenizer.json, where the files have texts of tokens instead of ids."""
    vocab: Count | None = None
    """Tokens in the vocabulary."""
    rounding: Number | None = None
    """How far the engine's arithmetic may have put all log-probabilities off; by default what float32 can."""


def convert(
    target: Annotated[File, Parameter(name="TARGET")],
    draft: Annotated[File, Parameter(name="DRAFT")],
    *,
    source: Annotated[Source, Parameter(name="--from")],
    out: File,
    reading: ReadingOptions = ReadingOptions(),
    output: JsonOption = JsonOption(),
) -> int:
    """Join the log-probabilities that engines gave for target and draft into a file of top-k pairs.

    Parameters
    ----------
    target, draft
        What the engine answered for target and draft, of the same text.
    source
        What wrote them: an engine, or jsonl and parquet for one position a line or row.
    out
        The file to write (.npz or .safetensors).
    """
    from resispec_verify.dumps.importers import import_top_pairs, save_top_pairs
    from resispec_verify.dumps.importers.saving import SUFFIXES

    if out.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out {out}: top-k pairs are written as {' or '.join(SUFFIXES)}; end the name so")
    output.check([target, draft], dump=out)
    dump = import_top_pairs(
        target, draft, source=source, draft_source=reading.draft_from, tokenizer=reading.tokenizer,
        vocab=reading.vocab, rounding=reading.rounding,
    )  # fmt: skip
    say_notes(dump)
    try:
        save_top_pairs(out, dump.mapping)
    except OSError as error:
        not_written(out, error)
        return 2
    sides = {"k": [dump.target.k, dump.draft.k], "vocab": dump.vocab, "notes": list(dump.notes)}
    result = {"path": str(out), "positions": dump.positions, **sides, "bytes": out.stat().st_size}
    text = (
        f"{out}: {dump.positions} positions, at most {dump.target.k} and {dump.draft.k} tokens listed of "
        f"target and draft, {result['bytes']} bytes"
    )
    print_lines(output.write(envelope("convert", [result])), [text])
    return 0
