"""Small dumps with known answers, and the corners that must work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from cli_helpers import INF, check_report, command, drawn, lines_of, logs, number, row, save, strict_json
from rich.console import Console

from resispec_verify import oracle
from resispec_verify.cli import main

BASE = logs((0.5, 0.3, 0.2)), logs((0.6, 0.3, 0.1))
HAND = ("kl", "--target", "0.3,0.4,0.3", "--draft", "0.6,0.3,0.1")


def report_of(cli, path: Path, *options: object) -> dict:
    result = cli("kl", "--logits", path, *options, "--json", "-")
    assert result.status == 0, result.err
    check_report(result.json)
    return result.json


def test_worked_values_by_hand(cli):
    report = cli(*HAND, "--candidates", "1", "--json", "-").json
    check_report(report)
    resispec = row(report, "resispec")
    assert resispec["kl_mean"] == pytest.approx(0.0224653659087, abs=1e-12)
    assert resispec["acceptance"] == pytest.approx([0.7], abs=1e-12)
    assert resispec["limit_mean"] == pytest.approx(0.7, abs=1e-12)
    assert resispec["verdict"] == "inexact"
    specinfer = row(report, "specinfer")
    assert specinfer["verdict"] == "exact"
    assert specinfer["kl_mean"] < 1e-15


def test_by_hand_and_from_a_dump_agree(cli, tmp_path):
    by_hand = cli(*HAND, "--json", "-").json
    path = save(tmp_path / "dump.pt", logs((0.3, 0.4, 0.3)), logs((0.6, 0.3, 0.1)))
    for found, other in zip(report_of(cli, path)["results"], by_hand["results"], strict=True):
        for key in ("kl_mean", "tv_mean", "limit_mean", "gap_max"):
            assert found[key] == pytest.approx(other[key], abs=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_probabilities(cli, tmp_path, dtype):
    p = torch.tensor([[0.3, 0.4, 0.3, 0.0]], dtype=dtype)
    q = torch.tensor([[0.6, 0.3, 0.1, 0.0]], dtype=dtype)
    report = report_of(cli, save(tmp_path / "dump.pt", p, q), "--input", "probabilities", "--candidates", 1)
    tolerance = 1e-3 if dtype == torch.float16 else 1e-6
    assert row(report, "resispec")["kl_mean"] == pytest.approx(0.0224653659087, abs=tolerance)
    logarithms = save(tmp_path / "logs.pt", p.double().log(), q.double().log())
    report = report_of(cli, logarithms, "--input", "log-probabilities", "--candidates", 1)
    assert row(report, "resispec")["kl_mean"] == pytest.approx(0.0224653659087, abs=tolerance)


def test_candidates_drawn_from_another_distribution(cli, tmp_path):
    """transformers#47932: drawn from the top 2 of q, verified against raw q."""
    path = save(tmp_path / "dump.pt", logs((0.5, 0.3, 0.2, 0)), logs((0.4, 0.3, 0.2, 0.1)))
    wrong = row(report_of(cli, path, "--rule", "speculative", "--proposal-top-k", 2), "speculative")
    assert wrong["verdict"] == "inexact"
    assert wrong["tv_mean"] == pytest.approx(0.2, abs=1e-12)
    assert wrong["limit_mean"] == pytest.approx(0.8, abs=1e-12)
    assert wrong["never_emitted"]["tokens"] == [2]
    for options in ((), ("--top-k", 2)):
        right = row(report_of(cli, path, "--rule", "speculative", *options), "speculative")
        assert (right["verdict"], right["candidates"]) == ("exact", 1)


@pytest.mark.parametrize("rule", ["speculative", "specinfer", "resispec"])
def test_candidates_drawn_greedily(cli, tmp_path, rule):
    """transformers#32867: the drafter is greedy and the rule divides by the softmax; by option or by key."""
    path = save(tmp_path / "dump.pt", *BASE)
    keyed = save(tmp_path / "keyed.pt", *BASE, proposal_logits=logs((1, 0, 0)))
    for found, options in ((path, ["--proposal-temperature", 0]), (keyed, [])):
        result = row(report_of(cli, found, "--rule", rule, "--candidates", 1, *options), rule)
        assert result["tv_mean"] == pytest.approx(1 / 3, abs=1e-12)
        assert result["verdict"] == "inexact"


