"""Two target dumps: known divergences, flips apart from near-ties, quantiles and errors against NumPy."""

from __future__ import annotations

import math
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import torch
from dump_helpers import saved_llamacpp, saved_npz, saved_safetensors

from resispec_verify import InputError
from resispec_verify.logged.compare import compare_dumps, stored_precision
from resispec_verify.logged.compare_summary import (
    LEVELS,
    compare_report,
    comparison_records,
    quantile,
    spread,
)

SEEDS = pytest.mark.parametrize("seed", range(4))


def logs(*rows):
    return torch.tensor(rows, dtype=torch.float64).log()


def drawn(seed, *shape, dtype=torch.float32):
    return (3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


def saved(folder, name, logits, **others):
    path = folder / f"{name}.pt"
    torch.save({"target_logits": logits} | others, path)
    return path


def compared(folder, a, b, others_a=None, others_b=None, **options):
    paths = saved(folder, "a", a, **(others_a or {})), saved(folder, "b", b, **(others_b or others_a or {}))
    result = compare_dumps(*paths, **options)
    return compare_report(result, 5)["results"][0], result


# Known values


def test_both_directions_are_named_and_right(tmp_path):
    """trl#4935: [.9, .1] against [.5, .5] is .3681 one way and .5108 the other."""
    row, _ = compared(tmp_path, logs([0.9, 0.1]), logs([0.5, 0.5]))
    assert row["kl_mean"] == pytest.approx(0.9 * math.log(1.8) + 0.1 * math.log(0.2), rel=1e-12)
    assert row["kl_reverse_mean"] == pytest.approx(-0.5 * math.log(1.8) - 0.5 * math.log(0.2), rel=1e-12)
    assert (round(row["kl_mean"], 4), round(row["kl_reverse_mean"], 4)) == (0.3681, 0.5108)
    assert row["tv_mean"] == pytest.approx(0.4, rel=1e-12)
    assert row["max_abs_logit"] == pytest.approx(math.log(5), rel=1e-12)
    assert row["max_abs_logit_at"] == {"position": 0, "token": 1}
    assert row["delta_p_of"] == "best token of A"
    assert row["table"]["delta_p"]["mean"] == pytest.approx(-0.4, rel=1e-12)
    assert row["table"]["delta_p"]["standard_error"] is None


def test_temperature_is_that_of_the_probabilities(tmp_path):
    """At T = 2, [.9, .1] becomes [3, 1] / 4 and [.5, .5] stays; the raw logits do not change."""
    row, _ = compared(tmp_path, logs([0.9, 0.1]), logs([0.5, 0.5]), temperature=2.0, kind="logits")
    assert row["tv_mean"] == pytest.approx(0.25, rel=1e-12)
    assert row["kl_mean"] == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), rel=1e-12)
    assert row["max_abs_logit"] == pytest.approx(math.log(5), rel=1e-12)
    assert row["max_abs_log_probability"] == pytest.approx(math.log(2), rel=1e-12)


@SEEDS
def test_a_dump_against_itself_is_zero_exactly(tmp_path, seed):
    """pytorch#32520: identical logits give KL 0, never a negative number."""
    a = drawn(seed, 7, 50)
    row, result = compared(tmp_path, a, a)
    for key in ("max_abs_logit", "max_abs_log_probability", "tv_mean", "tv_max", "kl_mean", "kl_max",
                "kl_reverse_mean", "flips", "near_tie_flips", "support_differs"):  # fmt: skip
        assert row[key] == 0, key
    assert set(row["logit_difference"].values()) == {0.0}
    assert row["table"]["same_top"] == {"value": 1.0, "standard_error": 0.0}
    assert row["table"]["delta_p_rms"] == {"value": 0.0, "standard_error": 0.0}
    assert set(result.columns["status"]) <= {"same", "near-tie"}


@SEEDS
def test_swapping_the_dumps_swaps_the_directions(tmp_path, seed):
    a, b = drawn(seed, 9, 40), drawn(seed, 9, 40) + 0.1 * drawn(seed + 100, 9, 40)
    there, back = compared(tmp_path, a, b)[0], compared(tmp_path, b, a)[0]
    assert there["kl_mean"] == back["kl_reverse_mean"] > 0
    assert there["kl_reverse_max"] == back["kl_max"]
    for key in ("tv_mean", "tv_max", "max_abs_logit", "logit_difference", "flips", "near_ties"):
        assert there[key] == back[key], key


