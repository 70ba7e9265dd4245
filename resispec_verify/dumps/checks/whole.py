"""Whether the rows of an opened dump can be rows over a vocabulary; one row of each is read, if they can."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from resispec_verify.dumps.checks.companions import whole_number
from resispec_verify.dumps.checks.looks import FALSE_ALARM, in_order, plain_rows
from resispec_verify.dumps.formats.mapped import repeats
from resispec_verify.dumps.rows import Picked, Rows, Stacked
from resispec_verify.errors import InputError

__all__ = ["check_rows", "check_tokens", "one_after_another", "stated_vocabulary"]


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


def one_after_another(key: str, rows: Iterable[Rows]) -> dict[str, Rows]:
    """Rows of all rounds as one, under their key, if there are any; mostly only the first is looked at."""
    plain = [plain_rows(one) for one in rows if one.shape[0]]
    if not plain:
        return {}
    counts = [one.shape[0] for one in plain]
    shape = (sum(counts), plain[0].shape[-1])

    def name(i: int, row: int) -> str:
        return f"round {i}, row {row}"

    return {key: Stacked(lambda i: plain[i], counts, shape, plain[0].dtype, name)}


def check_rows(path: str, held: Mapping[str, Rows], meta: Any) -> None:
    """Refuse rows that are not over a vocabulary.

    Parameters
    ----------
    path : str
        Named in errors.
    held : mapping
        Rows by their keys, the target's first.
    meta : object
        As stored.

    Raises
    ------
    InputError
        Rows narrower than the vocabulary that ``meta["vocab_size"]`` states; all rows in the order of their
        values.
    """
    stated = stated_vocabulary(meta)
    widest = max(rows.shape[-1] for rows in held.values())
    if stated is not None and stated > widest:
        key, rows = next(iter(held.items()))
        why = "a part of the vocabulary (top-k values, or a shard), which is not read; save whole rows"
        if stated in rows.shape[:-1]:
            why = "its axes are the wrong way round; save [N, V]"
        raise InputError(f"{path}: meta['vocab_size'] is {stated}, but {key} is {list(rows.shape)}: {why}")
    seen: tuple[set[bytes], set[bytes]] = set(), set()
    apart = ""
    chances: dict[str, float] = {}
    for i, (key, rows) in enumerate(held.items()):
        plain = plain_rows(rows)
        whole = stated_vocabularies(meta)[min(i, 1)] == plain.shape[-1]
        if whole or (isinstance(plain, np.ndarray) and repeats(plain)):
            continue
        chance = in_order(plain, seen[0])
        if chance is None:  # the value of the token that was drawn, then the k best: vLLM's log-probabilities
            rest = in_order(plain, seen[1], first=1)
            chance, apart = (None, apart) if rest is None else (min(2 * rest, 1.0), ", the first apart")
        if chance is None:
            continue
        chances[key] = chance
        if math.prod(chances.values()) < FALSE_ALARM:
            widths = {plain_rows(one).shape[-1] for one in held.values()}
            role = "" if len(widths) == 1 else ("target_", "draft_")[min(i, 1)]
            raise InputError(
                f"{path}: every row of {' and of '.join(chances)} is in the order of its values{apart}: "
                "these look like top-k values without their token ids, and such files are not read yet; save "
                f"logits of the whole vocabulary [N, V], or state meta['{role}vocab_size'] = "
                f"{plain.shape[-1]} if they are"
            )


def check_tokens(path: str, key: str, rows: Rows, tokens: Any) -> None:
    """Hold rows against the tokens that followed them: row i predicts ``tokens[i + 1]``.

    Where most of them are outside of the rows, it is the rows that are something else.

    Raises
    ------
    InputError
        Axes the wrong way round, or no entry for most of the tokens that followed.
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
