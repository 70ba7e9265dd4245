"""Whether the rows of an opened dump can be rows over a vocabulary; one row of each is read, if they can."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from resispec_verify.dumps.checks.companions import whole_number
from resispec_verify.dumps.checks.looks import FALSE_ALARM, in_order, plain_rows
from resispec_verify.dumps.formats.llamacpp import LlamaRows
from resispec_verify.dumps.formats.mapped import repeats
from resispec_verify.dumps.kinds.flat import FlatDump
from resispec_verify.dumps.kinds.rounds import RoundsDump
from resispec_verify.dumps.kinds.target import TargetDump
from resispec_verify.dumps.kinds.tree import TreeDump
from resispec_verify.dumps.rows import Picked, Rows, Stacked
from resispec_verify.errors import InputError

__all__ = ["check_flat", "check_rounds", "check_target", "check_tree", "stated_vocabulary"]


def check_flat(dump: FlatDump) -> FlatDump:
    """Return the dump, unless its rows are not over a vocabulary.

    Raises
    ------
    InputError
        Rows narrower than the vocabulary that ``meta["vocab_size"]`` states, or that hold no entry for most
        of the tokens that followed; axes the wrong way round; all rows in the order of their values.
    """
    roles = zip(dump.keys, (dump.target, dump.draft, dump.proposal), strict=True)
    _check(dump.path, {key: rows for key, rows in roles if rows is not None}, dump.meta)
    _check_tokens(dump.path, dump.keys[0], dump.target, dump.tokens)
    stated, width = stated_vocabulary(dump.meta), dump.target.shape[-1]
    if stated is None or stated >= width:
        return dump
    wider = f"rows have {width} entries and meta states a vocabulary of {stated}: the others count as tokens"
    return replace(dump, notes=(*dump.notes, wider))


def check_target(dump: TargetDump) -> TargetDump:
    """Return the dump, unless its rows are not over a vocabulary; see `check_flat`."""
    if not isinstance(dump.target, LlamaRows):  # its header has the size of the vocabulary
        _check(dump.path, {dump.key: dump.target}, dump.meta)
        _check_tokens(dump.path, dump.key, dump.target, dump.tokens)
    return dump


def check_rounds(dump: RoundsDump) -> RoundsDump:
    """Return the dump, unless the rows of its rounds are not over a vocabulary; see `check_flat`."""
    parts: dict[str, list[Rows]] = {
        "target_logits": [one.target for one in dump.rounds],
        "draft_logits": [one.draft for one in dump.rounds],
        "proposal_logits": [one.proposal for one in dump.rounds if one.proposal is not None],
    }
    _check(dump.path, {key: _joined(key, rows) for key, rows in parts.items() if _any(rows)}, dump.meta)
    return dump


def check_tree(dump: TreeDump) -> TreeDump:
    """Return the dump, unless its rows are not over a vocabulary; see `check_flat`."""
    _check(dump.path, {"target_logits": dump.target, "draft_logits": dump.draft}, dump.meta)
    return dump


def stated_vocabulary(meta: Any) -> int | None:
    """The size of the vocabulary that ``meta["vocab_size"]`` states, if it does."""
    sizes = stated_vocabularies(meta)
    return max(sizes) if None not in sizes else sizes[0] or sizes[1]  # type: ignore[type-var]


def stated_vocabularies(meta: Any) -> tuple[int | None, int | None]:
    """Those of target and draft: ``vocab_size`` is a number for both or one each, or each has its own key."""
    if not isinstance(meta, Mapping):
        return None, None
    both = meta.get("vocab_size")
    pair = [both, both] if not isinstance(both, (list, tuple)) or len(both) != 2 else list(both)
    own = (meta.get("target_vocab_size"), meta.get("draft_vocab_size"))
    found = [whole_number(value if one is None else one) for one, value in zip(own, pair, strict=True)]
    return found[0] or None, found[1] or None


def _any(rows: Iterable[Rows]) -> bool:
    return any(one.shape[0] for one in rows)


def _joined(key: str, rows: list[Rows]) -> Stacked:
    """Rows of all rounds, one after the other; in most cases only the first is looked at."""
    plain = [plain_rows(one) for one in rows if one.shape[0]]
    counts = [one.shape[0] for one in plain]
    shape = (sum(counts), plain[0].shape[-1])
    return Stacked(lambda i: plain[i], counts, shape, plain[0].dtype, lambda i, row: f"round {i}, row {row}")


def _check(path: str, held: Mapping[str, Rows], meta: Any) -> None:
    stated = stated_vocabulary(meta)
    widest = max(rows.shape[-1] for rows in held.values())
    if stated is not None and stated > widest:
        key, rows = next(iter(held.items()))
        turned = stated in rows.shape[:-1]
        raise InputError(
            f"{path}: meta['vocab_size'] is {stated}, but {key} is {list(rows.shape)}: "
            + (
                "its axes are the wrong way round; save [N, V]"
                if turned
                else "a part of the vocabulary (top-k values, or a shard), which is not read; save whole rows"
            )
        )
    seen: tuple[set[bytes], set[bytes]] = set(), set()
    apart = ""
    chances: dict[str, float] = {}
    for i, (key, rows) in enumerate(held.items()):
        plain = plain_rows(rows)
        if stated_vocabularies(meta)[min(i, 1)] == plain.shape[-1] or (
            isinstance(plain, np.ndarray) and repeats(plain)
        ):
            continue
        chance = in_order(plain, seen[0])
        if chance is None:  # the value of the token that was drawn, then the k best: vLLM's log-probabilities
            rest = in_order(plain, seen[1], first=1)
            chance, apart = (None, apart) if rest is None else (min(2 * rest, 1.0), ", the first apart")
        if chance is not None:
            chances[key] = chance
        if chance is not None and math.prod(chances.values()) < FALSE_ALARM:
            widths = {plain_rows(one).shape[-1] for one in held.values()}
            role = "" if len(widths) == 1 else ("target_", "draft_")[min(i, 1)]
            raise InputError(
                f"{path}: every row of {' and of '.join(chances)} is in the order of its values{apart}: "
                "these look like top-k values without their token ids, and such files are not read yet; save "
                f"logits of the whole vocabulary [N, V], or state meta['{role}vocab_size'] = "
                f"{plain.shape[-1]} if "
                "they are"
            )


def _check_tokens(path: str, key: str, rows: Rows, tokens: Any) -> None:
    """Hold rows against the tokens that followed them: row i predicts ``tokens[i + 1]``.

    Where most of them are outside of the rows, it is the rows that are something else.
    """
    if isinstance(tokens, (list, tuple)) and tokens and all(type(token) is int for token in tokens):
        tokens = np.asarray(tokens, object) if max(map(abs, tokens)) >= 2**62 else np.asarray(tokens)
    stored = rows.inner if isinstance(rows, Picked) else rows
    leading, vocab = stored.shape[:-1], stored.shape[-1]
    if not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iu" or repeats(tokens):
        return
    turned = len(leading) == 1 and len(tokens) in (vocab, vocab + 1) if tokens.ndim == 1 else False
    if turned and abs(len(tokens) - leading[0]) > 1:
        raise InputError(
            f"{path}: {key} is {[*leading, vocab]} and tokens is {list(tokens.shape)}: its axes are the "
            "wrong way round; save [N, V]"
        )
    if not leading or tokens.shape != (*leading[:-1], leading[-1] + 1):
        return
    outside = tokens[..., 1:] >= vocab
    if 2 * outside.sum() > outside.size:  # a few may be the slip of another kind; inspect names them
        at = int(np.argmax(outside.reshape(-1)))
        raise InputError(
            f"{path}: position {at} was followed by token {tokens[..., 1:].reshape(-1)[at]}, and the rows of "
            f"{key} have only {vocab} entries: a part of the vocabulary (top-k values, or a shard), which is "
            "not read; save whole rows"
        )
