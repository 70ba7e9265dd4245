"""Reported log-probabilities beside flat rows, held against the rows: what `inspect` says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.dumps import FlatDump, TargetDump, open_target
from resispec_verify.dumps.kinds.labels import samplings
from resispec_verify.dumps.kinds.reported import REPORTED_KEY, reported_logprobs
from resispec_verify.dumps.kinds.texts import texts_before
from resispec_verify.dumps.kinds.values import integers
from resispec_verify.errors import InputError
from resispec_verify.logged.reported import RIGHT, Reported
from resispec_verify.logged.round_rows import UNIT
from resispec_verify.logged.rounds_input import half_ulp
from resispec_verify.sampling.text import adjusts
from resispec_verify.tables.adjusting import adjusted_rows, check_adjusting

__all__ = ["SPECULATIVE_KEY", "of_rows"]

#: By position, whether the token came from speculation.
SPECULATIVE_KEY = "speculative"
_ELEMENTS = 1 << 22
_MOST_SLACK = 300.0


def of_rows(path: Any, mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of `Reported` for a dump with ``reported_logprobs [N]`` of ``next_tokens [N]``.

    Penalties, bias and bans are part of the second convention and the third. Tokens are of the class
    `ordinary`, or `speculative` where the key of that name says so. Beside the three conventions the rows
    before and after are looked at, raw.

    Raises
    ------
    InputError
        No ``next_tokens``, other lengths, a sampling by position, or one that needs a text which the dump
        does not have.
    """
    dump: TargetDump = open_target(path)
    n, where = dump.positions, f"{path}: {REPORTED_KEY}"
    if dump.left_out:
        raise InputError(f"{where} beside a mask is not read; leave the rows out that it hides")
    if mapping.get("next_tokens") is None:
        raise InputError(f"{where} needs next_tokens: by position, the token that was emitted there")
    tokens = integers(f"{path}: next_tokens", mapping["next_tokens"], (n,), 0, dump.vocab - 1)
    stored = reported_logprobs(where, mapping[REPORTED_KEY], n, n)
    speculative = mapping.get(SPECULATIVE_KEY)
    if speculative is None:
        speculative = np.zeros(n, bool)
    elif (
        not isinstance(speculative, np.ndarray)
        or speculative.shape != (n,)
        or speculative.dtype.kind not in "biu"
        or not np.isin(speculative, (0, 1)).all()
    ):
        raise InputError(f"{path}: {SPECULATIVE_KEY} must be true or false by position, [{n}]")
    stated = _sampling(path, mapping, n)
    texts = texts_before(path, mapping, (n,), dump.vocab)
    flat = FlatDump(str(path), dump.target, dump.target, **texts)
    check_adjusting(flat, stated, "logits")
    names = (*RIGHT, "the target's raw row before", "the target's raw row after")
    values = {name: np.full((2, n), np.nan) for name in names}
    step = max(1, _ELEMENTS // dump.vocab)
    for first in range(0, n, step):
        last = min(first + step, n)
        rows = dump.batch(first, last).astype(np.float64)
        raw = rows, half_ulp(rows, dump.target.dtype)
        changed = _adjusted(flat, *raw, np.arange(first, last), stated)
        for name, (rows, half), sampling, shift in (
            (RIGHT[0], raw, Sampling(), 0), (RIGHT[1], changed, Sampling(stated.temperature), 0),
            (RIGHT[2], changed, stated, 0), ("the target's raw row before", raw, Sampling(), 1),
            ("the target's raw row after", raw, Sampling(), -1),
        ):  # fmt: skip
            at = np.arange(first, last) + shift  # the position whose token is looked up in this row
            here = (at >= 0) & (at < n)
            values[name][:, at[here]] = _values(rows[here], half[here], sampling, tokens[at[here]])
    slack = half_ulp(stored.astype(np.float64), stored.dtype)
    found = Reported()
    for kind, which in (("speculative", speculative != 0), ("ordinary", speculative == 0)):
        laws = {name: (v[0, which], v[1, which] + slack[which]) for name, v in values.items()}
        found.add(kind, np.flatnonzero(which), stored.astype(np.float64)[which], laws)
    summary = found.summary()
    assert summary is not None  # a dump has positions
    return summary


def _adjusted(
    dump: FlatDump, rows: np.ndarray, half: np.ndarray, positions: np.ndarray, sampling: Sampling
) -> tuple[np.ndarray, np.ndarray]:
    """Rows with penalties, bias and bans, and how far each may be off: ends go to ends.

    On top comes the float32 rounding of at most three operations on each.
    """
    if not adjusts(sampling):
        return rows, half
    middle, low, high = (
        adjusted_rows(dump, values, positions, sampling, "target")
        for values in (rows, rows - half, rows + half)
    )
    with np.errstate(invalid="ignore"):
        apart = np.maximum(high - middle, middle - low)
        moved = 3 * UNIT * np.maximum(np.abs(rows), np.abs(middle))
    return middle, np.where(np.isfinite(middle), apart + moved, 0.0)


def _values(rows: np.ndarray, half: np.ndarray, sampling: Sampling, tokens: np.ndarray) -> np.ndarray:
    """Log-probabilities ``(n,)`` of tokens, and how far rounding may have moved them."""
    law = sampling.law_of(rows, dtype=np.float64)
    at = np.arange(len(rows)), tokens
    with np.errstate(divide="ignore"):
        value = np.log(law[at])
    moved = UNIT * (np.log2(rows.shape[-1]) + 10 + 4 * np.where(np.isfinite(value), np.abs(value), 0.0))
    if sampling.temperature > 0:
        h = np.minimum(half / sampling.temperature, _MOST_SLACK)
        moved += h[at] + np.log((law * np.exp(h)).sum(axis=-1))
    return np.stack([value, moved])


def _sampling(path: Any, mapping: Mapping[str, Any], positions: int) -> Sampling:
    stated: Any = samplings(path, mapping.get("meta"), positions)
    if isinstance(stated, tuple):
        raise InputError(f"{path}: {REPORTED_KEY} is not read where meta states a sampling by position")
    return Sampling(**(stated or {}))
