"""One position a line, in JSON or as rows of a parquet file: our own simple form.

``{"ids": [5, 17], "logprobs": [-0.1, -3.0], "ranked": 2, "tail": 0.04, "next": 5, "sequence": 0,
"position": 9}``. Only the lists are needed, and ``tokens`` (texts) may stand for ``ids``. ``ranked`` says
how many of the listed are the most probable ones: without it nothing is taken for granted.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from resispec_verify.dumps.importers.listing import Listing
from resispec_verify.dumps.importers.nodes import Node
from resispec_verify.dumps.opening import check_file, show
from resispec_verify.dumps.opening import listing as named
from resispec_verify.errors import InputError

__all__ = ["parquet_rows", "read_line"]

KEYS = ("ids", "tokens", "logprobs", "ranked", "tail", "next", "sequence", "position")
BATCH = 256
MOST_GROUP = 1 << 30
"""Bytes of a row group, as its file states them, that are read at once."""


def read_line(document: Node, listing: Listing) -> None:
    """Add one position."""
    if unknown := [key for key in document.object() if key not in KEYS]:
        raise document.refuse(f"has unknown keys {named(unknown)}; known: {', '.join(KEYS)}")
    ids, texts = document.get("ids"), document.get("tokens")
    if (ids is None) == (texts is None):
        raise document.refuse("needs ids or tokens (texts), one of them")
    tokens: list[Any] = ids.ids() if ids is not None else [text.text() for text in texts.entries()]  # type: ignore[union-attr]
    logs = [value.number() for value in document.need("logprobs").entries()]
    ranked, tail, after, sequence, place = (document.get(key) for key in KEYS[3:])
    count = 0 if ranked is None else ranked.whole()
    if count > len(tokens):
        raise document.refuse(f"ranked is {count}, and {len(tokens)} tokens are listed")
    number = 0 if sequence is None else sequence.whole()
    listing.texts.setdefault(number, [])
    follows = None if after is None else after.whole() if ids is not None else after.text()
    listing.add(
        document.where,
        tokens,
        logs,
        sequence=number,
        position=None if place is None else place.whole(),
        following=follows,
        ranked=count,
        tail=None if tail is None else tail.number(),
    )


def parquet_rows(path: Path) -> Iterator[Node]:
    """The rows of a parquet file as documents of the same keys.

    Raises
    ------
    InputError
        pyarrow is missing, the file is damaged, or a row group is too large.
    """
    check_file(path)
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise InputError(
            f"{path}: parquet files need the package pyarrow; pip install 'resispec-verify[parquet]'"
        ) from None
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            names = [name for name in file.schema_arrow.names if name in KEYS]
            groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
            if any(group.total_byte_size > MOST_GROUP for group in groups):
                raise InputError(
                    f"{path}: a row group has more than {MOST_GROUP >> 30} GiB; write smaller ones"
                )
            for batch in file.iter_batches(batch_size=BATCH, columns=names):
                for row in batch.to_pylist():
                    yield Node(row, f"{path}: row {number}")
                    number += 1
    except InputError:
        raise
    except Exception as error:  # the library raises its own, OSError and ValueError for damage
        raise InputError(f"{path}: cannot be read as parquet ({show(str(error))}); write it again") from None
