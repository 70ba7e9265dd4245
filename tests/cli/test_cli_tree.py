"""`tree`: accepted length over recorded trees, the cost of trees, and the best tree of a budget."""

import csv
import itertools

import numpy as np
import pytest
import torch
from cli_helpers import EXAMPLE, assert_one_line, assert_refused, drawn, lines_of, save

from resispec_verify.rules import RULES

PARENT = (-1, 0, 0, 1, 1, 2, 2)  # d3b2


def save_tree(path, prefixes=3, vocab=6, parent=PARENT, seed=0, **others):
    inner = 3
    generator = torch.Generator().manual_seed(seed)
    content = {
        "parent": torch.as_tensor(parent),
        "tokens": torch.randint(vocab, (prefixes, len(parent)), generator=generator),
        "target_logits": drawn(prefixes, inner, vocab, seed=seed + 1),
        "draft_logits": drawn(prefixes, inner, vocab, seed=seed + 2),
    }
    torch.save({**content, **others}, path)
    return path


@pytest.fixture
def trees(tmp_path):
    return save_tree(tmp_path / "trees.pt")


def test_what_trees_cost(cli):
    result = cli("tree", "--json", "-", *(f"--topology={t}" for t in ("d7b2", "d5b3", "d4b5", "-1,0,0,1")))
    report = result.json
    assert (report["schema"], report["command"]) == (1, "tree")
    assert [(r["topology"], r["cost"], r["levels"]) for r in report["results"]] == [
        ("d7b2", 127, 7), ("d5b3", 121, 5), ("d4b5", 156, 4), ("-1,0,0,1", 4, 3),
    ]  # fmt: skip
    assert report["results"][1]["nodes_by_level"] == [1, 3, 9, 27, 81]
    shown = cli("tree", "--topology", "d3b11", "--topology", "-1,0,0,1")
    assert shown.status == 0
    assert "d3b11    133" in shown.out


def test_the_length_of_a_recorded_tree(cli, trees, tmp_path):
    options = ("--rule", "specinfer", "--rule", "optimal-joint", "--topology", "d3b2", "--topology", "d2b2")
    result = cli("tree", "--logits", trees, *options, "--json", tmp_path / "r.json", "--csv", "-")
    assert result.status == 0
    assert "accepted length of a step" in result.err  # the table, since standard output has the CSV
    lines = lines_of(result.out)
    assert len(lines) == 2 * 2 * 3
    report = cli("tree", "--logits", trees, *options, "--json", "-").json
    for row in report["results"]:
        mine = [line for line in lines if (line["rule"], line["topology"]) == (row["rule"], row["topology"])]
        lengths = [float(line["accepted_length"]) for line in mine]
        assert [line["prefix"] for line in mine] == ["0", "1", "2"]
        assert row["accepted_length_mean"] == pytest.approx(np.mean(lengths))
        assert row["accepted_length_sd"] == pytest.approx(np.std(lengths, ddof=1))
        assert row["accepted_length_se"] == pytest.approx(row["accepted_length_sd"] / 3**0.5)
        assert row["limit_mean"] == pytest.approx(np.mean([float(line["limit"]) for line in mine]))
        assert row["cost"] == {"d3b2": 7, "d2b2": 3}[row["topology"]]
        assert (row["prefixes"], row["siblings"], row["limit_kind"]) == (3, "iid", "iid")
        assert len(row["acceptance"]) == 2
        assert row["reached"][0] == pytest.approx(1.0)
        assert sum(row["reached"]) == pytest.approx(row["accepted_length_mean"])


