"""How laws are handed over: every style with logits, precisions, reserved tokens, torch and programs."""

from __future__ import annotations

import sys
import typing
from pathlib import Path

import numpy as np
import pytest

from resispec_verify.cli.check import CallOptions
from resispec_verify.cli.user_samplers import load_sampler
from resispec_verify.errors import InputError
from resispec_verify.sampler_check.battery import Input, named
from resispec_verify.sampler_check.check import CheckSettings, check_sampler
from resispec_verify.sampler_check.settings import PROPOSALS
from resispec_verify.sampler_check.sources import BlockSource, TextSource, TokenSource, TreeSource
from resispec_verify.sampler_check.sources.handing import ARRAYS, DTYPES, GIVE, Handing
from resispec_verify.sampler_check.sources.styles import STYLES, arguments_of, inputs_of, named_inputs

sys.path.insert(0, str(Path(__file__).parents[1] / "broken_samplers"))
import samplers
from exact_samplers import EXACT

# Their laws, by position; the last arguments are as they are.
LAWS = ("target", "draft", "targets", "drafts")


def on(style, settings):
    """The exact sampler of the style, on what these settings hand over."""
    wants = settings.get("give", "probabilities") != "probabilities"
    torch = pytest.importorskip("torch") if "torch" in settings.get("arrays", "") else None

    def law(values):
        if torch is not None:
            assert isinstance(values, torch.Tensor)
            values = values.numpy()
        assert values.dtype == settings.get("dtype", "float64")
        found = samplers.softmax(values.astype(np.float64)) if wants else values.astype(np.float64)
        return np.where(np.isfinite(found), found, 0.0)  # rows of padding

    def plain(name, value):
        if callable(value) and name in LAWS:
            return lambda tokens: law(value(tokens))
        if name in LAWS:
            return law(value)
        return value.numpy() if torch is not None and isinstance(value, torch.Tensor) else value

    def sampler(*arguments):
        names = arguments_of(CheckSettings(style=style, **settings))
        found = EXACT[style](*(plain(n, value) for n, value in zip(names, arguments, strict=True)))
        return torch.from_numpy(np.asarray(found)) if torch is not None else found

    return sampler


