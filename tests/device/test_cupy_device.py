"""The lines that talk to CuPy, on a fake one: NumPy's functions, and kernels run on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from emulator import EmulatedDevice
from fake_cupy import install

from resispec_verify.device import CupyDevice
from resispec_verify.device.replay_dump import replay_dump
from resispec_verify.dumps.kinds.flat import flat_from_mapping


@pytest.fixture
def emulated(program):
    return EmulatedDevice(program, 4)


@pytest.fixture
def device(emulated, monkeypatch):
    install(emulated, monkeypatch)
    return CupyDevice()


def test_names_the_device_and_waits(device):
    assert device.name == "a fake"
    device.wait()


@pytest.mark.parametrize("rule", ["specinfer", "resispec"])
def test_replays_as_any_device(device, emulated, rule):
    rng = np.random.default_rng(0)
    target, draft = rng.standard_normal((2, 5, 12)).astype(np.float32)
    dump = flat_from_mapping("a dump", {"target_logits": target, "draft_logits": draft})
    found, right = (replay_dump(dump, d, rule, 2, gap=0.0, batch=2) for d in (device, emulated))
    assert (found.tv > 1e-3).any() == (rule == "resispec")
    for ours, theirs in zip(found, right, strict=True):
        # Atomic additions in any order: as many roundings as paths, here at most 12 + 12 * 12.
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=200 * np.finfo(np.float64).eps)
