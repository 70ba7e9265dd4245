"""The one exception a user is meant to see."""

from __future__ import annotations

__all__ = ["InputError"]


class InputError(ValueError):
    """Bad usage or bad input: one line that says what is wrong, where, and what to do about it.

    The command line prints the message and exits with status 2; library callers catch it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))
