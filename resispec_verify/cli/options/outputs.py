"""Options of where results go."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from resispec_verify.cli.options.group import Options
from resispec_verify.cli.output import (
    check_writable,
    table_console,
    write_bytes,
    write_csv,
    write_figure,
    write_json,
)
from resispec_verify.cli.parameters import File
from resispec_verify.errors import InputError
from resispec_verify.report.cases import Case, github_lines, junit_xml, unusable


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


@dataclass(frozen=True, kw_only=True)
class CaseOptions(Options):
    """Where demands, met or not, go in continuous integration."""

    junit: File | None = None
    """Write JUnit XML here: a case for each demand, with the numbers behind it."""
    annotations: Literal["github"] | None = None
    """Print each demand that is not met as an annotation, on standard error."""

    def file(self) -> Path | None:
        """The JUnit file, for the check of what could not be written; raises where it names none."""
        if self.junit is not None and str(self.junit) == "-":
            raise InputError("--junit needs a file, such as junit.xml: tables go to standard output")
        return self.junit

    def tell(self, command: str, cases: Iterable[Case], failures: Iterable[str] = ()) -> int:
        """Write and print what was asked for; the exit status, 1 where a demand is not met.

        Parameters
        ----------
        failures
            A line for each input that could not be used.
        """
        made = list(cases)
        every = [*made, *map(unusable, failures)]
        if self.junit is not None:
            write_bytes(self.junit, junit_xml(command, every))
        if self.annotations is not None:
            for line in github_lines(every):
                print(line, file=sys.stderr)
        return int(any(case.unmet is not None for case in made))
