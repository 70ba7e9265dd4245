"""Options that demand something of the expected acceptance, in `limits` and `tree length`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resispec_verify.cli.options.group import Options, check_range, check_share, refuse_without
from resispec_verify.cli.output import write_json
from resispec_verify.cli.parameters import Count, File, Number
from resispec_verify.errors import InputError
from resispec_verify.tables.acceptance_band import AcceptanceDemand
from resispec_verify.tables.synthetic_rates import settings_report

_ALPHA = 0.01


@dataclass(frozen=True, kw_only=True)
class RatesOption(Options):
    """Where acceptance by position goes.

    Attributes
    ----------
    acceptance_out
        Write acceptance by position here, as the settings of synthetic acceptance of vLLM and llama.cpp
        (JSON).
    """

    acceptance_out: File | None = None

    def check_rates(self) -> None:
        """Refuse what would be mixed with the table."""
        if str(self.acceptance_out) == "-":
            raise InputError("--acceptance-out: standard output has the table; give a file name")

    def write_rates(self, found: Sequence[tuple[Sequence[float], Mapping[str, Any]]]) -> None:
        """Write the file of the one row of unconditional rates and facts that there is."""
        if self.acceptance_out is None:
            return
        if len(found) != 1:
            raise InputError(
                f"--acceptance-out holds the rates of one rule on one shape, and {len(found)} were measured; "
                "name one rule, one shape and one temperature"
            )
        write_json(self.acceptance_out, settings_report(*found[0]))


@dataclass(frozen=True, kw_only=True)
class AcceptanceOptions(RatesOption):
    """What is demanded of the acceptance, and where it goes.

    Attributes
    ----------
    min_acceptance
        Exit with 1 if the mean acceptance is surely below this: its whole band is.
    drafted
        Draft tokens that a server counted: print how many of them should have been accepted.
    accepted
        Accepted ones that it counted: exit with 1 if they are not within that.
    alpha
        How often each band may miss (0.01).
    """

    min_acceptance: Number | None = None
    drafted: Count | None = None
    accepted: Count | None = None
    alpha: Number | None = None

    @property
    def given(self) -> bool:
        """Whether anything is demanded or asked."""
        return self.min_acceptance is not None or self.drafted is not None or self.accepted is not None

    def check(self, rule: Sequence[str] | None) -> None:
        """Refuse what would mean nothing."""
        self.check_rates()
        check_share(min_acceptance=self.min_acceptance)
        check_range(1, drafted=self.drafted)
        check_range(0, self.drafted, accepted=self.accepted)
        if self.alpha is not None and not 0 < self.alpha < 1:
            raise InputError(f"--alpha must be in (0, 1), got {self.alpha:g}")
        if self.accepted is not None:
            refuse_without("--drafted", accepted=None if self.drafted is not None else self.accepted)
        if not self.given:
            refuse_without("--min-acceptance or --drafted", alpha=self.alpha)
        elif not rule:
            raise InputError(
                "--min-acceptance and --drafted are about the acceptance of a rule: give --rule NAME"
            )

    def demand(self, a_step: int) -> AcceptanceDemand:
        """The same, for steps of so many draft tokens."""
        if self.drafted is not None and self.drafted % a_step:
            raise InputError(
                f"--drafted {self.drafted} is no multiple of the {a_step} draft tokens of a step; count "
                "whole steps"
            )
        alpha = _ALPHA if self.alpha is None else self.alpha
        return AcceptanceDemand(self.min_acceptance, self.accepted, self.drafted, a_step, alpha)


def demands_in_words(result: Mapping[str, Any], unit: str) -> list[str]:
    """Lines on what was measured, its band, and the demand; ``unit`` is what is independent."""
    found = result["expected"]
    low, high = found["band"]
    lines = []
    who = f"{result['label']} (T = {result['temperature']:g})"
    if found["min_acceptance"] is not None:
        met = "surely below" if found["surely_below"] else "not surely below"
        lines.append(
            f"{who}: acceptance {found['acceptance']:.4f}, in {low:.4f} to {high:.4f} with confidence "
            f"{1 - found['alpha']:g} over {found['independent']} {unit}: {met} the "
            f"{found['min_acceptance']:g} demanded"
        )
    if "drafted" in found:
        least, most = found["accepted_band"]
        text = (
            f"{who}: of {found['drafted']} draft tokens {least} to {most} should be accepted, with "
            f"confidence {1 - found['alpha']:g} over {found['independent']} {unit}"
        )
        if found["accepted"] is not None:
            text += f"; {found['accepted']} were: {'outside' if found['accepted_outside'] else 'within'}"
        lines.append(text)
    return lines


def unmet(results: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a demand is not met."""
    return any(r["expected"]["surely_below"] or r["expected"].get("accepted_outside") for r in results)
