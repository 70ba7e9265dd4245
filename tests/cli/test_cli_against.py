"""`report --against`: what changed since an earlier run, and whether that is more than chance."""

import json
import math

import numpy as np
import pytest
import torch
from cli_helpers import PREFIX, drawn, save

from resispec_verify.errors import InputError
from resispec_verify.tables.against import changes, read_report, standard_error

SPAN = ("--candidates", "1", "--rule", "specinfer", "--rule", "resispec")


def row(tv, verdict="inexact", **others):
    """A row of a report with this total variation at its positions."""
    n = len(tv)
    mean = sum(tv) / n
    return {
        "rule": "r", "label": "r", "marginal": "operational", "temperature": 1.0, "candidates": 1,
        "dataset": None, "positions": n, "verdict": verdict, "tv_mean": mean,
        "tv_mean_bounds": [mean - 1e-12, mean + 1e-12], "acceptance": [0.5],
        "acceptance_total_bounds": [0.5, 0.5], "limit_mean": 0.7, "rounding_max": 1e-12,
        "standard_errors": {"tv": standard_error(tv), "acceptance": 0.0, "limit": 0.0},
        "by_position": {"sha256": ["f"] * n, "position": list(range(n)), "tv": tv, "acceptance": [0.5] * n,
                        "limit": [0.7] * n},
    } | others  # fmt: skip


def of_tv(before, now):
    return next(c for c in changes({"results": [before]}, {"results": [now]}, 0.05) if c.measure == "tv")


def test_p_values_are_those_of_scipy():
    from scipy import stats

    a = [0.1, 0.3, 0.2, 0.5, 0.1, 0.3, 0.2, 0.5, 0.4, 0.1]
    b = [0.2, 0.35, 0.3, 0.45, 0.21, 0.34, 0.3, 0.5, 0.5, 0.15]
    paired, apart = of_tv(row(a), row(b)), of_tv(row(a), row(b, by_position=None))
    assert (paired.how, apart.how) == ("paired", "two samples")
    assert paired.p_value == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert apart.p_value == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
    # 0.05 / 3 is the level of each of the three tests.
    assert 2.0**-9 < paired.p_value < 0.05 / 3 < apart.p_value
    assert (paired.said, apart.said) == ("significant", "not significant")


def test_alike_at_few_positions_is_no_proof():
    a = [0.1, 0.3, 0.2]
    for n in (2, 3, 40):
        rows = (a * n)[:n]
        paired = of_tv(row(rows), row([v + 0.5 for v in rows]))
        assert (paired.how, paired.p_value) == ("paired", 2.0 ** (1 - n))
        assert paired.said == ("significant" if n == 40 else "not significant")
    for n, m in ((2, 2), (3, 5), (40, 20)):
        apart = of_tv(row([0.25] * n, by_position=None), row([0.5] * m))
        assert apart.how == "two samples"
        assert apart.p_value == pytest.approx(2 / math.comb(n + m, n))
        assert apart.said == ("significant" if n == 40 else "not significant")
    assert of_tv(row([0.25] * 10**5), row([0.5] * 10**4)).said == "significant"


def test_rounding_is_no_change_and_without_errors_nothing_is_tested():
    a = [0.1, 0.3, 0.2]
    assert of_tv(row(a), row([v + 1e-13 for v in a])).said == "none"
    assert of_tv(row(a, standard_errors=None, by_position=None), row([0.5, 0.6, 0.8])).said == "not tested"
    other = row([0.5, 0.6, 0.8])
    other["by_position"]["sha256"] = ["other"] * 3
    assert of_tv(row(a), other).how == "two samples"


def test_verdicts_and_rows():
    old = {"results": [row([0.1, 0.2]), row([0.1, 0.2], label="a")]}
    new = {"results": [row([0.0, 0.0], "exact"), row([0.1, 0.2], label="b")]}
    found = {(c.row[0], c.said) for c in changes(old, new, 0.05) if c.measure == "verdict"}
    assert found == {("r", "certified"), ("a", "gone"), ("b", "new")}


@pytest.mark.usefixtures("undrawn")
def test_a_page_against_itself_and_against_another_draft(cli, tmp_path):
    target = drawn(6, 8, seed=1)
    first = save(tmp_path / "a.pt", target, drawn(6, 8, seed=2))
    better = save(tmp_path / "b.pt", target, target + 0.1 * drawn(6, 8, seed=3))
    old, page = tmp_path / "old.json", tmp_path / "page.html"
    assert cli("report", first, *SPAN, "--out", page, "--json", old).status == 0
    held = json.loads(old.read_text())
    assert held["command"] == "report"
    assert all(len(r["by_position"]["tv"]) == 6 for r in held["results"])
    same = cli("report", first, *SPAN, "--out", page, "--against", old)
    assert "no verdict changed, and no number significantly (alpha 0.05 over all tests)." in same.out
    moved = cli("report", better, *SPAN, "--out", page, "--against", old, "--alpha", 0.2)
    assert "specinfer, T = 1, n = 1: acceptance" in moved.out
    assert "two samples" in moved.out
    text = page.read_text()
    assert f"What changed since {old}" in text
    assert "(alpha 0.2 over all tests)" in text
    kl = tmp_path / "kl.json"
    assert cli("kl", first, *SPAN, "--json", kl).status == 0
    assert "no verdict changed" in cli("report", first, *SPAN, "--out", page, "--against", kl).out


