"""Compare two sets of target logits of the same prefixes: a decode pass against a verify pass, say.

A speculative sampler is exact for the target it was given. Where the pass that verifies does not reproduce
the logits of the pass that decodes (other kernels, batch shapes or precision), the sampler's target is not
the model's, whatever the rule. This says by how much.

The summary follows llama.cpp's ``--kl-divergence``: A is the base, ``KL(A || B)``, and the probability
difference is ``p_B - p_A`` of the next token.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes  # type: ignore[import]
import numpy as np

from resispec_verify.dumps import Axis, TargetDump
from resispec_verify.dumps.checks.looks import log_probabilities, stored_precision
from resispec_verify.dumps.rows import padded
from resispec_verify.errors import InputError
from resispec_verify.kernels.elementwise.divergences import distances
from resispec_verify.kernels.elementwise.probabilities import softmax, temper
from resispec_verify.logged.compare_input import Sides, next_tokens, same_prefixes, two_sides
from resispec_verify.logged.rounds_input import half_ulp
from resispec_verify.sampling.settings import left_out
from resispec_verify.tables.reading import logits_of

__all__ = ["COLUMNS", "Comparison", "compare_dumps", "stored_precision"]

#: What is kept of a position.
COLUMNS = (
    "position", "max_abs_logit", "max_abs_log_probability", "tv", "kl", "kl_reverse", "top_a", "top_b",
    "margin_a", "margin_b", "gap_a", "gap_b", "ulp", "status", "delta_p", "nll_a", "nll_b",
)  # fmt: skip
# Elements of one float64 batch (positions x vocab): 8 MiB an array.
_BATCH_ELEMENTS = 1 << 20
# Bits of a float32 that a bin of the histogram of differences leaves out: 11 bits of mantissa stay.
_DROPPED_BITS = 12
# llama.cpp divides by the step in float32: a level of up to 2^16 is wrong by 2^-8 of a step beside its half.
_STEP_ERROR = 2.0**-7


@dataclass
class Comparison:
    """What two dumps gave.

    Attributes
    ----------
    a, b : TargetDump
    temperature : float
    precision : str
        The coarser type that either dump's values have; its unit in the last place makes near-ties, and so
        does the step of a quantised dump.
    columns : dict
        By name in `COLUMNS`, one value a position. ``margin_a`` is how much lower A puts B's best token than
        its own; ``gap_a`` the distance of A's best two. ``ulp`` is the unit that makes near-ties: that of
        `precision` at the best logits, or a step where that is larger. ``status``: ``same``, ``near-tie`` or
        ``flip``. ``delta_p``, ``nll_a`` and ``nll_b`` are of the logged next token, or of A's best where none
        is logged.
    histogram : int64 array
        Counts of ``|logit difference|`` over all positions and tokens, by the upper bits of its float32.
    support_differs : int
        Positions at which exactly one of the two excludes some token.
    worst_logit : tuple
        (difference, position, token) where the raw logits are furthest apart.
    next_tokens : bool
        Whether the dumps say which token came next.
    sides : Sides or None
        Which tokens either has, where they have not the same ones. Logit differences are then of the tokens
        that both have, divergences of the union, with probability 0 where a token is missing.
    outside : dict
        By "a" and "b", one value a position: the mass on tokens that the other does not have.
    """

    a: TargetDump
    b: TargetDump
    temperature: float
    precision: str = ""
    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    histogram: np.ndarray = field(default_factory=lambda: np.zeros(1 << (31 - _DROPPED_BITS), np.int64))
    support_differs: int = 0
    worst_logit: tuple[float, int, int] = (-1.0, 0, 0)
    next_tokens: bool = False
    sides: Sides | None = None
    outside: dict[str, list[float]] = field(default_factory=lambda: {"a": [], "b": []})

    def logit_quantile(self, level: float) -> float:
        """Quantile of ``|logit difference|`` over positions and tokens, at most 2^-11 of itself too small."""
        reached = np.cumsum(self.histogram)
        k = int(np.searchsorted(reached, max(1, math.ceil(level * int(reached[-1])))))
        return float(np.asarray(k << _DROPPED_BITS, np.int32).view(np.float32))


def compare_dumps(
    path_a: str | os.PathLike[str],
    path_b: str | os.PathLike[str],
    *,
    temperature: float | None = None,
    positions: tuple[int | None, int | None] = (None, None),
    batch: int | None = None,
    shards: Axis | None = None,
    kind: str | None = None,
    pad_vocab: bool = False,
    advance: Callable[[int], Any] = lambda done: None,
) -> Comparison:
    """Compare two dumps, batch by batch; only numbers a position are kept.

    Parameters
    ----------
    temperature : float or None
        None: what the dumps state, or else 1.
    positions, batch
        First and last position, and how many at a time.
    shards : {"vocab", "positions"} or None
        As in `open_dump`.
    kind : {"logits", "probabilities", "log-probabilities"}, optional
        What the rows of both are; None means logits, refused where they do not look like it.
    pad_vocab : bool
        Pad the narrower rows with probability 0 if the widths differ, instead of refusing them.

    Raises
    ------
    InputError
        A file that cannot be used, shapes, tokens or context tokens that differ (the first index is named), a
        range outside the dumps, rows that are not finite, or temperature 0: then the flips say it all.
    """
    (a, one), (b, other), sides = two_sides(path_a, path_b, shards, kind, pad_vocab)
    a, b = (replace(dump, notes=(*dump.notes, *left_out(dump.sampling, "temperature"))) for dump in (a, b))
    asked = temperature is not None
    if temperature is None:
        temperature = _stated_temperature(a, b)
    if not 1e-6 <= temperature <= 1e6:
        raise InputError(
            f"temperature must be in [1e-6, 1e6], got {temperature:g}; flips do not depend on it"
        )
    same_prefixes(a, b, one, other)
    _check_processed(a, b, temperature, kind, asked)
    start, stop = _range(a, *positions)
    following = [next_tokens(dump) for dump in (a, b)]
    tokens = next((ids for ids in following if ids is not None), None)
    result = Comparison(a, b, temperature, next_tokens=tokens is not None, sides=sides)
    width = max(a.vocab, b.vocab)
    size = batch or max(1, min(64, _BATCH_ELEMENTS // width))
    for first in range(start, stop, size):
        last = min(first + size, stop)
        stored = [dump.batch(first, last) for dump in (a, b)]
        result.precision = result.precision or _coarser(a, b, *stored)
        x, y = (
            padded(
                logits_of(kind or "logits", rows, f"{dump.path}: {dump.key}", first, dump.target.dtype), width
            )
            for rows, dump in zip(stored, (a, b), strict=True)
        )
        _add(result, x, y, first, None if tokens is None else tokens[first:last])
        advance(last - first)
    return result


def _range(dump: TargetDump, start: int | None, stop: int | None) -> tuple[int, int]:
    """First and last position; refused outside the dump."""
    start, stop = start or 0, dump.positions if stop is None else stop
    if not 0 <= start < stop <= dump.positions:
        raise InputError(
            f"positions {start}:{stop} are outside the dumps, which have 0:{dump.positions}; give a "
            "non-empty range inside"
        )
    return start, stop


def _coarser(a: TargetDump, b: TargetDump, rows_a: np.ndarray, rows_b: np.ndarray) -> str:
    """The coarser of the types that the values of two dumps have."""
    kinds = [
        # What a quantised dump knows of its values is its step, whatever they happen to fit in.
        stored_precision(rows, dump.target.dtype) if dump.step is None else np.dtype(dump.target.dtype)
        for rows, dump in ((rows_a, a), (rows_b, b))
    ]
    return min(kinds, key=lambda kind: ml_dtypes.finfo(kind).nmant).name


def _stated_temperature(a: TargetDump, b: TargetDump) -> float:
    """The temperature that both dumps state; 1 where neither does.

    Raises
    ------
    InputError
        They state different ones, or several.
    """
    found = {}
    for dump in (a, b):
        each = dump.sampling if isinstance(dump.sampling, tuple) else (dump.sampling or {},)
        found |= dict.fromkeys((dump.path, float(one.get("temperature", 1.0))) for one in each)
    if len({value for _, value in found}) == 1:
        return next(value for _, value in found)
    shown = ", ".join(f"{value:g} in {path}" for path, value in list(found)[:4])
    raise InputError(f"meta states different temperatures ({shown}); say which with --temperature")


def _check_processed(a: TargetDump, b: TargetDump, temperature: float, kind: str | None, asked: bool) -> None:
    """Refuse to divide by a temperature what a dump may have been divided by already.

    Log-probabilities of llama.cpp are those of raw logits.
    """
    if temperature == 1.0 or kind == "logits" or (kind is not None and asked):
        return
    if kind is not None:
        raise InputError(
            f"{a.path}: temperature {temperature:g} is stated in meta, and {kind} may have it already; say "
            "--temperature 1 if they do, or give the temperature that is to be applied"
        )
    like = [dump for dump in (a, b) if dump.step is None and log_probabilities(dump.target)]
    if not like:
        return
    only = "" if len(like) == 2 else f", unlike {(b if like[0] is a else a).path}"
    raise InputError(
        f"{like[0].path}: every row of {like[0].key} has logsumexp 0{only}: these are log-probabilities, and "
        f"temperature {temperature:g} may have been applied already; say --temperature 1 if it was, or "
        "--input logits to apply it"
    )


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``|a - b|``, 0 where both are -inf."""
    with np.errstate(invalid="ignore"):
        return np.where(a == b, 0.0, np.abs(a - b))


