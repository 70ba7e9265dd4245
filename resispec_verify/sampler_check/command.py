"""A sampler in another process, in any language: one line of JSON a call each way."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["CommandSampler"]

# Characters of one answer; a program that never ends its line must not fill the memory.
_LONGEST_ANSWER = 1 << 26


class CommandSampler:
    """A program as a sampler. It is started at the first call and reads requests until its input ends.

    A request has ``style``, ``rows`` (how many answers are wanted), and what a sampler of the style is
    called with, by name and in lists; ``seed`` stands for ``rng``. ``target`` and ``draft`` of a pair are one
    law for all rows; models are their tables, in which row x is the law after token x. Minus infinity is
    null. The answer has ``tokens``, and ``accepted`` where it is reported; or ``error``, a text.

    Parameters
    ----------
    words : sequence of str
        Program and arguments; no shell is involved.
    style : str
    names : sequence of str
        Of the arguments of a call.
    """

    #: Rows of one call all have the same target and draft.
    one_pair_a_call = True

    def __init__(self, words: Sequence[str], style: str, names: Sequence[str]) -> None:
        self.words, self.style, self.names = list(words), style, tuple(names)
        self.process: subprocess.Popen[str] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """One request and its answer."""
        given = dict(zip(self.names, arguments, strict=True))
        request: dict[str, Any] = {"style": self.style, "rows": _rows(given)}
        for name, value in given.items():
            if name == "rng":
                request["seed"] = int(value.integers(2**53))
            elif isinstance(value, int):
                request[name] = value
            elif name in ("target", "draft"):
                request[name] = _plain(value.table if callable(value) else value[0])
            else:
                request[name] = _plain(value)
        answer = self._ask(json.dumps(request))
        if "error" in answer:
            raise RuntimeError(f"the program says: {answer['error']}")
        if "tokens" not in answer:
            raise ValueError('the program\'s answer has no "tokens"')
        tokens = np.asarray(answer["tokens"])
        return tokens if "accepted" not in answer else (tokens, np.asarray(answer["accepted"]))

    def _ask(self, line: str) -> dict[str, Any]:
        if self.process is None:
            self.process = subprocess.Popen(
                self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        answer = ""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = process.stdout.readline(_LONGEST_ANSWER)
        if not answer:
            raise RuntimeError(f"the program ended (status {process.wait()}) without an answer")
        try:
            found = json.loads(answer)
        except (ValueError, RecursionError):
            raise ValueError(f"the program's answer is not JSON: {answer[:60]!r}") from None
        if not isinstance(found, dict):
            raise ValueError("the program's answer is not a JSON object")
        return found


def _rows(given: dict[str, Any]) -> int:
    """How many rows a call has."""
    if "lengths" in given:
        return len(given["lengths"]) - 1
    return len(given["prompt"] if "prompt" in given else next(iter(given.values())))


def _plain(values: np.ndarray) -> Any:
    """Lists for JSON, which has no infinity."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return values.tolist()
    return np.where(np.isfinite(values), values, None).tolist()  # type: ignore[call-overload]
