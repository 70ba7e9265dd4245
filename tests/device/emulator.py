"""The CUDA kernels on the CPU: `replay.cu` compiled as C++, launched on NumPy arrays."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resispec_verify.device import SOURCE

COMPILER = shutil.which("g++") or shutil.which("clang++")
# As the GPU build: no product and sum in one rounding.
FLAGS = ("-std=c++17", "-ffp-contract=off", "-pthread")


def build(folder: Path, *flags: str, source: str = SOURCE) -> Path:
    """Compile the kernels and the program that runs them."""
    if COMPILER is None or sys.platform != "linux":
        pytest.skip("no g++ or clang++ on Linux to run the CUDA kernels on the CPU with")
    (folder / "replay.cu").write_text(source, encoding="utf-8")
    program = folder / "emulate"
    command = [COMPILER, *FLAGS, *flags, f'-DREPLAY_SOURCE="{folder / "replay.cu"}"']
    command += [str(Path(__file__).with_name("emulate.cpp")), "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return program


class EmulatedDevice:
    """A `Device` whose arrays are NumPy's."""

    xp, name = np, "emulated"

    def __init__(self, program: Path, most_threads: int) -> None:
        self.program, self.most_threads = program, most_threads
        self.launches: list[str] = []

    def stage(self, batches: Iterable[tuple[np.ndarray, ...]]) -> Iterator[tuple[np.ndarray, ...]]:
        """There is nothing to copy."""
        yield from batches

    def launch(self, kernel: str, blocks: int, threads: int, *arguments: Any) -> None:
        """Run a kernel; raises `CalledProcessError` where a sanitizer finds fault."""
        self.launches.append(kernel)
        with tempfile.TemporaryDirectory() as name:
            words = []
            for i, argument in enumerate(arguments):
                if isinstance(argument, np.ndarray):
                    assert argument.flags.c_contiguous
                    words.append(f"{name}/{i}")
                    argument.tofile(words[-1])
                else:
                    assert isinstance(argument, np.generic)  # Python numbers have no declared width
                    words.append(repr(argument.item()))
            subprocess.run(
                [self.program, kernel, str(blocks), str(threads), *words],
                check=True, capture_output=True, text=True, timeout=120,
            )  # fmt: skip
            for word, argument in zip(words, arguments, strict=True):
                if isinstance(argument, np.ndarray) and argument.size:
                    after = np.fromfile(word, argument.dtype).reshape(argument.shape)
                    if argument.flags.writeable:
                        argument[...] = after
                    else:  # rows on a memory map
                        assert after.tobytes() == argument.tobytes()