@pytest.mark.parametrize(
    "options",
    [
        ("--redistribution", "water-filling"),
        ("--budget", "floor"),
        ("--hole", "literal"),
        ("--proposal-top-k", "2"),
        ("--proposal-top-p", "0.5"),
        ("--proposal-temperature", "2"),
        ("--hole", "literal", "--backend", "torch"),
        ("--hole", "literal", "--precision", "float32"),
    ],
)
def test_every_option_of_a_rule_gives_a_report(cli, dump, options, tmp_path):
    plain = row(report_of(cli, dump, "--gap", 0), "resispec")
    report = report_of(cli, dump, "--gap", 0, *options)
    assert row(report, "resispec")["tv_mean"] != plain["tv_mean"]
    assert cli("kl", "--logits", dump, *options, "--csv", tmp_path / "x.csv").status == 0
    assert len(lines_of((tmp_path / "x.csv").read_text())) == 20


def law(values: list[int]) -> list[Fraction]:
    return [Fraction(value, sum(values)) for value in values]


P, Q = law([1, 2, 3, 4]), law([4, 3, 2, 1])


def test_until_verdict_shows_bounds(cli, dump):
    alone = ("--rule", "resispec", "--marginal", "operational")
    result = report_of(cli, dump, *alone, "--until", "verdict")["results"][0]
    whole = report_of(cli, dump, *alone, "--gap", 0)["results"][0]
    assert result["until"] == "verdict"
    assert "until" not in whole
    assert result["verdict"] == whole["verdict"]
    assert result["tv_mean_bounds"][0] <= whole["tv_mean"] <= result["tv_mean_bounds"][1]
    assert result["positions_over_budget"] == 0
    out = cli("kl", dump, *alone, "--until", "verdict").out
    assert "certified bounds" in out
    assert "TV max" not in out
    refused = cli("kl", dump, "--until", "verdict", "--gap", 0.1)
    assert refused.status == 2
    assert "--until" in refused.err


@pytest.mark.parametrize("options", [(), ("--gap", 0), ("--gap", 0.5), ("--max-expansions", 1)])
@pytest.mark.parametrize("candidates", [1, 2, 3])
def test_certified_bounds_contain_the_truth(cli, tmp_path, candidates, options):
    path = save(tmp_path / "dump.pt", logs(tuple(map(float, P))), logs(tuple(map(float, Q))))
    truth = oracle.marginal("resispec", P, Q, candidates).law
    tv = float(oracle.total_variation(truth, P))
    result = row(report_of(cli, path, "--rule", "resispec", "--candidates", candidates, *options), "resispec")
    low, high = result["tv_mean_bounds"]
    assert low - 1e-12 <= tv <= high + 1e-12
    assert result["gap_max"] <= (0 if options == ("--gap", 0) else 1)
    if options == ("--gap", 0):
        assert result["tv_mean"] == pytest.approx(tv, abs=1e-12)
    assert result["verdict"] in ("inexact", "undecided")
    assert result["verdict"] == "inexact" or low < 1e-12


def test_an_exhausted_budget_is_said_in_words(cli, dump):
    result = cli("kl", "--logits", dump, "--max-expansions", 1)
    assert result.status == 0
    assert "--max-expansions" in result.out
    assert "certified" in result.out
    report = report_of(cli, dump, "--max-expansions", 1)
    assert row(report, "resispec")["positions_over_budget"] > 0
    assert row(report, "specinfer")["verdict"] == "exact"


def test_undecided_counts_as_not_exact(cli, tmp_path):
    path = save(tmp_path / "dump.pt", logs((0.5, 0.5, 0, 0)), logs((0, 0, 0.5, 0.5)))
    report = report_of(cli, path, "--gap", 1)
    assert row(report, "resispec")["verdict"] == "undecided"
    assert row(report, "resispec")["tv_mean_bounds"] == [0, 1]
    assert cli("kl", "--logits", path, "--gap", 1, "--require-exact").status == 1
    assert cli("kl", "--logits", path, "--gap", 0, "--require-exact").status == 0