def _add(result: Comparison, a: np.ndarray, b: np.ndarray, first: int, tokens: np.ndarray | None) -> None:
    """Add the positions ``first, first + 1, ...`` with logits ``(n, V)``."""
    n = np.arange(len(a))
    shared = slice(None) if result.sides is None else result.sides.shared
    apart = _difference(a[:, shared], b[:, shared])
    with np.errstate(over="ignore"):
        bins = apart.astype(np.float32).view(np.int32) >> _DROPPED_BITS
    result.histogram += np.bincount(bins.reshape(-1), minlength=len(result.histogram))
    worst = apart.max(axis=-1)
    k = int(np.argmax(worst))
    if worst[k] > result.worst_logit[0]:
        token = int(np.argmax(apart[k]))
        result.worst_logit = (
            float(worst[k]), first + k, token if result.sides is None else int(result.sides.shared[token])
        )  # fmt: skip
    result.support_differs += int((np.isneginf(a[:, shared]) != np.isneginf(b[:, shared])).any(axis=-1).sum())
    tempered = [temper(rows, result.temperature, dtype=np.float64) for rows in (a, b)]
    p, q = (softmax(rows) for rows in tempered)
    logs = [rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True)) for rows in tempered]
    if result.sides is not None:
        for name, law, only in zip("ab", (p, q), result.sides.only, strict=True):
            result.outside[name] += law[:, only].sum(axis=-1).tolist()
    tv, kl = distances(p, q)
    top_a, top_b = a.argmax(axis=-1), b.argmax(axis=-1)
    token = top_a if tokens is None else tokens
    with np.errstate(invalid="ignore"):
        margin_a, margin_b = a[n, top_a] - a[n, top_b], b[n, top_b] - b[n, top_a]
    columns = {
        "position": first + n,
        "max_abs_logit": worst,
        "max_abs_log_probability": _difference(*(rows[:, shared] for rows in logs)).max(axis=-1),
        "tv": tv,
        "kl": kl,
        "kl_reverse": distances(q, p)[1],
        "top_a": top_a,
        "top_b": top_b,
        "margin_a": margin_a,
        "margin_b": margin_b,
        "delta_p": q[n, token] - p[n, token],
        "nll_a": -logs[0][n, token],
        "nll_b": -logs[1][n, token],
    }
    columns |= _ties(a, b, columns, result)
    for name in COLUMNS:
        result.columns[name] += np.asarray(columns[name]).tolist()


