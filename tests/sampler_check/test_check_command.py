"""`check` on the command line: exit statuses, reports, and what leads nowhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from check_helpers import FEW, check

from resispec_verify.cli import main


@pytest.mark.parametrize("form", ["samplers_of_mine:{}", "samplers_of_mine.py:{}"])
def test_exit_status_and_report(module, form, capfd):
    assert check(form.format("good"), *FEW) == 0
    out, err = capfd.readouterr()
    assert "not rejected" in out
    assert "no proof" in out
    assert "exact" not in out
    assert "a sampler may print" not in out
    assert "a sampler may print" in err
    assert check(form.format("greedy"), *FEW) == 1
    out = capfd.readouterr().out
    assert "rejected" in out
    assert "never emitted: token 1, token 2" in out
    assert "Again: resispec-verify check" in out


def test_json_on_standard_output_is_nothing_but_json(module, capfd):
    assert check("samplers_of_mine:good", *FEW, "--json", "-") == 0
    report = json.loads(capfd.readouterr().out)
    (result,) = report["results"]
    assert (report["schema"], report["command"], result["verdict"]) == (1, "check", "not-rejected")


def test_the_line_that_repeats_a_rejection_does(module, here, capfd):
    assert check("samplers_of_mine:greedy", *FEW) == 1
    line = next(line for line in capfd.readouterr().out.splitlines() if line.startswith("Again: "))
    words = line.removeprefix("Again: resispec-verify ").split()
    assert main([*words, "--draws", "600"]) == 1
    assert "--no-search" in words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("samplers_of_mien:good", ["no module 'samplers_of_mien'", "did you mean 'samplers_of_mine'"]),
        ("samplers_of_mine:godo", ["no 'godo'", "did you mean 'good'"]),
        ("samplers_of_mine.py:godo", ["no 'godo'", "did you mean 'good'"]),
        ("samplers_of_mine:constant", ["not callable", "int"]),
        ("samplers_of_mine", ["FILE.py:NAME or package.module:NAME or cmd:PROGRAM"]),
        ("nowhere.py:good", ["nowhere.py"]),
        ("cmd:", ["needs a program"]),
        ("cmd:no-such-program-at-all", ["no program"]),
    ],
)
def test_a_name_that_leads_nowhere_is_bad_input(module, here, name, words, capfd):
    assert check(name, *FEW) == 2
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert all(word in err for word in words)


@pytest.mark.parametrize(
    "options",
    [
        ["--target", "0.5,0.5"],
        ["--input", "nothing"],
        ["--alpha", "2"],
        ["--style", "block", "--input", "base"],
        ["--style", "block", "--target", "0.5,0.5", "--draft", "0.5,0.5"],
        ["--positions", "0:1"],
    ],
)
def test_options_that_make_no_sense_are_bad_input(module, options, capfd):
    assert check("samplers_of_mine:good", *options) == 2
    assert capfd.readouterr().err.startswith("resispec-verify: error: ")


def test_a_pair_by_hand(module, here):
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
def test_a_program_in_another_process(tmp_path, how, status, said, capfd):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = f"cmd:{sys.executable} {tmp_path / 'program.py'} {how}"
    options = ["--input", "base", "--draws", "3000", "--no-search", "--call-seconds", "2"]
    assert check(command, *options) == status
    assert said in capfd.readouterr().out


def test_positions_of_a_dump(module, capfd):

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
    names = {row["input"] for row in json.loads(capfd.readouterr().out)["results"][0]["inputs"]}
    assert any(name.endswith("position 0") for name in names)


def accepted_beyond(target, draft, rng):
    """Reports an index that no candidate of two has."""
    tokens = np.asarray([rng.choice(len(p), p=p) for p in target])
    return tokens, np.full(len(target), 3)


def spawning(target, draft, rng):
    """Exact, from a child of the generator it is given."""
    child = rng.spawn(1)[0]
    return np.asarray([child.choice(len(p), p=p) for p in target])


def test_an_accepted_index_beyond_the_rule_is_an_error(here, capfd):
    arguments = [f"{__file__}:accepted_beyond", "--rule", "specinfer", "--input", "base", "--draws", "500"]
    assert main(["check", *arguments, "--no-search"]) == 1
    shown = capfd.readouterr()
    assert "accepted" in shown.out
    assert "Traceback" not in shown.out + shown.err


def test_a_sampler_may_spawn(here, capfd):
    arguments = [f"{__file__}:spawning", "--input", "base", "--draws", "300", "--no-search"]
    assert main(["check", *arguments]) == 0
    assert "This is no proof" in capfd.readouterr().out


def test_a_name_is_no_emoji(tmp_path, here, capfd):
    (tmp_path / "s.py").write_text("def loop(target, draft, rng):\n    return target.argmax(axis=-1)\n")
    assert main(["check", f"{tmp_path}/s.py:loop", "--input", "base", "--draws", "300", "--no-search"]) == 1
    assert "s.py:loop" in capfd.readouterr().out


def test_the_line_that_repeats_says_what_matters(module, here, capfd):
    assert check("samplers_of_mine:greedy", *FEW, "--alpha", "1e-6", "--no-boundary", "--seed", "7") == 1
    line = next(line for line in capfd.readouterr().out.splitlines() if line.startswith("Again: "))
    assert "--target 0.5,0.3,0.2 --draft 0.6,0.3,0.1" in line
    assert "--alpha 1e-06" in line
    assert "--seed 7" in line
    assert "--no-boundary" in line
    assert check("samplers_of_mine:greedy", "--input", "wide", "--draws", "600", "--no-search") == 1
    line = next(line for line in capfd.readouterr().out.splitlines() if line.startswith("Again: "))
    assert "--input wide" in line


def test_the_line_that_repeats_names_the_input_alone(tmp_path, here, capfd):
    # The fault is on 'wide' only, which is too wide to be written out.
    (tmp_path / "wide_only.py").write_text(
        "def sampler(target, draft, rng):\n"
        "    if target.shape[1] == 4096:\n        return target.argmax(axis=-1)\n"
        "    return [rng.choice(len(p), p=p) for p in target]\n"
    )
    words = ["--draws", "3000", "--no-search", "--no-boundary", "--fail-ends", "float32"]
    assert main(["check", f"{tmp_path}/wide_only.py:sampler", *words]) == 1
    line = next(line for line in capfd.readouterr().out.splitlines() if line.startswith("Again: "))
    again = line.removeprefix("Again: resispec-verify ").split()
    assert again[2:] == [
        "--input", "wide", "--draws", "3000", "--no-search", "--no-boundary", "--fail-ends", "float32",
        "--seed", "0",
    ]  # fmt: skip
    assert main(again) == 1


def test_a_vast_offset_is_bad_input(module, capfd):
    assert check("samplers_of_mine:good", "--offset", "100000000000") == 2
    assert "offset must be in 0..1048576" in capfd.readouterr().err


def test_one_cause_is_printed_once_and_nothing_is_said_of_no_draws(tmp_path, here, capfd):
    (tmp_path / "raises.py").write_text(
        "def sampler(target, draft, rng):\n"
        "    if target.shape[1] == 4:\n        raise ValueError('no four')\n"
        "    return [rng.choice(len(p), p=p) for p in target]\n"
    )
    words = [
        "--draws",
        "300",
        "--no-search",
        "--no-boundary",
        "--input",
        "v4",
        "--input",
        "base",
        "--input",
        "peaked",
    ]
    assert main(["check", f"{tmp_path}/raises.py:sampler", *words]) == 1
    out = capfd.readouterr().out
    assert out.count("no four") == 1
    assert "raises.py:3 in sampler" in out
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["v4"])
    assert row == ["v4", "0", "-", "-", "-", "-", "yes"]


ONE_LAW_A_CALL = """
import numpy as np
def sampler(target, draft, rng):
    return rng.choice(target.shape[1], p=target[0], size=len(target))
