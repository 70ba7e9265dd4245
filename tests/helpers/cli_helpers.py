"""Running the command, small dumps, and what must hold of every report."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "smollm2-skip6-N8-fp16.pt"
PREFIX = "resispec-verify: error: "
INF = float("inf")


class Result(NamedTuple):
    """What one run of the command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as JSON, with nothing but JSON in it and no NaN or Infinity."""
        return strict_json(self.out)


def strict_json(text: str) -> dict[str, Any]:
    def refuse(token: str) -> None:
        raise AssertionError(f"{token} in a report")

    return json.loads(text, parse_constant=refuse)


def command(*arguments: object, **options: Any) -> Result:
    """Run the installed command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "resispec_verify", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,  # against a hang; a busy machine takes a minute
        check=False,
        **options,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def save(path: Path, target: torch.Tensor, draft: torch.Tensor | None = None, **others: Any) -> Path:
    """Save a flat dump as torch does; the draft is the target where none is given."""
    torch.save({"target_logits": target, "draft_logits": target if draft is None else draft} | others, path)
    return path


def logs(*rows: tuple[float, ...]) -> torch.Tensor:
    """Logits of rows of probabilities; zeros are -inf."""
    return torch.tensor(rows, dtype=torch.float64).log()


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random logits."""
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def row(report: dict[str, Any], rule: str, marginal: str = "operational", **wanted: Any) -> dict[str, Any]:
    """The one result with these properties."""
    wanted |= {"rule": rule, "marginal": marginal}
    found = [r for r in report["results"] if all(r[key] == value for key, value in wanted.items())]
    assert len(found) == 1, f"{len(found)} rows with {wanted}"
    return found[0]


def lines_of(text: str) -> list[dict[str, str]]:
    """The lines of a CSV."""
    return list(csv.DictReader(io.StringIO(text)))


def number(value: Any, *, infinite: bool = False) -> float:
    """A JSON number that is not a bool; ``"inf"`` only where it may occur."""
    if infinite and value == "inf":
        return INF
    assert type(value) in (int, float), f"{value!r} is not a number"
    return float(value)


def check_report(report: dict[str, Any]) -> None:
    """Every key of the documented schema of ``kl``, with its type, and what binds the values together."""
    assert report["schema"] == 1
    assert report["command"] == "kl"
    assert report["kl_direction"] == "KL(marginal || target)"
    assert set(report["seconds"]) >= {"load", "softmax", "rounds", "divergences", "limit"}
    assert all(number(value) >= 0 for value in report["seconds"].values())
    assert report["results"]
    for result in report["results"]:
        check_result(result)


def check_result(r: dict[str, Any]) -> None:
    """One object of ``results``."""
    operational = r["marginal"] == "operational"
    assert operational or r["marginal"] == "path-identity"
    assert type(r["rule"]) is str
    assert number(r["temperature"]) >= 0
    assert type(r["candidates"]) is int
    assert type(r["positions"]) is int
    assert type(r["worst_position"]) is int
    assert r["dataset"] is None or type(r["dataset"]) is str
    assert r["limit_kind"] in ("iid", "without-replacement", "fixed")
    assert 0 <= number(r["limit_mean"]) <= 1 + 1e-12
    assert 0 <= number(r["gap_max"]) <= 1
    for name, infinite in (("kl", True), ("tv", False)):
        mean, most = (number(r[f"{name}_{kind}"], infinite=infinite) for kind in ("mean", "max"))
        low, high = (number(value, infinite=infinite) for value in r[f"{name}_mean_bounds"])
        assert 0 <= low <= high
        assert 0 <= mean <= most * (1 + 1e-12)
        assert low * (1 - 1e-12) - 1e-6 * (r["positions"] > 0) <= mean <= high * (1 + 1e-12) + 1e-6
    if operational:
        assert r["verdict"] in ("exact", "inexact", "undecided")
        assert type(r["expansions"]) is int
        assert len(r["acceptance"]) == r["candidates"]
        assert all(0 <= number(value) <= 1 + 1e-12 for value in r["acceptance"])
        assert sum(r["acceptance"]) <= 1 + 1e-9
    else:
        assert r["verdict"] is None
        assert r["acceptance"] is None


def assert_refused(result: Result, *words: object) -> None:
    """Status 2, nothing on standard output, one line that says all of `words`."""
    assert result.status == 2, result
    assert result.out == ""
    assert_one_line(result.err, *words)


def assert_one_line(text: str, *words: object) -> None:
    lines = text.splitlines()
    assert len(lines) == 1, text
    assert lines[0].startswith(PREFIX)
    assert "Traceback" not in text
    assert len(lines[0]) < 400
    for word in words:
        assert str(word) in lines[0], f"{word!s} is not in: {lines[0]}"
