"""Where a reference gives no laws: the first tokens of both, and of the reference against itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from resispec_verify.audit.gather import Gatherer, OutOfTime, Piece
from resispec_verify.audit.interface import Engine, Prompt, Token
from resispec_verify.audit.prompts import PROMPTS
from resispec_verify.audit.settings import AuditResult, AuditSettings, thinned
from resispec_verify.evidence.two_samples import TwoSampleTest
from resispec_verify.runs.journal import Journal

__all__ = ["SampleAudit"]

# Each prompt has a law of its own to learn, so that few are better.
FEW = 2
# The reference's seeds begin so far after the engine's: with equal seeds the two need not be independent.
APART = 500_000
# Pairs of each prompt from which one completion for all is called that.
FEW_PAIRS = 8
# Evidence of repeated seeds, in nats, at which a rejection is called that.
NAMED = math.log(1000.0)
# Of the run's time, what the control may take beyond its end.
EXTRA = 0.5


class SampleAudit:
    """Completions of both in pairs; each second one of the reference against the one before.

    Parameters
    ----------
    until : float
        `time.monotonic` at which it ends.
    """

    def __init__(
        self,
        engine: Engine,
        reference: Engine,
        settings: AuditSettings,
        prompts: Sequence[Prompt],
        *,
        journal: Journal | None,
        until: float,
    ) -> None:
        own = settings.prompts == PROMPTS
        self.prompts = list(prompts[:FEW] if own else prompts)
        self.engine, self.reference, self.settings, self.until = engine, reference, settings, until
        self.alpha = settings.alpha / 2  # the control has the other half
        self.test = TwoSampleTest(settings.first, len(self.prompts))
        self.control = TwoSampleTest(settings.first, len(self.prompts))
        apart = replace(settings, seed=min(settings.seed + APART, 2**31 - 1 - settings.tokens))
        self.on = Gatherer("engine", engine, None, settings, self.prompts, journal=journal)
        self.off = Gatherer("reference", reference, None, apart, self.prompts, journal=journal)
        self.on.until = self.off.until = until
        self._alone: dict[int, Piece] = {}  # by prompt, of the reference and without a partner
        self.off_requests = self.on_tokens = 0
        self.pairs: list[tuple[int, tuple[Token, ...], tuple[Token, ...]]] = []

    @property
    def threshold(self) -> float:
        """Logarithm of the evidence that rejects; the law and the seeds of a stream share alpha."""
        return -math.log(0.5 * self.alpha)

    def run(
        self,
        count: Callable[[Piece], None],
        count_plain: Callable[[Piece], None],
        progress: Callable[[str, int, float], None],
    ) -> str:
        """Draw; why it ended.

        Parameters
        ----------
        count, count_plain : callable
            Called with each completion of the engine, and of the reference.

        Raises
        ------
        EngineError
            An engine failed; what was gathered is in the tests.
        """
        pairs = max(1, self.settings.tokens // self.settings.first)
        pairs = pairs if self.settings.requests is None else min(pairs, self.settings.requests)
        try:
            with ExitStack() as stack:
                on, off = (
                    stack.enter_context(closing(one.pieces(self.settings.first)))
                    for one in (self.on, self.off)
                )
                for one, other in zip(on, off, strict=False):
                    count(one)
                    count_plain(other)
                    self._pair(one, other)
                    if other.drafted:  # it is none
                        return "control"
                    progress("pairs", self.test.pairs, self.test.log_evidence / math.log(10))
                    if self.rejected or self.mismatch or self.test.pairs >= pairs:
                        break
            if self.rejected and not self.mismatch:
                self._control_again(progress)
        except OutOfTime:
            return "time"
        return "control" if self.mismatch else "rejected" if self.rejected else "tokens"

    def _pair(self, one: Piece, other: Piece) -> None:
        self.test.update(one.prompt, tuple(one.tokens), tuple(other.tokens))
        self.pairs.append((one.prompt, tuple(one.tokens), tuple(other.tokens)))
        self.on_tokens += len(one.tokens)
        self._reference(other)

    def _reference(self, piece: Piece) -> None:
        self.off_requests += 1
        before = self._alone.pop(piece.prompt, None)
        if before is None:
            self._alone[piece.prompt] = piece
        else:
            self.control.update(piece.prompt, tuple(before.tokens), tuple(piece.tokens))

    def _control_again(self, progress: Callable[[str, int, float], None]) -> None:
        """As many pairs of the reference with itself as rejected the engine."""
        self.off.until = self.until + EXTRA * self.settings.seconds
        with closing(self.off.pieces(self.settings.first, self.off_requests)) as pieces:
            for piece in pieces:
                if self.mismatch or self.control.pairs >= self.test.pairs:
                    return
                self._reference(piece)
                progress("control again", self.control.pairs, self.control.log_evidence / math.log(10))

    def enough(self) -> int | None:
        """Tokens of which something is sure to be found; None where that is not known yet."""
        pairs = self.test.enough(0.5 * self.alpha, self.settings.power)
        return None if pairs is None else pairs * self.settings.first

    @property
    def rejected(self) -> bool:
        """Whether the engine's completions are not the reference's, or not independent."""
        return max(self.test.log_evidence, self.test.repeated["on"].log_evidence) >= self.threshold

    @property
    def mismatch(self) -> bool:
        """Whether the reference's are unlike themselves, or not independent."""
        return max(self.control.log_evidence, self.test.repeated["off"].log_evidence) >= self.threshold

    def into(self, found: AuditResult, *, judged: bool) -> None:
        """Write what was found; not a verdict unless ``judged``."""
        test, level = self.test, 0.5 * self.alpha
        found.tokens, found.requests = self.on_tokens, test.pairs
        repeats = test.repeated["on"]
        found.log10_evidence = max(test.log_evidence, repeats.log_evidence) / math.log(10)
        best = self.control.detectable(level, found.power)
        found.control = {
            "pairs": self.control.pairs,
            "log10_evidence": self.control.log_evidence / math.log(10),
            "detectable_tv": best.tv,
        }
        found.path = {
            "engine": thinned(test.trajectory.tolist()),
            "reference": thinned(self.control.trajectory.tolist()),
        }
        if not (test.pairs and judged):
            return
        if self.mismatch:
            self._mismatch(found, level)
        elif self.rejected:
            self._rejected(found, level)
        else:
            found.verdict = "not-rejected"
            detectable = test.detectable(level, found.power)
            found.detectable_tv = detectable.tv
            found.notes.append(
                f"the total variation is that between {detectable.cells} cells of the first "
                f"{detectable.length} tokens, the mean over {len(self.prompts)} prompts"
            )

    def _mismatch(self, found: AuditResult, level: float) -> None:
        found.verdict = "reference-mismatch"
        repeated = self.test.repeated["off"].found_at(level) is not None
        what = "repeat each other, though every request has a seed of its own" if repeated else "drift"
        found.looks_like = "repeated seeds" if repeated else None
        found.reasons.append(
            f"{self.reference.name}: its own completions {what}; nothing can be said about {self.engine.name}"
        )

    def _rejected(self, found: AuditResult, level: float) -> None:
        found.verdict = "rejected"
        repeats = self.test.repeated["on"]
        found.prefixes_off = self._prefixes_off()
        at = repeats.found_at(level)
        if self._one_only():
            found.looks_like = (
                "one completion only: all of the engine's of a prompt are equal, though every request has a "
                "seed of its own: one seed for all, or the temperature is ignored"
            )
        elif at is not None or repeats.log_evidence >= NAMED:
            found.looks_like = (
                f"repeated seeds: {repeats.equal} of {repeats.neighbours} completions equal the one before "
                "of the same prompt, though every request has a seed of its own"
            )
        else:
            found.looks_like = "first tokens with other frequencies than the reference's"
        at = self.test.found_at(level) if at is None else at
        found.found_after = None if at is None else at * self.settings.first
        found.reasons.append(
            f"{self.engine.name}: its completions are not those of {self.reference.name}, after {at} pairs; "
            f"they look like this: {found.looks_like}"
        )
        if self.control.pairs < self.test.pairs:
            found.notes.append(
                f"the control has only {self.control.pairs} pairs, where {self.test.pairs} were wanted"
            )
        which = found.prefixes_off[0]["prompt"] if found.prefixes_off else 0
        found.smallest = self._smallest(which, at or self.test.pairs)

    def _prefixes_off(self, most: int = 5) -> list[dict[str, Any]]:
        """First tokens whose counts differ most, over all pairs of their prompt."""
        rows: dict[tuple[int, tuple[Token, ...]], dict[str, Any]] = {}
        for prompt, pairs in Counter(prompt for prompt, _, _ in self.pairs).items():
            mine = [(one, other) for which, one, other in self.pairs if which == prompt]
            for length in range(min(2, self.settings.first), self.settings.first + 1):
                seen, due = (Counter(tuple(pair[i][:length]) for pair in mine) for i in (0, 1))
                for tokens in seen | due:
                    # One that ended before this length was counted at its own, with all that go on from it.
                    rows.setdefault(
                        (prompt, tokens),
                        {"prompt": prompt, "tokens": list(tokens), "seen": seen[tokens] / pairs,
                         "due": due[tokens] / pairs, "pairs": pairs},
                    )  # fmt: skip
        return sorted(rows.values(), key=lambda row: -abs(row["seen"] - row["due"]))[:most]

    def _one_only(self) -> bool:
        """Whether the engine gave one completion for each prompt, and the reference more."""
        on = {(prompt, one) for prompt, one, _ in self.pairs}
        off = {(prompt, other) for prompt, _, other in self.pairs}
        return len(on) <= len(self.prompts) < len(off) and len(self.pairs) >= FEW_PAIRS * len(self.prompts)

    def _smallest(self, which: int, requests: int) -> dict[str, Any]:
        prompt, first = self.prompts[which], self.settings.first
        return {
            "prompt": prompt,
            "tokens": first,
            "requests": requests,
            "seeds": [self.settings.seed, self.settings.seed + requests - 1],
            "request": self.engine.request(prompt, first, self.settings.seed, self.settings.sampling),
        }