@SEEDS
def test_against_plain_numpy(tmp_path, seed):
    a, b = drawn(seed, 20, 30), drawn(seed, 20, 30) + 0.2 * drawn(seed + 50, 20, 30)
    row, result = compared(tmp_path, a, b, batch=3)
    p, q = (torch.softmax(x.double(), -1).numpy() for x in (a, b))
    apart = np.abs(a.double().numpy() - b.double().numpy())
    kl = (p * np.log(p / q)).sum(-1)
    assert result.columns["kl"] == pytest.approx(kl, rel=1e-9)
    assert result.columns["tv"] == pytest.approx(np.abs(p - q).sum(-1) / 2, rel=1e-12)
    assert result.columns["max_abs_logit"] == pytest.approx(apart.max(-1), rel=1e-12)
    assert row["flips"] + row["near_tie_flips"] == int((p.argmax(-1) != q.argmax(-1)).sum()) > 0
    for name, level in LEVELS.items():
        right = np.quantile(apart, level, method="inverted_cdf")
        assert right * (1 - 2**-11) <= row["logit_difference"][name] <= right * (1 + 2**-24), name
    assert [w["position"] for w in row["worst"]] == np.argsort(-kl)[:5].tolist()
    assert row["table"]["kl"]["99"] == pytest.approx(np.quantile(kl, 0.99), rel=1e-9)


def test_a_common_shift_is_no_difference_of_laws(tmp_path):
    row, _ = compared(
        tmp_path, drawn(1, 4, 20, dtype=torch.float64), drawn(1, 4, 20, dtype=torch.float64) + 7
    )
    assert row["max_abs_logit"] == pytest.approx(7, rel=1e-12)
    assert row["max_abs_log_probability"] < 1e-13
    assert row["kl_max"] < 1e-25


# Flips and near-ties


@pytest.mark.parametrize(
    ("b", "dtype", "flips", "near", "near_flips"),
    [
        ([23.5, 23.5], torch.bfloat16, 0, 1, 0),
        ([23.5, 23.625], torch.bfloat16, 0, 1, 1),
        ([23.5, 24.5], torch.bfloat16, 0, 1, 1),  # A is one ulp from a tie, so a last bit in A decides
        ([23.5, 23.625], torch.float16, 1, 0, 0),
        ([23.5, 23.5], torch.float16, 0, 1, 0),
        ([23.625, 20.0], torch.float16, 0, 0, 0),
    ],
)
def test_last_bit_flips_are_kept_apart(tmp_path, b, dtype, flips, near, near_flips):
    """vllm-rbln#630: [23.625, 23.5] against [23.5, 23.5]; bfloat16 has a step of 1/8 there."""
    row, result = compared(
        tmp_path, torch.tensor([[23.625, 23.5]], dtype=dtype), torch.tensor([b], dtype=dtype)
    )
    assert (row["flips"], row["near_ties"], row["near_tie_flips"]) == (flips, near, near_flips)
    assert result.columns["ulp"] == [2.0**-3 if dtype == torch.bfloat16 else 2.0**-6]
    assert len(row["flip_list"]) == flips


def test_a_clear_flip_has_its_margins(tmp_path):
    a, b = torch.tensor([[5.0, 1, 2]]), torch.tensor([[3.0, 0, 7]])
    row, _ = compared(tmp_path, a, b)
    (flip,) = row["flip_list"]
    assert (flip["top_a"], flip["top_b"], flip["status"]) == (0, 2, "flip")
    assert (flip["margin_a"], flip["margin_b"], flip["gap_a"], flip["gap_b"]) == (3, 4, 3, 4)


def test_a_flip_to_a_third_token_is_not_excused_by_a_tie_of_others(tmp_path):
    row, _ = compared(tmp_path, torch.tensor([[9.0, 9.0, 1.0]]), torch.tensor([[1.0, 1.0, 9.0]]))
    assert (row["flips"], row["near_ties"]) == (1, 0)


def test_the_coarser_type_decides_also_where_it_was_widened(tmp_path):
    a = drawn(3, 2, 40)
    rounded = a.to(torch.bfloat16)
    assert compared(tmp_path, a, a)[0]["precision"] == "float32"
    assert compared(tmp_path, a, a.half())[0]["precision"] == "float16"
    assert compared(tmp_path, a.half(), rounded)[0]["precision"] == "bfloat16"
    assert compared(tmp_path, a, rounded.float())[0]["precision"] == "bfloat16"
    assert stored_precision(np.ones((1, 8), np.float32), np.float32) == np.float32  # too few to tell
    assert stored_precision(np.ones((1, 99), np.float32), np.float32) == ml_dtypes.bfloat16


