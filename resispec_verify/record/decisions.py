"""Recording scalar logs: one line a decision, for engines that cannot afford rows."""

from __future__ import annotations

import json
import os
from types import TracebackType
from typing import Any

import numpy as np

from resispec_verify.dumps.opening import as_path
from resispec_verify.errors import InputError

__all__ = ["DecisionLog"]


class DecisionLog:
    """Writes JSON lines, one a decision, that `replay` reads.

    Lines go to the file as they come; an exception in the loop leaves those before it.

    Parameters
    ----------
    path : path
        A name that ends in .jsonl. An existing file is replaced.

    Raises
    ------
    InputError
        A path that cannot be, or (from `add`) a value that cannot be written.

    Examples
    --------
    >>> with DecisionLog("decisions.jsonl") as log:  # doctest: +SKIP
    ...     log.add(p=0.31, q=0.42, accepted=True, u=0.07, round=3, depth=0)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = as_path(path)
        if self.path.suffix != ".jsonl":
            raise InputError(f"{self.path}: scalar logs are JSON lines; end the name with .jsonl")
        try:
            self._file = open(self.path, "w", encoding="utf-8")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written ({error.strerror}); choose another place"
            ) from None
        self.count = 0

    def add(self, *, p: Any, q: Any, accepted: Any, **others: Any) -> None:
        """Add one decision.

        Parameters
        ----------
        p, q : float
            Probability of the drafted token under target and draft, as they were compared; q = 1 where drafts
            have no law.
        accepted : bool
        others
            `u`, `request`, `round`, `position`, `depth`, `token`; of the token after a rejection, or after
            the last accepted draft of a round: `next_token`, `next_p`, `next_cdf`, `next_target_p`;
            `reported` and `next_reported`. None leaves one out. Numbers may be NumPy's or torch's of one
            element.
        """
        values = {"p": p, "q": q, "accepted": bool(_plain("accepted", accepted))} | others
        line = {key: _plain(key, value) for key, value in values.items() if value is not None}
        try:
            text = json.dumps(line, allow_nan=False, separators=(",", ":"))
        except ValueError:
            raise InputError(
                f"{self.path}: decision {self.count} holds NaN or infinity; log finite numbers"
            ) from None
        self._file.write(text + "\n")
        self.count += 1

    def close(self) -> None:
        """Close the file; without a `with` block this must be called."""
        self._file.close()

    def __enter__(self) -> DecisionLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _plain(key: str, value: Any) -> Any:
    """A number, bool or text; float32 in nine digits, which give it back."""
    if type(value) in (np.float32, np.float16):
        return float(str(value))
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, (bool, int, float, str)):
        raise InputError(f"{key} is {type(value).__name__}; give a number or a text")
    return value
