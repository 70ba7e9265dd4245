"""Demands, bounds and limits where rounding is all there is, or the working precision is float32."""

from __future__ import annotations

import json
from fractions import Fraction as F

import numpy as np
import pytest
import torch
from extreme_pairs import exact, extreme_pair

from resispec_verify.cli import main
from resispec_verify.distributions import Sampling
from resispec_verify.kernels.optimal.candidate_limits import pairs_limit, without_replacement_limit
from resispec_verify.kernels.optimal.transport import transport_limit
from resispec_verify.oracle import limit_by_prefixes, limit_pairs, limit_without_replacement

INF = float("inf")


@pytest.fixture
def magnified(tmp_path):
    """The residual of the first rejection is 1e-13 of the target, and every candidate is rejected."""
    path = tmp_path / "d.pt"
    rows = {
        "target_logits": [0.0, 0.0, -INF],
        "draft_logits": [0.0, -3e-15, -33.0],
        "proposal_logits": [-INF, -INF, 0.0],
    }
    torch.save({key: torch.tensor([row], dtype=torch.float64) for key, row in rows.items()}, path)
    return ["kl", "--logits", str(path), "--rule", "specinfer", "--candidates", "1"]


def test_a_demand_is_not_met_by_a_bound_that_admits_anything(magnified, capsys):
    assert main([*magnified, "--marginal", "operational", "--max-tv", "0.01"]) == 1
    assert main([*magnified, "--marginal", "operational", "--max-tv", "1"]) == 0
    assert "floats cannot tell at 1 of 1 positions" in capsys.readouterr().out


def test_bounds_hold_the_truth(magnified, capsys):
    assert main([*magnified, "--marginal", "operational", "--json", "-"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    truth = 0.321708  # in fractions of the float64 rows
    low, high = result["tv_mean_bounds"]
    assert low <= truth <= high
    assert result["verdict"] == "undecided"
    assert result["positions_undecidable"] == 1
    low, high = result["kl_mean_bounds"]
    assert low <= 0.2245
    assert high == "inf"


def test_bounds_of_an_exact_rule_hold_zero(capsys):
    hand = ("--target", "0.3,0.4,0.3", "--draft", "0.6,0.3,0.1", "--rule", "specinfer")
    assert main(["kl", *hand, "--marginal", "operational", "--max-tv", "0", "--json", "-"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    low, high = result["tv_mean_bounds"]
    assert low == 0.0
    assert 0.0 < high <= result["tv_max"] + result["rounding_max"] <= 1e-12


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_limits_are_rounded_up_in_float32(n):
    rng = np.random.default_rng(11)
    for _ in range(300):
        p, q = (row.astype(np.float32) for row in extreme_pair(rng, int(rng.integers(2, 7)))[1:])
        if not (p.sum() and q.sum()):
            continue
        slack = abs(1 - float(p.sum(dtype=np.float64))) + n * abs(1 - float(q.sum(dtype=np.float64)))
        found = transport_limit(p[None, :], q[None, :], n)
        assert found.dtype == np.float32
        assert float(found[0]) >= float(limit_by_prefixes(exact(p), exact(q), n)) - slack


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_limits_are_the_right_ones_rounded_up(n):
    rng = np.random.default_rng(21)
    for _ in range(200):
        p, q = extreme_pair(rng, int(rng.integers(2, 12)))[1:]
        right = limit_by_prefixes(exact(p), exact(q), n)
        off = abs(1 - sum(map(F, p.tolist()))) + n * abs(1 - sum(map(F, q.tolist())))
        up = ((n + 1) * len(p) + n + 2) * F(1, 2**53)
        assert right - off <= F(float(transport_limit(p, q, n))) <= min(right + off + 2 * up, 1)


def test_the_limit_that_was_rounded_down():
    p = np.array([[1.0, 0.0]], np.float32)
    q = np.array([[0.5239536762237549, 0.4760463237762451]], np.float32)
    assert float(transport_limit(p, q, 4)[0]) >= 1.0 - float(q[0, 1]) ** 4


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_limits_without_replacement_at_the_ends(n):
    rng = np.random.default_rng(12)
    for _ in range(60):
        p, q = extreme_pair(rng, int(rng.integers(2, 6)))[1:]
        right = limit_without_replacement(exact(p), exact(q), n)
        found = float(without_replacement_limit(p[None, :], q[None, :], n)[0])
        assert float(right) - 1e-13 <= found <= float(right) + 2e-12
        if n == 2:
            found = float(pairs_limit(p[None, :], q[None, :])[0])
            assert abs(found - float(limit_pairs(exact(p), exact(q)))) <= 1e-13


def test_a_faint_token_does_not_lift_the_limit():
    p, q = np.array([[1.0, 0, 0, 0]]), np.array([[1e-25, 0.5, 0.25, 0.25]])
    assert float(without_replacement_limit(p, q, 3)[0]) <= 2e-12


@pytest.mark.parametrize(
    ("logits", "temperature"),
    [
        ([[1e39, 1.0, 2.0]], 1.0),
        ([[-1e39, -2e39, -3e39]], 1.0),
        ([[1.0, 0.5, -INF]], 1e-50),
        ([[1.0, 0.5, -INF]], 1e39),
        ([[3e38, -3e38, 0.0]], 1.0),
        ([[1e308, -1e308, 0.0]], 1.0),
        ([[1e308, -1e308, 0.0]], 1e-320),
        ([[0.0, -1.0, -INF]], 1e300),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_and_temperatures_beyond_the_working_precision(logits, temperature, dtype):
    logits = np.array(logits)
    law = Sampling(temperature).probabilities(logits, dtype=dtype)
    assert law.dtype == dtype
    wide = np.where(np.isneginf(logits), -INF, (logits / 4 - logits.max() / 4).astype(np.longdouble) * 4)
    wide = np.exp(np.where(np.isneginf(logits), -INF, wide / np.longdouble(temperature)))
    np.testing.assert_allclose(law, wide / wide.sum(), atol=4 * np.finfo(dtype).eps)