def test_one_token_and_equal_tops(tmp_path):
    row, _ = compared(tmp_path, torch.tensor([[1.0]]), torch.tensor([[2.0]]))
    assert (row["tv_mean"], row["kl_mean"], row["flips"], row["near_ties"]) == (0, 0, 0, 0)


# Infinite values


def test_tokens_excluded_in_both_keep_the_divergence_finite(tmp_path):
    """heretic#348: both rows -inf at the same tokens."""
    row, _ = compared(tmp_path, logs([0.5, 0.5, 0]), logs([0.25, 0.75, 0]))
    assert row["kl_mean"] == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3), rel=1e-12)
    assert row["support_differs"] == 0
    assert row["max_abs_logit"] == pytest.approx(math.log(2), rel=1e-12)


def test_tokens_excluded_in_one_are_counted_and_infinite(tmp_path):
    both = compared(tmp_path, logs([0.5, 0.5, 0], [0.2, 0.3, 0.5]), logs([0.5, 0.25, 0.25], [0.2, 0.3, 0.5]))
    row = both[0]
    assert (row["support_differs"], row["max_abs_logit"], row["kl_reverse_mean"]) == (1, "inf", "inf")
    assert row["kl_mean"] == pytest.approx(0.25 * math.log(2), rel=1e-12)
    assert row["table"]["kl_reverse"]["standard_error"] is None
    assert (row["table"]["kl_reverse"]["max"], row["table"]["kl_reverse"]["min"]) == ("inf", 0.0)
    assert "nan" not in str(row).lower()


# Summary


def test_spread_is_numpys(tmp_path):
    values = np.random.default_rng(0).normal(size=500).tolist()
    table = spread(values)
    for name, level in LEVELS.items():
        assert table[name] == pytest.approx(np.quantile(values, level), rel=1e-12)
    assert table["mean"] == pytest.approx(np.mean(values), rel=1e-12)
    assert table["standard_error"] == pytest.approx(np.std(values, ddof=1) / math.sqrt(500), rel=1e-12)
    assert quantile([1.0, math.inf], 0.4) == 1.0
    assert quantile([1.0, math.inf], 0.6) == math.inf


def test_perplexities_and_the_difference_of_the_next_token(tmp_path):
    """Tokens 1 and 0 follow: p_A = .3, .2 and p_B = .4, .1, so the perplexities are 1/sqrt(.06), 5."""
    a, b = logs([0.7, 0.3], [0.2, 0.8]), logs([0.6, 0.4], [0.1, 0.9])
    row, _ = compared(tmp_path, a, b, {"tokens": torch.tensor([0, 1, 0])}, {})
    assert row["delta_p_of"] == "next token"
    assert row["perplexity"]["a"]["value"] == pytest.approx(1 / math.sqrt(0.06), rel=1e-12)
    assert row["perplexity"]["b"]["value"] == pytest.approx(5, rel=1e-12)
    ratio = row["perplexity"]["ln_ratio"]
    assert ratio["value"] == pytest.approx((math.log(0.3 / 0.4) + math.log(0.2 / 0.1)) / 2, rel=1e-12)
    # Two values d and e: the standard error of their mean is |d - e| / 2.
    assert ratio["standard_error"] == pytest.approx((math.log(2) - math.log(0.75)) / 2, rel=1e-12)
    table = row["table"]
    assert table["delta_p"]["max"] == pytest.approx(0.1, rel=1e-12)
    assert table["delta_p"]["min"] == pytest.approx(-0.1, rel=1e-12)
    assert table["delta_p_rms"]["value"] == pytest.approx(0.1, rel=1e-12)
    again, _ = compared(tmp_path, a, b, {"tokens": torch.tensor([0, 1])})
    assert (again["perplexity"], again["delta_p_of"]) == (None, "best token of A")


def test_same_top_has_the_standard_error_of_a_rate(tmp_path):
    a = torch.eye(4)[[0, 1, 2, 3]] * 9
    b = torch.eye(4)[[0, 1, 2, 0]] * 9
    assert compared(tmp_path, a, b)[0]["table"]["same_top"] == {
        "value": 0.75,
        "standard_error": pytest.approx(math.sqrt(0.75 * 0.25 / 3), rel=1e-12),
    }