WAYS = {
    "logits": {"give": "logits"},
    "log-float32": {"give": "log-probabilities", "dtype": "float32"},
    "logits-float16": {"give": "logits", "dtype": "float16"},
    "float32": {"dtype": "float32"},
    "offset": {"offset": 2},
    "torch": {"arrays": "torch"},
    "torch-logits-float32-offset": {"arrays": "torch", "give": "logits", "dtype": "float32", "offset": 1},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("style", STYLES)
def test_an_exact_sampler_of_each_style_passes_in_each_way(style, way):
    settings = WAYS[way]
    inputs = inputs_of(style)[:3]
    chosen = CheckSettings(style=style, draws=2000, search=False, batches=(), boundary=False, **settings)
    result = check_sampler(on(style, settings), chosen, inputs=inputs)
    assert (result.verdict, result.reasons) == ("not-rejected", [])
    assert result.detectable_tv < 1


def test_every_style_is_on_the_command_line_and_every_choice_too():
    kinds = typing.get_type_hints(CallOptions)
    for name, there in {
        "style": tuple(STYLES), "proposal": PROPOSALS, "give": GIVE, "dtype": DTYPES, "arrays": ARRAYS,
    }.items():  # fmt: skip
        assert typing.get_args(kinds[name]) == there
    assert set(EXACT) == set(STYLES)


@pytest.mark.parametrize("style", STYLES)
def test_inputs_of_each_style_have_names(style):
    names = [one.name for one in inputs_of(style)]
    assert names == list(STYLES[style].names)
    assert [one.name for one in named_inputs(names[:2], style)] == names[:2]
    with pytest.raises(InputError, match=f"for the style {style}; there are {names[0]}"):
        named_inputs(["nothing"], style)


# What is handed over


@pytest.mark.parametrize("give", GIVE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_law_is_that_of_the_rounded_numbers(give, dtype):
    laws = np.stack([named("zeros").target, named("zeros").draft])
    given, law = Handing(give, dtype).laws(laws)
    assert given.dtype == dtype
    exact = given.astype(np.float64)
    assert np.array_equal(law == 0, laws == 0)
    weights = exact if give == "probabilities" else np.where(np.isfinite(exact), np.exp(exact), 0.0)
    assert np.allclose(law, weights / weights.sum(axis=-1, keepdims=True), rtol=1e-12, atol=0.0)
    if give != "probabilities":
        assert np.array_equal(np.isneginf(exact), laws == 0)
    sums = np.log(weights.sum(axis=-1))
    # Logits have a constant of their own in each row, log-probabilities have none.
    assert (np.abs(sums) > 0.01).all() if give == "logits" else (np.abs(sums) < 1e-2).all()


def test_float16_moves_the_law_that_is_tested():
    pair = Input("tenths", np.array([0.3, 0.7]), np.array([0.5, 0.5]))
    source = TokenSource(pair, handing=Handing(dtype="float16"))
    assert source.law[0] != pair.target[0]
    assert source.law.sum() == pytest.approx(1.0, abs=1e-15)
    assert source.pair is pair


def test_reserved_tokens_have_no_probability_and_none_is_drafted():
    one = TokenSource(named("base"), offset=2)
    assert one.law.tolist() == [0.0, 0.0, 0.5, 0.3, 0.2]
    for source, name in (
        (BlockSource(named_inputs(["certain"], "block")[0], offset=2), "path"),
        (TreeSource(named_inputs(["binary"], "tree")[0], offset=2), "tokens"),
    ):
        seen = []
        names = arguments_of(CheckSettings(style=source.kind))

        class Looks:
            def call(self, *arguments, names=names, name=name, seen=seen):
                seen.append(dict(zip(names, arguments, strict=True))[name])
                raise StopIteration

        with pytest.raises(StopIteration):
            source.draw(Looks(), np.random.default_rng(0), 200)
        assert seen[0].min() == 2
    text = TextSource(named_inputs(["two"], "text")[0], offset=2)
    assert text.prompt.tolist() == [2, 3]
    assert text.vocab == 4
    assert np.count_nonzero(text.law) == 2**9


def test_more_sequences_than_can_be_numbered_are_refused():
    with pytest.raises(InputError, match="too many for the joint law"):
        check_sampler(EXACT["text"], CheckSettings(style="text", offset=40))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_uniforms_are_below_one_and_no_coarser_than_float32(dtype):
    source = TokenSource(named("base"), candidates=2, handing=Handing(dtype=dtype, uniforms=True))
    seen = []

    class Looks:
        def call(self, target, draft, candidates, uniforms):
            seen.append(uniforms)
            return np.zeros(len(target), int)

        def note(self, text):
            raise AssertionError(text)

    from resispec_verify.sampler_check.generators import EndsGenerator

    for rng in (np.random.default_rng(0), EndsGenerator(0, "both")):
        source.draw(Looks(), np.random.default_rng(1), 1000, rng)
        (found,) = seen
        assert found.shape == (1000, 3)
        assert found.dtype == ("float64" if dtype == "float64" else "float32")
        assert 0 <= found.min() < found.max() < 1
        seen.clear()
    highest = 1.0 - 2.0**-53 if dtype == "float64" else 1.0 - 2.0**-24
    source.draw(Looks(), np.random.default_rng(1), 1000, EndsGenerator(0, "both"))
    assert {0.0, highest} <= set(seen[0].ravel().tolist())


def test_writing_into_what_is_handed_in_is_said_in_every_style():
    for style, inputs in ((style, inputs_of(style)[:1]) for style in ("uniforms", "block", "tree", "text")):

        def writes(*arguments, style=style):
            found = EXACT[style](*arguments)
            name = {"uniforms": 3, "block": 0, "tree": 3, "text": 2}[style]
            arguments[name][...] = 0
            return found

        result = check_sampler(writes, CheckSettings(style=style, draws=600, batches=()), inputs=inputs)
        name = {"uniforms": "uniforms", "block": "targets", "tree": "parents", "text": "prompt"}[style]
        assert (result.verdict, result.reasons) == ("not-rejected", [f"writes into its input {name}"])


def test_tensors_that_were_written_into_are_made_again():
    torch = pytest.importorskip("torch")

    def zeroes(target, draft, rng):
        tokens = samplers.speculative(target.numpy().copy(), draft.numpy().copy(), rng)
        target.zero_()
        return torch.from_numpy(tokens)

    settings = CheckSettings(draws=2000, search=False, batches=(2,), boundary=False, arrays="torch")
    result = check_sampler(zeroes, settings, inputs=[named("base")])
    assert (result.verdict, result.reasons) == ("not-rejected", ["writes into its input target"])


def test_a_library_or_a_device_that_is_not_there_is_bad_input():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="torch finds no CUDA device"):
            Handing(arrays="torch:cuda")
    with pytest.raises(InputError, match="arrays must be one of"):
        CheckSettings(arrays="jax")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"flat": True}, "flat is for the style block, not for tokens"),
        ({"ragged": True, "style": "tree"}, "ragged is for the style block, not for tree"),
        ({"uniforms": True, "style": "text"}, "uniforms is for the style block and tree, not for text"),
        ({"proposal": "beams", "style": "candidates"}, "beams is for the style tree, not for candidates"),
        ({"offset": -1}, "offset must be in 0..1048576"),
        ({"give": "odds"}, "give must be one of"),
        ({"dtype": "bfloat16"}, "dtype must be one of"),
    ],
)
def test_settings_that_do_not_fit_are_refused(wrong, said):
    with pytest.raises(InputError, match=said):
        CheckSettings(**wrong)


