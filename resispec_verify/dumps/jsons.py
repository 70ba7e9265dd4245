"""JSON from a file that nobody vouches for."""

from __future__ import annotations

import json

from resispec_verify.dumps.paths import show
from resispec_verify.errors import InputError

__all__ = ["LONGEST", "parse_json"]

LONGEST = 1 << 23
"""Parsed JSON may take tens of times the memory of its text."""


def parse_json(data: bytes | str, what: str) -> object:
    """Parse JSON text.

    Parameters
    ----------
    data : bytes or str
        UTF-8.
    what : str
        Named in errors.

    Raises
    ------
    InputError
        If it is too long or not JSON, names a key twice, or is nested too deep.
    """
    if len(data) > LONGEST:
        raise InputError(f"{what} is too long ({len(data)} characters of at most {LONGEST}); shorten it")
    try:
        return json.loads(data, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is not valid JSON ({show(str(error))}); write it again") from None


def _unique(pairs: list[tuple[str, object]]) -> dict:
    built = dict(pairs)
    if len(built) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise ValueError(f"two keys {twice}")
    return built