def result_of(cli, *asked):
    done = cli("report", *asked, "--out", "page.html")
    assert done.status == 0, done.err
    return " ".join(done.out.split())


def test_other_laws_are_other_rows(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "d.pt", drawn(8, 12, seed=1), drawn(8, 12, seed=2))
    asked = ("d.pt", "--rule", "specinfer", "--candidates", 1)
    plain, cut = ("plain.json", "cut.json")
    result_of(cli, *asked, "--json", plain)
    unchanged = "no verdict changed, and no number significantly"
    name = "specinfer, T = 1, n = 1"
    assert unchanged in result_of(cli, *asked, "--top-p", 1, "--engine-order", "vllm", "--against", plain)
    for given in (("--top-k", 3), ("--top-p", 0.5), ("--min-p", 0.2)):
        filtered = f"{name}, {given[0][2:].replace('-', '_')} {given[1]}"
        said = result_of(cli, *asked, *given, "--against", plain, "--json", cut)
        assert f"{filtered}: new; {name}: gone" in said
        assert "significant" not in said
        assert unchanged in result_of(cli, *asked, *given, "--against", cut)
    both = (*asked, "--top-k", 3, "--top-p", 0.5)
    result_of(cli, *both, "--json", cut)
    said = result_of(cli, *both, "--engine-order", "vllm", "--against", cut)
    assert f"{name}, order vllm top_k 3 top_p 0.5: new" in said


@pytest.mark.parametrize(
    ("given", "reading", "said"),
    [
        (("--proposal-temperature", 0.5), {"proposal": [{"temperature": 0.5}]}, "drawn with temperature 0.5"),
        (("--precision", "float32"), {"precision": "float32"}, "float32"),
        (("--input", "probabilities"), {"input": "probabilities"}, "probabilities"),
        (("--top-k", 2), {"sampling": [{"temperature": 1.0, "top_k": 2}]}, "top_k 2"),
        ((), {}, ""),
    ],
)
def test_kl_says_how_rows_became_laws(cli, tmp_path, monkeypatch, given, reading, said):
    monkeypatch.chdir(tmp_path)
    rows = [torch.softmax(drawn(3, 4, seed=i).double(), -1) for i in (1, 2)]
    torch.save({"target_logits": rows[0], "draft_logits": rows[1]}, "d.pt")
    asked = ("d.pt", "--rule", "specinfer", "--candidates", 1)
    kind = () if "--input" in given else ("--input", "logits")
    held = cli("kl", *asked, *kind, *given, "--json", "old.json")
    assert held.status == 0, held.err
    plain = {"sampling": [{"temperature": 1.0}], "proposal": None, "input": "logits", "precision": "float64"}
    for row in json.loads((tmp_path / "old.json").read_text())["results"]:
        assert row["reading"] == plain | reading
    shown = result_of(cli, *asked, "--input", "logits", "--against", "old.json")
    assert (f"specinfer, T = 1, n = 1, {said}: gone" if said else "no verdict changed") in shown


