"""benchmarks/gpu.py without a GPU: it refuses in one line, rehearses, and notices a wrong kernel."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from emulator import EmulatedDevice, build

from resispec_verify.device import SOURCE

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "smollm2-skip6-N8-fp16.pt")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("benchmarks_gpu", ROOT / "benchmarks" / "gpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def small(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "small.npz"
    arrays = {name: (rng.standard_normal((2, 60)) * 2).astype(np.float16) for name in ("target", "draft")}
    np.savez(path, **{f"{name}_logits": values for name, values in arrays.items()})
    return str(path)


def test_without_a_gpu_it_is_one_line(script, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)  # an import fails
    assert script.main([EXAMPLE]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(
        r"benchmarks/gpu.py: error: --backend cupy: looked for the package cupy: .*\n", printed.err
    )


def test_the_rehearsal_claims_nothing_about_a_gpu(script, tmp_path, capsys):
    page = tmp_path / "gpu.md"
    assert script.main([EXAMPLE, "--backend", "numpy", "--positions", "1", "--markdown", str(page)]) == 0
    text = capsys.readouterr().out
    assert page.read_text(encoding="utf-8") == text
    assert "Device: not a GPU;" in text
    assert text.count("| ok |") == 6
    assert "/s" not in text


def test_a_dry_run_goes_through_everything_and_has_no_figures(script, small, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- measured -->\nold\n<!-- /measured -->\nafter\n", encoding="utf-8")
    assert script.main([small, "--dry-run", "--page", str(page)]) == 0
    text = capsys.readouterr().out
    assert text.count("| ran on the CPU |") == 7
    assert "/s" not in text
    assert page.read_text(encoding="utf-8") == (
        f"before\n<!-- measured -->\n\n{text}\n<!-- /measured -->\nafter\n"
    )


def test_a_page_without_marks_is_left_alone(script, small, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("nothing\n", encoding="utf-8")
    assert script.main([small, "--dry-run", "--page", str(page)]) == 2
    assert "needs the marks" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == "nothing\n"


def test_a_file_that_is_not_there(script, capsys):
    assert script.main(["no-such-file.pt", "--backend", "numpy"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_a_gpu_would_print(script, small, program, capsys):
    device = EmulatedDevice(program, 4)
    assert script.main([small, "--tiled", "2"], device) == 0
    text = capsys.readouterr().out
    assert "Device: emulated;" in text
    assert len(re.findall(r"\d GB/s \| copy \d+ GB/s", text)) == 3
    assert len(re.findall(r"resispec n = \d, gap \S+ \| \S+ positions/s \| CPU \S+ positions/s", text)) == 3


def test_a_wrong_kernel_is_not_measured(script, small, tmp_path, capsys):
    source = SOURCE.replace("+ c * child.free);", ");")
    device = EmulatedDevice(build(tmp_path, "-O0", source=source), 1)
    assert script.main([small], device) == 1
    text = capsys.readouterr().out
    assert "FAILED" in text
    assert "/s" not in text
