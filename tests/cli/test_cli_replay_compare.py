"""`replay` and `compare` as commands: reports, exit statuses, and one-line errors."""

from __future__ import annotations

import csv
import io
import struct

import numpy as np
import pytest
import torch
from cli_helpers import EXAMPLE, assert_one_line, assert_refused, drawn, lines_of, logs, strict_json

P, Q = (0.5, 0.3, 0.2), (0.6, 0.3, 0.1)


def entry(token, accepted, u, **others):
    base = {"draft_tokens": torch.tensor([token]), "accepted": accepted, "draft_logits": logs(Q),
            "target_logits": logs(P, P)}  # fmt: skip
    return base | ({} if u is None else {"u": torch.tensor([u])}) | others


def rounds(path, *entries, **others):
    torch.save({"rounds": list(entries)} | others, path)
    return path


@pytest.fixture
def right(tmp_path):
    return rounds(tmp_path / "right.pt", entry(0, 1, 0.5, next_token=2), entry(0, 0, 0.9, next_token=2))


@pytest.fixture
def wrong(tmp_path):
    return rounds(tmp_path / "wrong.pt", entry(2, 1, 0.5), entry(0, 1, 0.9, next_token=0))


def target(path, logits, **others):
    torch.save({"target_logits": logits} | others, path)
    return path


# replay


def test_replay_reports_agreement(cli, right):
    done = cli("replay", "--logits", right, "--json", "-")
    report = done.json
    assert done.status == 0
    assert (report["schema"], report["command"]) == (1, "replay")
    (row,) = report["results"]
    assert (row["rule"], row["temperature"], row["candidates"]) == ("speculative", 1.0, 1)
    assert (row["rounds"], row["decisions"], row["agree"], row["near_ties"]) == (2, 2, 2, 0)
    assert row["first_divergence"] is None
    assert (row["next_tokens"], row["next_tokens_possible"]) == (2, 2)
    assert row["statistics"] == {"alpha": 1e-6, "tests": 6, "verdict": "not-rejected"}
    assert "2 of 2 agree" in done.err
    assert "proves nothing exact" in done.err


def test_replay_tells_the_first_divergence(cli, wrong, tmp_path):
    done = cli("replay", "--logits", wrong, "--json", "-", "--csv", tmp_path / "checks.csv")
    (row,) = done.json["results"]
    first = row["first_divergence"]
    assert (row["decisions"], row["agree"], row["divergences"]) == (2, 1, 1)
    assert first | {"p": 0, "q": 0, "ratio": 0, "margin": 0, "allowance": 0, "u": 0} == {
        "path": str(wrong), "round": 1, "index": 0, "kind": "acceptance", "token": 0, "p": 0, "q": 0,
        "ratio": 0, "u": 0, "logged": "accepted", "recomputed": "rejected", "margin": 0, "allowance": 0,
        "status": "divergence", "node": None,
    }  # fmt: skip
    assert first["margin"] == pytest.approx(0.9 - 5 / 6, rel=1e-6)
    assert "round 1, index 0, token 0: p = 0.5, q = 0.6, p/q = 0.833333, u = 0.9" in done.err
    records = lines_of((tmp_path / "checks.csv").read_text())
    assert [r["status"] for r in records] == ["agree", "divergence", "agree"]
    assert [r["kind"] for r in records] == ["acceptance", "acceptance", "bonus"]


def test_replay_demand(cli, right, wrong):
    assert cli("replay", "--logits", right, "--require-agreement").status == 0
    assert cli("replay", "--logits", right, wrong, "--require-agreement").status == 1
    assert cli("replay", "--logits", wrong).status == 0
    assert cli("replay", "--logits", wrong, "--no-uniforms", "--require-agreement").status == 0


def test_rejected_rates_do_not_meet_the_demand(cli, tmp_path):
    drafts = np.random.default_rng(0).choice(3, size=300, p=np.divide(Q, sum(Q))).tolist()
    path = rounds(tmp_path / "many.pt", *[entry(token, 1, None) for token in drafts])
    done = cli("replay", "--logits", path, "--require-agreement")
    assert done.status == 1
    assert "rejected at alpha 1e-06" in done.out
    assert "not replayed" in done.out
    assert cli("replay", "--logits", path, "--require-agreement", "--alpha", "1e-20").status == 0


