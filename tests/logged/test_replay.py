"""Replayed rounds: right decisions, near-ties kept apart, planted faults found, statistics by hand."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction as F

import ml_dtypes
import numpy as np
import pytest
import torch

from resispec_verify import InputError, make_rule
from resispec_verify.distributions import Sampling
from resispec_verify.logged.replay import acceptance, replay
from resispec_verify.logged.replay_summary import _test, poisson_binomial_tails, summarize_replay
from resispec_verify.logged.round_rows import read_rows
from resispec_verify.logged.rounds_input import half_ulp, read_rounds

P, Q = [0.5, 0.3, 0.2], [0.6, 0.3, 0.1]
P4, Q4 = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]
SPECULATIVE = make_rule("speculative")


def logs(rows, dtype=torch.float64):
    return torch.tensor(rows, dtype=torch.float64).log().to(dtype)


def one(target, draft, tokens, accepted, u=None, dtype=torch.float64, **others):
    """A round of probabilities; the target gets its first row again at the end where one is missing."""
    target = target if len(target) > len(draft) else [*target, target[0]]
    entry = {"target_logits": logs(target, dtype), "draft_logits": logs(draft, dtype)}
    entry |= {"draft_tokens": torch.tensor(tokens, dtype=torch.int64), "accepted": accepted}
    if u is not None:
        entry["u"] = torch.tensor(u, dtype=torch.float64)
    return entry | others


def saved(folder, *rounds, **others):
    path = folder / "rounds.pt"
    torch.save({"rounds": list(rounds)} | others, path)
    return path


def run(folder, *rounds, rule=SPECULATIVE, options=None, uniforms=True, **others):
    result = replay(read_rounds(saved(folder, *rounds, **others)), rule, options, uniforms=uniforms)
    return summarize_replay(result), result


def simulated(count=40, g=3, vocab=30, seed=0, accept=None, dtype=torch.float32):
    """Rounds of speculative sampling on random logits, decided from the stored logits in float64."""
    rng = np.random.default_rng(seed)
    rounds = []
    for _ in range(count):
        target = torch.tensor(rng.normal(size=(g + 1, vocab)) * 2).to(dtype)
        draft = (target[:g].double() + torch.tensor(rng.normal(size=(g, vocab)))).to(dtype)
        p, q = (torch.softmax(rows.double(), -1).numpy() for rows in (target, draft))
        tokens = np.array([rng.choice(vocab, p=law) for law in q])
        u, accepted = rng.random(g), 0
        while accepted < g:
            x = tokens[accepted]
            if not (accept or (lambda u, p, q: u * q < p))(u[accepted], p[accepted, x], q[accepted, x]):
                break
            accepted += 1
        law = p[g] if accepted == g else np.clip(p[accepted] - q[accepted], 0, None)
        v = rng.random()
        y = int(np.searchsorted(np.cumsum(law / law.sum()), v, side="right"))
        rounds.append({"target_logits": target, "draft_logits": draft, "draft_tokens": torch.tensor(tokens),
                       "u": torch.tensor(u), "accepted": accepted, "next_token": y, "u_next": v})  # fmt: skip
    return rounds


# Decisions


@pytest.mark.parametrize(
    ("token", "u", "accepted"),
    [(0, F(5, 6) - F(1, 1000), 1), (0, F(5, 6) + F(1, 1000), 0), (1, F(999, 1000), 1), (2, F(1, 2), 1)],
)
def test_a_coin_below_p_over_q_accepts(tmp_path, token, u, accepted):
    for logged in (0, 1):
        row, result = run(tmp_path, one([P], [Q], [token], logged, [float(u)]))
        (check,) = result.checks
        ratio = F(str(P[token])) / F(str(Q[token]))
        assert check.ratio == pytest.approx(float(ratio), rel=1e-14)
        assert check.recomputed == ("accepted" if accepted else "rejected")
        assert check.margin == pytest.approx(float(abs(u - min(1, ratio))), rel=1e-12)
        assert check.status == ("agree" if logged == accepted else "divergence")
        assert (row["decisions"], row["agree"]) == (1, int(logged == accepted))


def test_first_divergence_has_its_numbers(tmp_path):
    good = one([P, P], [Q, Q], [2, 0], 2, [0.9, 0.5])
    bad = one([P, P], [Q, Q], [1, 0], 2, [0.2, 0.9])
    row, _ = run(tmp_path, good, bad, bad)
    first = row["first_divergence"]
    assert (first["round"], first["index"], first["token"], first["kind"]) == (1, 1, 0, "acceptance")
    assert [first[k] for k in ("p", "q", "u")] == pytest.approx([0.5, 0.6, 0.9], rel=1e-14)
    assert first["ratio"] == pytest.approx(5 / 6, rel=1e-14)
    assert first["margin"] == pytest.approx(0.9 - 5 / 6, rel=1e-12)
    assert 0 < first["allowance"] < 1e-4  # float64 logits: what is left is the engine's float32 softmax
    assert (first["logged"], first["recomputed"], first["status"]) == ("accepted", "rejected", "divergence")
    assert (row["divergences"], row["decisions"], row["agree"]) == (2, 6, 4)


@pytest.mark.parametrize("uniforms", [True, False])
def test_a_first_token_that_is_never_checked_is_found(tmp_path, uniforms):
    """lattice#243: p = [1, 0, 0], draft [1]; must emit 0."""
    q = [0.2, 0.5, 0.3]
    row, _ = run(tmp_path, one([[1, 0, 0]], [q], [1], 1, [0.0], next_token=0), uniforms=uniforms)
    first = row["first_divergence"]
    assert (first["index"], first["p"], first["ratio"], first["recomputed"]) == (0, 0, 0, "rejected")
    row, _ = run(tmp_path, one([[1, 0, 0]], [q], [1], 0, [0.0], next_token=0), uniforms=uniforms)
    assert row["first_divergence"] is None
    assert row["next_tokens_possible"] == 1
    row, _ = run(tmp_path, one([[1, 0, 0]], [q], [1], 0, [0.0], next_token=2), uniforms=uniforms)
    assert (row["first_divergence"]["kind"], row["next_tokens_possible"]) == ("residual", 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_right_sampler_agrees_everywhere_and_a_planted_flip_is_found(tmp_path, dtype):
    rounds = simulated(dtype=dtype)
    row, result = run(tmp_path, *rounds)
    assert row["decisions"] == row["agree"] > 60
    assert row["divergences"] == row["near_ties_differing"] == 0
    assert row["next_tokens_possible"] == row["next_tokens_redrawn"] == len(rounds)
    clear = next(c for c in result.checks if c.kind == "acceptance" and c.status == "agree"
                 and c.round > 10 and c.logged == "rejected")  # fmt: skip
    rounds[clear.round]["accepted"] = clear.index + 1
    rounds[clear.round] |= {"next_token": None, "u_next": None}
    flipped, _ = run(tmp_path, *rounds)
    first = flipped["first_divergence"]
    assert (first["round"], first["index"], first["token"]) == (clear.round, clear.index, clear.token)
    assert (first["logged"], first["recomputed"]) == ("accepted", "rejected")
    assert flipped["decisions"] - flipped["agree"] >= 1


def test_the_wrong_temperature_diverges(tmp_path):
    rounds = simulated()
    stated, _ = run(tmp_path, *rounds, meta={"temperature": 0.5})
    assert stated["temperature"] == 0.5
    assert stated["divergences"] > 0
    given, _ = run(tmp_path, *rounds, meta={"sampling": {"temperature": 0.5}}, options={"temperature": 1.0})
    assert (given["temperature"], given["divergences"]) == (1.0, 0)
    each, result = run(tmp_path, *rounds[:2], meta={"sampling": [{"temperature": 0.5}, {"temperature": 2}]})
    assert each["temperature"] is None
    assert result.temperatures == [0.5, 2.0]


def test_temperature_zero_accepts_the_best_token_only(tmp_path):
    rounds = [one([P], [Q], [x], a, [0.5], next_token=y) for x, a, y in ((0, 1, 0), (1, 1, 0), (0, 1, 1))]
    row, result = run(tmp_path, *rounds, options={"temperature": 0.0})
    found = [(c.round, c.kind) for c in result.diverges()]
    assert found == [(1, "acceptance"), (2, "bonus")]
    assert row["undraftable_tokens"] == 1


def test_filters_apply_to_both(tmp_path):
    """vllm#10198: top-p 0.8 makes p [.625, .375, 0] and q [2/3, 1/3, 0]; token 0 is accepted below 15/16."""
    row, result = run(tmp_path, one([P], [Q], [0], 1, [0.93]), options={"top_p": 0.8})
    assert result.checks[0].ratio == pytest.approx(15 / 16, rel=1e-12)
    assert row["divergences"] == 0
    row, _ = run(tmp_path, one([P], [Q], [2], 1, [0.0]), options={"top_k": 2})
    assert (row["divergences"], row["undraftable_tokens"]) == (1, 1)


def test_residual_and_bonus_of_a_rule(tmp_path):
    """After rejecting 0 of V4 the standard residual is [0, 0, 1/4, 3/4]; ResiSpec's also emits token 1."""
    for y, standard, shaped in ((0, 0, 0), (1, 0, 1), (2, 1, 1), (3, 1, 1)):
        rejected = one([P4], [Q4], [0], 0, [0.9], next_token=y)
        assert run(tmp_path, rejected)[0]["next_tokens_possible"] == standard
        assert run(tmp_path, rejected, rule=make_rule("resispec"))[0]["next_tokens_possible"] == shaped
    accepted = [one([P4, [0.5, 0.5, 0, 0]], [Q4], [3], 1, [0.9], next_token=y) for y in range(4)]
    row, result = run(tmp_path, *accepted)
    assert row["next_tokens_possible"] == 2
    assert [(c.round, c.kind) for c in result.diverges()] == [(2, "bonus"), (3, "bonus")]


@pytest.mark.parametrize(("v", "y"), [(0.0, 2), (0.24, 2), (0.26, 3), (0.999, 3)])
def test_a_logged_uniform_redraws_the_residual(tmp_path, v, y):
    for logged in (2, 3):
        row, result = run(tmp_path, one([P4], [Q4], [0], 0, [0.9], next_token=logged, u_next=v))
        assert row["divergences"] == int(logged != y)
        assert result.checks[-1].recomputed == str(y)
        assert row["next_tokens_redrawn"] == int(logged == y)


# Rounding


def test_half_ulp_is_that_of_the_storage_type():
    values = np.array([0.0, 1.0, 1.5, -23.5, 15.9, 1e-7, -np.inf])
    for dtype in (np.float16, np.float32, np.float64):
        stored = values.astype(dtype)
        with np.errstate(invalid="ignore"):
            spacing = np.where(np.isfinite(stored), np.spacing(np.abs(stored)), 0).astype(np.float64)
        assert half_ulp(stored.astype(np.float64), dtype).tolist() == (spacing / 2).tolist()
    assert half_ulp(np.array([23.5]), ml_dtypes.bfloat16)[0] == 0.0625


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_the_interval_holds_every_rounding_and_no_more(temperature):
    """10,000 logits that round to the stored ones stay inside; the corner reaches the end but for float32."""
    rng = np.random.default_rng(1)
    entry = {name: rng.normal(size=(rows, 6)).astype(np.float16) * np.float16(8)
             for name, rows in (("target_logits", 2), ("draft_logits", 1))}  # fmt: skip
    entry["draft_tokens"] = np.zeros(1, np.int64)
    rows = read_rows("here", entry, slice(0, 1), Sampling(temperature)).at(slice(0, 1))
    token = np.array([int(np.argmax(entry["draft_logits"][0]))])
    (_,), (low,), (high,) = acceptance(SPECULATIVE, rows, token)
    x = token[0]

    def ratio(target, draft):
        weights = (np.exp(v / temperature) for v in (target, draft))
        p, q = (w / w.sum(-1, keepdims=True) for w in weights)
        return np.minimum(1, p[:, x] / q[:, x])

    signs = rng.choice([-1.0, 1.0], size=(10_000, 2, 6)) * rng.random((10_000, 2, 1)) ** 0.1
    target, draft = (entry[n][0].astype(np.float64) for n in ("target_logits", "draft_logits"))
    slack = [half_ulp(v, np.float16) for v in (target, draft)]
    found = ratio(target + signs[:, 0] * slack[0], draft + signs[:, 1] * slack[1])
    assert low <= found.min()
    assert found.max() <= high
    corner = np.where(np.arange(6) == x, 1.0, -1.0)
    best = ratio((target + corner * slack[0])[None], (draft - corner * slack[1])[None])[0]
    worst = ratio((target - corner * slack[0])[None], (draft + corner * slack[1])[None])[0]
    # What is beyond the corners is the allowance for a softmax in float32: about 1e-5 of the value.
    assert [low, high] == pytest.approx([worst, best], rel=5e-5)


def test_a_flip_within_rounding_is_a_near_tie(tmp_path):
    """Logits 16 apart from 0 in float16 have a half ulp of 2^-7; p/q can move by about 4 of them."""
    target, draft = torch.tensor([[16.0, 15.0], [0, 0]]), torch.tensor([[16.5, 15.0]])
    p, q = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-1.5))
    for dtype, status in ((torch.float16, "near-tie"), (torch.float32, "divergence")):
        entry = {"target_logits": target.to(dtype), "draft_logits": draft.to(dtype), "accepted": 1,
                 "draft_tokens": torch.tensor([0]), "u": torch.tensor([p / q + 1e-3])}  # fmt: skip
        row, result = run(tmp_path, entry)
        assert result.checks[0].status == status
        assert (row["near_ties"], row["near_ties_differing"]) == ((1, 1) if status == "near-tie" else (0, 0))
        assert (row["agree"], row["divergences"]) == (0, int(status == "divergence"))


