"""`kl`, `limits` and `drift` over top-k files: intervals around what whole rows give, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cli_helpers import assert_refused, lines_of
from cut_helpers import logits, save_top, save_whole

import resispec_verify as rv
from resispec_verify import topk
from resispec_verify.dumps import open_top_pairs
from resispec_verify.rules import ResiSpec
from resispec_verify.runs import over_top

ROWS, VOCAB = 7, 24
ROUNDING = 1e-9
EXACT = ("specinfer", "optimal-sequential", "optimal-joint", "k-seq")


@pytest.fixture
def files(tmp_path):
    """Whole rows, and the same cut to 1, 8 and all tokens."""
    rows = logits(ROWS, VOCAB)
    found = {k: save_top(tmp_path / f"top{k}.npz", *rows, k) for k in (1, 8, VOCAB)}
    return found | {"whole": save_whole(tmp_path / "whole.npz", *rows)}


def named(*rules):
    return [word for rule in rules for word in ("--rule", rule)]


def columns(text, rule):
    """The lines of a CSV that are about a rule."""
    return [line for line in lines_of(text) if line["rule"] == rule]


def within(line, measure, value):
    return float(line[f"{measure}_low"]) - ROUNDING <= value <= float(line[f"{measure}_high"]) + ROUNDING


@pytest.mark.parametrize("k", [1, 8, VOCAB])
def test_kl_of_whole_rows_lies_in_the_intervals_at_every_position(cli, files, tmp_path, k):
    rules = named(*EXACT, "resispec")
    whole = cli("kl", files["whole"], *rules, "--marginal", "operational", "--gap", 0, "--csv", "-")
    top = cli("kl", files[k], *rules, "--csv", "-")
    assert whole.status == top.status == 0
    for rule in (*EXACT, "resispec"):
        truth, ours = columns(whole.out, rule), columns(top.out, rule)
        assert len(truth) == len(ours) == ROWS
        for line, other in zip(ours, truth, strict=True):
            assert line["position"] == other["position"]
            assert within(line, "acceptance", float(other["acceptance"]))
            assert within(line, "limit", float(other["limit"]))
            assert within(line, "emitted_tv", float(other["tv"]))
            assert within(line, "emitted_kl", float(other["kl"]))


def test_lists_of_the_whole_vocabulary_leave_points(cli, files):
    report = cli("kl", files[VOCAB], *named(*EXACT), "--json", "-").json
    assert (report["schema"], report["command"], report["form"]) == (1, "kl", "top-k")
    assert report["dump"]["k"] == [VOCAB, VOCAB]
    whole = cli("kl", files["whole"], *named(*EXACT), "--marginal", "operational", "--json", "-").json
    for ours, truth in zip(report["results"], whole["results"], strict=True):
        for key, value in (("acceptance", sum(truth["acceptance"])), ("limit", truth["limit_mean"])):
            low, high = ours[f"{key}_mean_bounds"]
            assert low == pytest.approx(value, abs=ROUNDING)
            assert high == pytest.approx(value, abs=ROUNDING)
        assert ours["verdict"] == "exact"
        assert ours["proof"].startswith("docs/")
        assert ours["least_k"] == 1
        assert ours["acceptance_width"]["max"] < ROUNDING


def test_what_tails_cannot_change_is_inexact(cli, files):
    whole = cli("kl", files[8], *named("resispec", "specinfer"), "--json", "-", "--require-exact")
    assert whole.status == 1
    ours, exact = whole.json["results"]
    assert (ours["verdict"], exact["verdict"]) == ("inexact", "exact")
    assert exact["tv_mean_bounds"] == [0.0, 0.0]
    pairs = open_top_pairs(files[8]).pairs(0, ROWS)
    found = topk.bounds(pairs, ResiSpec(), 3)
    assert ours["verdict_counts"]["inexact"] == sum(v is rv.Verdict.INEXACT for v in found.verdicts)
    assert ours["inexact_position"] == found.verdicts.index(rv.Verdict.INEXACT)
    assert ours["least_k"] == topk.least_k(pairs, ResiSpec(), 3)
    low, high = ours["tv_mean_bounds"]
    assert low == pytest.approx(found.emitted_tv[:, 0].mean(), abs=1e-15)
    assert high == pytest.approx(found.emitted_tv[:, 1].mean(), abs=1e-15)
    assert ours["kl_mean_bounds"][1] == "inf"


def test_demands_are_met_only_where_no_completion_breaks_them(cli, files):
    most = cli("kl", files[8], "--rule", "resispec", "--json", "-").json["results"][0]["tv_max_bounds"]
    assert most[0] < most[1] < 1.0
    between = 0.5 * (most[0] + most[1])
    assert cli("kl", files[8], "--rule", "resispec", "--max-tv", between).status == 1
    assert cli("kl", files[8], "--rule", "resispec", "--max-tv", most[1] + 1e-9).status == 0
    assert cli("kl", files[8], "--rule", "specinfer", "--max-tv", 0, "--require-exact").status == 0


def test_lists_that_say_too_little_are_undecided(cli, tmp_path):
    # No token is in both lists: nothing is known of what ResiSpec emits.
    p, q = np.log([[0.6, 0.1, 0.1, 0.1, 0.1]]), np.log([[0.1, 0.6, 0.1, 0.1, 0.1]])
    path = save_top(tmp_path / "one.npz", p, q, 1)
    found = cli("kl", path, "--rule", "resispec", "--json", "-", "--require-exact")
    assert found.status == 1
    (result,) = found.json["results"]
    assert (result["verdict"], result["least_k"], result["inexact_position"]) == ("undecided", None, None)
    shown = cli("kl", path, "--rule", "resispec")
    assert shown.status == 0
    assert "resispec: these lists do not decide; longer ones may." in shown.out


@pytest.mark.parametrize("command", ["kl", "limits", "drift"])
def test_any_number_of_threads_says_the_same(cli, files, monkeypatch, command):
    monkeypatch.setattr(over_top, "BLOCK", 2)
    rules = named("specinfer") if command == "drift" else named("specinfer", "resispec")
    one, two = (cli(command, files[8], *rules, "--jobs", jobs, "--json", "-") for jobs in (1, 2))
    assert one.status == two.status == 0
    assert one.out == two.out


def test_the_shortest_lists_are_found_over_all_blocks(cli, files, monkeypatch):
    arguments = ("kl", files[8], "--rule", "resispec", "--json", "-")
    at_once = cli(*arguments).json["results"][0]["least_k"]
    monkeypatch.setattr(over_top, "BLOCK", 1)
    assert cli(*arguments).json["results"][0]["least_k"] == at_once


def test_several_files_are_pooled_and_positions_chosen(cli, files, tmp_path):
    other = save_top(tmp_path / "other.safetensors", *logits(3, VOCAB, seed=4), 5)
    (both,) = cli("kl", files[8], other, "--rule", "specinfer", "--json", "-").json["results"]
    assert both["positions"] == ROWS + 3
    (few,) = cli("kl", files[8], "--rule", "specinfer", "--positions", "2:4", "--json", "-").json["results"]
    assert few["positions"] == 2
    pairs = open_top_pairs(files[8]).pairs(2, 4)
    truth = topk.bounds(pairs, rv.SpecInfer(), 3).acceptance.mean(axis=0)
    assert few["acceptance_mean_bounds"] == pytest.approx(truth.tolist(), abs=1e-15)
    assert_refused(cli("kl", files[8], "--positions", "5:9"), "positions 5:9 are outside the dump")
    twice = cli("kl", files[8], files[8], "--rule", "specinfer")
    assert twice.status == 2
    assert "given twice" in twice.err


def test_limits_hold_the_limits_of_whole_rows(cli, files):
    rules = named("specinfer", "optimal-sequential", "speculative")
    whole = cli("limits", files["whole"], *rules, "--csv", "-")
    top = cli("limits", files[8], *rules, "--csv", "-")
    for ours, truth in zip(lines_of(top.out), lines_of(whole.out), strict=True):
        assert (ours["rule"], ours["position"]) == (truth["rule"], truth["position"])
        for measure in ("acceptance", "limit", "sequential_limit"):
            assert within(ours, measure, float(truth[measure]))
    report = cli("limits", files[8], "--json", "-").json
    assert all(r["above_limit"] == 0 and not r["cannot_be_exact"] for r in report["results"])
    assert {r["rule"] for r in report["results"]} >= {"specinfer", "optimal-joint", "resispec"}


def test_the_limit_of_candidates_that_differ_is_not_known(cli, files):
    (result,) = cli("kl", files[8], "--rule", "eagle", "--json", "-").json["results"]
    assert result["limit_mean_bounds"] is None
    assert result["verdict"] == "exact"
    assert "unknown" in cli("limits", files[8], "--rule", "eagle").out


@pytest.mark.parametrize("k", [1, 8, VOCAB])
def test_drift_of_whole_rows_lies_in_the_intervals(cli, files, k):
    whole = cli("drift", files["whole"], "--rule", "specinfer", "--json", "-").json["results"]
    top = cli("drift", files[k], "--json", "-").json["results"]
    for ours, truth in zip(top, whole, strict=True):
        assert ours["index"] == truth["index"]
        for name in ("looked_at", "acceptance_conditional", "l1", "eal"):
            low, high = ours[f"{name}_bounds"]
            assert low - ROUNDING <= truth[name] <= high + ROUNDING
            if k == VOCAB:
                assert high - low < 1e-6


def test_drift_has_as_many_candidates_as_a_rule_verifies(cli, files):
    both = cli("drift", files[8], *named("speculative", "specinfer"), "--json", "-").json["results"]
    assert [(r["rule"], r["index"]) for r in both] == [
        ("speculative", 1),
        *(("specinfer", i) for i in (1, 2, 3, 4)),
    ]
    assert both[0]["eal_bounds"] == both[1]["eal_bounds"]


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ("kl", ["--temperature", "0.7", "--top-k", "5"], "--temperature, --top-k cannot be applied"),
        ("limits", ["--top-p", "0.9", "--min-p", "0.1"], "--top-p, --min-p cannot be applied"),
        ("drift", ["--proposal-temperature", "2"], "--proposal-temperature cannot be applied"),
        ("kl", ["--backend", "torch"], "--backend would do nothing beside a top-k file"),
        ("limits", ["--backend", "torch"], "--backend would do nothing beside a top-k file"),
        ("kl", ["--precision", "float32"], "--precision would do nothing"),
        ("kl", ["--until", "verdict"], "--until would do nothing"),
        ("kl", ["--gap", "0.1"], "--gap would do nothing"),
        ("kl", ["--resume", "x.jsonl"], "--resume would do nothing"),
        ("kl", ["--scheduler", "local"], "--scheduler would do nothing"),
        ("kl", ["--seed", "3"], "--seed would do nothing"),
        ("kl", ["--marginal", "path-identity"], "needs whole rows"),
        ("kl", ["--plot", "x.png"], "are not drawn"),
        ("drift", ["--plot", "x.png"], "are not drawn"),
        ("drift", ["--max-states", "7"], "--max-states would do nothing"),
        ("drift", ["--blind-top-k", "7"], "--blind-top-k would do nothing"),
        ("drift", ["--rule", "resispec"], "needs whole rows"),
        ("drift", ["--rule", "k-seq"], "of top-k files drift has specinfer and speculative"),
        ("kl", ["--rule", "sequoia", "--candidates", "25"], "draws 25 different candidates"),
        ("limits", ["--batch", "2"], "--batch would do nothing beside a top-k file"),
        ("kl", ["--input", "logits"], "--input would do nothing beside a top-k file"),
        ("kl", ["--pad-vocab"], "--pad-vocab would do nothing beside a top-k file"),
        ("kl", ["--target", "0.5,0.5", "--draft", "0.5,0.5"], "not both"),
    ],
)
def test_options_that_make_no_sense_are_refused(cli, files, command, options, words):
    assert_refused(cli(command, files[8], *options), words)


def test_a_folder_of_them_is_pooled(cli, files, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(2):
        save_top(folder / f"part{i}.npz", *logits(3, VOCAB, seed=i), 5)
    (found,) = cli("kl", folder, "--rule", "specinfer", "--json", "-").json["results"]
    assert found["positions"] == 6
    (found,) = cli("limits", f"{folder}/*.npz", "--rule", "specinfer", "--json", "-").json["results"]
    assert found["positions"] == 6
    assert_refused(cli("compare", folder, files[8]), "is a directory")


def test_kinds_are_not_mixed(cli, files):
    for command in ("kl", "limits", "drift"):
        assert_refused(cli(command, files["whole"], files[8]), "top8.npz", "run them one kind at a time")


def test_what_needs_whole_rows_says_what_can_be_done(cli, files):
    assert_refused(cli("replay", files[8]), "top8.npz", "a scalar log of a line a decision")
    assert_refused(cli("explore", files[8]), "top8.npz", "give it to kl, limits, drift, compare or inspect")
    with pytest.raises(rv.InputError, match="verify_top from Python"):
        rv.verify(files[8], rule="specinfer")


def test_a_file_that_is_broken_costs_only_itself(cli, files, tmp_path):
    rows = logits(2, VOCAB)
    broken = save_top(tmp_path / "broken.npz", *rows, 4, target_top_ids=np.zeros((2, 4), np.int32))
    found = cli("kl", broken, files[8], "--rule", "specinfer", "--json", "-")
    assert found.status == 2
    assert found.json["dump"]["paths"] == [str(files[8])]
    assert "target at position 0: token 0 is listed twice" in found.err
    nothing = tmp_path / "missing.npz"
    assert_refused(cli("kl", nothing), "no such file")


def test_nothing_ranked_is_said_and_widens(cli, files, tmp_path):
    loose = save_top(tmp_path / "loose.npz", *logits(ROWS, VOCAB), 8, target_ranked=None, draft_ranked=None)
    found = cli("kl", loose, "--rule", "specinfer", "--json", "-")
    assert "nothing says that the listed tokens are the most probable" in found.err
    tight = cli("kl", files[8], "--rule", "specinfer", "--json", "-").json["results"][0]
    (wide,) = found.json["results"]
    assert wide["acceptance_mean_bounds"][0] <= tight["acceptance_mean_bounds"][0] + 1e-12
    assert wide["acceptance_width"]["mean"] >= tight["acceptance_width"]["mean"] - 1e-12


@pytest.mark.parametrize("command", ["kl", "limits", "drift", "compare"])
def test_tables_fit_eighty_columns(files, capsys, monkeypatch, command):
    from rich.console import Console

    from resispec_verify.cli import main
    from resispec_verify.cli.options import outputs

    console = Console(width=80, highlight=False, emoji=False)
    monkeypatch.setattr(outputs, "table_console", lambda *paths: console)
    two = [str(files[8]), str(files[1])] if command == "compare" else [str(files[8])]
    console.file = __import__("io").StringIO()
    assert main([command, *two]) == 0
    table = [line for line in console.file.getvalue().splitlines() if line.startswith(" ")]
    assert len(table) > 3
    assert all(len(line) <= 80 for line in table)


def test_python_says_what_the_command_says(cli, files):
    report = rv.verify_top(files[8], rule=["specinfer", "resispec"])
    printed = cli("kl", files[8], *named("specinfer", "resispec"), "--json", "-").json
    assert json.loads(json.dumps(report.to_dict())) == printed
    assert report.verdict is rv.Verdict.INEXACT
    one = report["specinfer"]
    assert one.verdict is rv.Verdict.EXACT
    assert list(one.acceptance_bounds) == printed["results"][0]["acceptance_mean_bounds"]
    assert list(one.limit_bounds) == printed["results"][0]["limit_mean_bounds"]
    assert (one.tv_bounds, one.kl_bounds, one.least_k) == ((0.0, 0.0), (0.0, 0.0), 1)
    assert len(report.positions) == 2 * ROWS
    assert "true for every completion of the unseen tails" in repr(report)
    in_memory = rv.verify_top(open_top_pairs(files[8]).pairs(0, ROWS), rule="specinfer")
    assert in_memory.acceptance_bounds == one.acceptance_bounds
    with pytest.raises(rv.InputError, match="several rules"):
        _ = report.tv_bounds
    with pytest.raises(rv.InputError, match="no rule 'k-seq'"):
        _ = report["k-seq"]
    with pytest.raises(rv.InputError, match="target must be the path of a top-k file"):
        rv.verify_top(3, rule="specinfer")
    with pytest.raises(rv.InputError, match="jobs must be at least 1"):
        rv.verify_top(files[8], rule="specinfer", jobs=0)
    with pytest.raises(rv.InputError, match="given twice"):
        rv.verify_top([files[8], files[8]], rule="specinfer")
