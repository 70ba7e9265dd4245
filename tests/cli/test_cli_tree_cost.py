"""`tree length --cost` and `tree grow --cost`: tokens a millisecond, and the shape that emits most."""

import json

import numpy as np
import pytest
import torch
from cli_helpers import assert_refused, drawn

CSV = "nodes,ms\n7,16\n1,10\n3,12\n"


@pytest.fixture
def trees(tmp_path):
    content = {
        "parent": torch.tensor((-1, 0, 0, 1, 1, 2, 2)),
        "tokens": torch.randint(6, (5, 7), generator=torch.Generator().manual_seed(0)),
        "target_logits": drawn(5, 3, 6, seed=1),
        "draft_logits": drawn(5, 3, 6, seed=2),
    }
    torch.save(content, tmp_path / "trees.pt")
    return tmp_path / "trees.pt"


def save(path, text):
    path.write_text(text)
    return path


def test_tokens_a_millisecond_of_each_shape(cli, trees, tmp_path):
    cost = save(tmp_path / "ms.csv", CSV)
    asked = ("tree", "length", trees, "--rule", "specinfer", "--topology", "d3b2", "--topology", "d2b2")
    report = cli(*asked, "--cost", cost, "--json", "-").json
    plain = cli(*asked, "--json", "-").json
    large, small = report["results"]
    assert (large["step_ms"], small["step_ms"]) == (16.0, 12.0)
    for row, other in zip(report["results"], plain["results"], strict=True):
        assert row["tokens_per_ms"] == pytest.approx(other["accepted_length_mean"] / row["step_ms"])
        assert row["tokens_per_ms_se"] == pytest.approx(other["accepted_length_se"] / row["step_ms"])
        assert row["speedup"] == pytest.approx(10 * row["tokens_per_ms"])
        assert "step_ms" not in other
    (best,) = report["best"]
    first, second = sorted(report["results"], key=lambda row: -row["tokens_per_ms"])
    assert (best["topology"], best["next"]) == (first["topology"], second["topology"])
    assert best["ahead"] == pytest.approx(first["tokens_per_ms"] - second["tokens_per_ms"])
    shown = cli(*asked, "--cost", cost).out
    assert f"specinfer (T = 1): best {first['topology']}, ahead of {second['topology']}" in shown
    assert "the draft's passes are not in it" in shown


def test_where_no_tree_pays_it_is_said(cli, trees, tmp_path):
    cost = save(tmp_path / "ms.csv", "nodes,ms,draft_ms\n1,10,100\n7,16,100\n")
    shown = cli("tree", "length", trees, "--rule", "specinfer", "--cost", cost)
    assert "no faster than one token a pass" in shown.out
    assert "a draft pass a level" in shown.out
    grown = cli("tree", "grow", "--acceptance", "0.5,0.2", "--cost", cost, "--json", "-").json["results"][0]
    assert (grown["topology"], grown["speedup"]) == ("d1b1", 1.0)


def test_json_says_the_same_as_csv(cli, tmp_path):
    rows = [{"nodes": 1, "ms": 10}, {"nodes": 3, "ms": 12.0}, {"nodes": 7, "ms": 16}]
    files = save(tmp_path / "a.csv", CSV), save(tmp_path / "a.json", json.dumps(rows))
    a, b = (cli("tree", "grow", "--acceptance", "0.5,0.2", "--cost", f, "--json", "-").json for f in files)
    assert a == b


