"""Rounds over trees: what an engine drafted as a tree, which path it accepted, and what it drew after it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from resispec_verify.dumps.checks.companions import check_companions
from resispec_verify.dumps.checks.whole import check_rows, one_after_another
from resispec_verify.dumps.formats.mapped import refuse_repeats, repeats
from resispec_verify.dumps.kinds.keys import ROUNDS_KEY, as_rows, elsewhere, kind, what
from resispec_verify.dumps.kinds.labels import samplings
from resispec_verify.dumps.kinds.tree_shapes import SHAPE_KEYS, Shape, either, has_shape, shape_of
from resispec_verify.dumps.kinds.values import integer, integers, no_token, prompt_name, uniforms
from resispec_verify.dumps.opening import listing
from resispec_verify.dumps.parts.reduced import differing_widths, placed
from resispec_verify.dumps.rows import Picked, Rows, checked_rows, dtype_names, padded
from resispec_verify.errors import InputError

__all__ = ["TREE_ROUND_KEYS", "TreeRound", "TreeRoundLogits", "TreeRoundsDump", "has_trees",
           "tree_rounds_from_mapping", "unstacked_trees"]  # fmt: skip

TOKEN_KEYS = ("tokens", "candidates")
PATH_KEYS = ("accepted_path", "accept_index", "best_candidate")
TREE_ROUND_KEYS = (
    *TOKEN_KEYS, *SHAPE_KEYS, *PATH_KEYS, "retrive_index", "retrieve_index", "accept_length", "accepted",
    "target_logits", "draft_logits", "u", "u_next", "next_token", "context_len", "prompt", "seed",
)  # fmt: skip
_STACKED = ("tokens", "accepted_path", "parent", "target_logits", "draft_logits", "u", "u_next", "next_token",
            "context_len", "prompt", "accepted", "retrive_next_token", "retrive_next_sibling")  # fmt: skip
_MOST = 2**31 - 1


class TreeRoundLogits(NamedTuple):
    """Logits at some nodes, fresh float32 or float64, ``[nodes, vocab]``."""

    target: np.ndarray
    draft: np.ndarray | None


@dataclass(frozen=True, eq=False)
class TreeRound:
    """One round over a tree, its logits opened but not read.

    Attributes
    ----------
    tokens : int64 array (m,)
        By node; node 0 is the root, where it is the last token of the context or -1.
    shape : Shape
    path : int64 array (k,)
        The accepted nodes, in order, without the root.
    next_token : int or None
        Emitted after them; None where it is -1 or missing.
    u : float64 array (m,) or None
        The uniforms of the decisions, by node; which of them are used depends on the rule.
    u_next : float or None
        The uniform that `next_token` was drawn with.
    context_len, prompt, seed
        Tokens before the round, of which prompt it is, and the seed of its request, where they are known.
    target, draft : Rows
        As stored: `target` ``[m, V]``, the law after each node; `draft` at the nodes of `draft_row`, or None.
    draft_row : int64 array (m,)
        The row of `draft` after each node; -1 where there is none.
    """

    tokens: np.ndarray
    shape: Shape
    path: np.ndarray
    next_token: int | None
    u: np.ndarray | None
    u_next: float | None
    context_len: int | None
    prompt: int | str | None
    target: Rows = field(repr=False)
    draft: Rows | None = field(default=None, repr=False)
    draft_row: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64), repr=False)

    @property
    def accepted(self) -> int:
        """How many nodes were accepted."""
        return len(self.path)

    @property
    def draft_tokens(self) -> np.ndarray:
        """The tokens of the accepted nodes: as a chain, the round drafted and accepted these."""
        return self.tokens[self.path]


@dataclass(frozen=True, eq=False, repr=False)
class TreeRoundsDump:
    """Rounds over trees, opened and checked but for their logits.

    Attributes
    ----------
    path : str
    rounds : tuple of TreeRound
    vocab : int
        Width of a row; drafts of a reduced or padded vocabulary are widened to it.
    dtype : str
    output_tokens : int64 array or None
    sampling : mapping, tuple of mappings or None
    meta : object
    """

    path: str
    rounds: tuple[TreeRound, ...]
    vocab: int
    dtype: str
    output_tokens: np.ndarray | None
    sampling: Mapping[str, Any] | tuple[Mapping[str, Any], ...] | None
    meta: Any

    def __repr__(self) -> str:
        return f"TreeRoundsDump({self.path!r}, rounds={len(self)}, vocab={self.vocab}, dtype={self.dtype!r})"

    def __len__(self) -> int:
        return len(self.rounds)

    def logits(self, index: int, nodes: Sequence[int] | None = None) -> TreeRoundLogits:
        """Return the logits of a round at some nodes (default: all), checked.

        The draft's are those of the nodes that have one.

        Raises
        ------
        InputError
            If a row has NaN or +inf, or only -inf; round, key and row are named.
        """
        one = self.rounds[index]
        chosen = np.arange(len(one.tokens)) if nodes is None else np.asarray(nodes, np.int64)
        where = f"{self.path}: round {index}"
        target = _rows_at(where, "target_logits", one.target, chosen, self.vocab)
        if one.draft is None:
            return TreeRoundLogits(target, None)
        rows = one.draft_row[chosen]
        return TreeRoundLogits(
            target, _rows_at(where, "draft_logits", one.draft, rows[rows >= 0], self.vocab)
        )

    def checked(self) -> TreeRoundsDump:
        """The dump itself, unless its rows are not over a vocabulary; as for a `FlatDump`."""
        held = one_after_another("target_logits", [one.target for one in self.rounds])
        drafts = [one.draft for one in self.rounds if one.draft is not None]
        check_rows(self.path, {**held, **one_after_another("draft_logits", drafts)}, self.meta)
        return self


def _rows_at(where: str, key: str, rows: Rows, chosen: np.ndarray, vocab: int) -> np.ndarray:
    if not len(chosen):
        return np.empty((0, vocab), np.float32)
    part = rows[chosen] if isinstance(rows, np.ndarray) else Picked(rows, chosen)
    return padded(checked_rows(where, key, part, 0, len(chosen), unit="row"), vocab)


def has_trees(mapping: Mapping) -> bool:
    """Whether the first round of a file says what its tree is."""
    entries = mapping.get(ROUNDS_KEY)
    return isinstance(entries, (list, tuple)) and bool(entries) and has_shape(entries[0])


def unstacked_trees(path: str | os.PathLike[str], mapping: dict) -> dict:
    """Turn rounds over trees saved as arrays with a leading axis of rounds into a list of rounds.

    `tokens`, `parent` and `accepted_path` ``[R, ...]``, padded with -1 at the end, and the others likewise.
    """
    path_, tokens = mapping.get("accepted_path"), mapping.get("tokens")
    if ROUNDS_KEY in mapping or not all(
        isinstance(one, np.ndarray) and one.ndim == 2 for one in (path_, tokens)
    ):
        return mapping
    stacked = {key: mapping[key] for key in _STACKED if mapping.get(key) is not None}
    count = len(stacked["tokens"])
    for key, value in stacked.items():
        if not isinstance(value, np.ndarray) or not value.ndim or len(value) != count:
            raise InputError(
                f"{path}: {key} is {what(value)}; stacked rounds need an uncompressed array with one entry a "
                "round"
            )
    refuse_repeats(f"{path}: tokens", stacked["tokens"])
    rounds = [{key: np.asarray(value[i]) for key, value in stacked.items()} for i in range(count)]
    return {ROUNDS_KEY: rounds} | {key: value for key, value in mapping.items() if key not in stacked}


def tree_rounds_from_mapping(
    path: str | os.PathLike[str], mapping: dict, *, pad_vocab: bool = False
) -> TreeRoundsDump:
    """Check what a file holds and return it as rounds over trees; no logits are read.

    Raises
    ------
    InputError
        If it is of another kind, or a round lacks a key, has shapes that do not agree, a shape that is no
        tree, an accepted path that is none of the tree, a token outside the vocabulary or a uniform outside
        [0, 1). Rounds and nodes are named 0-based.
    """
    if not has_trees(mapping):
        raise InputError(
            f"{path}: is a {kind(mapping)} dump, and one of rounds over trees (key {ROUNDS_KEY}, each with "
            f"its parent) is needed; {elsewhere(kind(mapping))}"
        )
    rounds, width = [], 0
    for i, entry in enumerate(mapping[ROUNDS_KEY]):
        one = _round(f"{path}: round {i}", entry, mapping, pad_vocab)
        rounds.append(one)
        wide = one.target.shape[-1] if one.draft is None else max(one.target.shape[-1], one.draft.shape[-1])
        width = width or wide
        if wide != width:
            raise InputError(
                f"{path}: round {i} has vocabulary {wide} but round 0 has {width}; save one model"
            )
    check_companions(path, {key: value for key, value in mapping.items() if key != ROUNDS_KEY}, {})
    output, meta = mapping.get("output_tokens"), mapping.get("meta")
    if output is not None:
        output = integers(f"{path}: output_tokens", output, None, -1, _MOST)
    held = [rounds[0].target, *([] if rounds[0].draft is None else [rounds[0].draft])]
    stated = samplings(path, meta, len(rounds))
    return TreeRoundsDump(str(path), tuple(rounds), width, dtype_names(*held), output, stated, meta)


def _round(where: str, entry: object, whole: Mapping, pad_vocab: bool) -> TreeRound:
    if not isinstance(entry, dict):
        raise InputError(f"{where} is {what(entry)}; save a dict with tokens, parent, target_logits, ...")
    keys = [key for key in TOKEN_KEYS if entry.get(key) is not None]
    if len(keys) != 1 or entry.get("target_logits") is None:
        raise InputError(
            f"{where} has no tokens or target_logits, or tokens and candidates both (keys: "
            f"{listing(entry)}); save the tokens by node, the root first, and the target's logits after each"
        )
    target = _matrix(where, "target_logits", entry["target_logits"])
    draft = entry.get("draft_logits")
    draft = None if draft is None else _matrix(where, "draft_logits", draft)
    held = {"target_logits": target} | ({} if draft is None else {"draft_logits": draft})
    check_companions(where, entry, held, tree=True)
    if draft is not None:
        draft, _, pad_vocab, _ = placed(where, whole, target, draft, None, pad_vocab)
        if draft.shape[-1] != target.shape[-1] and not pad_vocab:
            raise differing_widths(where, target, draft)
    last = max(target.shape[-1], 0 if draft is None else draft.shape[-1]) - 1
    tokens = _tokens(f"{where}: {keys[0]}", entry[keys[0]], last)
    shape = shape_of(where, entry, len(tokens))
    if target.shape[0] < len(tokens):
        raise InputError(
            f"{where}: target_logits is {list(target.shape)} for {len(tokens)} nodes; save the row after "
            "each node, the root first"
        )
    coins, drawn, next_token = entry.get("u"), None, None
    if entry.get("next_token") is not None and not no_token(entry["next_token"]):
        next_token = integer(f"{where}: next_token", entry["next_token"], 0, last)
        drawn = entry.get("u_next")
    context = entry.get("context_len")
    return TreeRound(
        tokens=tokens,
        shape=shape,
        path=_path(where, entry, shape),
        next_token=next_token,
        u=None if coins is None else _coins(where, coins, len(tokens)),
        u_next=None if drawn is None else float(uniforms(f"{where}: u_next", drawn, 1)[0]),
        context_len=None if context is None else integer(f"{where}: context_len", context, 0, None),
        prompt=prompt_name(where, entry.get("prompt")),
        target=target,
        draft=draft,
        draft_row=_draft_rows(where, draft, target, shape),
    )


def _matrix(where: str, key: str, value: object) -> Rows:
    rows = as_rows(where, key, value)
    if rows.ndim != 2 or (isinstance(rows, np.ndarray) and repeats(rows)):
        raise InputError(f"{where}: {key} is {what(rows)}; save a plain matrix [nodes, vocabulary]")
    return rows


def _tokens(name: str, value: object, last: int) -> np.ndarray:
    """Tokens by node; -1 at the root where it is not said, and at the end where nodes are padding."""
    if isinstance(value, np.ndarray) and value.ndim == 2 and len(value) == 1:
        value = value[0]
    tokens = integers(name, value, None, -1, last)
    there = np.flatnonzero(tokens != -1)
    count = max(int(there[-1]) + 1 if there.size else 0, 1)
    if not len(tokens) or (tokens[1:count] == -1).any():
        node = int(np.argmax(tokens[1:count] == -1)) + 1 if len(tokens) else 0
        raise InputError(f"{name} of node {node} is -1 or missing; only the root may have none")
    return tokens[:count]


def _coins(where: str, value: object, nodes: int) -> np.ndarray:
    if isinstance(value, (list, tuple, np.ndarray)) and np.ndim(value) == 1 and len(value) > nodes:
        value = value[:nodes]
    return uniforms(f"{where}: u", value, nodes)


def _path(where: str, entry: Mapping, shape: Shape) -> np.ndarray:
    """The accepted nodes, from whichever key says them."""
    keys = [key for key in PATH_KEYS if entry.get(key) is not None]
    if len(keys) != 1:
        named = " and ".join(keys) or f"none of {', '.join(PATH_KEYS)}"
        raise InputError(f"{where} has {named}; save accepted_path: the accepted nodes in order, no root")
    nodes, key = len(shape.parent), keys[0]
    if key == "best_candidate":
        path = _best_path(where, entry, nodes)
    else:
        path = integers(f"{where}: {key}", entry[key], None, -1, _MOST)
        there = np.flatnonzero(path != -1)
        path = path[: int(there[-1]) + 1 if there.size else 0]
        if key == "accept_index":
            path = _without_root(where, entry, path)
    above = 0
    for node in path.tolist():
        if not 0 < node < nodes or shape.parent[node] != above:
            raise InputError(
                f"{where}: {key} goes from node {above} to {node}, which is none of its children; save the "
                "accepted nodes in order, without the root"
            )
        above = node
    stated = entry.get("accepted")
    if stated is not None and integer(f"{where}: accepted", stated, 0, _MOST) != len(path):
        raise InputError(f"{where}: accepted is {stated}, and {key} has {len(path)} nodes below the root")
    return path


def _without_root(where: str, entry: Mapping, path: np.ndarray) -> np.ndarray:
    """SGLang's `accept_index`: the root first, numbered through the batch as `retrive_index` is."""
    index = either(entry, "retrive_index")
    offset = 0
    if index is not None:
        index = index[0] if isinstance(index, np.ndarray) and index.ndim == 2 and len(index) == 1 else index
        numbers = integers(f"{where}: retrive_index", index, None, -1, _MOST)
        offset = int(numbers[0]) if len(numbers) else 0
        if (numbers != -1).any() and (np.diff(numbers[numbers != -1]) != 1).any():
            raise InputError(f"{where}: retrive_index is not consecutive; save it as SGLang builds it")
    if not len(path) or path[0] != offset:
        raise InputError(f"{where}: accept_index begins with another node than the root ({offset})")
    return path[1:] - offset


