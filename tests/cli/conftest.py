"""Fixtures of the command-line tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_helpers import EXAMPLE, Result, command, drawn, save


@pytest.fixture
def heard() -> Iterator[None]:
    """Interrupts arrive here and in what is started, also where this was started without them (``nohup``)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Five positions, six tokens."""
    return save(tmp_path / "dump.pt", drawn(5, 6, seed=1), drawn(5, 6, seed=2))


@pytest.fixture(scope="session")
def example_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """The real command on the real example: its report on standard output, its CSV in a file."""
    path = tmp_path_factory.mktemp("example") / "positions.csv"
    return command("kl", "--logits", EXAMPLE, "--json", "-", "--csv", path), path
