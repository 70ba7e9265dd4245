"""`replay` of rounds over trees, and with uniforms that were not logged, from the command line."""

from __future__ import annotations

import numpy as np
import torch
from tree_rounds import rounds


def test_trees_are_replayed_and_a_fault_is_named(cli, tmp_path):
    torch.save({"rounds": rounds(20)}, tmp_path / "right.pt")
    shown = cli("replay", tmp_path / "right.pt", "--rule", "eagle", "--require-agreement")
    assert shown.status == 0
    assert "divergence" not in shown.out
    torch.save({"rounds": rounds(20, fault="next from the parent")}, tmp_path / "wrong.pt")
    shown = cli(
        "replay", tmp_path / "wrong.pt", "--rule", "eagle", "--require-agreement", "--csv", tmp_path / "c.csv"
    )
    assert shown.status == 1
    assert "divergences" in shown.out
    assert ", node " in shown.out
    assert (tmp_path / "c.csv").read_text().splitlines()[0].endswith("status,node")


def test_trees_need_a_rule_that_fits(cli, tmp_path):
    torch.save({"rounds": rounds(2)}, tmp_path / "t.pt")
    shown = cli("replay", tmp_path / "t.pt")
    assert shown.status == 2
    assert "name the rule that the engine follows with --rule" in shown.err


def test_inspect_knows_them(cli, tmp_path):
    torch.save({"rounds": rounds(5, rule="specinfer"), "note": 1}, tmp_path / "t.pt")
    result = cli("inspect", tmp_path / "t.pt", "--json", "-").json["results"][0]
    assert result["problems"] == []
    assert result["rounds"]["gamma"] == [6, 6]
    assert result["rounds"]["uniforms"] is True
    assert cli("inspect", tmp_path / "t.pt").status == 0


def test_uniforms_and_no_uniforms_exclude_each_other(cli, tmp_path):
    one = {"draft_tokens": torch.tensor([0]), "draft_logits": torch.zeros(1, 3), "accepted": 1,
           "context_len": 4, "target_logits": torch.tensor(3 * np.eye(3)[[0, 1]])}  # fmt: skip
    torch.save({"rounds": [one], "meta": {"seed": 3}}, tmp_path / "r.pt")
    assert "not both" in cli("replay", tmp_path / "r.pt", "--uniforms", "vllm", "--no-uniforms").err
    shown = cli("replay", tmp_path / "r.pt", "--uniforms", "vllm", "--json", "-")
    assert shown.json["results"][0]["decisions"] == 1
    assert shown.json["results"][0]["first_divergence"] is None
