"""The kernels compile for GPUs, without one: through NVRTC, the compiler that CuPy uses."""

from __future__ import annotations

import ctypes
import re
from importlib import metadata

import pytest

from resispec_verify.device import OPTIONS, SOURCE

PACKAGE = "nvidia-cuda-nvrtc-cu12"
KERNELS = {
    "softmax_float16", "softmax_bfloat16", "softmax_float32", "softmax_float64", "specinfer_rounds",
    "start_paths", "expand_paths", "reject_last", "close_paths",
}  # fmt: skip


@pytest.fixture(scope="module")
def nvrtc() -> ctypes.CDLL:
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"{PACKAGE} is not installed")
    libraries = [f for f in files if re.match(r"(libnvrtc\.so\.\d+|nvrtc64_.*\.dll)$", f.name)]
    try:
        return ctypes.CDLL(str(libraries[0].locate()))
    except OSError as error:
        pytest.skip(f"NVRTC does not load: {error}")


def compiled(
    nvrtc: ctypes.CDLL, source: str, arch: str, chosen: tuple[str, ...] = OPTIONS
) -> tuple[int, str, str]:
    """Status, log and PTX."""
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"replay.cu", 0, None, None) == 0
    options = [option.encode() for option in (*chosen, f"--gpu-architecture={arch}")]
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))

    def text(kind: str) -> str:
        size = ctypes.c_size_t()
        assert getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)) == 0
        buffer = ctypes.create_string_buffer(size.value)
        assert getattr(nvrtc, f"nvrtcGet{kind}")(program, buffer) == 0
        return buffer.value.decode()

    return status, text("ProgramLog"), "" if status else text("PTX")


@pytest.mark.parametrize("arch", ["compute_60", "compute_75", "compute_90"])
def test_kernels_compile_without_a_warning(nvrtc, arch):
    status, log, ptx = compiled(nvrtc, SOURCE, arch)
    assert status == 0, log
    # That an architecture is old is NVRTC's own remark.
    assert [line for line in log.splitlines() if line and "Architectures prior to" not in line] == []
    assert set(re.findall(r"\.entry (\w+)", ptx)) == KERNELS
    assert re.search(r"(atom|red)\.global\.add\.f64", ptx)  # the hardware's, not a loop
    assert ".maxntid" in ptx  # registers are rationed so that a block of 1024 threads can start
    assert "fma.rn.f64" not in entry(ptx, "reject_last")
    contracted = compiled(nvrtc, SOURCE, arch, OPTIONS[:1])[2]
    assert "fma.rn.f64" in entry(contracted, "reject_last")  # what the option is for


def entry(ptx: str, kernel: str) -> str:
    """The code of one kernel."""
    start = ptx.index(f".entry {kernel}(")
    return ptx[start : ptx.index("\n}", start)]


def test_the_host_launches_these_kernels():
    assert set(re.findall(r"^KERNEL (\w+)\(", SOURCE, re.MULTILINE)) == KERNELS


def test_a_kernel_that_does_not_compile_is_reported(nvrtc):
    status, log, _ = compiled(nvrtc, SOURCE.replace("atomicAdd", "addAtomically", 1), "compute_75")
    assert status != 0
    assert "addAtomically" in log
