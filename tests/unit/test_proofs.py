"""The proof scripts run, prove what they say, and reject mutated twins."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from resispec_verify.oracle import normalise

pytest.importorskip("sympy", reason="the proofs need SymPy, from the extra 'test'")

ROOT = Path(__file__).resolve().parents[2]
PROOFS = ROOT / "proofs"


@pytest.fixture
def load(monkeypatch):
    """Import a proof script as `python proofs/NAME.py` would, without leaving it in sys.modules."""
    monkeypatch.syspath_prepend(str(PROOFS))
    before = set(sys.modules)
    yield importlib.import_module
    names = {path.stem for path in PROOFS.glob("*.py")}
    for name in names & (set(sys.modules) - before):
        del sys.modules[name]


def failures(report):
    return [name for name, passed in report.checks if not passed]


@pytest.mark.parametrize("name", ["path_identity", "theorem_1"])
def test_script_proves_its_statement_and_exits_with_0(name):
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(PROOFS / f"{name}.py")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Status: proved" in done.stdout
    assert "FAILED" not in done.stdout


@pytest.mark.parametrize(
    "residual",
    [
        pytest.param(lambda R, m, beta: (R - m) / (1 + beta**2), id="wrong-normaliser"),
        pytest.param(lambda R, m, beta: R - m, id="not-normalised"),
        pytest.param(lambda R, m, beta: R, id="residual-is-the-target"),
        pytest.param(lambda R, m, beta: m / beta if beta else R, id="residual-is-the-overlap"),
    ],
)
def test_path_identity_rejects_a_wrong_residual(load, residual):
    report = load("path_identity").prove(residual=residual, samples=40)
    assert report.status == "failed"
    missed = failures(report)
    assert any("induction step" in name for name in missed)
    assert any("equal to p in Fractions" in name for name in missed)


def test_theorem_1_rejects_a_wrong_characterisation(load):
    module = load("theorem_1")
    checks = module.check_characterisation(lambda moved, missing: moved + missing)
    assert len(checks) == 3
    assert not any(passed for _, passed in checks)
    assert module.prove(variants={}, combine=lambda moved, missing: moved).status == "failed"


def test_theorem_1_cannot_refute_the_exact_residual(load):
    """With SpecInfer's residual in place of GetProxy's there is nothing to find, and the proof must fail."""

    def exact(target, draft, rejected):
        kept = [max(R - q, 0) for R, q in zip(target, draft, strict=True)]
        return normalise(kept, fallback=target)

    report = load("theorem_1").prove(variants={"exact": exact})
    assert report.status == "failed"
    missed = failures(report)
    assert any(name.startswith("V = 3 has a counterexample") for name in missed)
    assert any(name.startswith("not p in all") for name in missed)
    assert not any(name.startswith("emitted - p") for name in missed)


def test_theorem_1_lists_the_smallest_counterexamples(load):
    lines = load("theorem_1").prove().lines
    reading = " (proportional, local budget, hole excluded)"
    assert [line.removesuffix(reading) for line in lines if line.endswith(reading)] == [
        "p = (0, 1/2, 1/2), q = (1/2, 0, 1/2): emits (0, 1/6, 5/6)",
        "p = (1/4, 1/4, 1/2), q = (1/4, 1/2, 1/4): emits (7/20, 1/4, 2/5)",
    ]


def test_a_report_without_checks_is_not_a_proof(load):
    report = load("_report").Report("statement", "method", ())
    assert report.status == "failed"
    assert load("_report").run(lambda: report) == 1
