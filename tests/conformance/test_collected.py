"""Which settings are collected is said, in one line."""

from __future__ import annotations

import pytest
from devices import ASK, cuda_is_collected
from libraries import LIBRARIES, settings


@pytest.mark.gpu
def test_settings_on_a_cuda_device_are_collected():
    if not cuda_is_collected():
        pytest.skip(f"CUDA settings not collected: no device ({ASK}=1 collects them all the same)")
    assert {setting.values[0][0].name for setting in settings()} == {library.name for library in LIBRARIES}


def test_every_other_library_is_collected():
    assert {setting.values[0][0].name for setting in settings()} >= {
        library.name for library in LIBRARIES if not library.gpu
    }
