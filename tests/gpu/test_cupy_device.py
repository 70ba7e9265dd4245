"""The lines that talk to CuPy, on a fake one: NumPy's functions, and kernels run on the CPU."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from emulator import EmulatedDevice, build

from resispec_verify.analysis.gpu_replay import replay_dump
from resispec_verify.dumps.flat import flat_from_mapping
from resispec_verify.kernels.gpu import OPTIONS, SOURCE, CupyDevice


class Event:
    def record(self, stream=None) -> None:
        pass

    def synchronize(self) -> None:
        pass


class Stream:
    def __init__(self, non_blocking: bool = False) -> None:
        pass

    def record(self) -> Event:
        return Event()

    def wait_event(self, event: Event) -> None:
        pass

    def synchronize(self) -> None:
        pass


class Array(np.ndarray):
    def set(self, host: np.ndarray, stream: Stream) -> None:
        self[...] = host


@pytest.fixture
def emulated(tmp_path):
    return EmulatedDevice(build(tmp_path, "-O2"), 4)


@pytest.fixture
def device(emulated, monkeypatch):
    class RawModule:
        def __init__(self, *, code: str, options: tuple[str, ...], backend: str) -> None:
            assert (code, options, backend) == (SOURCE, OPTIONS, "nvrtc")

        def get_function(self, name: str):
            def kernel(grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple) -> None:
                emulated.launch(name, *grid, *block, *arguments)

            return kernel

    cupy = ModuleType("cupy")
    cupy.__dict__.update({name: value for name, value in vars(np).items() if not name.startswith("_")})
    cupy.__dict__.update(
        RawModule=RawModule,
        ndarray=type("NoArray", (), {}),
        empty=lambda shape, dtype=float: np.empty(shape, dtype).view(Array),
        cuda=SimpleNamespace(
            runtime=SimpleNamespace(
                getDeviceCount=lambda: 1, getDeviceProperties=lambda i: {"name": b"a fake"}
            ),
            Device=lambda: SimpleNamespace(id=0),
            Event=Event,
            Stream=Stream,
            get_current_stream=Stream,
            alloc_pinned_memory=bytearray,
        ),
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "array_api_compat.cupy", ModuleType("array_api_compat.cupy"))
    monkeypatch.setattr(CupyDevice, "most_threads", emulated.most_threads)
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
