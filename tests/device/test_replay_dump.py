"""The replay of whole dumps, with the kernels run on the CPU."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from emulator import EmulatedDevice

from resispec_verify.device.replay_dump import replay_dump
from resispec_verify.distributions import Sampling
from resispec_verify.dumps import open_dump
from resispec_verify.dumps.kinds.flat import flat_from_mapping
from resispec_verify.errors import InputError
from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.evidence.marginal import tv_interval
from resispec_verify.rules import make_rule

EXAMPLE = Path(__file__).parents[2] / "examples" / "smollm2-skip6-N8-fp16.pt"
EVERYTHING = Budget(gap=0.0, most_paths=np.inf, until_decided=False)


@pytest.fixture(scope="module")
def device(program):
    return EmulatedDevice(program, 1)


def check(dump, device, rule, candidates, temperature=1.0, **options):
    """Against the marginals of the CPU; the dump is small, or the example."""
    found = replay_dump(dump, device, rule, candidates, temperature=temperature, gap=0.0, **options)
    batch, sampling = dump.batch(0, dump.positions), Sampling(temperature)
    target, draft = (sampling.probabilities(rows, dtype=np.float64) for rows in batch[:2])
    right = operational_marginals(make_rule(rule), target, draft, candidates, budget=EVERYTHING)
    low, high = tv_interval(right, target)
    # The device's softmax is as far from ours as ours may be from the exact one, in target and draft.
    exponentials = (candidates + 1) * 2 * 16 * np.finfo(np.float64).eps
    bound = 2 * right.rounding + exponentials
    assert (np.abs(found.tv - low) <= bound).all()
    assert (np.abs(found.tv - high) <= bound).all()
    assert (np.abs(found.acceptance - right.acceptance).sum(-1) <= 2 * bound).all()
    assert (found.gap == 0).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("rule", ["specinfer", "resispec"])
def test_every_stored_type(device, name, rule):
    rng = np.random.default_rng(0)
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    target, draft = (rng.standard_normal((2, 3, 17)) * 2).astype(dtype)  # 3 positions
    dump = flat_from_mapping("a dump", {"target_logits": target, "draft_logits": draft})
    check(dump, device, rule, 2, temperature=0.7, batch=2)


def test_the_example(device):
    dump = open_dump(EXAMPLE)
    check(dump, device, "specinfer", 3, batch=3)
    check(dump, device, "resispec", 1, batch=8)


def test_a_gap_may_be_left(device):
    rng = np.random.default_rng(1)
    target, draft = rng.standard_normal((2, 2, 12))
    dump = flat_from_mapping("a dump", {"target_logits": target, "draft_logits": draft})
    found = replay_dump(dump, device, "resispec", 3, gap=0.05)
    assert ((found.gap >= 0) & (found.gap <= 0.05)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("key", ["target_logits", "draft_logits"])
@pytest.mark.parametrize("rule", ["specinfer", "resispec"])
def test_logits_that_are_not_finite_are_named(device, value, key, rule):
    arrays = {name: np.zeros((4, 5), np.float16) for name in ("target_logits", "draft_logits")}
    arrays[key][2, 3] = value
    with pytest.raises(InputError, match=f"a dump: {key} has .* at position 2, token 3"):
        replay_dump(flat_from_mapping("a dump", arrays), device, rule, 2, batch=2)


def test_two_widths_are_refused(device):
    arrays = {"target_logits": np.zeros((1, 5)), "draft_logits": np.zeros((1, 4))}
    with pytest.raises(InputError, match="two widths"):
        replay_dump(flat_from_mapping("a dump", arrays, pad_vocab=True), device, "specinfer", 2)
