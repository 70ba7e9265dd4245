"""What the rows of a dump are, and whether a temperature or filter was applied to them already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.dumps import FlatDump
from resispec_verify.dumps.checks.looks import log_probabilities, probabilities
from resispec_verify.dumps.rows import rows_of, widened
from resispec_verify.errors import InputError

__all__ = ["input_kind", "kind_of_rows", "refuse_applied"]


def input_kind(dump: FlatDump, kind: str | None) -> str:
    """What the rows of the dump are.

    Raises
    ------
    InputError
        Nothing was said and every row of target or draft is a distribution: probabilities in a field meant
        for logits.
    """
    return kind_of_rows(dump.path, [dump], kind)


def kind_of_rows(path: str, parts: Iterable[FlatDump], kind: str | None) -> str:
    """What the rows of a file are, all parts of it looked at; raises as `input_kind`."""
    if kind is not None:
        return kind
    like = [name for name in ("target", "draft") if all(probabilities(getattr(p, name)) for p in parts)]
    if like:
        remedy = "say --input probabilities" if len(like) == 2 else "save target and draft alike"
        raise InputError(
            f"{path}: every row of {' and '.join(like)} is in [0, 1] and sums to 1: these look like "
            f"probabilities, not logits; {remedy} (or say --input logits if they really are)"
        )
    return "logits"


def refuse_applied(
    parts: Iterable[FlatDump],
    kind: str | None,
    asked: Sequence[Sampling] | None,
    stated: Sequence[Mapping[str, Any]],
) -> None:
    """Refuse to apply a temperature or filter to rows that may have it.

    ``kind`` is what was said of the rows, and ``asked`` what was asked for, in the place of what is stated.

    Raises
    ------
    InputError
        See `reading.resolved`.
    """
    dump = next(iter(parts))
    applied = _to_apply(dump, kind, asked, stated)
    if applied is None or kind == "logits" or (kind is not None and asked):
        return
    where = "asked for" if asked else "stated in meta"
    if kind is not None:
        raise InputError(
            f"{dump.path}: {applied} is stated in meta, and {kind} may have it already; say "
            "--temperature 1 if they do, or give the temperature and filters that are to be applied"
        )
    roles = (dump.keys[0], "target"), (dump.keys[1], "draft")
    like = [key for key, name in roles if all(log_probabilities(getattr(part, name)) for part in parts)]
    if not like:
        return
    only = "" if len(like) == 2 else ", unlike the other's"
    answer = (
        "--input log-probabilities --temperature 1 if they have it"
        if len(like) == 2
        else "record both alike if they have it"
    )
    raise InputError(
        f"{dump.path}: every row of {' and '.join(like)} has logsumexp 0{only}: these are log-probabilities, "
        f"and {applied}, {where}, may have been applied already; {answer}, --input logits to apply it"
    )


def _to_apply(
    dump: FlatDump, kind: str | None, asked: Sequence[Sampling] | None, stated: Sequence[Mapping[str, Any]]
) -> str | None:
    """The first temperature or filter that would do more to rows that have it already, in words.

    top-k and min-p leave what they have left. top-p does not, but rows that it was applied to have holes.
    """
    try:
        given = asked or [Sampling(**one) for one in _different(stated)]
    except InputError:
        return None  # it is told with its position when it is used
    for sampling in given:
        if sampling.temperature not in (0.0, 1.0):  # 0 leaves the best token, whatever was applied
            return f"temperature {sampling.temperature:g}"
        if sampling.repetition_penalty is not None:  # it goes by the signs of logits, which a shift changes
            return f"repetition penalty {sampling.repetition_penalty:g}"
        if sampling.top_p not in (None, 1.0):
            first = widened(rows_of(dump.target, 0, 1))
            if (first == (0.0 if kind == "probabilities" else -np.inf)).any():
                return f"top-p {sampling.top_p:g}"
    return None


def _different(stated: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [dict(items) for items in dict.fromkeys(tuple(sorted(one.items())) for one in stated)]
