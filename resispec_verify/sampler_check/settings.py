"""What a check is asked to do, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from resispec_verify.errors import InputError, did_you_mean
from resispec_verify.inputs import real, shown, whole
from resispec_verify.rules.stopping import AfterVerification, StopPolicy
from resispec_verify.sampler_check.sources.handing import ARRAYS, DTYPES, GIVE
from resispec_verify.sampler_check.sources.styles import STYLES
from resispec_verify.schema import envelope

__all__ = ["DRAWS", "FAIL_ENDS", "STYLES", "CheckResult", "CheckSettings", "check_report"]

#: Which faults at an end of the uniforms fail a run.
FAIL_ENDS = ("all", "float32", "none")
PROPOSALS = ("iid", "without-replacement", "top", "beams")
# Draws a pair gets by default; its share of them is its own (`Input.share`).
DRAWS = 1 << 20
# Reserved tokens, several times a vocabulary in use: each costs memory in every law.
MOST_RESERVED = 1 << 20
SMALL_BATCHES = (1, 2, 4, 8, 64)


@dataclass(frozen=True)
class CheckSettings:
    """How a sampler is checked.

    Attributes
    ----------
    style : {"tokens", "candidates", "uniforms", "block", "tree", "text"}
        What it is called with; see `check_sampler`.
    candidates : int
        Candidates a row that are handed in, for "candidates" and "uniforms".
    proposal : {"iid", "without-replacement", "top", "beams"}
        How they are drawn; the last for "tree" only.
    rule : Rule or None
        Whose certified acceptance the reported acceptance is compared with.
    alpha : float
        Probability that a lossless sampler is rejected, in the whole run.
    power : float
        With which `detectable_tv` would have been found.
    draws : int
        Draws a pair; a call more or less.
    seconds : float
        The run ends when it has taken this long.
    call_seconds : float
        A call that takes longer is an error.
    seed : int
    search : bool
        Search for the worst pair for this sampler, after the fixed ones.
    boundary : bool
        Try uniforms at their ends.
    fail_ends : {"all", "float32", "none"}
        Which faults at an end reject the sampler: every one, those that come once in ``2**25`` draws or
        oftener, as at the ends of float32, or none. `CheckResult.ends` has them all.
    batches : tuple of int
        Small numbers of rows a call.
    ragged : bool
        For "block": also paths of different lengths, padded with -1.
    stop : StopPolicy, optional
        For "block": also paths that such a policy cuts before they are handed over, padded with -1; it sees
        the drafts and the whole path. The first token is always kept.
    flat : bool
        For "block": rows one after the other, with cumulative lengths, instead of padding.
    uniforms : bool
        For "block" and "tree": uniforms in place of ``rng``, as "uniforms" has them.
    give : {"probabilities", "logits", "log-probabilities"}
        What laws are handed over as.
    dtype : {"float64", "float32", "float16"}
        Of what is handed over; the law of the rounded numbers is the target.
    offset : int
        Tokens 0 to ``offset - 1`` are reserved: their probability is 0, and other tokens come after them. At
        most ``2**20``.
    arrays : {"numpy", "torch", "torch:cuda", "cupy"}
        Whose arrays are handed over, and on which device they are.
    """

    style: str = "tokens"
    candidates: int = 2
    proposal: str = "iid"
    rule: Any = None
    alpha: float = 1e-9
    power: float = 0.99
    draws: int = DRAWS
    seconds: float = 600.0
    call_seconds: float = 60.0
    seed: int = 0
    search: bool = True
    boundary: bool = True
    fail_ends: str = "all"
    batches: tuple[int, ...] = SMALL_BATCHES
    ragged: bool = False
    stop: StopPolicy | None = None
    flat: bool = False
    uniforms: bool = False
    give: str = "probabilities"
    dtype: str = "float64"
    offset: int = 0
    arrays: str = "numpy"

    def __post_init__(self) -> None:
        among = {
            "style": STYLES,
            "proposal": PROPOSALS,
            "give": GIVE,
            "dtype": DTYPES,
            "arrays": ARRAYS,
            "fail_ends": FAIL_ENDS,
        }
        for name, there in among.items():
            if (given := getattr(self, name)) not in there:
                near = did_you_mean(str(given), there)
                raise InputError(f"{name} must be one of {', '.join(there)}, got {given!r}{near}")
        if self.stop is not None and (
            not isinstance(self.stop, StopPolicy) or isinstance(self.stop, AfterVerification)
        ):
            raise InputError(
                "stop must be a policy that cuts before verification, such as TopProbability(0.5); got "
                f"{shown(self.stop)}"
            )
        self._check_style()
        if self.rule is not None:
            self._check_rule()
        whole("offset", self.offset, 0, MOST_RESERVED)
        for name in ("draws", "candidates", "seed"):
            whole(name, getattr(self, name), 0 if name == "seed" else 1)
        for name in ("alpha", "power", "seconds", "call_seconds"):
            real(name, getattr(self, name))
        if not 0 < self.alpha < 1:
            raise InputError(f"alpha must be between 0 and 1, got {self.alpha:g}")
        if not 0 < self.power < 1:
            raise InputError(f"power must be between 0 and 1, got {self.power:g}")
        for name in ("seconds", "call_seconds"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive, got {getattr(self, name):g}")
        if any(rows < 1 for rows in self.batches):
            raise InputError(f"batches must be at least 1, got {self.batches}")

    def _check_style(self) -> None:
        """Flags and proposals are for some styles only."""
        for flag in ("ragged", "stop", "flat", "uniforms"):
            if getattr(self, flag) not in (False, None) and flag not in STYLES[self.style].options:
                fits = [name for name, style in STYLES.items() if flag in style.options]
                raise InputError(f"{flag} is for the style {' and '.join(fits)}, not for {self.style}")
        fits = [name for name, style in STYLES.items() if self.proposal in style.proposals]
        if self.proposal == "beams" and self.style not in fits:
            raise InputError(
                f"the proposal beams is for the style {' and '.join(fits)}, not for {self.style}"
            )

    def _check_rule(self) -> None:
        """Its acceptance is that of candidates which are drawn as it wants them."""
        if not STYLES[self.style].rule:
            fits = ", ".join(name for name, style in STYLES.items() if style.rule)
            raise InputError(f"a rule's acceptance is compared in the styles {fits}, not in {self.style}")
        if self.style == "tokens":
            return
        name, wanted = self.rule.name, {"fixed": "top"}.get(self.rule.proposal.name, self.rule.proposal.name)
        if wanted != self.proposal:
            remedy = f"give the proposal {wanted}" if wanted in PROPOSALS else "use the style tokens"
            raise InputError(f"{name} verifies candidates drawn {wanted}, not {self.proposal}; {remedy}")
        most = self.rule.verifiable(self.candidates)
        if most < self.candidates:
            raise InputError(f"{name} verifies at most {most} candidates, not {self.candidates}")


@dataclass
class CheckResult:
    """What a run found.

    Attributes
    ----------
    verdict : {"rejected", "not-rejected", "error"}
    reasons : list of str
        Why it was rejected or failed; and oddities, such as inputs that were written into.
    draws : int
        Rows that were drawn, in all.
    alpha, alpha_per_test, power : float
    tests : int
        Among how many tests alpha is split evenly, those of pairs that the search may propose included.
    detectable_tv : float or None
        Where not rejected, or only for an end of the uniforms: on every input that was reached, a total
        variation between the tested cells of this size would have been found with probability `power`. None
        otherwise.
    not_reached : list of str
        Inputs, and the search, for which no time was left: nothing is said about them.
    witness : dict or None
        Where rejected: the input, what was seen, and how to see it again.
    inputs : list of dict
        One for each stream of draws.
    ends : dict or None
        What happens at the ends of the uniforms: ``verdict`` ("fault", "no-fault", "not-tested"), ``reason``,
        ``faults``, ...; None where they were left out. Where the run ended before them: "not-tested".
    stopped : {"rejected", "error", "draws", "time"}
        Why it ended.
    """

    verdict: str
    reasons: list[str]
    draws: int
    alpha: float
    alpha_per_test: float
    tests: int
    power: float
    seed: int
    detectable_tv: float | None = None
    witness: dict[str, Any] | None = None
    inputs: list[dict[str, Any]] = field(default_factory=list)
    not_reached: list[str] = field(default_factory=list)
    ends: dict[str, Any] | None = None
    stopped: str = "draws"
    seconds: float = 0.0

    @property
    def reason(self) -> str | None:
        """All reasons on one line."""
        return "; ".join(self.reasons) or None

    def result(self) -> dict[str, Any]:
        """What ``--json`` writes."""
        names = (
            "verdict", "reason", "draws", "alpha", "alpha_per_test", "tests", "power", "detectable_tv",
            "witness", "stopped", "seed", "seconds", "not_reached", "inputs", "ends",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


def check_report(sampler: str, style: str, result: CheckResult) -> dict[str, Any]:
    """The whole report of ``check`` on what is called ``sampler``, JSON-ready."""
    return envelope("check", [{"sampler": sampler, "style": style, **result.result()}])
