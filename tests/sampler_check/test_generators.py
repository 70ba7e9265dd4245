"""A generator whose uniforms are at an end, and which knows what was drawn from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from resispec_verify.sampler_check.generators import DIGITS, EndsGenerator, drawn_as

legacy: Any = np.random  # the global generator


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_generator_gives_the_ends_that_it_is_asked_for(dtype):
    highest = 1.0 - 2.0 ** -DIGITS[dtype]
    for ends, low, high in (("lowest", 0.25, 0.0), ("highest", 0.0, 0.25), ("both", 0.125, 0.125)):
        rng = EndsGenerator(0, ends)
        drawn = np.concatenate([rng.random(100, dtype=dtype) for _ in range(50)])
        assert abs((drawn == 0.0).mean() - low) < 0.03
        assert abs((drawn == highest).mean() - high) < 0.03
        assert rng.log.used == {("random", dtype)}
    for distance in (23, 13, 6):
        drawn = EndsGenerator(0, "highest", dtype=dtype, distance=distance).random(300, dtype=dtype)
        assert 0.2 < (drawn == 1.0 - 2.0**-distance).mean() < 0.35
        drawn = EndsGenerator(0, "lowest", dtype=dtype, distance=distance).random(300, dtype=dtype)
        nearest = 2.0**-distance - 2.0 ** -DIGITS[dtype]  # the last below
        assert 0.2 < (drawn == nearest).mean() < 0.35


def test_only_uniforms_of_the_type_that_is_asked_for_are_at_an_end():
    rng = EndsGenerator(0, "lowest", dtype="float32")
    assert not (rng.random(300) == 0.0).any()
    assert (rng.random(300, dtype=np.float32) == 0.0).any()
    assert not (rng.random(300) == 0.0).any()
    assert rng.log.dtypes == ["float64", "float32"]


def test_all_that_is_made_of_uniforms_meets_the_ends_and_is_logged():
    draws = {
        "uniform": lambda rng: rng.uniform(size=200),
        "random": lambda rng: rng.choice(2, size=200, p=[0.5, 0.5]) * 0.0,  # choice draws by random
        "standard_exponential": lambda rng: rng.standard_exponential(200),
        "exponential": lambda rng: rng.exponential(size=200),
    }
    for name, draw in draws.items():
        rng = EndsGenerator(0, "lowest")
        assert (draw(rng) == 0.0).any()
        assert rng.log.used == {(name, "float64")}
    child = EndsGenerator(0, "lowest")
    child.spawn(2)[1].gumbel()
    assert child.log.used == {("gumbel", "float64")}
    words = EndsGenerator(0, "lowest")
    assert (legacy.RandomState(words.bit_generator).rand(200) == 0.0).any()
    assert words.took_words


def test_integers_and_orders_are_no_uniforms_and_wide_integers_are_seeds():
    rng = EndsGenerator(0, "both")
    rng.integers(10, size=5), rng.permutation(4), rng.shuffle([1, 2]), rng.choice(4)
    assert (rng.log.used, rng.log.seeds, rng.took_words) == (set(), False, False)
    rng.integers(2**63)
    assert rng.log.seeds


@pytest.mark.parametrize(("dtype", "digits"), [("float16", 11), ("bfloat16", 8)])
def test_uniforms_of_16_bits_stay_below_1(dtype, digits):
    drawn = drawn_as(EndsGenerator(0, "highest"), "f", dtype, 300)
    assert drawn.max() == 1.0 - 2.0**-digits
    assert np.array_equal(drawn * 2**digits, np.floor(drawn * 2**digits))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("end", ["lowest", "highest"])
def test_one_uniform_alone_is_put_at_an_end_and_the_others_stay(dtype, end):
    value = 0.0 if end == "lowest" else 1.0 - 2.0 ** -DIGITS[dtype]
    many = EndsGenerator(5, end)
    drawn = many.random(60, dtype=dtype)
    none = EndsGenerator(5, end, at={}).random(60, dtype=dtype)
    seen = 0
    for place, what in many.log.placed.items():
        one = EndsGenerator(5, end, at={place: what}).random(60, dtype=dtype)
        assert (one != none).sum() <= 1
        assert np.array_equal(one[one != none], [value] * int((one != none).sum()))
        seen += int((one != none).sum())
    assert seen == (drawn == value).sum() > 5