def test_batches_and_ranges_do_not_change_positions(tmp_path):
    a, b = drawn(5, 2, 6, 20), drawn(6, 2, 6, 20)
    whole, result = compared(tmp_path, a, b)
    pieces, again = compared(tmp_path, a, b, batch=5)
    assert pieces == whole
    part, some = compared(tmp_path, a, b, positions=(3, 8))
    assert part["positions"] == 5
    assert list(comparison_records(some)) == list(comparison_records(result))[3:8]
    assert again.columns["position"] == list(range(12))


def test_memory_does_not_grow_with_the_positions(tmp_path):
    peaks = []
    for count in (64, 512):
        a = saved(tmp_path, "a", drawn(1, count, 2048, dtype=torch.float16))
        b = saved(tmp_path, "b", drawn(2, count, 2048, dtype=torch.float16))
        compare_dumps(a, b, batch=4)  # what is compiled or imported on the way does not count
        tracemalloc.start()
        compare_dumps(a, b, batch=4)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # 17 columns of a Python number (32 bytes and a pointer, 56 with room to grow) at 448 more positions.
    assert peaks[1] - peaks[0] < 448 * 17 * 56 + 2**16


# Other formats


def test_shards_npz_and_safetensors_give_the_numbers_of_the_file(tmp_path):
    a, b = drawn(1, 9, 30), drawn(1, 9, 30) + 0.1 * drawn(2, 9, 30)
    tokens = torch.arange(10)
    other = saved(tmp_path, "other", b, tokens=tokens)
    whole = {"target_logits": a, "tokens": tokens}
    one = saved(tmp_path, "one", a, tokens=tokens)
    (shards := tmp_path / "shards").mkdir()
    for i, (start, stop) in enumerate(((0, 4), (4, 5), (5, 9))):
        saved(shards, f"s{i}", a[start:stop], tokens=tokens[start : stop + 1], start=start)
    steps = saved(tmp_path, "steps", list(a), tokens=tokens)
    chunks = tmp_path / "chunks.pt"
    torch.save([{"target_logits": a[i : i + 3], "tokens": tokens[i : i + 4]} for i in (0, 3, 6)], chunks)
    npz, tensors = saved_npz(tmp_path / "x.npz", whole), saved_safetensors(tmp_path / "x.safetensors", whole)
    expected = compare_report(compare_dumps(one, other), 5)
    assert expected["results"][0]["delta_p_of"] == "next token"
    assert (expected["a"]["step"], expected["a"]["floor"]) == (None, None)
    for path in (shards, shards / "s*.pt", steps, chunks, npz, tensors):
        found = compare_report(compare_dumps(path, other), 5)
        assert found == expected | {"a": expected["a"] | {"path": str(path)}}, path
    saved(shards, "s2", a[5:9], tokens=tokens[5:10] + 1 - (torch.arange(5) == 0).long(), start=5)
    with pytest.raises(InputError, match="tokens differs first at index 6"):
        compare_dumps(shards, other)


def base_file(path, rows, tokens=None):
    """Rows ``[N, V]`` as the one chunk of a base file of llama.cpp: its positions N + 1 to 2 N."""
    n, vocab = rows.shape
    logits = np.zeros((1, 2 * n + 2, vocab), np.float32)
    logits[0, n + 1 : 2 * n + 1] = rows
    return saved_llamacpp(path, logits, np.zeros((1, 2 * n + 2), int) if tokens is None else tokens)


def test_a_base_file_of_llamacpp_is_known_to_its_step(tmp_path):
    rows = drawn(4, 6, 50)
    tokens = np.arange(14)[None]
    a = base_file(tmp_path / "a.kld", rows.numpy(), tokens)
    b = saved(tmp_path, "b", rows, tokens=torch.from_numpy(tokens))
    report = compare_report(compare_dumps(a, b), 5)
    row, side = report["results"][0], report["a"]
    assert (side["dtype"], side["positions"], side["vocab"]) == ("uint16", 6, 50)
    assert 0 < side["step"] <= 16 / 65535 * (1 + 1e-6)
    assert side["floor"] < -16
    assert (report["b"]["step"], report["b"]["floor"]) == (None, None)
    assert (row["precision"], row["delta_p_of"], row["flips"]) == ("float32", "next token", 0)
    nll = -torch.log_softmax(rows.double(), -1)[range(6), range(8, 14)].mean()
    assert row["perplexity"]["b"]["value"] == pytest.approx(math.exp(nll), rel=1e-9)
    assert row["tv_max"] <= math.tanh(side["step"] / 4) + 1e-6  # half a step, and what was cut off
    with pytest.raises(InputError, match="tokens differs first at index \\[0, 13\\]"):
        compare_dumps(a, saved(tmp_path, "c", rows, tokens=torch.tensor([[*range(13), 0]])))


