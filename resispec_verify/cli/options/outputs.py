"""Options of where results go."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resispec_verify.cli.options.group import Options
from resispec_verify.cli.output import check_writable, table_console, write_csv, write_figure, write_json
from resispec_verify.cli.parameters import File

_Records = Callable[[], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class JsonOption(Options):
    """Where the report goes."""

    json: File | None = None
    """Write the report here ("-": standard output)."""

    def check(self, inputs: Iterable[Path] = (), **others: Path | None) -> None:
        """Refuse what could not be written, before the work; ``others`` are outputs of the command alone."""
        check_writable(inputs=inputs, **vars(self), **others)

    def write(self, report: Mapping[str, Any]) -> Any:
        """Write the report, and give the console for what is printed beside it."""
        write_json(self.json, report)
        return table_console(self.json)


@dataclass(frozen=True, kw_only=True)
class OutputOptions(JsonOption):
    """Where the report and its lines go."""

    csv: File | None = None
    """Write one line a position here."""

    def write(self, report: Mapping[str, Any], records: _Records = tuple) -> Any:
        """As of `JsonOption`; ``records`` are made if they were asked for."""
        write_json(self.json, report)
        if self.csv is not None:
            write_csv(self.csv, records())
        return table_console(self.json, self.csv)


@dataclass(frozen=True, kw_only=True)
class PlotOptions(OutputOptions):
    """Where report, lines and picture go."""

    plot: File | None = None
    """Write a plot here (.png, .svg or .pdf)."""

    def write(
        self, report: Mapping[str, Any], records: _Records = tuple, draw: Callable[[], Any] | None = None
    ) -> Any:
        """As of `OutputOptions`; ``draw`` makes the figure."""
        console = super().write(report, records)
        if draw is not None:
            write_figure(self.plot, draw)
        return console
