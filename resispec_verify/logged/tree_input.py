"""Rounds over trees for `replay`: what their reader gives, with the sampling that `meta` states."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.dumps import (
    FlatDump,
    TreeRound,
    TreeRoundsDump,
    has_trees,
    load_mapping,
    tree_rounds_from_mapping,
)
from resispec_verify.dumps.kinds.reported import REPORTED_KEY
from resispec_verify.dumps.rows import Picked, dtype_names, padded
from resispec_verify.errors import InputError
from resispec_verify.logged.emitted import emitted, end_of_text
from resispec_verify.logged.round_rows import RoundRows, read_rows
from resispec_verify.logged.rounds_input import (
    Rounds,
    check_sampling,
    half_ulp,
    is_constant,
    read_rounds,
    stored_coins,
)
from resispec_verify.sampling.text import Text, needs_text
from resispec_verify.tables.input_kind import kind_of_rows, refuse_applied

__all__ = ["TreeRounds", "read_any_rounds"]


@dataclass(frozen=True)
class TreeRounds(Rounds):
    """Rounds over trees, opened but not read.

    Each of ``rounds`` has the accepted tokens as ``draft_tokens``, ``accepted``, ``next_token``, ``u`` by
    node, ``u_next``, ``u_slack`` and ``stopped`` as those of a chain have, and the `TreeRound` as ``tree``.
    """

    siblings: str | None = None
    """How the children of a node were drawn, if ``meta["siblings"]`` says."""
    notes: tuple[str, ...] = ()
    """What of the file is not used, a line each."""

    @property
    def dtype(self) -> str:
        """Storage type of the logits."""
        first = self.rounds[0]["tree"]
        return dtype_names(*[rows for rows in (first.target, first.draft) if rows is not None])

    @property
    def candidates(self) -> int:
        """Most children of a node."""
        return max(len(nodes) for entry in self.rounds for nodes in entry["tree"].shape.children)

    @property
    def longest(self) -> int:
        """The greatest depth of a tree."""
        return max(int(entry["tree"].shape.depth.max()) for entry in self.rounds)

    def rows(self, index: int, nodes: list[int], sampling: Sampling) -> RoundRows:
        """Rows of target and draft after some nodes, in their order.

        Where the draft has none there, or the dump has no draft, the target's stand in their place: what is
        asked of them must not look at them.
        """
        tree: TreeRound = self.rounds[index]["tree"]
        target = _picked(tree.target, np.asarray(nodes))
        draft = target
        if tree.draft is not None:
            rows = tree.draft_row[nodes]
            draft = _picked(tree.draft, np.where(rows < 0, 0, rows))
        entry = {
            "target_logits": padded(target, self.vocab),
            "draft_logits": padded(draft, self.vocab),
            "draft_tokens": np.zeros(len(nodes), np.int64),
            "text": Text(),
        }
        return read_rows(f"{self.path}: round {index}", entry, slice(0, len(nodes)), sampling, self.kind)

    @property
    def vocab(self) -> int:
        """Width of a row."""
        first = self.rounds[0]["tree"]
        return max(rows.shape[-1] for rows in (first.target, first.draft) if rows is not None)


def _picked(rows: Any, nodes: np.ndarray) -> np.ndarray:
    return rows[nodes] if isinstance(rows, np.ndarray) else Picked(rows, nodes).rows(0, len(nodes))


@dataclass(frozen=True)
class _Parts:
    """The rows of each round as the guards for flat dumps take them, read anew each time."""

    dump: TreeRoundsDump

    def __iter__(self) -> Iterator[FlatDump]:
        for i in range(len(self.dump)):
            rows = self.dump.logits(i)
            draft = rows.target if rows.draft is None or not len(rows.draft) else rows.draft
            yield FlatDump(self.dump.path, rows.target, draft)


def read_any_rounds(
    path: str | os.PathLike[str],
    *,
    kind: str | None = None,
    stops: Collection[int] = (),
    options: Mapping[str, Any] | None = None,
) -> Rounds:
    """Open rounds over chains or over trees, as `read_rounds` does.

    Raises
    ------
    InputError
        As `read_rounds`, or `tree_rounds_from_mapping`.
    """
    mapping = load_mapping(path)
    if not has_trees(mapping):
        return read_rounds(path, kind=kind, stops=stops, options=options)
    dump = tree_rounds_from_mapping(path, mapping).checked()
    constant = tuple(i for i in range(len(dump)) if is_constant(dump.logits(i).target))
    parts, said = _Parts(dump), kind
    kind = kind_of_rows(str(path), parts, kind)
    ends = frozenset({*stops, *end_of_text(path, dump.meta)})
    coins = stored_coins(mapping.get("rounds"), len(dump))
    rounds: Any = dump.rounds  # whose accepted tokens are what a chain would have emitted
    text = emitted(rounds, dump.output_tokens, ends)
    known = any(one.next_token is not None for one in dump.rounds)
    entries = [
        {
            "tree": one,
            "draft_tokens": one.draft_tokens,
            "accepted": one.accepted,
            "next_token": one.next_token,
            "u": one.u,
            "u_next": None if one.u_next is None else np.asarray([one.u_next]),
            "u_slack": half_ulp(np.ones(1), dtype)[0] if dtype.itemsize == 2 else 0.0,
            "stopped": _stopped(one, ends, last and known),
        }
        for one, dtype, last in zip(dump.rounds, coins, text.ends, strict=True)
    ]
    stated = dump.sampling or {}
    siblings = dump.meta.get("siblings") if isinstance(dump.meta, Mapping) else None
    if siblings is not None and not isinstance(siblings, str):
        raise InputError(
            f"{path}: meta['siblings'] must be a name such as iid, got {type(siblings).__name__}"
        )
    result = TreeRounds(str(path), entries, stated, text, kind, ends, constant, siblings, _unused(mapping))
    for i in range(len(entries)):
        try:
            result.sampling(i, {})
        except InputError as error:
            raise InputError(f"{path}: meta, sampling of round {i}: {error}") from None
    used = [result.sampling(i, options or {}) for i in range(len(entries))]
    asked = used if options else None
    check_sampling(str(path), used, kind)
    if any(needs_text(one) or needs_text(one.draft_sampling) for one in used):
        raise InputError(
            f"{path}: penalties and bans that read the text are not followed over trees; log rows that have "
            "them, and leave them out"
        )
    refuse_applied(parts, said, asked, stated if isinstance(stated, tuple) else (stated,))
    return result


def _unused(mapping: Mapping[str, Any]) -> tuple[str, ...]:
    stored = mapping.get("rounds")
    each = stored if isinstance(stored, (list, tuple)) else [mapping]
    has = any(isinstance(one, Mapping) and one.get(REPORTED_KEY) is not None for one in each)
    return (f"{REPORTED_KEY} of rounds over trees are not tested",) if has else ()


def _stopped(one: TreeRound, stops: Collection[int], cut: bool) -> bool:
    """Whether the text ended with the accepted nodes, or may have, and nothing is said of what follows."""
    if one.next_token is not None or not one.accepted:
        return False
    return cut or int(one.tokens[one.path[-1]]) in stops
