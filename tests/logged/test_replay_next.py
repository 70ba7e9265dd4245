"""Residual and bonus draws: right engines stay silent, planted faults are found, rounding is allowed for."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from round_engines import FAULTS, engine, residual

from resispec_verify import make_rule
from resispec_verify.distributions import Sampling
from resispec_verify.logged.next_tokens import NextToken
from resispec_verify.logged.replay import replay
from resispec_verify.logged.replay_summary import summarize_replay
from resispec_verify.logged.round_rows import read_rows
from resispec_verify.logged.rounds_input import half_ulp, read_rounds
from resispec_verify.rules import make_path_rule

SPECULATIVE, BLOCK = make_rule("speculative"), make_path_rule("block")


def summary(rounds, rule=SPECULATIVE, alpha=1e-6):
    return summarize_replay(replay(rounds, rule), alpha)


def by_kind(row):
    return {test["kind"]: test for test in row["next_token_tests"]}


@pytest.mark.parametrize(("rule", "block"), [(SPECULATIVE, False), (BLOCK, True)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_right_engines_are_silent(rule, block, dtype):
    """Eight runs at alpha .05, where alarms could be seen; the benchmark does 400 of 3,000 rounds."""
    for seed in range(8):
        made = engine(np.random.default_rng([seed, 14]), 80, block=block, dtype=dtype, coins=seed % 2 == 0)
        row = summary(made, rule, 0.05)
        assert (row["statistics"]["verdict"], row["divergences"]) == ("not-rejected", 0)


def test_drafts_equal_to_the_target_but_for_rounding_are_silent():
    """Residuals of pure rounding: rejections are near-ties, and their tokens may be any."""
    for seed in range(5):
        made = engine(np.random.default_rng(seed), 200, spread=0.01, dtype=np.float16, coins=True)
        row = summary(made, alpha=0.05)
        assert row["statistics"]["verdict"] == "not-rejected"


# A third more rounds than weak faults need with this seed; half of 300 do for all others.
ROUNDS = {
    "residual: temperature 0.8": 3600,
    "bonus: temperature 0.8": 1600,
    "bonus: temperature 1.25": 1600,
    "bonus: top-k 6 not undone": 800,
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_of_next_tokens_are_found(name):
    """In the kind of draw that is wrong, with all acceptances right, as the benchmark counts their draws."""
    made = engine(np.random.default_rng(1), ROUNDS.get(name, 300), FAULTS[name])
    row = summary(made)
    kind = name.split(":")[0]
    tests = by_kind(row)
    other = ({"residual", "bonus"} - {kind}).pop()
    assert tests[kind]["verdict"] == row["statistics"]["verdict"] == "rejected"
    assert tests[other]["verdict"] == row["acceptance_verdict"] == "not-rejected"


def test_the_tests_share_alpha_and_say_what_they_looked_at():
    row = summary(engine(np.random.default_rng(0), 300, g=3))
    assert row["statistics"]["tests"] == 2 * 3 + 1 + 2
    tests = by_kind(row)
    assert sum(test["draws"] for test in tests.values()) == row["next_tokens"] == 300
    assert {test["impossible"] for test in tests.values()} == {0}
    assert all(0 < test["detectable_tv"] < 1 for test in tests.values())
    more = by_kind(summary(engine(np.random.default_rng(0), 1500, g=3)))
    assert all(more[kind]["detectable_tv"] < tests[kind]["detectable_tv"] for kind in tests)


def test_a_residual_of_block_verification_without_the_weight_is_found():
    """vllm-ascend#7807: accepted as a block, but recovered from the residual of each token alone."""
    wrong = engine(
        np.random.default_rng(0), 1500, lambda p, q, k, w: p[k] if k == len(q) else residual(p[k], q[k]),
        g=4, block=True, spread=1.2,
    )  # fmt: skip
    test = by_kind(summary(wrong, BLOCK))["residual"]
    assert test["verdict"] == "rejected"
    assert summary(engine(np.random.default_rng(0), 1500, g=4, block=True, spread=1.2), BLOCK)["statistics"][
        "verdict"
    ] == "not-rejected"  # fmt: skip


