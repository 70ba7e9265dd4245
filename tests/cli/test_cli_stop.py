"""`check --stop FILE.py:NAME`: a draft-length policy from a user's file cuts the paths."""

import shutil

import numpy as np
import pytest
import stopping_sampler
from cli_helpers import assert_refused

from resispec_verify.cli.user_samplers import load_policy
from resispec_verify.errors import InputError
from resispec_verify.rules.stopping import CheckedPolicy, TopProbability

POLICIES = """
import numpy as np
from resispec_verify.rules.stopping import AfterVerification, Entropy, StopPolicy, TopProbability

fair = TopProbability(0.5)
unfair = TopProbability(0.5, reads="after")
later = AfterVerification(Entropy(1.0))
number = 3


class Raises(StopPolicy):
    def kept(self, drafts, path):
        raise ValueError("no heads")


class Shape(StopPolicy):
    def kept(self, drafts, path):
        return np.ones((2, 2))


class Law(StopPolicy):
    def kept(self, drafts, path):
        return np.ones((len(path), path.shape[1] + 1))


class Complex(StopPolicy):
    def kept(self, drafts, path):
        return np.eye(path.shape[1] + 1)[np.zeros(len(path), int)] + 1j


class Writes(StopPolicy):
    def kept(self, drafts, path):
        path[:], drafts[:] = 0, 0
        return np.eye(path.shape[1] + 1)[np.full(len(path), 1)]


raises, shape, law, writes, imaginary = Raises(), Shape(), Law(), Writes(), Complex()
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "policies.py").write_text(POLICIES)
    shutil.copy(stopping_sampler.__file__, tmp_path / "engine.py")
    return tmp_path


@pytest.mark.parametrize(("name", "verdict"), [("fair", "not-rejected"), ("unfair", "rejected")])
def test_a_verifier_is_judged_together_with_the_policy_before_it(cli, files, name, verdict):
    policy = f"{files / 'policies.py'}:{name}"
    options = ("--style", "block", "--input", "random-3", "--draws", 8000, "--alpha", 1e-6)
    options += ("--no-search", "--no-boundary")
    result = cli("check", f"{files / 'engine.py'}:ragged", *options, "--stop", policy)
    assert result.status == (0 if verdict == "not-rejected" else 1), result
    assert "random-3, cut" in result.out
    if verdict == "rejected":
        assert f"--stop {policy}" in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("TopProbability", ["is a class", "policy = TopProbability(...)"]),
        ("later", ["cuts after verification"]),
        ("number", ["no StopPolicy", "type int"]),
        ("fairr", ["no 'fairr'", "did you mean 'fair'"]),
    ],
)
def test_what_is_no_policy_is_refused(files, name, words):
    with pytest.raises(InputError) as refused:
        load_policy(f"{files / 'policies.py'}:{name}")
    assert all(word in str(refused.value) for word in ["--stop", *words])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "kept raised ValueError: no heads"),
        ("shape", r"shape \(2, 2\); give \(5, 4\)"),
        ("law", "probabilities that sum to 1"),
        ("imaginary", "kept raised .*: Cannot cast array data"),
    ],
)
def test_what_a_policy_gives_is_checked(files, name, words):
    policy = load_policy(f"{files / 'policies.py'}:{name}")
    with pytest.raises(InputError, match=words):
        policy.kept(np.full((5, 3, 4), 0.25), np.zeros((5, 3), np.int64))


def test_a_policy_gets_copies(files):
    drafts, path = np.full((5, 3, 4), 0.25), np.ones((5, 3), np.int64)
    kept = load_policy(f"{files / 'policies.py'}:writes").kept(drafts, path)
    assert (kept.argmax(axis=1) == 1).all()
    assert (drafts == 0.25).all()
    assert (path == 1).all()


def test_a_checked_policy_keeps_as_many():
    drafts = np.array([[[0.9, 0.1], [0.6, 0.4]], [[0.5, 0.5], [0.9, 0.1]]])
    path, policy = np.zeros((2, 2), np.int64), TopProbability(0.7)
    assert np.array_equal(CheckedPolicy(policy, "--stop p").kept(drafts, path), policy.kept(drafts, path))


def test_bad_usage_is_one_line(cli, files):
    sampler, policies = f"{files / 'engine.py'}:ragged", files / "policies.py"
    assert_refused(cli("check", sampler, "--stop", f"{policies}:fair"), "--stop is for --style block")
    block = ("check", sampler, "--style", "block")
    assert_refused(cli(*block, "--stop", policies), "say what of the file is meant")
    assert_refused(cli(*block, "--stop", f"{policies}:raises"), "--stop", "kept raised ValueError: no heads")
