"""An engine that is a library: a function from prompt ids, a count and a seed to token ids."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import redirect_stdout
from typing import Any

import numpy as np

from resispec_verify.audit.interface import (
    Completion,
    EngineError,
    Prompt,
    RawLaw,
    Sampling,
    Token,
)
from resispec_verify.errors import InputError

__all__ = ["FunctionEngine"]


class FunctionEngine:
    """Functions as an engine. They are called one at a time, with ids, and their sampling is their own.

    What they print goes to standard error.

    Parameters
    ----------
    generate : callable
        ``generate(prompt_ids, count, seed)``: token ids, at most ``count``; or a mapping with ``tokens`` and,
        if known, ``drafted``, ``accepted`` and ``starts`` (see `Completion`). Or, with an attribute ``many``
        that is true, ``generate(prompts, count, seeds)``: a list of such, for requests that come together.
    name : str
    law : callable, optional
        ``law(ids)``: log-probabilities or logits ``(V,)`` of the token after these ids, at temperature 1 and
        without filters, from the same arithmetic as a plain ``generate``. Or, with an attribute ``many`` that
        is true, ``law(prompt_ids, tokens)``: ``(len(tokens), V)``, the law before each of the tokens.
    encode : callable, optional
        ``encode(text)``: ids of a prompt.
    """

    tokens_are = "ids"

    def __init__(
        self,
        generate: Callable[..., Any],
        name: str,
        *,
        law: Callable[..., Any] | None = None,
        encode: Callable[[str], Sequence[int]] | None = None,
    ) -> None:
        self.name, self._generate, self._law, self._encode = name, generate, law, encode
        self.gives_laws = law is not None
        self.vocab: int | None = None
        self._one_at_a_time = threading.Lock()
        self._batch = _Batch(lambda *arguments: self._call(self._generate, *arguments), name)
        self._closed = False

    def facts(self) -> dict[str, Any]:
        """Nothing but that it is a function: its sampling is its own."""
        return {"schema": "function"}

    def encode(self, text: str) -> Prompt:
        """Raises InputError where there is no function for it."""
        if self._encode is None:
            raise InputError(
                f"{self.name}: prompts are texts, and it takes token ids: give --encode FILE.py:encode, or "
                "ids in --prompts"
            )
        return tuple(_ids(self._call(self._encode, text), self.name, "encode"))

    def complete(
        self, prompt: Prompt, count: int, seed: int, sampling: Sampling, *, own_laws: int = 0
    ) -> Completion:
        """Call ``generate``."""
        started = time.monotonic()
        if getattr(self._generate, "many", False):
            found = self._batch.ask(list(prompt), count, seed)
        else:
            found = self._call(self._generate, list(prompt), count, seed)
        more = dict(found) if isinstance(found, Mapping) else {"tokens": found}
        unknown = more.keys() - {"tokens", "drafted", "accepted", "starts"}
        if unknown or "tokens" not in more:
            raise EngineError(
                f"{self.name}: gives {sorted(map(str, more))}; wanted: tokens and, if known, drafted, "
                "accepted, starts"
            )
        tokens: list[Token] = list(_ids(more["tokens"], self.name, "tokens"))
        for key in ("drafted", "accepted"):
            if more.get(key) is not None and (not isinstance(more[key], (int, np.integer)) or more[key] < 0):
                raise EngineError(f"{self.name}: {key} is {more[key]!r}; a number of draft tokens is wanted")
        starts = more.get("starts")
        return Completion(
            tokens[:count],
            None if starts is None else _starts(starts, len(tokens[:count]), self.name),
            None if more.get("drafted") is None else int(more["drafted"]),
            None if more.get("accepted") is None else int(more["accepted"]),
            seconds=time.monotonic() - started,
        )

    def request(self, prompt: Prompt, count: int, seed: int, sampling: Sampling) -> dict[str, Any] | None:
        """None: a call is shown by its arguments."""
        return None

    def laws(self, prompt: Prompt, tokens: Sequence[Token], top: int, *, fresh: bool = False) -> list[RawLaw]:
        """Call ``law`` after each text, or once for all."""
        if self._law is None:
            raise EngineError(f"{self.name}: gives no laws; give --law FILE.py:law")
        ids = [int(token) for token in tokens]
        if getattr(self._law, "many", False):
            rows = self._call(self._law, list(prompt), ids)
        else:
            rows = [self._call(self._law, [*prompt, *ids[:i]]) for i in range(len(ids))]
        if not hasattr(rows, "__len__"):
            raise EngineError(f"{self.name}: law gives {type(rows).__name__}, not rows of logits")
        if len(rows) != len(ids):
            raise EngineError(f"{self.name}: law gives {len(rows)} rows for {len(ids)} tokens")
        return [self._raw(row, top) for row in rows]

    def _raw(self, row: Any, top: int) -> RawLaw:
        try:
            logits = np.asarray(row, np.float64)
        except (TypeError, ValueError):
            logits = np.empty(0)
        if logits.ndim != 1 or not len(logits) or np.isnan(logits).any() or not np.isfinite(logits.max()):
            raise EngineError(f"{self.name}: law gives no logits (V,): shape {logits.shape}, or not numbers")
        if self.vocab not in (None, len(logits)):
            raise EngineError(f"{self.name}: law gives {len(logits)} logits after {self.vocab} before")
        self.vocab = len(logits)
        logs = logits - np.logaddexp.reduce(logits)
        k = min(top, len(logs))
        best = np.argpartition(-logs, k - 1)[:k]
        best = best[np.argsort(-logs[best], kind="stable")]
        best = best[np.isfinite(logs[best])]
        return RawLaw(
            tuple(int(i) for i in best), tuple(float(min(x, 0.0)) for x in logs[best]), k == len(logs)
        )

    def counters(self) -> tuple[int, int] | None:
        """None: completions report their own."""
        return None

    def close(self) -> None:
        """Wait for the call that is running, if any; those that wait for it are not made."""
        with self._one_at_a_time:
            self._closed = True

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with self._one_at_a_time:
            if self._closed:
                raise EngineError(f"{self.name}: was closed")
            try:
                with redirect_stdout(sys.stderr):
                    found = function(*arguments)
                    return list(found) if isinstance(found, Iterator) else found
            except (EngineError, InputError):
                raise
            except (Exception, SystemExit) as error:  # which would end the audit with a status of its own
                text = " ".join(str(error).split())[:300]
                raise EngineError(f"{self.name}: raises {type(error).__name__}: {text}") from None


class _Batch:
    """Requests of several threads in one call: those that wait while a call runs are the next one's."""

    def __init__(self, call: Callable[..., Any], name: str) -> None:
        self._call, self.name = call, name
        self._waiting: list[tuple[list[Any], int, int, Future[Any]]] = []
        self._lock, self._calling = threading.Lock(), threading.Lock()

    def ask(self, prompt: list[Any], count: int, seed: int) -> Any:
        """The completion of one request."""
        mine: Future[Any] = Future()
        with self._lock:
            self._waiting.append((prompt, count, seed, mine))
        with self._calling:
            if not mine.done():
                with self._lock:
                    batch = [one for one in self._waiting if one[1] == count]
                    self._waiting = [one for one in self._waiting if one[1] != count]
                self._answer(batch, count)
        return mine.result()

    def _answer(self, batch: Sequence[tuple[list[Any], int, int, Future[Any]]], count: int) -> None:
        try:
            found = self._call([one[0] for one in batch], count, [one[2] for one in batch])
            if not isinstance(found, (list, tuple)):
                raise EngineError(f"{self.name}: gives {type(found).__name__}, not a list of completions")
            if len(found) != len(batch):
                raise EngineError(f"{self.name}: gives {len(found)} completions of {len(batch)} prompts")
        except BaseException as error:
            for *_, future in batch:
                future.set_exception(error)
            return
        for (*_, future), one in zip(batch, found, strict=True):
            future.set_result(one)


def _ids(value: Any, name: str, what: str) -> list[int]:
    try:
        found = [int(token) for token in np.asarray(value).tolist()] if len(value) else []
        if (
            all(token == given for token, given in zip(found, value, strict=True))
            and min(found, default=0) >= 0
        ):
            return found
    except (TypeError, ValueError, OverflowError):
        pass
    raise EngineError(f"{name}: {what} are no list of token ids, whole numbers from 0")


def _starts(value: Any, count: int, name: str) -> list[int]:
    starts = [start for start in _ids(value, name, "starts") if start < count]
    if count and (not starts or starts[0] != 0 or starts != sorted(set(starts))):
        raise EngineError(f"{name}: starts {starts[:8]} of rounds do not begin at 0 and rise")
    return starts
