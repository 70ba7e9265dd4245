"""What a flat dump says of its positions beside the logits: candidates, datasets, sampling."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from resispec_verify.dumps.formats.mapped import is_text, refuse_repeats, repeats
from resispec_verify.dumps.opening import PathLike, listing, show
from resispec_verify.errors import InputError
from resispec_verify.sampling.settings import SETTINGS, checked

__all__ = ["PENALTIES", "SAMPLING_KEYS", "candidate_lists", "datasets", "neutral", "samplings"]

LARGEST = 2**63
SAMPLING_KEYS = ("temperature", "top_k", "top_p", "min_p")
PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
# What a setting is where it does nothing.
_IDLE = {
    "temperature": (1,), "temperatures": (1,), "top_k": (0, -1), "top_p": (1,), "min_p": (0,),
    "typical_p": (1,), "repetition_penalty": (1,), "presence_penalty": (0,), "frequency_penalty": (0,),
}  # fmt: skip

_BIASES = ("logit_bias", "logits_bias")
_CONFIGURATIONS = ("sampling_params", "generation_config", "sampling_config")


def candidate_lists(path: PathLike, value: object, leading: tuple[int, ...], vocab: int) -> np.ndarray | None:
    """Candidates by position, int64 ``(N, n)``, checked; ``(..., n)`` with the logits' leading axes.

    Raises
    ------
    InputError
        Not integers, other leading axes, or a token outside the vocabulary (its position is named).
    """
    if value is None:
        return None
    what = f"{path}: candidates"
    if isinstance(value, (list, tuple)):
        try:
            value = np.asarray(value)
        except ValueError:
            raise InputError(
                f"{what} has rows of different lengths; save one integer tensor [N, n]"
            ) from None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
        kind = value.dtype.name if isinstance(value, np.ndarray) else type(value).__name__
        raise InputError(f"{what} must be integer token ids [N, n], got {kind}; save an integer tensor")
    if value.ndim != len(leading) + 1 or value.shape[:-1] != leading or value.shape[-1] == 0:
        raise InputError(
            f"{what} is {list(value.shape)}; it needs the positions of the logits and n >= 1 candidates "
            f"each: {[*leading, 'n']}"
        )
    refuse_repeats(what, value)
    tokens = value.reshape(math.prod(leading), value.shape[-1])
    outside = (tokens < 0) | (tokens >= vocab)
    if outside.any():
        position = int(np.argmax(outside.any(axis=-1)))
        token = tokens[position][outside[position]][0]
        raise InputError(
            f"{what}, position {position}: token {token} is outside the vocabulary 0..{vocab - 1}; save ids "
            "of the rows' own vocabulary"
        )
    return tokens.astype(np.int64)


def datasets(path: PathLike, value: object, positions: int) -> str | tuple[str, ...] | None:
    """One dataset name for the whole dump, or one a position.

    Raises
    ------
    InputError
        Anything else.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _name(path, value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "U" and value.size == positions:
        if not is_text(value):
            raise InputError(f"{path}: dataset holds text that is not Unicode; record it again")
        value = value.reshape(-1).tolist()
    if isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value):
        if len(value) == positions:
            return tuple(_name(path, name) for name in value)
        raise InputError(
            f"{path}: dataset has {len(value)} names for {positions} positions; give one name each"
        )
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        kind = f"{show(value.dtype.name)} {list(value.shape)}"
    raise InputError(f"{path}: dataset must be a name or one name a position ({positions}), got {kind}")


