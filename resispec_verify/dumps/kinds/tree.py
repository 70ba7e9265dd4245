"""Tree dumps: prefixes with a tree of candidate tokens, and logits at its nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from resispec_verify.dumps.checks.companions import check_companions
from resispec_verify.dumps.checks.whole import check_rows
from resispec_verify.dumps.kinds.keys import (
    DRAFT_KEYS,
    TARGET_KEYS,
    TREE_KEY,
    as_rows,
    elsewhere,
    find_key,
    kind,
    refuse_top,
)
from resispec_verify.dumps.kinds.labels import samplings
from resispec_verify.dumps.kinds.values import integers
from resispec_verify.dumps.parts.reduced import differing_widths, placed
from resispec_verify.dumps.rows import LazyRows, Rows, checked_rows, dtype_names, padded
from resispec_verify.errors import InputError

__all__ = ["TreeDump", "TreeLogits", "tree_from_mapping"]

MOST_TOKENS = 2**31 - 1


class TreeLogits(NamedTuple):
    """Logits of one prefix, fresh float32 or float64, by row: ``[rows, vocab]``."""

    target: np.ndarray
    draft: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class TreeDump:
    """A tree dump, opened and checked but for its logits, which `logits` reads and checks.

    Node 0 is the root: the prefix itself. All prefixes share the shape of the tree.

    Attributes
    ----------
    path : str
    parent : int64 array (nodes,)
        -1 at the root; a parent comes before its children.
    depth : int64 array (nodes,)
        0 at the root.
    tokens : int64 array (prefixes, nodes)
        The candidate at each node; at the root it may be -1, or the last token of the prefix.
    target, draft : Rows
        ``[prefixes, rows, vocab]`` as stored.
    target_row, draft_row : int64 array (nodes,)
        In which row the logits *after* a node are; -1 where there are none (leaves).
    prefix : tuple of int64 array, or None
        The tokens of each prefix, without padding.
    meta : object
    """

    path: str
    parent: np.ndarray
    depth: np.ndarray
    tokens: np.ndarray
    target: Rows
    draft: Rows
    target_row: np.ndarray
    draft_row: np.ndarray
    prefix: tuple[np.ndarray, ...] | None
    meta: Any

    def __repr__(self) -> str:
        return (
            f"TreeDump({self.path!r}, prefixes={self.prefixes}, nodes={self.nodes}, vocab={self.vocab}, "
            f"dtype={self.dtype!r})"
        )

    @property
    def prefixes(self) -> int:
        """Number of prefixes."""
        return len(self.tokens)

    @property
    def nodes(self) -> int:
        """Number of nodes of a tree, with the root."""
        return len(self.parent)

    @property
    def vocab(self) -> int:
        """Width of a row of `logits`: the wider of the two if they are padded."""
        return max(self.target.shape[-1], self.draft.shape[-1])

    @property
    def dtype(self) -> str:
        """Stored type of the logits."""
        return dtype_names(self.target, self.draft)

    @cached_property
    def children(self) -> tuple[np.ndarray, ...]:
        """The children of each node, in order."""
        found: list[list[int]] = [[] for _ in range(self.nodes)]
        for node in range(1, self.nodes):
            found[self.parent[node]].append(node)
        return tuple(np.asarray(nodes, np.int64) for nodes in found)

    @cached_property
    def sampling(self) -> Mapping[str, object] | tuple[Mapping[str, object], ...] | None:
        """What ``meta["sampling"]`` states of how candidates were drawn, at once or by prefix.

        None where nothing is stated, or only in words.

        Raises
        ------
        InputError
            Values that are not those of a sampling.
        """
        meta = self.meta
        if isinstance(meta, Mapping) and isinstance(meta.get("sampling"), str):
            meta = {key: value for key, value in meta.items() if key != "sampling"}
        return samplings(Path(self.path), meta, self.prefixes)

    @property
    def siblings(self) -> str | None:
        """How the children of a node were drawn, if ``meta["siblings"]`` says: the name of a proposal."""
        stated = self.meta.get("siblings") if isinstance(self.meta, Mapping) else None
        if stated is not None and not isinstance(stated, str):
            raise InputError(
                f"{self.path}: meta['siblings'] must be a name such as iid, got {type(stated).__name__}"
            )
        return stated

    def logits(self, prefix: int) -> TreeLogits:
        """Return the logits of a prefix, checked.

        Raises
        ------
        InputError
            If a row has NaN or +inf, or only -inf; prefix, key and row are named.
        """
        return TreeLogits(
            self._read(prefix, "target_logits", self.target), self._read(prefix, "draft_logits", self.draft)
        )

    def checked(self) -> TreeDump:
        """The dump itself, unless its rows are not over a vocabulary; as for a `FlatDump`."""
        check_rows(self.path, {"target_logits": self.target, "draft_logits": self.draft}, self.meta)
        return self

    def _read(self, prefix: int, key: str, array: Rows) -> np.ndarray:
        one = array[prefix] if isinstance(array, np.ndarray) else _OnePrefix(array, prefix)
        where = f"{self.path}: prefix {prefix}"
        return padded(checked_rows(where, key, one, 0, array.shape[1], unit="row"), self.vocab)


class _OnePrefix(LazyRows):
    """One prefix of lazily read logits ``[prefixes, rows, vocab]``."""

    def __init__(self, whole: LazyRows, prefix: int) -> None:
        self._whole, self._first = whole, prefix * whole.shape[1]
        self.shape, self.dtype = whole.shape[1:], whole.dtype

    def rows(self, start: int, stop: int) -> np.ndarray:
        return self._whole.rows(self._first + start, self._first + stop)


def tree_from_mapping(path: str | os.PathLike[str], mapping: dict, *, pad_vocab: bool = False) -> TreeDump:
    """Check what a file holds and return it as a tree dump; no logits are read.

    Logits may be there for all nodes, or for those that have children, in the order of the nodes.

    Raises
    ------
    InputError
        If it is of another kind, a key is missing, a parent does not come before its child, depths are not
        those of the parents plus one, a token is outside the vocabulary, or shapes do not agree. Nodes are
        named 0-based.
    """
    refuse_top(path, mapping, "a tree (parent, target_logits, ...) is")
    if kind(mapping) != "tree":
        raise InputError(
            f"{path}: is a {kind(mapping)} dump, and a tree (key {TREE_KEY}) is needed; "
            f"{elsewhere(kind(mapping))}"
        )
    parent = _parents(path, mapping[TREE_KEY])
    depth = _depths(path, mapping.get("depth"), parent)
    keys = [find_key(path, mapping, *names) for names in ((TARGET_KEYS, "target"), (DRAFT_KEYS, "draft"))]
    target, draft = (_three_axes(path, key, mapping[key]) for key in keys)
    check_companions(path, mapping, dict(zip(keys, (target, draft), strict=True)), tree=True)
    _check_masks(path, mapping, parent)
    if isinstance(mapping.get("siblings"), str):
        raise InputError(f"{path}: siblings beside the logits is not read; state it as meta['siblings']")
    draft, _, pad_vocab, _ = placed(path, mapping, target, draft, None, pad_vocab)
    if target.shape[0] != draft.shape[0]:
        raise InputError(
            f"{path}: {keys[0]} has {target.shape[0]} prefixes but {keys[1]} has {draft.shape[0]}; "
            "save rows of the same prefixes"
        )
    if target.shape[-1] != draft.shape[-1] and not pad_vocab:
        raise differing_widths(path, target, draft)
    vocab = max(target.shape[-1], draft.shape[-1])
    rows = [_row_of(path, key, array, parent) for key, array in zip(keys, (target, draft), strict=True)]
    tokens = _tokens(path, mapping.get("tokens"), (target.shape[0], len(parent)), vocab)
    prefix = _prefixes(path, mapping, target.shape[0], vocab)
    return TreeDump(
        str(path), parent, depth, tokens, target, draft, rows[0], rows[1], prefix, mapping.get("meta")
    )


def _check_masks(path: Any, mapping: Mapping, parent: np.ndarray) -> None:
    """Refuse a mask that is not that of the ancestors of each node: nothing says what it hides."""
    n = len(parent)
    above = np.zeros((n, n), bool)
    for node in range(1, n):
        above[node] = above[parent[node]]
        above[node, parent[node]] = True
    likely = [one for each in (above, above | np.eye(n, dtype=bool)) for one in (each, each.T)]
    for key, value in mapping.items():
        if not isinstance(key, str) or "mask" not in key.lower() or value is None:
            continue
        mask = np.asarray(value)
        if (mask == 1).all():
            continue  # it hides nothing
        if mask.shape[-2:] == (n, n):
            numbers = mask.astype(np.float64)
            # Masks that are added to scores have 0 where a node is seen.
            seen = numbers == 0 if (numbers < 0).any() else numbers != 0
            if any((seen == one).all() for one in likely):
                continue
        raise InputError(
            f"{path}: {key} {list(mask.shape)} is not the mask of the ancestors of each node that parent "
            "says, and nothing says how to read it; leave it out, with what it hides"
        )


def _parents(path: Any, value: object) -> np.ndarray:
    parent = integers(f"{path}: {TREE_KEY}", value, None, -1, MOST_TOKENS)
    if not len(parent) or parent[0] != -1:
        shown = f"{parent[0]}, not -1" if len(parent) else "missing"
        raise InputError(f"{path}: {TREE_KEY} of node 0 is {shown}: node 0 must be the root")
    late = (parent >= np.arange(len(parent))) | ((parent == -1) & (np.arange(len(parent)) > 0))
    if late.any():
        node = int(np.argmax(late))
        raise InputError(
            f"{path}: {TREE_KEY} of node {node} is {parent[node]}; every node but the root needs a parent "
            "that comes before it"
        )
    return parent


def _depths(path: Any, value: object, parent: np.ndarray) -> np.ndarray:
    depth = np.zeros(len(parent), np.int64)
    for node in range(1, len(parent)):
        depth[node] = depth[parent[node]] + 1
    if value is None:
        return depth
    stated = integers(f"{path}: depth", value, parent.shape, 0, MOST_TOKENS)
    if (stated != depth).any():
        node = int(np.argmax(stated != depth))
        raise InputError(
            f"{path}: depth of node {node} is {stated[node]} but its parent makes it {depth[node]}; record "
            "it again"
        )
    return depth


def _three_axes(path: Any, key: str, value: object) -> Rows:
    rows = as_rows(path, key, value)
    if rows.ndim == 2 and isinstance(rows, np.ndarray):
        rows = rows[None]
    if rows.ndim != 3:
        raise InputError(f"{path}: {key} is {list(rows.shape)}; save [prefixes, nodes, vocabulary]")
    return rows


def _row_of(path: Any, key: str, rows: Rows, parent: np.ndarray) -> np.ndarray:
    count = rows.shape[1]
    if count == len(parent):
        return np.arange(count)
    inner = np.unique(parent[1:])
    if count != len(inner):
        raise InputError(
            f"{path}: {key} has {count} rows a prefix; the tree has {len(parent)} nodes, {len(inner)} of "
            "them with children; save logits for all nodes or for those with children"
        )
    row = np.full(len(parent), -1)
    row[inner] = np.arange(count)
    return row


def _tokens(path: Any, value: object, shape: tuple[int, int], vocab: int) -> np.ndarray:
    if isinstance(value, np.ndarray) and value.ndim == 1 and shape[0] == 1:
        value = value[None]
    tokens = integers(f"{path}: tokens", value, shape, -1, vocab - 1)
    missing = tokens[:, 1:] < 0
    if missing.any():
        prefix, node = np.argwhere(missing)[0]
        raise InputError(
            f"{path}: tokens of prefix {prefix}, node {node + 1} is -1; only the root may have none"
        )
    return tokens


def _prefixes(path: Any, mapping: Mapping, count: int, vocab: int) -> tuple[np.ndarray, ...] | None:
    value = mapping.get("prefix")
    if value is None:
        return None
    if isinstance(value, np.ndarray) and value.ndim == 1 and count == 1:
        value = value[None]
    width = value.shape[1] if isinstance(value, np.ndarray) and value.ndim == 2 else 0
    padded = integers(f"{path}: prefix", value, (count, width), -1, vocab - 1)
    lengths = (padded >= 0).sum(axis=1)
    if mapping.get("prefix_len") is not None:
        lengths = integers(f"{path}: prefix_len", mapping["prefix_len"], (count,), 0, width)
    for i, length in enumerate(lengths):
        if (padded[i, width - length :] < 0).any() or (padded[i, : width - length] >= 0).any():
            raise InputError(
                f"{path}: prefix {i} does not have {length} tokens after its left padding of -1; record it "
                "again"
            )
    return tuple(padded[i, width - length :] for i, length in enumerate(lengths))
