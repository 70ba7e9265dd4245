"""The files of llama.cpp's ``llama-perplexity --kl-divergence-base``: a quantised target, memory-mapped.

The layout was read from its source (`tools/perplexity/perplexity.cpp`): the magic, then int32 `n_ctx`,
`n_vocab` and `n_chunk`, then the tokens of all chunks, then rows of a float32 step, a float32 minimum and
16-bit multiples of the step, padded to an even count. Only positions ``n_ctx // 2`` to ``n_ctx - 2`` of each
chunk have rows; the row of a position predicts the token after it. What lies more than 16 below the largest
logit is stored as the minimum.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

from resispec_verify.dumps.formats.mapped import release, view
from resispec_verify.dumps.kinds.keys import LOG_PROBABILITIES_KEY
from resispec_verify.dumps.opening import open_file
from resispec_verify.dumps.rows import LazyRows
from resispec_verify.errors import InputError

__all__ = ["LlamaRows", "is_llamacpp", "read_llamacpp"]

MAGIC = b"_logits_"
HEAD = struct.Struct("<8s3i")
LEVELS = 65535
CLIP = 16.0


class LlamaRows(LazyRows):
    """Log-probabilities ``minimum + step * stored`` of the rows of a file, float32 as llama.cpp has them.

    Attributes
    ----------
    stored : str
        Type of the stored values.
    steps, minima : float32 array (positions,)
        Views of the file.
    """

    stored = "uint16"

    def __init__(self, buffer: mmap.mmap, begin: int, positions: int, vocab: int, end: int) -> None:
        self.shape, self.dtype = (positions, vocab), np.dtype(np.float32)
        width = row_width(vocab)
        shape, strides = (positions, vocab), (width, 1)
        self._levels = view(buffer, np.dtype("<u2"), shape, strides, begin, 4, end)
        numbers = view(buffer, np.dtype("<f4"), (positions, 2), (width // 2, 1), begin, 0, end)
        self.steps, self.minima = numbers[:, 0], numbers[:, 1]

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return positions ``start`` to ``stop - 1``."""
        steps, minima = (column[start:stop, None] for column in (self.steps, self.minima))
        with np.errstate(invalid="ignore", over="ignore"):
            rows = steps * self._levels[start:stop].astype(np.float32) + minima
        release(self._levels)
        return rows

    def quantisation(self) -> tuple[float, float]:
        """Return the largest step, and the largest minimum of a row that was clipped (-inf if none was)."""
        steps, minima = np.array(self.steps, np.float64), np.array(self.minima, np.float64)
        release(self._levels)
        clipped = steps * LEVELS > CLIP * (1 - 1e-5)
        return float(steps.max()), float(minima[clipped].max(initial=-np.inf))


def row_width(vocab: int) -> int:
    """Return how many 16-bit values a row takes."""
    return vocab + vocab % 2 + 4


def is_llamacpp(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins as llama.cpp's do."""
    with open_file(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def read_llamacpp(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a base file of llama.cpp.

    Returns
    -------
    dict
        `LOG_PROBABILITIES_KEY` (`LlamaRows`), `tokens` ``[n_chunk, n_ctx]``, `next_tokens` ``[positions]``
        (what followed each position), and `meta` with `n_ctx`, `n_vocab` and `n_chunk`.

    Raises
    ------
    InputError
        If the file is truncated or damaged, or a row's step or minimum is not a number.
    """
    path = Path(path)
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEAD.size)
        if len(head) < HEAD.size:
            raise InputError(f"{path}: truncated: {size} bytes, less than the header; record it again")
        contexts, vocab, chunks = _sizes(path, head)
        each = contexts - 1 - contexts // 2
        begin = HEAD.size + 4 * contexts * chunks
        row = 2 * row_width(vocab)
        _check_size(path, size, begin, row * each, chunks)
        buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    tokens = view(buffer, np.dtype("<i4"), (chunks, contexts), (contexts, 1), HEAD.size, 0, begin)
    rows = LlamaRows(buffer, begin, chunks * each, vocab, size)
    _check_numbers(path, rows)
    return {
        LOG_PROBABILITIES_KEY: rows,
        "tokens": tokens,
        "next_tokens": tokens[:, contexts // 2 + 1 :].reshape(-1),
        "meta": {"source": "llama.cpp", "n_ctx": contexts, "n_vocab": vocab, "n_chunk": chunks},
    }


def _sizes(path: Path, head: bytes) -> tuple[int, int, int]:
    contexts, vocab, chunks = HEAD.unpack(head)[1:]
    if contexts < 3 or vocab < 1 or chunks < 1 or sys.byteorder != "little":
        raise InputError(
            f"{path}: damaged, or of another byte order: n_ctx {contexts}, n_vocab {vocab}, n_chunk "
            f"{chunks}; record it again"
        )
    return contexts, vocab, chunks


def _check_size(path: Path, size: int, begin: int, chunk: int, chunks: int) -> None:
    if size == begin + chunk * chunks:
        return
    whole = max(0, size - begin) // chunk
    state = f"truncated ({whole} whole chunks)" if size < begin + chunk * chunks else "longer than it says"
    raise InputError(
        f"{path}: {state}: {chunks} chunks of {chunk} bytes from byte {begin} on make "
        f"{begin + chunk * chunks} "
        f"bytes, but the file has {size} bytes; record it again, with --chunks for fewer"
    )


def _check_numbers(path: Path, rows: LlamaRows) -> None:
    for name, values in (("step", rows.steps), ("minimum", rows.minima)):
        bad = ~np.isfinite(values) | (np.signbit(values) if name == "step" else values > 0)
        if bad.any():
            i = int(np.argmax(bad))
            raise InputError(
                f"{path}: position {i} has a {name} of {values[i]:g}, which no row can have; record it again"
            )
    release(rows._levels)