SAMPLINGS = [
    Sampling(), Sampling(0.6), Sampling(0.0), Sampling(1.3, top_k=3), Sampling(0.8, top_p=0.7),
    Sampling(1.0, min_p=0.2), Sampling(1.0, 4, 0.8, 0.1),
]  # fmt: skip


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("accepted", [0, 1])
def test_the_box_holds_every_law_that_rounds_to_the_log(sampling, accepted):
    """Logits moved by up to half a unit: which tokens a filter keeps changes too, with many near-ties."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        target = (np.round(rng.normal(size=(2, 6)) * 2) / 2 + 8).astype(np.float16)
        draft = (np.round(rng.normal(size=(1, 6)) * 2) / 2 + 8).astype(np.float16)
        entry = {"target_logits": target, "draft_logits": draft, "draft_tokens": np.array([0]),
                 "accepted": accepted}  # fmt: skip
        rows = read_rows("here", entry, slice(0, 2), sampling)
        draw = NextToken(SPECULATIVE, rows, entry, 0)
        low, high = draw.box
        for _ in range(20):
            signs = np.sign(rng.normal(size=(2, 2, 6)))
            p, q = (
                sampling.probabilities(
                    stored + signs[i, : len(stored)] * half_ulp(stored, np.float16), dtype=np.float64
                )
                for i, stored in enumerate((target.astype(np.float64), draft.astype(np.float64)))
            )
            mass = p[1] if accepted else np.clip(p[0] - q[0], 0, None)
            if accepted:  # the bonus's masses are relative: any scale between the bounds will do
                seen = mass > 0
                assert not (seen & (high == 0)).any()
                assert not (~seen & (low > 0)).any()
                assert (low[seen] / mass[seen]).max() <= (high[seen] / mass[seen]).min()
            else:
                assert (low <= mass).all()
                assert (mass <= high).all()


def test_probabilities_are_refused_and_read_when_they_are_named(tmp_path):
    one = {"draft_tokens": torch.tensor([0]), "draft_logits": torch.tensor([[0.6, 0.3, 0.1]]), "accepted": 0,
           "target_logits": torch.tensor([[0.5, 0.3, 0.2]] * 2), "u": torch.tensor([0.9]),
           "next_token": 2}  # fmt: skip
    path = tmp_path / "rounds.pt"
    torch.save({"rounds": [one, one | {"draft_tokens": torch.tensor([0])}]}, path)
    with pytest.raises(Exception, match="look like probabilities, not logits; say --input probabilities"):
        read_rounds(path)
    row = summary(read_rounds(path, kind="probabilities"))
    assert (row["decisions"], row["agree"], row["divergences"]) == (2, 2, 0)
    row = summary(read_rounds(path, kind="logits"))
    assert row["agree"] == 0
    logs = one | {key: one[key].log() for key in ("draft_logits", "target_logits")}
    torch.save({"rounds": [logs]}, path)
    assert summary(read_rounds(path))["agree"] == 1
    assert summary(read_rounds(path, kind="log-probabilities"))["agree"] == 1
    with pytest.raises(Exception, match="round 0: target_logits, position 0: token 0 has probability"):
        summary(read_rounds(path, kind="probabilities"))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("value", [0.3, 1e-3])
def test_stored_probabilities_have_the_rounding_of_their_type(dtype, value):
    """p = .3 in two bytes is off by up to half a unit of itself; a stored 0 need not have been 0."""
    stored = np.array([[value, 1 - value, 0.0]]).astype(dtype)
    entry = {"target_logits": stored, "draft_logits": stored[:0], "draft_tokens": np.zeros(0, np.int64)}
    low, high = read_rows("here", entry, slice(0, 1), Sampling(), "probabilities").target_box().normalised()
    assert low[0, 0] <= value <= high[0, 0]
    unit = float(ml_dtypes.finfo(dtype).eps)
    assert high[0, 0] - low[0, 0] < 3 * value * max(unit, 1e-5)
    assert (high[0, 2] > 0) == (dtype != np.float32)