def test_an_impossible_acceptance_is_no_near_tie(tmp_path):
    row, _ = run(tmp_path, one([[1, 0]], [[0.5, 0.5]], [1], 1, [0.0], dtype=torch.float16))
    assert (row["near_ties"], row["divergences"]) == (0, 1)


def test_coins_in_two_bytes_were_rounded(tmp_path):
    entry = one([P], [Q], [0], 1, [5 / 6])
    entry["u"] = entry["u"].to(torch.bfloat16)  # 0.8320 or 0.8359 around 0.8333
    row, result = run(tmp_path, entry)
    assert row["near_ties"] == 1
    assert result.checks[0].allowance > 2**-9


def test_a_rejection_where_p_is_q_is_finite(tmp_path):
    """jaymody#5, MTPLX#82: a forced rejection where p = q falls back to p, without NaN."""
    row, result = run(tmp_path, one([[1, 0]], [[1, 0]], [0], 0, [0.5], next_token=0))
    assert row["divergences"] == 1
    assert result.checks[-1].status == "agree"


# Statistics


def test_poisson_binomial_tails_are_those_of_the_enumeration():
    probabilities = [F(1, 2), F(1, 3), F(1, 5), F(0), F(1), F(9, 10)]
    law = [F(0)] * (len(probabilities) + 1)
    for outcome in itertools.product((0, 1), repeat=len(probabilities)):
        law[sum(outcome)] += math.prod(a if d else 1 - a for a, d in zip(probabilities, outcome, strict=True))
    for s in range(len(law)):
        few, many = poisson_binomial_tails(np.array([float(a) for a in probabilities]), s)
        assert few == pytest.approx(float(sum(law[: s + 1])), rel=1e-14)
        assert many == pytest.approx(float(sum(law[s:])), rel=1e-14)