def test_replay_of_several_rules_and_samplings(cli, wrong):
    done = cli("replay", "--logits", wrong, "--rule", "speculative", "--rule", "resispec", "--json", "-",
               "--temperature", 0.5, "--top-k", 2, "--input", "logits")  # fmt: skip
    assert [(r["rule"], r["temperature"]) for r in done.json["results"]] == [
        ("speculative", 0.5),
        ("resispec", 0.5),
    ]
    assert [r["undraftable_tokens"] for r in done.json["results"]] == [1, 1]
    assert "drawn from something else" in done.err


def test_one_bad_file_among_rounds(cli, wrong, tmp_path):
    flat = target(tmp_path / "flat.pt", drawn(2, 3), draft_logits=drawn(2, 3))
    done = cli("replay", "--logits", flat, wrong, wrong, "--json", "-", "--require-agreement")
    assert done.status == 2
    assert len(done.json["results"]) == 1
    errors = [line for line in done.err.splitlines() if line.startswith("resispec-verify: error")]
    assert len(errors) == 2
    assert "flat.pt: is a flat dump, and one of rounds" in errors[0]
    assert "given twice" in errors[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to replay"),
        (("--alpha", "0"), "--alpha must be in (0, 1)"),
        (("--temperature", "-1"), "--temperature must be"),
        (("--top-k", "0"), "--top-k must be"),
        (("--top-p", "2"), "--top-p must be"),
        (("--min-p", "2"), "--min-p must be"),
        (("--rule", "speculativ"), "did you mean 'speculative'"),
        (("--rule", "medusa"), "of the rules for paths only block"),
        (("--rule", "spechub"), "several candidates of one position at once"),
        (("--eos", "-1"), "--eos must be a token id"),
        (("--eos", "x"), "--eos must be a whole number"),
        (("--json", "/nowhere/x.json"), "does not exist"),
        (("--wrong",), "replay --help"),
    ],
)
def test_replay_refuses(cli, right, arguments, words):
    given = (*arguments, "--logits", right) if arguments else ()
    assert_refused(cli("replay", *given), words)


def test_damaged_rounds_are_one_line(cli, right, tmp_path):
    cut = tmp_path / "cut.pt"
    cut.write_bytes(right.read_bytes()[:-1])
    assert_refused(cli("replay", "--logits", cut), "cut.pt")
    assert_refused(cli("replay", "--logits", rounds(tmp_path / "r.pt", entry(9, 0, 0.5))), "round 0", "9")


def test_replay_fits_a_narrow_terminal(cli, right):
    """Only the lines that carry names and numbers of any length may be longer than 80 columns."""
    lines = cli("replay", "--logits", right).out.splitlines()
    assert max(len(line) for line in lines if str(right) not in line) < 100
    assert all(len(line) < 80 for line in lines if line[:10].strip() in ("0", "position"))


def test_a_bonus_that_is_always_the_same_token_does_not_meet_the_demand(cli, tmp_path):
    """100 rounds with p = q = (1/2, 1/2), all accepted, bonus always 0: every token is possible."""
    half = logs((0.5, 0.5))
    level = {"draft_logits": half, "target_logits": torch.cat([half, half]), "accepted": 1, "next_token": 0}
    path = rounds(tmp_path / "r.pt", *[level | {"draft_tokens": torch.tensor([i % 2])} for i in range(100)])
    done = cli("replay", "--logits", path, "--require-agreement", "--json", "-")
    (row,) = done.json["results"]
    assert done.status == 1
    assert (row["next_tokens_possible"], row["divergences"], row["acceptance_verdict"]) == (
        100, 0, "not-rejected",
    )  # fmt: skip
    (test,) = row["next_token_tests"]
    assert (test["kind"], test["draws"], test["impossible"], test["verdict"]) == ("bonus", 100, 0, "rejected")
    assert test["p_value"] < 1e-20
    assert test["found_after"] <= 30
    assert test["looks_like"] in ("the most probable token", "tokens by id")
    assert row["statistics"]["verdict"] == "rejected"
    assert "bonus draws: 100, rejected" in done.err
    # Inside one draw in 2^100 there is room for an alpha of 1e-30, not for one of 1e-9.
    assert cli("replay", "--logits", path, "--require-agreement", "--alpha", "1e-9").status == 1
    assert cli("replay", "--logits", path, "--require-agreement", "--alpha", "1e-30").status == 0