@pytest.mark.parametrize(
    ("now", "earlier"),
    [
        (("cost", "d3b2", "-1,0,0,1"), ("--topology", "d3b2", "--topology", "-1,0,0,1")),
        (("length", "TREES", "--topology", "d2b2"), ("--logits", "TREES", "--topology", "d2b2")),
        (("grow", "TREES", "--nodes", 9), ("--logits", "TREES", "--grow", 9)),
        (("grow", "--nodes", 9, "--levels", 3, "--acceptance", "0.5,0.2"),
         ("--grow", 9, "--levels", 3, "--acceptance", "0.5,0.2")),
    ],
)  # fmt: skip
def test_the_earlier_spelling_says_the_same(cli, trees, tmp_path, now, earlier):
    def run(words, name):
        report = tmp_path / name
        result = cli("tree", *(trees if word == "TREES" else word for word in words), "--csv", report)
        assert result.status == 0, result.err
        json = cli("tree", *(trees if word == "TREES" else word for word in words), "--json", "-").json
        return result.out, report.read_text(), json

    assert run(now, "now.csv") == run(earlier, "earlier.csv")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cost",), ["one or more trees"]),
        (("cost", "d5c3"), ["--topology: 'd5c3' is no tree"]),
        (("cost", "d3b2", "--rule", "specinfer"), ["--rule"]),
        (("length",), ["one or more tree dumps"]),
        (("length", "TREES", "--grow", "5"), ["--grow", "tree length --help"]),
        (("length", EXAMPLE), ["is a flat dump, and a tree"]),
        (("grow", "TREES"), ["--nodes", "tree grow --help"]),
        (("grow", "TREES", "--nodes", "0"), ["--nodes must be in 1..512"]),
        (("grow", "TREES", "--nodes", "5", "--topology", "d3b2"), ["--topology"]),
        (("grow", "TREES", EXAMPLE, "--nodes", "5"), ["not both at once"]),
        (("grow", "TREES", "--nodes", "5", "--acceptance", "0.5"), ["not both"]),
        (("grow", "--nodes", "5", "--acceptance", "0.5", "--top-k", "5"), ["--top-k needs a dump"]),
        (("grow", "--nodes", "5"), ["--acceptance A,B,... or FILE"]),
        (("prune", "TREES"), ["tree --help"]),
    ],
)
def test_bad_usage_of_each_is_one_line(cli, trees, arguments, words):
    assert_refused(cli("tree", *(trees if a == "TREES" else a for a in arguments)), *words)


def test_the_default_rules_are_those_for_the_candidates(cli, tmp_path):
    found = {}
    tokens = torch.tensor([[0, 3, 2, 1, 4, 5, 0]] * 2)
    for siblings in ("iid", "without-replacement", "pairs"):
        path = save_tree(tmp_path / f"{siblings}.pt", 2, tokens=tokens, meta={"siblings": siblings})
        found[siblings] = [r["rule"] for r in cli("tree", "--logits", path, "--json", "-").json["results"]]
    assert found["iid"][:2] == ["speculative", "specinfer"]
    assert "resispec" in found["iid"]
    for siblings in ("without-replacement", "pairs"):
        assert found[siblings] == [name for name, rule in RULES.items() if rule.proposal.name == siblings]


def test_several_dumps_are_pooled_and_temperatures_are_not(cli, tmp_path):
    paths = [
        save_tree(tmp_path / f"{i}.pt", seed=i, meta={"sampling": {"temperature": t}})
        for i, t in enumerate((1.0, 1.0, 0.5))
    ]
    report = cli("tree", "--logits", *paths, "--rule", "specinfer", "--json", "-").json
    assert [(r["temperature"], r["prefixes"]) for r in report["results"]] == [(1.0, 6), (0.5, 3)]
    twice = cli("tree", "--logits", *paths, paths[0], "--rule", "specinfer", "--json", "-")
    assert twice.status == 2
    assert_one_line(twice.err.splitlines()[-1], "given twice; its prefixes would count twice")
    assert twice.json == report
    one = cli("tree", "--logits", paths[0], "--rule", "specinfer", "--json", "-").json["results"][0]
    two = cli("tree", "--logits", paths[1], "--rule", "specinfer", "--json", "-").json["results"][0]
    both = report["results"][0]
    assert both["accepted_length_mean"] == pytest.approx(
        (one["accepted_length_mean"] + two["accepted_length_mean"]) / 2
    )