def test_far_tails_keep_their_relative_precision():
    assert poisson_binomial_tails(np.full(300, 0.25), 300)[1] == pytest.approx(0.25**300, rel=1e-12)


def test_the_sequential_p_value_holds_where_the_exact_one_does_not():
    """Stop while ahead: later probabilities depend on earlier decisions, and only one p-value is valid."""
    alpha, deepest, exact, sequential = 0.05, 10, 0.0, 0.0

    def walk(history, probability):
        nonlocal exact, sequential
        found = _test([(d, 0.5, 0.5, 0.5) for d in history]) if history else None
        if len(history) == deepest or (found and found["p_value"] <= alpha):
            exact += probability * (found["p_value"] <= alpha)
            sequential += probability * (found["p_value_sequential"] <= alpha)
            return
        for d in (True, False):
            walk((*history, d), probability / 2)

    walk((), 1.0)
    assert exact > alpha
    assert sequential <= alpha


def test_without_uniforms_a_right_sampler_is_not_rejected(tmp_path):
    row, result = run(tmp_path, *simulated(150), uniforms=False)
    assert (row["decisions"], row["agree"], row["divergences"]) == (0, 0, 0)
    assert [e["position"] for e in row["acceptance_by_position"]] == [0, 1, 2]
    assert row["statistics"] == {"alpha": 1e-6, "tests": 9, "verdict": "not-rejected"}
    assert "exact" not in str({k: v for k, v in row.items() if k != "path"})
    first = row["acceptance_by_position"][0]
    assert first["reached"] == 150
    assert first["accepted"] == sum(r["accepted"] > 0 for r in map(dict, result.rounds.rounds))
    assert {c.kind for c in result.checks} == {"residual", "bonus"}


