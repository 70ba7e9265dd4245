"""A fault at an end of the uniforms: how seldom it is, and how it is told."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from resispec_verify.sampler_check.generators import DIGITS
from resispec_verify.sampler_check.outcome import interval_of

__all__ = ["EndFault"]

# A float64 from 1 - 2**-25 on rounds to 1 in float32: the least probability that counts as float32's.
_FLOAT32 = -25


@dataclass
class EndFault:
    """A fault at an end of the uniforms.

    Attributes
    ----------
    end : {"lowest", "highest", "both"}
        "both": it takes uniforms at each.
    dtype : str
        Of the uniforms; several, where it takes some of each.
    distance : int or None
        The fault is there within ``2**-distance`` of the end, and not at twice that; None: at the end alone.
    uniforms : int
        How many must be there together; the fault goes when any of them is an ordinary one.
    log2_probability : int
        Of these uniforms being there. With a distance a lower bound, less than a factor 2 a uniform too low.
    input : str
    rows : int
        Of the call that is shown.
    calls, failed : int
        Calls in which just these uniforms were there and all others ordinary, and how many had the fault.
    draws, impossible : int
        Rows of those calls, and rows with the fault.
    token : int or None
        What was emitted although its target probability is 0; None: the sampler failed.
    what : str
        The fault, in words.
    numbers : list of (method, dtype, values)
        What the sampler drew in the call that is shown, from the first on.
    arguments : list or None
        What it was called with besides the generator, where that is small.
    laws : dict
        ``target`` and ``draft``, where the input has them and they are small.
    """

    end: str
    dtype: str
    distance: int | None
    uniforms: int
    log2_probability: int
    input: str
    rows: int
    calls: int
    failed: int
    draws: int
    impossible: int
    token: int | None
    what: str
    numbers: list[tuple[str, str, list[float]]]
    arguments: list[Any] | None
    laws: dict[str, list[float]]

    @property
    def often(self) -> str:
        """How often the uniforms are there."""
        least = "" if self.distance is None else "at least "
        of = "" if self.uniforms == 1 else f" of {self.uniforms} uniforms"
        return f"{least}once in 2^{-self.log2_probability} draws{of} at {self.dtype}"

    @property
    def rounds(self) -> bool:
        """Whether it is there where a float64 rounds to 1 in float32, and not farther from the end."""
        return (self.end, self.dtype, self.distance, self.uniforms) == ("highest", "float64", 25, 1)

    @property
    def reason(self) -> str:
        """One line."""
        if self.rounds:
            return (
                f"{self.what}, only when a uniform rounds to 1.0 in float32 ({self.often}): draw it by "
                "rng.random(dtype=numpy.float32), which is below 1, or serve it by "
                "resispec_verify.testing.served_from"
            )
        many = self.uniforms > 1
        who = f"{self.uniforms} uniforms together are" if many else "a uniform is"
        low = "exactly 0" if self.distance is None else f"below 2^-{self.distance}"
        high = (
            f"exactly {_highest(self.dtype)}" if self.distance is None else f"1 - 2^-{self.distance} or above"
        )
        where = {"lowest": low, "highest": high, "both": f"at the ends, some {low} and some {high}"}[self.end]
        return f"{self.what}, only when {who} {where} ({self.often})"

    def fails(self, which: str) -> bool:
        """Whether it fails a run; ``which`` is `CheckSettings.fail_ends`."""
        return which == "all" or (which == "float32" and self.log2_probability >= _FLOAT32)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        digits = DIGITS.get(self.dtype)
        uniform = {"lowest": 0.0, "highest": 1.0 - 2.0**-digits if digits else None}.get(self.end)
        found = asdict(self) | {"uniform": uniform, "probability": 2.0**self.log2_probability}
        return found | {"often": self.often, "reason": self.reason}

    def witness(self, seed: int) -> dict[str, Any]:
        """As of other faults, for `CheckResult.witness`."""
        share = self.impossible / self.draws
        seen = [] if self.token is None else [{"what": self.what, "target": 0.0, "seen": share}]
        return {
            "kind": "boundary", "input": self.input, "rows": self.rows, "draws": self.draws, "seed": seed,
            # Draws with uniforms that are not uniform have no frequencies to speak of.
            "tv_seen": None, **interval_of(None, 0.0), "dependence": None, "differences": seen,
            "never_emitted": [], "numbers": self.numbers, "often": self.often, "calls": self.calls,
            "failed": self.failed, **self.laws,
        }  # fmt: skip


def _highest(dtype: str) -> str:
    return f"1 - 2^-{DIGITS[dtype]}" if dtype in DIGITS else "the largest below 1"
