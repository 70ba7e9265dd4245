"""An audit: the reference through the test first, then the engine, then what a rejection looks like.

The engine's tokens are tested against the law that the reference says it has after the same text, and so are
the reference's own: what is misread (a filter in another order, probabilities of another temperature) rejects
both, and the verdict is ``reference-mismatch``. Each of the two errs with probability at most alpha / 2.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from resispec_verify.audit.exercise import PLAIN, Exercise, oddities_of
from resispec_verify.audit.focus import focus_of
from resispec_verify.audit.gather import Gatherer, OutOfTime, Piece, what_is_left
from resispec_verify.audit.interface import Engine, EngineError, Prompt, same_schema, same_tokens
from resispec_verify.audit.laws import BeyondReported, CoarseLaw, coarse_law
from resispec_verify.audit.looks import looks_like, resemblance
from resispec_verify.audit.noise import measure_band
from resispec_verify.audit.samples import SampleAudit
from resispec_verify.audit.settings import AuditResult, AuditSettings, thinned
from resispec_verify.audit.shrink import smallest_request
from resispec_verify.audit.stream import Stream
from resispec_verify.errors import InputError
from resispec_verify.runs.journal import Journal

__all__ = ["Progress", "audit"]

#: Called with what is done (``"control"``, ``"engine"``, ...), tokens and log10 of the evidence.
Progress = Callable[[str, int, float], None]
# Of the engine's tokens, what the reference is tested on first; on more where the engine is rejected.
CONTROL = 1 / 4
# Where the engine is rejected after n tokens, the reference must pass on so many times n, and on up to so
# many times as far as the run's tokens go: one with the same fault may need more tokens, by chance.
AGAIN, AMPLE = 2, 10
# Tokens that may be drawn for each of these.
LONGER = 4
# Of the run's time, what the control and the explanation of a rejection may take beyond its end.
EXTRA = 0.5
# Of the engine's tokens, those of short completions of one text; their length, and where their seeds begin.
FOCUSED = 0.3
FOCUS = 3
APART = 500_000
# Tokens of a rejected engine that are looked at to say what they look like.
EXPLAINED = 768
# Quantile of what bounds of laws leave open, up to which laws are cut.
OPEN = 0.95


def audit(
    engine: Engine,
    reference: Engine,
    settings: AuditSettings | None = None,
    *,
    draft: Engine | None = None,
    journal: Journal | None = None,
    progress: Progress = lambda what, tokens, evidence: None,
) -> AuditResult:
    """Does an engine with speculation emit what it emits without?

    Parameters
    ----------
    engine, reference : Engine
        The same engine with speculation, and without.
    draft : Engine, optional
        The draft model as an engine: it says more of a rejection.
    journal : Journal, optional
        What was gathered before is used, and what is gathered is kept.
    progress : callable

    Raises
    ------
    InputError
        Settings that do not fit the engines. What the engines do wrong is in the result.
    """
    return _Run(engine, reference, settings or AuditSettings(), draft, journal, progress).result()


class _Run:
    """One audit."""

    def __init__(
        self,
        engine: Engine,
        reference: Engine,
        settings: AuditSettings,
        draft: Engine | None,
        journal: Journal | None,
        progress: Progress,
    ) -> None:
        self.engine, self.reference, self.settings, self.draft = engine, reference, settings, draft
        self.journal, self.progress = journal, progress
        self.started = time.monotonic()
        self.until = self.started + settings.seconds
        self.mode = self._mode()
        self.alpha = settings.alpha / 2
        self.found = AuditResult(
            "error", engine.name, reference.name, self.mode, settings.alpha, self.alpha, settings.power,
            settings.seed, sampling=settings.facts()["sampling"], prompts=len(settings.prompts),
        )  # fmt: skip
        self.oddities: Counter[str] = Counter()
        self.prompts: tuple[Prompt, ...] = settings.prompts
        self.band, self.slack = 0.0, 1e-3
        self.most_requests = math.inf if settings.requests is None else settings.requests
        self.focus: Prompt | None = None

    def _mode(self) -> str:
        mode, ids = self.settings.mode, self.engine.tokens_are == self.reference.tokens_are
        possible = self.reference.gives_laws and ids
        if mode == "laws" and not possible:
            raise InputError(
                f"{self.reference.name}: gives no laws of what {self.engine.name} emits; use --mode samples"
            )
        return ("laws" if possible else "samples") if mode == "auto" else mode

    def result(self) -> AuditResult:
        """Do it all."""
        found = self.found
        try:
            self._prepare()
            found.stopped = self._samples() if self.mode == "samples" else self._laws()
        except EngineError as error:
            found.stopped = "error"
            if str(error) not in found.reasons:
                found.reasons.append(str(error))
            found.verdict = "error" if found.verdict == "not-rejected" else found.verdict
        if found.verdict == "error":
            found.notes += what_is_left(found.requests, self.journal)
        found.notes += [
            f"{text} ({times} times)"
            for text, times in self.oddities.items()
            if not text.endswith(tuple(found.reasons))  # said already
        ]
        found.seconds = time.monotonic() - self.started
        return found

    def _prepare(self) -> None:
        found = self.found
        self.exercise = Exercise(self.engine, self.settings.least_drafts, self.journal)
        self.plain_exercise = Exercise(self.reference, 0, self.journal, PLAIN)
        found.facts = {"engine": self.engine.facts(), "reference": self.reference.facts()}
        same_tokens(self.engine, self.reference, found.facts)
        found.notes += same_schema(found.facts)
        self.oddities.update(oddities_of(self.engine, self.settings))
        if self.reference.tokens_are == self.engine.tokens_are == "ids":
            self.prompts = tuple(
                self.reference.encode(prompt) if isinstance(prompt, str) else prompt
                for prompt in self.settings.prompts
            )

    def _gatherer(self, who: str, engine: Engine, draft: Engine | None = None) -> Gatherer:
        gatherer = Gatherer(
            who, engine, self.reference, self.settings, self.prompts, draft=draft, journal=self.journal
        )
        gatherer.until = self.until
        return gatherer

    def _laws(self) -> str:
        chosen = self.settings
        control = self._gatherer("reference", self.reference)
        pieces: list[Piece] = []
        stopped = "tokens"
        try:
            for piece in self._some(control, max(chosen.tokens * CONTROL, 4 * chosen.length)):
                pieces.append(piece)
                self.progress("control", sum(len(one.tokens) for one in pieces), 0.0)
        except OutOfTime:
            stopped = "time"
        if not pieces:
            raise EngineError(f"{self.reference.name}: gave nothing in {chosen.seconds:g} s")
        self._measure(pieces)
        plain = self._stream(pieces)
        if self._control(plain):
            return "control"
        stream = Stream(self.band, self.slack, drafts=self.draft is not None)
        if stopped != "time":
            stopped = self._engine(stream)
        return self._judge(stream, plain, control, len(pieces), stopped)

    def _some(self, gatherer: Gatherer, tokens: float, first: int = 0) -> Iterator[Piece]:
        """Completions until they have so many tokens."""
        if tokens <= 0:
            return
        with closing(gatherer.pieces(gatherer.settings.length, first)) as pieces:
            for piece in pieces:
                self.oddities.update(piece.oddities)
                if gatherer.engine is self.reference:
                    self.plain_exercise.add(piece)
                yield piece
                tokens -= len(piece.tokens)
                if tokens <= 0:
                    return

    def _measure(self, pieces: Sequence[Piece]) -> None:
        self.found.band = measure_band(self.reference, pieces, self.settings, self.prompts, self.journal)
        self.band = self.found.band["tv"]
        laws = [law for piece in pieces for law in self._coarse(piece.laws or []) if law is not None]
        if not laws:
            raise EngineError(next(reversed(self.oddities)))
        left = np.array([0.5 * float((law.high - law.low).sum()) for law in laws])
        self.slack = float(np.clip(np.quantile(left, OPEN), 1e-4, 0.05))
        others = float(np.mean([law.law[-1] for law in laws]))
        self.found.band |= {"open": self.slack, "others": others}
        self.focus = focus_of(pieces, self.prompts, self._coarse)

    def _coarse(self, laws: Sequence[Any]) -> list[CoarseLaw | None]:
        """The laws; None where a filter reaches beyond what was reported."""
        found: list[CoarseLaw | None] = []
        try:
            for raw in laws:
                try:
                    found.append(coarse_law(raw, self.settings.sampling, self.reference.vocab))
                except BeyondReported as error:
                    found.append(None)
                    self.oddities[f"{self.reference.name}: {error}"] += 1
        except EngineError as error:
            raise EngineError(f"{self.reference.name}: {error}") from None
        return found

    def _stream(self, pieces: Sequence[Piece]) -> Stream:
        stream = Stream(self.band, self.slack)
        for piece in pieces:
            self._add(stream, piece)
        return stream

    def _add(self, stream: Stream, piece: Piece) -> None:
        draft = None if piece.draft is None else self._coarse(piece.draft)
        stream.add(
            piece.request, piece.prompt, piece.tokens, self._coarse(piece.laws or []), piece.starts, draft
        )

    def _control(self, plain: Stream) -> bool:
        """Whether the reference itself is rejected, or speculates; says so."""
        found = self.found
        found.control = {
            "tokens": plain.test.draws,
            "log10_evidence": _log10(plain.strongest),
            "detectable_tv": plain.detectable(self.alpha, self.settings.power),
        }
        found.path["reference"] = thinned(plain.path)
        if self.plain_exercise.refuses(found):
            return True
        if plain.found_at(self.alpha) is None:
            return False
        found.verdict = "reference-mismatch"
        look = looks_like(plain, self.reference, self.prompts, self.settings.sampling)
        found.reasons.append(
            f"{self.reference.name}: its own tokens are not from the laws that it reports, after "
            f"{plain.found_at(self.alpha)} tokens; {resemblance(look)}; nothing can be said about "
            f"{self.engine.name}"
        )
        found.looks_like, found.tokens_off = look, plain.tokens_off()
        return True

    def _engine(self, stream: Stream) -> str:
        """Test the engine's tokens; why it ended."""
        found = self.found
        threshold = -math.log(self.alpha)
        try:
            for piece in self._phases():
                self._add(stream, piece)
                self.exercise.add(piece)
                found.tokens, found.requests = stream.test.draws, found.requests + 1
                found.log10_evidence = _log10(stream.strongest)
                self.progress("engine", found.tokens, stream.log_evidence / math.log(10))
                if stream.strongest >= threshold:
                    return "rejected"
                if found.requests >= self.most_requests:
                    return "requests"
        except OutOfTime:
            return "time"
        except EngineError as error:
            found.reasons.append(str(error))
            return "error"
        return "tokens"

    def _phases(self) -> Iterator[Piece]:
        """Completions of all prompts; then many short ones of one text, where any fault adds up."""
        chosen = self.settings
        yield from self._some(
            self._gatherer("engine", self.engine, self.draft), chosen.tokens * (1 - FOCUSED)
        )
        if self.focus is None or chosen.length < FOCUS:
            return
        apart = replace(chosen, length=FOCUS, seed=min(chosen.seed + APART, 2**31 - 1 - chosen.tokens))
        gatherer = Gatherer(
            "engine, one text", self.engine, self.reference, apart, [self.focus], draft=self.draft,
            journal=self.journal,
        )  # fmt: skip
        gatherer.until = self.until
        which = len(self.prompts)
        self.prompts = (*self.prompts, self.focus)
        for piece in self._some(gatherer, chosen.tokens * FOCUSED):
            yield replace(piece, request=piece.request + APART, prompt=which)

    def _judge(self, stream: Stream, plain: Stream, control: Gatherer, pieces: int, stopped: str) -> str:
        found, chosen = self.found, self.settings
        found.places = stream.places()
        found.path["engine"] = thinned(stream.path)
        if stream.test.cut_draws:  # else there is nothing that was seen
            found.cuts = [cut._asdict() for cut in stream.test.cuts(0.5 * self.alpha, chosen.power)]
        found.drafts = self.exercise.drafts()
        at = stream.found_at(self.alpha)
        if at is not None:
            self._explain(stream)
            if self._control_again(plain, control, pieces, max(AGAIN * at, min(AMPLE * at, chosen.tokens))):
                return "control"
            self._rejected(stream, at)
            return "rejected"
        found.detectable_tv = stream.detectable(self.alpha, chosen.power) if stream.test.draws else None
        if stopped == "error":
            return stopped
        if not stream.test.draws:
            raise EngineError(
                f"{self.engine.name}: nothing in {chosen.seconds:g} s, of which the control took most; give "
                "more seconds"
            )
        found.verdict = "not-rejected"
        self.exercise.judge(found, lambda: stream.enough(self.alpha, chosen.power))
        return stopped

    def _explain(self, stream: Stream) -> None:
        """More tokens of an engine that few have rejected: they decide nothing, and say what it is like."""
        gatherer = self._gatherer("engine", self.engine, self.draft)
        gatherer.until = self.until + EXTRA * self.settings.seconds
        try:
            for piece in self._some(gatherer, EXPLAINED - stream.test.draws, self.found.requests):
                self._add(stream, piece)
        except (OutOfTime, EngineError):
            return

    def _control_again(self, plain: Stream, control: Gatherer, pieces: int, tokens: int) -> bool:
        """The reference on more tokens than rejected the engine; whether it is rejected as well."""
        control.until = self.until + EXTRA * self.settings.seconds
        try:
            # Where some laws are not known, not every token is a draw.
            for piece in self._some(control, LONGER * (tokens - plain.test.draws), pieces):
                self._add(plain, piece)
                self.progress("control again", plain.test.draws, plain.log_evidence / math.log(10))
                if plain.test.draws >= tokens:
                    break
        except (OutOfTime, EngineError) as error:
            self.found.notes.append(
                f"the control has only {plain.test.draws} tokens, where {tokens} were wanted: "
                f"{str(error) or 'out of time'}"
            )
        return self._control(plain)

    def _rejected(self, stream: Stream, at: int) -> None:
        found, chosen = self.found, self.settings
        found.verdict, found.found_after = "rejected", at
        found.tokens_off = stream.tokens_off()
        found.looks_like = looks_like(stream, self.reference, self.prompts, chosen.sampling)
        found.reasons.append(
            f"{self.engine.name}: its tokens are not from the law of {self.reference.name}, after {at} "
            f"tokens; {resemblance(found.looks_like)}"
        )
        try:
            found.smallest = smallest_request(
                stream, self.engine, self.reference, self.prompts, chosen, self.until + EXTRA * chosen.seconds
            )  # fmt: skip
        except EngineError as error:
            found.notes.append(f"no smallest request was found: {error}")

    # Mode "samples".

    def _samples(self) -> str:
        """First tokens of both against each other, and of the reference against itself."""
        sample = SampleAudit(
            self.engine, self.reference, self.settings, self.prompts, journal=self.journal, until=self.until
        )
        try:
            stopped = sample.run(self.exercise.add, self.plain_exercise.add, self.progress)
        finally:
            swapped = self.plain_exercise.refuses(self.found)
            sample.into(self.found, judged=not swapped)
        if swapped:
            return "control"
        if not sample.test.pairs:
            raise EngineError(f"{self.engine.name}: gave nothing in {self.settings.seconds:g} s")
        self.found.drafts = self.exercise.drafts()
        if self.found.verdict == "not-rejected":
            self.exercise.judge(self.found, sample.enough)
        return stopped


def _log10(value: float) -> float | str:
    return value / math.log(10) if math.isfinite(value) else "inf"
