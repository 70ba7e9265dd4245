"""Two files of top-k pairs of the same prefixes, or one and a dump of whole rows: how far apart they may be.

Two laws with unseen tails are a pair like target and draft, so that their total variation and KL have the
ends of `topk.bounds`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from resispec_verify import topk
from resispec_verify.dumps import FlatDump, TopPairs, TopPairsDump, TopRows
from resispec_verify.errors import InputError
from resispec_verify.logged.compare_summary import LEVELS, quantile
from resispec_verify.rules import make_rule
from resispec_verify.schema import envelope, plain
from resispec_verify.tables.means import mean
from resispec_verify.tables.reading import Reading, pairs_of

__all__ = ["TopComparison", "compare_top", "top_comparison_records", "top_comparison_report"]

_ELEMENTS = 1 << 21  # probabilities of whole rows that are cut at once
_BLOCK = 2048
_DISTANCES = ("tv", "kl", "kl_reverse")
_SIDES = ("target", "draft")


class _Whole:
    """A dump of whole rows as lists of the whole vocabulary, sampled as it states."""

    def __init__(self, dump: FlatDump, kind: str | None) -> None:
        self.path, self.positions, self.vocab, self.next_tokens = dump.path, dump.positions, dump.vocab, None
        self._dump, self._kind = dump, kind

    def pairs(self, start: int, stop: int) -> TopPairs:
        reading = Reading(kind=self._kind, start=start, stop=stop)
        batches = list(pairs_of(self._dump, reading))
        order = np.argsort(np.concatenate([batch.positions for batch in batches]))
        if len(order) != stop - start:
            raise InputError(
                f"{self.path}: states several samplings of a position; compare a dump that has one"
            )
        rows = (np.concatenate([getattr(batch.pair, side) for batch in batches])[order] for side in _SIDES)
        return TopPairs(*(topk.cut(side, self.vocab) for side in rows))


@dataclass
class TopComparison:
    """What two files say of each other.

    Attributes
    ----------
    a, b : str
        Their paths.
    columns : dict
        ``position`` and, by "target" and "draft", pairs of ends: ``target_tv`` and so on; ``top_a``,
        ``top_b`` and ``status`` of the target's best token: ``same``, ``near-tie``, ``flip`` or, where an
        unseen token may be the best, ``unknown``.
    k : list
        Tokens listed at most, by file; None for whole rows.
    """

    a: str
    b: str
    k: list[int | None]
    columns: dict[str, list[Any]] = field(default_factory=dict)


def compare_top(
    a: TopPairsDump | FlatDump,
    b: TopPairsDump | FlatDump,
    *,
    positions: tuple[int | None, int | None] = (None, None),
    kind: str | None = None,
    advance: Callable[[int], Any] = lambda done: None,
) -> TopComparison:
    """Compare, block by block.

    Parameters
    ----------
    kind : {"logits", "probabilities", "log-probabilities"}, optional
        What whole rows are.

    Raises
    ------
    InputError
        Other numbers of positions or vocabularies, next tokens that differ, a range outside, rows that cannot
        be used.
    """
    one, other = (dump if isinstance(dump, TopPairsDump) else _Whole(dump, kind) for dump in (a, b))
    if one.positions != other.positions:
        raise InputError(
            f"{one.path} has {one.positions} positions but {other.path} has {other.positions}; compare files "
            "of the same prefixes"
        )
    _same_tokens(one, other)
    start, stop = positions[0] or 0, one.positions if positions[1] is None else positions[1]
    if not 0 <= start < stop <= one.positions:
        raise InputError(f"positions {start}:{stop} are outside the files, which have 0:{one.positions}")
    widest = max((dump.vocab for dump in (a, b) if isinstance(dump, FlatDump)), default=1)
    size = max(1, min(_BLOCK, _ELEMENTS // widest))
    found = TopComparison(one.path, other.path, [getattr(dump, "k", None) for dump in (a, b)])
    for first in range(start, stop, size):
        last = min(first + size, stop)
        _add(found, one.pairs(first, last), other.pairs(first, last), first)
        advance(last - first)
    return found


def _same_tokens(one: Any, other: Any) -> None:
    """Refuse files that say of a position that other tokens followed."""
    if one.next_tokens is None or other.next_tokens is None:
        return
    differ = (one.next_tokens != other.next_tokens) & (one.next_tokens >= 0) & (other.next_tokens >= 0)
    if differ.any():
        at = int(np.argmax(differ))
        raise InputError(
            f"next_tokens differs first at position {at}: {one.next_tokens[at]} in {one.path}, "
            f"{other.next_tokens[at]} in {other.path}; compare files of the same prefixes"
        )


def _add(found: TopComparison, a: TopPairs, b: TopPairs, first: int) -> None:
    rule = make_rule("specinfer")  # of one candidate: what it accepts is not looked at
    columns: dict[str, Any] = {"position": np.arange(first, first + len(a))}
    for side in _SIDES:
        rows = getattr(a, side), getattr(b, side)
        here = topk.bounds(TopPairs(*rows), rule, 1)
        columns[f"{side}_tv"], columns[f"{side}_kl"] = here.tv, here.kl
        columns[f"{side}_kl_reverse"] = topk.bounds(TopPairs(*rows[::-1]), rule, 1).kl
    columns |= _best(a.target, b.target)
    for name, values in columns.items():
        found.columns.setdefault(name, []).extend(np.asarray(values).tolist())


def _best(a: TopRows, b: TopRows) -> dict[str, Any]:
    """The target's best tokens, and whether they are the same for certain."""
    tops = [rows.tokens[np.arange(len(rows)), np.argmax(rows.probabilities, axis=1)] for rows in (a, b)]
    swapped = [_by_how_much(rows, tops[1 - i]) for i, rows in enumerate((a, b))]
    seen = [rows.probabilities.max(axis=1) >= np.minimum(rows.most, rows.tail[:, 1]) for rows in (a, b)]
    # A last bit of a logarithm in single precision: what lists are mostly stored in.
    near = np.minimum(*swapped) <= float(np.finfo(np.float32).eps)
    status = np.where(tops[0] == tops[1], "same", np.where(near, "near-tie", "flip"))
    return {"top_a": tops[0], "top_b": tops[1], "status": np.where(seen[0] & seen[1], status, "unknown")}


