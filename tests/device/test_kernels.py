"""The CUDA kernels against NumPy and the rational oracle: on a GPU where there is one, else run on the CPU.

On the CPU it is the same text with the same host code; what that cannot show is the hardware's behaviour: its
exp, its memory, its schedule.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import math
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from devices import cuda_is_collected
from emulator import EmulatedDevice, build

from resispec_verify import oracle
from resispec_verify.device import (
    SOURCE,
    CupyDevice,
    batched_paths,
    path_sums,
    softmax,
    specinfer_rounds,
)
from resispec_verify.device.batched_paths import chunks
from resispec_verify.device.host import block_summation_error
from resispec_verify.distributions import Sampling
from resispec_verify.dumps import open_dump
from resispec_verify.errors import InputError
from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.marginal import rounding_bound, summation_error
from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.paths.path_sum import PathSum
from resispec_verify.kernels.paths.shaped import shaped_marginal
from resispec_verify.rules import SpecInfer

EXAMPLE = Path(__file__).parents[2] / "examples" / "smollm2-skip6-N8-fp16.pt"
EPS = float(np.finfo(np.float64).eps)
TRANSCENDENTAL = 8  # units that two exponentials, a libm's and the device's, may differ by


def made(request):
    """The device that a fixture's parameter names."""
    if request.param == "cupy":
        try:
            return CupyDevice()
        except InputError as error:
            pytest.skip(str(error))
    return EmulatedDevice(request.getfixturevalue("program"), int(request.param[0]))


CUPY = [pytest.param("cupy", marks=pytest.mark.gpu)] if cuda_is_collected() else []


@pytest.fixture(params=["1 thread", "4 threads", *CUPY])
def device(request):
    return made(request)


class Walker(NamedTuple):
    """What follows paths, and the namespace of its arrays."""

    sums: Callable[..., PathSum]
    xp: Any

    @classmethod
    def of(cls, device: Any) -> Walker:
        return cls(functools.partial(path_sums, device), device.xp)

    def within(self, target, draft, candidates, gap, most_paths=5e7) -> PathSum:
        arrays = (self.xp.asarray(rows) for rows in (target, draft))
        return batched_paths.shaped_marginals(self.sums, *arrays, candidates, gap=gap, most_paths=most_paths)


@pytest.fixture(params=["1 thread", "4 threads", "arrays", *CUPY])
def walker(request):
    """The kernels of a device, or array functions."""
    if request.param == "arrays":
        return Walker(batched_paths.path_sums, np)
    return Walker.of(made(request))


