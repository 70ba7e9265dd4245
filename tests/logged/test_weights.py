"""Importance weights of logged tokens: right values on small laws, gaps, lost mass, truncation, the test."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction as F

import numpy as np
import pytest
import torch

from resispec_verify import make_rule
from resispec_verify.errors import InputError
from resispec_verify.evidence.expansion import Budget
from resispec_verify.evidence.path_rules import joint_law
from resispec_verify.logged.node_rules import Laws, Typical, laws_of, laws_of_round, node_rule
from resispec_verify.logged.weighing import Weighing, weigh
from resispec_verify.logged.weights import Weights
from resispec_verify.logged.weights_summary import effective_size, mean_test, summarize_weights
from resispec_verify.oracle.marginals import marginal
from resispec_verify.rules import Block, make_path_rule

P = (F(3, 10), F(4, 10), F(3, 10))
Q = (F(6, 10), F(3, 10), F(1, 10))
BUDGET = Budget(gap=0.0, until_decided=False)


def floats(law):
    return np.array([[float(x) for x in law]])


def weighed(p, laws, tokens, top=2.0):
    """Weights of tokens drawn at one position."""
    found = Weights("here", make_rule("speculative"), 1, top)
    for i, token in enumerate(tokens):
        found.place(0, i)
        found.weigh(token, np.asarray(p, np.float64), laws, 0)
    return found


def flat(path, p, q, **others):
    torch.save(
        {"target_logits": torch.tensor(np.log(p)), "draft_logits": torch.tensor(np.log(q)), **others}, path
    )
    return path


@pytest.mark.parametrize(
    ("name", "n"), [("resispec", 1), ("resispec", 2), ("specinfer", 2), ("eagle", 2), ("sequoia", 2)]
)
def test_weights_are_p_over_the_oracles_marginal(name, n):
    exact = marginal(name, P, Q, n).law
    rule = make_rule(name)
    found = weighed(floats(P)[0], laws_of(rule, floats(P), floats(Q), n, None, BUDGET), range(3))
    for token in range(3):
        wanted = math.log(P[token] / exact[token])
        low, high = found.log_weight[token]
        assert low <= wanted <= high
        assert high - low < 1e-11
        assert (
            found.truncated[token][0] <= min(float(P[token] / exact[token]), 2.0) <= found.truncated[token][1]
        )


def test_algorithm_1_has_the_weights_of_its_known_law():
    # One candidate: it emits (3/10, 141/290, 31/145).
    laws = laws_of(make_rule("resispec"), floats(P), floats(Q), 1, None, BUDGET)
    found = weighed(floats(P)[0], laws, [0, 1, 2])
    wanted = [1.0, 0.4 * 290 / 141, 0.3 * 145 / 31]
    assert np.exp(found.log_weight).mean(axis=1) == pytest.approx(wanted, rel=1e-12)


def test_a_gap_makes_intervals_that_hold_both_ends():
    """Placed .2, .5, .1 and .2 anywhere."""
    laws = Laws(np.array([[0.2, 0.5, 0.1]]), np.array([0.2]), np.array([0.0]))
    found = weighed([0.3, 0.4, 0.3], laws, [0, 2])
    assert np.exp(found.log_weight) == pytest.approx(np.array([[0.75, 1.5], [1.0, 3.0]]))
    assert found.truncated[1] == pytest.approx((1.0, 2.0))
    # sum min(p, 2 mu): .3 + .4 + .2 of what is placed; at most 1 with the rest.
    assert found.kept[0] == pytest.approx((0.9, 1.0))


def test_every_completion_of_a_gap_lies_in_the_intervals():
    rng = np.random.default_rng(3)
    for _ in range(200):
        p, mu = rng.dirichlet(np.full(5, 0.5), 2)
        placed = mu * rng.random(5)
        gap = 1 - placed.sum()
        top = float(rng.uniform(1, 4))
        found = weighed(p, Laws(placed[None], np.array([gap]), np.array([0.0])), range(5), top)
        for end in (mu, *(placed + gap * np.eye(5))):
            ratio = p / np.maximum(end, 1e-300)
            low, high = np.exp(np.array(found.log_weight)).T
            assert (low <= ratio * (1 + 1e-12)).all()
            assert (ratio <= high * (1 + 1e-12)).all()
            kept = float(np.minimum(p, top * end).sum())
            assert found.kept[0][0] - 1e-12 <= kept <= found.kept[0][1] + 1e-12
            assert 0.5 * np.abs(end - p).sum() <= found.tv[0] + 1e-12


def test_what_the_rule_never_emits_is_lost():
    """Relaxed acceptance that keeps one token: the others have no weight at all."""
    laws = laws_of(make_rule("relaxed", topk=1), floats(P), floats(Q), 1, None, BUDGET, sampled=True)
    found = weighed(floats(P)[0], laws, [1, 1, 0])
    assert found.lost[0] == pytest.approx((0.6, 0.6))
    assert np.exp(found.log_weight[0]) == pytest.approx([0.4, 0.4], rel=1e-12)
    assert found.impossible == [False, False, True]
    row = summarize_weights(found)
    assert row["impossible"] == 1
    assert row["first_impossible"]["position"] == 2
    assert row["expected_mean_weight"] == pytest.approx([0.4, 0.4])


def test_relaxed_acceptance_of_sampled_and_of_greedy_drafts():
    rule = make_rule("relaxed", topk=2, delta=0.6)
    p, q = np.array([[0.5, 0.3, 0.2]]), np.array([[0.2, 0.3, 0.5]])
    # Sampled: token 1 where it is drafted, else the best; greedy: the draft's best, 2, does not pass.
    assert laws_of(rule, p, q, 1, None, BUDGET, sampled=True).placed[0] == pytest.approx([0.7, 0.3, 0])
    assert laws_of(rule, p, q, 1, None, BUDGET).placed[0] == pytest.approx([1, 0, 0])


def test_typical_acceptance_at_one_depth_is_the_paths():
    """The law of the first token of a path, from `PathRule.outcome` itself, for every drafted token."""
    rng = np.random.default_rng(4)
    for correction in ("greedy", "target"):
        rule = make_path_rule("medusa", correction=correction)
        p, q = rng.dirichlet(np.ones(4), 2)
        law = np.zeros(4)
        for x in range(4):
            lengths, after = rule.outcome(np.stack([p, p]), q[None], np.array([x]))
            law[x] += q[x] * lengths[1]
            law += q[x] * lengths[0] * after[0]
        known = node_rule(rule, "rule", rounds=False)
        assert isinstance(known, Typical)
        assert laws_of(known, p[None], q[None], 1, None, BUDGET).placed[0] == pytest.approx(law, abs=1e-15)


def chains(rng, vocab, depth):
    """A toy model: level i is the law of token i + 1 after each prefix of i tokens."""
    return [rng.dirichlet(np.ones(vocab), (vocab,) * i) for i in range(depth)]


def outcomes(rule, targets, drafts):
    """Every way in which a round emits a block: the tokens, how many are accepted, and the probability."""
    g = len(drafts)
    vocab = targets[0].shape[-1]
    for path in itertools.product(range(vocab), repeat=g):
        chance = np.prod([drafts[i][path[:i]][path[i]] for i in range(g)])
        rows = np.stack([targets[i][path[:i]] for i in range(g + 1)])
        q = np.stack([drafts[i][path[:i]] for i in range(g)])
        lengths, after = _outcome(rule, rows, q, path)
        for k in range(g + 1):
            for y in range(vocab):
                if (mass := chance * lengths[k] * after[k, y]) > 0:
                    yield (*path[:k], y), mass


def _outcome(rule, rows, q, path):
    if not hasattr(rule, "accept"):
        return rule.outcome(rows, q, np.array(path))
    g, lengths, after, reach = len(q), [], [], 1.0
    for i in range(g):
        state = rule.start(rows[i], q[i], 1)
        passed = float(rule.accept(state)[path[i]])
        lengths.append(reach * (1 - passed))
        tokens = None if rule.depends_on == "nothing" else np.array([path[i]])
        after.append(np.asarray(rule.final(rule.reject(state, tokens))).reshape(-1))
        reach *= passed
    return np.array([*lengths, reach]), np.stack([*after, rows[g]])


@pytest.mark.parametrize("rule", [make_rule("speculative"), make_rule("resispec"), Block(),
                                  make_path_rule("medusa", correction="target")])  # fmt: skip
def test_products_of_weights_turn_the_law_of_a_block_into_the_targets(rule):
    """Over all blocks of a round of two drafts: E[prod p / mu f] = E_p[f] for every f of the first token, and
    of all tokens where the block is continued by the target."""
    rng = np.random.default_rng(7)
    targets, drafts = chains(rng, 3, 3), chains(rng, 3, 2)
    known = node_rule(rule, "rule", rounds=True)
    joint = np.zeros((3, 3, 3))
    for block, mass in outcomes(rule, targets, drafts):
        p = np.stack([targets[i][block[:i]] for i in range(len(block))])
        q = np.stack([drafts[i][block[:i]] for i in range(min(len(block), 2))])
        laws = laws_of_round(known, p, q, np.array(block), None, BUDGET)
        weight = np.prod([p[i, y] / laws.placed[i, y] for i, y in enumerate(block)])
        rest = np.array(1.0)
        for level in targets[len(block) :]:
            rest = rest[..., None] * level[block]
        joint[block] += mass * weight * rest
    assert joint == pytest.approx(joint_law(targets), abs=1e-12)
    if isinstance(rule, Block):  # every single weight is 1
        assert laws.placed == pytest.approx(p, abs=1e-15)


def test_an_exact_rules_weights_are_1_within_a_certified_bound(tmp_path):
    rng = np.random.default_rng(8)
    p, q = rng.dirichlet(np.ones(50), (2, 6))
    path = flat(tmp_path / "d.pt", p, q, next_tokens=torch.tensor(rng.integers(0, 50, 6)))
    for name in ("specinfer", "sequoia", "optimal-sequential"):
        found = weigh(path, make_rule(name), name, Weighing(candidates=2))
        row = summarize_weights(found)
        assert 0 < row["farthest_from_1"] < 1e-8
        assert row["mean_test"]["blind"]
        assert row["effective_size"] == pytest.approx([6, 6])
        for low, high in found.log_weight:
            assert low <= 0 <= high


def test_effective_size():
    logs = np.log([1.0, 1.0, 2.0])
    assert effective_size(logs, logs) == pytest.approx((16 / 6, 16 / 6))
    low, high = effective_size(np.log([1.0, 1.0, 1.0]), logs)
    assert low <= 16 / 6 <= high <= 3
    assert effective_size(np.full(3, -np.inf), np.full(3, -np.inf)) == (0.0, 0.0)
    assert effective_size(np.array([0.0, 0.0]), np.array([0.0, np.inf])) == (1.0, 2.0)
    huge = np.array([900.0, 0.0])  # beyond what a float holds
    assert effective_size(huge, huge) == pytest.approx((1.0, 1.0))


def draws(rng, law, count):
    return rng.choice(len(law), size=count, p=law).tolist()


def test_the_test_of_the_mean_rejects_tokens_of_another_law_and_only_those():
    laws = laws_of(make_rule("resispec"), floats(P), floats(Q), 1, None, BUDGET)
    p, mu = floats(P)[0], laws.placed[0] / laws.placed[0].sum()
    right = [
        mean_test(weighed(p, laws, draws(np.random.default_rng([s, 1]), mu, 300)), 0.05) for s in range(40)
    ]
    assert sum(test["verdict"] == "rejected" for test in right) <= 5  # of 40 at .05: Ville allows 2
    wrong = mean_test(weighed(p, laws, draws(np.random.default_rng(2), p, 3000)), 1e-6)
    assert (wrong["verdict"], wrong["blind"]) == ("rejected", False)
    assert wrong["p_value"] < 1e-6


def test_the_mean_under_the_rule_is_what_is_said():
    """sum mu min(p / mu, C) over all tokens, and the evidence of one bet, by hand."""
    laws = Laws(np.array([[0.1, 0.5, 0.4]]), np.zeros(1), np.zeros(1))
    found = weighed([0.5, 0.3, 0.2], laws, [0], top=2.0)
    assert found.kept[0] == pytest.approx((0.2 + 0.3 + 0.2,) * 2)
    shares = 2.0 ** -np.arange(1, 8)
    up, down = np.log1p(shares * (2 - 0.7) / 0.7), np.log1p(shares * (0.7 - 2) / (2 - 0.7))
    mean = np.exp(np.r_[up, down]).mean()
    assert mean_test(found, 0.5)["p_value"] == pytest.approx(1 / mean)


@pytest.mark.parametrize("top", [1.0, 1.5, 4.0])
def test_the_bias_of_truncated_weights_is_within_its_bound(top):
    rng = np.random.default_rng(11)
    for _ in range(50):
        p, mu = rng.dirichlet(np.full(6, 0.4), 2)
        reward = rng.uniform(-1, 1, 6)
        found = weighed(p, Laws(mu[None], np.zeros(1), np.zeros(1)), range(6), top)
        cut = np.array([(a + b) / 2 for a, b in found.truncated])
        bias = float(p @ reward - (mu * cut) @ reward)
        mass = 1 - found.kept[0][0]
        assert mass * min(reward.min(), 0) - 1e-12 <= bias <= mass * max(reward.max(), 0) + 1e-12


def rounds(path, *entries, **others):
    torch.save({"rounds": list(entries)} | others, path)
    return path


def entry(tokens, accepted, next_token, p=P, q=Q, **others):
    g = len(tokens)
    return {
        "draft_tokens": torch.tensor(tokens), "accepted": accepted, "next_token": next_token,
        "draft_logits": torch.tensor(np.log(floats(q))).repeat(g, 1),
        "target_logits": torch.tensor(np.log(floats(p))).repeat(g + 1, 1),
    } | others  # fmt: skip


def test_rounds_give_texts_depths_and_products(tmp_path):
    path = rounds(
        tmp_path / "r.pt",
        entry([1, 1], 2, 0, prompt="a", context_len=4),  # 1, 1 and a bonus token
        entry([0, 2], 0, 1, prompt="a", context_len=7),  # 1
        entry([2, 0], 1, 2, prompt="a", context_len=4),  # another text of the same prompt: 2, 2
    )
    found = weigh(path, make_rule("resispec"), "rule", Weighing())
    assert found.token == [1, 1, 0, 1, 2, 2]
    assert found.text == [0, 0, 0, 0, 1, 1]
    assert found.request == ["a"] * 6
    assert found.position == [0, 1, 2, 3, 0, 1]
    assert found.round == [0, 0, 0, 1, 2, 2]
    assert found.depth == [0, 1, 2, 0, 0, 1]
    one, two = 0.4 * 290 / 141, 0.3 * 145 / 31  # weights of tokens 1 and 2; of the bonus token it is 1
    middle = np.array(found.log_weight).mean(axis=1)
    assert np.exp(middle) == pytest.approx([one, one, 1, one, two, two], rel=1e-9)
    assert [(text, count) for text, count, _ in found.sequences()] == [(0, 4), (1, 2)]
    assert np.mean(found.sequences()[0][2]) == pytest.approx(3 * math.log(one))
    assert found.arrays()["log_mu"].shape == (6, 2)


def test_block_verification_and_bonus_tokens(tmp_path):
    path = rounds(tmp_path / "r.pt", entry([1, 0], 2, 2), entry([0, 0], 0, 1))
    found = weigh(path, make_path_rule("block"), "rule", Weighing())
    assert np.abs(found.log_weight).max() < 1e-12
    # Relaxed acceptance and Medusa's default emit their best token after all drafts, too.
    for rule in (make_rule("relaxed"), make_path_rule("medusa")):
        found = weigh(rounds(tmp_path / "b.pt", entry([1], 1, 1)), rule, "rule", Weighing())
        assert found.log_mu[1] == pytest.approx((0, 0), abs=1e-12)
        assert np.exp(found.log_weight[1]) == pytest.approx([0.4, 0.4])


def test_drafts_from_another_law_are_weighed_by_it(tmp_path):
    uniform = torch.zeros(1, 3, dtype=torch.float64)
    path = rounds(tmp_path / "r.pt", entry([1], 1, 0, proposal_logits=uniform))
    found = weigh(path, make_rule("speculative"), "rule", Weighing())
    exact = marginal("speculative", P, Q, 1, proposal=(F(1, 3),) * 3).law
    assert np.mean(found.log_weight[0]) == pytest.approx(math.log(P[1] / exact[1]))
    with pytest.raises(InputError, match="round 0: drafts are drawn from proposal_logits, and block"):
        weigh(path, make_path_rule("block"), "rule", Weighing())


def test_a_text_that_ends_inside_a_round(tmp_path):
    path = rounds(tmp_path / "r.pt", entry([1, 2, 0], 2, -1), meta={"eos_token_id": 2})
    found = weigh(path, make_rule("speculative"), "rule", Weighing())
    assert found.token == [1, 2]


@pytest.mark.parametrize(
    ("entries", "others", "message"),
    [
        ([entry([1], 1, -1, context_len=3), entry([1], 0, 2, context_len=4)], {}, "next_token is not"),
        ([entry([1], 1, 0)], {"output_tokens": torch.tensor([1, 2])}, "not what the rounds emitted"),
    ],
)  # fmt: skip
def test_tokens_that_are_not_known_are_refused(tmp_path, entries, others, message):
    with pytest.raises(InputError, match=message):
        weigh(rounds(tmp_path / "r.pt", *entries, **others), make_rule("speculative"), "rule", Weighing())


def test_what_a_flat_dump_says_was_emitted(tmp_path):
    rng = np.random.default_rng(9)
    p, q = rng.dirichlet(np.ones(4), (2, 2, 3))  # two texts of three positions
    rule = make_rule("resispec")

    def read(**others):
        return weigh(flat(tmp_path / "d.pt", p, q, **others), rule, "rule", Weighing())

    found = read(next_tokens=torch.tensor([[0, 1, 2], [3, -1, 0]]))
    assert (found.token, found.text) == ([0, 1, 2, 3, 0], [0, 0, 0, 1, 1])
    assert found.position == [0, 1, 2, 0, 2]
    assert found.notes == ["of 1 positions the emitted token is not known; they are left out"]
    laws = [[F(float(x)) / sum(map(F, row.tolist())) for x in row] for row in (p[0, 0], q[0, 0])]
    exact = marginal("resispec", laws[0], laws[1], 1).law
    assert np.mean(found.log_mu[0]) == pytest.approx(math.log(exact[0]))
    found = read(tokens=torch.tensor([[9, 0, 1, 2], [9, 3, 3, 0]]))
    assert found.token == [0, 1, 2, 3, 3, 0]
    with pytest.raises(InputError, match="next_tokens is missing"):
        read()
    with pytest.raises(InputError, match=r"next_tokens: 4 at \[0, 0\] is outside -1..3"):
        read(next_tokens=torch.tensor([[4, 1, 2], [3, 3, 0]]))
    with pytest.raises(InputError, match="the emitted token is known of no position"):
        read(next_tokens=torch.full((2, 3), -1))


def test_what_gives_no_weights_is_refused(tmp_path):
    path = flat(tmp_path / "d.pt", floats(P), floats(Q), next_tokens=torch.tensor([0]))
    with pytest.raises(InputError, match="--rule block: verifies paths of several tokens"):
        weigh(path, make_path_rule("block"), "--rule block", Weighing())
    with pytest.raises(InputError, match="leave out eos"):
        weigh(path, make_rule("speculative"), "rule", Weighing(stops=(2,)))
    log = rounds(tmp_path / "r.pt", entry([1], 1, 0))
    with pytest.raises(InputError, match="candidates must be 1, not 2"):
        weigh(log, make_rule("specinfer"), "rule", Weighing(candidates=2))
    with pytest.raises(InputError, match="decides about several candidates"):
        weigh(log, make_rule("spechub"), "rule", Weighing())


def test_penalties_that_stand_still_in_a_block_have_no_one_target(tmp_path):
    meta = {"sampling": {"order": "sglang-verify", "presence_penalty": 1.0}}
    path = rounds(tmp_path / "r.pt", entry([0, 1], 2, 2), meta=meta, context_tokens=torch.tensor([1]))
    with pytest.raises(InputError, match="depends on where its round began"):
        weigh(path, make_rule("resispec"), "--rule", Weighing())
    assert (
        len(weigh(path, make_rule("resispec"), "--rule", Weighing(options={"history": "token"})).token) == 3
    )


@pytest.mark.parametrize("by_position", [False, True])
def test_an_option_takes_the_place_of_one_setting_of_a_flat_dump(tmp_path, by_position):
    """As in rounds; before, an engine's order alone put temperature 1 without filters in the place of all."""
    p, q = np.array([[0.5, 0.3, 0.2]] * 2), np.array([[0.2, 0.3, 0.5]] * 2)
    stated = {"temperature": 0.5, "top_k": 2}
    meta = {"sampling": [stated] * 2 if by_position else stated}
    path = flat(tmp_path / "d.pt", p, q, next_tokens=torch.tensor([0, 1]), meta=meta)
    law = np.array([25 / 34, 9 / 34])

    def log_p(**options):
        return np.exp(
            weigh(path, make_rule("resispec"), "--rule", Weighing(options=options, kind="logits")).log_p
        )

    assert log_p() == pytest.approx(law)
    assert log_p(order="vllm") == pytest.approx(law)
    assert log_p(temperature=1.0) == pytest.approx([5 / 8, 3 / 8])
    assert log_p(top_k=1) == pytest.approx([1, 0])
