"""Recording rounds and trees; see `Recorder` for what they share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from resispec_verify.errors import InputError
from resispec_verify.record.arrays import as_array, integers, logits, plain
from resispec_verify.record.recorder import Recording

__all__ = ["RoundsRecorder", "TreeRecorder"]


class RoundsRecorder(Recording):
    """Writes a rounds dump: what an engine drafted, and what it decided, one speculative round at a time.

    Parameters as `Recorder`.
    """

    unit = "round"

    def add(
        self,
        *,
        draft_tokens: Any,
        draft_logits: Any,
        target_logits: Any,
        accepted: int,
        next_token: int,
        u: Any = None,
        **others: Any,
    ) -> None:
        """Add one round.

        Parameters
        ----------
        draft_tokens : int array [g]
            Tokens that the draft proposed.
        draft_logits : array [g, V]
            Row j is what token j was drawn from.
        target_logits : array [g + 1, V]
            Row j follows the context and the first j draft tokens.
        accepted : int
            How many draft tokens were accepted, 0 to g.
        next_token : int
            The token emitted after them: from the residual, or from the last row of the target.
        u : array [g], optional
            The uniform number that each draft token was compared with.
        **others
            Plain values under keys of their own, such as `u_next` or `context_len`.

        Raises
        ------
        InputError
            Shapes, tokens or values that are not valid.
        """
        self._check_open()
        where = f"{self.path}: round {self.count}"
        draft = logits(f"{where}: draft_logits", draft_logits, self.dtype)
        target = logits(f"{where}: target_logits", target_logits, self.dtype)
        g, vocab = draft.shape
        if target.shape != (g + 1, vocab):
            raise InputError(
                f"{where}: draft_logits is {[g, vocab]}, so target_logits must be {[g + 1, vocab]}, got "
                f"{list(target.shape)}"
            )
        tokens = integers(f"{where}: draft_tokens", draft_tokens, (g,), vocab)
        accepted = int(integers(f"{where}: accepted", accepted, (), g + 1))
        emitted = int(integers(f"{where}: next_token", next_token, (), vocab))
        entry: dict[str, Any] = {"draft_tokens": tokens, "draft_logits": draft, "target_logits": target}
        if u is not None:
            coins = as_array(f"{where}: u", u)
            if coins.shape != (g,) or not ((coins >= 0) & (coins <= 1)).all():
                raise InputError(f"{where}: u must be {g} numbers in [0, 1]")
            entry["u"] = coins
        entry |= {"accepted": accepted, "next_token": emitted}
        entry |= {key: plain(f"{where}: {key}", value) for key, value in others.items()}
        self._entries.append(self._written(entry))
        self.count += 1

    def _content(self) -> dict[str, Any]:
        return {"rounds": self._entries}


class TreeRecorder(Recording):
    """Writes a tree dump: for each prefix, a tree of draft tokens with the logits at its inner nodes.

    Node 0 is the root, the last token of the prefix; a parent comes before its children.

    Parameters
    ----------
    parent : sequence of int
        Parent of every node; -1 for node 0. The same tree at every prefix.

    The others are those of `Recorder`.
    """

    unit = "prefix"

    def __init__(
        self,
        path: str | os.PathLike[str],
        parent: Sequence[int],
        dtype: str = "float16",
        meta: Mapping[str, Any] | None = None,
        *,
        keep_partial: bool = False,
    ) -> None:
        parents = [int(p) for p in parent]
        if len(parents) < 2 or parents[0] != -1 or any(not 0 <= p < n for n, p in enumerate(parents) if n):
            raise InputError("parent must be -1 for node 0 and an earlier node for each other node")
        self.inner = len(set(parents[1:]))
        super().__init__(path, dtype, meta, keep_partial=keep_partial)
        self.parent = np.asarray(parents, np.int64)
        depth = [0]
        for p in parents[1:]:
            depth.append(depth[p] + 1)
        self.depth = np.asarray(depth, np.int64)

    def add(self, *, target_logits: Any, draft_logits: Any, tokens: Any, prefix: Any) -> None:
        """Add the tree of one prefix.

        Parameters
        ----------
        target_logits, draft_logits : array [inner nodes, V]
            One row a node with children, in the order of the nodes: it follows the prefix and the path to it.
        tokens : int array [nodes]
            The token on the edge into each node; the first is the last token of the prefix.
        prefix : int array [length]
            The prefix.

        Raises
        ------
        InputError
            Shapes, tokens or values that are not valid.
        """
        self._check_open()
        where = f"{self.path}: prefix {self.count}"
        given = {"target_logits": target_logits, "draft_logits": draft_logits}
        rows = {key: logits(f"{where}: {key}", value, self.dtype, row="node") for key, value in given.items()}
        vocab = self._columns["target_logits"].row[1] if self._columns else rows["target_logits"].shape[1]
        for key, array in rows.items():
            if array.shape != (self.inner, vocab):
                raise InputError(
                    f"{where}: {key} is {list(array.shape)}; it must be {[self.inner, vocab]}: inner nodes, "
                    "vocabulary"
                )
        ids = integers(f"{where}: tokens", tokens, (len(self.parent),), vocab)
        before = integers(f"{where}: prefix", prefix, (None,), vocab)
        if not len(before) or before[-1] != ids[0]:
            raise InputError(f"{where}: tokens must begin with the last token of the prefix")
        self._append({key: array[None] for key, array in rows.items()})
        self._entries.append({"tokens": ids, "prefix": before})
        self.count += 1

    def _content(self) -> dict[str, Any]:
        prefixes = [entry["prefix"] for entry in self._entries]
        lengths = [len(prefix) for prefix in prefixes]
        padded = np.full((self.count, max(lengths)), -1, np.int64)
        for row, prefix in zip(padded, prefixes, strict=True):
            row[len(row) - len(prefix) :] = prefix
        return super()._content() | {
            "tokens": np.stack([entry["tokens"] for entry in self._entries]),
            "parent": self.parent,
            "depth": self.depth,
            "prefix": padded,
            "prefix_len": np.asarray(lengths, np.int64),
        }