def host(array) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Rows in sixty-fourths: zeros on both sides, ties, p = q, one-hots, disjoint supports."""
    target = [[20, 4, 8, 0, 16, 16], [1, 1, 1, 1, 0, 60], [12, 12, 12, 12, 12, 4], [0, 64, 0, 0, 0, 0],
              [32, 32, 0, 0, 0, 0], [0, 64, 0, 0, 0, 0], [2, 4, 8, 16, 32, 2]]  # fmt: skip
    draft = [[4, 20, 8, 16, 16, 0], [16, 16, 16, 0, 8, 8], [12, 12, 12, 12, 12, 4], [1, 2, 3, 4, 5, 49],
             [0, 0, 16, 16, 16, 16], [0, 64, 0, 0, 0, 0], [32, 16, 8, 4, 2, 2]]  # fmt: skip
    return np.array(target) / 64, np.array(draft) / 64


def random_pairs(vocab: int, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    target, draft = (rng.dirichlet(np.full(vocab, a), rows) for a in (0.3, 0.6))
    target[0, ::3] = draft[-1, 1::3] = 0.0
    return target / target.sum(-1, keepdims=True), draft / draft.sum(-1, keepdims=True)


# Softmax


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_value_of_two_bytes_widens_exactly(program, name):
    bits = np.arange(1 << 16, dtype=np.uint16)
    out = np.empty(bits.size)
    EmulatedDevice(program, 1).launch(f"widen_{name}", bits.size, 1, bits, out)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        right = bits.view(getattr(ml_dtypes, name, np.float16)).astype(np.float64)
    np.testing.assert_array_equal(out, right)
    np.testing.assert_array_equal(np.signbit(out)[right == 0], np.signbit(right)[right == 0])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("vocab", [1, 3, 130])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_softmax(device, name, vocab, temperature):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    logits = (np.random.default_rng(vocab).standard_normal((3, vocab)) * 5).astype(dtype)
    logits[0, 1:] = -np.inf
    given = logits.view(np.uint16) if name == "bfloat16" else logits
    law = host(
        softmax(device, device.xp.asarray(given), temperature=temperature, bfloat16=name == "bfloat16")
    )
    right = Sampling(temperature).probabilities(logits.astype(np.float64), dtype=np.float64)
    # exp of x <= 0: its argument is off by |x| units at most, and |x| e^x < 1.
    sums = summation_error(vocab) + block_summation_error(vocab, min(device.most_threads, 1024))
    assert np.abs(law - right).max() <= EPS * (TRANSCENDENTAL + sums)
    assert (law[0, 1:] == 0).all()


def test_softmax_says_what_it_cannot_do(program):
    device = EmulatedDevice(program, 1)
    with pytest.raises(InputError, match="temperature must be above 0"):
        softmax(device, np.zeros((1, 2)), temperature=0.0)
    with pytest.raises(InputError, match="dtype uint16"):  # bits of which type?
        softmax(device, np.zeros((1, 2), np.uint16))


# SpecInfer


@pytest.mark.parametrize("rounds", [0, 1, 3, 16])
@pytest.mark.parametrize("rows", [pairs(), random_pairs(131, 4)], ids=["fractions", "random"])
def test_specinfer_rounds(device, rounds, rows):
    target, draft = rows
    xp = device.xp
    placed, accepted = specinfer_rounds(device, xp.asarray(target), xp.asarray(draft), rounds)
    right = operational_marginals(SpecInfer(), target, draft, rounds)
    own = 2 * block_summation_error(target.shape[-1], min(device.most_threads, 1024)) + 8
    bound = right.rounding + rounding_bound(target, draft, rounds, own, EPS)
    assert (0.5 * np.abs(host(placed) - right.placed).sum(-1) <= bound).all()
    assert (np.abs(host(accepted) - right.acceptance) <= 2 * bound[:, None]).all()


def test_specinfer_says_how_many_rounds_it_has_room_for(program):
    with pytest.raises(InputError, match="0 to 16"):
        specinfer_rounds(EmulatedDevice(program, 1), np.ones((1, 1)), np.ones((1, 1)), 17)


# ResiSpec


def path_bound(target, draft, candidates, paths) -> np.ndarray:
    """The bound of `evidence` on a path sum, for one side; atomic additions are sums in some order."""
    roundings = 3.0 * target.shape[-1] + paths + 24
    return np.asarray(
        [rounding_bound(p, q, candidates, r, EPS) for p, q, r in zip(target, draft, roundings, strict=True)]
    )


def assert_close(found, rows, target, draft) -> None:
    """``found`` of the device beside the mass, acceptance and rest of every row."""
    candidates = host(found.acceptance).shape[-1]
    bound = 2 * path_bound(target, draft, candidates, host(found.paths))
    for name, theirs in zip(("mass", "acceptance", "unexpanded"), zip(*rows, strict=True), strict=True):
        error = np.abs(host(getattr(found, name)) - np.stack(theirs)).sum(-1)
        assert (error <= 2 * bound).all(), (name, error, bound)


def check_paths(walker, target, draft, candidates, **options):
    """All paths against the compiled path sums of the CPU; returns how many there were."""
    xp = walker.xp
    found = walker.sums(xp.asarray(target), xp.asarray(draft), candidates, **options)
    right = [
        shaped_marginal(ratio_order(p, q), candidates, 0.0, math.inf)
        for p, q in zip(target, draft, strict=True)
    ]
    paths = host(found.paths)
    # One candidate has a closed form on the CPU, which counts no paths.
    many = (draft > target).sum(-1) if candidates == 1 else [row.paths for row in right]
    np.testing.assert_array_equal(paths, many)
    rows = [(row.mass, row.acceptance, row.unexpanded) for row in right]
    assert_close(found, rows, target, draft)
    return paths


def followed(p, q, candidates, theta) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The recursion of `shaped_paths` on whole vectors, without ranks, atoms or shares."""
    mass, acceptance, rest = np.minimum(p, q), np.zeros(candidates), np.zeros(candidates + 1)
    acceptance[0] = mass.sum()

    def go_on(t, U, rejected, level) -> None:
        for x in range(len(p)):
            t_next = t * q[x] - (0.0 if x in rejected else p[x])
            if t_next <= 0:
                continue
            holes = {*rejected, x}
            clipped = np.minimum(t_next * q, p)
            clipped[list(holes)] = 0.0
            D = t_next - clipped.sum()
            if level + 1 < candidates:
                mass[:] += clipped
                acceptance[level + 1] += clipped.sum()
                # What following it costs: its next rejections, and the tokens rejected before.
                cost = np.count_nonzero(np.greater(t_next * q, p)) + sum(p[h] > 0 for h in rejected) + 1
                if not (D > 0 and theta[level + 1] * cost <= D):
                    rest[level + 2] += max(D, 0.0)
                    continue
            c = D / (t * (1 - q[x]) + D) if D > 0 else 0.0
            U_next = (1 - c) * clipped + c * U
            U_next[list(holes)] = 0.0
            if level + 1 == candidates:
                mass[:] += U_next
            else:
                go_on(t_next, U_next, holes, level + 1)

    go_on(1.0, p, set(), 0)
    return mass, acceptance, rest


