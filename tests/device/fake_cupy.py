"""A fake CuPy: NumPy's functions, and kernels run on the CPU."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import array_api_compat.numpy
import numpy as np
import pytest
from emulator import EmulatedDevice

from resispec_verify.device import OPTIONS, SOURCE, CupyDevice


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


def install(emulated: EmulatedDevice, patch: pytest.MonkeyPatch) -> None:
    """Let `import cupy` find the fake; its device launches on the emulated one."""

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
    standard = ModuleType("array_api_compat.cupy")
    standard.__dict__.update({k: v for k, v in vars(array_api_compat.numpy).items() if k[:2] != "__"})
    patch.setitem(sys.modules, "cupy", cupy)
    patch.setitem(sys.modules, "array_api_compat.cupy", standard)
    patch.setattr(CupyDevice, "most_threads", emulated.most_threads)
