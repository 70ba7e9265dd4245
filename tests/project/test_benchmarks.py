"""benchmarks/run.py runs and writes every row; no figure of it is looked at."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pytest_benchmark")

ROOT = Path(__file__).parents[2]
NUMBER = r"\d+\.\d\d"
ROWS = {
    "SpecInfer's rounds, n = 3, and both path identities": 1,
    "divergences and limit, n = 3": 1,
    "ResiSpec's marginal, n = 1, gap 0": 1,
    "ResiSpec's marginal, n = 2, gap 0,": 1,
    "ResiSpec's marginal, n = 2, gap 0.001": 1,
    "ResiSpec's marginal, n = 3, gap 0.01 ": 1,
    "ResiSpec's marginal, n = 3, gap 0.001": 1,
    "`kl` with defaults": 1,
    "`specinfer`, n = 3, V": 1,
    "`k-seq`, n = 3, V": 1,
    "`optimal-sequential`, n = 3, V": 1,
    "limit, optimal transport, n = 3, V": 1,
    "limit, sequential, n = 3, V": 1,
    "limit, without replacement, n = 2, V": 1,
    "`explore`'s curve, V": 1,
    "`optimal-joint`'s layout, n = 3, V": 1,
    "`sequoia`, n = 3": 1,
    "verification step, NumPy": 3,
    "verification step, torch": 3,
    "peak memory of `kl` with defaults": 3,
    "start-up: `--help`": 1,
    "start-up: `kl --help`": 1,
    "start-up: `kl` by hand": 1,
    "first use: `kl` on the README's example": 1,
}
CURVES = {"specinfer": 3, "optimal-sequential": 3, "optimal-joint": 3, "resispec, n = 2": 2}


def run(*arguments):
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--quick", *arguments]
    # As from a shell: pytest-benchmark measures nothing below a pytest that runs tests in parallel.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_it_writes_every_row(tmp_path):
    if not Path("/proc/self/status").exists():
        pytest.skip("peak memory is read from /proc")
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    names = ("target_logits", "draft_logits")
    np.savez(
        tmp_path / "tiny.npz", **{name: rng.standard_normal((4, 64)).astype(np.float16) for name in names}
    )
    page = tmp_path / "page.md"
    found = run("--dump", str(tmp_path / "tiny.npz"), "--markdown", str(page))
    assert found.returncode == 0, found.stdout + found.stderr
    text = page.read_text(encoding="utf-8")
    table = [line for line in text.splitlines() if line.startswith("| ")]
    for cost, many in ROWS.items():
        rows = [line for line in table if line.startswith(f"| {cost}")]
        assert len(rows) == many, cost
        for row in rows:
            _, over, _, ratio, *_, seconds, _ = (cell.strip() for cell in row.strip("|").split("|"))
            assert bool(over) == bool(re.fullmatch(NUMBER, ratio)), row
            assert re.fullmatch(rf"{NUMBER} m?s|\d+ MiB", seconds), row
    for rule, many in CURVES.items():
        (row,) = (line for line in table if line.startswith(f"| {rule} |"))
        assert len(re.findall(rf"-?{NUMBER}", row)) == many
    assert (tmp_path / "img" / "performance-growth.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "img" / "performance-growth.csv").open(encoding="utf-8") as file:
        points = list(csv.DictReader(file))
    assert {(point["against"], point["rule"]) for point in points} == {
        (axis, rule) for rule, many in CURVES.items() for axis in ("V", "N", "n")[:many]
    }
    assert all(float(point["seconds"]) > 0 for point in points)
    assert os.uname().nodename not in text


def test_where_a_benchmark_fails_nothing_is_written(tmp_path):
    rows = np.full((4, 64), np.nan, np.float16)
    np.savez(tmp_path / "broken.npz", target_logits=rows, draft_logits=rows)
    page = tmp_path / "page.md"
    found = run("--dump", str(tmp_path / "broken.npz"), "--markdown", str(page))
    assert found.returncode == 1
    assert "1 error" in found.stdout  # the first ends it
    assert not page.exists()


def test_a_dump_that_is_not_there():
    found = run("--dump", "no-such-file.pt")
    assert found.returncode == 2
    assert re.fullmatch(r"benchmarks/run.py: error: no-such-file.pt: .*\n", found.stderr)
