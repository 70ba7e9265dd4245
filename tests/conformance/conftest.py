"""Every test of this folder runs on every array library; see `libraries`."""

from __future__ import annotations

import pytest
from libraries import Library, settings


@pytest.fixture(params=settings())
def setting(request) -> tuple[Library, str]:
    request.param[0].needed()
    return request.param


@pytest.fixture
def library(setting) -> Library:
    return setting[0]


@pytest.fixture
def dtype(setting) -> str:
    return setting[1]
