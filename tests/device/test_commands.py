"""Commands with `--backend cupy` on a fake CuPy: its arrays are NumPy's, its kernels run on the CPU."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from emulator import EmulatedDevice
from fake_cupy import install
from safetensors.numpy import save_file

import resispec_verify.backends as backends
from resispec_verify.backends import get_backend
from resispec_verify.cli import main, resumable
from resispec_verify.device import batched_paths, dispatch
from resispec_verify.dumps.kinds.flat import flat_from_mapping
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.rules import ResiSpec, SpecInfer
from resispec_verify.runs.over_dumps import evaluate_dump
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import Reading

POSITIONS, VOCAB = 4, 30


@pytest.fixture
def emulated(program, monkeypatch):
    device = EmulatedDevice(program, 4)
    install(device, monkeypatch)
    # Arrays of the fake are told from NumPy's by nothing: all are taken for CuPy's.
    monkeypatch.setattr(backends, "is_cupy_array", lambda array: isinstance(array, np.ndarray))
    monkeypatch.setattr(dispatch, "is_cupy_array", lambda array: isinstance(array, np.ndarray))
    dispatch._kernels.cache_clear()
    yield device
    dispatch._kernels.cache_clear()


def logits(dtype=np.float16) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = {f"{name}_logits": 2 * rng.standard_normal((POSITIONS, VOCAB)) for name in ("target", "draft")}
    return {name: values.astype(dtype) for name, values in rows.items()}


def saved(path, dtype):
    save_file(logits(dtype), path)
    return str(path)


def reports(command, dump, capsys, *more):
    """Results on the fake and on NumPy, row by row."""
    found = []
    for backend in ("cupy", "numpy"):
        words = [command, "--logits", dump, "--backend", backend, *more, "--json", "-"]
        assert main(words) == 0
        found.append(json.loads(capsys.readouterr().out)["results"])
    return zip(*found, strict=True)


@pytest.mark.parametrize(
    ("candidates", "gap", "dtype"),
    [
        (1, None, np.float16),
        (2, None, ml_dtypes.bfloat16),
        (3, None, np.float16),
        (3, "0.01", np.float32),
        (4, "0.01", np.float16),
    ],
)
def test_kl(emulated, tmp_path, capsys, monkeypatch, candidates, gap, dtype):
    monkeypatch.setattr(resumable, "compile_kernels", lambda evaluation: None)  # its arrays are NumPy's
    dump = saved(tmp_path / "dump.safetensors", dtype)
    more = ["--gap", gap] if gap else []
    for ours, right in reports("kl", dump, capsys, "--candidates", str(candidates), *more):
        assert ours["verdict"] == right["verdict"]
        assert ours["rule"] == right["rule"]
        if ours["marginal"] != "operational":
            continue
        room = ours["gap_max"] + right["gap_max"] + ours["rounding_max"] + right["rounding_max"]
        assert abs(ours["tv_mean"] - right["tv_mean"]) <= room
        assert abs(sum(ours["acceptance"]) - sum(right["acceptance"])) <= 2 * room
        assert ours["gap_max"] <= float(gap or 1e-3)
    # The kernels have room for three candidates; beyond that, array functions.
    assert ("reject_last" in emulated.launches) == (candidates <= 3)


def test_limits(emulated, tmp_path, capsys):
    dump = saved(tmp_path / "dump.safetensors", np.float16)
    for ours, right in reports("limits", dump, capsys, "--rule", "resispec"):
        low, high = ours["acceptance_mean_bounds"]
        assert low <= right["acceptance_mean_bounds"][1] + 1e-9
        assert high >= right["acceptance_mean_bounds"][0] - 1e-9
        assert ours["limit_mean"] == pytest.approx(right["limit_mean"], abs=1e-12)
    assert "reject_last" in emulated.launches


def evaluated(backend, batch, note=lambda line: None):
    dump = flat_from_mapping("a dump", logits())
    evaluation = Evaluation((ResiSpec(), SpecInfer()), 3, identity=False, budget=Budget())
    table = evaluate_dump(dump, Reading(batch=batch), evaluation, backend=get_backend(backend), note=note)
    return {row.rule.name: row for row in table.rows}


@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "array functions"])
def test_where_the_device_is_full_batches_are_halved(emulated, monkeypatch, kernels):
    whole, notes, asked = evaluated("cupy", 4), [], []

    def full(rows):
        asked.append(rows)
        if rows > 1:
            raise MemoryError("cudaErrorMemoryAllocation")

    if kernels:
        launch = emulated.launch

        def launched(kernel, blocks, threads, *arguments):
            if kernel == "start_paths":
                full(len(arguments[0]))
            launch(kernel, blocks, threads, *arguments)

        monkeypatch.setattr(emulated, "launch", launched)
    else:
        walk = batched_paths._ArrayWalk.run

        def run(self):
            full(self.rows)
            return walk(self)

        monkeypatch.setattr(batched_paths._ArrayWalk, "run", run)
        monkeypatch.setattr(dispatch, "_sums", lambda target, candidates: batched_paths.path_sums)
    parts = evaluated("cupy", 4, notes.append)
    assert asked[:3] == [4, 2, 1]
    assert len(notes) == 2
    for name, row in parts.items():
        assert row.position == whole[name].position
        assert row.verdict == whole[name].verdict
        room = np.asarray(row.gap) + whole[name].gap + row.rounding + whole[name].rounding
        assert (np.abs(np.asarray(row.tv) - whole[name].tv) <= room).all()


def test_room_shrinks_with_the_batch():
    assert batched_paths.room_for(2, 50_000, 3) == 2 * batched_paths.room_for(1, 50_000, 3)
    assert batched_paths.room_for(1, 300_000, 3) == 300_003
    assert batched_paths.room_for(64, 50_000, 3) == 1 << 22
