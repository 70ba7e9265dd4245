"""How seldom a fault at an end is: against samplers whose rate is known."""

from __future__ import annotations

import numpy as np
import pytest

from resispec_verify.sampler_check.battery import named
from resispec_verify.sampler_check.check import CheckSettings, check_sampler
from resispec_verify.sampler_check.lines import at_an_end_only, lines

SETTINGS = {"draws": 600, "search": False, "batches": (8,)}


def right(law, rng):
    """Right at both ends: never a token of weight 0."""
    cumulative = np.cumsum(law, axis=-1)
    below = cumulative <= (rng.random(len(law)) * cumulative[:, -1])[:, None]
    last = law.shape[-1] - 1 - np.argmax(law[:, ::-1] > 0, axis=-1)
    return np.minimum(below.sum(axis=-1), last)


def wrong_where(condition):
    """Emits the least likely token, here one of probability 0, where ``condition(rng, rows)`` holds."""

    def sampler(target, draft, rng):
        tokens = right(target, rng)
        return np.where(condition(rng, len(target)), np.argmin(target, axis=-1), tokens)

    return sampler


def check(sampler, inputs=("zeros",), **settings):
    return check_sampler(
        sampler, CheckSettings(**{**SETTINGS, **settings}), inputs=[named(name) for name in inputs]
    )


def below(u, digits):
    return np.floor(u * 2.0**digits) / 2.0**digits


# The rate of each, and what is told: the rate itself, or half of it where the power of two is left out.
ONE = {
    "24 digits, at 0": (lambda r, n: below(r.random(n), 24) <= 0, "lowest", 24, "below 2^-24"),
    "float16, at 0": (lambda r, n: r.random(n).astype(np.float16) == 0, "lowest", 25, "below 2^-25"),
    "below 2^-20": (lambda r, n: r.random(n) < 2.0**-20, "lowest", 20, "below 2^-20"),
    "below 2^-30": (lambda r, n: r.random(n) < 2.0**-30, "lowest", 30, "below 2^-30"),
    "above 1 - 2^-30": (lambda r, n: r.random(n) > 1 - 2.0**-30, "highest", 31, "1 - 2^-31 or above"),
    "from 1 - 2^-27 on": (lambda r, n: r.random(n) >= 1 - 2.0**-27, "highest", 27, "1 - 2^-27 or above"),
    "float32, below 2^-20": (
        lambda r, n: r.random(n, dtype=np.float32) < 2.0**-20, "lowest", 20, "below 2^-20",
    ),
    "float32 of 1": (
        lambda r, n: r.random(n).astype(np.float32) == 1, "highest", 25, "rounds to 1.0 in float32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_a_fault_near_an_end_has_its_rate(name):
    condition, end, often, where = ONE[name]
    result = check(wrong_where(condition))
    (fault,) = result.ends["faults"]
    assert (fault["end"], fault["distance"], fault["uniforms"]) == (end, often, 1)
    assert fault["log2_probability"] == -often
    assert f"{where} " in result.reason
    assert f"(at least once in 2^{often} draws at float" in result.reason
    assert (fault["calls"], fault["failed"]) == (32, 32)
    assert "the fault came in all 32 calls" in " ".join(lines(result))
    assert at_an_end_only(result).startswith(f" at an end of the uniforms only (at least once in 2^{often} ")
    failing = check(wrong_where(condition), fail_ends="float32")
    assert failing.verdict == ("rejected" if often <= 25 else "not-rejected")


@pytest.mark.parametrize(("together", "seldom"), [(2, 106), (3, 159)])
def test_uniforms_that_must_be_there_together_are_counted(together, seldom):
    def in_a_row(rng, rows):
        return np.all([rng.random(rows) == 0 for _ in range(together)], axis=0)

    def in_the_call(rng, rows):
        return np.full(rows, (rng.random(rows) == 0).sum() >= together)

    for condition in (in_a_row, in_the_call):
        result = check(wrong_where(condition))
        (fault,) = result.ends["faults"]
        assert (fault["uniforms"], fault["log2_probability"]) == (together, -seldom)
        assert f"only when {together} uniforms together are exactly 0 (once in 2^{seldom} " in result.reason


def test_float32_uniforms_are_put_at_an_end_one_by_one():
    def two_neighbours(rng, rows):
        zero = rng.random(rows, dtype=np.float32) == 0
        return np.append(zero[1:] & zero[:-1], False)

    (fault,) = check(wrong_where(two_neighbours)).ends["faults"]
    assert (fault["uniforms"], fault["log2_probability"]) == (2, -48)


def test_a_fault_that_takes_an_ordinary_uniform_as_well_is_not_called_certain():
    result = check(wrong_where(lambda r, n: (r.random(n) == 0) & (r.random(n) < 0.5)))
    (fault,) = result.ends["faults"]
    assert (fault["uniforms"], fault["log2_probability"], fault["calls"]) == (1, -53, 32)
    assert 6 <= fault["failed"] <= 26
    said = " ".join(lines(result))
    assert f"the fault came in {fault['failed']} of 32 calls" in said
    assert "always" not in said


def test_what_comes_in_an_ordinary_run_is_not_blamed_on_an_end():
    often = wrong_where(lambda r, n: r.random(n) < 1e-3)
    rounded = wrong_where(lambda r, n: np.floor(r.random(n) * 2**9 + 0.5) / 2**9 >= 1)
    for sampler in (often, rounded):
        result = check(sampler, ["one-hot", "both-one-hot"], draws=1)
        assert (result.verdict, result.witness["kind"]) == ("rejected", "support")
        assert result.ends["verdict"] == "not-tested"
        assert "uniform is" not in " ".join([result.reason, *lines(result)])


def test_an_exception_that_comes_seldom_is_an_error_and_no_end():
    def raises(target, draft, rng):
        if rng.random() < 1e-4:
            raise RuntimeError("rare")
        return right(target, rng)

    result = check(raises)
    assert (result.verdict, result.ends["verdict"], result.ends["faults"]) == ("error", "not-tested", [])
    assert "rare" in result.reason
    assert "only when" not in result.reason


def test_a_run_that_ends_before_the_ends_says_so():
    result = check(lambda p, q, rng: np.argmin(p, axis=-1))
    assert (result.verdict, result.ends["verdict"]) == ("rejected", "not-tested")
    assert result.ends["reason"] == "the run was rejected before them"
    assert check(lambda p, q, rng: right(p, rng), boundary=False).ends is None


def test_ends_that_were_cut_short_are_in_part(monkeypatch):
    from resispec_verify.sampler_check import ends

    monkeypatch.setattr(ends.EndsTest, "run", _one_input_whole(ends.EndsTest.run))
    result = check(lambda p, q, rng: right(p, rng), ["zeros", "tenths", "v4"])
    assert (result.ends["verdict"], result.ends["cut"]) == ("no-fault", ["tenths", "v4"])
    assert (
        "no fault at 0 and at the largest below 1 (float64), in part: wholly on 1 of 3 inputs."
        in "\n".join(lines(result))
    )


def _one_input_whole(run):
    def cut(self):
        self.probes = self.probes[:1]
        return run(self)

    return cut