def _ties(a: np.ndarray, b: np.ndarray, columns: Mapping[str, Any], result: Comparison) -> dict[str, Any]:
    """Gaps of the best two, the unit in the last place at the top, and whether a flip is only a near-tie.

    A flip is a near-tie where in either dump the two tokens that changed places are within one unit: a last
    bit decides between them. A near-tie without a flip has its best two that close. In a quantised dump both
    values may move by half a step (and by the roundoff of restoring them), so the unit is a step at least.
    """
    n = np.arange(len(a))
    tops = np.maximum(np.abs(a[n, columns["top_a"]]), np.abs(b[n, columns["top_b"]]))
    ulp = 2 * half_ulp(tops, result.precision)
    for rows, step in ((a, result.a.step), (b, result.b.step)):
        if step is not None:
            largest = np.abs(rows, where=np.isfinite(rows), out=np.zeros_like(rows)).max(axis=-1)
            ulp = np.maximum(ulp, step * (1 + _STEP_ERROR) + 4 * half_ulp(largest, np.float32))
    gaps = []
    for rows in (a, b):
        best = np.partition(rows, -2, axis=-1)[:, -2:] if rows.shape[-1] > 1 else np.full((len(a), 2), np.inf)
        with np.errstate(invalid="ignore"):
            gaps.append(best[:, 1] - best[:, 0] if rows.shape[-1] > 1 else np.full(len(a), np.inf))
    flipped = columns["top_a"] != columns["top_b"]
    swapped = np.minimum(columns["margin_a"], columns["margin_b"]) <= ulp
    near = np.where(flipped, swapped, np.minimum(*gaps) <= ulp)
    status = np.where(near, "near-tie", np.where(flipped, "flip", "same"))
    return {"gap_a": gaps[0], "gap_b": gaps[1], "ulp": ulp, "status": status}
