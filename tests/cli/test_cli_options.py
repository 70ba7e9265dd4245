"""Options that commands share: written where people type them, and defined once."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest
import torch
from cli_helpers import assert_refused, drawn, logs, save

from resispec_verify.cli import COMMANDS, make_app

CLI = Path(__file__).parents[2] / "resispec_verify" / "cli"
OVER_DUMPS = ("kl", "limits", "drift")
ONE_POSITION = ("explore", "picture")


@pytest.mark.parametrize("command", OVER_DUMPS)
def test_a_dump_needs_no_option(cli, dump, command):
    few = ("--candidates", 2, "--rule", "specinfer", "--json", "-")
    named, plain = cli(command, "--logits", dump, *few), cli(command, dump, *few)
    assert plain.status == named.status == 0
    assert without_seconds(plain.out) == without_seconds(named.out)


@pytest.mark.parametrize("command", ONE_POSITION)
def test_nor_does_one_position_of_it(cli, dump, command):
    named, plain = cli(command, "--logits", dump, "--json", "-"), cli(command, dump, "--json", "-")
    assert plain.status == named.status == 0
    assert plain.out == named.out
    assert_refused(cli(command, dump, dump), "give one path")
    assert_refused(cli(command, dump, "--target", "0.5,0.5", "--draft", "0.6,0.4"), "give one of FILE")


def without_seconds(out: str) -> dict[str, object]:
    report = json.loads(out)
    report.pop("seconds", None)
    return report


@pytest.mark.parametrize(
    "command", [*OVER_DUMPS, *ONE_POSITION, "runtime", "report", "replay", "tree length"]
)
def test_dumps_with_and_without_option_are_refused(cli, dump, command):
    done = cli(
        *command.split(), dump, "--logits", dump, *(["--out", "x.html"] if command == "report" else [])
    )
    assert_refused(done, f"{dump} is given as FILE", "by --logits; give all dumps as FILE")


def test_several_dumps_need_no_option(cli, dump, tmp_path):
    other = save(tmp_path / "other.pt", drawn(3, 6, seed=4), drawn(3, 6, seed=5))
    done = cli("kl", dump, other, "--rule", "specinfer", "--json", "-")
    assert done.status == 0
    assert json.loads(done.out)["dump"]["paths"] == [str(dump), str(other)]
    twice = cli("kl", dump, dump, "--rule", "specinfer")
    assert "given twice; its positions would count twice" in twice.err
    assert twice.status == 2


def test_a_report_of_a_dump_names_it_in_its_command(cli, dump, tmp_path):
    page = tmp_path / "page.html"
    assert cli("report", dump, "--out", page, "--candidates", 2, "--rule", "specinfer").status == 0
    text = page.read_text()
    assert f"resispec-verify report {dump} --rule specinfer --candidates 2" in text


@pytest.mark.parametrize("command", OVER_DUMPS)
def test_laws_by_hand_stand_alone(cli, dump, command):
    done = cli(command, dump, "--target", "0.5,0.5", "--draft", "0.6,0.4")
    assert_refused(done, "not both")


def test_options_of_a_rule_come_with_its_name(cli, dump):
    few = ("kl", dump, "--candidates", 2, "--json", "-")
    labels = [
        json.loads(done.out)["results"]
        for done in (
            cli(*few, "--rule", "resispec", "--budget", "floor"),
            cli(*few, "--rule", "resispec:budget=floor"),
            cli(*few, "--rule", "resispec[budget=floor]"),
        )
    ]
    assert labels[0] == labels[1] == labels[2]
    both = json.loads(cli(*few, "--rule", "resispec", "--rule", "resispec:hole=literal").out)["results"]
    assert len({json.dumps(result["options"]) for result in both}) == 2


@pytest.mark.parametrize(
    "rule",
    ["easd:target_entropy=1,draft_entropy=1,top_n=2,overlap=0.5,rejects=position", "csd:ratio=0.5,memory=1:2",
     "sglang:threshold_acc=0.9"],
)  # fmt: skip
def test_rules_with_parameters_can_be_verified(cli, dump, rule):
    assert cli("limits", dump, "--candidates", 1, "--rule", rule).status == 0


def test_an_option_beside_a_rule_that_says_it_would_do_nothing(cli, dump):
    done = cli("kl", dump, "--rule", "resispec:budget=floor", "--budget", "local")
    assert_refused(done, "--budget would do nothing: each rule that has it says it")
    # Where another rule takes it, the one that says it keeps its own.
    done = cli(
        "kl", dump, "--rule", "resispec:budget=local", "--rule", "eagle+resispec", "--budget", "floor",
        "--candidates", 2, "--json", "-",
    )  # fmt: skip
    budgets = {(r["rule"], r["options"]["budget"]) for r in json.loads(done.out)["results"]}
    assert budgets == {("resispec", "local"), ("eagle+resispec", "floor")}


def test_one_rule_spelled_twice_is_one_rule(cli, dump):
    done = cli("kl", dump, "--rule", "resispec", "--rule", "resispec:budget=local", "--json", "-")
    assert len(json.loads(done.out)["results"]) == 2  # its two marginals


def test_options_have_help_and_one_type_a_name_and_command():
    for name in COMMANDS:
        options = make_app()[name].assemble_argument_collection(parse_docstring=True)
        options = [option for option in options if option.show and not option.children]
        assert all(option.parameter.help for option in options), name
        assert len({option.names for option in options}) == len(options), name


def test_no_command_imports_another():
    for name in COMMANDS:
        files = sorted((CLI / name).glob("*.py")) or [CLI / f"{name}.py"]  # `tree` is three
        for node in (node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("resispec_verify.cli."):
                assert (node.module or "").split(".")[2] not in {*COMMANDS} - {name}, (name, node.module)


OWN_RULE = """
from dataclasses import replace
from resispec_verify import Rule
from resispec_verify.kernels.elementwise.residuals import standard_residual

