"""`check`: styles, time limits, bad samplers, user code, the command line."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pytest

from resispec_verify.analysis.check import CheckSettings, check_sampler
from resispec_verify.analysis.check_battery import Input, named
from resispec_verify.analysis.check_calls import BoundaryGenerator, Caller, SamplerError, boundary_words
from resispec_verify.analysis.check_draft import check_declared_draft
from resispec_verify.cli import main
from resispec_verify.errors import InputError

QUICK = CheckSettings(draws=600, search=False, batches=(1, 8))
BASE = [named("base")]

GOOD = '''
"""Samplers."""
import numpy as np

def good(target, draft, rng):
    print("a sampler may print")
    below = np.cumsum(target, axis=-1) <= rng.random((len(target), 1)) * target.sum(axis=-1, keepdims=True)
    return below.sum(axis=-1)

def greedy(target, draft, rng):
    return target.argmax(axis=-1)

constant = 3
'''


def good(target, draft, rng):
    total = target.sum(axis=-1, keepdims=True)
    last = target.shape[-1] - 1 - np.argmax(target[:, ::-1] > 0, axis=-1)
    return np.minimum((np.cumsum(target, axis=-1) <= rng.random((len(target), 1)) * total).sum(axis=-1), last)


def leaves(target, draft, rng):
    sys.exit(0)


def raises(target, draft, rng):
    raise ValueError("two\nlines")


BAD = {
    "raised ValueError: two lines": raises,
    "raised SystemExit: 0": leaves,
    "of shape (5,)": lambda p, q, rng: np.zeros(5, dtype=int),
    "of shape ()": lambda p, q, rng: None,
    "entry 3, outside of 0..2": lambda p, q, rng: np.full(len(p), 3),
    "entry -1, outside of 0..2": lambda p, q, rng: np.full(len(p), -1),
    "NaN": lambda p, q, rng: np.full(len(p), np.nan),
    "of type float64, not integers": lambda p, q, rng: np.zeros(len(p)),
    "of type bool, not integers": lambda p, q, rng: np.zeros(len(p), dtype=bool),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_sampler_that_fails_is_an_error_with_its_reason(reason):
    result = check_sampler(BAD[reason], QUICK, inputs=BASE)
    assert (result.verdict, result.stopped) == ("error", "error")
    assert reason in result.reason
    assert "\n" not in result.reason
    assert result.detectable_tv is None


def test_a_sampler_that_hangs_is_an_error():
    def hangs(target, draft, rng):
        time.sleep(5)

    started = time.monotonic()
    result = check_sampler(hangs, CheckSettings(call_seconds=0.2), inputs=BASE)
    assert result.verdict == "error"
    assert "did not return within 0.2 s" in result.reason
    assert time.monotonic() - started < 4


def test_a_sampler_gets_copies_and_is_scored_on_the_originals():
    def zeroes(target, draft, rng):
        tokens = good(target, draft, rng)
        target[:], draft[:] = 0.0, np.nan
        return tokens

    result = check_sampler(zeroes, QUICK, inputs=BASE)
    assert result.verdict == "not-rejected"
    assert result.reasons == ["writes into its input target", "writes into its input draft"]


def test_what_is_not_rejected_says_what_would_have_been_found():
    result = check_sampler(good, QUICK, inputs=BASE)
    assert result.verdict == "not-rejected"
    assert 0 < result.detectable_tv < 1
    assert result.alpha_per_test * result.tests <= result.alpha
    found = json.loads(json.dumps(result.result(), allow_nan=False))
    assert {"verdict", "reason", "draws", "alpha", "detectable_tv", "witness"} <= set(found)
    assert "exact" not in json.dumps(found)


def test_the_time_ends_a_run():
    result = check_sampler(good, CheckSettings(seconds=0.5))
    assert (result.verdict, result.stopped) == ("not-rejected", "time")


def test_a_run_can_be_repeated():
    one, two = (check_sampler(good, QUICK, inputs=BASE).result() for _ in range(2))
    assert {k: v for k, v in one.items() if k != "seconds"} == {
        k: v for k, v in two.items() if k != "seconds"
    }
    other = check_sampler(good, CheckSettings(draws=600, search=False, batches=(1, 8), seed=1), inputs=BASE)
    assert other.inputs != one["inputs"]


def test_tokens_may_be_a_torch_tensor():
    torch = pytest.importorskip("torch")
    result = check_sampler(lambda p, q, rng: torch.from_numpy(good(p, q, rng)), QUICK, inputs=BASE)
    assert result.verdict == "not-rejected"


@pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"power": 1.0}, {"draws": 0}, {"style": "x"}, {"seed": -1},
                                   {"seconds": 0.0}, {"proposal": "x"}, {"batches": (0,)}])  # fmt: skip
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InputError):
        CheckSettings(**wrong)


def test_inputs_must_fit_the_style():
    with pytest.raises(InputError, match="does not fit the style"):
        check_sampler(good, CheckSettings(style="block"), inputs=BASE)


def test_boundary_generators_reach_both_ends():
    rng = BoundaryGenerator(0)
    drawn = rng.random(1000)
    assert {0.0, 1.0 - 2.0**-53} <= set(drawn)
    assert 0.2 < ((drawn == 0.0) | (drawn == 1.0 - 2.0**-53)).mean() < 0.3
    assert rng.random(100, dtype=np.float32).dtype == np.float32
    assert isinstance(rng.random(), float)
    assert isinstance(rng, np.random.Generator)
    words = boundary_words(0, 0b0101, 0)
    assert words.random(4).tolist() == [1.0 - 2.0**-53, 0.0, 1.0 - 2.0**-53, 0.0]
    assert boundary_words(0, 0b1000, 3).random() == 1.0 - 2.0**-53
    # `choice` with probabilities draws by `random`.
    assert boundary_words(0, 0b0000, 0).choice(3, p=[0.0, 0.5, 0.5]) == 1


def test_what_a_job_raises_comes_through():
    caller = Caller(raises, 1.0)
    with pytest.raises(SamplerError, match="ValueError"):
        caller.run(lambda: caller.call(None, None, None))


# The declared draft


def draft_of(drawn, declared):
    drawn, logits = np.asarray(drawn, float), np.log(np.asarray(declared, float))

    def draw(rng):
        return rng.choice(len(drawn), size=2, p=drawn), np.stack([logits, logits])

    return draw


def test_a_draft_that_is_declared_as_drawn_is_not_rejected():
    result = check_declared_draft(draft_of([0.4, 0.3, 0.3], [0.4, 0.3, 0.3]), draws=2000)
    assert result.verdict == "not-rejected"
    assert 0 < result.detectable_tv < 0.2


def test_a_truncated_draft_declared_whole_is_rejected():
    result = check_declared_draft(draft_of([4 / 7, 3 / 7, 0.0, 0.0], [0.4, 0.3, 0.2, 0.1]), draws=2000)
    assert result.verdict == "rejected"
    assert "token 2" in result.witness["never_emitted"]


def test_a_draft_that_changes_between_calls_is_an_error():
    def draw(rng):
        return [0], rng.normal(size=(1, 4))

    assert "another draft" in check_declared_draft(draw).reason


# The command line


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "samplers_of_mine.py").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "samplers_of_mine"
    sys.modules.pop("samplers_of_mine", None)


FEW = ("--draws", "600", "--no-search", "--input", "base")


def check(*words):
    return main(["check", *map(str, words)])


@pytest.mark.parametrize("form", ["samplers_of_mine:{}", "samplers_of_mine.py:{}"])
def test_exit_status_and_report(module, form, capsys):
    assert check(form.format("good"), *FEW) == 0
    out, err = capsys.readouterr()
    assert "not rejected" in out
    assert "no proof" in out
    assert "exact" not in out
    assert "a sampler may print" not in out
    assert "a sampler may print" in err
    assert check(form.format("greedy"), *FEW) == 1
    out = capsys.readouterr().out
    assert "rejected" in out
    assert "never emitted: token 1, token 2" in out
    assert "Again: resispec-verify check" in out


def test_json_on_standard_output_is_nothing_but_json(module, capsys):
    assert check("samplers_of_mine:good", *FEW, "--json", "-") == 0
    report = json.loads(capsys.readouterr().out)
    (result,) = report["results"]
    assert (report["schema"], report["command"], result["verdict"]) == (1, "check", "not-rejected")


def test_the_line_that_repeats_a_rejection_does(module, capsys):
    assert check("samplers_of_mine:greedy", *FEW) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Again: "))
    words = line.removeprefix("Again: resispec-verify ").split()
    assert main([*words, "--draws", "600", "--no-search"]) == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("samplers_of_mien:good", ["no module 'samplers_of_mien'", "did you mean 'samplers_of_mine'"]),
        ("samplers_of_mine:godo", ["no 'godo'", "did you mean 'good'"]),
        ("samplers_of_mine.py:godo", ["no 'godo'", "did you mean 'good'"]),
        ("samplers_of_mine:constant", ["not callable", "int"]),
        ("samplers_of_mine", ["module:callable"]),
        ("nowhere.py:good", ["nowhere.py"]),
        ("cmd:", ["needs a program"]),
        ("cmd:no-such-program-at-all", ["no program"]),
    ],
)
def test_a_name_that_leads_nowhere_is_bad_input(module, name, words, capsys):
    assert check(name, *FEW) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert all(word in err for word in words)


@pytest.mark.parametrize(
    "options",
    [
        ["--target", "0.5,0.5"],
        ["--input", "nothing"],
        ["--alpha", "2"],
        ["--style", "block", "--input", "base"],
        ["--positions", "0:1"],
    ],
)
def test_options_that_make_no_sense_are_bad_input(module, options, capsys):
    assert check("samplers_of_mine:good", *options) == 2
    assert capsys.readouterr().err.startswith("resispec-verify: error: ")


def test_a_pair_by_hand(module):
    options = ["--target", "0.51,0.49", "--draft", "0.51,0.49", "--draws", "600", "--no-search"]
    assert check("samplers_of_mine:good", *options) == 0
    assert check("samplers_of_mine:greedy", *options) == 1


PROGRAM = """
import json, random, sys
for line in sys.stdin:
    asked = json.loads(line)
    rng = random.Random(asked["seed"])
    law = asked["target"] if sys.argv[1] == "good" else asked["draft"]
    if sys.argv[1] == "dies":
        sys.exit(3)
    if sys.argv[1] == "hangs":
        continue
    if sys.argv[1] == "babbles":
        print("hello", flush=True); continue
    print(json.dumps({"tokens": rng.choices(range(len(law)), law, k=asked["rows"])}), flush=True)
