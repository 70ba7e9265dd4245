"""What other projects use: the assertion, the strategies, the pytest plugin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from resispec_verify.errors import InputError
from resispec_verify.sampler_check.exits import no_exit
from resispec_verify.testing import assert_draft_as_declared, assert_lossless
from resispec_verify.testing.strategies import laws, pairs

EPS = float(np.finfo(np.float64).eps)
BASE = ([0.5, 0.3, 0.2], [0.6, 0.3, 0.1])


def exact(target, draft, rng):
    total = target.sum(axis=-1, keepdims=True)
    last = target.shape[-1] - 1 - np.argmax(target[:, ::-1] > 0, axis=-1)
    return np.minimum((np.cumsum(target, axis=-1) <= rng.random((len(target), 1)) * total).sum(axis=-1), last)


def emits_draft(target, draft, rng):
    return exact(draft, target, rng)


QUICK = {"draws": 2000, "batches": (8,)}


def test_a_lossless_sampler_passes_and_says_what_would_have_been_found():
    result = assert_lossless(exact, pairs=[BASE], **QUICK)
    assert 0 < result.detectable_tv < 0.5


def test_a_failure_ends_in_a_line_that_repeats_it():
    with pytest.raises(AssertionError) as failure:
        assert_lossless(emits_draft, pairs=[BASE], **QUICK)
    text = str(failure.value)
    assert text.startswith("emits_draft is not lossless\n")
    assert "target [0.5, 0.3, 0.2], draft [0.6, 0.3, 0.1]" in text
    again = text.splitlines()[-1].removeprefix("reproduce: ")
    with pytest.raises(AssertionError, match="is not lossless"):
        eval(again, {"assert_lossless": assert_lossless, "emits_draft": emits_draft})


def test_a_failure_on_a_chain_is_repeated_on_that_chain():
    def emits_path(targets, drafts, path, rng):
        return np.concatenate([path, np.full((len(path), 1), -1)], axis=1)

    with pytest.raises(AssertionError) as failure:
        assert_lossless(emits_path, style="block", draws=4000)
    again = str(failure.value).splitlines()[-1].removeprefix("reproduce: ")
    assert "pairs=['certain']" in again
    again = again.replace(emits_path.__qualname__, "emits_path")
    with pytest.raises(AssertionError, match="is not lossless"):
        eval(again, {"assert_lossless": assert_lossless, "emits_path": emits_path})


def test_pairs_by_name_by_value_and_wrong():
    with pytest.raises(AssertionError):
        assert_lossless(emits_draft, pairs=["v4"], **QUICK)
    with pytest.raises(InputError, match="no input named"):
        assert_lossless(exact, pairs=["v5"])
    with pytest.raises(InputError, match="sum to"):
        assert_lossless(exact, pairs=[([0.5, 0.4], [0.5, 0.5])])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pairs": ([0.5, 0.5], [0.5, 0.5])}, r"write pairs=\[\(target, draft\)\]"),
        ({"pairs": [np.array([0.5, 0.2, 0.3]), np.array([0.5, 0.5, 0.0])]}, r"write pairs=\[\(target, draft"),
        ({"style": "blokc"}, "got 'blokc'; did you mean 'block'"),
        ({"drawss": 3}, "no setting 'drawss'; did you mean 'draws'"),
        ({"nothing_like_it": 3}, "no setting 'nothing_like_it' .there are: style, candidates"),
        ({"pairs": ["peakd"]}, "no input named 'peakd' for the style tokens; did you mean 'peaked'"),
    ],
)
def test_wrong_arguments_say_what_was_perhaps_meant_in_one_frame(given, said):
    with pytest.raises(InputError, match=said) as failure:
        assert_lossless(exact, **given)
    assert [entry.name for entry in failure.traceback][1:] == ["assert_lossless"]
    assert "\n" not in str(failure.value)


def test_wrong_settings_of_a_declared_draft():
    with pytest.raises(InputError, match="no setting 'sed'; did you mean 'seed'"):
        assert_draft_as_declared(lambda rng: None, sed=3)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_os_exit_raises_in_the_sampler_and_nowhere_else():
    real, other = os._exit, []

    def leaves(target, draft, rng):
        thread = threading.Thread(target=lambda: other.append(threading.get_ident() in no_exit.inside))
        thread.start()
        thread.join()
        if (child := os.fork()) == 0:
            os._exit(7)
        other.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0)

    with pytest.raises(AssertionError, match=r"called os._exit\(0\), which ends the process at .* in leaves"):
        assert_lossless(leaves, pairs=[BASE], boundary=False, batches=(), draws=500)
    assert other[:2] == [False, 7]
    assert os._exit is real


def test_a_sampler_that_fails_fails_the_assertion():
    def broken(target, draft, rng):
        raise RuntimeError("no GPU")

    with pytest.raises(AssertionError, match=r"cannot be checked\nraised RuntimeError: no GPU"):
        assert_lossless(broken, pairs=[BASE], **QUICK)


def test_a_draft_declared_otherwise_fails():
    def argmax_declared_soft(rng):
        return [0], np.zeros((1, 4))

    with pytest.raises(AssertionError, match="not drawn from the draft that is declared"):
        assert_draft_as_declared(argmax_declared_soft)
    assert_draft_as_declared(lambda rng: (rng.integers(4, size=1), np.zeros((1, 4))), draws=500)


@given(pairs())
@settings(max_examples=50)
def test_strategies_give_distributions(pair):
    target, draft = pair
    assert target.shape == draft.shape
    for law in pair:
        assert law.dtype == np.float64
        assert law.min() >= 0
        assert abs(law.sum() - 1) <= len(law) * EPS


@given(laws(5, zeros=False))
@settings(max_examples=20)
def test_laws_without_zeros(law):
    assert law.min() > 0


PROJECT = """
import os
import numpy as np
from hypothesis import given, settings
from resispec_verify.testing import assert_lossless as direct
from resispec_verify.testing.strategies import pairs

