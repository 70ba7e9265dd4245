"""The parts that are timed are the algorithm, and the report says what was timed. No time is asserted."""

import csv
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resispec_verify.cli import main
from resispec_verify.oracle import get_proxy
from resispec_verify.report.plots.runtime import plot_runtime
from resispec_verify.rules import ResiSpec
from resispec_verify.tables.runtime import RESISPEC, budgeting, formulation, redistribution

EXAMPLE = "examples/smollm2-skip6-N8-fp16.pt"


def in_parts(p, q, rejected):
    r, Delta = budgeting(p, q, rejected)
    return formulation(p, q, redistribution(p, r, Delta, rejected), rejected)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=6))
def test_the_parts_are_get_proxy(weights):
    from fractions import Fraction

    a, b = zip(*weights, strict=True)
    if not any(a) or not any(b):
        return
    pair = tuple(tuple(Fraction(k, sum(law)) for k in law) for law in (a, b))
    p, q = (np.array(law, np.float64) for law in pair)
    for x in np.flatnonzero(q > p):
        right = get_proxy(*pair, int(x))
        k, residual = in_parts(p, q, int(x))
        assert k == pytest.approx([float(v) for v in right.k], abs=1e-14)
        whole = ResiSpec().reject(ResiSpec().start(p, q, 2), np.asarray([x])).residual[0]
        assert residual == pytest.approx(whole, abs=1e-12)


def test_a_part_left_out_is_noticed():
    """The twin that must fail."""
    p, q = np.array([0.3, 0.4, 0.3]), np.array([0.6, 0.3, 0.1])
    r, _ = budgeting(p, q, 0)
    k, _ = formulation(p, q, r, 0)
    right = get_proxy(*(tuple(str(v) for v in law) for law in (p, q)), 0)
    assert abs(k - [float(v) for v in right.k]).max() > 0.01


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_the_command(backend, capsys, tmp_path):
    if backend == "torch":
        pytest.importorskip("torch")
    names = [tmp_path / name for name in ("a.json", "a.csv", "a.svg")]
    arguments = [f"--{kind}={name}" for kind, name in zip(("json", "csv", "plot"), names, strict=True)]
    few = ["--vocab", "50", "--repeats", "3", "--backend", backend, "--precision", "float32"]
    assert main(["runtime", *few, *arguments]) == 0
    assert "not measured: they need models" in capsys.readouterr().out
    report = json.loads(names[0].read_text())
    assert (report["vocab"], report["repeats"], report["backend"]) == (50, 3, backend)
    parts = [row for row in report["results"] if row["phase"] in RESISPEC]
    assert sum(row["share"] for row in parts) == pytest.approx(1.0)
    for row in report["results"]:
        low, high = row["quartiles_us"]
        assert 0 < low <= row["median_us"] <= high
    with open(names[1], newline="") as file:
        assert [line["phase"] for line in csv.DictReader(file)] == [r["phase"] for r in report["results"]]
    assert b"<svg" in names[2].read_bytes()


def test_on_a_dump_and_where_nothing_can_be_rejected(capsys):
    assert main(["runtime", "--logits", EXAMPLE, "--position", "3", "--repeats", "1"]) == 0
    assert "position 3" in capsys.readouterr().out
    assert main(["runtime", "--vocab", "1", "--repeats", "1"]) == 0


def test_a_figure_of_nothing_measurable():
    row = {"phase": "a $b", "belongs_to": "x", "median_us": 0.0, "quartiles_us": [0.0, 0.0], "share": None}
    assert len(plot_runtime([row], "$title").axes) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--vocab", "0"], "--vocab must be"),
        (["--repeats", "0"], "--repeats must be"),
        (["--seed", "-1"], "--seed must not"),
        (["--temperature", "nan"], "--temperature"),
        (["--position", "0"], "needs a dump"),
        (["--logits", EXAMPLE, "--vocab", "3"], "not both"),
        (["--logits", EXAMPLE, "--seed", "0"], "--seed is that of random logits"),
        (["--logits", EXAMPLE, "--position", "8"], "outside 0..7"),
        (["--logits", EXAMPLE, EXAMPLE], "one path"),
    ],
)
def test_bad_input_is_one_line_and_two(arguments, words, capsys):
    assert main(["runtime", *arguments]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert words in shown