@pytest.mark.parametrize("options", [(), ("--precision", "float32"), ("--gap", 0), ("--temperature", 0.5)])
def test_means_lie_in_their_bounds(cli, dump, options):
    for r in report_of(cli, dump, *options)["results"]:
        for name in ("kl", "tv"):
            low, high = (number(value, infinite=True) for value in r[f"{name}_mean_bounds"])
            assert low <= number(r[f"{name}_mean"], infinite=True) <= high, (r["rule"], r["marginal"], name)


ONE_HOT = torch.eye(4) * 1e4
EDGES = {
    "V = 1": (drawn(3, 1), drawn(3, 1, seed=1), "exact"),
    "N = 1": (drawn(1, 5), drawn(1, 5, seed=1), "inexact"),
    "p = q": (drawn(3, 5), drawn(3, 5), "exact"),
    "one-hot": (ONE_HOT, ONE_HOT.flip(0), "exact"),
    "one-hot and equal": (ONE_HOT, ONE_HOT, "exact"),
    "disjoint": (logs((0.5, 0.5, 0, 0)), logs((0, 0, 0.5, 0.5)), "exact"),
    "zeros": (logs((0.5, 0.3, 0.2, 0)), logs((0, 0.6, 0.3, 0.1)), "inexact"),
    "uniform": (torch.zeros(2, 4), torch.zeros(2, 4), "exact"),
    "huge logits": (drawn(2, 5) * 1e30, drawn(2, 5) * 1e30, "exact"),
    "one row": (drawn(5), drawn(5, seed=1), "inexact"),
    "[B, T, V]": (drawn(2, 3, 5), drawn(2, 3, 5, seed=1), "inexact"),
    "bfloat16": (drawn(3, 5).bfloat16(), drawn(3, 5, seed=1).bfloat16(), "inexact"),
    "float64": (drawn(3, 5).double(), drawn(3, 5, seed=1).double(), "inexact"),
    "mixed": (drawn(3, 5).half(), drawn(3, 5, seed=1), "inexact"),
    "float16 with -inf": (logs((0.5, 0.3, 0.2, 0)).half(), logs((0.2, 0.3, 0.5, 0)).half(), "inexact"),
}


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", EDGES)
def test_edges(cli, tmp_path, name, backend):
    target, draft, verdict = EDGES[name]
    path = save(tmp_path / "dump.pt", target, draft)
    report = report_of(cli, path, "--backend", backend)
    assert row(report, "specinfer")["verdict"] == "exact"
    assert row(report, "resispec")["verdict"] == verdict
    positions = target.numel() // target.shape[-1]
    assert report["dump"]["positions"] == row(report, "specinfer")["positions"] == positions
    assert report["dump"]["vocab"] == target.shape[-1]


def test_identical_logits_are_at_distance_zero(cli, tmp_path):
    for r in report_of(cli, save(tmp_path / "dump.pt", drawn(3, 50)))["results"]:
        assert r["kl_max"] == 0 or r["marginal"] == "path-identity"
        assert number(r["tv_max"]) < 1e-15
        assert r["acceptance"] is None or r["acceptance"][0] == pytest.approx(1)


def test_infinite_divergence_is_a_string(cli, tmp_path):
    """Drawn where the target is 0 and accepted there: the rule divides by a draft that is 0 too."""
    path = save(
        tmp_path / "dump.pt",
        logs((0.5, 0.5, 0), (0.5, 0.3, 0.2)),
        logs((0.5, 0.5, 0), (0.6, 0.3, 0.1)),
        proposal_logits=logs((0.4, 0.4, 0.2), (0.6, 0.3, 0.1)),
    )
    result = cli("kl", "--logits", path, "--rule", "speculative", "--json", "-")
    assert result.status == 0
    check_report(result.json)
    found = row(result.json, "speculative")
    if found["support_violation"] is not None:
        assert found["kl_mean"] == found["kl_max"] == "inf"
        assert number(found["kl_max"], infinite=True) == INF