@pytest.mark.parametrize(
    ("gap", "status"), [(0, "near-tie"), (0.9, "near-tie"), (1, "near-tie"), (2, "flip"), (9, "flip")]
)
def test_a_flip_within_the_step_is_a_near_tie(tmp_path, gap, status):
    """Half a step moves either of two tokens: levels that are neighbours may have been the same."""
    step = 16 / 65535
    low = np.float32(10 - gap * step)
    a = base_file(tmp_path / "a.kld", np.asarray([[10, low, -6, 1]] * 2, np.float32))
    b = base_file(tmp_path / "b.kld", np.asarray([[low, 10, -6, 1]] * 2, np.float32))
    result = compare_dumps(a, b)
    assert result.columns["status"] == [status] * 2
    assert result.a.step == pytest.approx(step, rel=1e-6)
    assert step < result.columns["ulp"][0] < 1.05 * step
    # An exact side has no step of its own, but the other's decides.
    exact = saved(tmp_path, "c", torch.tensor([[float(low), 10, -6, 1]] * 2, dtype=torch.float64))
    assert compare_dumps(a, exact).columns["status"] == [status] * 2


def test_quantised_rows_are_not_taken_for_a_coarser_type(tmp_path):
    """A constant row is a bfloat16 number in every place, and is not known the less for it."""
    flat = base_file(tmp_path / "a.kld", np.zeros((3, 64), np.float32))
    report = compare_report(compare_dumps(flat, flat), 5)
    assert (report["results"][0]["precision"], report["a"]["step"]) == ("float32", 0)
    assert report["a"]["floor"] == "-inf"


# Errors


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ({"tokens": [0, 1, 2]}, {"tokens": [0, 1, 3]}, "tokens differs first at index 2: 2 in"),
        ({"context_tokens": [4, 1]}, {"context_tokens": [5, 1]}, "context_tokens differs first at index 0"),
        ({"tokens": [[0, 1], [2, 3]]}, {"tokens": [[0, 1], [9, 3]]}, "first at index [1, 0]"),
        ({"tokens": [0, 1, 2]}, {"tokens": [0, 1]}, "tokens is [3]"),
        ({"tokens": [0.5]}, {"tokens": [1]}, "must be integer token ids"),
        ({"tokens": [[1], [2, 3]]}, {"tokens": [1]}, "must be integer token ids"),
        ({"tokens": [0, 9, 1]}, {"tokens": [0, 9, 1]}, "tokens[1] is 9, outside 0..3"),
    ],
)
def test_other_prefixes_are_refused(tmp_path, a, b, words):
    with pytest.raises(InputError) as caught:
        compared(tmp_path, drawn(0, 2, 4), drawn(0, 2, 4), a, b)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (drawn(0, 2, 4), drawn(0, 3, 4), "[2, 4] but"),
        (drawn(0, 2, 4), drawn(0, 2, 5), "has vocabulary 4 but"),
        (drawn(0, 2, 4), drawn(0, 8), "compare dumps of the same positions and vocabulary"),
        (drawn(0, 2, 4), torch.full((2, 4), math.nan), "NaN at position 0"),
        (drawn(0, 2, 4), torch.tensor([[0.5, 0.5, 0, 0]] * 2), "look like probabilities"),
        (drawn(0, 2, 4), torch.zeros(2, 4, dtype=torch.int32), "integers are not logits"),
    ],
)
def test_dumps_that_cannot_be_compared(tmp_path, a, b, words):
    with pytest.raises(InputError) as caught:
        compared(tmp_path, a, b)
    assert words in str(caught.value)
    assert "b.pt" in str(caught.value)


def test_options_outside_their_range(tmp_path):
    a = drawn(0, 2, 4)
    with pytest.raises(InputError, match="flips do not depend on it"):
        compared(tmp_path, a, a, temperature=0.0)
    with pytest.raises(InputError, match="outside the dumps"):
        compared(tmp_path, a, a, positions=(1, 3))


def test_rounds_and_missing_keys_are_named(tmp_path):
    path = tmp_path / "a.pt"
    for content, words in (({"rounds": []}, "is a rounds dump"), ({"x": 1}, "has no target_logits")):
        torch.save(content, path)
        with pytest.raises(InputError) as caught:
            compare_dumps(path, path)
        assert words in str(caught.value)
