"""What can be said of sampling, in one table: each setting with its type, its range and when it does nothing.

`Sampling` and ``meta["sampling"]`` of dumps both go by it. Values are made hashable: pairs and tuples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from resispec_verify.errors import InputError
from resispec_verify.sampling.orders import order_of

__all__ = ["LOGGED", "SETTINGS", "Setting", "checked", "left_out", "listed"]

#: ``allowed_tokens`` of a dump that has a mask for each position.
LOGGED = "logged"
_LARGEST = 2**31


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes
    ----------
    type : {"number", "whole number", "token ids", "biases", "order", "history", "settings"}
    low, high : float
        The range of a number.
    open_low : bool
        Whether ``low`` itself is out.
    idle : tuple
        Values that say that there is none.
    meaning : str
    """

    type: str
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    idle: tuple[Any, ...] = ()
    meaning: str = ""


SETTINGS = {
    "temperature": Setting("number", 0, meaning="0 is the one-hot of the first argmax"),
    "top_k": Setting("whole number", 1, idle=(0, -1), meaning="the k most probable tokens"),
    "top_p": Setting("number", 0, 1, True, meaning="the fewest most probable tokens with this share"),
    "min_p": Setting("number", 0, 1, meaning="at least this fraction of the most probable token"),
    "typical_p": Setting("number", 0, 1, True, (1,), "tokens whose surprise is nearest to the entropy"),
    "top_n_sigma": Setting("number", idle=(0, -1), meaning="logits within n deviations of the largest"),
    "xtc_probability": Setting("number", 0, 1, idle=(0,), meaning="how often XTC strikes"),
    "xtc_threshold": Setting("number", 0, 1, meaning="what XTC counts as a top choice; 0.1 if not said"),
    "repetition_penalty": Setting("number", 0, math.inf, True, (1,), "divides positive logits"),
    "presence_penalty": Setting("number", idle=(0,), meaning="subtracted from tokens that occurred"),
    "frequency_penalty": Setting("number", idle=(0,), meaning="subtracted for each occurrence"),
    "penalty_last_n": Setting("whole number", 0, meaning="how many last tokens penalties look at"),
    "logit_bias": Setting("biases", meaning="added to the logits of tokens"),
    "bad_words": Setting("token ids", meaning="tokens that are never sampled"),
    "allowed_tokens": Setting("token ids", meaning="tokens that may be; 'logged': a mask a position"),
    "min_tokens": Setting("whole number", 0, idle=(0,), meaning="stop_tokens are barred so long"),
    "stop_tokens": Setting("token ids", meaning="what min_tokens bars"),
    "order": Setting("order", meaning="an engine, or a list of steps; transformers if not said"),
    "history": Setting("history", meaning="'token' or 'block-start': what penalties in a block have seen"),
    "draft": Setting("settings", meaning="settings of the draft where they differ, in the others' place"),
}  # fmt: skip


def listed() -> str:
    """The names of all settings, for errors."""
    return ", ".join(SETTINGS)


def left_out(stated: Any, *applied: str) -> list[str]:
    """A line for a command that applies but these settings: what else a dump states; none if nothing.

    Parameters
    ----------
    stated : mapping, tuple of mappings or None
        As a dump has it; what only says how others are applied does not count.
    """
    each = stated if isinstance(stated, tuple) else (stated or {},)
    kept = {"order", "history", "penalty_last_n", "xtc_threshold", *applied}
    names = dict.fromkeys(
        name for one in each for name, value in one.items()
        if name not in kept and value is not None and (name, value) != ("temperature", 1.0)
    )  # fmt: skip
    return [f"meta states {', '.join(names)}, which this command does not apply"] if names else []


