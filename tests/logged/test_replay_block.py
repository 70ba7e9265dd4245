"""Block verification replayed: against the rule's own law, and against engines with one fault."""

from __future__ import annotations

import numpy as np
import pytest
from round_engines import engine

from resispec_verify import make_rule
from resispec_verify.distributions import Sampling
from resispec_verify.logged.block import passes
from resispec_verify.logged.next_tokens import NextToken
from resispec_verify.logged.replay import replay
from resispec_verify.logged.replay_summary import summarize_replay
from resispec_verify.logged.round_rows import read_rows
from resispec_verify.rules import make_path_rule

BLOCK = make_path_rule("block")


def entry_of(target, draft, tokens, accepted=0, dtype=np.float64):
    return {"target_logits": np.log(target).astype(dtype), "draft_logits": np.log(draft).astype(dtype),
            "draft_tokens": np.asarray(tokens), "accepted": accepted, "stopped": False, "u": None,
            "u_next": None, "next_token": None, "u_slack": 0.0}  # fmt: skip


def random_round(seed, g=4, vocab=6):
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.ones(vocab), size=g + 1)
    draft = 0.6 * target[:g] + 0.4 * rng.dirichlet(np.ones(vocab), size=g)
    return target, draft, np.array([rng.choice(vocab, p=row) for row in draft])


@pytest.mark.parametrize("seed", range(10))
def test_prefix_tests_give_the_law_of_the_rule(seed):
    """P(length k) = h_k times what all longer ones leave, and the residual is that of the rule."""
    target, draft, tokens = random_round(seed)
    entry = entry_of(target, draft, tokens)
    rows = read_rows("here", entry, slice(0, 5), Sampling())
    value, low, high = passes(rows, tokens)
    lengths, corrections = BLOCK.outcome(target, draft, tokens)
    left = 1.0
    for k in range(4, 0, -1):
        assert left * value[k - 1] == pytest.approx(lengths[k], abs=1e-12)
        left *= 1 - value[k - 1]
    assert (low <= value).all()
    assert (value <= high).all()
    assert (high - low).max() < 1e-4  # what is left is an engine's float32
    for k in range(5):
        draw = NextToken(BLOCK, rows, entry | {"accepted": k}, 0)
        assert draw.law == pytest.approx(corrections[k], abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_interval_of_each_test_holds_what_rounding_does(dtype):
    rng = np.random.default_rng(0)
    for seed in range(10):
        target, draft, tokens = random_round(seed)
        entry = entry_of(target, draft, tokens, dtype=dtype)
        _, low, high = passes(read_rows("here", entry, slice(0, 5), Sampling()), tokens)
        for _ in range(30):
            eps = np.finfo(dtype).eps
            moved = [
                entry[key].astype(np.float64) * (1 + 0.24 * eps * rng.choice([-1.0, 1.0], entry[key].shape))
                for key in ("target_logits", "draft_logits")
            ]
            p, q = (Sampling().probabilities(rows, dtype=np.float64) for rows in moved)
            value, _, _ = passes(read_rows("here", entry_of(p, q, tokens), slice(0, 5), Sampling()), tokens)
            assert (low <= value).all()
            assert (value <= high).all()


def test_by_hand():
    """p = (1/2, 1/2), q = (3/4, 1/4) twice, path 0, 0: w = 2/3, 4/9; S_1 = 1/12; h_1 = 1/5."""
    p, q = [[0.5, 0.5]] * 3, [[0.75, 0.25]] * 2
    rows = read_rows("here", entry_of(p, q, [0, 0]), slice(0, 3), Sampling())
    value, _, _ = passes(rows, np.array([0, 0]))
    assert value.tolist() == pytest.approx([(1 / 12) / (1 / 12 + 1 / 3), 4 / 9], rel=1e-12)


def summary(made, uniforms=True):
    return summarize_replay(replay(made, BLOCK, uniforms=uniforms))


def test_a_right_engine_agrees_everywhere():
    row = summary(engine(np.random.default_rng(0), 300, g=4, block=True, coins=True))
    assert row["decisions"] == row["agree"] > 300
    assert row["divergences"] == 0
    assert row["statistics"]["verdict"] == "not-rejected"
    assert row["statistics"]["tests"] == 4 + 2 + 2  # over the drafts nothing is tested: null
    assert row["acceptance_by_position"][0]["expected_over_drafts"] is None


def test_decisions_token_by_token_are_not_those_of_a_block_and_the_reverse():
    by_token = summary(engine(np.random.default_rng(0), 300, g=4, coins=True))
    assert by_token["divergences"] > 5
    made = engine(np.random.default_rng(0), 300, g=4, block=True, coins=True)
    assert summarize_replay(replay(made, make_rule("speculative")))["divergences"] > 5


def test_without_uniforms_the_rates_tell_them_apart():
    made = engine(np.random.default_rng(0), 1200, g=4, spread=1.5)
    row = summary(made, uniforms=False)
    assert row["decisions"] == 0
    assert row["acceptance_verdict"] == "rejected"
    right = summary(engine(np.random.default_rng(0), 1200, g=4, spread=1.5, block=True), uniforms=False)
    assert right["acceptance_verdict"] == "not-rejected"


def test_the_longest_prefix_that_passes_wins():
    """Uniforms .1, .9, .1 with h = 1/5 and more: the whole block passes, whatever shorter ones did."""
    p, q = [[0.5, 0.5]] * 3, [[0.75, 0.25]] * 2
    for u, right in (([0.9, 0.4], 2), ([0.1, 0.5], 1), ([0.3, 0.5], 0)):
        for logged in range(3):
            one = entry_of(p, q, [0, 0], logged) | {"u": np.array(u)}
            made = engine(np.random.default_rng(0), 1)
            object.__setattr__(made, "rounds", [one])
            result = replay(made, BLOCK)
            assert bool(result.diverges()) == (logged != right)
            assert len(result.checks) == 2 - max(logged, 1) + 1


def test_a_prefix_that_cannot_pass_is_impossible_without_uniforms():
    p = [[0.0, 1.0], [0.5, 0.5]]
    with np.errstate(divide="ignore"):
        one = entry_of(np.array(p), np.array([[0.5, 0.5]]), [0], 1)
    made = engine(np.random.default_rng(0), 1)
    object.__setattr__(made, "rounds", [one])
    assert [check.recomputed for check in replay(made, BLOCK).diverges()] == ["rejected"]
