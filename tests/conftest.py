"""Shared by all tests: property tests draw the same examples on every run; the command, in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli_helpers import Result
from hypothesis import settings

from resispec_verify.cli import main

settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run the command in this process."""

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        # Where the kernels have not been compiled yet any run may say so; that is no part of the answer.
        note = "compiling the path kernels"
        lines = [line for line in err.splitlines(keepends=True) if note not in line]
        return Result(status, out, "".join(lines))

    return run
