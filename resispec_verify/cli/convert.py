"""`resispec-verify convert`: log-probabilities of engines, or whole rows, as a file of top-k pairs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter

from resispec_verify import topk
from resispec_verify.cli.options.group import Options, check_range, refuse_beside
from resispec_verify.cli.options.outputs import JsonOption
from resispec_verify.cli.output import not_written, say_notes
from resispec_verify.cli.parameters import Count, File, Number
from resispec_verify.dumps import TopPairs, TopRows, open_dump, open_top_pairs
from resispec_verify.errors import InputError
from resispec_verify.report.table import print_lines
from resispec_verify.schema import envelope
from resispec_verify.tables.reading import Reading, pairs_of

Source = Literal["vllm", "sglang", "openai", "llamacpp", "jsonl", "parquet"]


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(Options):
    """How the files are read."""

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
    draft: Annotated[File | None, Parameter(name="DRAFT")] = None,
    *,
    source: Annotated[Source | None, Parameter(name="--from")] = None,
    top_k: Count | None = None,
    out: File,
    reading: ReadingOptions = ReadingOptions(),
    output: JsonOption = JsonOption(),
) -> int:
    """Join the log-probabilities that engines gave for target and draft, or cut whole rows, to top-k pairs.

    Parameters
    ----------
    target
        What the engine answered for the target; or one dump of whole rows, of target and draft.
    draft
        What it answered for the draft, of the same text.
    source
        What wrote them: an engine, or jsonl and parquet for one position a line or row.
    top_k
        Of a dump of whole rows: how many tokens to keep of each law, as the dump says that it is sampled.
    out
        The file to write (.npz or .safetensors).
    """
    from resispec_verify.dumps.importers import import_top_pairs, save_top_pairs
    from resispec_verify.dumps.importers.saving import SUFFIXES

    if out.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out {out}: top-k pairs are written as {' or '.join(SUFFIXES)}; end the name so")
    output.check([target] if draft is None else [target, draft], dump=out)
    pairs: Any
    if top_k is not None:
        check_range(1, top_k=top_k)
        _check_alone(target, draft, source, reading)
        pairs, meta = _cut(target, top_k)
    elif draft is None or source is None:
        raise InputError(
            "give the files of target and draft and --from, or one dump of whole rows and --top-k"
        )
    else:
        dump = import_top_pairs(
            target, draft, source=source, draft_source=reading.draft_from, tokenizer=reading.tokenizer,
            vocab=reading.vocab, rounding=reading.rounding,
        )  # fmt: skip
        say_notes(dump)
        pairs, meta = dump.mapping, None
    try:
        save_top_pairs(out, pairs, meta=meta)
    except OSError as error:
        not_written(out, error)
        return 2
    written = open_top_pairs(out)
    sides = {"k": [written.target.k, written.draft.k], "vocab": written.vocab, "notes": list(written.notes)}
    result = {"path": str(out), "positions": written.positions, **sides, "bytes": out.stat().st_size}
    text = (
        f"{out}: {written.positions} positions, at most {written.target.k} and {written.draft.k} tokens "
        f"listed of target and draft, {result['bytes']} bytes"
    )
    print_lines(output.write(envelope("convert", [result])), [text])
    return 0


def _check_alone(target: Path, draft: Path | None, source: str | None, reading: ReadingOptions) -> None:
    """Refuse what is of two files."""
    if draft is not None:
        raise InputError(f"{target}: --top-k cuts one dump that holds target and draft; leave {draft} out")
    refuse_beside("--top-k, which cuts a dump of whole rows", reading, **{"from": source})


def _cut(path: Path, k: int) -> tuple[TopPairs, dict[str, Any]]:
    """The pairs of a dump, position by position, and what is said of them."""
    dump = open_dump(path)
    say_notes(dump)
    parts = [
        (batch.positions, topk.cut(batch.pair.target, k), topk.cut(batch.pair.draft, k))
        for batch in pairs_of(dump, Reading())
    ]
    order = np.argsort(np.concatenate([positions for positions, _, _ in parts]))

    def joined(side: int) -> TopRows:
        rows = [part[side] for part in parts]
        columns = {
            name: np.concatenate([getattr(one, name) for one in rows])[order]
            for name in ("tokens", "probabilities", "tail", "most")
        }
        return TopRows(**columns, vocab=dump.vocab)

    stated = dump.meta.get("sampling", {}) if isinstance(dump.meta, Mapping) else {}
    return TopPairs(joined(1), joined(2)), {"applied": stated}
