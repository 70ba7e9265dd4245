"""The ends of the uniforms: what is tried, how a fault is weighed, and the context that serves them."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

import numpy as np
import pytest

from resispec_verify.errors import InputError
from resispec_verify.sampler_check.battery import chains, named
from resispec_verify.sampler_check.check import CheckSettings, check_sampler
from resispec_verify.sampler_check.lines import lines
from resispec_verify.testing import assert_lossless, served_from

legacy: Any = np.random  # the global generator
ZEROS, TENTHS = [named("zeros")], [named("tenths")]


def inverse(law, u):
    """Right at both ends: never a token of weight 0."""
    cumulative = np.cumsum(law, axis=-1)
    below = cumulative <= (np.asarray(u, dtype=float) * cumulative[:, -1])[:, None]
    last = law.shape[-1] - 1 - np.argmax(law[:, ::-1] > 0, axis=-1)
    return np.minimum(below.sum(axis=-1), last)


def good(target, draft, rng):
    return inverse(target, rng.random(len(target)))


def speculative(uniforms, accepts):
    """Speculative sampling; ``uniforms(rng, n, which)`` for the three draws of a row."""

    def sampler(target, draft, rng):
        x = inverse(draft, uniforms(rng, len(target), "draft"))
        at = np.arange(len(x))
        rest = np.clip(target - draft, 0.0, None)
        rest = np.where(rest.sum(axis=-1, keepdims=True) > 0, rest, target)
        u = np.asarray(uniforms(rng, len(x), "accept"), dtype=float)
        return np.where(
            accepts(u * draft[at, x], target[at, x]), x, inverse(rest, uniforms(rng, len(x), "rest"))
        )

    return sampler


def float64(rng, n, which):
    return rng.random(n)


def float32(rng, n, which):
    return rng.random(n, dtype=np.float32)


def accept_float32(rng, n, which):
    return rng.random(n, dtype=np.float32 if which == "accept" else np.float64)


def not_above(u, p):
    return u <= p


def ends_of(sampler, inputs=ZEROS, **settings):
    result = check_sampler(
        sampler, CheckSettings(**{"draws": 600, "search": False, "batches": (8,), **settings}), inputs=inputs
    )
    json.dumps(result.result(), allow_nan=False)
    return result, result.ends


# The verdict on the ends


def test_a_right_sampler_has_no_fault_at_its_ends():
    result, ends = ends_of(good, [*ZEROS, *TENTHS])
    assert (result.verdict, ends["verdict"], ends["dtypes"]) == ("not-rejected", "no-fault", ["float64"])
    assert (ends["inputs"], ends["not_reached"], ends["reason"]) == (["zeros", "tenths"], [], None)
    assert "Ends of the uniforms: no fault" in "\n".join(lines(result))


@pytest.mark.parametrize(
    ("uniforms", "dtype", "often"),
    [(float64, "float64", 53), (float32, "float32", 24), (accept_float32, "float32", 24)],
)
def test_a_sampler_that_accepts_at_0_is_told_how_seldom_that_is(uniforms, dtype, often):
    result, ends = ends_of(speculative(uniforms, not_above))
    (fault,) = ends["faults"]
    assert (fault["end"], fault["dtype"], fault["uniform"]) == ("lowest", dtype, 0.0)
    assert (fault["probability"], fault["input"]) == (2.0**-often, "zeros")
    assert ZEROS[0].target[fault["token"]] == 0.0
    assert result.verdict == "rejected"
    assert f"only when a uniform is exactly 0 (once in 2^{often} draws at {dtype})" in result.reason
    assert "bias" not in result.reason
    assert "law" not in result.reason
    assert result.detectable_tv is not None
    # The same numbers lead to the same token.
    given = iter([np.array(value, dtype=kind) for _, kind, value in fault["numbers"]])
    target, draft = map(np.array, fault["arguments"])
    again = speculative(lambda *_: next(given), not_above)(target, draft, None)
    assert fault["token"] in again


def test_what_needs_a_strict_comparison_has_it():
    _, ends = ends_of(speculative(float32, lambda u, p: u < p))
    assert ends["verdict"] == "no-fault"


def test_the_option_says_which_ends_fail_a_run():
    for uniforms, verdicts in ((float64, ("rejected", "not-rejected")), (float32, ("rejected", "rejected"))):
        for which, verdict in zip(("all", "float32"), verdicts, strict=True):
            result, ends = ends_of(speculative(uniforms, not_above), fail_ends=which)
            assert (result.verdict, ends["verdict"], ends["fails"]) == (
                verdict,
                "fault",
                verdict == "rejected",
            )
    result, ends = ends_of(speculative(float32, not_above), fail_ends="none")
    assert (result.verdict, ends["verdict"]) == ("not-rejected", "fault")
    assert "which does not fail the run" in "\n".join(lines(result))
    passed = assert_lossless(speculative(float64, not_above), pairs=["zeros"], draws=600, fail_ends="float32")
    assert passed.ends["verdict"] == "fault"
    with pytest.raises(AssertionError, match="exactly 0"):
        assert_lossless(speculative(float64, not_above), pairs=["zeros"], draws=600)
    with pytest.raises(InputError, match="fail_ends must be one of all, float32, none"):
        CheckSettings(fail_ends="some")


def test_the_option_on_the_command_line(tmp_path, monkeypatch, capfd):
    from resispec_verify.cli import check_apart, check_child, main

    monkeypatch.setattr(check_apart, "run_apart", lambda job: check_child._checked(job, lambda kind: None))
    (tmp_path / "s.py").write_text(
        "import numpy as np\ndef f(target, draft, rng):\n"
        "    c = np.cumsum(target, axis=-1)\n    u = rng.random(len(c))\n"
        "    return np.where(u == 0.0, 0, np.minimum((c <= u[:, None]).sum(-1), 3))\n"
    )
    words = ["check", f"{tmp_path}/s.py:f", "--input", "zeros", "--draws", "600", "--no-search"]
    assert main(words) == 1
    assert "Ends of the uniforms: fault on 'zeros'" in capfd.readouterr().out
    assert main([*words, "--fail-ends", "float32"]) == 0
    assert "which does not fail the run" in capfd.readouterr().out


def test_an_inverse_transform_that_leaves_the_law_at_the_high_end():
    def past_the_end(target, draft, rng):
        return (np.cumsum(target, axis=-1) <= rng.random((len(target), 1))).sum(axis=-1)

    def last_token(target, draft, rng):
        return np.minimum(past_the_end(target, draft, rng), target.shape[-1] - 1)

    def raises(target, draft, rng):
        return np.arange(10)[past_the_end(target, draft, rng)]

    exactly = "only when a uniform is exactly 1 - 2^-53 (once in 2^53 draws at float64)"
    for sampler, said in ((past_the_end, "entry 10, outside of 0..9"), (raises, "raised IndexError")):
        result, ends = ends_of(sampler, TENTHS)
        (fault,) = ends["faults"]
        assert (fault["end"], fault["uniform"], fault["token"]) == ("highest", 1.0 - 2.0**-53, None)
        assert said in result.reason
        assert exactly in result.reason
    # The last token has a place, and no probability: the sum of ten tenths is less than 1.
    padded = type(TENTHS[0])("padded", np.append(TENTHS[0].target, 0.0), np.full(11, 1 / 11))
    result, ends = ends_of(last_token, [padded])
    assert ends["faults"][0]["token"] == 10
    assert exactly in result.reason


def test_a_uniform_that_is_cast_to_float32_is_told_that_it_rounds_to_1():
    def cast(target, draft, rng):
        cumulative = np.cumsum(target, axis=-1)
        cumulative[:, -1] = 1.0
        u = rng.random(len(target)).astype(np.float32)
        return (cumulative <= u[:, None]).sum(axis=-1)

    result, ends = ends_of(cast, [named("v4")])
    (fault,) = ends["faults"]
    assert (fault["end"], fault["dtype"], fault["probability"]) == ("highest", "float64", 2.0**-25)
    assert "rounds to 1.0 in float32 (at least once in 2^25 draws at float64)" in result.reason
    assert "rng.random(dtype=numpy.float32)" in result.reason
    assert ends_of(cast, [named("v4")], fail_ends="float32")[0].verdict == "rejected"
    drawn_so = lambda p, q, rng: inverse(p, rng.random(len(p), dtype=np.float32))  # noqa: E731
    assert ends_of(drawn_so, [named("v4")])[1]["verdict"] == "no-fault"


def test_what_needs_one_uniform_of_each_type_is_found():
    def both(target, draft, rng):
        tokens = good(target, draft, rng)
        first, second = rng.random(len(tokens)), rng.random(len(tokens), dtype=np.float32)
        return np.where((first == 0.0) & (second == 0.0), 0, tokens)

    _, ends = ends_of(both)
    (fault,) = ends["faults"]
    assert (fault["dtype"], fault["log2_probability"]) == ("float64 and float32", -77)


def test_what_needs_a_uniform_at_each_end_is_found():
    def both(target, draft, rng):
        tokens = good(target, draft, rng)
        first, second = rng.random(len(tokens)), rng.random(len(tokens))
        return np.where((first == 0.0) & (second == 1.0 - 2.0**-53), 0, tokens)

    _, ends = ends_of(both)
    (fault,) = ends["faults"]
    assert (fault["end"], fault["dtype"], fault["log2_probability"]) == ("both", "float64", -106)


def test_a_sampler_that_raises_without_a_uniform_is_an_error():
    def raises_at_8_rows(target, draft, rng):
        if len(target) == 8:
            raise ValueError("eight")
        return good(target, draft, np.random.default_rng(rng.integers(2**63)))

    result, _ = ends_of(raises_at_8_rows, batches=())
    assert (result.verdict, "eight" in result.reason) == ("error", True)


def test_an_ordinary_fault_is_not_blamed_on_an_end():
    def seldom(target, draft, rng):
        return np.where(rng.random(len(target)) < 0.02, 0, good(target, draft, rng))

    # One draw a stream: it is seen at the ends first.
    kinds = set()
    for seed in range(8):
        result, ends = ends_of(seldom, seed=seed, draws=1)
        kinds.add(result.witness["kind"] if result.witness else None)
        assert ends is None or ends["verdict"] == "not-tested"
        assert "uniform is" not in (result.reason or "")
    assert kinds == {"support"}


def test_a_sampler_that_takes_a_seed_is_not_tested_at_its_ends_and_says_so():
    def seeded(target, draft, rng):
        return good(target, draft, np.random.default_rng(rng.integers(2**63)))

    result, ends = ends_of(seeded)
    assert (result.verdict, ends["verdict"], ends["takes_seeds"]) == ("not-rejected", "not-tested", True)
    assert "takes only a seed" in ends["reason"]
    assert "served_from(rng)" in ends["reason"]
    assert "Ends of the uniforms: not tested" in "\n".join(lines(result))
    _, partly = ends_of(lambda p, q, rng: (rng.integers(2**63), good(p, q, rng))[1])
    assert "not those that it draws from a seed" in partly["reason"]
    _, none = ends_of(lambda p, q, rng: good(p, q, np.random.default_rng()))
    assert "draws no uniforms from rng" in none["reason"]


def test_blocks_have_their_ends_with_what_they_were_called_with():
    def at_zero(targets, drafts, path, rng):
        tokens = np.array([[rng.choice(targets.shape[-1], p=row[0])] for row in targets])
        zero = rng.random(len(path), dtype=np.float32) == 0.0
        rest = np.full((len(path), path.shape[1]), -1)
        return np.concatenate([np.where(zero[:, None], path[:, :1], tokens), rest], axis=1)

    result, ends = ends_of(at_zero, [chains()[1]], style="block", batches=())
    (fault,) = ends["faults"]
    assert (fault["dtype"], fault["rows"], len(fault["arguments"])) == ("float32", 1, 3)
    assert fault["arguments"][2][0][0] != 0  # the path begins with a token that must not come out
    assert result.witness["kind"] == "boundary"


@pytest.mark.parametrize(("dtype", "often"), [("float64", 53), ("float32", 24)])
def test_uniforms_that_come_as_an_argument_have_their_ends(dtype, often):
    def not_above_0(target, draft, candidates, uniforms):
        target, draft, at = target.astype(float), draft.astype(float), np.arange(len(target))
        x, u = candidates[:, 0], uniforms.astype(float)
        rest = np.clip(target - draft, 0.0, None)
        rest = np.where(rest.sum(axis=-1, keepdims=True) > 0, rest, target)
        return np.where(u[:, 0] * draft[at, x] <= target[at, x], x, inverse(rest, u[:, -1]))

    _, ends = ends_of(not_above_0, style="uniforms", candidates=1, dtype=dtype)
    assert [fault["log2_probability"] for fault in ends["faults"]] == [-often]
    assert ends["faults"][0]["end"] == "lowest"


# The context, without torch


def test_numpy_and_random_are_served():
    given = np.random.default_rng(0)
    with served_from(np.random.default_rng(0)) as missed:
        assert legacy.random() == given.random()
        assert random.random() == given.random()
        assert np.array_equal(legacy.rand(2, 3), given.random((2, 3)))
        assert random.uniform(2, 4) == 2 + 2 * given.random()
        assert legacy.choice(3, p=[0.2, 0.3, 0.5]) == np.searchsorted(
            [0.2, 0.5, 1.0], given.random(), "right"
        )
        assert legacy.exponential() == pytest.approx(-np.log1p(-given.random()), rel=1e-15)
        with served_from(np.random.default_rng(7)):
            assert random.random() == np.random.default_rng(7).random()
        assert random.random() == given.random()
        random.choices([1, 2], [0.5, 0.5]), random.gauss(0, 1), random.shuffle([1, 2]), legacy.randint(3)
    assert missed == []


def test_the_functions_are_put_back_whatever_happens():
    before = {name: getattr(legacy, name) for name in dir(legacy)}
    names = {name: getattr(random, name) for name in dir(random)}
    states = random.getstate(), legacy.get_state()[1].copy()

    def fails():
        with served_from(np.random.default_rng(0)):
            legacy.normal(), random.gauss(0, 1), random.shuffle([1, 2, 3]), legacy.permutation(3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert all(getattr(legacy, name) is value for name, value in before.items())
    assert all(getattr(random, name) is value for name, value in names.items())
    assert random.getstate() == states[0]
    assert np.array_equal(legacy.get_state()[1], states[1])


@pytest.mark.parametrize("draw", [lambda n: [random.random() for _ in range(n)], lambda n: legacy.random(n)])
@pytest.mark.parametrize(("dtype", "often"), [(None, 53), ("float32", 24)])
def test_an_acceptor_at_0_that_draws_from_a_global_generator_is_found(draw, dtype, often):
    def sampler(target, draft, rng):
        with served_from(rng, dtype):
            return speculative(lambda _, n, which: draw(n), not_above)(target, draft, None)

    _, ends = ends_of(sampler)
    assert [fault["log2_probability"] for fault in ends["faults"]] == [-often]


def test_what_is_not_served_is_named():
    by_name = random.random
    with served_from(np.random.default_rng(0)) as missed:
        by_name()
        legacy.seed(0)
        own = legacy.random()
    assert own == legacy.RandomState(0).random_sample()
    assert missed == ["np.random, after np.random.seed", "functions of random that were imported by name"]

    def sampler(target, draft, rng):
        with served_from(rng):
            return inverse(target, [by_name() for _ in target])

    _, ends = ends_of(sampler)
    assert ends["verdict"] == "not-tested"
    assert "imported by name" in ends["reason"]


def test_the_coarser_type_holds_for_all_and_refuses_what_it_cannot():
    with served_from(np.random.default_rng(0), "bfloat16"):
        for drawn in (random.random(), legacy.rand(), legacy.uniform(size=3), legacy.random((2, 2))):
            assert np.array_equal(np.asarray(drawn) * 256, np.floor(np.asarray(drawn) * 256))
        with pytest.raises(NotImplementedError, match="cannot be served at bfloat16"):
            legacy.exponential()


@pytest.mark.parametrize("wrong", [{"dtype": "int8"}, {"ordinary": "x"}, {"libraries": "torch"},
                                   {"libraries": ["jax"]}])  # fmt: skip
def test_arguments_of_the_context_that_make_no_sense(wrong):
    with pytest.raises(InputError), served_from(np.random.default_rng(0), **wrong):
        pass
    with pytest.raises(InputError), served_from(0):
        pass


def test_a_generator_that_is_made_anew_with_one_seed_is_caught_where_ordinary_draws_are_not_served():
    def sampler(target, draft, rng):
        with served_from(rng, ordinary="seed", libraries=["random"]):
            random.seed(0)
            return inverse(target, [random.random() for _ in target])

    result, _ = ends_of(sampler)
    assert (result.verdict, result.witness["kind"]) == ("rejected", "independence")
    with served_from(np.random.default_rng(0), ordinary="seed", libraries=["numpy"]):
        first = legacy.random()
    with served_from(np.random.default_rng(0), ordinary="seed", libraries=["numpy"]):
        assert first == legacy.random()


def test_other_threads_are_served_too():
    found = []
    with served_from(np.random.default_rng(0)):
        thread = threading.Thread(target=lambda: found.append(random.random()))
        thread.start()
        thread.join()
    assert found == [np.random.default_rng(0).random()]
