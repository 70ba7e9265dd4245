"""Candidates that must differ need as many tokens: refused where the oracle's tuples come out shorter."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from resispec_verify.distributions import Pair
from resispec_verify.errors import InputError
from resispec_verify.oracle import PROPOSALS
from resispec_verify.rules import RULES, Iid, make_rule
from resispec_verify.tables.distinct import check_support, check_vocabulary
from resispec_verify.tables.limits import add_limits
from resispec_verify.tables.reading import PairBatch, by_hand

FLAT = np.full((3, 4), 0.25)
# One, three and two tokens.
DRAFT = np.array([[0.0, 0.0, 1.0, 0.0], [0.5, 0.25, 0.25, 0.0], [0.5, 0.0, 0.0, 0.5]])


def refusal(name, n, pair, positions=(7, 8, 9), source="d.pt"):
    with pytest.raises(InputError) as error:
        check_support([make_rule(name)], n, PairBatch(pair, np.asarray(positions), source=source))
    return str(error.value)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=5).filter(any),
    st.integers(1, 5),
    st.sampled_from(["sequoia", "spechub"]),
)
def test_refused_exactly_where_a_tuple_of_the_oracle_is_short(weights, n, name):
    rule = make_rule(name)
    n = n if rule.most_candidates is None else rule.most_candidates
    law = [Fraction(w, sum(weights)) for w in weights]
    short = any(len(tokens) < n for tokens in PROPOSALS[rule.proposal.name](law, n))
    row = np.array([[float(v) for v in law]])
    try:
        check_support([rule], n, by_hand(Pair(row, row)))
        refused = False
    except InputError:
        refused = True
    assert refused is short


def test_the_message_names_place_size_number_rule_and_remedy():
    # The position with the fewest tokens, so that the remedy holds for the whole batch.
    message = refusal("sequoia", 3, Pair(FLAT, DRAFT))
    assert message == (
        "d.pt: position 7: rule 'sequoia' draws 3 different candidates, but only 1 token of the draft has a "
        "probability above 0; lower --candidates to 1, or widen --temperature, --top-k, --top-p or --min-p"
    )
    message = refusal("sequoia", 3, Pair(FLAT[1:], DRAFT[1:]), (8, 9))
    assert "position 9" in message
    assert "only 2 tokens of the draft have" in message
    hand = refusal("sequoia", 4, Pair(FLAT[1:2], DRAFT[1:2]), (0,), "")
    assert hand.startswith("--draft: rule 'sequoia' draws 4 different candidates, but only 3 tokens")
    assert hand.endswith("lower --candidates to 3, or give a draft with more")


def test_ranked_tokens_of_probability_0_are_no_candidates():
    """Which of them a model ranked higher is lost, so the lowest indices would be invented."""
    assert "'eagle' draws 3 different candidates, but only 1 token" in refusal("eagle", 3, Pair(FLAT, DRAFT))


def test_two_candidates_or_none():
    """ "Lower --candidates to 1" would be refused in its turn: SpecHub verifies exactly two."""
    message = refusal("spechub", 2, Pair(FLAT, DRAFT))
    assert "leave the rule out" in message
    assert "lower" not in message
    with pytest.raises(InputError, match=r"more than the 1 token of the vocabulary; leave the rule out$"):
        check_vocabulary([make_rule("spechub")], 2, 1, "d.pt")
    with pytest.raises(InputError, match=r"^d.pt: rule 'eagle' draws 4 .* 3 tokens .* --candidates to 3$"):
        check_vocabulary([make_rule("eagle")], 4, 3, "d.pt")
    check_vocabulary([make_rule("eagle")], 3, 3, "d.pt")


def test_it_is_the_true_proposal_that_counts():
    wide = Pair(FLAT, DRAFT, proposal=FLAT)
    check_support([make_rule("sequoia")], 4, by_hand(wide))
    narrow = Pair(FLAT, FLAT, proposal=DRAFT)
    assert "1 token of the proposal" in (message := refusal("sequoia", 2, narrow))
    assert "--proposal-temperature" in message


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if isinstance(rule.proposal, Iid)])
def test_independent_draws_may_repeat(name):
    check_support([make_rule(name)], 9, by_hand(Pair(FLAT, DRAFT)))
    check_vocabulary([make_rule(name)], 9, 4, "d.pt")


def test_one_candidate_is_always_there():
    check_support([make_rule("eagle"), make_rule("sequoia")], 1, by_hand(Pair(FLAT, DRAFT)))


def test_torch():
    target, draft = torch.tensor(FLAT, dtype=torch.float32), torch.tensor(DRAFT, dtype=torch.float32)
    assert "only 1 token" in refusal("sequoia", 2, Pair(target, draft))


def test_limits_refuse_before_anything_is_appended():
    rows = {}
    rules = (make_rule("specinfer"), make_rule("sequoia"))
    with pytest.raises(InputError, match=re.escape("d.pt: position 7")):
        add_limits(rows, rules, PairBatch(Pair(FLAT, DRAFT), np.array([7, 8, 9]), source="d.pt"), 2)
    assert rows == {}
