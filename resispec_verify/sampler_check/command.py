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

    A request has ``style``, ``rows`` (how many tokens are wanted) and ``seed``; ``target`` and ``draft``,
    one law each for all rows; for the style "candidates" also ``candidates``, a list a row. For "block":
    ``targets``, ``drafts`` and ``path``, with a list a row. The answer has ``tokens``, and ``accepted``
    where it is reported; or ``error``, a text.

    Parameters
    ----------
    words : sequence of str
        Program and arguments; no shell is involved.
    style : str
    """

    #: Rows of one call all have the same target and draft.
    one_pair_a_call = True

    def __init__(self, words: Sequence[str], style: str) -> None:
        self.words, self.style = list(words), style
        self.process: subprocess.Popen[str] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """One request and its answer."""
        *arrays, rng = arguments
        request: dict[str, Any] = {
            "style": self.style,
            "rows": len(arrays[0]),
            "seed": int(rng.integers(2**53)),
        }
        if self.style == "block":
            names = ("targets", "drafts", "path")
            request |= {name: array.tolist() for name, array in zip(names, arrays, strict=True)}
        else:
            request |= {"target": arrays[0][0].tolist(), "draft": arrays[1][0].tolist()}
            if len(arrays) > 2:
                request["candidates"] = arrays[2].tolist()
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
