"""Shared by all tests: property tests draw the same examples on every run; the command, in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli_helpers import Result
from compile_kernels import before_workers
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
        note = "compiling kernels"
        lines = [line for line in err.splitlines(keepends=True) if note not in line]
        return Result(status, out, "".join(lines))

    return run


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of a page are made, but not rendered: that is what takes the time.

    Where they are used, since a module that is imported meanwhile would keep what it finds.
    """
    monkeypatch.setattr("resispec_verify.report.contents.panels", lambda *_, **__: ["<svg></svg>"])


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Where workers will share the cache of compiled kernels, fill it before the first of them starts."""
    here = session.config
    if getattr(here.option, "tx", None) and not hasattr(here, "workerinput") and not here.option.collectonly:
        before_workers()
