"""Log-probabilities as engines return them, read as top-k pairs: `import_top_pairs`, `save_top_pairs`.

One format a module, each from what its engine documents; `nodes`: JSON with where each value lies;
`listing`: what a file lists; `texts`: ids of token texts; `joining`: target and draft by position;
`saving`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from resispec_verify.dumps.importers.joining import joined
from resispec_verify.dumps.importers.lines import parquet_rows, read_line
from resispec_verify.dumps.importers.listing import Listing
from resispec_verify.dumps.importers.llamacpp import read_llamacpp
from resispec_verify.dumps.importers.nodes import Node, documents
from resispec_verify.dumps.importers.openai import read_openai
from resispec_verify.dumps.importers.saving import save_top_pairs
from resispec_verify.dumps.importers.sglang import read_sglang
from resispec_verify.dumps.importers.texts import TokenTexts
from resispec_verify.dumps.importers.vllm import read_vllm
from resispec_verify.dumps.kinds.top_pairs import TopPairsDump, top_from_mapping
from resispec_verify.dumps.kinds.top_side import LARGEST_VOCABULARY, float32_rounding
from resispec_verify.dumps.opening import PathLike, as_path, show
from resispec_verify.errors import InputError

__all__ = ["SOURCES", "import_top_pairs", "save_top_pairs"]

SOURCES: dict[str, Callable[[Node, Listing], None]] = {
    "vllm": read_vllm,
    "sglang": read_sglang,
    "openai": read_openai,
    "llamacpp": read_llamacpp,
    "jsonl": read_line,
    "parquet": read_line,
}
"""What adds one document of a format to a listing."""

LARGE_VOCABULARY = 1 << 18
"""Where the size is not given: more than any vocabulary in use."""
PARTIAL_SUMS = 512
"""A GPU adds a row in at least so many partial sums (torch: a block of 512 threads or more a row)."""


def import_top_pairs(
    target: PathLike,
    draft: PathLike,
    *,
    source: str,
    draft_source: str | None = None,
    tokenizer: PathLike | None = None,
    vocab: int | None = None,
    rounding: float | None = None,
) -> TopPairsDump:
    """Read log-probabilities that engines gave for one text, of target and draft, as top-k pairs.

    Parameters
    ----------
    target, draft : path
        JSON, one answer a line of JSON (.jsonl), or parquet.
    source, draft_source : str
        Of `SOURCES`; the draft's is that of the target unless it is given.
    tokenizer : path, optional
        A ``tokenizer.json``, where files have token texts instead of ids.
    vocab : int, optional
        Tokens in the vocabulary.
    rounding : float, optional
        How far the arithmetic of the engine may have put all log-probabilities off. By default what float32
        sums of a vocabulary can be off: one after the other for llama.cpp, partial sums for others.

    Raises
    ------
    InputError
        Files that are not of the format, laws that are none, or files that are not of the same text.
    """
    if vocab is not None and not (type(vocab) is int and 0 < vocab <= LARGEST_VOCABULARY):
        raise InputError(f"vocab must be the number of tokens, got {show(vocab)}")
    texts = TokenTexts(None if tokenizer is None else as_path(tokenizer))
    sources = (source, draft_source or source)
    files = (as_path(target), as_path(draft))
    listings = [_listing(path, name, texts) for path, name in zip(files, sources, strict=True)]
    arrays, notes = joined(*listings)
    mapping: dict[str, Any] = dict(arrays)
    if vocab is not None:
        mapping["vocab"] = vocab
    for role, name in zip(("target", "draft"), sources, strict=True):
        mapping[f"{role}_rounding"] = _rounding(name, vocab) if rounding is None else rounding
    if sources[0] == sources[1] and files[0].samefile(files[1]):
        notes.append("target and draft are one file: every exact rule accepts always; give the draft's own")
    mapping["meta"] = {
        "target": {"file": files[0].name, "from": sources[0]},
        "draft": {"file": files[1].name, "from": sources[1]},
        "notes": [*(note for one in listings for note in one.notes), *notes],
    }
    dump = top_from_mapping(f"{files[0]} and {files[1]}", mapping)
    for _ in dump.blocks():  # what is wrong is said now, not by who reads the file
        pass
    return dump


def _listing(path: Path, source: str, texts: TokenTexts) -> Listing:
    if source not in SOURCES:
        raise InputError(f"{show(source)} is not a known format; known: {', '.join(SOURCES)}")
    listing = Listing(str(path), texts)
    for document in parquet_rows(path) if source == "parquet" else documents(path):
        SOURCES[source](document, listing)
    if listing.skipped:
        listing.notes.append(
            f"{path.name}: {listing.skipped} positions have no law (drafted tokens); left out"
        )
    return listing


def _rounding(source: str, vocab: int | None) -> float:
    terms = vocab or LARGE_VOCABULARY
    return float32_rounding(terms if source == "llamacpp" else -(-terms // PARTIAL_SUMS) + 10)
