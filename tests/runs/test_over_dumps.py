"""Batches are independent: whatever is cut, halved, left out or sent through JSON, the same bits come out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from resispec_verify.backends import Backend, get_backend
from resispec_verify.distributions import Sampling
from resispec_verify.dumps import FlatDump, open_dump
from resispec_verify.errors import InputError
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.rules import RULES, ResiSpec, SpecInfer, make_rule
from resispec_verify.runs.over_dumps import evaluate_dump, evaluate_spans
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import Reading
from resispec_verify.tables.table import Table

NUMPY = get_backend("numpy")
POSITIONS = 11


@pytest.fixture
def dump(tmp_path: Path) -> FlatDump:
    """Positions of two datasets and three samplings; some rows agree, so that they have no gap."""
    draw = torch.Generator().manual_seed(0)
    target = 2 * torch.randn(POSITIONS, 7, generator=draw)
    draft = torch.randn(POSITIONS, 7, generator=draw)
    draft[::3] = target[::3]
    samplings = [{"temperature": t, "top_k": k} for t, k in ((1.0, None), (0.5, None), (1.0, 3))]
    value = {
        "target_logits": target,
        "draft_logits": draft,
        "dataset": ["a", "b"] * 5 + ["a"],
        "meta": {"sampling": [samplings[i % 3] for i in range(POSITIONS)]},
    }
    torch.save(value, tmp_path / "dump.pt")
    return open_dump(tmp_path / "dump.pt")


@pytest.fixture
def mixed(tmp_path: Path) -> FlatDump:
    """Positions of one kind; every other one has few paths, so that nothing of it is left unexpanded."""
    draw = torch.Generator().manual_seed(1)
    target, draft = (2 * torch.randn(POSITIONS, 40, generator=draw) for _ in range(2))
    draft[::2, 2:] = -torch.inf
    torch.save({"target_logits": target, "draft_logits": draft}, tmp_path / "mixed.pt")
    return open_dump(tmp_path / "mixed.pt")


EVALUATION = Evaluation(
    (ResiSpec(), ResiSpec(hole="literal"), SpecInfer()), 2, budget=Budget(0.05, 1e3, 10, until_decided=False)
)


def numbers(dump: FlatDump, evaluation: Evaluation = EVALUATION, **options: Any) -> list[str]:
    """All rows, with every float in full."""
    batch = options.pop("batch", None)
    table = evaluate_dump(dump, Reading(batch=batch), evaluation, backend=NUMPY, **options)
    return [repr(row) for row in table.rows] + [repr(table.padding)]


def spans_of(size: int) -> list[tuple[int, int]]:
    return [(i, min(i + size, POSITIONS)) for i in range(0, POSITIONS, size)]


def parts(dump: FlatDump, size: int, evaluation: Evaluation = EVALUATION) -> dict:
    reading = Reading(kind="logits")
    return dict(evaluate_spans(dump, reading, evaluation, spans_of(size), backend=NUMPY))


@pytest.mark.parametrize("size", [1, 2, 3, POSITIONS])
def test_the_size_of_batches_changes_no_bit(dump, mixed, size):
    for one in (dump, mixed):
        assert numbers(one, batch=size) == numbers(one)


def test_the_mixed_dump_has_rows_with_and_without_a_gap_that_differ_from_the_target(mixed):
    table = evaluate_dump(mixed, Reading(), EVALUATION, backend=NUMPY)
    [row] = [row for row in table.rows if row.rule == ResiSpec(hole="literal") and row.verdict]
    assert {gap > 0 for gap, tv in zip(row.gap, row.tv, strict=True) if tv > 1e-3} == {True, False}


def test_any_parts_of_an_earlier_run_change_no_bit_and_are_not_evaluated_again(dump):
    whole = numbers(dump)
    rng = np.random.default_rng(0)
    for _ in range(5):
        earlier = {span: part for span, part in parts(dump, 2).items() if rng.random() < 0.5}
        kept = []
        assert numbers(dump, batch=3, done=earlier, keep=lambda span, _, k=kept: k.append(span)) == whole
        covered = sorted(kept + list(earlier))
        assert [i for first, last in covered for i in range(first, last)] == list(range(POSITIONS))


def test_parts_may_come_in_any_order(dump):
    def backwards(reading: Reading, spans: list) -> Any:
        found = evaluate_spans(dump, reading, EVALUATION, spans, backend=NUMPY)
        return reversed(list(found))

    assert numbers(dump, batch=2, run=backwards) == numbers(dump)


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_part_goes_through_json_without_losing_a_bit(dump, name):
    rule = make_rule(name)
    evaluation = replace(EVALUATION, rules=(rule,), candidates=rule.most_candidates or 2)
    for span, part in parts(dump, 4, evaluation).items():
        text = json.dumps(part.plain(), allow_nan=False)
        assert repr(Table.from_plain(json.loads(text), evaluation.rules, dump.path)) == repr(part), span


def test_an_entry_of_an_older_journal_is_read():
    """Written before the columns were declared in one place; `kl --resume` goes on from such files."""
    entry = json.loads((Path(__file__).parent / "entry_before.json").read_text(encoding="utf-8"))
    table = Table.from_plain(entry, (make_rule("specinfer"), make_rule("llama-cpp")), "d.npz")
    again = table.plain()
    assert [len(row.kl_printed) for row in table.rows] == [0, 2, 0]
    assert again == {key: entry[key] for key in again}
    assert set(entry) - set(again) == {"dump", "span"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda row: row.pop("tv"),
        lambda row: row["tv"].append(0.5),
        lambda row: row.update(tv="0.5, 0.5"),
        lambda row: row.update(verdict=["perhaps", "exact"]),
    ],
)
def test_a_damaged_entry_is_not_read(damage):
    entry = json.loads((Path(__file__).parent / "entry_before.json").read_text(encoding="utf-8"))
    damage(entry["tables"][0])
    with pytest.raises((KeyError, TypeError, ValueError)):
        Table.from_plain(entry, (make_rule("specinfer"), make_rule("llama-cpp")), "d.npz")


def test_an_infinite_bias_goes_through_json(tmp_path):
    logits = torch.tensor([[0.0, 1.0, 2.0]])
    sampling = {"logit_bias": {1: -torch.inf}, "draft": {"logit_bias": {2: -torch.inf}}}
    meta = {"sampling": sampling}
    torch.save({"target_logits": logits, "draft_logits": logits, "meta": meta}, tmp_path / "d.pt")
    dump = open_dump(tmp_path / "d.pt")
    [(_, part)] = evaluate_spans(dump, Reading(kind="logits"), EVALUATION, [(0, 1)], backend=NUMPY)
    text = json.dumps(part.plain(), allow_nan=False)
    assert repr(Table.from_plain(json.loads(text), EVALUATION.rules, dump.path)) == repr(part)


def test_infinite_numbers_go_through_json(tmp_path):
    logits = torch.tensor([[0.0, 0.0, -torch.inf]])
    torch.save({"target_logits": logits, "draft_logits": torch.zeros(1, 3)}, tmp_path / "d.pt")
    dump = open_dump(tmp_path / "d.pt")
    evaluation = Evaluation((make_rule("llama-cpp"),), 1)
    reading = Reading(kind="logits")
    [(_, part)] = evaluate_spans(dump, reading, evaluation, [(0, 1)], backend=NUMPY)
    row = part.rows[0]
    row.kl_high = [np.inf]  # whatever the rule gives: what is stored must come back
    again = Table.from_plain(
        json.loads(json.dumps(part.plain(), allow_nan=False)), evaluation.rules, dump.path
    )
    assert again.rows[0].kl_high == [np.inf]
    assert repr(again) == repr(part)


def test_samplings_of_one_temperature_stay_apart(dump):
    part = Table()
    for one in parts(dump, 3).values():
        part.extend(one)
    assert set(part.by_sampling) == {
        (name, Sampling(t, k)) for name in "ab" for t, k in ((1.0, None), (0.5, None), (1.0, 3))
    }


class OutOfMemoryError(RuntimeError):
    """Named as torch's, which is no MemoryError either."""


