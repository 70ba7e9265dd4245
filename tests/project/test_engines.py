"""The survey of other people's samplers: its frame, and the committed page against the committed results."""

from __future__ import annotations

import json
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2] / "experiments" / "engines"
sys.path.insert(0, str(HERE))

import page  # noqa: E402
import run  # noqa: E402
import survey  # noqa: E402

WRAPPER = """
    from survey import Configuration, Engine

    def right(targets, drafts, path, rng):
        import numpy as np

        first = targets[:, 0].cumsum(-1)
        token = (first <= rng.random((len(path), 1)) * first[:, -1:]).sum(-1)
        return np.concatenate([token[:, None], np.full(path.shape, -1)], axis=1)

    def greedy(targets, drafts, path, rng):
        import numpy as np

        return np.concatenate([targets[:, 0].argmax(-1)[:, None], np.full(path.shape, -1)], axis=1)

    def broken(targets, drafts, path, rng):
        raise RuntimeError("no CUDA device")

    FEW = {"draws": 4096, "batches": (8,)}
    ENGINE = Engine(
        "toy",
        tuple(
            Configuration(f.__name__, f.__name__, f, settings=FEW, inputs=("bonus",))
            for f in (right, greedy, broken)
        ),
        package="numpy",
    )
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """An engine of three configurations, and the rows that come out."""
    path = tmp_path_factory.mktemp("wrappers") / "toy.py"
    path.write_text(textwrap.dedent(WRAPPER), encoding="utf-8")
    engine = survey.load(path)
    return engine, {one.name: run.measured(path, one, engine) for one in engine.configurations}


def test_a_row_says_what_was_run_and_what_came_out(toy):
    import numpy

    _, rows = toy
    assert [rows[name]["verdict"] for name in ("right", "greedy", "broken")] == [
        "not-rejected", "rejected", "error",
    ]  # fmt: skip
    right = rows["right"]
    assert right["version"] == numpy.__version__
    assert right["law"] == right["independence"] == "not-rejected"
    assert right["ends"]["verdict"] == "no-fault"
    assert right["detectable_tv"] == pytest.approx(right["check"]["detectable_tv"])
    assert right["detectable_on"] == "bonus"
    assert right["command"] == "python experiments/engines/run.py toy:right"
    greedy = rows["greedy"]
    assert "rejected" in (greedy["law"], greedy["independence"])
    assert greedy["detectable_tv"] is None
    assert "no CUDA device" in rows["broken"]["reason"]


def test_what_cannot_run_says_why_in_one_line(toy, tmp_path):
    engine, _ = toy
    one = engine.configurations[0]
    for change, words in (
        ({"needs": ("numpy==0.1",)}, "needs numpy==0.1; "),
        ({"needs": ("no-such-package==1",)}, "which is not installed"),
    ):
        path = tmp_path / "toy.py"
        path.write_text(
            textwrap.dedent(WRAPPER).replace('package="numpy"', f'package="numpy", needs={change["needs"]!r}')
        )
        found = run.measured(path, one, replace(engine, **change))
        assert words in found["cannot"]
        assert "\n" not in found["cannot"]


def judged(toy, **judgements):
    engine, rows = toy
    found = {("toy", name): row for name, row in rows.items()}
    given = [replace(one, judgement=judgements.get(one.name)) for one in engine.configurations]
    return page.judged({"toy": replace(engine, configurations=tuple(given))}, found)


FITTING = {
    "right": survey.Judgement("not rejected", "It draws from the target."),
    "greedy": survey.Judgement("lossy by design", "It takes the most probable token."),
    "broken": survey.Judgement("could not run", "CUDA only."),
}


def test_the_table_has_every_row_with_its_judgement(toy):
    text = page.table(judged(toy, **FITTING))
    assert text.count("| toy |") == 3
    assert "**lossy by design**: It takes the most probable token." in text
    assert "lossless" not in text


@pytest.mark.parametrize(
    ("row", "wrong"),
    [("right", "lossy by design"), ("greedy", "as claimed"), ("broken", "not rejected"), ("greedy", None)],
)
def test_a_judgement_that_contradicts_its_verdict_fails_the_page(toy, row, wrong):
    given = None if wrong is None else survey.Judgement(wrong, "So we say.")
    with pytest.raises(page.PageError, match=f"toy:{row}"):
        judged(toy, **FITTING | {row: given})


def test_a_fault_at_the_ends_of_float32_is_judged_one_or_spoken_of(toy):
    _, rows = toy
    often, seldom = (
        {"verdict": "fault", "reason": "u <= 0", "log2_probability": n, "often": "x"} for n in (-24, -53)
    )
    claim = survey.Judgement("as claimed", "It says so.")
    assert page.fits(claim, rows["right"])
    assert page.fits(claim, rows["right"] | {"ends": seldom})
    assert not page.fits(claim, rows["right"] | {"ends": often})
    said = survey.Judgement("as claimed", "Not rejected, but accepts at a uniform of 0.")
    assert page.fits(said, rows["right"] | {"ends": often})
    assert not page.fits(said, rows["greedy"] | {"ends": often})
    fault = survey.Judgement("fault", "It accepts at 0.", "transformers_single_position", "none found")
    assert page.fits(fault, rows["right"] | {"ends": often})
    assert not page.fits(fault, rows["right"])


def test_a_row_without_result_and_a_result_without_row_fail_the_page(toy):
    engine, rows = toy
    found = {("toy", name): row for name, row in rows.items()}
    with pytest.raises(page.PageError, match="has no result"):
        page.judged({"toy": engine}, {})
    with pytest.raises(page.PageError, match="which is no row"):
        page.judged({}, found)


def test_a_fault_needs_its_reproduction():
    with pytest.raises(ValueError, match="reproduction"):
        survey.Judgement("fault", "It is wrong.")
    with pytest.raises(ValueError, match=r"no-such\.py"):
        survey.Judgement("fault", "It is wrong.", "no-such", "none found")
    with pytest.raises(ValueError, match="whole sentences"):
        survey.Judgement("as claimed", "A sentence that goes on before ")


WRAPPERS = survey.wrappers()


def test_the_committed_page_is_that_of_the_committed_results():
    old = page.PAGE.read_text(encoding="utf-8")
    assert page.page(old, page.table(page.judged(WRAPPERS, page.results()))) == old


def test_no_wrapper_hides_a_package():
    for name, engine in WRAPPERS.items():
        packages = {engine.package, *(need.partition("==")[0] for need in engine.needs)}
        assert name not in {package.replace("-", "_") for package in packages if package}


def test_results_name_no_machine_and_no_path():
    for path in run.OUT.glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        assert "/" not in found["machine"]
        assert "/home" not in json.dumps(found["command"])