def test_expectations_by_hand(tmp_path):
    rounds = [one([P], [Q], [x], 1) for x in (0, 0, 2)]
    (entry,) = run(tmp_path, *rounds)[0]["acceptance_by_position"]
    assert entry["expected"] == pytest.approx(float(F(5, 6) * 2 + 1), rel=1e-14)
    assert entry["expected_over_drafts"] == pytest.approx(3 * 0.9, rel=1e-14)
    # P(S >= 3) = 25/36 is the smaller tail; doubled it exceeds 1. Rounding only raises it.
    assert entry["p_value"] == 1.0
    (entry,) = run(tmp_path, *[one([P], [Q], [0], 1)] * 20)[0]["acceptance_by_position"]
    assert entry["p_value"] == pytest.approx(2 * (5 / 6) ** 20, rel=1e-4)
    assert entry["p_value"] >= 2 * (5 / 6) ** 20
    assert entry["p_value_sequential"] >= (5 / 6) ** 20


def test_a_sampler_that_accepts_too_often_is_rejected(tmp_path):
    row, _ = run(tmp_path, *simulated(150, accept=lambda u, p, q: u * q < 2 * p), uniforms=False)
    assert row["statistics"]["verdict"] == "rejected"
    assert min(e["p_value"] for e in row["acceptance_by_position"]) < 1e-6 / 6
    assert min(e["p_value_sequential"] for e in row["acceptance_by_position"]) < 1e-5


