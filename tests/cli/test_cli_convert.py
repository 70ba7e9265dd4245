"""`convert` of a dump of whole rows: lists as the dump states that its laws are sampled."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cli_helpers import assert_refused, drawn, save

import resispec_verify as rv

VOCAB = 12


@pytest.fixture
def whole(tmp_path):
    meta = {"sampling": {"temperature": [0.5, 1.0, 2.0], "top_k": 7}}
    return save(tmp_path / "dump.pt", drawn(3, VOCAB, seed=1), drawn(3, VOCAB, seed=2), meta=meta)


@pytest.mark.parametrize("k", [1, 4, 100])
def test_whole_rows_are_cut_as_they_are_sampled(cli, whole, tmp_path, k):
    out = tmp_path / "pairs.npz"
    result = cli("convert", whole, "--top-k", k, "--out", out, "--json", "-")
    assert result.status == 0, result.err
    [row] = result.json["results"]
    assert (row["positions"], row["k"], row["vocab"]) == (3, [min(k, VOCAB)] * 2, VOCAB)
    pairs = rv.open_top_pairs(out).pairs(0, 3)
    logits = torch.load(whole, weights_only=True)
    for side, key in ((pairs.target, "target_logits"), (pairs.draft, "draft_logits")):
        for i, t in enumerate((0.5, 1.0, 2.0)):
            law = rv.Sampling(t, 7).probabilities(logits[key][i].numpy(), dtype=np.float64)
            best = np.sort(law)[::-1]
            np.testing.assert_allclose(side.probabilities[i], best[:k], atol=1e-15)
            np.testing.assert_allclose(side.probabilities[i], law[side.tokens[i]], atol=1e-15)
            left = best[k:].sum()
            assert side.tail[i, 0] <= left + 1e-15
            assert left - 1e-15 <= side.tail[i, 1]
            assert side.most[i] == pytest.approx(0.0 if k >= VOCAB else best[k - 1], abs=1e-15)


def test_pairs_are_read_back_as_they_were_written(tmp_path):
    listed = rv.TopRows(
        np.array([[2, 0, -1], [1, 4, 3]], np.int32), np.array([[0.5, 0.25, 0.0], [0.4, 0.2, 0.1]]),
        np.array([[0.25, 0.25], [0.3, 0.3]]), np.array([0.25, 0.2]), 6,
    )  # fmt: skip
    rv.save_top_pairs(tmp_path / "pairs.safetensors", rv.TopPairs(listed, listed), meta={"applied": {}})
    dump = rv.open_top_pairs(tmp_path / "pairs.safetensors")
    back = dump.pairs(0, 2).draft
    assert (back.tokens == listed.tokens).all()
    assert dump.vocab == 6
    assert dump.meta == {"applied": {}}
    np.testing.assert_allclose(back.probabilities, listed.probabilities, rtol=1e-15)
    with pytest.raises(rv.InputError, match="the target's pairs were read from a file"):
        rv.save_top_pairs(tmp_path / "again.npz", dump.pairs(0, 2))  # what the file rounds would be lost
    # No other token of the second row has more than .2: the third listed is not among the most probable.
    np.testing.assert_allclose(back.most, [0.25, 0.2], rtol=1e-15)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a.json"], "or one dump of whole rows and --top-k"),
        (["a.json", "b.json"], "or one dump of whole rows and --top-k"),
        (["a.json", "b.json", "--top-k", 3], "leave"),
        (["a.json", "--top-k", 3, "--from", "vllm"], "--from would do nothing beside --top-k"),
        (["a.json", "--top-k", 3, "--vocab", 3], "--vocab would do nothing beside --top-k"),
        (["a.json", "--top-k", 0], "--top-k must be at least 1"),
    ],
)
def test_what_does_not_fit_together_is_refused(cli, tmp_path, arguments, words):
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("{}")
    given = [tmp_path / one if str(one).endswith(".json") else one for one in arguments]
    assert_refused(cli("convert", *given, "--out", tmp_path / "pairs.npz"), words)
    assert not (tmp_path / "pairs.npz").exists()