class Mine(Rule):
    name, claims_exact, source, depends_on = "mine", True, "a test", "nothing"

    def reject(self, state, tokens):
        return replace(state, residual=standard_residual(state.residual, state.draft), round=state.round + 1)
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A rule in a module of the current folder, which is specinfer's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "rules_of_mine").mkdir()
    (tmp_path / "rules_of_mine" / "own.py").write_text(OWN_RULE)
    yield
    for name in [name for name in sys.modules if name.startswith("rules_of_mine")]:
        del sys.modules[name]


FORMS = ("rules_of_mine/own.py:Mine", "rules_of_mine.own:Mine")


@pytest.mark.parametrize("form", FORMS)
def test_a_rule_of_one_s_own_is_named_in_either_way(cli, dump, own, form):
    done = cli("kl", dump, "--rule", form, "--rule", "specinfer", "--candidates", 2, "--json", "-").json
    mine, theirs = (
        {key: value for key, value in one.items() if key in ("acceptance", "verdict")}
        for one in done["results"]
        if one["marginal"] == "operational"
    )
    assert mine == theirs
    assert mine["verdict"] == "exact"


@pytest.mark.parametrize("form", FORMS)
def test_rounds_are_replayed_by_a_rule_of_one_s_own(cli, tmp_path, own, form):
    target, draft = logs((0.5, 0.3, 0.2), (0.5, 0.3, 0.2)), logs((0.6, 0.3, 0.1))
    rounds = [
        {"draft_tokens": torch.tensor([0]), "accepted": accepted, "u": torch.tensor([u]), "next_token": 2,
         "draft_logits": draft, "target_logits": target}
        for accepted, u in ((1, 0.5), (1, 0.9))
    ]  # fmt: skip
    torch.save({"rounds": rounds}, tmp_path / "rounds.pt")
    done = cli("replay", "rounds.pt", "--rule", form, "--json", "-")
    (row,) = done.json["results"]
    # min(1, p/q) is 5/6 in both: u = 0.5 accepts, and the logged acceptance at 0.9 is wrong.
    assert (row["rule"], row["decisions"], row["agree"]) == ("mine", 2, 1)
    named = cli("replay", "--logits", "rounds.pt", "--rule", form, "--json", "-")
    assert named.out == done.out
