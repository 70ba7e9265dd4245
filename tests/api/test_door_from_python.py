"""One call a question: `verify`, `limits`, `check` and `replay`, and the reports they give."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_helpers import EXAMPLE, logs

import resispec_verify as rv

P, Q = [0.3, 0.4, 0.3], [0.6, 0.3, 0.1]


def test_a_verdict_in_one_call():
    report = rv.verify(P, Q, rule="specinfer", candidates=2)
    assert report.verdict is rv.Verdict.EXACT
    low, high = report.tv_bounds
    assert low == 0
    assert high < 1e-12
    assert report.kl_bounds[1] < 1e-12
    # Two candidates accepted one by one: 0.7, and 0.4 of what is rejected.
    assert report.acceptance == pytest.approx(0.82, abs=1e-12)
    assert report.limit == pytest.approx(0.89, abs=1e-12)
    assert report.acceptance_bounds[0] <= 0.82 <= report.acceptance_bounds[1]
    (position,) = report.positions
    assert (position["position"], position["verdict"]) == (0, "exact")


def test_algorithm_1_is_inexact_by_the_known_amount():
    report = rv.verify([P], [Q], rule=rv.ResiSpec(), candidates=1)
    # It emits (3/10, 141/290, 31/145): a total variation of 5/58.
    assert report.verdict is rv.Verdict.INEXACT
    assert report.tv_bounds[0] <= 5 / 58 <= report.tv_bounds[1]
    assert report.tv_bounds[1] - report.tv_bounds[0] < 1e-12


def test_several_rules_and_their_options():
    report = rv.verify(P, Q, rule=["specinfer", rv.ResiSpec(), rv.ResiSpec(budget="floor")], candidates=1)
    assert [one.verdict.value for one in report] == ["exact", "inexact", "inexact"]
    assert report.verdict is rv.Verdict.INEXACT
    assert report["resispec[budget=floor]"].acceptance == pytest.approx(report["specinfer"].acceptance)
    with pytest.raises(rv.InputError, match="several results"):
        _ = report.acceptance
    with pytest.raises(rv.InputError, match="no rule 'sequoia' in this report"):
        _ = report["sequoia"]


def test_it_prints_as_a_table_here_and_in_a_notebook():
    report = rv.verify(P, Q, rule=["specinfer", "resispec"], candidates=1)
    lines = repr(report).splitlines()
    assert [line.split()[0] for line in lines if line.strip().startswith(("specinfer", "resispec"))] == [
        "specinfer",
        "resispec",
    ]
    assert "inexact" in repr(report)
    html = report._repr_mimebundle_([], [])["text/html"]
    assert "specinfer" in html
    assert "<pre" in html


def test_the_dictionary_is_the_json_of_the_command(cli, tmp_path):
    report = rv.verify(str(EXAMPLE), rule="specinfer", positions=slice(0, 2)).to_dict()
    arguments = ("--rule", "specinfer", "--positions", "0:2", "--marginal", "operational")
    command = cli("kl", "--logits", EXAMPLE, *arguments, "--json", "-").json
    for one in (report, command):
        del one["seconds"]
    assert json.loads(json.dumps(report)) == command


def test_limits_are_those_of_the_command(cli):
    report = rv.limits(P, Q, rule=["specinfer", "optimal-sequential"], candidates=2)
    arguments = ("--target", "0.3,0.4,0.3", "--draft", "0.6,0.3,0.1", "--candidates", "2")
    rules = ("--rule", "specinfer", "--rule", "optimal-sequential")
    assert report.to_dict() == cli("limits", *arguments, *rules, "--json", "-").json
    assert report.limit == pytest.approx(0.89)
    assert report.sequential_limit == pytest.approx(0.8714285714285714)
    assert "optimal-sequential" in repr(report)


def test_logits_temperature_and_the_true_proposal():
    target, draft = (np.random.default_rng(i).normal(scale=2, size=(3, 5)) for i in (1, 2))
    half = rv.Sampling(0.5)
    exact = rv.verify(target, draft, rule="specinfer", sampling=half)
    assert exact.verdict is rv.Verdict.EXACT
    laws = [np.exp(2 * x) / np.exp(2 * x).sum(-1, keepdims=True) for x in (target, draft)]
    assert rv.verify(*laws, rule="specinfer").acceptance == pytest.approx(exact.acceptance, rel=1e-12)
    other = rv.verify(target, draft, rule="specinfer", sampling=half, proposal=rv.Sampling(1.0))
    assert other.verdict is rv.Verdict.INEXACT
    rows = rv.verify(target, draft, rule="specinfer", proposal=draft / 2)
    assert rows.verdict is rv.Verdict.INEXACT
    two = rv.verify(target, draft, rule="specinfer", sampling=[half, rv.Sampling(1.0)], positions=range(1, 3))
    assert [len(one.positions) for one in two] == [2, 2]


def test_arrays_of_torch_in_any_shape():
    torch.manual_seed(1)
    target, draft = torch.randn(2, 3, 5), torch.randn(2, 3, 5)
    report = rv.verify(target, draft, rule="specinfer")
    assert [line["position"] for line in report.positions] == list(range(6))
    assert report.verdict is rv.Verdict.EXACT
    half = (torch.softmax(rows, -1).to(torch.bfloat16) for rows in (target, draft))
    assert rv.verify(*half, rule="specinfer").verdict is rv.Verdict.EXACT


def test_replay_of_rounds(tmp_path):
    entry = {"draft_logits": logs((0.6, 0.3, 0.1)), "target_logits": logs((0.5, 0.3, 0.2), (0.5, 0.3, 0.2))}
    entry |= {"draft_tokens": torch.tensor([0]), "next_token": 2}
    for name, accepted in (("right", 0), ("wrong", 1)):
        path = tmp_path / f"{name}.pt"
        torch.save({"rounds": [entry | {"accepted": accepted, "u": torch.tensor([0.9])}]}, path)
    assert rv.replay(tmp_path / "right.pt").verdict == "not-rejected"
    wrong = rv.replay(str(tmp_path / "wrong.pt"), rule="speculative")
    assert wrong.verdict == "diverges"
    assert wrong.first_divergence is not None
    assert wrong.first_divergence["recomputed"] == "rejected"
    assert wrong.to_dict()["results"][0]["divergences"] == 1
    assert "decisions" in repr(wrong)
    assert rv.replay(tmp_path / "right.pt", rule="block").verdict == "not-rejected"


def test_check_of_a_sampler():
    def keeps(target, draft, rng):
        return [rng.choice(len(q), p=q) for q in draft]

    report = rv.check(keeps, pairs=[([0.9, 0.1], [0.1, 0.9])], draws=2000)
    assert report.verdict == "rejected"
    assert report.to_dict()["results"][0]["style"] == "tokens"
    assert "keeps" in repr(report)

    def right(target, draft, rng):
        return [rng.choice(len(p), p=p) for p in target]

    passed = rv.check(right, pairs=["base"], draws=2000)
    assert passed.verdict == "not-rejected"
    assert passed.detectable_tv is not None
    assert "no proof" in repr(passed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((P,), "draft is missing"),
        ((P, [0.5, 0.5]), "they must match"),
        (([0.3, 0.4, 0.2], Q), "input='logits' or input='probabilities'"),
        (([1.0, -2.0, 3.0], Q), "logits or probabilities"),
        (("nowhere.pt",), "no such file"),
        ((str(EXAMPLE), Q), "give it alone"),
        (([str(EXAMPLE), str(EXAMPLE)],), "given twice"),
        ((float("nan"), 1.0), "at least one token"),
    ],
)
def test_bad_input_is_one_line(arguments, words):
    with pytest.raises(rv.InputError) as caught:
        rv.verify(*arguments, rule="specinfer")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rule": "spacinfer"}, "did you mean 'specinfer'"),
        ({"rule": []}, "one or several different rules"),
        ({"rule": ["specinfer", "specinfer"]}, "different rules"),
        ({"rule": "specinfer", "candidates": 0}, "candidates must be"),
        ({"rule": "specinfer", "sampling": 0.7}, "sampling must be a Sampling"),
        ({"rule": "specinfer", "sampling": rv.Sampling(0.7)}, "probabilities are used as they are"),
        ({"rule": "specinfer", "positions": 3}, "positions must be a slice"),
        ({"rule": "specinfer", "positions": slice(0, 4)}, "outside the arrays"),
        ({"rule": "specinfer", "input": "laws"}, "input must be one of"),
    ],
)
def test_bad_options_are_one_line(options, words):
    with pytest.raises(rv.InputError, match=words):
        rv.verify(P, Q, **options)


def test_probabilities_said_to_be_logits_are_logits():
    as_logits = rv.verify(P, Q, rule="specinfer", input="logits")
    assert as_logits.acceptance != pytest.approx(rv.verify(P, Q, rule="specinfer").acceptance, abs=1e-3)
    logarithms = (np.log(rows) for rows in (P, Q))
    read = rv.verify(*logarithms, rule="specinfer", input="log-probabilities")
    assert read.acceptance == pytest.approx(rv.verify(P, Q, rule="specinfer").acceptance, rel=1e-12)


def test_a_path_object_is_a_path():
    assert rv.verify(Path(EXAMPLE), rule="specinfer", positions=slice(0, 1)).verdict is rv.Verdict.EXACT


def test_rules_that_differ_in_the_last_digit_stay_apart(cli):
    rules = ["sglang", "sglang:threshold_acc=0.9999999", f"sglang:threshold_acc={1 / 3!r}"]
    report = rv.verify([0.3, 0.4, 0.2, 0.1], [0.6, 0.2, 0.1, 0.1], rule=rules, candidates=2)
    assert [len(one.positions) for one in report] == [1, 1, 1]
    assert [one.verdict.value for one in report] == ["exact", "inexact", "inexact"]
    assert report["sglang"].verdict is rv.Verdict.EXACT
    assert report[rules[2]].positions[0]["rule"] == "sglang[threshold_acc=0.3333333333333333]"
    assert rules[1] in report
    assert "sequoia" not in report
    hand = ("--target", "0.3,0.4,0.2,0.1", "--draft", "0.6,0.2,0.1,0.1", "--candidates", "2")
    named = [word for rule in rules for word in ("--rule", rule)]
    results = cli("kl", *hand, *named, "--marginal", "operational", "--json", "-").json["results"]
    assert [r["label"] for r in results] == [line["rule"] for line in report.positions]
    assert cli("limits", *hand, *named).out.count("threshold_acc=") >= 2


@pytest.mark.parametrize(
    ("target", "draft", "words"),
    [
        ([3, 4, 3], [6, 3, 1], "no value is negative"),
        ([0.3, 0.9, -0.2], Q, "row 0 of target is no law"),
        ([0.3, float("nan"), 0.2], Q, "target has NaN"),
        ([[1.0, 2.0, -1.0], P], [[0.0, 1.0, 2.0], Q], "row 0 of target is no law"),
    ],
)
def test_what_could_be_laws_or_logits_is_asked(target, draft, words):
    with pytest.raises(rv.InputError, match=words):
        rv.verify(target, draft, rule="specinfer")


def test_rounding_above_one_is_still_a_law():
    target = np.array([[1.0000001, 0, 0], [0.5, 0.25, 0.25]], np.float32)
    draft = np.array([[0.2, 0.3, 0.5], [0, 1.0000001, 0]], np.float32)
    assert rv.verify(target, draft, rule="speculative", candidates=1).acceptance == pytest.approx(0.225)


def test_log_probabilities_are_not_heated_twice():
    with pytest.raises(rv.InputError, match="may have been applied already"):
        rv.verify(np.log([P]), np.log([Q]), rule="specinfer", sampling=rv.Sampling(0.5))


def test_a_sampling_twice_counts_once():
    logits = np.random.default_rng(1).normal(size=(2, 4)) - 3
    report = rv.verify(logits, logits[::-1], rule="specinfer", sampling=[rv.Sampling(1.0), rv.Sampling(1.0)])
    assert [line["position"] for line in report.positions] == [0, 1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"input": "logit"}, "input must be one of"),
        ({"eos": 3}, "eos must be token ids"),
        ({"eos": ["3"]}, "eos must be a whole number"),
        ({"uniforms": "no"}, "uniforms must be True, False, or one of vllm, sglang"),
        ({"alpha": "x"}, "alpha must be a number"),
        ({"rule": "spechub"}, "several candidates"),
    ],
)
def test_bad_options_of_replay_are_one_line(tmp_path, options, words):
    with pytest.raises(rv.InputError, match=words):
        rv.replay(tmp_path / "nowhere.pt", **options)


def test_a_rule_in_a_file_and_a_number_of_candidates_are_said():
    with pytest.raises(rv.InputError, match="import it, and give its instance"):
        rv.verify(P, Q, rule="my_rule.py:EarlyStop")
    with pytest.raises(rv.InputError, match="verifies exactly 2 candidates"):
        rv.verify(P, Q, rule="spechub", candidates=3)


def test_limits_and_check_refuse_what_the_commands_refuse():
    with pytest.raises(rv.InputError, match="verifies exactly 2 candidates"):
        rv.limits(P, Q, rule="spechub", candidates=3)
    with pytest.raises(rv.InputError, match="there is no setting 'nope'"):
        rv.check(lambda target, draft, rng: [0], nope=1)


def test_a_notebook_may_ask_without_saying_what_for():
    assert "specinfer" in rv.verify(P, Q, rule="specinfer")._repr_mimebundle_()["text/html"]


def test_rows_that_are_rather_columns_are_noted():
    rows = np.random.default_rng(0).normal(size=(4, 1200))
    report = rv.verify(rows.T, rows.T + 1, rule="specinfer", candidates=1)
    (note,) = report.to_dict()["dump"]["notes"]
    assert note["text"].startswith(
        "1200 positions of a vocabulary of 4 tokens: each row is taken as 4 tokens"
    )
    assert "if it is transposed, save x.T" in " ".join(str(report).split())
    assert rv.verify(rows, rows + 1, rule="specinfer", candidates=1).to_dict()["dump"]["notes"] == []


def test_two_paths_are_no_rows():
    with pytest.raises(rv.InputError, match=r"rv\.verify\(np\.load\('t\.npy'\), np\.load\('d\.npy'\)"):
        rv.verify("t.npy", "d.npy", rule="specinfer")
