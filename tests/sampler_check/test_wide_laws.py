"""Laws as wide as those of language models: what is found, in how many draws; positions of dumps alone."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from resispec_verify.cli import check_apart, check_child, main
from resispec_verify.sampler_check.battery import named
from resispec_verify.sampler_check.check import CheckSettings, check_sampler

VERY_WIDE = replace(named("very-wide"), share=1.0)
ORDER = np.argsort(-VERY_WIDE.target, kind="stable")
MASS = np.cumsum(VERY_WIDE.target[ORDER])


def emits(mass: float):
    """The target without its tail beyond this mass, renormalised, from a table."""
    kept = min(len(MASS), int(np.searchsorted(MASS, mass)) + 1)

    def sampler(target, draft, rng):
        found = np.searchsorted(MASS[:kept], rng.random(len(target)) * MASS[kept - 1], side="right")
        return ORDER[np.minimum(found, kept - 1)]

    return sampler


ALONE = CheckSettings(draws=4096, search=False, batches=())


@pytest.mark.parametrize(("dropped", "budget"), [(0.05, 1500), (0.03, 2000), (0.01, 4096)])
def test_a_dropped_tail_is_found_within_its_budget(dropped, budget):
    for seed in range(2):
        result = check_sampler(emits(1.0 - dropped), replace(ALONE, seed=seed), inputs=[VERY_WIDE])
        assert (result.verdict, result.witness["kind"]) == ("rejected", "law")
        assert result.witness["draws"] <= budget
        assert result.witness["tv_low"] <= dropped <= result.witness["tv_high"]


def test_the_whole_law_is_not_rejected_and_says_which_tail_would_be_missed():
    result = check_sampler(emits(1.0), ALONE, inputs=[VERY_WIDE])
    assert result.verdict == "not-rejected"
    (row,) = result.inputs
    # The .01 of the test above is the smallest tail that is tested, but for .001.
    assert row["detectable_tail"] == pytest.approx(0.01, abs=1e-4)
    names = {one["name"] for one in row["groupings"]}
    assert {"tokens", "tail beyond mass 0.97", "tail beyond the 50 most probable"} <= names
    assert all(one["detectable_tv"] <= 1.0 for one in row["groupings"])


# Positions of dumps


RIGHT = """
import numpy as np
def right(target, draft, rng):
    return np.array([np.searchsorted(np.cumsum(p), rng.random() * p.sum(), side="right") for p in target])
def nine(target, draft, rng):
    tokens = right(target, draft, rng)
    return np.where(np.isin(tokens, np.argsort(-target[0])[:60]), tokens, target.argmax(axis=-1))
"""


@pytest.fixture
def dump(tmp_path, monkeypatch):
    monkeypatch.setattr(check_apart, "run_apart", lambda job: check_child._checked(job, lambda kind: None))
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    target = rng.normal(0.0, 2.0, (6, 640)).astype(np.float32)
    np.savez("dump.npz", target_logits=target, draft_logits=target + rng.normal(0.0, 1.0, (6, 640)))
    (tmp_path / "s.py").write_text(RIGHT)


def inputs_of(capfd):
    (result,) = json.loads(capfd.readouterr().out)["results"]
    return result, {row["input"]: row["draws"] for row in result["inputs"] if row["rows"] is None}


def test_positions_alone_get_all_draws_and_no_search(dump, capfd):
    words = ["--logits", "dump.npz", "--positions", "4:6", "--draws", "2000", "--no-boundary", "--json", "-"]
    assert main(["check", "s.py:right", *words, "--only-logits"]) == 0
    result, drawn = inputs_of(capfd)
    assert set(drawn) == {"dump.npz, position 4", "dump.npz, position 5"}
    assert min(drawn.values()) >= 2000
    # Two tests of two positions and of five small batches: none of a search.
    assert result["tests"] == 2 * (2 + 5)
    # Without the option, what it always was: the battery first, and a tenth of the draws (64 / 640).
    assert main(["check", "s.py:right", *words, "--no-search", "--input", "base"]) == 0
    _, drawn = inputs_of(capfd)
    assert drawn["dump.npz, position 4"] == 200
    assert "base" in drawn


def test_a_fault_of_one_position_is_found_and_repeated(dump, capfd):
    words = ["--logits", "dump.npz", "--positions", "5:6", "--only-logits", "--draws", "4000"]
    assert main(["check", "s.py:nine", *words]) == 1
    line = next(line for line in capfd.readouterr().out.splitlines() if line.startswith("Again"))
    assert "--positions 5:6 --only-logits" in line
    assert main(line.partition("resispec-verify ")[2].split()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only-logits"], "no dump is given; give --logits DUMP"),
        (["--only-logits", "--logits", "dump.npz", "--input", "base"], "leave out --input"),
    ],
)
def test_only_logits_without_a_dump_or_with_others_is_refused(dump, words, said, capfd):
    assert main(["check", "s.py:right", *words]) == 2
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(("style", "name"), [("block", "bonus"), ("candidates", "v4"), ("tokens", "v4")])
def test_an_input_of_every_style_has_a_name(style, name):
    from resispec_verify.sampler_check.sources.styles import inputs_of, named_inputs

    (one,) = named_inputs([name], style)
    assert one.name == name
    assert name in {other.name for other in inputs_of(style)}
