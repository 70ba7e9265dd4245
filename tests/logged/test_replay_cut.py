"""Rounds in which a text ends: what is counted must not depend on what the coins did there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from round_engines import engine

from resispec_verify import make_rule
from resispec_verify.logged.replay import replay
from resispec_verify.logged.replay_summary import summarize_replay
from resispec_verify.logged.rounds_input import read_rounds
from resispec_verify.rules import make_path_rule

SPECULATIVE, BLOCK = make_rule("speculative"), make_path_rule("block")
G, VOCAB, END = 4, 5, 0


def laws_of(rule, target, draft, tokens):
    """Probability of each accepted length."""
    if rule is BLOCK:
        return BLOCK.outcome(target, draft, tokens)[0]
    chance = [min(1.0, target[i, x] / draft[i, x]) for i, x in enumerate(tokens)]
    return [np.prod(chance[:k]) * (1 - chance[k] if k < G else 1.0) for k in range(G + 1)]


def logged(style, k, tokens, stops, most):
    """What an engine logs of accepted length k: accepted, next_token and the tokens in the output.

    ``cut``: up to the end of the text and no next token. ``full``: all that it decided. ``silent``: all that
    it decided, and no next token where the text ended before it; ``mute``: never one.
    """
    end = min([i + 1 for i, token in enumerate(tokens) if token in stops] + [most])
    ended = k >= end
    accepted = end if ended and style == "cut" else k
    next_token = None if style == "mute" or (ended and style != "full") else 1
    return accepted, next_token, [*tokens[:k], 1][:end]


@pytest.mark.parametrize("rule", [SPECULATIVE, BLOCK])
@pytest.mark.parametrize("style", ["cut", "full", "silent", "mute"])
@pytest.mark.parametrize(
    ("where", "most"), [((), 9), ((0,), 9), ((1,), 9), ((1, 2), 9), ((3,), 9), ((), 2), ((2,), 1)]
)
def test_every_counted_place_is_a_fair_game(tmp_path, rule, style, where, most):
    """Summed over all accepted lengths, with their probabilities: outcomes less their expectations are 0."""
    rng = np.random.default_rng(5)
    target, draft = (rng.dirichlet(np.ones(VOCAB), size=g) for g in (G + 1, G))
    tokens = [END if i in where else int(x) for i, x in enumerate(rng.integers(1, VOCAB, G))]
    gain, reached = np.zeros(G), np.zeros(G)
    path = tmp_path / "rounds.pt"
    for k, chance in enumerate(laws_of(rule, target, draft, np.array(tokens))):
        accepted, next_token, output = logged(style, k, tokens, (END,), most)
        one = {"target_logits": torch.tensor(target).log(), "draft_logits": torch.tensor(draft).log(),
               "draft_tokens": torch.tensor(tokens), "accepted": accepted, "prompt": 1}  # fmt: skip
        other = {"target_logits": one["target_logits"][:1], "draft_logits": one["draft_logits"][:0],
                 "draft_tokens": torch.zeros(0, dtype=torch.int64), "accepted": 0, "prompt": 0}  # fmt: skip
        first = {"next_token": 1} if style != "mute" else {}
        dump = {"rounds": [other | first, one | {"next_token": next_token}], "meta": {"eos_token_id": END},
                "output_tokens": torch.tensor([1, *output])}  # fmt: skip
        torch.save(dump, path)
        result = replay(read_rounds(path), rule)
        for i, tally in result.tallies["tokens"].items():
            ((outcome, value, low, high),) = tally
            assert low <= value <= high
            gain[i] += chance * (outcome - value)
            reached[i] += chance
    assert np.abs(gain).max() < 1e-12
    seen = min([*(i + 1 for i in where), most, G])
    assert (reached[:seen] > 0).all()
    assert (reached[seen:] == 0).all()


@pytest.mark.parametrize("rule", [SPECULATIVE, BLOCK])
@pytest.mark.parametrize("coins", [True, False])
@pytest.mark.parametrize("cut", [True, False])
def test_right_engines_whose_texts_end_are_silent(rule, coins, cut):
    """Each fifth token ends the text; tests of single prefixes exceeded alpha 1e-6 in 1,000 rounds."""
    for seed in range(2):
        made = engine(np.random.default_rng([seed, 3]), 400, g=4, vocab=5, block=rule is BLOCK, coins=coins,
                      stop=END, cut=cut)  # fmt: skip
        row = summarize_replay(replay(made, rule), 0.05)
        assert (row["statistics"]["verdict"], row["divergences"]) == ("not-rejected", 0)
        assert row["decisions"] == row["agree"]
        assert (row["decisions"] > 400) == coins


def test_an_accepted_end_of_text_that_no_coin_can_have_accepted_diverges(tmp_path):
    """Path 0, 0, 0 of p = (1/2, 1/2), q = (3/4, 1/4): uniforms of .99 pass no prefix."""
    p, q = torch.tensor([[0.5, 0.5]] * 4).log(), torch.tensor([[0.75, 0.25]] * 3).log()
    one = {"draft_tokens": torch.tensor([0, 0, 0]), "draft_logits": q, "target_logits": p, "accepted": 1}
    path = tmp_path / "rounds.pt"
    for u, wrong in (([0.99, 0.99, 0.99], 1), ([0.99, 0.99, 0.01], 0), ([0.01, 0.99, 0.99], 0)):
        torch.save({"rounds": [one | {"u": torch.tensor(u)}], "meta": {"eos_token_id": 0}}, path)
        row = summarize_replay(replay(read_rounds(path), BLOCK))
        assert (row["decisions"], row["divergences"]) == (1, wrong)