# Programs

PROGRAM = """
import json, math, random, sys
for line in sys.stdin:
    asked = json.loads(line)
    rng = random.Random(asked.get("seed", 0))
    def draw(law):
        return rng.choices(range(len(law)), law)[0]
    def match(at, limit):
        out, here = [], 0
        while True:
            x = draw(at(here)); out.append(x)
            here = limit(here, x)
            if here is None:
                return out
    rows, style, tokens = asked["rows"], asked["style"], []
    for i in range(rows):
        if style == "text":
            last = asked["prompt"][i][-1]; text = []
            for _ in range(asked["length"]):
                last = draw(asked["target"][last]); text.append(last)
            tokens.append(text)
        elif style == "tree":
            nodes, parents, targets = asked["tokens"][i], asked["parents"], asked["targets"][i]
            def next_node(here, x):
                hits = [j + 1 for j, y in enumerate(nodes) if parents[j] + 1 == here and x == y]
                return hits[0] if hits else None
            out = match(lambda here: targets[here], next_node)
            depth = [0]
            for parent in parents:
                depth.append(depth[parent + 1] + 1)
            tokens.append(out + [-1] * (max(depth) + 1 - len(out)))
        elif style == "uniforms":
            law, u, total = asked["target"], asked["uniforms"][i][-1], 0.0
            for x, weight in enumerate(law):
                total += weight
                if u < total:
                    break
            tokens.append(x)
        elif "lengths" in asked:
            a, b = asked["lengths"][i], asked["lengths"][i + 1]
            path, targets = asked["path"][a:b], asked["targets"][a + i : b + i + 1]
            out = match(lambda here: targets[here],
                        lambda here, x: here + 1 if here < len(path) and x == path[here] else None)
            longest = max(q - p for p, q in zip(asked["lengths"], asked["lengths"][1:]))
            tokens.append(out + [-1] * (longest + 1 - len(out)))
        else:
            law = [0.0 if x is None else math.exp(x) for x in asked["target"]]
            tokens.append(draw(law))
    print(json.dumps({"tokens": tokens}), flush=True)
"""


@pytest.mark.parametrize(
    ("settings", "on"),
    [
        ({"style": "text"}, "two"),
        ({"style": "tree"}, "binary"),
        ({"style": "uniforms"}, "zeros"),
        ({"style": "block", "flat": True, "ragged": True}, "random-3"),
        ({"give": "logits", "dtype": "float32", "offset": 1}, "zeros"),
    ],
    ids=str,
)
def test_programs_get_the_same(tmp_path, settings, on):
    (tmp_path / "program.py").write_text(PROGRAM)
    chosen = CheckSettings(draws=2000, search=False, boundary=False, **settings)
    sampler = load_sampler(f"cmd:{sys.executable} {tmp_path / 'program.py'}", chosen)
    try:
        result = check_sampler(sampler, chosen, inputs=named_inputs([on], chosen.style))
    finally:
        with sampler.process as process:
            process.stdin.close()
    assert (result.verdict, result.reasons) == ("not-rejected", [])


def test_programs_get_no_arrays_of_a_library():
    with pytest.raises(InputError, match="leave out --arrays torch"):
        load_sampler(f"cmd:{sys.executable}", CheckSettings(arrays="torch"))