def test_replay_guards_against_probabilities(cli, tmp_path):
    """.9 > .5 / .6 was rejected rightly; taken for logits it reads 0 of 1 agree."""
    one = {"draft_tokens": torch.tensor([0]), "accepted": 0, "u": torch.tensor([0.9]), "next_token": 2,
           "draft_logits": torch.tensor([Q]), "target_logits": torch.tensor([P, P])}  # fmt: skip
    path = rounds(tmp_path / "p.pt", one)
    assert_refused(cli("replay", "--logits", path), "look like probabilities", "--input probabilities")
    for kind, agree in (("probabilities", 1), ("logits", 0)):
        done = cli("replay", "--logits", path, "--input", kind, "--json", "-")
        assert (done.status, done.json["results"][0]["agree"]) == (0, agree)
    assert_refused(cli("replay", "--logits", path, "--input", "log-probabilities"), "round 0", "sum to")


def test_replay_of_block_verification(cli, tmp_path):
    """Path 0, 0 of p = (1/2, 1/2), q = (3/4, 1/4): prefixes pass below 1/5 and 4/9."""
    p, q = logs((0.5, 0.5)), logs((0.75, 0.25))
    block = {"draft_tokens": torch.tensor([0, 0]), "draft_logits": torch.cat([q, q]),
             "target_logits": torch.cat([p, p, p])}  # fmt: skip
    path = rounds(tmp_path / "b.pt", block | {"accepted": 2, "u": torch.tensor([0.9, 0.4])},
                  block | {"accepted": 1, "u": torch.tensor([0.1, 0.5])},
                  block | {"accepted": 0, "u": torch.tensor([0.1, 0.5]), "next_token": 1})  # fmt: skip
    done = cli("replay", "--logits", path, "--rule", "block", "--json", "-", "--require-agreement")
    (row,) = done.json["results"]
    assert done.status == 1
    assert (row["rule"], row["decisions"], row["agree"], row["divergences"]) == ("block", 5, 4, 1)
    first = row["first_divergence"]
    assert (first["round"], first["index"], first["logged"], first["recomputed"]) == (
        2, 0, "rejected", "accepted",
    )  # fmt: skip
    assert first["ratio"] == pytest.approx(1 / 5, rel=1e-5)


def test_replay_knows_where_a_text_ends(cli, tmp_path):
    path = rounds(tmp_path / "e.pt", entry(2, 1, 0.1, next_token=0), entry(0, 1, 0.1, next_token=2),
                  output_tokens=torch.tensor([2, 0, 2]))  # fmt: skip
    assert "output_tokens differs" in cli("replay", "--logits", path).out
    done = cli("replay", "--logits", path, "--eos", 2, "--eos", 7)
    assert "output_tokens differs" not in done.out
    assert "tokens: 3, 1.5 a round; the output of 1 rounds was cut" in done.out


# compare


@pytest.fixture
def pair(tmp_path):
    a, b = logs(P, (0.9, 0.05, 0.05)), logs((0.3, 0.5, 0.2), (0.9, 0.05, 0.05))
    return target(tmp_path / "a.pt", a), target(tmp_path / "b.pt", b)


def test_compare_reports(cli, pair, tmp_path):
    done = cli("compare", *pair, "--json", "-", "--csv", tmp_path / "positions.csv")
    assert done.status == 0
    report = done.json
    assert (report["schema"], report["command"]) == (1, "compare")
    assert report["kl_direction"] == "KL(A || B)"
    assert [report[k]["path"] for k in "ab"] == list(map(str, pair))
    (row,) = report["results"]
    assert (row["positions"], row["flips"], row["near_ties"]) == (2, 1, 0)
    assert row["tv_mean"] == pytest.approx(0.1, rel=1e-12)
    assert {"max_abs_logit", "kl_mean", "kl_reverse_mean", "table", "worst"} <= set(row)
    records = lines_of((tmp_path / "positions.csv").read_text())
    assert [r["status"] for r in records] == ["flip", "same"]
    assert float(records[0]["tv"]) == pytest.approx(0.2, rel=1e-12)
    assert "KL(A || B)" in done.err


def test_compare_prints_at_most_80_columns(cli, pair):
    out = cli("compare", *pair).out
    assert max(len(line) for line in out.splitlines() if not line.startswith(("A:", "B:", "  0:"))) < 85
    assert "flips, the clearest first:" in out


