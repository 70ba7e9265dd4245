"""Options of where results go."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resispec_verify.cli.options.group import Options
from resispec_verify.cli.output import check_writable, table_console, write_csv, write_figure, write_json
from resispec_verify.cli.parameters import File


@dataclass(frozen=True, kw_only=True)
class JsonOption(Options):
    """Where the report goes."""

    json: File | None = None
    """Write the report here ("-": standard output)."""

    def check(self, inputs: Iterable[Path] = (), **others: Path | None) -> None:
        """Refuse what could not be written, before the work; ``others`` are outputs of the command alone."""
        check_writable(inputs=inputs, **vars(self), **others)

    def write(
        self,
        report: Mapping[str, Any],
        records: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
        draw: Callable[[], Any] = lambda: None,
    ) -> Any:
        """Write what was asked for, lines and figure made now; the console for what is printed beside."""
        asked = {name: path for name, path in vars(self).items() if path is not None}
        if "json" in asked:
            write_json(asked["json"], report)
        if "csv" in asked:
            write_csv(asked["csv"], records())
        if "plot" in asked:
            write_figure(asked["plot"], draw())
        return table_console(*asked.values())


@dataclass(frozen=True, kw_only=True)
class OutputOptions(JsonOption):
    """Where the report and its lines go."""

    csv: File | None = None
    """Write one line a position here."""


@dataclass(frozen=True, kw_only=True)
class PlotOptions(OutputOptions):
    """Where report, lines and picture go."""

    plot: File | None = None
    """Write a plot here (.png, .svg or .pdf)."""