def test_drafts_from_another_law_are_rejected_though_the_coins_are_right(tmp_path):
    """transformers#47932: drawn from the top 2 of q, tested with all of q; accepted always, should be 0.9."""
    p, q = [0.5, 0.3, 0.2, 0.0], [0.4, 0.3, 0.2, 0.1]
    rounds = [one([p], [q], [int(i % 7 > 3)], 1, [i / 200]) for i in range(200)]
    row, _ = run(tmp_path, *rounds)
    (entry,) = row["acceptance_by_position"]
    assert (row["decisions"], row["agree"], row["divergences"]) == (200, 200, 0)
    assert entry["expected_over_drafts"] == pytest.approx(180, rel=1e-14)
    assert entry["p_value"] == 1.0
    assert entry["p_value_over_drafts"] == pytest.approx(2 * 0.9**200, rel=1e-3)
    assert row["statistics"]["verdict"] == "rejected"


def test_rounding_of_the_logits_does_not_reject(tmp_path):
    """A ratio that float16 rounds to 1 may have been 0.995 in the engine: rejections there are no proof."""
    level = one([[0.5, 0.5]], [[0.5, 0.5]], [0], 0, dtype=torch.float16)
    level["target_logits"] = level["target_logits"] + 30
    level["draft_logits"] = level["draft_logits"] + 30
    (entry,) = run(tmp_path, level)[0]["acceptance_by_position"]
    assert entry["expected"] == 1.0
    assert 0.01 < entry["p_value"] < 0.1


# What a round holds