def test_compare_demands(cli, pair):
    a, b = pair
    assert cli("compare", a, b, "--max-tv", 0.21, "--json", "-").status == 0
    assert cli("compare", a, b, "--max-tv", 0.19).status == 1
    assert cli("compare", a, b, "--require-same-top").status == 1
    assert cli("compare", a, b, "--require-same-top", "--positions", "1:2").status == 0
    assert cli("compare", a, a, "--max-tv", 0, "--require-same-top").status == 0


def test_a_near_tie_meets_the_demand(cli, tmp_path):
    rows = [torch.tensor([r], dtype=torch.bfloat16) for r in ([23.625, 23.5], [23.5, 23.625])]
    a, b = (target(tmp_path / f"{i}.pt", r) for i, r in enumerate(rows))
    done = cli("compare", a, b, "--require-same-top")
    assert done.status == 0
    assert "near-ties, within one ulp of bfloat16: 1 (1 flipped)" in done.out


@pytest.fixture
def base(tmp_path):
    """A base file of llama.cpp: two chunks of `n_ctx` 6, five tokens."""
    rows = np.random.default_rng(1).normal(size=(2, 6, 5)).astype(np.float32)
    parts = [struct.pack("<8s3i", b"_logits_", 6, 5, 2), np.zeros(12, "<i4").tobytes()]
    for row in rows[:, 3:5].reshape(-1, 5):
        step = (row.max() - row.min()) / np.float32(65535)
        lowest = row.min() - np.log(np.exp(row).sum())
        parts.append(np.asarray([step, lowest], "<f4").tobytes())
        parts.append(np.rint((row - row.min()) / step).clip(0, 65535).astype("<u2").tobytes() + bytes(2))
    path = tmp_path / "base.kld"
    path.write_bytes(b"".join(parts))
    return path


def test_compare_never_calls_a_quantised_target_exact(cli, base):
    done = cli("compare", base, base)
    (line,) = (line for line in done.out.splitlines() if line.startswith("step: "))
    assert "unknown below a step" in line
    assert "floor: A -inf, B -inf" in line
    assert len(line) < 80
    assert "(uint16)" in done.out
    assert "largest logit difference: < " in done.out
    assert "after log-softmax < " in done.out
    assert "99 % / median: < " in done.out
    assert "within one ulp of float32 or one step:" in done.out
    assert not any(word in done.out for word in ("exact", "identical"))
    report = cli("compare", base, base, "--json", "-").json
    assert 0 < report["a"]["step"] == report["b"]["step"] < 16 / 65535
    assert (report["a"]["floor"], report["a"]["dtype"]) == ("-inf", "uint16")


def test_compare_reads_shards_and_does_not_overwrite_them(cli, pair, tmp_path):
    a, b = pair
    folder = tmp_path / "shards"
    folder.mkdir()
    for i, row in enumerate((P, (0.9, 0.05, 0.05))):
        target(folder / f"{i}.pt", logs(row), start=i)
    whole, parts = (cli("compare", x, b, "--json", "-").json for x in (a, folder))
    assert parts["results"] == whole["results"]
    assert parts["a"] == whole["a"] | {"path": str(folder)}
    assert_refused(cli("compare", folder, b, "--json", folder / "1.pt"), "it is the dump that is read")
    assert "step" not in cli("compare", folder, b).out


def test_compare_options(cli, pair):
    row = cli(
        "compare", *pair, "--json", "-", "--tail", 1, "--batch", 1, "--temperature", 2, "--input", "logits"
    ).json["results"][0]
    assert (len(row["worst"]), row["temperature"]) == (1, 2.0)
    assert cli("compare", *pair, "--json", "-", "--tail", 0).json["results"][0]["worst"] == []
    records = list(csv.DictReader(io.StringIO(cli("compare", *pair, "--csv", "-").out)))
    assert len(records) == 2


def test_infinite_values_are_words_and_nan_never_occurs(cli, tmp_path):
    a, b = target(tmp_path / "a.pt", logs((0.5, 0.5))), target(tmp_path / "b.pt", logs((1.0, 0.0)))
    done = cli("compare", a, b, "--json", "-", "--csv", tmp_path / "c.csv")
    row = strict_json(done.out)["results"][0]
    assert (row["kl_mean"], row["max_abs_logit"], row["support_differs"]) == ("inf", "inf", 1)
    assert "nan" not in (done.err + (tmp_path / "c.csv").read_text()).lower()


