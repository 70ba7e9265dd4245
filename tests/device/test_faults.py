"""The tests of test_kernels.py find faulty kernels; and the kernels run under sanitizers."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys

import numpy as np
import pytest
import test_kernels as kernels
from emulator import EmulatedDevice, build

from resispec_verify.device import SOURCE, batched_paths, path_sums, softmax, specinfer_rounds

FAULTS = {
    "a hole is forgotten": ("if (path.hole[h] == j) child.free = 0.0;", ";"),
    "U before is placed on the rejected token": ("+ c * child.free);", ");"),
    "the rank is one off": ("row.ratio[middle] < t", "row.ratio[middle] <= t * 1.5"),
    "a share is not passed up": ("atomicAdd(&parents[path.parent].share, up);", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_kernel_is_found(tmp_path, fault):
    right, wrong = FAULTS[fault]
    assert SOURCE.count(right) == 1
    device = EmulatedDevice(build(tmp_path, "-O0", source=SOURCE.replace(right, wrong)), 1)
    with pytest.raises(AssertionError):
        kernels.test_paths_against_the_processor(kernels.Walker.of(device), 3)


ARRAY_FAULTS = {
    "a hole is forgotten": ("free = xp.where(hole == j, 0.0, free)", "pass"),
    "U before is placed on the rejected token": ("w * own + up * free", "w * own"),
    "the rank is one off": ("(self.ratio[row, :], t[a:b])", "(self.ratio[row, :], 1.5 * t[a:b])"),
    "a share is not passed up": ("w, up = 1.0 + share * w, share * c", "w, up = 1.0 + share * w, 0.0 * c"),
    "a hole is not rejected again": ("(hole >= rank)", "(hole < 0)"),
    "a chunk's path is of another row": ("base = row * self.wide", "base = 0 * row"),
}  # fmt: skip


@pytest.mark.parametrize("fault", ARRAY_FAULTS)
def test_a_faulty_array_function_is_found(tmp_path, fault, monkeypatch):
    right, wrong = ARRAY_FAULTS[fault]
    source = inspect.getsource(batched_paths)
    assert source.count(right) == 1
    (tmp_path / "faulty_paths.py").write_text(source.replace(right, wrong), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("faulty_paths", tmp_path / "faulty_paths.py")
    faulty = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "faulty_paths", faulty)
    spec.loader.exec_module(faulty)
    with pytest.raises(AssertionError):
        kernels.test_paths_against_the_processor(kernels.Walker(faulty.path_sums, np), 3)


def sanitized(folder, sanitizer, source=SOURCE):
    """A device of four threads under a sanitizer; skips where there is none."""
    try:
        device = EmulatedDevice(build(folder, "-O0", *sanitizer, source=source), 4)
        device.launch("softmax_float64", 1, 1, np.zeros(1), np.zeros(1), np.int64(1), np.float64(1))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"{sanitizer[0]} does not work here: {(error.stderr or 'killed').splitlines()[0]}")
    return device


MEMORY = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
RACES = ("-fsanitize=thread",)


@pytest.mark.parametrize("sanitizer", [MEMORY, RACES], ids=["memory", "races"])
def test_no_stray_access_and_no_race(tmp_path, sanitizer):
    device = sanitized(tmp_path, sanitizer)
    target, draft = kernels.random_pairs(11, 3)
    softmax(device, np.log(target + 1).astype(np.float16))
    specinfer_rounds(device, *kernels.random_pairs(9, 100), 3)
    kernels.check_paths(kernels.Walker.of(device), target, draft, 3, room=13)


def test_a_missing_barrier_is_a_race(tmp_path):
    """Seen where two threads do meet, which one run on busy cores may not show: hence several."""
    barrier = "    __syncthreads();\n  }\n  return partial[0];"
    assert SOURCE.count(barrier) == 2
    device = sanitized(tmp_path, RACES, SOURCE.replace(barrier, "  }\n  return partial[0];"))

    def often():
        for _ in range(25):
            specinfer_rounds(device, *kernels.random_pairs(9, 1000), 3)

    with pytest.raises(subprocess.CalledProcessError):
        often()


def test_a_write_past_the_end_is_found(tmp_path):
    guard = "if (at >= rows) return;"
    assert SOURCE.count(guard) == 1
    device = sanitized(tmp_path, MEMORY, SOURCE.replace(guard, ""))
    with pytest.raises(subprocess.CalledProcessError):
        path_sums(device, *kernels.random_pairs(9, 3), 1)
