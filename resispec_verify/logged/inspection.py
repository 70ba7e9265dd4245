"""What a dump holds, before anything is computed from it."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

from resispec_verify.dumps import (
    Axis,
    FlatDump,
    RoundsDump,
    TargetDump,
    TreeDump,
    find_shards,
    has_trees,
    kind,
    load_mapping,
    looks_like_probabilities,
    open_dump,
    open_rounds,
    open_target,
    open_top_pairs,
    open_tree,
)
from resispec_verify.dumps.checks.companions import MASKS
from resispec_verify.dumps.checks.oddities import Oddity, RowScan, ShiftScan
from resispec_verify.dumps.checks.whole import stated_vocabulary
from resispec_verify.dumps.kinds.keys import DRAFT_KEYS, TARGET_KEYS
from resispec_verify.dumps.kinds.reported import REPORTED_KEY
from resispec_verify.dumps.kinds.rounds import NEEDED, OPTIONAL
from resispec_verify.dumps.opening import show
from resispec_verify.dumps.rows import LazyRows, Rows, Scattered, checked_rows, dtype_names
from resispec_verify.errors import InputError
from resispec_verify.logged.emitted import Emitted, emitted, end_of_text
from resispec_verify.logged.overlap import overlaps
from resispec_verify.logged.reported_rows import SPECULATIVE_KEY, of_rows
from resispec_verify.logged.tree_inspection import tree_rounds

__all__ = ["inspect_dump"]

_BATCH_ELEMENTS = 1 << 22
_USED_AS = ("target", "draft", "proposal")


def inspect_dump(
    path: str | os.PathLike[str], *, pad_vocab: bool = False, shards: Axis | None = None
) -> dict[str, Any]:
    """Describe one dump: a file, or a folder, glob or index of shards.

    Parameters
    ----------
    path : path
    pad_vocab, shards
        As in `open_dump`.

    Returns
    -------
    dict
        ``path``, ``kind`` (flat, target, rounds, tree, top, unknown), ``keys`` (key, type, shape, dtype,
        used_as),
        ``positions``, ``vocab``, ``dtype`` (None where they do not apply), ``ignored`` (keys that nothing
        uses), ``notes`` and ``problems`` (one line each), ``oddities`` (kind, key, count, first_position,
        text); for rounds, trees and top-k pairs ``rounds``, ``tree`` or ``top`` with their numbers.

    Raises
    ------
    InputError
        The file cannot be read at all.
    """
    files = find_shards(path)
    mapping = load_mapping(path) if files is None else None
    first = load_mapping(files.files[0]) if files is not None else mapping
    result: dict[str, Any] = {
        "path": str(path),
        "kind": kind(first or {}),
        "keys": [] if mapping is None else [_entry(key, value) for key, value in mapping.items()],
        "positions": None,
        "vocab": None,
        "dtype": None,
        "ignored": [],
        "notes": [],
        "problems": [],
        "oddities": [],
    }
    looks = {"target": _target} if mapping is None else _LOOKS
    try:
        looks.get(result["kind"], _flat)(path, result, {"pad_vocab": pad_vocab, "shards": shards})
    except InputError as error:
        if mapping is None:
            raise
        result["problems"].append(str(error))
    if mapping is not None and result["kind"] in ("flat", "target") and mapping.get(REPORTED_KEY) is not None:
        _reported(path, mapping, result)
    result["ignored"] += [entry["key"] for entry in result["keys"] if entry["used_as"] is None]
    result["oddities"] = [asdict(oddity) for oddity in result["oddities"]]
    return result


def _reported(path: Any, mapping: dict[str, Any], result: dict[str, Any]) -> None:
    """What the log-probabilities beside the rows are."""
    try:
        result["reported_logprobs"] = of_rows(path, mapping)
    except InputError as error:
        result["problems"].append(str(error))
    uses = dict.fromkeys((REPORTED_KEY, SPECULATIVE_KEY, "next_tokens"), "reported log-probabilities")
    for entry in result["keys"]:
        entry["used_as"] = entry["used_as"] or uses.get(entry["key"])


def _flat(path: Any, result: dict[str, Any], opening: dict[str, Any]) -> None:
    dump = open_dump(path, **opening)
    result |= {"kind": "flat", "positions": dump.positions, "vocab": dump.vocab, "dtype": dump.dtype}
    result["notes"] += dump.notes
    roles = [
        (key, rows)
        for key, rows in zip(dump.keys, (dump.target, dump.draft, dump.proposal), strict=True)
        if rows is not None
    ]
    if not result["keys"]:
        labels = {name: getattr(dump, name) for name in ("tokens", "candidates", "dataset", "meta")}
        held = dict(roles) | {key: value for key, value in labels.items() if value is not None}
        result["keys"] = [_entry(key, value) for key, value in held.items()]
    used = dict(zip(dump.keys, _USED_AS, strict=True)) | _LABELS | {"chunks": "target and draft"}
    for entry in result["keys"]:
        entry["used_as"] = used.get(entry["key"])
    declared = _declared(dump.meta, min(dump.pad) if dump.pad else None)
    found = _scan(dump.path, [(key, rows, dump.tokens) for key, rows in roles], declared, result["problems"])
    if dump.pad:
        result["notes"].append(
            f"widths differ: target {dump.pad[0]}, draft {dump.pad[1]}; the narrower is padded"
        )
    if not result["problems"]:
        found = [*_whole(dump), *overlaps(dump), *found]
        result["notes"] += [oddity.text for oddity in found if oddity.key == _BOTH]
    result["oddities"] += found


_BOTH = "target and draft"
_MAPS = {"d2t": "draft tokens", "t2d": "draft tokens", "meta": "what it states"}
_LABELS = (
    _MAPS
    | dict.fromkeys(MASKS, "mask")
    | {
        "candidates": "path identity",
        "tokens": "checks of rows",
        "dataset": "dataset",
        "start": "order of parts",
        "history": "penalties",
        "prompt_len": "penalties",
        "allowed_tokens": "masks of allowed tokens",
    }
)


def _whole(dump: FlatDump) -> list[Oddity]:
    """What concerns both matrices at once."""
    found = []
    if dump.target.shape == dump.draft.shape and _same(dump):
        text = "target and draft are identical: every rule that is exact accepts always"
        found.append(Oddity("identical", _BOTH, dump.positions, 0, text))
    if looks_like_probabilities(dump):
        text = "rows look like probabilities, not logits; kl needs --input probabilities"
        found.append(Oddity("probabilities", _BOTH, dump.positions, 0, text))
    return found


def _same(dump: FlatDump) -> bool:
    step = max(1, _BATCH_ELEMENTS // dump.vocab)
    for first in range(0, dump.positions, step):
        batch = dump.batch(first, first + step)
        if not np.array_equal(batch.target, batch.draft):
            return False
    return True


def _scan(
    path: str, held: list[tuple[str, Rows, Any]], declared: int | None, problems: list[str]
) -> list[Oddity]:
    """Stream the rows of each key, once; rows that are not logits go to `problems`."""
    found: list[Oddity] = []
    for key, rows, tokens in held:
        # The tokens that a reduced vocabulary lacks are not something that was done to its rows.
        plain = rows.inner if isinstance(rows, Scattered) else rows
        scan = RowScan(key, rows.dtype, declared)
        shift = ShiftScan(key, tokens, rows)
        positions = int(np.prod(rows.shape[:-1], dtype=np.int64))
        step = max(1, _BATCH_ELEMENTS // rows.shape[-1])
        for first in range(0, positions, step):
            last = min(first + step, positions)
            try:
                batch = checked_rows(path, key, plain, first, last)
                scan.add(batch, np.arange(first, last))
                shift.add(batch if plain is rows else checked_rows(path, key, rows, first, last), first)
            except InputError as error:
                problems.append(str(error))
        found += [*scan.oddities(), *shift.oddities()]
    return found


def _declared(meta: Any, narrower: int | None) -> int | None:
    """The vocabulary without padding, as far as anything says."""
    return min((size for size in (stated_vocabulary(meta), narrower) if size), default=None)


_TARGET_LABELS = {
    key: use
    for key, use in _LABELS.items()
    if key not in ("d2t", "t2d", "candidates", "dataset", "history", "prompt_len", "allowed_tokens")
}
_TARGET_LABELS |= {"next_tokens": "checks of rows", "context_tokens": "compare"}


_FORMAT = ("floor", "near-tie", "log-probabilities", "sorted")


def _target(path: Any, result: dict[str, Any], opening: dict[str, Any]) -> None:
    dump: TargetDump = open_target(path, shards=opening["shards"])
    result |= {"positions": dump.positions, "vocab": dump.vocab, "dtype": dump.dtype}
    if not result["keys"]:
        held = {dump.key: dump.target, "tokens": dump.tokens, "meta": dump.meta}
        result["keys"] = [_entry(key, value) for key, value in held.items() if value is not None]
    for entry in result["keys"]:
        entry["used_as"] = ({dump.key: "target"} | _TARGET_LABELS).get(entry["key"])
    result["notes"] += dump.notes
    result["notes"].append("a target without draft: kl needs both; two targets can be compared")
    if dump.step is not None and dump.floor is not None:
        floor = (
            "no row is cut off" if dump.floor == -np.inf else f"rows are cut off at {dump.floor:.4g} or below"
        )
        result["notes"].append(f"16-bit log-probabilities: the step is at most {dump.step:.3g}, {floor}")
    tokens = None if dump.step is not None else dump.tokens
    found = _scan(
        dump.path, [(dump.key, dump.target, tokens)], _declared(dump.meta, None), result["problems"]
    )
    if dump.step is not None:
        # Cut off and rounded as the notes say; that is the format, not what the model gave.
        found = [oddity for oddity in found if oddity.kind not in _FORMAT]
    result["oddities"] += found


def _rounds(path: Any, result: dict[str, Any], opening: dict[str, Any]) -> None:
    if has_trees(load_mapping(path)):
        tree_rounds(path, result, opening["pad_vocab"], _declared(load_mapping(path).get("meta"), None))
        return
    dump: RoundsDump = open_rounds(path, pad_vocab=opening["pad_vocab"])
    gammas = [one.gamma for one in dump.rounds]
    for entry in result["keys"]:
        entry["used_as"] = (_MAPS | {"rounds": "rounds", "output_tokens": "checks of rounds"}).get(
            entry["key"]
        )
    known = (*NEEDED, *OPTIONAL, "prompt", "seed")
    unknown = {key: None for entry in load_mapping(path)["rounds"] for key in entry if key not in known}
    result["ignored"] += [f"rounds.{show(key)}" for key in unknown]
    accepted = Counter(one.accepted for one in dump.rounds)
    text = emitted(dump.rounds, dump.output_tokens, end_of_text(path, dump.meta))
    result |= {"vocab": dump.vocab, "dtype": dump.dtype}
    result["rounds"] = {
        "rounds": len(dump),
        "gamma": [min(gammas), max(gammas)],
        "accepted": {str(count): accepted[count] for count in sorted(accepted)},
        "tokens_per_round": sum(text.counts) / len(dump),
        "uniforms": all(one.u is not None for one in dump.rounds),
    }
    first, declared = dump.rounds[0], _declared(dump.meta, None)
    scans = [
        RowScan("rounds.target_logits", first.target.dtype, declared, "round"),
        RowScan("rounds.draft_logits", first.draft.dtype, declared, "round"),
    ]
    for i in range(len(dump)):
        try:
            logits = dump.logits(i)
        except InputError as error:
            result["problems"].append(str(error))
            continue
        for scan, rows in zip(scans, logits, strict=False):
            if rows is not None and len(rows):
                scan.add(rows, np.full(len(rows), i))
    result["oddities"] += [oddity for scan in scans for oddity in scan.oddities()]
    result["oddities"] += _chain(dump, text)


def _chain(dump: RoundsDump, text: Emitted) -> list[Oddity]:
    """Where the rounds do not follow from each other, or do not make the output."""
    found = []
    for name in ("context_len", "output_tokens"):
        broken = _broken_lengths(dump) if name == "context_len" else text.broken
        if broken:
            line = f"{len(broken)} of {len(dump)} rounds do not agree with {name}, first round {broken[0]}"
            found.append(Oddity("broken-chain", name, len(broken), broken[0], line))
    return found


def _broken_lengths(dump: RoundsDump) -> list[int]:
    broken = []
    for i in range(1, len(dump)):
        before, here = dump.rounds[i - 1], dump.rounds[i].context_len
        if before.context_len is None or here is None or before.prompt != dump.rounds[i].prompt:
            continue
        if here != before.context_len + before.accepted + 1:
            broken.append(i)
    return broken


def _tree(path: Any, result: dict[str, Any], opening: dict[str, Any]) -> None:
    dump: TreeDump = open_tree(path, pad_vocab=opening["pad_vocab"])
    used = dict.fromkeys(TARGET_KEYS, "target") | dict.fromkeys(DRAFT_KEYS, "draft")
    used |= _MAPS | dict.fromkeys(("tokens", "parent", "depth", "prefix", "prefix_len"), "tree")
    for entry in result["keys"]:
        entry["used_as"] = used.get(entry["key"])
    branching = [len(nodes) for nodes in dump.children if len(nodes)]
    result |= {"vocab": dump.vocab, "dtype": dump.dtype}
    result["tree"] = {
        "prefixes": dump.prefixes,
        "nodes": dump.nodes,
        "depth": int(dump.depth.max()),
        "branching": [min(branching, default=0), max(branching, default=0)],
        "leaves": dump.nodes - len(branching),
    }
    declared = _declared(dump.meta, None)
    scans = [
        RowScan("target_logits", dump.target.dtype, declared, "prefix"),
        RowScan("draft_logits", dump.draft.dtype, declared, "prefix"),
    ]
    for i in range(dump.prefixes):
        try:
            logits = dump.logits(i)
        except InputError as error:
            result["problems"].append(str(error))
            continue
        for scan, rows in zip(scans, logits, strict=True):
            scan.add(rows, np.full(len(rows), i))
    result["oddities"] += [oddity for scan in scans for oddity in scan.oddities()]


def _entry(key: Any, value: Any) -> dict[str, Any]:
    array = isinstance(value, (np.ndarray, LazyRows))
    return {
        "key": key if isinstance(key, str) else show(key),
        "type": "array" if array else type(value).__name__,
        "shape": list(value.shape)
        if array
        else ([len(value)] if isinstance(value, (list, tuple, dict)) else None),
        "dtype": value.dtype.name if array else None,
        "used_as": None,
    }


def _top(path: Any, result: dict[str, Any], opening: dict[str, Any]) -> None:
    dump = open_top_pairs(path)
    for entry in result["keys"]:
        key = str(entry["key"])
        entry["used_as"] = None if key in dump.ignored else {"meta": "what it states"}.get(key, "top-k pairs")
    tails = {"target": [0.0, 0.0], "draft": [0.0, 0.0]}
    for pairs in dump.blocks():
        for name, found in tails.items():
            tail = getattr(pairs, name).tail
            found[0] += float(tail.sum()) / 2
            found[1] = max(found[1], float(tail[:, 1].max()))
    result |= {"positions": dump.positions, "vocab": dump.vocab}
    result["dtype"] = dtype_names(dump.target.values, dump.draft.values)
    result["top"] = {"k": [dump.target.k, dump.draft.k]} | {
        f"{name}_tail": {"mean": total / dump.positions, "max": high} for name, (total, high) in tails.items()
    }
    result["notes"] += dump.notes


_LOOKS = {"rounds": _rounds, "tree": _tree, "target": _target, "top": _top}
