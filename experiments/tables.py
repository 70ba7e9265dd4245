"""Means with their standard errors, logs, and Markdown tables."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from pairs import Job

from resispec_verify.errors import InputError


class Mean(NamedTuple):
    """A mean and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"


def ratio(
    numerators: Sequence[float],
    denominators: Sequence[float],
    clusters: Sequence[Any],
    strata: Sequence[Any] | None = None,
) -> Mean:
    """``sum a / sum b`` with the standard error of a ratio of sums over independent clusters.

    With G clusters and ``d_g = sum (a - r b)`` in cluster g: ``sqrt(G / (G - 1) sum d_g^2) / sum b``
    (linearisation). For ``b = 1`` the ratio is a mean, with its error clustered. With strata, each with the
    number of clusters that it was meant to have, what differs between them is no error: under the root stands
    the sum of ``G_h / (G_h - 1) sum (d_g - mean of d in h)^2`` over the strata h.

    Parameters
    ----------
    numerators, denominators : sequences of N floats
    clusters : sequence of N labels
        Here prompts: steps on one prompt depend on each other, those on different prompts do not.
    strata : sequence of N labels, optional
        Here forms of passages. They are left out of account where one has a single cluster.
    """
    a, b = np.asarray(numerators, float), np.asarray(denominators, float)
    value = float(a.sum() / b.sum())
    _, first, index = np.unique(np.asarray(clusters), return_index=True, return_inverse=True)
    sums = np.bincount(index, weights=a - value * b)
    if len(sums) < 2:
        return Mean(value, math.nan)
    own = np.zeros(len(sums), int) if strata is None else np.asarray(strata)[first]
    _, stratum, sizes = np.unique(own, return_inverse=True, return_counts=True)
    if sizes.min() < 2:
        stratum, sizes = np.zeros(len(sums), int), np.asarray([len(sums)])
    left = sums - (np.bincount(stratum, weights=sums) / sizes)[stratum]
    squares = np.bincount(stratum, weights=left**2)
    return Mean(value, float(math.sqrt((sizes / (sizes - 1) * squares).sum()) / b.sum()))


def mean(values: Sequence[float], clusters: Sequence[Any], strata: Sequence[Any] | None = None) -> Mean:
    """A mean with the standard error clustered."""
    return ratio(values, np.ones(len(values)), clusters, strata)


def read_log(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Head and lines of a JSON-lines log, empty where there is none; a line that was cut off is left out."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = [json.loads(line) for line in text.split("\n")[:-1]]
    return (lines[0], lines[1:]) if lines else ({}, [])


@contextmanager
def appended(path: Path, head: dict[str, Any]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that adds a line to a log at once; a new log begins with ``head``, a cut-off line goes."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1] or json.dumps(head) + "\n"
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    with path.open("a", encoding="utf-8") as log:

        def add(line: dict[str, Any]) -> None:
            log.write(json.dumps(line) + "\n")
            log.flush()

        yield add


def write_csv(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """A CSV file with the keys of the first row as its head; floats to six digits."""
    rows = list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def read_csv(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file, numbers as floats."""

    def value(text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            return text

    with path.open(newline="", encoding="utf-8") as file:
        return [{k: value(v) for k, v in row.items()} for row in csv.DictReader(file)]


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 1) -> str:
    """A Markdown table; the first ``left`` columns are text, the others are set to the right."""
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(['---'] * left + ['---:'] * (len(head) - left))}|"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


def page(path: Path, title: str, *parts: str) -> None:
    """Write a page of results."""
    path.write_text("\n".join([f"# {title}\n", *parts]), encoding="utf-8")
    print(f"{path.name} written")


def logs(job: Job, name: str) -> list[dict[str, Any]]:
    """The JSON logs ``NAME-PAIR.json``, in the order of the configuration, pairs of one's own last."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in _paths(job, name, "json")]


def line_logs(job: Job, name: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Head and lines of the logs ``NAME-PAIR.jsonl``, in the same order."""
    found = map(read_log, _paths(job, name, "jsonl"))
    return [(head, lines) for head, lines in found if head]


def _paths(job: Job, name: str, suffix: str) -> list[Path]:
    """The logs of a name.

    Raises
    ------
    InputError
        There is none.
    """
    found = {
        path.stem.removeprefix(f"{name}-"): path for path in sorted(job.results.glob(f"{name}-*.{suffix}"))
    }
    if not found:
        raise InputError(f"{job.results}: no {name}-*.{suffix}; run the script without --render first")
    known = [pair for pair in job.config["pairs"] if pair in found]
    return [found[pair] for pair in dict.fromkeys([*known, *found])]


def save(figure: Figure, path: Path) -> None:
    """The figure as PNG, and as SVG without its date and with coordinates to a hundredth of a point."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    path.with_suffix(".svg").write_text(re.sub(r"(\.\d\d)\d+", r"\1", text.getvalue()), encoding="utf-8")
    figure.savefig(path.with_suffix(".png"), dpi=120)