def test_samplings_of_a_dump_are_said_and_kept_in_a_journal(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stated = [{"top_k": 3}, {"temperature": 1.0}, {"top_k": 2}, {"top_k": 3}]
    torch.save({"target_logits": drawn(4, 6, seed=1), "draft_logits": drawn(4, 6, seed=2),
                "meta": {"sampling": stated}}, "d.pt")  # fmt: skip
    asked = ("kl", "d.pt", "--rule", "specinfer", "--candidates", 1, "--resume", "journal", "--json", "-")
    for _ in range(2):
        (one, *_) = cli(*asked).json["results"]
        assert one["reading"]["sampling"] == [
            {"temperature": 1.0, "top_k": 2}, {"temperature": 1.0, "top_k": 3}, {"temperature": 1.0}
        ]  # fmt: skip


def test_python_says_the_same(tmp_path):
    import resispec_verify as rv

    p, q = [[0.5, 0.3, 0.2]], [[0.2, 0.3, 0.5]]
    cut = rv.Sampling(0.5, 2)
    kinds = [
        rv.verify(p, q, rule="specinfer"),
        rv.verify(np.log(p) - 1, np.log(q) + 1, rule="specinfer", sampling=cut),
    ]
    first, second = (one.to_dict()["results"][0]["reading"] for one in kinds)
    assert (first["input"], first["sampling"]) == ("probabilities", [{"temperature": 1.0}])
    assert (second["input"], second["sampling"]) == ("logits", [{"temperature": 0.5, "top_k": 2}])


def test_a_report_of_an_earlier_version_counts_as_without_filters(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "d.pt", drawn(4, 6, seed=1), drawn(4, 6, seed=2))
    asked = ("d.pt", "--rule", "specinfer", "--candidates", 1)
    result_of(cli, *asked, "--json", "old.json")
    held = json.loads((tmp_path / "old.json").read_text())
    for one in held["results"]:
        del one["reading"]
    (tmp_path / "old.json").write_text(json.dumps(held))
    said = "The earlier report does not say its filters, and counts as without any."
    shown = result_of(cli, *asked, "--against", "old.json")
    assert f"no number significantly (alpha 0.05 over all tests). {said}" in shown
    assert said in (tmp_path / "page.html").read_text()
    assert (
        f"n = 1, top_k 2: new; specinfer, T = 1, n = 1: gone (alpha 0.05 over all tests). {said}"
        in result_of(cli, *asked, "--top-k", 2, "--against", "old.json")
    )


def test_a_row_that_comes_twice_is_refused(tmp_path):
    old = tmp_path / "old.json"
    one = row([0.1, 0.2])
    cut = row([0.1, 0.2], reading={"sampling": [{"temperature": 1, "top_k": 3}], "proposal": None,
                                   "input": "logits", "precision": "float64"})  # fmt: skip
    old.write_text(json.dumps({"schema": 1, "command": "kl", "results": [one, cut]}))
    assert len(read_report(old)["results"]) == 2
    for rows in ([one, cut, row([0.3, 0.4])], [cut, one, cut]):
        old.write_text(json.dumps({"schema": 1, "command": "kl", "results": rows}))
        with pytest.raises(InputError, match="has two rows of r, T = 1, n = 1"):
            read_report(old)


def test_what_is_no_report_is_refused(cli, tmp_path):
    dump, old, page = save(tmp_path / "a.pt", drawn(2, 3)), tmp_path / "old.json", tmp_path / "page.html"

    def refused(text, *others):
        old.write_text(text)
        done = cli("report", dump, "--out", page, "--against", old, *others)
        assert done.status == 2
        assert done.err.count("\n") == 1
        return done.err.removeprefix(f"{PREFIX}--against {old}: ")

    assert refused("no").startswith("not JSON")
    assert refused("[]").startswith("no report of ours")
    assert refused('{"schema": 1, "command": "limits", "results": []}').startswith("a report of limits")
    assert refused('{"schema": 2, "command": "kl", "results": []}').startswith("its schema is 2")
    assert refused('{"schema": 1, "command": "kl", "form": "top-k", "results": []}').startswith("intervals")
    assert refused('{"schema": 1, "command": "kl", "results": []}').startswith("it has no verdicts")
    row = '{"marginal": "operational"}'
    assert refused(f'{{"schema": 1, "command": "kl", "results": [{row}]}}').startswith("its rows lack")
    assert "--alpha must be in (0, 1)" in refused("{}", "--alpha", 2)
    assert "--alpha needs --against" in cli("report", dump, "--out", page, "--alpha", 0.1).err


@pytest.mark.parametrize("name", ["tv_mean", "tv_mean_bounds", "acceptance", "positions", "rounding_max",
                                  "temperature", "verdict", "standard_errors", "by_position",
                                  "reading"])  # fmt: skip
@pytest.mark.parametrize("value", [float("nan"), [[]], {"tv": "x"}])
def test_rows_of_other_kinds_are_refused(tmp_path, name, value):
    old = tmp_path / "old.json"
    sound = {"schema": 1, "command": "kl", "results": [row([0.1, 0.2])]}
    old.write_text(json.dumps(sound))
    assert read_report(old)["results"] == sound["results"]
    old.write_text(json.dumps({**sound, "results": [row([0.1, 0.2], **{name: value})]}))
    with pytest.raises(InputError, match="hold what is no number"):
        read_report(old)


def test_results_that_are_no_rows_are_refused(tmp_path):
    (tmp_path / "old.json").write_text('{"schema": 1, "command": "kl", "results": [1]}')
    with pytest.raises(InputError, match="its results are no rows"):
        read_report(tmp_path / "old.json")
    (tmp_path / "old.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="not JSON"):
        read_report(tmp_path / "old.json")


def test_one_position_of_another_file_is_not_tested():
    one = row([0.5], by_position=None, standard_errors={"tv": 0.1})
    assert of_tv(one, row([0.1, 0.2, 0.15])).said == "not tested"
