"""Settings shared by all tests: property tests draw the same examples on every run."""

from __future__ import annotations

import pytest
from compile_kernels import before_workers
from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of a page are made, but not rendered: that is what takes the time."""
    monkeypatch.setattr("resispec_verify.report.plots.svg.panels", lambda figure, prefix: ["<svg></svg>"])


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Where workers will share the cache of compiled kernels, fill it before the first of them starts."""
    here = session.config
    if getattr(here.option, "tx", None) and not hasattr(here, "workerinput") and not here.option.collectonly:
        before_workers()
