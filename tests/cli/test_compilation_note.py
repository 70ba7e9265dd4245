"""That kernels are compiled is said when they are, and not when a run is slow."""

from __future__ import annotations

import numba

from resispec_verify.cli import over_dumps
from resispec_verify.kernels.jit import on_compilation
from resispec_verify.rules import SpecInfer
from resispec_verify.tables.marginals import Evaluation


def test_only_the_first_compilation_is_said_and_only_inside():
    said: list[bool] = []
    functions = [numba.njit(lambda x: x + 1), numba.njit(lambda x: x + 2)]
    with on_compilation(said.append):
        assert said == []
        assert [function(1) for function in functions] == [2, 3]
        assert said == [False]  # made here, it has no file to be cached beside
        functions[0](1.0)  # another signature is compiled as well
    assert said == [False]
    with on_compilation(said.append):
        assert functions[0](1) == 2
    assert said == [False]
    assert numba.njit(lambda x: x + 3)(1) == 4
    assert said == [False]


def test_a_slow_run_with_compiled_kernels_says_nothing(monkeypatch, capsys):
    evaluation = Evaluation((SpecInfer(),), 2)
    over_dumps.compile_kernels(evaluation)  # now they are
    capsys.readouterr()
    begun: list[str] = []
    monkeypatch.setattr("threading.Timer", lambda *arguments: begun.append("a timer"))
    over_dumps.compile_kernels(evaluation)
    assert begun == []
    assert capsys.readouterr().err == ""


def test_what_is_said(capsys):
    over_dumps._announce(True)
    said = capsys.readouterr().err
    assert "compiling kernels that are new here (about 20 s)" in said
    assert "compiled once, by the first command that needs it, and kept" in said
    over_dumps._announce(False)
    assert "once" not in capsys.readouterr().err