def _best_path(where: str, entry: Mapping, nodes: int) -> np.ndarray:
    """EAGLE's `best_candidate`, a row of `retrieve_indices`, up to `accept_length` nodes below the root."""
    if entry.get("retrieve_indices") is None or entry.get("accept_length") is None:
        raise InputError(f"{where}: best_candidate needs retrieve_indices and accept_length; save both")
    paths = np.asarray(entry["retrieve_indices"])  # checked with the shape
    row = integer(f"{where}: best_candidate", entry["best_candidate"], 0, len(paths) - 1)
    length = integer(f"{where}: accept_length", entry["accept_length"], 0, paths.shape[1] - 1)
    return integers(f"{where}: best_candidate", paths[row][1 : length + 1], None, -1, nodes - 1)


def _draft_rows(where: str, draft: Rows | None, target: Rows, shape: Shape) -> np.ndarray:
    """Where the draft's row after each node is: for all nodes, or those that have children, in order."""
    nodes = len(shape.parent)
    row = np.full(nodes, -1)
    if draft is None:
        return row
    inner = np.flatnonzero([len(nodes) > 0 for nodes in shape.children])
    if draft.shape[0] in (nodes, target.shape[0]):
        return np.arange(nodes)
    if draft.shape[0] != len(inner):
        raise InputError(
            f"{where}: draft_logits is {list(draft.shape)}; the tree has {nodes} nodes, {len(inner)} of them "
            "with children; save the rows after all nodes or after those with children, in order"
        )
    row[inner] = np.arange(len(inner))
    return row
