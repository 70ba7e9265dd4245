"""Completions and their laws, several requests at a time, kept in a journal, handed on in the order asked."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from resispec_verify.audit.interface import Completion, Engine, EngineError, Prompt, RawLaw, Token
from resispec_verify.audit.settings import AuditSettings
from resispec_verify.errors import InputError
from resispec_verify.runs.journal import Journal

__all__ = ["Gatherer", "OutOfTime", "Piece", "what_is_left"]

# Decimals of a log-probability that are kept: far below the rounding of laws (`laws.ROUNDING`), and it keeps
# a journal small. What is not from a journal is rounded as well, so that a resumed run says the same.
DECIMALS = 6


class OutOfTime(Exception):
    """The run's seconds are over."""


@dataclass
class Piece:
    """One completion, as a journal keeps it.

    Attributes
    ----------
    request, prompt : int
        Its index, and that of its prompt.
    laws : list of RawLaw or None
        The reference's, before each token.
    own : list of RawLaw or None
        What a reference said while it drew.
    draft : list of RawLaw or None
        The draft's law before each token.
    """

    request: int
    prompt: int
    tokens: list[Token]
    starts: list[int] | None
    drafted: int | None
    accepted: int | None
    oddities: list[str]
    laws: list[RawLaw] | None = None
    own: list[RawLaw] | None = None
    draft: list[RawLaw] | None = None

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Piece:
        """From a line of the journal."""
        laws = {name: entry[name] and [_law(one) for one in entry[name]] for name in ("laws", "own", "draft")}
        return cls(**{**entry, **laws})


def _law(one: dict[str, Any]) -> RawLaw:
    return RawLaw(tuple(one["tokens"]), tuple(one["logprobs"]), one["complete"])


def _kept(entry: Any, laws: bool, journal: Journal | None) -> Piece:
    """A piece of a journal, which may have been edited, or be of another version.

    Raises
    ------
    InputError
    """
    try:
        piece = Piece.of(entry)
        numbers = [piece.request, piece.prompt, *(piece.starts or ()), len(piece.tokens) - 1]
        whole = all(type(n) is int and n >= 0 for n in numbers) and isinstance(piece.oddities, list)
        whole = whole and all(type(token) in (int, str) for token in piece.tokens)
        lengths = [len(one) for one in (piece.laws, piece.draft) if one is not None]
        whole = (
            whole and all(n == len(piece.tokens) for n in lengths) and (piece.laws is not None or not laws)
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        where = "" if journal is None else f"{journal.path}: "
        raise InputError(f"{where}a completion in it is damaged, or of another version; name another file")
    return piece


def _rounded(laws: list[RawLaw] | None) -> list[RawLaw] | None:
    return laws and [
        RawLaw(one.tokens, tuple(round(x, DECIMALS) for x in one.logprobs), one.complete) for one in laws
    ]


class Gatherer:
    """Asks for completions of one engine.

    Parameters
    ----------
    who : str
        Of the journal's lines.
    engine, reference : Engine
        Whose tokens, and whose laws; the same engine for the control.
    draft : Engine or None
        Whose laws are asked besides.
    until : float
        `time.monotonic` at which the run ends.

    Raises
    ------
    InputError
        A line of the journal is none of these.
    """

    def __init__(
        self,
        who: str,
        engine: Engine,
        reference: Engine | None,
        settings: AuditSettings,
        prompts: Sequence[Prompt],
        *,
        draft: Engine | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.who, self.engine, self.reference, self.draft = who, engine, reference, draft
        self.settings, self.prompts, self.journal = settings, prompts, journal
        entries = [] if journal is None else journal.entries
        laws = reference is not None and reference.gives_laws
        kept = [_kept(e.get("piece"), laws, journal) for e in entries if e.get("who") == who]
        self._kept = {piece.request: piece for piece in kept}
        self.until = float("inf")

    def pieces(self, length: int, first: int = 0) -> Generator[Piece, None, None]:
        """Completions ``first``, ``first + 1``, ... of ``length`` tokens, without end.

        Raises
        ------
        EngineError
            An engine failed at this completion; those before have been handed on.
        OutOfTime
        """
        with closing(in_order(lambda i: self._piece(i, length), first, self.settings.concurrency)) as found:
            for request, future in found:
                piece = _result(future, self.until)
                if self.journal is not None and request not in self._kept:
                    self.journal.append({"who": self.who, "piece": asdict(piece)})
                yield piece

    def _piece(self, request: int, length: int) -> Piece:
        chosen = self.settings
        which = request % len(self.prompts)
        if request in self._kept and self._kept[request].prompt == which:
            return self._kept[request]
        prompt = self.prompts[which]
        control = self.engine is self.reference
        found: Completion = self.engine.complete(
            prompt, length, chosen.seed + request, chosen.sampling, own_laws=chosen.top if control else 0
        )
        if not found.tokens:
            raise EngineError(f"{self.engine.name}: gave no tokens to a request of {length}")
        tokens = found.tokens[:length]
        return Piece(
            request, which, tokens, found.starts, found.drafted, found.accepted, found.oddities,
            _rounded(self._laws(self.reference, prompt, tokens)),
            _rounded(found.laws if control else None),
            _rounded(self._laws(self.draft, prompt, tokens)),
        )  # fmt: skip

    def _laws(self, engine: Engine | None, prompt: Prompt, tokens: list[Token]) -> list[RawLaw] | None:
        if engine is None or not engine.gives_laws:
            return None
        laws = engine.laws(prompt, tokens, self.settings.top)
        if len(laws) != len(tokens):
            raise EngineError(f"{engine.name}: gave {len(laws)} laws for {len(tokens)} tokens")
        return laws


def what_is_left(requests: int, journal: Journal | None) -> list[str]:
    """What an error leaves of ``requests`` completions, and how to go on, in sentences."""
    before = ["what was gathered before is in the evidence above"] if requests else []
    if journal is None:
        return [*before, "with --resume FILE a run is kept, and the same command goes on from there"]
    return [*before, "the journal keeps what was gathered: the same command goes on from there"]


def _result(future: Future[Piece], until: float) -> Piece:
    try:
        return future.result(max(0.0, min(until - time.monotonic(), 1e7)))
    except NotYet:
        raise OutOfTime from None


def in_order(
    work: Callable[[int], Any], first: int, at_a_time: int
) -> Generator[tuple[int, Future[Any]], None, None]:
    """Results of ``work(first)``, ``work(first + 1)``, ... in this order, some of them computed ahead.

    Closing it lets go of what was begun.
    """
    pool = ThreadPoolExecutor(at_a_time, thread_name_prefix="audit")
    waiting: deque[tuple[int, Future[Any]]] = deque()
    try:
        while True:
            while len(waiting) < at_a_time:
                waiting.append((first, pool.submit(work, first)))
                first += 1
            yield waiting.popleft()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
