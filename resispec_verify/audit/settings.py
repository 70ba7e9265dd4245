"""How an engine is audited, and what was found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from resispec_verify.audit.interface import Prompt, Sampling
from resispec_verify.audit.prompts import PROMPTS
from resispec_verify.errors import InputError
from resispec_verify.inputs import real, whole
from resispec_verify.schema import envelope

__all__ = ["MODES", "VERDICTS", "AuditResult", "AuditSettings", "audit_report", "thinned"]

MODES = ("auto", "laws", "samples")
VERDICTS = ("rejected", "not-rejected", "reference-mismatch", "not-exercised", "error")


@dataclass(frozen=True)
class AuditSettings:
    """How an engine is audited.

    Attributes
    ----------
    sampling : Sampling
        Stated in every request to both.
    mode : {"auto", "laws", "samples"}
        "laws": tokens of the engine against the law that the reference says it has after the same text.
        "samples": first tokens of both. "auto": laws where the reference gives them.
    prompts : tuple of Prompt
        Texts or token ids; requests go round.
    tokens : int
        Of the engine, at most; in mode "samples" they are of the first tokens alone.
    requests : int or None
        Completions of the engine, at most.
    length : int
        Tokens of a completion, in mode "laws".
    first : int
        Tokens of a completion, in mode "samples": their joint law is compared.
    top : int
        Most probable tokens of a law that are asked for; an engine may give fewer.
    concurrency : int
        Requests at a time.
    seconds : float
        The run ends when it has taken this long.
    alpha : float
        Probability of a wrong ``rejected`` or ``reference-mismatch``, in the whole run.
    power : float
        With which `detectable_tv` would have been found.
    least_drafts : int
        Fewer accepted, or fewer rejected, draft tokens are ``not-exercised``, where they are reported.
    band : float or None
        Total variation up to which the reference's laws are taken to be known. Default: measured.
    seed : int
        Request i has seed ``seed + i``.
    """

    sampling: Sampling = field(default_factory=Sampling)
    mode: str = "auto"
    prompts: tuple[Prompt, ...] = PROMPTS
    tokens: int = 10_000
    requests: int | None = None
    length: int = 64
    first: int = 4
    top: int = 64
    concurrency: int = 4
    seconds: float = 600.0
    alpha: float = 1e-6
    power: float = 0.99
    least_drafts: int = 64
    band: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InputError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        for name in ("tokens", "length", "first", "top", "concurrency"):
            whole(name, getattr(self, name), 1)
        if self.requests is not None:
            whole("requests", self.requests, 1)
        whole("least_drafts", self.least_drafts)
        whole("seed", self.seed, 0, 2**31 - 1 - self.tokens)  # some engines take 32 bits
        for name in ("alpha", "power"):
            if not 0 < real(name, getattr(self, name)) < 1:
                raise InputError(f"{name} must be between 0 and 1, got {getattr(self, name):g}")
        if not real("seconds", self.seconds) > 0:
            raise InputError(f"seconds must be positive, got {self.seconds:g}")
        if self.band is not None and not 0 <= real("band", self.band) < 1:
            raise InputError(f"band must be a total variation in [0, 1), got {self.band:g}")
        if not self.prompts:
            raise InputError("there are no prompts; give at least one")
        self._check_sampling()

    def _check_sampling(self) -> None:
        s = self.sampling
        if not real("temperature", s.temperature) > 0:
            raise InputError(
                f"temperature must be above 0, got {s.temperature:g}: at 0 there is no law to test"
            )
        whole("top_k", s.top_k)
        if not 0 < real("top_p", s.top_p) <= 1:
            raise InputError(f"top_p must be in (0, 1], got {s.top_p:g}")
        if not 0 <= real("min_p", s.min_p) < 1:
            raise InputError(f"min_p must be in [0, 1), got {s.min_p:g}")

    def facts(self) -> dict[str, Any]:
        """All but the prompts, plain values."""
        found = asdict(self)
        found["prompts"] = len(self.prompts)
        return found


@dataclass
class AuditResult:
    """What an audit found. "not-rejected" is no proof: `detectable_tv` says what would have been found.

    Attributes
    ----------
    verdict : {"rejected", "not-rejected", "reference-mismatch", "not-exercised", "error"}
    reasons : list of str
        Why, a sentence each; what looks odd besides is in ``notes``.
    mode : {"laws", "samples"}
    prompts : int
        How many there are.
    tokens, requests : int
        Of the engine, that were tested.
    log10_evidence : float
        Largest so far; the engine is rejected at ``-log10(alpha_per_test)``.
    found_after : int or None
        Tokens after which it was rejected.
    detectable_tv : float or None
        Where not rejected.
    control : dict
        The reference through the same test: tokens, log10_evidence, detectable_tv.
    band : dict
        What the reference's law varies by, and how that was measured.
    drafts : dict
        ``drafted``, ``accepted``, ``source``; None where nothing is reported.
    looks_like : str or None
        What a rejection looks like, in a sentence.
    tokens_off : list of dict
        Tokens that came more or less often than they should.
    prefixes_off : list of dict
        In mode "samples": first tokens whose frequencies differ most.
    cuts : list of dict
        What lay below each cut of the laws, and what would have been found there.
    places : list of dict
        Evidence by place in a round, where rounds can be seen.
    smallest : dict or None
        The smallest request that shows a rejection.
    path : list of list
        ``[tokens, log10 of the evidence]`` of the engine and of the reference, for the picture.
    stopped : {"rejected", "tokens", "requests", "time", "error", "control"}
    """

    verdict: str
    engine: str
    reference: str
    mode: str
    alpha: float
    alpha_per_test: float
    power: float
    seed: int
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    prompts: int = 0
    tokens: int = 0
    requests: int = 0
    log10_evidence: float | str = 0.0
    found_after: int | None = None
    detectable_tv: float | None = None
    control: dict[str, Any] = field(default_factory=dict)
    band: dict[str, Any] = field(default_factory=dict)
    drafts: dict[str, Any] = field(default_factory=dict)
    looks_like: str | None = None
    tokens_off: list[dict[str, Any]] = field(default_factory=list)
    prefixes_off: list[dict[str, Any]] = field(default_factory=list)
    cuts: list[dict[str, Any]] = field(default_factory=list)
    places: list[dict[str, Any]] = field(default_factory=list)
    smallest: dict[str, Any] | None = None
    path: dict[str, list[list[float]]] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    stopped: str = "tokens"
    seconds: float = 0.0

    def result(self) -> dict[str, Any]:
        """What ``--json`` writes."""
        return asdict(self)


def audit_report(result: AuditResult) -> dict[str, Any]:
    """The whole report of ``audit``, JSON-ready."""
    return envelope("audit", [result.result()])


def thinned(logs: Sequence[float], most: int = 400) -> list[list[float]]:
    """``[tokens or pairs, log10 of the evidence]`` after each, or so many of them, for a picture."""
    step = max(1, -(-len(logs) // most))
    return [
        [i, min(float(logs[i - 1]) / math.log(10), 1e3)]
        for i in range(1, len(logs) + 1)
        if i % step == 0 or i == len(logs)
    ]