@pytest.mark.parametrize(("temperature", "verdict"), [("0", "exact"), ("1e-6", "exact"), ("1e-320", "exact")])
def test_temperatures_towards_zero(cli, dump, temperature, verdict):
    report = report_of(cli, dump, "--temperature", temperature)
    assert {r["temperature"] for r in report["results"]} == {float(temperature)}
    for name in ("resispec", "specinfer"):
        assert row(report, name)["verdict"] == verdict
        assert row(report, name)["tv_max"] < 1e-15


def test_ties_at_temperature_zero_go_to_the_first(cli, tmp_path):
    path = save(tmp_path / "dump.pt", torch.tensor([[23.5, 23.5, 0.0]]), torch.tensor([[23.5, 23.0, 0.0]]))
    report = report_of(cli, path, "--temperature", 0)
    assert row(report, "specinfer")["acceptance"] == [1, 0, 0]


def test_temperatures_repeat(cli, dump):
    report = report_of(cli, dump, "--temperature", 1, "--temperature", 0.5, "--temperature", 1.0)
    assert [r["temperature"] for r in report["results"]] == [1.0] * 4 + [0.5] * 4
    alone = report_of(cli, dump, "--temperature", 0.5)
    for r in alone["results"]:
        other = row(report, r["rule"], r["marginal"], temperature=0.5)
        assert {**other, "expansions": 0} == {**r, "expansions": 0}


def test_rules_repeat_once(cli, dump):
    report = report_of(cli, dump, "--rule", "specinfer", "--rule", "speculative", "--rule", "specinfer")
    assert [r["rule"] for r in report["results"]] == ["specinfer"] * 2 + ["speculative"] * 2
    assert row(report, "speculative")["candidates"] == 1


@pytest.mark.parametrize(("marginal", "kinds"), [("operational", 1), ("path-identity", 1), ("both", 2)])
def test_marginals(cli, dump, marginal, kinds):
    found = {r["marginal"] for r in report_of(cli, dump, "--marginal", marginal)["results"]}
    assert found == ({marginal} if kinds == 1 else {"operational", "path-identity"})


def test_more_candidates_than_tokens(cli, tmp_path):
    path = save(tmp_path / "dump.pt", drawn(2, 3), drawn(2, 3, seed=1))
    report = report_of(cli, path, "--candidates", 7)
    assert row(report, "specinfer")["verdict"] == "exact"
    assert row(report, "resispec")["gap_max"] <= 1e-3
    report = report_of(cli, path, "--rule", "specinfer", "--candidates", 200)
    assert row(report, "specinfer")["verdict"] == "exact"


def test_the_whole_of_many_candidates(cli):
    report = cli(*HAND, "--rule", "resispec", "--candidates", 50, "--json", "-").json
    check_report(report)
    assert row(report, "resispec")["verdict"] == "inexact"


def test_files_are_pooled(cli, tmp_path):
    parts = [save(tmp_path / f"{i}.pt", drawn(i + 1, 6, seed=i), drawn(i + 1, 6, seed=9)) for i in range(2)]
    one, two = (report_of(cli, path) for path in parts)
    result = cli("kl", "--logits", *parts, "--json", "-")
    check_report(result.json)
    assert result.json["dump"]["paths"] == [str(path) for path in parts]
    assert result.json["dump"]["positions"] == 3
    for r in result.json["results"]:
        a, b = (row(report, r["rule"], r["marginal"]) for report in (one, two))
        assert r["positions"] == 3
        assert r["kl_mean"] == pytest.approx((a["kl_mean"] + 2 * b["kl_mean"]) / 3, abs=1e-15)
        assert r["kl_max"] == max(a["kl_max"], b["kl_max"])
        assert r["gap_max"] == max(a["gap_max"], b["gap_max"])