def ours(target, draft, rng):
    total = target.sum(axis=-1, keepdims=True)
    last = target.shape[-1] - 1 - np.argmax(target[:, ::-1] > 0, axis=-1)
    return np.minimum((np.cumsum(target, axis=-1) <= rng.random((len(target), 1)) * total).sum(axis=-1), last)

def test_ours(assert_lossless):
    assert_lossless(ours, pairs=["base", "v4"])

@settings(max_examples=3, deadline=None)
@given(pair=pairs(max_vocab=4))
def test_many_pairs(pair):
    direct(ours, pairs=[pair], draws=300, batches=(4,))

def theirs(target, draft, rng):
    return target.argmax(axis=-1)

def test_theirs(assert_lossless):
    assert_lossless(theirs, pairs=["base"])

def leaves(target, draft, rng):
    os._exit(0)

def test_leaves(assert_lossless):
    assert_lossless(leaves, pairs=["base"])

def test_misspelt(assert_lossless):
    assert_lossless(ours, style="blokc")
"""


def test_the_plugin_in_a_project_of_its_own(tmp_path: Path):
    (tmp_path / "test_ours.py").write_text(PROJECT)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "-p", "resispec_verify.testing.plugin", "--lossless-draws", "2000", "--lossless-seed", "3",
        ],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert "3 failed, 2 passed" in done.stdout
    assert "theirs is not lossless" in done.stdout
    assert "never emitted: token 1, token 2" in done.stdout
    assert (
        "reproduce: assert_lossless(theirs, pairs=[([0.5, 0.3, 0.2], [0.6, 0.3, 0.1])], draws=2000, seed=3)"
        in done.stdout
    )
    summary = done.stdout.partition("samplers not rejected (no proof)")[2]
    assert re.search(
        r"ours: \d+ draws, a TV of 0\.\d+ on '(base|v4)' and of 0\.\d+ on '.+' would have", summary
    )
    assert "called os._exit(0), which ends the process at test_ours.py:" in done.stdout
    wrong = done.stdout.partition("test_misspelt _")[2].partition("____ ")[0].partition("==== ")[0]
    assert "did you mean 'block'?" in wrong
    assert len(wrong.splitlines()) < 15, wrong
    # The report is the message, not a page of our frames.
    assert "check_probes.py" not in done.stdout


def test_the_plugin_imports_nothing_heavy():
    found = "[m for m in ('numpy', 'scipy') if m in sys.modules]"
    code = f"import sys, resispec_verify.testing.plugin; print({found})"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
