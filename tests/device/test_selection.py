"""Choosing a backend where CuPy is missing, broken, or without a device: a fake `cupy` on the path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from resispec_verify.backends import BACKENDS, get_backend
from resispec_verify.cli.options.work import BackendOption
from resispec_verify.errors import InputError

ROOT = Path(__file__).parents[2]
MARK = "import pathlib; pathlib.Path(__file__).with_name('touched').touch()\n"
DEVICES = """
class cuda:
    class runtime:
        @staticmethod
        def getDeviceCount():
            {}
"""
NO_DEVICE = DEVICES.format("return 0")
# What the fake does, and what is said to have been looked for.
BROKEN = {
    "ImportError": (
        "raise ImportError('libcublas.so.12: cannot open\\n shared object file')",
        "the package cupy: libcublas.so.12: cannot open shared object file; ",
    ),
    "OSError": ("raise OSError('no libcuda.so.1')", "the package cupy: no libcuda.so.1; "),
    "RuntimeError": ("raise RuntimeError()", "the package cupy: RuntimeError; "),
    "NameError": ("old_numpy", "the package cupy: name 'old_numpy' is not defined; "),
    "not CuPy at all": ("", "a CUDA device: module 'cupy' has no attribute 'cuda'; "),
    "the query fails": (
        DEVICES.format("raise RuntimeError('cudaErrorInsufficientDriver')"),
        "a CUDA device: cudaErrorInsufficientDriver; ",
    ),
    "no device": (NO_DEVICE, "a CUDA device: there is none; "),
    "the wrapper fails": (DEVICES.format("return 1"), "a CUDA device: "),  # it has no array functions
}


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Writes a `cupy` that the next import finds; its folder."""
    for name in [
        m for m in sys.modules if m.split(".")[0] == "cupy" or m.startswith("array_api_compat.cupy")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(source: str) -> Path:
        (tmp_path / "cupy.py").write_text(MARK + source, encoding="utf-8")
        return tmp_path

    yield write
    for name in [
        m for m in sys.modules if m.split(".")[0] == "cupy" or m.startswith("array_api_compat.cupy")
    ]:
        del sys.modules[name]


@pytest.mark.parametrize("how", BROKEN)
def test_a_cupy_that_does_not_work_is_one_line(fake, how):
    source, says = BROKEN[how]
    fake(source)
    with pytest.raises(InputError) as raised:
        get_backend("cupy")
    line = str(raised.value)
    assert line.startswith(f"--backend cupy: looked for {says}")
    assert line.endswith("use --backend numpy")
    assert "\n" not in line


@pytest.mark.parametrize("name", ["auto", "numpy"])
def test_nobody_else_touches_cupy(fake, name):
    folder = fake("raise RuntimeError('imported')")
    assert get_backend(name).name == "numpy"
    assert not (folder / "touched").exists()
    with pytest.raises(InputError):
        get_backend("cupy")
    assert (folder / "touched").exists()  # the mark does show an import


@pytest.mark.parametrize(("chosen", "status"), [("cupy", 2), ("auto", 0)])
def test_the_command_line(tmp_path, chosen, status):
    (tmp_path / "cupy.py").write_text(MARK + NO_DEVICE, encoding="utf-8")
    words = ["kl", "--target", "0.5,0.5", "--draft", "0.25,0.75", "--rule", "specinfer", "--backend", chosen]
    done = subprocess.run(
        [sys.executable, "-m", "resispec_verify", *words, "--json", "-"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True, text=True, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == status
    assert bool(done.stdout) == (status == 0)
    assert (tmp_path / "touched").exists() == (chosen == "cupy")
    if status:
        says = "--backend cupy: looked for a CUDA device: there is none; use --backend numpy"
        assert done.stderr == f"resispec-verify: error: {says}\n"


def test_the_command_line_offers_the_backends_that_there_are():
    """It writes them out: importing them would load NumPy for a help text."""
    offered = get_type_hints(BackendOption)["backend"]
    assert get_args(offered) == BACKENDS
