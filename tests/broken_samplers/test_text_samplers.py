"""The text style: an exact loop passes, planted faults are found within stated draws."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
import text_samplers as s

from resispec_verify.sampler_check.battery import Models
from resispec_verify.sampler_check.battery.texts import models
from resispec_verify.sampler_check.calls import Caller
from resispec_verify.sampler_check.check import CheckSettings, check_sampler
from resispec_verify.sampler_check.sources import TextSource

SEEDS = range(3)


def run(sampler, inputs=None, **settings):
    chosen = {"style": "text", "draws": 20_000, "batches": (8,), **settings}
    return check_sampler(sampler, CheckSettings(**chosen), inputs=inputs)


def test_an_exact_loop_is_not_rejected():
    result = run(s.right, draws=8000)
    assert (result.verdict, result.reasons) == ("not-rejected", [])
    assert 0 < result.detectable_tv < 0.25


# Sampler, input, most draws on it (median over seeds, error rate 1e-9 a run), kind of finding.
FAULTS = {
    "coins": (s.coins_once_a_text, "two", 2000, "law"),
    "bonus": (s.bonus_from_the_draft, "two", 3000, "law"),
    "stale": (s.stale_after_a_rejection, "two", 1500, "law"),
    "first-row": (s.accepted_length_of_the_first_row, "two", 1500, "law"),
    "one-seed": (s.one_seed_for_every_text, "two", 1000, "independence"),
    "one-coin": (s.one_coin_for_all_tokens, "two", 1000, "law"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_within_its_budget(name):
    sampler, on, budget, kind = FAULTS[name]
    found = [run(sampler, [models(on)], seed=seed, boundary=False) for seed in SEEDS]
    assert {(one.verdict, one.witness["kind"]) for one in found} == {("rejected", kind)}
    assert statistics.median(one.witness["draws"] for one in found) <= budget


def test_one_coin_a_text_is_found_where_every_single_law_is_right():
    law = np.tile([0.5, 0.3, 0.2], (3, 1))  # the last token does not matter
    independent = Models("independent", law, law, (0,), 5)
    result = run(s.one_coin_for_all_tokens, [independent])
    assert (result.verdict, result.witness["kind"]) == ("rejected", "law")
    source = TextSource(independent)
    caller = Caller(s.one_coin_for_all_tokens, 60.0)
    index = caller.run(lambda: source.draw(caller, np.random.default_rng(0), 8192).index)
    for grouping in source.fit().groupings:
        if grouping.name.startswith("token "):
            seen = np.bincount(grouping.cell[index], minlength=3) / len(index)
            # Five standard deviations of a frequency of at most 1/2.
            assert np.abs(seen - grouping.law).max() < 5 * 0.5 / np.sqrt(len(index))


def test_coins_shared_by_distant_tokens_are_found():
    """Tokens 1 and 4 from one coin, all others fresh: no single law and no two neighbours are wrong."""
    law = np.tile([0.5, 0.5], (2, 1))

    def sampler(target, draft, prompt, length, rng):
        coins = rng.random((len(prompt), length))
        coins[:, 3] = coins[:, 0]
        return (coins >= 0.5).astype(int)

    source = TextSource(Models("coin", law, law, (0,), 6))
    names = {grouping.name for grouping in source.fit().groupings}
    assert {"tokens 1 and 2", "tokens 1 and 4", "tokens 1 and 6"} <= names
    result = run(sampler, [Models("coin", law, law, (0,), 6)], draws=2000)
    assert result.verdict == "rejected"
    assert result.witness["draws"] <= 1000


def answers(give):
    """A sampler that returns what ``give`` makes of right texts."""
    return lambda *arguments: give(s.right(*arguments))


@pytest.mark.parametrize("kind", [np.asarray, lambda texts: [list(map(int, text)) for text in texts]])
def test_more_tokens_than_were_asked_for_are_cut(kind):
    longer = answers(lambda texts: kind(np.concatenate([texts, texts], axis=1)))
    assert run(longer, [models("two")], draws=2000).verdict == "not-rejected"


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda texts: texts[:, :4], "a text of 4 new tokens; 9 were asked for"),
        (lambda texts: [[0], *texts[1:].tolist()], "a text of 1 new tokens; 9 were asked for"),
        (lambda texts: texts[:, 0], "of shape"),
        (lambda texts: [3] * len(texts), "no lists"),
        (lambda texts: texts - 1, "outside of 0..1"),
        (lambda texts: texts[:-1], "of shape"),
        (lambda texts: (texts, texts), "a tuple is"),
    ],
)
def test_what_is_no_text_is_an_error(give, said):
    result = run(answers(give), [models("two")], draws=600)
    assert result.verdict == "error"
    assert said in result.reason


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (np.array([[-1]]), "outside of 0..1"),
        (np.array([[2]]), "outside of 0..1"),
        (np.array([[0.0]]), "not integers"),
        (1, "give it a text"),
    ],
)
def test_models_refuse_what_are_no_tokens(tokens, said):
    result = run(lambda target, *rest: target(tokens), [models("two")], draws=600)
    assert result.verdict == "error"
    assert said in result.reason


def test_models_give_the_law_after_each_token_and_copies_of_it():
    source = TextSource(models("three"))
    tokens = np.array([[0, 2, 1], [1, 1, 0]])
    found = source.target(tokens)
    assert found.shape == (2, 3, 3)
    assert np.array_equal(found, models("three").target[tokens])
    found[:] = 0.0
    assert np.array_equal(source.target(tokens.tolist()), models("three").target[tokens])
    assert np.array_equal(source.draft([2]), models("three").draft[[2]])


def test_the_law_of_texts_is_that_of_the_chain():
    one = models("impossible")
    source = TextSource(one)
    text = [0, 2, 0, 1, 1]  # after the prompt's last token, 2
    number = int(source.sequences.number(np.array([text]))[0])
    due = np.prod([one.target[x, y] for x, y in zip([2, *text], text, strict=False)])
    assert source.law[number] == pytest.approx(due)
    assert source.describe(number) == "sequence 0 2 0 1 1"
    assert source.law.sum() == pytest.approx(1.0)


def test_impossible_tokens_are_found_at_the_ends():
    def left_inverse(target, draft, prompt, length, rng):
        """Takes the first token at u = 0, whatever its probability."""
        texts = prompt
        for _ in range(length):
            cumulative = np.cumsum(target(texts)[:, -1], axis=-1)
            new = (cumulative < rng.random((len(texts), 1))).sum(axis=-1)
            texts = np.concatenate([texts, np.minimum(new, 2)[:, None]], axis=1)
        return texts[:, prompt.shape[1] :]

    result = run(left_inverse, [models("impossible")], draws=600)
    assert (result.verdict, result.witness["kind"]) == ("rejected", "boundary")
