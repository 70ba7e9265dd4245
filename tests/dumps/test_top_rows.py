"""Files of top-k pairs: what is known of the laws, and what is refused."""

import numpy as np
import pytest
from dump_helpers import logit_pair, refused, saved
from top_helpers import V, cut, laws, pairs, write

from resispec_verify.dumps import open_dump, open_rounds, open_target, open_top_pairs, open_tree
from resispec_verify.dumps.kinds.top_side import float32_rounding
from resispec_verify.logged.inspection import inspect_dump


def all_pairs(path):
    dump = open_top_pairs(path)
    return dump.pairs(0, dump.positions)


def wrong(tmp_path, **others) -> str:
    path = write(tmp_path / "x.npz", pairs() | others)
    return refused(path, all_pairs)


def changed(key: str, at: tuple, value: float) -> dict:
    array = pairs()[key].copy()
    array[at] = value
    return {key: array}


@pytest.mark.parametrize("name", ["x.npz", "x.pt", "x.safetensors"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_is_known_holds_for_the_whole_law(tmp_path, name, dtype):
    dump = open_top_pairs(write(tmp_path / name, pairs(dtype=dtype)))
    assert (dump.positions, dump.k, dump.vocab) == (7, 5, V)
    found = dump.pairs(2, 6)
    assert len(found) == 4
    for seed, side in ((3, found.target), (4, found.draft)):
        p = laws(seed=seed)[2:6]
        ids, listed = cut(p, 5)
        assert np.array_equal(side.tokens, ids)
        assert side.tokens.dtype == np.int32
        assert np.allclose(side.probabilities, listed, rtol=8 * np.finfo(dtype).eps)
        rest = 1 - listed.sum(axis=-1)
        assert (side.tail[:, 0] <= rest).all()
        assert (rest <= side.tail[:, 1]).all()
        assert (side.tail[:, 1] - side.tail[:, 0] < 30 * np.finfo(dtype).eps + 1e-11).all()
        assert (side.most >= np.sort(p, axis=-1)[:, -6]).all()
        assert (side.most <= listed[:, -1] * (1 + 30 * np.finfo(dtype).eps)).all()
        assert side.vocab == V


def test_logits_with_logsumexp_are_the_same(tmp_path):
    arrays = pairs(dtype=np.float64)
    raw = {key: value for key, value in arrays.items() if "logprobs" not in key}
    for role in ("target", "draft"):
        raw[f"{role}_top_logits"] = arrays[f"{role}_top_logprobs"] + 3.5
        raw[f"{role}_logsumexp"] = np.full(7, 3.5)
    one, other = all_pairs(write(tmp_path / "a.npz", arrays)), all_pairs(write(tmp_path / "b.npz", raw))
    assert np.allclose(one.target.probabilities, other.target.probabilities, rtol=1e-14)
    assert np.allclose(one.draft.tail, other.draft.tail, atol=1e-11)


def test_a_stated_tail_is_taken_as_it_is(tmp_path):
    exact = 1 - cut(laws(seed=3), 5)[1].sum(axis=-1)
    found = all_pairs(write(tmp_path / "x.npz", pairs(target_tail=exact)))
    assert np.allclose(found.target.tail, exact[:, None], rtol=1e-11)
    wide = np.stack([np.zeros(7), np.ones(7)], axis=-1)
    found = all_pairs(write(tmp_path / "y.npz", pairs(target_tail=wide)))
    assert np.array_equal(found.target.tail, wide)
    assert "the listed leave" in wrong(tmp_path, target_tail=exact + 0.01)
    assert "is no probability" in wrong(tmp_path, target_tail=exact - 1)


def test_that_the_listed_are_the_most_probable_is_never_assumed(tmp_path):
    arrays = pairs()
    del arrays["target_ranked"]
    dump = open_top_pairs(write(tmp_path / "x.npz", arrays))
    assert np.array_equal(dump.pairs(0, 7).target.most, np.ones(7))
    assert any("target: nothing says" in note for note in dump.notes)
    few = all_pairs(write(tmp_path / "y.npz", pairs(target_ranked=np.asarray([2, 0, 5, 5, 5, 5, 5]))))
    listed = cut(laws(seed=3), 5)[1]
    assert few.target.most[0] == pytest.approx(listed[0, 1], rel=1e-5)
    assert few.target.most[1] == 1
    assert few.target.most[2] == pytest.approx(listed[2, 4], rel=1e-5)


def test_shorter_lists_end_in_minus_one(tmp_path):
    arrays = pairs()
    arrays["target_top_ids"][3, 2:] = -1
    arrays["target_top_logprobs"][3, 2:] = np.nan
    found = all_pairs(write(tmp_path / "x.npz", arrays))
    p = cut(laws(seed=3), 5)[1][3]
    assert found.target.tokens[3].tolist()[2:] == [-1, -1, -1]
    assert found.target.probabilities[3].tolist()[2:] == [0, 0, 0]
    assert found.target.tail[3] == pytest.approx(1 - p[:2].sum(), abs=1e-6)
    assert found.target.most[3] == pytest.approx(p[1], rel=1e-5)


def test_a_whole_vocabulary_leaves_nothing(tmp_path):
    found = all_pairs(write(tmp_path / "x.npz", pairs(k=V)))
    assert np.array_equal(found.target.tail, np.zeros((7, 2)))


def test_rounding_explains_a_sum_above_one_and_widens_the_tail(tmp_path):
    arrays = pairs(k=V, dtype=np.float64)
    arrays["target_top_logprobs"] = arrays["target_top_logprobs"] + 1e-4
    path = write(tmp_path / "x.npz", arrays)
    assert "target at position 0: its probabilities add up to 1.0001" in refused(path, all_pairs)
    path = write(tmp_path / "y.npz", arrays | {"target_rounding": np.asarray([2e-4])})
    assert all_pairs(path).target.probabilities.max() <= 1
    narrow, wide = (
        all_pairs(write(tmp_path / f"{i}.npz", pairs(target_rounding=np.asarray([r])))).target.tail
        for i, r in enumerate((0.0, 1e-3))
    )
    assert (np.diff(wide) > np.diff(narrow) + 1e-3 * cut(laws(seed=3), 5)[1].sum(axis=-1)[:, None]).all()
    assert float32_rounding(1000) == 1008 * 2.0**-24


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (changed("target_top_ids", (4, 1), V), "target at position 4: token 30 is outside the vocabulary"),
        (changed("draft_top_ids", (4, 1), -2), "draft at position 4: token -2 is outside"),
        (changed("target_top_logprobs", (5, 2), np.nan), "position 5: entry 2 is NaN"),
        (changed("target_top_logprobs", (5, 2), np.inf), "position 5: entry 2 is +inf"),
        (changed("draft_top_logprobs", (6, 0), 0.5), "position 6: entry 0 has the log-probability 0.5"),
        (changed("target_top_logprobs", (1, 0), -0.001), "position 1: its probabilities add up to"),
        (changed("target_top_logprobs", (2, 4), -9.0), "position 2: no other token can have more"),
        ({"target_top_ids": np.full((7, 5), -1)}, "position 0: no token is listed"),
        ({"target_ranked": np.asarray([6])}, "position 0: target_ranked is 6, and 5 tokens are listed"),
        ({"target_rounding": np.asarray([0.5])}, "target_rounding is 0.5"),
        ({"target_top_logprobs": np.zeros((7, 4))}, "target_top_logprobs is [7, 4], but must be [7, 5]"),
        ({"target_top_ids": np.zeros((7, 5))}, "target_top_ids is float64; save an array of integers"),
        ({"target_logsumexp": np.zeros(7)}, "belong together"),
        ({"target_top_logits": np.zeros((7, 5))}, "give one of target_top_logprobs and target_top_logits"),
        ({"draft_top_ids": np.zeros((6, 5), int)}, "draft_top_logprobs is [7, 5], but must be [6, 5]"),
        ({"vocab": np.asarray([4])}, "lists 5 of 4 tokens"),
        ({"meta": np.asarray('{"sampling": {"temperature": 0.5}}')}, "cannot be done where tails are unseen"),
        ({"next_tokens": np.arange(3)}, "next_tokens has 3 entries for 7 positions"),
    ],
)  # fmt: skip
def test_what_is_no_law_is_refused_with_its_position(tmp_path, others, message):
    assert message in wrong(tmp_path, **others)


