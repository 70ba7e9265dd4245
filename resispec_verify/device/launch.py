"""Where the kernels run: an array namespace and a way to launch a kernel by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Any, Protocol

import numpy as np

from resispec_verify.backends import get_backend
from resispec_verify.device.staging import staged

__all__ = ["OPTIONS", "SOURCE", "CupyDevice", "Device"]

#: CUDA C++ of all kernels.
SOURCE = resources.files("resispec_verify.device").joinpath("replay.cu").read_text(encoding="utf-8")
#: For NVRTC. A product and a sum are rounded apart, as on the CPU.
OPTIONS = ("--std=c++14", "-fmad=false")


class Device(Protocol):
    """What the host code asks of a device.

    Attributes
    ----------
    xp : namespace
        Of NumPy's interface; its arrays are what kernels read and write.
    most_threads : int
        Threads a block, a power of two.
    """

    xp: Any
    most_threads: int

    def launch(self, kernel: str, blocks: int, threads: int, *arguments: Any) -> None:
        """Run a kernel of `SOURCE` on contiguous arrays of ``xp`` and NumPy scalars of the declared types."""
        ...

    def stage(self, batches: Iterable[tuple[np.ndarray, ...]]) -> Iterator[tuple[Any, ...]]:
        """The batches as arrays of the device; each is valid until the next is asked for."""
        ...


class CupyDevice:
    """CuPy's current device and stream; kernels are compiled at their first launch, and cached by CuPy.

    Raises
    ------
    InputError
        No CuPy, or no device answers.
    """

    most_threads = 1024

    def __init__(self) -> None:
        get_backend("cupy")  # says what is missing
        import cupy  # pyright: ignore[reportMissingImports]

        self.xp = cupy
        self._module = cupy.RawModule(code=SOURCE, options=OPTIONS, backend="nvrtc")
        self._kernels: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """The device's own name."""
        properties = self.xp.cuda.runtime.getDeviceProperties(self.xp.cuda.Device().id)
        return properties["name"].decode()

    def wait(self) -> None:
        """Wait for all work put on the current stream."""
        self.xp.cuda.get_current_stream().synchronize()

    def launch(self, kernel: str, blocks: int, threads: int, *arguments: Any) -> None:
        """See `Device.launch`."""
        if kernel not in self._kernels:
            self._kernels[kernel] = self._module.get_function(kernel)
        self._kernels[kernel]((blocks,), (threads,), arguments)

    def stage(self, batches: Iterable[tuple[np.ndarray, ...]]) -> Iterator[tuple[Any, ...]]:
        """See `Device.stage`; copies overlap with computing."""
        return staged(batches, self.xp)