def _name(path: PathLike, name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{path}: dataset {show(name)} cannot be written as text; rename it") from None
    return name


def neutral(key: str, value: object) -> bool:
    """Return whether a setting, one or one a position, does nothing: a temperature of 1, a penalty of 0."""
    idle = next((idle for name, idle in _IDLE.items() if key.endswith(name)), None)
    if isinstance(value, Mapping):  # a configuration: what it says of sampling
        return all(neutral(name, item) for name, item in value.items() if name in _IDLE)
    if value is None or idle is None:
        return value is None
    if isinstance(value, (list, tuple)):
        return all(neutral(key, item) for item in value)
    if isinstance(value, np.ndarray):
        small = value.dtype.kind in "iuf" and not repeats(value)
        return small and bool(np.isin(value.astype(np.float64), idle).all())
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value in idle


def samplings(
    path: PathLike, meta: object, positions: int
) -> Mapping[str, object] | tuple[Mapping[str, object], ...] | None:
    """The sampling that ``meta`` states: for the whole dump, or one mapping a position.

    ``meta["sampling"]`` is a dict of `SETTINGS`, its numbers each one or a list with one a position, or a
    list with one such dict a position. `SAMPLING_KEYS` in ``meta`` itself mean the same: how tokens are drawn
    from these logits, which do not have it yet. Values come out hashable.

    Raises
    ------
    InputError
        Anything else; two statements that differ; logits said to have a temperature already; a penalty or
        bias that is stated outside of ``meta["sampling"]``, where it may be applied already.
    """
    if not isinstance(meta, Mapping):
        return None
    _check_raw(path, meta)
    direct = {key: _parsed(meta[key]) for key in SAMPLING_KEYS if meta.get(key) is not None}
    said = _by_position(f"{path}: meta", direct, positions) if direct else None
    if meta.get("sampling") is None:
        return said
    found = _by_position(f"{path}: meta['sampling']", meta["sampling"], positions)
    if said is None:
        return found
    ones, others = (one if isinstance(one, tuple) else (one,) for one in (said, found))
    ones, others = (one * max(1, max(len(ones), len(others)) // len(one)) for one in (ones, others))
    for one, other in zip(ones, others, strict=True):
        for key, value in one.items():
            if other.get(key, 1.0 if key == "temperature" else None) != value:
                raise InputError(
                    f"{path}: meta[{key!r}] and meta['sampling'] differ; state {key} in one place"
                )
    return found


def _check_raw(path: PathLike, meta: Mapping) -> None:
    """Refuse logits that something was done to which nothing here can tell from raw ones."""
    made = _parsed(meta.get("temperature_of_logits"))
    if made is not None and not neutral("temperature", made):
        raise InputError(
            f"{path}: meta['temperature_of_logits'] is {show(made)}: these logits were divided already; save "
            "raw logits and state meta['sampling'], or leave both out and read them as they are"
        )
    for key in PENALTIES:
        if not neutral(key, _parsed(meta.get(key))):
            raise InputError(f"{path}: meta[{key!r}] {_PENALTY}")
    for key in _BIASES:
        if not (meta.get(key) is None or (isinstance(meta[key], Mapping) and not meta[key])):
            raise InputError(
                f"{path}: meta[{key!r}] is not applied; state it as logit_bias in meta['sampling'] if the "
                "logits do not have it, or leave it out"
            )
    for key in _CONFIGURATIONS:
        if meta.get("sampling") is None and not neutral(key, meta.get(key)):
            raise InputError(
                f"{path}: meta[{key!r}] is not read, and says of a temperature, filter or penalty; state "
                "what is to be applied as meta['sampling'] ({} for nothing)"
            )


_PENALTY = (
    "is not applied: these logits may have it already; state it in meta['sampling'] if they do not, or leave "
    "the key out if they do (note it under another name)"
)
_NUMERIC = ("number", "whole number")


def _parsed(value: object) -> object:
    """A number where a text is one, as safetensors has it, or an array without axes."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind not in "bcOSU":
        return float(value)
    if isinstance(value, str) and len(value) < 40:
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _by_position(
    what: str, stated: object, positions: int
) -> Mapping[str, object] | tuple[Mapping[str, object], ...] | None:
    if isinstance(stated, (list, tuple)):
        if len(stated) != positions:
            raise InputError(f"{what} has {len(stated)} entries for {positions} positions; give one each")
        return tuple(_numbers(f"{what}[{i}]", entry) for i, entry in enumerate(stated))
    if not isinstance(stated, Mapping):
        raise InputError(f"{what} must be a dict or one dict a position, got {type(stated).__name__}")
    stated = {
        key: _parsed(value) if isinstance(value, np.ndarray) and not value.ndim else value
        for key, value in stated.items()
    }
    lists = {}
    for key, v in stated.items():
        if key in SETTINGS and SETTINGS[key].type not in _NUMERIC:
            continue  # one list for all positions; another for some is said by one dict a position
        if isinstance(v, (list, tuple)) or (isinstance(v, np.ndarray) and v.ndim == 1):
            if len(v) != positions:
                raise InputError(
                    f"{what}[{show(key)}] has {len(v)} entries for {positions} positions; give one each"
                )
            lists[key] = v.tolist() if isinstance(v, np.ndarray) else v
    if not lists:
        return _numbers(what, stated)
    rows = (
        {key: lists[key][i] if key in lists else v for key, v in stated.items()} for i in range(positions)
    )
    return tuple(_numbers(what, row) for row in rows)


def _numbers(what: str, entry: object) -> Mapping[str, object]:
    if not isinstance(entry, Mapping):
        raise InputError(f"{what} must be a dict, got {type(entry).__name__}")
    unknown = [key for key in entry if key not in SETTINGS]
    if unknown:
        raise InputError(f"{what} has unknown keys {listing(unknown)}; known: {', '.join(SETTINGS)}")
    given = {key: value for key, value in entry.items() if value is not None}
    further = {key: _setting(what, key, given.pop(key)) for key in [*given] if key not in SAMPLING_KEYS}
    for key, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(f"{what}[{key}] must be a number, got {type(value).__name__}")
        if abs(value) > LARGEST or value != value:
            raise InputError(f"{what}[{key}] must be a number below 2^63, got {show(value)}")
        if key == "top_k" and value != int(value):
            raise InputError(f"{what}[top_k] must be a whole number, got {value:g}")
    if given.get("top_k") in _IDLE["top_k"]:  # as vLLM and others say that there is none
        del given["top_k"]
    found = {key: int(value) if key == "top_k" else float(value) for key, value in given.items()}
    return found | {key: value for key, value in further.items() if value is not None}


def _setting(what: str, key: str, value: object) -> object:
    try:
        return checked(key, _parsed(value) if SETTINGS[key].type in _NUMERIC else value)
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
