"""Repeated uniforms: when they prove something, and when they come by chance."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from round_engines import engine

from resispec_verify import make_rule
from resispec_verify.logged.coins import repeats
from resispec_verify.logged.replay import replay
from resispec_verify.logged.replay_summary import summarize_replay


@pytest.mark.parametrize(("kind", "bits"), [(np.float32, 23), (np.float16, 11), (ml_dtypes.bfloat16, 8)])
def test_the_bound_by_hand(kind, bits):
    """Three rounds of two used coins; the last repeats: E = a^2 + 2 a^2."""
    # The next number below 1 needs all bits of its type.
    coins = [np.array([float(np.nextafter(kind(1), kind(0))), 0.25]), np.array([0.5, 0.25])]
    count, chance = repeats([*coins, coins[0]], [2, 2, 2])
    assert count == 1
    assert chance == pytest.approx(3 * 2.0 ** (-2 * bits), rel=1e-12)
    count, chance = repeats([coins[0]] * 3, [1, 2, 2])
    one = 2.0**-bits + 2.0**-bits + 2.0 ** (-2 * bits)
    assert (count, chance) == (2, pytest.approx(min(1, one**2 / 2), rel=1e-12))


def test_nothing_repeats_and_nothing_is_there():
    assert repeats([], []) == (0, 1.0)
    assert repeats([np.array([0.1]), np.array([0.2]), np.array([0.1, 0.2])], [1, 1, 2]) == (0, 1.0)


@pytest.mark.parametrize(("kind", "count"), [(np.float16, 400), (ml_dtypes.bfloat16, 60), (np.float32, 4000)])
def test_single_coins_repeat_by_chance(kind, count):
    """Not one of 200 right runs below 1 %, where two are expected of an exact test."""
    seen = below = 0
    for seed in range(200):
        u = np.random.default_rng(seed).random(count).astype(kind).astype(np.float64)
        number, chance = repeats(list(u[:, None]), [1] * count)
        seen += number
        below += chance < 0.01
    assert seen > 0
    assert below <= 2


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("g", [1, 2])
def test_coins_of_the_round_before_are_found(kind, g):
    made = engine(np.random.default_rng(0), 300, g=g, coins=True)
    for r, entry in enumerate(made.rounds):
        entry["u"] = (made.rounds[r - 1]["u"] if r % 2 else entry["u"]).astype(kind).astype(np.float64)
        entry["accepted"], entry["next_token"] = 0, None
    result = replay(made, make_rule("speculative"))
    assert result.repeated >= 150
    assert result.repeated_chance < 1e-20
    result = replay(made, make_rule("speculative"), uniforms=False)
    assert (result.repeated >= 150, result.repeated_chance) == (True, None)


def test_a_right_run_has_one_test_more_where_coins_are_logged():
    rows = [
        summarize_replay(replay(engine(np.random.default_rng(0), 50, coins=coins), make_rule("speculative")))
        for coins in (True, False)
    ]
    assert rows[0]["statistics"]["tests"] == rows[1]["statistics"]["tests"] + 1
    assert [row["repeated_uniforms_p_value"] for row in rows] == [1.0, None]