def test_the_example_against_itself(cli):
    row = cli("compare", EXAMPLE, EXAMPLE, "--json", "-").json["results"][0]
    assert (row["positions"], row["kl_max"], row["tv_max"], row["flips"]) == (8, 0, 0, 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--max-tv", "2"), "--max-tv must be in [0, 1]"),
        (("--tail", "-1"), "--tail must not be negative"),
        (("--temperature", "0"), "--temperature must be above 0"),
        (("--temperature", "-1"), "--temperature must be"),
        (("--positions", "0:9"), "0:9 are outside"),
        (("--positions", "x"), "--positions must be a range"),
        (("--batch", "0"), "--batch must be at least 1"),
    ],
)
def test_compare_refuses(cli, pair, arguments, words):
    assert_refused(cli("compare", *pair, *arguments), words)


def test_compare_refuses_other_prefixes_and_bad_files(cli, pair, tmp_path):
    a, _ = pair
    x = target(tmp_path / "x.pt", drawn(2, 3), tokens=torch.tensor([0, 1, 2]))
    y = target(tmp_path / "y.pt", drawn(2, 3), tokens=torch.tensor([0, 1, 0]))
    assert_refused(cli("compare", x, y), "tokens differs first at index 2", "x.pt", "y.pt")
    assert_refused(
        cli("compare", a, target(tmp_path / "z.pt", drawn(2, 4))), "has vocabulary 3", "has 4", "--pad-vocab"
    )
    assert_refused(cli("compare", a, tmp_path / "none.pt"), "no such file")
    assert_refused(cli("compare", a, y, "--json", a), "it is the dump that is read")
    alone = cli("compare", a)
    assert alone.status == 2
    assert_one_line(alone.err, "compare --help")


@pytest.mark.parametrize("output", [[2, 1, 2], [2, 2, 2, 2], [2, 2]])
def test_an_output_that_the_rounds_did_not_emit_does_not_meet_the_demand(cli, tmp_path, output):
    both = (entry(0, 0, 0.9, next_token=2), entry(0, 0, 0.95, next_token=2), entry(0, 0, 0.85, next_token=2))
    right = rounds(tmp_path / "r.pt", *both, output_tokens=torch.tensor([2, 2, 2]))
    assert cli("replay", "--logits", right, "--require-agreement").status == 0
    path = rounds(tmp_path / "w.pt", *both, output_tokens=torch.tensor(output))
    done = cli("replay", "--logits", path, "--require-agreement", "--json", "-")
    (row,) = done.json["results"]
    assert (done.status, row["divergences"], row["statistics"]["verdict"]) == (1, 0, "not-rejected")
    assert row["output_differs_at"] == next(i for i in range(4) if output[i : i + 1] != [2, 2, 2][i : i + 1])
    assert cli("replay", "--logits", path).status == 0


def test_coins_of_earlier_rounds_do_not_meet_the_demand(cli, tmp_path):
    """Each of two coins in float32 comes with 2^-23 at most: one repeat among 2 rounds with 2^-46."""
    pair = {"draft_tokens": torch.tensor([0, 2]), "draft_logits": logs(Q, Q), "target_logits": logs(P, P, P),
            "accepted": 1, "next_token": 2}  # fmt: skip
    coins = torch.rand(2, 2, generator=torch.Generator().manual_seed(1)) * 0.8
    for again, status in ((0, 1), (1, 0)):
        first, second = ({"u": torch.stack([coins[i, 0], torch.tensor(0.25)])} for i in (0, again))
        more = {"draft_tokens": torch.tensor([0, 1]), "draft_logits": logs(Q, (0.1, 0.8, 0.1))}
        path = rounds(tmp_path / "u.pt", *(pair | more | {"target_logits": logs(P, (0.8, 0.1, 0.1), P),
                      "next_token": 0} | one for one in (first, second)))  # fmt: skip
        done = cli("replay", "--logits", path, "--require-agreement", "--json", "-")
        (row,) = done.json["results"]
        assert (done.status, row["divergences"], row["repeated_uniforms"]) == (status, 0, 1 - again)
        assert row["repeated_uniforms_p_value"] == pytest.approx(2.0**-46 if status else 1.0, rel=1e-12)
        assert cli("replay", "--logits", path, "--require-agreement", "--no-uniforms").status == 0
