"""`compare` of dumps whose vocabularies differ: padding, and reduced vocabularies with a map."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from resispec_verify import InputError
from resispec_verify.logged.compare import compare_dumps
from resispec_verify.logged.compare_summary import summarize_comparison


def saved(folder, name, logits, **others):
    torch.save({"target_logits": torch.as_tensor(logits), **others}, folder / name)
    return folder / name


def law(row):
    e = np.exp(np.asarray(row, np.float64) - np.max(row))
    return e / e.sum()


@pytest.fixture
def rows():
    return np.random.default_rng(3).normal(size=(4, 7)).astype(np.float32) * 2


def summary(*args, **options):
    return summarize_comparison(compare_dumps(*args, **options), 3)


@pytest.mark.parametrize("wide_first", [True, False])
def test_two_padded_widths_of_one_model(tmp_path, rows, wide_first):
    wide = np.concatenate([rows, np.full((4, 2), -np.inf, np.float32)], axis=-1)
    paths = [saved(tmp_path, "wide.pt", wide), saved(tmp_path, "narrow.pt", rows)]
    names = ["only_in_a", "only_in_b"]
    if not wide_first:
        paths.reverse(), names.reverse()
    with pytest.raises(InputError, match=r"has vocabulary .* pass --pad-vocab .*needs its map as d2t or t2d"):
        compare_dumps(*paths)
    row = summary(*paths, pad_vocab=True)
    assert (row["tv_max"], row["kl_max"], row["kl_reverse_max"], row["max_abs_logit"]) == (0, 0, 0, 0)
    assert row["support_differs"] == row["flips"] == 0
    assert row[names[0]] == {"tokens": 2, "mass_mean": 0.0, "mass_max": 0.0, "position": 0}
    assert row[names[1]]["tokens"] == 0


def test_mass_on_padding_is_reported_and_counts(tmp_path, rows):
    padding = np.array([[-9.0], [-9.0], [1.0], [-9.0]], np.float32)
    wide = saved(tmp_path, "wide.pt", np.concatenate([rows, padding], axis=-1))
    row = summary(wide, saved(tmp_path, "narrow.pt", rows), pad_vocab=True, temperature=2.0)
    masses = [law(np.append(r, x) / 2)[-1] for r, x in zip(rows, padding, strict=True)]
    assert row["only_in_a"]["position"] == 2
    assert row["only_in_a"]["mass_max"] == pytest.approx(masses[2], rel=1e-12)
    assert row["only_in_a"]["mass_mean"] == pytest.approx(np.mean(masses), rel=1e-12)
    # What is on the padding is all that the laws differ by, and no law without it has a finite divergence.
    assert row["tv_max"] == pytest.approx(masses[2], rel=1e-12)
    assert row["kl_max"] == math.inf
    assert row["kl_reverse_max"] == pytest.approx(-math.log1p(-masses[2]), rel=1e-9)
    # Logits are compared where both have them.
    assert row["max_abs_logit"] == 0
    assert row["logit_difference"]["99.9"] == 0


def test_the_same_vocabulary_says_nothing_of_padding(tmp_path, rows):
    row = summary(saved(tmp_path, "a.pt", rows), saved(tmp_path, "b.pt", rows), pad_vocab=True)
    assert row["only_in_a"] is row["only_in_b"] is None


HAS = np.array([6, 0, 3, 2])  # in the order of the reduced vocabulary


def maps(which):
    mask = torch.zeros(7, dtype=torch.bool)
    mask[torch.as_tensor(HAS)] = True
    both = {"d2t": torch.as_tensor(HAS - np.arange(4)), "t2d": mask}
    return {key: both[key] for key in which}


@pytest.mark.parametrize("which", [("d2t",), ("d2t", "t2d")])
@pytest.mark.parametrize("kind", ["logits", "log-probabilities", "probabilities"])
def test_a_reduced_vocabulary_is_compared_at_its_tokens(tmp_path, rows, which, kind):
    p = np.stack([law(row) for row in rows])
    q = p[:, HAS] / p[:, HAS].sum(axis=-1, keepdims=True)
    full, reduced = {
        "logits": (rows, rows[:, HAS] + 1),
        "probabilities": (p, q),
        "log-probabilities": (np.log(p), np.log(q)),
    }[kind]
    a = saved(tmp_path, "full.pt", full)
    b = saved(tmp_path, "reduced.pt", reduced, **maps(which))
    row = summary(a, b, kind=None if kind == "logits" else kind)
    kept = p[:, HAS].sum(axis=-1)
    assert row["only_in_a"]["tokens"] == 3
    assert row["only_in_b"]["tokens"] == 0
    assert row["only_in_a"]["mass_max"] == pytest.approx((1 - kept).max(), rel=1e-9)
    assert row["tv_max"] == pytest.approx((1 - kept).max(), rel=1e-9)
    assert row["kl_reverse_max"] == pytest.approx(-np.log(kept.min()), rel=1e-9)
    assert row["kl_max"] == math.inf
    if kind == "logits":
        assert row["max_abs_logit"] == pytest.approx(1.0, abs=1e-6)
        assert row["max_abs_logit_at"]["token"] in HAS


def test_the_map_is_not_ignored(tmp_path, rows):
    """The reduced rows as if they were the first four tokens: what a tool that ignores the map compares."""
    a, b = saved(tmp_path, "a.pt", rows), saved(tmp_path, "b.pt", rows[:, HAS], **maps(["d2t"]))
    wrong = summary(a, saved(tmp_path, "c.pt", rows[:, HAS]), pad_vocab=True)
    assert wrong["tv_max"] > summary(a, b)["tv_max"] + 0.1


def test_two_reduced_dumps_need_the_width_and_then_are_equal(tmp_path, rows):
    one = saved(tmp_path, "one.pt", rows[:, HAS], **maps(["d2t"]))
    with pytest.raises(InputError, match=r"nothing says how wide .* save t2d"):
        compare_dumps(one, one)
    other = np.array([2, 3, 0, 6])
    both = maps(["d2t", "t2d"])
    a = saved(tmp_path, "a.pt", rows[:, HAS], **both)
    b = saved(tmp_path, "b.pt", rows[:, other], t2d=both["t2d"], d2t=torch.as_tensor(other - np.arange(4)))
    row = summary(a, b)
    assert (row["tv_max"], row["max_abs_logit"], row["only_in_a"]) == (0, 0, None)


def test_tokens_without_counterpart_keep_their_mass(tmp_path, rows):
    tokens = np.array([6, 0, -1, 2])
    b = saved(tmp_path, "b.pt", rows[:, HAS], d2t=torch.as_tensor(tokens - np.arange(4)))
    row = summary(saved(tmp_path, "a.pt", rows), b)
    assert row["only_in_b"]["tokens"] == 1
    mass = max(law(r[HAS])[2] for r in rows)
    assert row["only_in_b"]["mass_max"] == pytest.approx(mass, rel=1e-9)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"d2t": torch.zeros(4, dtype=torch.int64)}, "0 everywhere"),
        ({"d2t": torch.zeros(3, dtype=torch.int64)}, "3 offsets for 4 draft tokens"),
        ({"d2t": torch.tensor([9, 0, 0, 0])}, "outside the target's vocabulary"),
        ({"t2d": torch.ones(7, dtype=torch.bool)}, "7 tokens, and the draft has 4"),
    ],
)
def test_maps_that_cannot_be_used(tmp_path, rows, others, words):
    b = saved(tmp_path, "b.pt", rows[:, HAS], **others)
    with pytest.raises(InputError, match=words):
        compare_dumps(saved(tmp_path, "a.pt", rows), b)


def test_a_map_of_the_draft_leaves_the_target_alone(tmp_path, rows):
    a = saved(tmp_path, "a.pt", rows)
    b = saved(tmp_path, "b.pt", rows, draft_logits=torch.as_tensor(rows[:, HAS]), **maps(["d2t"]))
    assert summary(a, b)["only_in_a"] is None


def test_parts_of_a_reduced_vocabulary_are_refused(tmp_path, rows):
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(2):
        saved(folder, f"part-{i}.pt", rows[2 * i : 2 * i + 2, HAS], **maps(["d2t", "t2d"]))
    with pytest.raises(InputError, match="a reduced vocabulary is not joined from parts"):
        compare_dumps(saved(tmp_path, "a.pt", rows), folder, pad_vocab=True)
