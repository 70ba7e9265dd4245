"""Rounds over trees, replayed: right engines agree, planted faults are found where they begin."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tree_rounds import PARENT, links, paths, rounds

from resispec_verify import InputError, make_rule
from resispec_verify.logged.replay_summary import summarize_replay
from resispec_verify.logged.tree_input import read_any_rounds
from resispec_verify.logged.tree_replay import replay_any
from resispec_verify.rules import Block

HALF = "sglang:threshold_acc=0.5"


def run(folder, entries, rule="eagle", uniforms=True, **others):
    path = folder / "trees.pt"
    torch.save({"rounds": entries} | others, path)
    if ":" in rule:
        name, option = rule.split(":")
        key, value = option.split("=")
        made = make_rule(name, **{key: float(value)})
    else:
        made = make_rule(rule)
    result = replay_any(read_any_rounds(path), made, uniforms=uniforms)
    return summarize_replay(result), result


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("rule", ["eagle", "sglang", "specinfer", HALF])
def test_a_right_engine_agrees_everywhere(tmp_path, rule, dtype):
    threshold = 0.5 if ":" in rule else 1.0
    entries = rounds(40, rule=rule.split(":")[0], threshold=threshold, dtype=dtype)
    row, result = run(tmp_path, entries, rule)
    assert row["decisions"] == row["agree"] > 60
    assert row["divergences"] == row["near_ties_differing"] == 0
    assert row["next_tokens"] == row["next_tokens_possible"] == row["next_tokens_redrawn"] == 40
    assert row["statistics"]["verdict"] == "not-rejected"
    assert row["candidates"] == 2
    assert {c.kind for c in result.checks} == {"acceptance", "residual", "bonus"}
    # Nearly all of the coins decide: rounding explains few.
    assert row["near_ties"] <= {torch.bfloat16: 8}.get(dtype, 2)


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("sglang", "siblings swapped"),
        ("eagle", "siblings swapped"),
        ("specinfer", "siblings swapped"),
        ("eagle", "parent's row"),
        ("sglang", "parent's row"),
        ("specinfer", "parent's row"),
        (HALF, "threshold ignored"),
        ("eagle", "next from the parent"),
        ("eagle", "next from the target"),
        ("sglang", "next from the target"),
        ("specinfer", "next from the target"),
    ],
)
def test_a_planted_fault_is_found_where_it_begins(tmp_path, rule, fault):
    name, threshold = rule.split(":")[0], 0.5 if ":" in rule else 1.0
    right = rounds(40, rule=name, threshold=threshold)
    wrong = rounds(40, rule=name, threshold=threshold, fault=fault)
    row, _ = run(tmp_path, wrong, rule)
    assert row["divergences"] > 0
    first = row["first_divergence"]
    # The same coins and rows: the first round whose outcome changed is the one that is named, or, where a
    # wrong decision happens to give the same outcome, an earlier one cannot be.
    changed = next(
        i for i, (a, b) in enumerate(zip(right, wrong, strict=True))
        if a["accepted_path"].tolist() != b["accepted_path"].tolist() or a["next_token"] != b["next_token"]
    )  # fmt: skip
    assert first["round"] == changed
    if fault.startswith("next"):
        assert first["kind"] in ("residual", "bonus")
        assert first["node"] == [0, *wrong[changed]["accepted_path"].tolist()][-1]
    else:
        a, b = ([0, *x[changed]["accepted_path"].tolist()] for x in (right, wrong))
        apart = next((i for i in range(min(len(a), len(b))) if a[i] != b[i]), min(len(a), len(b)))
        assert first["index"] == apart - 1 or first["kind"] != "acceptance"


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("eagle", "parent's row"),
        (HALF, "threshold ignored"),
        ("specinfer", "parent's row"),
        ("eagle", "next from the parent"),
        ("eagle", "next from the target"),
    ],
)
def test_without_uniforms_laws_and_rates_are_tested(tmp_path, rule, fault):
    name, threshold = rule.split(":")[0], 0.5 if ":" in rule else 1.0
    for planted, verdict in ((fault, "rejected"), ("", "not-rejected")):
        entries = rounds(600, rule=name, threshold=threshold, fault=planted, seed=5)
        for entry in entries:
            del entry["u"], entry["u_next"]
        row, _ = run(tmp_path, entries, rule)
        assert row["decisions"] == 0
        assert row["statistics"]["verdict"] == verdict, planted


def test_the_numbers_of_a_divergence(tmp_path):
    p = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]], dtype=torch.float64).log()
    one = {"tokens": torch.tensor([-1, 0, 1]), "parent": torch.tensor([-1, 0, 0]), "target_logits": p}
    coins = {"u": torch.tensor([0.0, 0.7, 0.55], dtype=torch.float64)}
    right = one | coins | {"accepted_path": torch.tensor([2]), "next_token": 1}
    # 0.7 > 0.5; then 0.55 < 0.3 / 0.5
    row, _ = run(tmp_path, [right, right | {"accepted_path": torch.tensor([], dtype=torch.int64)}])
    first = row["first_divergence"]
    assert (first["round"], first["index"], first["node"], first["token"]) == (1, 0, 2, 1)
    assert (first["logged"], first["recomputed"]) == ("rejected", "accepted")
    assert first["p"] == pytest.approx(0.3, rel=1e-12)
    assert first["ratio"] == pytest.approx(0.6, rel=1e-12)
    assert (first["u"], first["q"]) == (0.55, None)
    # SGLang: the root's coin, against 0.5 and then 0.8.
    coin = {"u": torch.tensor([0.79, 0.0, 0.0], dtype=torch.float64)}
    row, _ = run(tmp_path, [right | coin], "sglang")
    assert (row["decisions"], row["agree"]) == (2, 2)
    coin = {"u": torch.tensor([0.81, 0.0, 0.0], dtype=torch.float64)}
    row, _ = run(tmp_path, [right | coin], "sglang")
    assert row["first_divergence"]["ratio"] == pytest.approx(0.8, rel=1e-12)


def engine_form(entry, form):
    """The same round with the shape and the path as the engine keeps them."""
    shape = {key: value for key, value in entry.items() if key not in ("parent", "accepted_path")}
    path = entry["accepted_path"].tolist()
    if form == "sglang":
        child, sibling = links(PARENT)
        index = 14 + np.arange(len(PARENT))
        accepted = [14, *(14 + n for n in path)] + [-1] * (4 - len(path))
        shape |= {"retrive_next_token": child, "retrive_next_sibling": sibling, "retrive_index": index,
                  "accept_index": np.array(accepted), "candidates": shape.pop("tokens")}  # fmt: skip
    else:
        rows = paths(PARENT)
        best = next(i for i, row in enumerate(rows.tolist()) if row[1 : len(path) + 1] == path)
        shape |= {"retrieve_indices": rows, "best_candidate": best, "accept_length": len(path)}
    return {key: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for key, v in shape.items()}


@pytest.mark.parametrize("form", ["sglang", "eagle"])
def test_the_forms_of_engines_say_the_same(tmp_path, form):
    entries = rounds(12, rule=form)
    row, result = run(tmp_path, entries, form)
    other, again = run(tmp_path, [engine_form(entry, form) for entry in entries], form)
    assert result.checks == again.checks
    assert row == other


def test_the_order_of_links_is_the_order_of_the_tests(tmp_path):
    entries = rounds(20, rule="sglang", fault="siblings swapped")
    child, sibling = np.full(7, -1), np.full(7, -1)
    for node in range(7):
        below = [n for n in range(7) if PARENT[n] == node][::-1]
        if below:
            child[node] = below[0]
            sibling[below[:-1]] = below[1:]
    for entry in entries:
        del entry["parent"]
        entry |= {"retrieve_next_token": torch.tensor(child), "retrieve_next_sibling": torch.tensor(sibling)}
    row, _ = run(tmp_path, entries, "sglang")
    assert row["divergences"] == 0


def test_siblings_drawn_from_another_law_are_found(tmp_path):
    entries = rounds(300, rule="specinfer")
    row, _ = run(tmp_path, entries, "specinfer", meta={"siblings": "iid"})
    assert row["draft_token_test"]["verdict"] == "not-rejected"
    assert row["draft_token_test"]["draws"] == 300 * 6
    best = rounds(300, rule="eagle")
    for entry, other in zip(best, entries, strict=True):
        entry["draft_logits"] = other["draft_logits"]
    row, _ = run(tmp_path, best, "specinfer", uniforms=False, meta={"siblings": "iid"})
    assert row["draft_token_test"]["verdict"] == "rejected"


def test_a_text_that_ends_inside_the_path_says_nothing_of_what_follows(tmp_path):
    entry = next(e for e in rounds(60) if len(e["accepted_path"]) == 1)
    del entry["next_token"], entry["u_next"]
    end = int(entry["tokens"][entry["accepted_path"][0]])
    _, result = run(tmp_path, [entry], meta={"eos_token_id": end})
    assert {c.index for c in result.checks} == {0}
    _, result = run(tmp_path, [entry])
    assert 1 in {c.index for c in result.checks}


def test_repeated_uniforms_are_found(tmp_path):
    entries = rounds(30)
    for entry in entries:
        entry["u"] = entries[0]["u"]
    row, _ = run(tmp_path, entries)
    assert row["repeated_uniforms"] == 29
    assert row["repeated_uniforms_p_value"] < 1e-20
    assert row["statistics"]["verdict"] == "rejected"


@pytest.mark.parametrize(
    ("rule", "words"),
    [("specinfer", "specinfer looks at the draft, and there is no draft_logits row after node 0"),
     ("speculative", "node 0 has 2 children, and speculative verifies at most 1"),
     ("block", "block verifies chains")],
)  # fmt: skip
def test_rules_that_cannot_be_replayed(tmp_path, rule, words):
    torch.save({"rounds": rounds(2)}, tmp_path / "t.pt")
    made = Block() if rule == "block" else make_rule(rule)
    with pytest.raises(InputError) as caught:
        replay_any(read_any_rounds(tmp_path / "t.pt"), made)
    assert words in str(caught.value)


def test_penalties_over_trees_are_refused(tmp_path):
    sampling = {"sampling": {"repetition_penalty": 1.2}}
    with pytest.raises(InputError, match="log rows that have the penalties"):
        run(tmp_path, rounds(2), meta=sampling)
