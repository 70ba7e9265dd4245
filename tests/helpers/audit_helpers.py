"""The fake engine in the form that an audit asks for, in this process, with what can go wrong on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import fake_engine
import numpy as np
from fake_models import VOCAB

from resispec_verify.audit.interface import Completion, EngineError, Prompt, RawLaw, Sampling, Token

#: Token ids: what follows them is open in some, and nearly certain in others.
PROMPTS: tuple[tuple[int, ...], ...] = ((5, 6), (7, 75), (100, 200, 300), (17,))


def raw_law(law: np.ndarray, top: int) -> RawLaw:
    """What an engine reports of a law ``(V,)``."""
    k = min(top, len(law))
    best = np.argpartition(-law, k - 1)[:k]
    best = best[np.argsort(-law[best], kind="stable")]
    best = best[law[best] > 0]
    return RawLaw(tuple(best.tolist()), tuple(np.minimum(np.log(law[best]), 0.0).tolist()), k == len(law))


@dataclass
class InProcess:
    """A fake engine behind the protocol `Engine`.

    Attributes
    ----------
    engine : fake_engine.Engine
    name : str
    rounds : bool
        Whether a stream shows where rounds begin.
    reports : bool
        Whether a completion says how many draft tokens were verified and accepted.
    counts : bool
        Whether it has counters.
    read_at : Sampling or None
        Read what is asked with these values in place of its own.
    law_of : callable or None
        ``law_of(prefix)`` in place of the target's law, in what it reports.
    own : bool
        Whether it says the laws of what it draws.
    dies_after : int or None
        Answers so many completions.
    laws_die_after : int or None
        Answers so many questions for laws.
    wait : callable
        ``wait(seed)`` before a completion with this seed.
    most : int or None
        Tokens of a law that it reports at most.
    """

    engine: fake_engine.Engine
    name: str = "engine"
    rounds: bool = False
    reports: bool = True
    counts: bool = False
    read_at: Callable[[Sampling], Sampling] = lambda sampling: sampling
    law_of: Callable[[Sequence[int]], np.ndarray] | None = None
    own: bool = True
    dies_after: int | None = None
    laws_die_after: int | None = None
    wait: Callable[[int], None] = lambda seed: None
    most: int | None = None
    tokens_are: str = "ids"
    gives_laws: bool = True
    vocab: int | None = VOCAB

    def __post_init__(self) -> None:
        self.completed = self.asked = 0
        self._lock = threading.Lock()

    def facts(self) -> dict[str, Any]:
        return {"schema": "fake"}

    def encode(self, text: str) -> Prompt:
        return tuple(ord(c) % VOCAB for c in text)

    def complete(
        self, prompt: Prompt, count: int, seed: int, sampling: Sampling, *, own_laws: int = 0
    ) -> Completion:
        self.wait(seed)
        with self._lock:
            self.completed += 1
            if self.dies_after is not None and self.completed > self.dies_after:
                raise EngineError(f"{self.name}: closed the connection without an answer")
        assert not isinstance(prompt, str)
        out = self.engine.complete(prompt, count, seed, self.read_at(sampling))
        laws = None
        if self.own and own_laws and all(law is not None for law in out.laws):
            laws = [raw_law(law, own_laws) for law in out.laws]
        return Completion(
            list(out.tokens),
            [start for start in out.starts if start < len(out.tokens)] if self.rounds else None,
            out.drafted if self.reports else None,
            out.accepted if self.reports else None,
            laws,
        )

    def request(self, prompt: Prompt, count: int, seed: int, sampling: Sampling) -> dict[str, Any] | None:
        return None

    def laws(self, prompt: Prompt, tokens: Sequence[Token], top: int, *, fresh: bool = False) -> list[RawLaw]:
        with self._lock:
            self.asked += 1
            if self.laws_die_after is not None and self.asked > self.laws_die_after:
                raise EngineError(f"{self.name}: closed the connection without an answer")
        top = top if self.most is None else min(top, self.most)
        law_of = self.law_of or self.engine.raw
        return [raw_law(law_of([*prompt, *tokens[:i]]), top) for i in range(len(tokens))]

    def counters(self) -> tuple[int, int] | None:
        return (self.engine.drafted, self.engine.accepted) if self.counts else None

    def close(self) -> None:
        """Nothing to let go of."""


def two(fault: str | None = None, **engine: Any) -> tuple[InProcess, InProcess]:
    """An engine with a fault, and its reference."""
    one, other = fake_engine.engines(fault)
    return InProcess(one, **engine), InProcess(other, "reference")


def draft_of(engine: InProcess) -> InProcess:
    """Its draft, as an engine that is served alone."""
    draft = engine.engine.draft
    return InProcess(fake_engine.Engine(draft, draft, 0), "draft")


def sampling_of(fault: str | None) -> Sampling:
    """What shows the fault, as the package states it."""
    asked = fake_engine.FAULTS[fault].sampling if fault else fake_engine.PLAIN
    return Sampling(asked.temperature, asked.top_k, asked.top_p, asked.min_p)


__all__ = ["PROMPTS", "InProcess", "draft_of", "raw_law", "sampling_of", "two"]
