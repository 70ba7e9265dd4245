"""``check``: somebody's sampler, by its draws; the command ``check`` from Python, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from resispec_verify.api.report import Report
from resispec_verify.report.answers import print_check
from resispec_verify.sampler_check.check import CheckResult, check_sampler
from resispec_verify.sampler_check.pairs import given_check
from resispec_verify.sampler_check.settings import check_report

__all__ = ["CheckReport", "check"]


@dataclass(frozen=True, repr=False)
class CheckReport(Report):
    """What draws of a sampler showed. Not being rejected is no proof: see `detectable_tv`."""

    sampler: str
    style: str
    result: CheckResult

    @property
    def verdict(self) -> str:
        """``"rejected"``, ``"not-rejected"`` or ``"error"``."""
        return self.result.verdict

    @property
    def detectable_tv(self) -> float | None:
        """A total variation of this size would have been found on every input that was reached."""
        return self.result.detectable_tv

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``check``."""
        return check_report(self.sampler, self.style, self.result)

    def _print(self, console: Any) -> None:
        print_check(self.sampler, self.result, console)


def check(
    sampler: Callable[..., Any],
    *,
    pairs: Sequence[Any] | None = None,
    style: str = "tokens",
    **settings: Any,
) -> CheckReport:
    """Is a sampler lossless? Draws from it, tested against the target at a stated error rate.

    Parameters
    ----------
    sampler : callable
        Called by ``style``, as ``sampler(target, draft, rng)`` by default; see
        `resispec_verify.sampler_check.check.check_sampler`.
    pairs : sequence, optional
        What it is checked on: names of the fixed battery, or ``(target, draft)`` probabilities ``(V,)``.
        Default: the battery, and a search for the worst pair.
    style : {"tokens", "candidates", "uniforms", "block", "tree", "text"}
    **settings
        Of `resispec_verify.sampler_check.settings.CheckSettings`: draws, seconds, alpha, seed, ...

    Returns
    -------
    CheckReport

    Raises
    ------
    InputError
        Settings or pairs that make no sense. What the sampler raises is the verdict ``"error"``.
    """
    name, chosen, inputs = given_check(sampler, pairs, {"style": style, **settings})
    return CheckReport(name, style, check_sampler(sampler, chosen, inputs=inputs))
