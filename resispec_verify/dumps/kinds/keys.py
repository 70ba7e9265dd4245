"""Which key of a dump holds what, and what kind of dump the keys make it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from resispec_verify.dumps.formats.mapped import repeats
from resispec_verify.dumps.opening import PathLike, listing, show
from resispec_verify.dumps.rows import FLOATS, LazyRows, Rows, Stacked
from resispec_verify.errors import InputError

__all__ = [
    "CHUNKS_KEY",
    "DRAFT_KEYS",
    "LOG_PROBABILITIES_KEY",
    "PROPOSAL_KEY",
    "ROUNDS_KEY",
    "TARGET_KEYS",
    "TOP_IDS_KEYS",
    "TREE_KEY",
    "as_mapping",
    "as_rows",
    "elsewhere",
    "find_key",
    "kind",
    "refuse_top",
    "what",
]

LOG_PROBABILITIES_KEY = "target_log_probs"
TARGET_KEYS = (
    "target_logits", "target", "p_logits", "logits_target", "verifier_logits", "main_logits",
    LOG_PROBABILITIES_KEY,
)  # fmt: skip
DRAFT_KEYS = ("draft_logits", "draft", "q_logits", "logits_draft", "drafter_logits", "assistant_logits")
PROPOSAL_KEY = "proposal_logits"
CHUNKS_KEY, ROUNDS_KEY, TREE_KEY = "chunks", "rounds", "parent"
TOP_COMMANDS = "kl, limits, drift, compare or inspect (verify_top from Python)"
COMMANDS_OF = {
    "flat": "kl, limits, drift, explore or report", "target": "compare", "rounds": "replay or weights",
    "tree": "tree length or tree grow", "top": TOP_COMMANDS,
}  # fmt: skip
TOP_IDS_KEYS = ("target_top_ids", "draft_top_ids")


def kind(mapping: Mapping) -> Literal["flat", "target", "rounds", "tree", "top", "unknown"]:
    """Return what kind of dump the keys of a mapping make it; "target" is a flat one without draft."""
    if any(key in mapping for key in TOP_IDS_KEYS):
        return "top"
    if ROUNDS_KEY in mapping:
        return "rounds"
    if TREE_KEY in mapping:
        return "tree"
    target, draft = (any(name in mapping for name in names) for names in (TARGET_KEYS, DRAFT_KEYS))
    if (target and draft) or (CHUNKS_KEY in mapping and not target):
        return "flat"
    return "target" if target else "unknown"


def elsewhere(found: str) -> str:
    """The commands that a dump of a kind is for, to go on in a message with."""
    commands = COMMANDS_OF.get(found)
    return "see 'resispec-verify inspect'" if commands is None else f"give it to {commands}"


def refuse_top(path: PathLike, mapping: Mapping, needed: str) -> None:
    """Raise `InputError` where a file lists the top k tokens of each position, and `needed` is needed."""
    if kind(mapping) == "top":
        raise InputError(
            f"{path}: lists the top k tokens of each position ({TOP_IDS_KEYS[0]}), and {needed} needed; give "
            f"it to {TOP_COMMANDS}"
        )


def as_mapping(path: PathLike, loaded: object) -> dict:
    """Return `loaded` if it is a dict, or a list of dicts as the chunks of one; else say what it is.

    Raises
    ------
    InputError
        If it is anything else.
    """
    if isinstance(loaded, dict):
        return loaded
    if isinstance(loaded, (list, tuple)) and loaded and all(isinstance(part, dict) for part in loaded):
        return {CHUNKS_KEY: list(loaded)}
    raise InputError(
        f"{path}: holds {what(loaded)}, not a dict; save a dict with the keys target_logits and draft_logits"
    )


def find_key(path: PathLike, mapping: Mapping, names: tuple[str, ...], role: str) -> str:
    """Return the one key of `names` that holds logits.

    Raises
    ------
    InputError
        If none or several of them do.
    """
    present = [name for name in names if name in mapping]
    rows = [name for name in present if _holds_rows(mapping[name])]
    rows = [name for name in rows if not _holds_ids(mapping[name])] or rows
    if len(rows) == 1:
        return rows[0]
    if rows:
        raise InputError(
            f"{path}: its {role} logits are ambiguous: {' and '.join(rows)} (keys: {listing(mapping)}); "
            f"keep one of them, as {names[0]}"
        )
    if present:
        raise InputError(
            f"{path}: {present[0]} is {what(mapping[present[0]])}, not an array of logits [N, V]; save one "
            "tensor (torch.stack joins a list of rows)"
        )
    raise InputError(
        f"{path}: has no {names[0]} (keys: {listing(mapping)}); save the {role} logits as {names[0]}"
    )


def as_rows(path: PathLike, key: str, value: object) -> Rows:
    """Return what a key holds as logits ``[..., vocab]``; a list or tuple over steps is stacked lazily.

    Raises
    ------
    InputError
        If it holds anything but floating-point arrays with at least one position and one token.
    """
    if isinstance(value, (list, tuple)) and _holds_rows(value):
        return _steps(path, key, value)
    if not isinstance(value, (np.ndarray, LazyRows)):
        raise InputError(f"{path}: {key} is {what(value)}, not an array of logits [N, V]; save one tensor")
    dtype = value.dtype
    name = f"{path}: {key} has dtype {show(dtype.name)}"
    if dtype.kind in "iub":
        raise InputError(f"{name}: integers are not logits; save the model's floating-point output")
    if dtype.kind == "V" and dtype.names is None and dtype.itemsize == 2 and dtype not in FLOATS:
        raise InputError(
            f"{name}: two-byte values without a type (bfloat16 that went through NumPy?); save float32, or "
            "bfloat16 as .pt or .safetensors"
        )
    if dtype.newbyteorder("=") not in FLOATS:
        raise InputError(f"{name}; save logits as float16, bfloat16, float32 or float64")
    if value.ndim == 0:
        raise InputError(f"{path}: {key} is a single number; save logits as [N, V]")
    if 0 in value.shape:
        raise InputError(
            f"{path}: {key} is {list(value.shape)}: no positions or no tokens; record at least one"
        )
    if isinstance(value, np.ndarray) and repeats(value[(0,) * (value.ndim - 1)]):
        raise InputError(f"{path}: {key} repeats one token's logit (an expanded tensor); save .contiguous()")
    return value


def _steps(path: PathLike, key: str, parts: list | tuple) -> Rows:
    first = as_rows(path, f"{key}[0]", parts[0])
    for i, part in enumerate(parts):
        rows = as_rows(path, f"{key}[{i}]", part)
        if rows.shape != first.shape or rows.dtype != first.dtype:
            raise InputError(
                f"{path}: {key}[{i}] is {rows.dtype.name} {list(rows.shape)} but {key}[0] is "
                f"{first.dtype.name} {list(first.shape)}; every step needs the same batch, vocabulary and "
                "type"
            )
    count = int(np.prod(first.shape[:-1], dtype=object))

    def name(step: int, row: int) -> str:
        return f"step {step}" + (f", row {row} of the batch" if first.ndim > 1 else "")

    return Stacked(
        lambda step: parts[step], [count] * len(parts), (len(parts), *first.shape), first.dtype, name
    )


def _holds_rows(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) > 0 and all(isinstance(part, (np.ndarray, LazyRows)) for part in value)
    return isinstance(value, (np.ndarray, LazyRows))


def _holds_ids(value: object) -> bool:
    first = value[0] if isinstance(value, (list, tuple)) else value
    return getattr(first, "dtype").kind in "iub"  # noqa: B009 - known to be an array


def what(value: object) -> str:
    """Describe a value in an error message."""
    if isinstance(value, (np.ndarray, LazyRows)):
        return f"an array of shape {list(value.shape)}"
    if isinstance(value, (list, tuple)):
        inner = f" of {show(type(value[0]).__name__)}" if value else ""
        return f"a {type(value).__name__} of length {len(value)}{inner}"
    return f"a {type(value).__name__}"