@pytest.mark.parametrize("candidates", [1, 2, 3])
def test_paths_against_the_oracle(walker, candidates):
    target, draft = pairs()
    found = walker.sums(walker.xp.asarray(target), walker.xp.asarray(draft), candidates)
    bound = path_bound(target, draft, candidates, host(found.paths))
    for i in range(len(target)):
        p, q = ([Fraction(int(64 * x), 64) for x in row[i]] for row in (target, draft))
        right = oracle.marginal("resispec", p, q, candidates)
        law, acceptance = (np.array([float(x) for x in v]) for v in (right.law, right.acceptance))
        assert 0.5 * np.abs(host(found.mass)[i] - law).sum() <= bound[i]
        assert np.abs(host(found.acceptance)[i] - acceptance).sum() <= 2 * bound[i]
    assert (host(found.unexpanded) == 0).all()


@pytest.mark.parametrize("candidates", [1, 2, 3])
def test_paths_against_the_processor(walker, candidates):
    # Integers over one denominator: enough ties for tokens to be rejected twice.
    rng = np.random.default_rng(candidates)
    target, draft = rng.integers(0, 4, (2, 5, 9)) + np.array([0.0, 0.25])[:, None, None]
    target, draft = (rows / rows.sum(-1, keepdims=True) for rows in (target, draft))
    check_paths(walker, target, draft, candidates)
    check_paths(walker, *random_pairs(24, 2), candidates)


def test_chunks_do_not_change_the_sums(walker):
    target, draft = random_pairs(12, 3)
    whole = check_paths(walker, target, draft, 3)
    assert (check_paths(walker, target, draft, 3, room=14) == whole).all()  # one parent or two at a time


@pytest.mark.parametrize("theta", [0.0, 1e-4, 1e-3, 1e-2, np.inf])
def test_thresholds_leave_the_right_paths_unexpanded(walker, theta):
    # No D / cost of these rows lies within rounding of a threshold.
    target, draft = random_pairs(8, 2, seed=3)
    xp, theta = walker.xp, np.array([[0.0, theta, theta, 0.0], [0.0, theta / 2, theta * 2, 0.0]])
    found = walker.sums(xp.asarray(target), xp.asarray(draft), 3, theta)
    right = [followed(p, q, 3, row) for p, q, row in zip(target, draft, theta, strict=True)]
    assert_close(found, right, target, draft)


