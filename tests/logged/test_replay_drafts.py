"""Drafted tokens held against the rows that they are said to be drawn from."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from round_engines import DRAFT_FAULTS, engine

from resispec_verify import make_rule
from resispec_verify.distributions import Sampling
from resispec_verify.logged.replay import replay
from resispec_verify.logged.replay_summary import summarize_replay
from resispec_verify.logged.rounds_input import read_rounds
from resispec_verify.rules import make_path_rule

SPECULATIVE, BLOCK = make_rule("speculative"), make_path_rule("block")


def summary(made, rule=SPECULATIVE, alpha=1e-6):
    return summarize_replay(replay(made, rule), alpha)


@pytest.mark.parametrize(("rule", "block"), [(SPECULATIVE, False), (BLOCK, True)])
@pytest.mark.parametrize("name", DRAFT_FAULTS)
def test_drafts_from_another_law_are_found(rule, block, name):
    """Acceptances given the tokens are right, and so are the next tokens."""
    made = engine(np.random.default_rng(2), 600, drafts=DRAFT_FAULTS[name], block=block)
    row = summary(made, rule)
    test = row["draft_token_test"]
    assert test["verdict"] == row["statistics"]["verdict"] == "rejected"
    assert test["draws"] == 1200
    assert {one["verdict"] for one in row["next_token_tests"]} == {"not-rejected"}


SAMPLINGS = [
    Sampling(),
    Sampling(0.7, top_k=5),
    Sampling(1.0, top_p=0.8),
    Sampling(1.0, min_p=0.1),
    Sampling(0.0),
]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_right_drafts_of_rounded_rows_are_silent(tmp_path, sampling, dtype):
    """Drawn before the rows were rounded: at the border of a filter the log may exclude what was drawn."""
    rng = np.random.default_rng(0)
    rounds = []
    for _ in range(150):
        target, draft = (3 * rng.normal(size=(g, 12)) for g in (3, 2))
        tokens = [int(rng.choice(12, p=law)) for law in sampling.probabilities(draft, dtype=np.float64)]
        rounds.append({
            "target_logits": torch.tensor(target.astype(dtype).astype(np.float32)).to(KINDS[dtype]),
            "draft_logits": torch.tensor(draft.astype(dtype).astype(np.float32)).to(KINDS[dtype]),
            "draft_tokens": torch.tensor(tokens), "accepted": 0,
        })  # fmt: skip
    path = tmp_path / "rounds.pt"
    stated = {key: value for key, value in vars(sampling).items() if value is not None}
    torch.save({"rounds": rounds, "meta": {"sampling": stated}}, path)
    test = summary(read_rounds(path), alpha=0.05)["draft_token_test"]
    assert (test["draws"], test["impossible"], test["verdict"]) == (300, 0, "not-rejected")


KINDS = {np.float16: torch.float16, ml_dtypes.bfloat16: torch.bfloat16}


def level(tokens, **others):
    half = torch.tensor([[0.5, 0.5]]).log()
    one = {"draft_logits": half, "target_logits": torch.cat([half, half]), "accepted": 1}
    return [one | others | {"draft_tokens": torch.tensor([token])} for token in tokens]


def of(tmp_path, rounds, **others):
    torch.save({"rounds": rounds} | others, tmp_path / "rounds.pt")
    return summary(read_rounds(tmp_path / "rounds.pt"))


def test_a_point_mass_is_a_draw_from_its_own_row(tmp_path):
    """Always token 0 of (1/2, 1/2): 100 draws have 2^-100. Of a one-hot row they are what must come."""
    row = of(tmp_path, level([0] * 100))
    assert row["draft_token_test"]["verdict"] == row["statistics"]["verdict"] == "rejected"
    assert row["draft_token_test"]["looks_like"] in ("the most probable token", "tokens by id")
    sure = {"draft_logits": torch.tensor([[0.0, -torch.inf]])}
    test = of(tmp_path, level([0] * 100, **sure))["draft_token_test"]
    assert (test["verdict"], test["impossible"], test["draws"]) == ("not-rejected", 0, 100)


def test_a_stated_proposal_is_what_drafts_are_drawn_from(tmp_path):
    sure = {"proposal_logits": torch.tensor([[0.0, -torch.inf]])}
    assert of(tmp_path, level([0] * 100, **sure))["draft_token_test"]["verdict"] == "not-rejected"
    row = of(tmp_path, level([0] * 99 + [1], **sure))
    assert (row["undraftable_tokens"], row["statistics"]["verdict"]) == (1, "rejected")


def test_rejected_drafts_count_too_and_those_after_the_end_do_not(tmp_path):
    """Drafting does not wait for coins; after the end of a text an engine may draft anything."""
    half = torch.tensor([[0.5, 0.5]]).log()
    one = {"draft_logits": half.repeat(4, 1), "target_logits": half.repeat(5, 1), "accepted": 0,
           "draft_tokens": torch.tensor([0, 1, 0, 0])}  # fmt: skip
    assert of(tmp_path, [one])["draft_token_test"]["draws"] == 4
    assert of(tmp_path, [one], meta={"eos_token_id": 1})["draft_token_test"]["draws"] == 2
