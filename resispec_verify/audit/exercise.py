"""Whether speculation was exercised: draft tokens that an engine verified and accepted, where that shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from resispec_verify.audit.gather import Piece
from resispec_verify.audit.interface import Engine, EngineError
from resispec_verify.audit.settings import AuditResult, AuditSettings
from resispec_verify.errors import InputError
from resispec_verify.runs.journal import Journal

__all__ = ["PLAIN", "Exercise", "oddities_of"]

# Of a line of a journal: counters of the engine, and of the reference.
COUNTERS, PLAIN = "counters", "counters of the reference"
# Tokens of one completion whose own log-probabilities are looked at.
REPORTED = 24


class Exercise:
    """Counts the draft tokens of an engine, from now on.

    Parameters
    ----------
    engine : Engine
    least : int
        Accepted, and rejected, draft tokens that are wanted; 0 asks for nothing.
    journal : Journal, optional
        Of a run that goes on.
    who : str
        Of the journal's line.
    """

    def __init__(
        self, engine: Engine, least: int, journal: Journal | None = None, who: str = COUNTERS
    ) -> None:
        self.engine, self.least = engine, least
        self._before = engine.counters()
        kept = [] if journal is None else [e for e in journal.entries if e.get("who") == who]
        if kept:  # an earlier part of this run began to count
            before = kept[0].get("before")
            if not isinstance(before, list) or [type(n) for n in before] != [int, int]:
                raise InputError("the counters in the journal are damaged; name another file")
            self._before = before[0], before[1]
        elif journal is not None and self._before is not None:
            journal.append({"who": who, "before": list(self._before)})
        self._drafted = self._accepted = self._reports = 0
        self._later = 0  # tokens that are not the first after a prompt, which is drawn without a draft
        self._rounds = self._long = 0  # completions whose rounds were seen, rounds of several tokens

    def add(self, piece: Piece) -> None:
        """Count what a completion reports."""
        self._later += len(piece.tokens) - 1
        if piece.drafted is not None:
            self._drafted += piece.drafted
            self._accepted += piece.accepted or 0
            self._reports += 1
        if piece.starts is not None:
            ends = [*piece.starts[1:], len(piece.tokens)]
            self._rounds += 1
            self._long += sum(end - start > 1 for start, end in zip(piece.starts, ends, strict=True))

    def drafts(self) -> dict[str, Any]:
        """``drafted``, ``accepted`` and ``source``; None of each where nothing is reported."""
        if self._reports:
            return {"drafted": self._drafted, "accepted": self._accepted, "source": "its completions"}
        try:
            after = self.engine.counters()
        except EngineError:  # it died, and the error that says so is raised by its completions
            after = None
        if self._before is not None and after is not None:
            drafted, accepted = (now - was for now, was in zip(after, self._before, strict=True))
            if min(drafted, accepted) >= 0:  # else the server began anew
                return {
                    "drafted": drafted,
                    "accepted": accepted,
                    "source": "its counters, over the whole run",
                }
        return {"drafted": None, "accepted": None, "source": None}

    def missing(self, drafts: dict[str, Any]) -> str | None:
        """Why what speculation does was hardly tested; None where it was, or where that is not known."""
        name = self.engine.name
        if self.least == 0:
            return None
        if not self._later:
            return (
                f"{name}: no completion has a second token, and the first after a prompt is drawn without "
                "speculation; ask for longer ones (--length, --first)"
            )
        if drafts["drafted"] == 0:
            return (
                f"{name}: not one draft token was verified, by {drafts['source']}: is the draft loaded? Are "
                "the addresses swapped? (--least-drafts 0 asks for none)"
            )
        if drafts["drafted"] is not None:
            accepted, rejected = drafts["accepted"], drafts["drafted"] - drafts["accepted"]
            if min(accepted, rejected) >= self.least:
                return None
            what = "accepted" if accepted <= rejected else "rejected"
            why = (
                "more --tokens have more of them" if max(accepted, rejected) < self.least
                else "the draft does not fit, or nothing is accepted" if what == "accepted"
                else "the draft is the target itself, or all is accepted"
            )  # fmt: skip
            return (
                f"{name}: {accepted} of {drafts['drafted']} draft tokens were accepted, {rejected} rejected; "
                f"what happens to {what} ones was hardly tested (--least-drafts {self.least}): {why}"
            )
        if self._rounds and not self._long:
            return (
                f"{name}: every token came alone, so that no accepted draft token can be seen: is the draft "
                "loaded? Are the addresses swapped? (--least-drafts 0, where it hands on tokens one by one)"
            )
        return None

    def refuses(self, found: AuditResult) -> bool:
        """Whether this is a reference that speculates, so that it is none; says so."""
        drafted = self.drafts()["drafted"]
        if not drafted:
            return False
        found.verdict = "reference-mismatch"
        found.reasons.append(
            f"{self.engine.name}: the reference verified {drafted} draft tokens itself: are the addresses "
            "swapped? It must be the engine without speculation"
        )
        return True

    def judge(self, found: AuditResult, enough: Callable[[], int | None]) -> None:
        """Of an engine that is not rejected: whether its speculation was tested at all.

        Parameters
        ----------
        enough : callable
            How many tokens are enough to be sure of finding something, where that is known.
        """
        reasons = [self.missing(found.drafts)]
        if found.detectable_tv is not None and found.detectable_tv >= 1:
            many = enough()
            more = "give more --tokens" if many is None else f"about {many} are enough (--tokens, --seconds)"
            reasons.append(f"{self.engine.name}: too few tokens to be sure of finding anything; {more}")
        for reason in filter(None, reasons):
            found.verdict = "not-exercised"
            found.reasons.append(reason)
        if (note := self.unknown(found.drafts)) is not None:
            found.notes.append(note)

    def unknown(self, drafts: dict[str, Any]) -> str | None:
        """That it is not known whether speculation was on, where that is so."""
        if drafts["drafted"] is not None or self._rounds:
            return None
        return (
            f"{self.engine.name} does not report how many draft tokens were accepted and rejected: whether "
            "speculation was on is not known"
        )


def oddities_of(engine: Engine, settings: AuditSettings) -> list[str]:
    """What is odd of the log-probabilities that an engine reports: looked at once, and never used."""
    prompt = settings.prompts[0]
    if engine.tokens_are == "ids" and isinstance(prompt, str):
        prompt = engine.encode(prompt)
    try:
        found = engine.complete(prompt, REPORTED, settings.seed, settings.sampling, own_laws=1)
    except EngineError as error:
        return [f"asked for log-probabilities, {error}"]
    return [f"{engine.name}: {odd}" for odd in found.oddities]