def test_the_best_tree_of_a_budget(cli, trees):
    result = cli("tree", "--grow", 4, "--acceptance", "0,0,0.9", "--json", "-")
    (row,) = result.json["results"]
    assert (row["topology"], row["cost"], row["predicted_length"]) == ("d2b3", 4, 1.9)
    limited = cli("tree", "--grow", 50, "--levels", 2, "--acceptance", "0.5,0.2", "--json", "-").json
    assert limited["results"][0]["topology"] == "d2b2"
    assert "by hand: -1,0,0,1,3" in cli("tree", "--grow", 5, "--acceptance", "0.5,0.2,0.05").out
    measured = cli("tree", "--grow", 20, "--logits", trees, "--rule", "specinfer", "--json", "-").json
    (row,) = measured["results"]
    assert [len(rates) for rates in row["acceptance"]] == [1, 2]
    assert row["cost"] <= 20
    flat = cli("tree", "--grow", 9, "--logits", EXAMPLE, "--rule", "optimal-sequential", "--candidates", 3,
               "--json", "-").json["results"][0]  # fmt: skip
    limits = cli("limits", "--logits", EXAMPLE, "--rule", "optimal-sequential", "--json", "-").json
    assert sum(flat["acceptance"][2]) == pytest.approx(limits["results"][0]["acceptance_mean"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["nothing to do"]),
        (("--topology", "d5c3"), ["--topology: 'd5c3' is no tree"]),
        (("--topology", "-1,2,1"), ["node 1 has parent 2"]),  # a cycle
        (("--topology", "-1,0,7"), ["node 2 has parent 7"]),  # no such node
        (("--topology", "-1,0,-1"), ["node 2 has parent -1"]),  # an orphan
        (("--topology", "d99b9"), ["take a smaller tree"]),
        (("--topology", "d3b2", "--rule", "specinfer"), ["--rule needs a dump"]),
        (("--topology", "d3b2", "--pad-vocab"), ["--pad-vocab needs a dump"]),
        (("--topology", "d3b2", "--top-k", "5"), ["--top-k needs a dump"]),
        (("--grow", "5", "--acceptance", "0.5", "--rule", "specinfer"), ["--rule needs a dump"]),
        (("--grow", "5", "--acceptance", "0.5", "--candidates", "2"), ["--candidates needs a dump"]),
        (("--grow", "5", "--acceptance", "0.5", "--temperature", "0.5"), ["--temperature needs a dump"]),
        (("--topology", "d65536b1"), ["65536 levels; at most 512"]),
        (("--topology", "d3b2", "--levels", "2"), ["--levels needs --grow"]),
        (("--grow", "0", "--acceptance", "0.5"), ["--grow must be in 1..512"]),
        (("--grow", "5", "--acceptance", "0.9,0.2"), ["sum to at most 1"]),
        (("--grow", "5", "--acceptance", "nan"), ["probabilities in [0, 1]"]),
        (("--grow", "5", "--acceptance", "a"), ["0.6,0.2,0.1"]),
        (("--grow", "5", "--levels", "0", "--acceptance", "0.5"), ["--levels must be at least 1"]),
        (("--grow", "5", "--topology", "d3b2"), ["leave --topology out"]),
        (("--grow", "5"), ["--acceptance A,B,... or FILE"]),
        (("--logits", "none.pt"), ["none.pt"]),
        (("--logits", EXAMPLE), ["is a flat dump, and a tree"]),
        (("--logits", "TREES", "--temperature", "-1"), ["--temperature must be"]),
        (("--logits", "TREES", "--topology", "d4b2"), ["recorded tree d3b2"]),
        (("--logits", "TREES", "--topology", "d3b3"), ["has 3 children, and 2 in the recorded tree"]),
        (("--logits", "TREES", "--rule", "sequoia"), ["'without-replacement'", "'iid'", "--siblings"]),
        (("--logits", "TREES", "--rule", "block"), ["verifies paths"]),
        (("--logits", "TREES", "--rule", "specinfr"), ["did you mean 'specinfer'"]),
        (("--logits", "TREES", "--siblings", "without-replacement"), ["repeat"]),
        (("--logits", "TREES", "--siblings", "nonsense"), ["no rule is for candidates drawn 'nonsense'"]),
        (("--logits", "TREES", "--temperature", "0", "--rule", "specinfer"), ["has draft probability 0"]),
        (("--logits", "TREES", "--grow", "5", "--candidates", "2"), ["--candidates is for flat dumps"]),
        (("--logits", "TREES", EXAMPLE, "--grow", "5"), ["not both at once"]),
        (("--logits", "TREES", "--json", "missing/x.json"), ["does not exist"]),
        (("--logits", "TREES", "--json", "TREES"), ["choose another name"]),
    ],
)
def test_bad_usage_is_one_line(cli, tmp_path, arguments, words):
    path = save_tree(tmp_path / "trees.pt", tokens=torch.zeros(3, 7, dtype=torch.int64) + 2)
    assert_refused(cli("tree", *(path if a == "TREES" else a for a in arguments)), *words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parent": ([-1, 0, 0, 1, 1, 6, 5])}, ["parent of node 5 is 6", "comes before it"]),
        ({"parent": ([-1, 0, 0, 1, 1, 2, -1])}, ["parent of node 6 is -1"]),
        ({"parent": ([0, 0, 0, 1, 1, 2, 2])}, ["node 0 must be the root"]),
        ({"tokens": torch.full((3, 7), 6)}, ["tokens", "6"]),
        ({"tokens": torch.full((3, 7), -1)}, ["only the root may have none"]),
        ({"target_logits": torch.full((3, 3, 6), torch.nan)}, ["target_logits", "NaN"]),
        ({"meta": {"sampling": {"temperature": "hot"}}}, ["must be a number"]),
        ({"meta": {"siblings": 7}}, ["must be a name"]),
        (
            {
                "parent": (-1, *range(600)),
                "tokens": torch.zeros(3, 601, dtype=torch.int64),
                "target_logits": drawn(3, 600, 6),
                "draft_logits": drawn(3, 600, 6),
            },
            ["trees.pt", "601 levels; at most 512"],
        ),
    ],
)
def test_bad_trees_are_one_line(cli, tmp_path, changes, words):
    path = save_tree(tmp_path / "trees.pt", **changes)
    assert_refused(cli("tree", "--logits", path, "--rule", "specinfer"), *words)


