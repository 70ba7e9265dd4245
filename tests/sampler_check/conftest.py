"""Samplers in a module of the working folder, and checks in this process."""

from __future__ import annotations

import sys

import pytest
from check_helpers import GOOD

from resispec_verify.cli import check_apart, check_child


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "samplers_of_mine.py").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "samplers_of_mine"
    sys.modules.pop("samplers_of_mine", None)


@pytest.fixture
def here(monkeypatch):
    """Checks run in this process: for what is the same in one of their own, which takes a second to start."""
    monkeypatch.setattr(check_apart, "run_apart", lambda job: check_child._checked(job, lambda kind: None))
