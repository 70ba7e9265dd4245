"""Options of how rows of a dump become pairs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from resispec_verify.cli.options.group import Options, check_range
from resispec_verify.cli.parameters import Count, Number, Numbers, Text
from resispec_verify.distributions import Sampling
from resispec_verify.errors import InputError
from resispec_verify.tables.reading import Reading


@dataclass(frozen=True, kw_only=True)
class TemperatureOption(Options):
    """One temperature."""

    temperature: Number | None = None
    """Sampling temperature. Default: what the dump states, or else 1."""

    def reading(self, kind: str | None, positions: str | None = None) -> Reading:
        """How rows become pairs, without filters."""
        return make_reading(
            [] if self.temperature is None else [self.temperature], kind=kind, positions=positions
        )


@dataclass(frozen=True, kw_only=True)
class _Temperatures(Options):
    """Several temperatures."""

    temperature: Numbers | None = None
    """Sampling temperature; repeat for several. Default: what the dump states, or else 1."""


@dataclass(frozen=True, kw_only=True)
class FilterOptions(Options):
    """Filters on the logits."""

    top_k: Count | None = None
    """Keep the k most probable tokens, in target and draft."""
    top_p: Number | None = None
    """Nucleus filter, in target and draft."""
    min_p: Number | None = None
    """Drop tokens below this fraction of the most probable one, in target and draft."""
    engine_order: Text | None = None
    """Order of the steps: transformers, vllm, sglang, sglang-verify, llama.cpp, or steps with commas.
    Default: what the dump states, or else transformers."""


@dataclass(frozen=True, kw_only=True)
class OneSamplingOptions(FilterOptions, TemperatureOption):
    """One temperature, and filters."""

    def given(self) -> dict[str, Any]:
        """Those that were given, as fields of `Sampling`; raises on the first that is out of range."""
        fields = {name: getattr(self, name) for name in ("temperature", "top_k", "top_p", "min_p")}
        values = fields | ({"temperature": 1.0} if self.temperature is None else {})
        make_sampling("--", *values.values(), order=self.engine_order)
        given = {name: value for name, value in fields.items() if value is not None}
        return given | ({} if self.engine_order is None else {"order": self.engine_order})


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(FilterOptions, _Temperatures):
    """How the target samples; a table for each temperature."""


@dataclass(frozen=True, kw_only=True)
class ProposalOptions(Options):
    """What candidates are really drawn with."""

    proposal_temperature: Number | None = None
    """Temperature candidates are really drawn with, where it is not the declared one."""
    proposal_top_k: Count | None = None
    """top-k candidates are really drawn with."""
    proposal_top_p: Number | None = None
    """top-p candidates are really drawn with."""


@dataclass(frozen=True, kw_only=True)
class InputOption(Options):
    """What rows are."""

    input: Literal["logits", "probabilities", "log-probabilities"] | None = None
    """What the dump holds. Default: logits, refused where they look like probabilities."""


@dataclass(frozen=True, kw_only=True)
class RangeOptions(Options):
    """Which positions, and how many at a time."""

    positions: Text | None = None
    """Range A:B of positions, 0-based, B excluded."""
    batch: Count | None = None
    """Positions at a time."""


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(RangeOptions, InputOption, SamplingOptions):
    """How rows of a dump become pairs."""

    def reading(self, precision: str = "float64") -> Reading:
        """The same, checked."""
        return make_reading(
            self.temperature or [], self, self._proposal(), kind=self.input,
            positions=self.positions, batch=self.batch, precision=precision,
        )  # fmt: skip

    def _proposal(self) -> ProposalOptions | None:
        return None


@dataclass(frozen=True, kw_only=True)
class ProposedReadingOptions(ProposalOptions, ReadingOptions):
    """How rows of a dump become pairs, and what candidates are really drawn with."""

    def _proposal(self) -> ProposalOptions:
        return self


def make_reading(
    temperatures: Iterable[float] = (),
    filters: FilterOptions | None = None,
    proposal: ProposalOptions | None = None,
    *,
    kind: str | None = None,
    positions: str | None = None,
    batch: int | None = None,
    precision: str = "float64",
) -> Reading:
    """How rows become pairs, from the values of options; raises on the first that is out of range."""
    check_range(1, batch=batch)
    kept = () if filters is None else (filters.top_k, filters.top_p, filters.min_p)
    order = None if filters is None else filters.engine_order
    make_sampling("--engine-", order=order)
    temperatures, samplings = list(temperatures), None
    if temperatures or any(value is not None for value in kept):
        samplings = tuple(
            make_sampling("--", t, *kept, order=order) for t in dict.fromkeys(temperatures or [1.0])
        )
    drawn = (None, None, None)
    if proposal is not None:
        drawn = (proposal.proposal_temperature, proposal.proposal_top_k, proposal.proposal_top_p)
    make_sampling("--proposal-", 1.0 if drawn[0] is None else drawn[0], *drawn[1:])
    start, stop = _positions(positions)
    return Reading(
        samplings,
        proposal_sampling=lambda sampling: sampling.overridden(*drawn),
        kind=kind,
        precision=precision,
        start=start,
        stop=stop,
        batch=batch,
        order=order,
    )


def make_sampling(option: str, *values: Any, order: str | None = None) -> Sampling:
    """The sampling of a temperature, top-k, top-p and min-p; ``option`` is what their names begin with."""
    try:
        return Sampling(*values, order=order)
    except InputError as error:  # its message begins with the field, spelled as in the option
        raise InputError(f"{option}{error}") from None


def _positions(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    try:
        start, stop = text.split(":")
        return (int(start) if start else None), (int(stop) if stop else None)
    except ValueError:
        raise InputError(f"--positions must be a range A:B such as 0:16; got {text!r}") from None