class Small:
    """A backend whose device holds at most so many elements."""

    def __init__(self, most: int, error: type[Exception]) -> None:
        self.most, self.error, self.asked = most, error, []

    @property
    def backend(self) -> Backend:
        here = self

        class Device(Backend):
            def asarray(self, array: np.ndarray) -> Any:
                here.asked.append(len(array))
                if array.size > here.most:
                    raise here.error("out of memory")
                return array

        return Device("small", NUMPY.xp)


@pytest.mark.parametrize("error", [MemoryError, OutOfMemoryError])
def test_where_memory_ends_batches_are_halved_and_the_run_goes_on(dump, error):
    small, notes, kept = Small(7, error), [], []  # a batch of 2 is one row a dataset
    table = evaluate_dump(
        dump, Reading(batch=8, samplings=(Sampling(),)), EVALUATION, backend=small.backend,
        note=notes.append, keep=lambda span, part: kept.append(span),
    )  # fmt: skip
    assert kept == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 11)]
    assert small.asked.count(4) == small.asked.count(2) == 1  # what does not fit is not tried again
    assert len(notes) == 2
    assert "8 positions at a time; going on with 4" in notes[0]
    whole = evaluate_dump(dump, Reading(samplings=(Sampling(),)), EVALUATION, backend=NUMPY)
    assert repr(table.rows) == repr(whole.rows)


def test_one_position_that_does_not_fit_is_an_error(dump):
    small = Small(6, MemoryError)
    with pytest.raises(InputError, match=r"does not hold position 0 alone.*--backend numpy"):
        evaluate_dump(dump, Reading(batch=4), EVALUATION, backend=small.backend)


def test_other_errors_are_not_taken_for_memory(dump):
    small = Small(0, RuntimeError)
    with pytest.raises(RuntimeError):
        evaluate_dump(dump, Reading(batch=4), EVALUATION, backend=small.backend)
    assert len(small.asked) == 1