@pytest.mark.parametrize("gap", [0.0, 1e-3, 1e-6])
def test_a_gap_is_reached(walker, gap):
    target, draft = random_pairs(20, 4, seed=5)
    found = walker.within(target, draft, 3, gap)
    left, mass = host(found.unexpanded).sum(-1), host(found.mass)
    assert (left <= gap).all()
    bound = 2 * path_bound(target, draft, 3, host(found.paths))
    assert (np.abs(mass.sum(-1) + left - 1) <= bound).all()
    for p, q, m, rest, b in zip(target, draft, mass, left, bound, strict=True):
        whole = shaped_marginal(ratio_order(p, q), 3, 0.0, math.inf).mass
        assert (m <= whole + b).all()  # what is left out only adds
        assert np.abs(whole - m).sum() <= rest + 2 * b


def test_a_budget_ends_the_search(walker):
    target, draft = random_pairs(20, 2, seed=5)
    found = walker.within(target, draft, 3, 1e-12, most_paths=10)
    assert (host(found.unexpanded).sum(-1) > 1e-12).any()


def test_paths_on_a_wide_row(walker):
    target, draft = random_pairs(3000, 2, seed=1)
    assert check_paths(walker, target, draft, 1).sum() > 1000


@pytest.mark.parametrize(("candidates", "tokens"), [(1, 49152), (2, 2000), (3, 400)])
def test_paths_on_real_rows(walker, candidates, tokens):
    """Rows of the example, cut to the target's most probable tokens so that all paths can be followed."""
    batch = open_dump(EXAMPLE).batch(0, 2)
    best = np.argsort(-batch.target, axis=-1)[:, :tokens]
    cut = (np.take_along_axis(rows, best, axis=-1) for rows in batch[:2])
    target, draft = (Sampling().probabilities(rows, dtype=np.float64) for rows in cut)
    assert check_paths(walker, target, draft, candidates).min() > 1000


def test_paths_say_what_they_cannot_do(program):
    device, row = EmulatedDevice(program, 1), np.full((1, 4), 0.25)
    with pytest.raises(InputError, match="1 to 3"):
        path_sums(device, row, row, 4)
    with pytest.raises(InputError, match="at least 6"):
        path_sums(device, row, row, 2, room=5)


def test_chunks_cover_all_parents_within_the_room():
    rng = np.random.default_rng(0)
    for room in (5, 9, 1000):
        costs = rng.integers(0, 6, 50)
        ranges = list(chunks(costs, room))
        followed = [i for one in ranges for i in range(*one)]
        assert len(set(followed)) == len(followed)
        assert set(np.flatnonzero(costs)) <= set(followed)
        assert all(costs[a:b].sum() <= room for a, b in ranges)
    assert list(chunks(np.zeros(3, np.int64), 5)) == []


# The tests themselves

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
        test_paths_against_the_processor(Walker.of(device), 3)


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
        test_paths_against_the_processor(Walker(faulty.path_sums, np), 3)


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
    target, draft = random_pairs(11, 3)
    softmax(device, np.log(target + 1).astype(np.float16))
    specinfer_rounds(device, *random_pairs(9, 100), 3)
    check_paths(Walker.of(device), target, draft, 3, room=13)


def test_a_missing_barrier_is_a_race(tmp_path):
    """Seen where two threads do meet, which one run on busy cores may not show: hence several."""
    barrier = "    __syncthreads();\n  }\n  return partial[0];"
    assert SOURCE.count(barrier) == 2
    device = sanitized(tmp_path, RACES, SOURCE.replace(barrier, "  }\n  return partial[0];"))

    def often():
        for _ in range(25):
            specinfer_rounds(device, *random_pairs(9, 1000), 3)

    with pytest.raises(subprocess.CalledProcessError):
        often()


def test_a_write_past_the_end_is_found(tmp_path):
    guard = "if (at >= rows) return;"
    assert SOURCE.count(guard) == 1
    device = sanitized(tmp_path, MEMORY, SOURCE.replace(guard, ""))
    with pytest.raises(subprocess.CalledProcessError):
        path_sums(device, *random_pairs(9, 3), 1)
