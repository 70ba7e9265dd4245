"""`compare` of top-k files: intervals around what whole rows give."""

from __future__ import annotations

import numpy as np
import pytest
from cli_helpers import assert_refused, lines_of
from cut_helpers import logits, save_top, save_whole

ROWS, VOCAB = 6, 20
ROUNDING = 1e-9


@pytest.fixture
def rows():
    """Two models' targets, and one draft."""
    target, draft = logits(ROWS, VOCAB)
    other = target + 0.2 * np.random.default_rng(5).standard_normal(target.shape)
    return target, other, draft


@pytest.mark.parametrize(("k", "j"), [(4, 4), (3, 9), (VOCAB, VOCAB), (5, None)])
def test_distances_of_whole_rows_lie_in_the_intervals(cli, tmp_path, rows, k, j):
    target, other, draft = rows
    whole = [save_whole(tmp_path / f"{name}.npz", law, draft) for name, law in (("a", target), ("b", other))]
    truth = lines_of(cli("compare", *whole, "--csv", "-").out.partition("A: ")[0])
    a = save_top(tmp_path / "top_a.npz", target, draft, k)
    b = whole[1] if j is None else save_top(tmp_path / "top_b.npz", other, draft, j)
    ours = lines_of(cli("compare", a, b, "--csv", "-").out.partition("A: ")[0])
    assert len(ours) == len(truth) == ROWS
    for line, full in zip(ours, truth, strict=True):
        for name in ("tv", "kl", "kl_reverse"):
            low, high = float(line[f"target_{name}_low"]), float(line[f"target_{name}_high"])
            assert low - ROUNDING <= float(full[name]) <= high + ROUNDING
            if k == VOCAB:
                assert high - low < ROUNDING
            assert float(line[f"draft_{name}_low"]) == pytest.approx(0.0, abs=ROUNDING)
        assert (line["top_a"], line["top_b"]) == (full["top_a"], full["top_b"])


def test_demands_hold_for_every_completion(cli, tmp_path, rows):
    target, other, draft = rows
    a = save_top(tmp_path / "a.npz", target, draft, 6)
    b = save_top(tmp_path / "b.npz", other, draft, 6)
    found = cli("compare", a, b, "--json", "-")
    assert found.status == 0
    assert found.json["form"] == "top-k"
    low, high = found.json["results"][0]["target"]["tv"]["max"]
    assert low < high
    assert cli("compare", a, b, "--max-tv", 0.5 * (low + high)).status == 1
    assert cli("compare", a, b, "--max-tv", high + 1e-9).status == 0


def test_best_tokens_flip_for_certain_or_are_not_known(cli, tmp_path):
    draft = np.log([[0.25] * 4] * 3)
    one = np.log([[0.7, 0.1, 0.1, 0.1], [0.5, 0.3, 0.1, 0.1], [0.4, 0.4 - 1e-9, 0.1, 0.1]])
    two = np.log([[0.7, 0.1, 0.1, 0.1], [0.3, 0.5, 0.1, 0.1], [0.4 - 1e-9, 0.4, 0.1, 0.1]])
    a, b = (save_top(tmp_path / f"{name}.npz", law, draft, 2) for name, law in (("a", one), ("b", two)))
    (result,) = cli("compare", a, b, "--json", "-").json["results"]
    assert (result["flips"], result["near_ties"], result["best_unknown"]) == (1, 1, 0)
    assert [entry["position"] for entry in result["flip_list"]] == [1]
    assert cli("compare", a, b, "--require-same-top").status == 1
    assert cli("compare", a, a, "--require-same-top").status == 0
    # Nothing says that the listed are the best, and the tail of .6 may be one token.
    few = np.log([[0.2, 0.2, 0.4, 0.2]])
    ids = np.array([[0, 1]], np.int32)
    loose = save_top(
        tmp_path / "loose.npz", few, draft[:1], 2, target_top_ids=ids, target_ranked=None,
        target_top_logprobs=np.log([[0.2, 0.2]]),
    )  # fmt: skip
    unknown = cli("compare", loose, loose, "--json", "-", "--require-same-top")
    assert unknown.json["results"][0]["best_unknown"] == 1
    assert unknown.status == 1


def test_what_cannot_be_compared(cli, tmp_path, rows):
    target, _, draft = rows
    a = save_top(tmp_path / "a.npz", target, draft, 4)
    fewer = save_top(tmp_path / "fewer.npz", target[:3], draft[:3], 4)
    narrow = save_top(tmp_path / "narrow.npz", target[:, :9], draft[:, :9], 4)
    whole = save_whole(tmp_path / "whole.npz", target, draft)
    assert_refused(cli("compare", a, fewer), "has 6 positions but", "the same prefixes")
    assert_refused(cli("compare", a, narrow), "vocabularies of 9 and 20 tokens")
    assert_refused(cli("compare", a, whole, "--temperature", 0.5), "--temperature cannot be applied")
    assert_refused(cli("compare", a, a, "--input", "logits"), "--input would do nothing")
    assert_refused(cli("compare", a, whole, "--pad-vocab"), "--pad-vocab would do nothing")
    assert_refused(cli("compare", a, a, "--positions", "3:9"), "positions 3:9 are outside")
    followed = [
        save_top(tmp_path / f"{i}.npz", target, draft, 4, next_tokens=np.arange(ROWS) * i) for i in (1, 2)
    ]
    assert_refused(cli("compare", *followed), "next_tokens differs first at position 1: 1 in", "2 in")