def test_repeated_coins_and_foreign_outputs_are_told(tmp_path):
    rounds = [one([P], [Q], [2], 1, [0.5], next_token=0)] * 3
    row, _ = run(tmp_path, *rounds, output_tokens=torch.tensor([2, 0, 2, 1, 2, 0]))
    assert row["repeated_uniforms"] == 2
    assert row["notes"] == ["output_tokens differs from what the rounds emitted, first at index 3"]
    assert run(tmp_path, *rounds, output_tokens=torch.tensor([2, 0] * 3))[0]["notes"] == []


def test_rounds_may_differ_in_length_and_be_empty(tmp_path):
    empty = {"target_logits": logs([P]), "draft_logits": torch.zeros(0, 3), "accepted": 0, "next_token": 1,
             "draft_tokens": torch.zeros(0, dtype=torch.int64), "u": torch.zeros(0)}  # fmt: skip
    row, result = run(tmp_path, empty, one([P, P], [Q, Q], [1, 0], 1, [0.1, 0.99], next_token=2))
    assert (row["rounds"], row["decisions"], row["agree"], row["next_tokens"]) == (2, 2, 2, 2)
    assert result.checks[0].kind == "bonus"


BASE = one([P], [Q], [0], 1, [0.5])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"draft_tokens": None}, "draft_tokens is a NoneType"),
        ({"draft_tokens": torch.tensor([3])}, "draft_tokens: 3 at 0 is outside 0..2"),
        ({"draft_tokens": [[1], [2, 3]]}, "draft_tokens is a list"),
        ({"accepted": 2}, "accepted is 2, outside 0..1"),
        ({"accepted": 0.5}, "accepted is a float"),
        ({"next_token": -2}, "next_token is -2"),
        ({"u": torch.tensor([1.5])}, "u: 1.5 at 0 is outside [0, 1)"),
        ({"u": torch.tensor([math.nan])}, "u: nan at 0"),
        ({"u": "no"}, "u is a str"),
        ({"u": torch.tensor([0.5j])}, "u is complex64"),
        ({"u": [[1], [2, 3]]}, "u is a list"),
        ({"u": torch.zeros(2)}, "u is [2], but must be [1]"),
        ({"u_next": 2.0}, "u_next: 2 at 0"),
        ({"target_logits": logs([P])}, "the target needs one row more than the draft"),
        ({"draft_logits": torch.tensor([[1, 2, 3]])}, "integers are not logits"),
        ({"draft_logits": torch.zeros(1, 0), "target_logits": torch.zeros(2, 0)}, "no tokens"),
        ({"target_logits": logs([P, [1, 1, math.inf]]).flip(0)}, "target_logits has +inf at row 0, token 2"),
        ({"draft_logits": logs([[0.0, 0.0, 0.0]])}, "draft_logits at row 0 is -inf for every token"),
    ],
)
def test_a_round_that_does_not_hold_together_is_named(tmp_path, change, words):
    with pytest.raises(InputError, match="round 1") as caught:
        run(tmp_path, BASE, BASE | change)
    assert words in str(caught.value)


def test_other_dumps_are_refused(tmp_path):
    path = tmp_path / "dump.pt"
    for content, words in (
        ({"target_logits": logs([P]), "draft_logits": logs([Q])}, "is a flat dump"),
        ({"rounds": []}, "at least one round"),
        ({"rounds": torch.zeros(2)}, "at least one round"),
        ({"rounds": [1]}, "round 0 is a int"),
        ({"rounds": [{}]}, "round 0 has no draft_tokens"),
        ({"rounds": [BASE], "meta": {"temperature": -1}}, "sampling of round 0: temperature"),
    ):
        torch.save(content, path)
        with pytest.raises(InputError, match="dump") as caught:
            read_rounds(path)
        assert words in str(caught.value)


def test_an_impossible_acceptance_is_refuted_without_the_coins(tmp_path):
    """A token of target probability 0 was accepted: one such event refutes the rates at any level."""
    never = one([[0.0, 0.5, 0.5]], [Q], [0], 1, [0.5])
    never.pop("u")
    row, _ = run(tmp_path, never)
    assert row["statistics"]["verdict"] == "rejected"
    assert row["acceptance_by_position"][0]["p_value_sequential"] == 0.0