def checked(name: str, value: Any) -> Any:
    """The value of a setting, hashable; None where it does nothing.

    Raises
    ------
    InputError
        A name that is not in `SETTINGS`, a value of another type or out of range; the message begins with
        the name.
    """
    if name not in SETTINGS:
        raise InputError(f"{name} is no setting of sampling; known: {listed()}")
    setting = SETTINGS[name]
    if value is None:
        return None
    if setting.type in ("number", "whole number"):
        return _number(name, setting, value)
    if setting.type == "token ids":
        if name == "allowed_tokens" and isinstance(value, str) and value == LOGGED:
            return value
        return _ids(name, value)
    if setting.type == "biases":
        return _biases(name, value)
    if setting.type == "history":
        if value not in ("token", "block-start"):
            raise InputError(f"{name} must be 'token' or 'block-start', got {str(value)[:40]!r}")
        return value
    if setting.type == "order":
        if not isinstance(value, str) and not (
            isinstance(value, Sequence) and all(isinstance(step, str) for step in value)
        ):
            raise InputError(f"{name} must be the name of an engine or a list of steps, got {_kind(value)}")
        return order_of(value).name
    return _settings(name, value)


def _number(name: str, setting: Setting, value: Any) -> float | int | None:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{name} must be a number, got {_kind(value)}")
    if value in setting.idle:
        return None
    above = value > setting.low if setting.open_low else value >= setting.low
    if not (math.isfinite(value) and above and value <= setting.high):
        least = f"above {setting.low:g}" if setting.open_low else f"at least {setting.low:g}"
        most = f" and at most {setting.high:g}" if math.isfinite(setting.high) else ""
        range_ = least + most if math.isfinite(setting.low) else "finite"
        raise InputError(f"{name} must be {range_}, got {value:g}")
    if setting.type == "whole number":
        if value != int(value) or value >= _LARGEST:
            raise InputError(f"{name} must be a whole number below 2^31, got {value:g}")
        return int(value)
    return float(value)


def _ids(name: str, value: Any) -> tuple[int, ...] | None:
    if isinstance(value, np.ndarray) and value.ndim <= 1 and value.dtype.kind in "iu":
        value = value.reshape(-1).tolist()
    value = [value] if type(value) is int else value
    if isinstance(value, (list, tuple, set, frozenset)):
        one = [token[0] if isinstance(token, (list, tuple)) and len(token) == 1 else token for token in value]
        ids = [token for token in one if type(token) is int and 0 <= token < _LARGEST]
        if len(ids) == len(one):
            return tuple(sorted(set(ids))) if ids or name == "allowed_tokens" else None
        if any(isinstance(token, (list, tuple)) for token in one):
            raise InputError(f"{name} has a sequence of several tokens; only single ones are applied")
    raise InputError(f"{name} must be a list of token ids, got {_kind(value)}")


def _biases(name: str, value: Any) -> tuple[tuple[int, float], ...] | None:
    """Pairs of token and bias; JSON has the tokens as text."""
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, (list, tuple)) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs
    ):
        raise InputError(f"{name} must be a dict of token ids and biases, got {_kind(value)}")
    found: dict[int, float] = {}
    for token, bias in pairs:
        token = int(token) if isinstance(token, str) and token.isdecimal() and len(token) < 11 else token
        if type(token) is not int or not 0 <= token < _LARGEST or token in found:
            raise InputError(f"{name} has {str(token)[:40]!r}, which is no token id, or is there twice")
        if isinstance(bias, bool) or not isinstance(bias, (int, float)) or not bias < math.inf:
            raise InputError(f"{name} of token {token} must be a number below inf, got {str(bias)[:40]}")
        found[token] = float(bias)
    return tuple(sorted(found.items())) or None


def _settings(name: str, value: Any) -> tuple[tuple[str, Any], ...]:
    """Settings inside settings, as sorted pairs."""
    if not isinstance(value, Mapping):
        try:
            value = dict(value)
        except (TypeError, ValueError):
            raise InputError(f"{name} must be a dict of settings, got {_kind(value)}") from None
    if "draft" in value:
        raise InputError(f"{name} has settings of a draft inside; state them once")
    found = []
    for key, one in value.items():
        try:
            found.append((key, checked(key, one)))
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return tuple(sorted(found))


def _kind(value: Any) -> str:
    return type(value).__name__