def test_files_with_a_dataset_stay_apart(cli, tmp_path):
    names = ["gsm8k", "code", "gsm8k", None]
    paths = []
    for i, name in enumerate(names):
        others = {} if name is None else {"dataset": name}
        paths.append(save(tmp_path / f"{i}.pt", drawn(2, 6, seed=i), drawn(2, 6, seed=9), **others))
    result = cli("kl", "--logits", *paths, "--json", "-", "--csv", tmp_path / "x.csv")
    check_report(result.json)
    for name, positions in (("gsm8k", 4), ("code", 2), (None, 2)):
        assert row(result.json, "resispec", dataset=name)["positions"] == positions
    assert len(result.json["results"]) == 12
    assert {line["dataset"] for line in lines_of((tmp_path / "x.csv").read_text())} == {"gsm8k", "code", ""}
    assert "gsm8k" in result.err


def test_a_dataset_a_position_is_not_dropped_silently(cli, tmp_path):
    path = save(tmp_path / "dump.pt", drawn(4, 6), drawn(4, 6, seed=1), dataset=["a", "b", "a", "b"])
    result = cli("kl", "--logits", path, "--json", "-")
    if result.status == 2:
        assert "dataset" in result.err
    else:
        assert {r["dataset"] for r in result.json["results"]} == {"a", "b"}


def test_the_sampling_of_a_dump_is_not_ignored_silently(cli, tmp_path):
    meta = {"sampling": {"temperature": 0.5}}
    path = save(tmp_path / "dump.pt", drawn(4, 6), drawn(4, 6, seed=1), meta=meta)
    result = cli("kl", "--logits", path, "--json", "-")
    assert {r["temperature"] for r in result.json["results"]} == {0.5} or "sampling" in result.err


def test_demands(cli, dump):
    def status(rule: str, *options: object) -> int:
        return cli("kl", "--logits", dump, "--rule", rule, *options).status

    assert status("resispec") == 0
    assert status("resispec", "--require-exact") == 1
    assert status("specinfer", "--require-exact") == 0
    assert status("resispec", "--max-tv", 0.001) == 1
    assert status("resispec", "--max-tv", 1) == 0
    assert status("specinfer", "--max-tv", 1e-9) == 0
    assert status("specinfer", "--rule", "resispec", "--require-exact") == 1


def test_max_tv_is_about_every_position(cli, dump):
    found = row(report_of(cli, dump, "--gap", 0), "resispec")
    between = (found["tv_mean"] + found["tv_max"]) / 2
    arguments = ("kl", "--logits", dump, "--rule", "resispec", "--gap", 0, "--max-tv")
    assert cli(*arguments, between).status == 1
    assert cli(*arguments, found["tv_max"] + 1e-9).status == 0


def test_an_exact_rule_meets_the_strictest_demand(cli, dump):
    """A rule that is certified exact has TV 0 up to the rounding of the arithmetic."""
    assert cli("kl", "--logits", dump, "--rule", "specinfer", "--max-tv", 0).status == 0


def test_a_demand_does_not_keep_the_report_from_being_written(cli, dump, tmp_path):
    path = tmp_path / "report.json"
    assert cli("kl", "--logits", dump, "--require-exact", "--json", path).status == 1
    check_report(strict_json(path.read_text()))


def test_candidate_lists(cli, dump, tmp_path):
    pair = drawn(5, 6, seed=1), drawn(5, 6, seed=2)
    logged = save(tmp_path / "logged.pt", *pair, candidates=torch.ones(5, 3).int())
    for path, options in ((dump, ("--candidate-list", "5,0,5,2")), (logged, ()), (dump, ("--seed", 7))):
        identity = row(report_of(cli, path, *options), "resispec", "path-identity")
        assert identity["tv_max"] < 1e-14


def test_candidates_have_the_leading_axes_of_the_logits(cli, tmp_path):
    batched = drawn(2, 2, 6, seed=1), drawn(2, 2, 6, seed=2)
    path = save(tmp_path / "batched.pt", *batched, candidates=torch.ones(2, 2, 3).int())
    assert row(report_of(cli, path), "resispec", "path-identity")["positions"] == 4