def test_the_best_budget_is_found_among_the_sizes(cli, tmp_path):
    cost = save(tmp_path / "ms.csv", "nodes,ms\n1,10\n16,10\n17,100\n64,100\n")
    report = cli("tree", "grow", "--acceptance", "0.5,0.2,0.1", "--cost", cost, "--json", "-").json
    (row,) = report["results"]
    plain = cli("tree", "grow", "--nodes", 16, "--acceptance", "0.5,0.2,0.1", "--json", "-").json
    assert row["cost"] == 16
    assert row["topology"] == plain["results"][0]["topology"]
    assert row["tokens_per_ms"] == pytest.approx(row["predicted_length"] / 10)
    fewer = cli("tree", "grow", "--acceptance", "0.5,0.2", "--nodes", 8, "--cost", cost, "--json", "-").json
    assert fewer["results"][0]["cost"] == 8


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "its first line is"),
        ("a,b\n1,2\n", "its first line is 'a,b'"),
        ("nodes,ms\n", "has no sizes"),
        ("nodes,ms\n1,2,3\n", "has 3 values, and the header 2"),
        ("nodes,ms\n1,2\n1,3\n", "given twice"),
        ("nodes,ms\n1.5,2\n", "nodes must be whole numbers"),
        ("nodes,ms\n1,-2\n", "ms must be positive numbers, and one is '-2'"),
        ("nodes,ms\n1,nan\n", "ms must be positive numbers"),
        ("nodes,ms,draft_ms\n2,2,1\n", "the first pass of a draft is over one node"),
        ("[1]", "holds no list of objects"),
        ("{", "is no JSON"),
        ('[{"nodes": 1}]', "an object has the keys"),
        ('[{"nodes": 1, "ms": 10, "ms": 1}]', "an object has the key 'ms' twice"),
        ('[{"nodes": 1, "ms": true}]', "ms must be positive numbers"),
        ("nodes,ms\n1," + "2" * 200_000, "is no CSV (field larger"),
        ("nodes,ms\n1,5e-324\n8,5e-324\n", "ms must be in 1e-09 to 1e+09, and one is 4.94066e-324"),
        ("nodes,ms,draft_ms\n1,1,1e308\n", "draft_ms must be in 1e-09 to 1e+09"),
        ("nodes,ms\n1,2\n5,3\n", "has 7 nodes, and milliseconds are given for 1 to 5"),
    ],
)
def test_bad_tables_are_refused_in_one_line(cli, trees, tmp_path, text, why):
    cost = save(tmp_path / "ms.csv", text)
    assert_refused(cli("tree", "length", trees, "--rule", "specinfer", "--cost", cost), why)


def test_other_refusals(cli, trees, tmp_path):
    grow = ("tree", "grow", "--acceptance", "0.5")
    assert_refused(cli(*grow), "--nodes N is needed")
    assert_refused(cli(*grow, "--cost", tmp_path / "no.csv"), "cannot be read")
    cost = save(tmp_path / "ms.csv", CSV)
    assert_refused(cli(*grow, "--nodes", 9, "--cost", cost), "gives milliseconds up to 7 nodes")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    assert_refused(cli(*grow, "--cost", tmp_path / "b.csv"), "is no text")
    before = cost.read_text()
    assert_refused(cli(*grow, "--cost", cost, "--csv", cost), "cannot write")
    assert cost.read_text() == before
    too_small = cli(
        "tree", "length", trees, "--topology", "d3b2", "--cost", save(tmp_path / "s.csv", "nodes,ms\n1,2\n")
    )
    assert_refused(too_small, "has 7 nodes")


def test_a_table_with_a_mark_at_its_beginning_and_spaces(cli, tmp_path):
    (tmp_path / "ms.csv").write_bytes(b"\xef\xbb\xbfnodes, ms\r\n1, 10\r\n\r\n8, 12\r\n")
    report = cli("tree", "grow", "--acceptance", "0.5", "--cost", tmp_path / "ms.csv", "--json", "-").json
    assert np.isclose(report["results"][0]["step_ms"], 10 + 2 / 7 * (report["results"][0]["cost"] - 1))


def test_lines_that_end_in_a_carriage_return_alone(cli, tmp_path):
    (tmp_path / "ms.csv").write_bytes(b"nodes,ms\r1,10\r8,12\r")
    report = cli("tree", "grow", "--acceptance", "0.5", "--cost", tmp_path / "ms.csv", "--json", "-").json
    assert np.isclose(report["results"][0]["step_ms"], 10 + 2 / 7 * (report["results"][0]["cost"] - 1))
