"""The one exception a user is meant to see, and the name that was perhaps meant."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["InputError", "did_you_mean", "nearest"]

#: Of `difflib`: two letters of six may differ, three may not. "plot" is not "logits", nor "nope" "np".
CLOSE = 0.75
LEAST_BEGINNING = 3


class InputError(ValueError):
    """Bad usage or bad input: one line that says what is wrong, where, and what to do about it.

    The command line prints the message and exits with status 2; library callers catch it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of the known names that was perhaps meant; None where nothing is close.

    The same letters count as the same name, however they are separated; then the one name that begins so;
    then the closest in spelling. Names whose numbers differ are different names: theorem 9 is not theorem 2.
    """
    asked, plain = _plain(name), {_plain(one): one for one in known}
    if asked in plain:
        return plain[asked]
    begin = [one for one in plain if one.startswith(asked)] if len(asked) >= LEAST_BEGINNING else []
    if len(begin) == 1:
        return plain[begin[0]]
    import difflib

    same = [one for one in plain if _numbers(one) == _numbers(asked)]
    close = difflib.get_close_matches(asked, same, n=1, cutoff=CLOSE)
    return plain[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The question, to go on in a message with; nothing where no known name is close."""
    near = nearest(name, known)
    return "" if near is None else f"; did you mean {near!r}?"


def _plain(name: str) -> str:
    return re.sub(r"[\s_.-]+", "", name.lower())


def _numbers(name: str) -> list[str]:
    return re.findall(r"\d+", name)
