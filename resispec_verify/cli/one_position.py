"""One position to look at, of a dump or by hand: what `explore`, `picture` and `runtime` share."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from resispec_verify.cli.options.readings import InputOption, TemperatureOption
from resispec_verify.cli.options.sources import DumpOptions, HandOptions
from resispec_verify.cli.output import open_dump
from resispec_verify.cli.parameters import Count
from resispec_verify.dumps import FlatDump
from resispec_verify.errors import InputError
from resispec_verify.tables.reading import pairs_of


class OnePair(NamedTuple):
    """Two laws ``(V,)``, what a report says of where they come from, and the same as a title."""

    target: Any
    draft: Any
    facts: dict[str, Any]
    title: str


@dataclass(frozen=True, kw_only=True)
class PositionOptions(InputOption, TemperatureOption, HandOptions, DumpOptions):
    """A position of a dump, or a pair by hand.

    Attributes
    ----------
    logits
        The same as FILE: a dump of target and draft logits.
    """

    position: Count | None = None
    """Position of the dump, 0-based. Default: 0."""

    def one_pair(self) -> OnePair:
        """The pair at the position, or by hand."""
        if self.by_hand:
            given = self.pair()
            return OnePair(given.target, given.draft, {"position": 0}, "the given pair")
        reading = self.reading(self.input)
        dump, i = dump_at(self.paths, self.position)
        here = replace(reading, start=i, stop=i + 1)
        members = next(iter(pairs_of(dump, here)))
        t, path = members.sampling.temperature, self.paths[0]
        facts = {"path": str(path), "position": i, "temperature": t}
        title = f"{path.name}, position {i}, T = {t:g}, V = {dump.vocab:,}"
        return OnePair(members.pair.target[0], members.pair.draft[0], facts, title)


def dump_at(paths: list[Path], position: int | None) -> tuple[FlatDump, int]:
    """The one dump of these, and a position that it has."""
    if len(paths) != 1:
        raise InputError("one position of one dump is looked at: give one path")
    dump, position = open_dump(paths[0]), position or 0
    if not 0 <= position < dump.positions:
        raise InputError(
            f"{paths[0]}: position {position} is outside 0..{dump.positions - 1}; give one of these"
        )
    return dump, position