def _by_how_much(rows: TopRows, token: np.ndarray) -> np.ndarray:
    """By how much, as a share, the best token is certain to be ahead of another."""
    best = rows.probabilities.max(axis=1).astype(np.float64)
    listed = rows.tokens == token[:, None]
    unseen = np.minimum(rows.most, rows.tail[:, 1])
    of_token = np.where(listed.any(axis=1), (rows.probabilities * listed).sum(axis=1), unseen)
    return (best - of_token) / np.where(best > 0.0, best, 1.0)


def top_comparison_report(found: TopComparison, tail: int) -> dict[str, Any]:
    """The whole report of ``compare`` on top-k files, JSON-ready."""
    columns = found.columns
    status = columns["status"]
    result: dict[str, Any] = {"positions": len(status)}
    for side in _SIDES:
        result[side] = {name: _spread(columns[f"{side}_{name}"]) for name in _DISTANCES}
    highest = [ends[1] for ends in columns["target_tv"]]
    worst = sorted(range(len(status)), key=lambda i: (-columns["target_tv"][i][0], -highest[i], i))[:tail]
    flips = [i for i, kind in enumerate(status) if kind == "flip"]
    result |= {
        "flips": len(flips),
        "near_ties": status.count("near-tie"),
        "best_unknown": status.count("unknown"),
        "worst": [{name: values[i] for name, values in columns.items()} for i in worst],
        "flip_list": [{name: values[i] for name, values in columns.items()} for i in flips[:tail]],
    }
    files = [{"path": path, "k": k} for path, k in zip((found.a, found.b), found.k, strict=True)]
    return envelope(
        "compare", [plain(result)], form="top-k", kl_direction="KL(A || B)", a=files[0], b=files[1]
    )


def _spread(ends: list[list[float]]) -> dict[str, list[float]]:
    """Means and quantiles of the low ends, and of the high ones: those of the truth lie between."""
    columns = [sorted(end[i] for end in ends) for i in range(2)]
    return {
        "mean": [math.inf if math.isinf(column[-1]) else mean(column) for column in columns],
        "max": [column[-1] for column in columns],
        **{name: [quantile(column, level) for column in columns] for name, level in LEVELS.items()},
        "min": [column[0] for column in columns],
    }


def top_comparison_records(found: TopComparison) -> Iterator[dict[str, Any]]:
    """One record a position: what ``--csv`` writes."""
    for i in range(len(found.columns["position"])):
        record: dict[str, Any] = {}
        for name, values in found.columns.items():
            if isinstance(values[i], list):
                record |= {f"{name}_low": values[i][0], f"{name}_high": values[i][1]}
            else:
                record[name] = values[i]
        yield record
