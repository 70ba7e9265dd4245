"""Block verification and Medusa on toy chains, against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from resispec_verify.errors import InputError
from resispec_verify.evidence.path_rules import joint_law, path_marginal
from resispec_verify.rules import PATH_RULES, Block, Medusa, make_path_rule, make_rule

EPS = float(np.finfo(np.float64).eps)


def memoryless(law: np.ndarray, length: int) -> list[np.ndarray]:
    return [np.broadcast_to(law, (len(law),) * i + (len(law),)) for i in range(length)]


def test_block_verification_accepts_what_its_paper_says():
    # The paper's motivating example: 11/9 tokens of 2, against 10/9 token by token.
    p, q = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])
    found = path_marginal(Block(), memoryless(p, 3), memoryless(q, 2))
    assert abs(found.mean_accepted - 11 / 9) <= 2 * found.rounding + 5 * EPS
    assert found.tv <= found.rounding


def test_one_token_is_speculative_sampling():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.3, 0.1])
    found = path_marginal(Block(), memoryless(p, 2), memoryless(q, 1))
    assert abs(found.mean_accepted - 0.9) <= 2 * found.rounding
    assert found.tv <= found.rounding


def test_equal_chains_accept_everything():
    p = np.array([0.25, 0.5, 0.25])
    found = path_marginal(Block(), memoryless(p, 4), memoryless(p, 3))
    np.testing.assert_array_equal(found.accepted, [0, 0, 0, 1])


def test_disjoint_chains_accept_nothing_and_emit_the_target():
    found = path_marginal(Block(), memoryless(np.array([1.0, 0.0]), 3), memoryless(np.array([0.0, 1.0]), 2))
    np.testing.assert_array_equal(found.accepted, [1, 0, 0])
    assert found.tv == 0.0


def test_a_correction_without_its_weight_is_seen_in_the_block():
    # EAGLE#47's kind of fault: right in the first token, wrong in the pair.
    class Unweighted(Block):
        def outcome(self, targets, drafts, path):
            lengths, rows = super().outcome(targets, drafts, path)
            excess = np.clip(targets[:, :-1, :] - drafts, 0.0, None) + 1e-300
            rows[:, 1:-1, :] = (excess / excess.sum(axis=-1, keepdims=True))[:, 1:, :]
            return lengths, rows

    p, q = np.array([0.3, 0.1, 0.4, 0.2]), np.array([0.4, 0.5, 0.05, 0.05])
    found = path_marginal(Unweighted(), memoryless(p, 3), memoryless(q, 2))
    first = found.joint.sum(axis=(1, 2))
    assert np.abs(first - p).sum() <= 4 * found.rounding
    assert found.tv > 1e-3


def test_medusa_by_hand():
    # H = log 2, so the threshold is min(.09, .3 / 2) = .09: both tokens of the support pass, the third never.
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.25, 0.5])
    lengths, rows = Medusa().outcome(np.stack([p, p]), q[None, :], np.array([2]))
    np.testing.assert_array_equal(lengths, [1, 0])
    np.testing.assert_array_equal(rows, [[1, 0, 0], [1, 0, 0]])
    found = path_marginal(Medusa(correction="target"), memoryless(p, 2), memoryless(q, 1))
    np.testing.assert_allclose(found.accepted, [0.5, 0.5], rtol=0, atol=2 * EPS)
    # A flat law over 100 tokens has threshold .3 / 100 < 1/100: every token passes, though p < delta.
    flat = np.full(100, 0.01)
    assert Medusa().outcome(np.stack([flat, flat]), flat[None, :], np.array([7]))[0][1] == 1.0


def test_no_drafted_token_leaves_the_target():
    found = path_marginal(Block(), [np.array([0.25, 0.75])], [])
    np.testing.assert_array_equal(found.joint, [0.25, 0.75])


@pytest.mark.parametrize("name", list(PATH_RULES))
def test_path_rules_need_paths(name):
    assert make_path_rule(name).name == name
    with pytest.raises(
        InputError, match=f"rule '{name}' verifies paths of several tokens and needs a rounds"
    ):
        make_rule(name)


def test_bad_chains_and_parameters():
    p = np.array([0.5, 0.5])
    with pytest.raises(InputError, match="a path of 1 tokens needs 2 target levels, got 1"):
        path_marginal(Block(), [p], [p])
    with pytest.raises(InputError, match=r"targets\[1\] must have shape \(2, 2\), got \(2,\)"):
        path_marginal(Block(), [p, p], [p])
    with pytest.raises(InputError, match=r"drafts\[0\] must hold laws"):
        path_marginal(Block(), memoryless(p, 2), [2 * p])
    with pytest.raises(InputError, match="medusa: delta must be in"):
        Medusa(delta=2.0)
    with pytest.raises(InputError, match="correction must be greedy or target"):
        Medusa(correction="none")
    with pytest.raises(InputError, match="unknown rule 'blok'; did you mean 'block'"):
        make_path_rule("blok")
    assert joint_law([]).shape == ()
