"""Laws of a few tokens by hand need neither numba nor SciPy, and get the numbers that compiled code gives."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from resispec_verify.cli import compile_ahead, kl, main
from resispec_verify.kernels.jit import may_compile, uncompiled
from resispec_verify.tables.table import Table

HAND = ["kl", "--target", "0.3,0.4,0.2,0.1", "--draft", "0.6,0.1,0.1,0.2", "--json", "-"]
# The rounding bound of an expansion counts its states, at most 1024 here, that of a path sum its paths.
BOUND = 1024 * 4 * 2.0**-52
CHILD = """
import sys
from resispec_verify.cli import main
status = main(sys.argv[1:])
print(*sorted({"numba", "scipy"} & set(sys.modules)), file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["kl", "--help"], [*HAND, "--candidates", "1"], HAND], ids=" ".join
)
def test_what_is_not_imported(arguments):
    found = subprocess.run([sys.executable, "-c", CHILD, *arguments], capture_output=True, text=True)
    assert (found.returncode, found.stderr.splitlines()[-1]) == (0, "")  # the table may be there too


def numbers(capsys, *arguments):
    assert main([*HAND, *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def flat(value, at=""):
    """Leaves by their place, without times and numbers of evaluations."""
    if isinstance(value, dict):
        return {
            k: v
            for name, part in value.items()
            if name not in ("seconds", "expansions")
            for k, v in flat(part, f"{at}/{name}").items()
        }
    if isinstance(value, list):
        return {k: v for i, part in enumerate(value) for k, v in flat(part, f"{at}/{i}").items()}
    return {at: value}


@pytest.mark.parametrize("redistribution", ["proportional", "water-filling"])
@pytest.mark.parametrize("budget", ["local", "floor"])
@pytest.mark.parametrize("candidates", ["1", "2", "3", "4"])
def test_the_numbers_are_those_of_compiled_code(capsys, monkeypatch, redistribution, budget, candidates):
    options = ["--redistribution", redistribution, "--budget", budget, "--candidates", candidates]
    plain = flat(numbers(capsys, *options))
    monkeypatch.setattr(kl, "_few_tokens", lambda target, evaluation: False)
    compiled = flat(numbers(capsys, *options))
    assert plain.keys() == compiled.keys()
    for place, value in compiled.items():
        if isinstance(value, float):
            assert plain[place] == pytest.approx(value, rel=1e-12, abs=BOUND), place
        else:
            assert plain[place] == value, place


@pytest.mark.parametrize(
    ("more", "few"),
    [
        ([], True),
        (["--candidates", "5"], False),  # too many paths
        (["--precision", "float32"], False),
        (["--rule", "sequoia", "--candidates", "2"], False),  # its paths have no array source
        (["--rule", "resispec:hole=literal"], False),
    ],
)
def test_when_arrays_do(monkeypatch, more, few):
    found = []
    monkeypatch.setattr(Table, "evaluate", lambda *arguments: found.append(not may_compile()))
    main([*HAND[:-2], *more])
    assert found == [few]
    assert may_compile()


def test_contexts_nest():
    with uncompiled():
        with uncompiled():
            assert not may_compile()
        assert not may_compile()
    assert may_compile()


def test_the_second_process_runs_through():
    compile_ahead.run()


def test_the_second_process_is_one_and_is_ended(monkeypatch):
    monkeypatch.setattr(compile_ahead, "cores", lambda: 2)
    compile_ahead.start()
    compile_ahead.start()
    (process,) = compile_ahead._started
    compile_ahead.end()
    assert process.poll() is not None
    assert compile_ahead._started == []


def test_one_core_compiles_alone(monkeypatch):
    monkeypatch.setattr(compile_ahead, "cores", lambda: 1)
    compile_ahead.start()
    assert compile_ahead._started == []