@pytest.mark.parametrize(
    ("siblings", "topology"), [("IID", "d3b2"), ("", "d3b2"), ("pairs", "d3b1"), ("nonsense", "d1b1")]
)
def test_candidates_that_no_rule_verifies_are_refused_and_not_passed_over(cli, tmp_path, siblings, topology):
    tokens = torch.tensor([[0, 3, 2, 1, 4, 5, 0]] * 3)
    path = save_tree(tmp_path / "trees.pt", tokens=tokens, meta={"siblings": siblings})
    refused = cli("tree", "--logits", path, "--topology", topology, "--json", tmp_path / "report.json")
    assert_refused(refused, "trees.pt", f"candidates drawn {siblings!r}")
    assert not (tmp_path / "report.json").exists()


def test_a_tree_that_is_named_twice_counts_once(cli, trees):
    named = ("d2b2", "-1,0,0", " d2b2")
    options = [f"--topology={text}" for text in named]
    report = cli("tree", "--logits", trees, "--rule", "specinfer", *options, "--json", "-").json
    assert [(row["topology"], row["prefixes"]) for row in report["results"]] == [("d2b2", 3)]
    assert len(cli("tree", *options, "--json", "-").json["results"]) == 1


def test_another_temperature_is_another_tree(cli, tmp_path):
    path = save_tree(tmp_path / "t.pt", meta={"sampling": {"temperature": 0.6}, "siblings": "iid"})
    report = cli("tree", "--logits", path, "--rule", "specinfer", "--json", "-").json
    assert report["results"][0]["temperature"] == 0.6
    assert cli("tree", "--logits", path, "--rule", "specinfer", "--temperature", "0.6").status == 0
    for option in (("--temperature", 1), ("--top-k", 3), ("--min-p", 0.1)):
        refused = cli("tree", "--logits", path, "--rule", "specinfer", *option)
        assert_refused(refused, f"leave {option[0]} out", "record trees with it")


def test_a_bad_dump_does_not_take_the_others_along(cli, trees, tmp_path):
    result = cli(
        "tree", "--logits", tmp_path / "none.pt", trees, "--rule", "specinfer", "--csv", tmp_path / "o.csv"
    )
    assert result.status == 2
    assert_one_line(result.err, "none.pt")
    with open(tmp_path / "o.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 3


def test_nor_does_it_when_a_tree_is_grown(cli, trees, tmp_path):
    broken = tmp_path / "broken.pt"
    broken.write_bytes(b"no dump")
    flat = save(tmp_path / "flat.pt", drawn(4, 6), drawn(4, 6, seed=1))
    for bad, good in itertools.product((tmp_path / "none.pt", broken), (trees, flat)):
        result = cli("tree", "--logits", bad, good, "--grow", 6, "--rule", "specinfer")
        assert result.status == 2
        assert_one_line(result.err, bad.name)
        assert "\nspecinfer: " in result.out


def test_a_rule_of_ones_own(cli, trees, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\nfrom resispec_verify import Rule\n"
        "@dataclass(frozen=True)\nclass Never(Rule):\n"
        "    name = 'never'\n    claims_exact = True\n    source = 'a test'\n    depends_on = 'nothing'\n"
        "    def accept(self, state):\n        return state.draft * 0\n"
        "    def reject(self, state, tokens):\n"
        "        from dataclasses import replace\n        return replace(state, round=state.round + 1)\n"
    )
    report = cli("tree", "--logits", trees, "--rule", f"{path}:Never", "--json", "-").json
    (row,) = report["results"]
    assert (row["rule"], row["accepted_length_mean"], row["acceptance"]) == ("never", 1.0, [0.0, 0.0])


def test_flat_dumps_by_hand(cli, tmp_path):
    path = save(tmp_path / "flat.pt", drawn(4, 6), drawn(4, 6, seed=1))
    result = cli("tree", "--logits", path, "--grow", 6)
    assert result.status == 0
    assert "optimal-joint" in result.out
    assert_refused(cli("tree", "--logits", path, "--grow", 6, "--siblings", "iid"), "--siblings is for tree")