def test_a_token_twice_is_refused(tmp_path):
    ids = pairs()["target_top_ids"]
    ids[2, 3] = ids[2, 0]
    assert f"target at position 2: token {ids[2, 0]} is listed twice" in wrong(tmp_path, target_top_ids=ids)


def test_each_kind_says_what_the_other_is(tmp_path):
    path = write(tmp_path / "x.npz", pairs())
    for read in (open_dump, open_target, open_rounds, open_tree):
        assert "lists the top k tokens of each position" in refused(path, read)
    full = saved(tmp_path / "full.pt", logit_pair(4, 6))
    assert "is a flat dump, and the top k of each position are needed" in refused(full, open_top_pairs)
    alone = {key: value for key, value in pairs().items() if not key.startswith("draft")}
    assert "has no draft_top_ids: one model only" in refused(write(tmp_path / "y.npz", alone), open_top_pairs)


def test_inspect_says_how_much_is_listed(tmp_path):
    result = inspect_dump(write(tmp_path / "x.npz", pairs(odd=np.zeros(3))))
    assert (result["kind"], result["positions"], result["vocab"], result["dtype"]) == ("top", 7, V, "float32")
    assert result["top"]["k"] == [5, 5]
    rest = 1 - cut(laws(seed=4), 5)[1].sum(axis=-1)
    assert result["top"]["draft_tail"]["mean"] == pytest.approx(rest.mean(), abs=1e-6)
    assert result["ignored"] == ["odd"]
    assert result["problems"] == []