@pytest.mark.parametrize("option", ["--json", "--csv"])
def test_a_report_on_standard_output_is_alone_there(cli, dump, option):
    result = cli("kl", "--logits", dump, option, "-")
    assert "resispec" in result.err
    if option == "--json":
        check_report(result.json)
    else:
        assert len(lines_of(result.out)) == 20
        assert result.out.startswith("rule,")


def test_both_reports(cli, dump, tmp_path):
    table, report = tmp_path / "ünï 🎲 [x].csv", tmp_path / "with spaces.json"
    result = cli("kl", "--logits", dump, "--csv", table, "--json", report)
    assert result.status == 0
    assert result.err == ""
    check_report(strict_json(report.read_text(encoding="utf-8")))
    assert len(lines_of(table.read_text(encoding="utf-8"))) == 20
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_plots(cli, dump, tmp_path, suffix, magic):
    path = tmp_path / f"plot.{suffix}"
    assert cli("kl", "--logits", dump, "--plot", path).status == 0
    assert path.read_bytes().startswith(magic)


@pytest.mark.parametrize("name", ["[/b].pt", "a[red]b.pt", "ünï 🎲.pt", "[/"])
def test_names_are_not_markup(cli, tmp_path, name):
    """Of files, of keys and of datasets: none of them is ours to choose."""
    path = tmp_path / name / "dump.pt"
    path.parent.mkdir(parents=True)
    save(path, drawn(2, 6), drawn(2, 6, seed=1), dataset=name, **{name: 1})
    other = save(tmp_path / "other.pt", drawn(2, 6), drawn(2, 6, seed=1))
    shown = cli("inspect", path)
    assert shown.status == 0
    assert shown.out.count(name) >= 2
    assert cli("inspect", path, "--json", "-").json["results"][0]["path"] == str(path)
    result = cli("kl", "--logits", path, other)
    assert result.status == 0
    assert name in result.out


def test_names_in_a_dump_cannot_drive_the_terminal(cli, tmp_path):
    escape = "\x1b]0;title\x07\x1b[31m"
    path = save(tmp_path / "dump.pt", drawn(2, 6), drawn(2, 6, seed=1), dataset=escape, **{escape: 1})
    other = save(tmp_path / "other.pt", drawn(2, 6), drawn(2, 6, seed=1))
    for result in (cli("inspect", path), cli("kl", "--logits", path, other)):
        assert result.status == 0
        assert "\x1b" not in result.out
        assert "\x07" not in result.out
    named = save(tmp_path / "a\x1b[31m.pt", drawn(2, 6), drawn(2, 6, seed=1))
    # In cells of the first table, in the title of the second.
    for result in (cli("explore", named, "--check"), cli("explore", named, "--position", "0")):
        assert result.status == 0
        assert r"a\x1b[31m.pt" in result.out
        assert "\x1b" not in result.out


def test_inspect(cli, tmp_path):
    nan = drawn(4, 6).index_put((torch.tensor([2]), torch.tensor([3])), torch.tensor(torch.nan))
    result = cli("inspect", save(tmp_path / "nan.pt", nan, drawn(4, 6)), "--json", "-")
    assert result.status == 2
    (found,) = result.json["results"]
    assert "position 2" in found["problems"][0]
    result = cli("inspect", save(tmp_path / "p.pt", drawn(4, 6).softmax(-1)))
    assert result.status == 0
    assert "--input probabilities" in result.out
    assert "identical" in result.out
    wide = save(tmp_path / "wide.pt", drawn(4, 6), drawn(4, 5))
    assert cli("inspect", wide).status == 2
    assert cli("inspect", wide, "--pad-vocab").status == 0


def test_rules(cli):
    result = cli("rules", "--json", "-")
    assert result.status == 0
    found = {r["rule"]: r for r in result.json["results"]}
    assert {name: r["measured"] for name, r in found.items()}.items() >= {
        "speculative": "exact",
        "specinfer": "exact",
        "resispec": "inexact",
    }.items()
    witness = found["resispec"]["witness"]
    for name in ("target", "draft"):
        assert sum(map(Fraction, witness[name])) == 1
    assert found["specinfer"]["witness"] is None
    assert "arXiv" in result.err


