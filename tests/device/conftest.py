"""The kernels, compiled for the processor once."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulator import build


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled without a warning."""
    return build(tmp_path_factory.mktemp("kernels"), "-O2", "-Wall", "-Wextra", "-Werror")
