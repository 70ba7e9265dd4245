"""What importing the interface of rules costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numba", "scipy", "torch")


@pytest.mark.parametrize(
    "line",
    [
        "from resispec_verify import InputError, Rule, State, Verdict",
        "from resispec_verify.rules import Greedy, Iid, Pairs, PathRule, TupleRule, WithoutReplacement",
    ],
)
def test_the_interface_loads_no_compiled_kernels(line):
    code = f"import sys\n{line}\nprint({{*{HEAVY}}} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("set()\n", "")