@pytest.mark.parametrize("columns", ["80", "60"])
def test_no_digit_is_cut_off_in_a_narrow_terminal(dump, columns, monkeypatch, capsys):
    """9.37e-17 shown as 9.3... is another number; verdicts must not vanish either."""
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(Console, "is_terminal", property(lambda self: True))
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    assert main(["kl", "--logits", str(dump)]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "inexact" in shown
    assert "exact" in shown.replace("inexact", "").replace("exact rule", "")


def test_an_interrupt_is_said(cli, dump, monkeypatch, tmp_path):
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("resispec_verify.cli.resumable.evaluate_dump", interrupted)
    report = tmp_path / "report.json"
    result = cli("kl", "--logits", dump, "--json", report)
    assert result.status == 130
    assert "interrupted" in result.err
    assert not report.exists()


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_a_reader_that_goes_away_is_no_failed_demand(dump):
    """Status 1 means that a demand was not met; `| head -1` is none."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "resispec_verify", "kl", "--logits", str(dump)],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(write)
    assert done.stderr == ""
    assert done.returncode in (0, 141)


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs a device that is full")
def test_a_full_disk_is_one_line(dump):
    """With ``--json -``: see `test_cli_outputs`."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "resispec_verify", "kl", "--logits", str(dump)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr
    assert done.returncode == 2


def test_warnings_as_errors(dump):
    result = command("kl", "--logits", dump, env={**os.environ, "PYTHONWARNINGS": "error"})
    assert "Traceback" not in result.err
    assert result.status == 0


def test_an_ascii_terminal(dump, tmp_path):
    path = tmp_path / "ünï.pt"
    path.write_bytes(dump.read_bytes())
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    for arguments in (("inspect", path), ("kl", "--logits", path)):
        result = command(*arguments, env=ascii_only)
        assert "Traceback" not in result.err
        assert result.status == 0


@pytest.mark.slow  # all that kl needs is compiled
def test_no_folder_for_compiled_kernels(dump, tmp_path):
    """Installed read-only and no home to write to, as in a container: slower, not broken."""
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    copy = tmp_path / "site" / "resispec_verify"
    shutil.copytree(Path(oracle.__file__).parents[1], copy, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (copy, *(path for path in copy.rglob("*") if path.is_dir())):
        folder.chmod(0o555)
    environment = {**os.environ, "PYTHONPATH": str(copy.parent), "HOME": str(copy)}
    environment["XDG_CACHE_HOME"] = str(copy)
    environment.pop("NUMBA_CACHE_DIR", None)
    result = command("kl", "--logits", dump, env=environment, cwd=tmp_path)
    assert "Traceback" not in result.err
    assert result.status == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--rule", "specinfer", "--budget", "floor"), "--budget"),
        (("--rule", "specinfer", "--redistribution", "proportional"), "--redistribution"),
        (("--rule", "sequoia", "--hole", "literal"), "--hole"),
        (("--marginal", "operational", "--seed", 3), "--seed"),
        (("--marginal", "operational", "--candidate-list", "0,1,2"), "--candidate-list"),
        (("--marginal", "path-identity", "--gap", 0.1), "--gap"),
        (("--marginal", "path-identity", "--max-expansions", 10), "--max-expansions"),
        (("--candidate-list", "0,1,2", "--seed", 1), "--seed"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(cli, options, named):
    result = cli("kl", "--target", "0.3,0.4,0.3", "--draft", "0.6,0.3,0.1", *options)
    assert result.status == 2
    assert f"error: {named} would do nothing" in result.err
    assert result.out == ""


def test_an_option_that_one_of_the_rules_has_is_not(cli):
    options = ("--rule", "specinfer", "--rule", "eagle+resispec", "--budget", "floor")
    assert cli("kl", "--target", "0.3,0.4,0.3", "--draft", "0.6,0.3,0.1", *options).status == 0