"""


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("good", 0, "not rejected"),
        ("draft", 1, "do not have the target's law"),
        ("dies", 1, "ended (status 3)"),
        ("babbles", 1, "not JSON"),
        ("hangs", 1, "did not return within 2 s"),
    ],
)
def test_a_program_in_another_process(tmp_path, how, status, said, capsys):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = f"cmd:{sys.executable} {tmp_path / 'program.py'} {how}"
    options = ["--input", "base", "--draws", "3000", "--no-search", "--call-seconds", "2"]
    assert check(command, *options) == status
    assert said in capsys.readouterr().out


def test_positions_of_a_dump(module, capsys):
    from pathlib import Path

    example = Path(__file__).parents[2] / "examples" / "smollm2-skip6-N8-fp16.pt"
    options = [
        "--logits",
        example,
        "--positions",
        "0:1",
        "--draws",
        "50000",
        "--no-search",
        "--input",
        "base",
    ]
    assert check("samplers_of_mine:good", *options, "--seconds", "20", "--json", "-") == 0
    names = {row["input"] for row in json.loads(capsys.readouterr().out)["results"][0]["inputs"]}
    assert any(name.endswith("position 0") for name in names)


def test_an_input_of_ones_own_from_python():
    own = Input("mine", np.array([0.2, 0.8]), np.array([0.8, 0.2]))
    assert check_sampler(lambda p, q, rng: good(q, p, rng), QUICK, inputs=[own]).verdict == "rejected"


@pytest.mark.parametrize("proposal", ["iid", "without-replacement"])
def test_candidates_that_are_handed_in_have_the_law_of_their_proposal(proposal):
    from resispec_verify.analysis.check_sources import draw_candidates
    from resispec_verify.evidence.statistical import fit_test

    draft = np.array([0.4, 0.3, 0.0, 0.2, 0.1])
    first, second = draft[:, None], draft[None, :]
    law = first * second
    if proposal == "without-replacement":
        law = np.where(np.eye(5) > 0, 0.0, law / (1.0 - first))
    tests = []
    for due in (law, np.outer(draft, np.full(5, 0.2))):  # its twin, a law that is not theirs
        tests.append(fit_test(due.ravel()))
        drawn = draw_candidates(np.random.default_rng(0), draft, 20_000, 2, proposal)
        tests[-1].update(drawn[:, 0] * 5 + drawn[:, 1])
    assert tests[0].log_evidence < 20.7 < tests[1].log_evidence


def test_the_top_candidates_are_those_of_the_draft():
    from resispec_verify.analysis.check_sources import draw_candidates

    drawn = draw_candidates(np.random.default_rng(0), np.array([0.2, 0.5, 0.3]), 2, 2, "top")
    assert drawn.tolist() == [[1, 2], [1, 2]]


def accepted_beyond(target, draft, rng):
    """Reports an index that no candidate of two has."""
    tokens = np.asarray([rng.choice(len(p), p=p) for p in target])
    return tokens, np.full(len(target), 3)


def spawning(target, draft, rng):
    """Exact, from a child of the generator it is given."""
    child = rng.spawn(1)[0]
    return np.asarray([child.choice(len(p), p=p) for p in target])


def test_an_accepted_index_beyond_the_rule_is_an_error(tmp_path, capsys):
    arguments = [f"{__file__}:accepted_beyond", "--rule", "specinfer", "--input", "base", "--draws", "500"]
    assert main(["check", *arguments, "--no-search"]) == 1
    shown = capsys.readouterr()
    assert "accepted" in shown.out
    assert "Traceback" not in shown.out + shown.err


def test_a_sampler_may_spawn(capsys):
    arguments = [f"{__file__}:spawning", "--input", "base", "--draws", "300", "--no-search"]
    assert main(["check", *arguments]) == 0
    assert "This is no proof" in capsys.readouterr().out


def test_a_run_without_time_says_that_it_is_no_proof(capsys):
    arguments = [f"{__file__}:spawning", "--input", "base", "--seconds", "0.001", "--no-search"]
    assert main(["check", *arguments]) == 0
    assert "This is no proof" in capsys.readouterr().out


def test_a_name_is_no_emoji(tmp_path, capsys):
    (tmp_path / "s.py").write_text("def loop(target, draft, rng):\n    return target.argmax(axis=-1)\n")
    assert main(["check", f"{tmp_path}/s.py:loop", "--input", "base", "--draws", "300", "--no-search"]) == 1
    assert "s.py:loop" in capsys.readouterr().out