"""


def test_rows_that_differ_are_repeated_by_their_two_inputs(tmp_path, here, capfd):
    (tmp_path / "one.py").write_text(ONE_LAW_A_CALL)
    words = ["--draws", "30000", "--no-search", "--no-boundary"]
    assert main(["check", f"{tmp_path}/one.py:sampler", *words]) == 1
    out = capfd.readouterr().out
    assert "On input 'rows of v4 and equal'" in out
    line = next(line for line in out.splitlines() if line.startswith("Again: "))
    again = line.removeprefix("Again: resispec-verify ").split()
    assert again[2:6] == ["--input", "v4", "--input", "equal"]
    assert main(again) == 1
    assert "On input 'rows of v4 and equal'" in capfd.readouterr().out


def test_inputs_that_are_chosen_are_all_that_is_tried_unless_a_search_is_asked_for(module, here, capfd):
    seen = []
    for more in ([], ["--search"]):
        words = ["--input", "base", "--draws", "300", "--no-boundary", *more, "--json", "-"]
        assert check("samplers_of_mine:good", *words) == 0
        seen.append(json.loads(capfd.readouterr().out)["results"][0])
    assert seen[1]["draws"] > 10_000 > seen[0]["draws"]
    assert seen[1]["tests"] > seen[0]["tests"]
    for excluded in (["--no-search"], ["--only-logits", "--logits", "nowhere.pt"]):
        assert check("samplers_of_mine:good", "--search", *excluded) == 2
    assert "--search is excluded by" in capfd.readouterr().err


def test_a_name_like_no_other_lists_the_first_functions(tmp_path, here, capfd):
    names = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    (tmp_path / "many.py").write_text("".join(f"def {name}(): ...\n" for name in names))
    assert main(["check", f"{tmp_path}/many.py:sampler"]) == 2
    assert "(there are: alpha, beta, gamma, delta, epsilon, zeta and 2 more)" in capfd.readouterr().err
