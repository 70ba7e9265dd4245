"""Any number of threads: the same bits, the first error in order, no more at a time than was asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from resispec_verify.backends import Backend, get_backend
from resispec_verify.dumps import FlatDump, open_dump
from resispec_verify.errors import InputError
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.rules import RULES, SpecInfer, make_rule
from resispec_verify.runs.over_dumps import evaluate_dump, over_batches
from resispec_verify.tables import marginals, table
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import Reading, rows_in_cache
from resispec_verify.threads import as_finished, at_most, cores, in_threads

NUMPY = get_backend("numpy")
POSITIONS = 11
EVALUATION = Evaluation((SpecInfer(),), 2, budget=Budget(0.05, 1e3, 10, until_decided=False))


def saved(path: Path, *bad: int) -> FlatDump:
    draw = torch.Generator().manual_seed(3)
    target, draft = (2 * torch.randn(POSITIONS, 24, generator=draw) for _ in range(2))
    for position in bad:
        draft[position, 5] = torch.nan
    torch.save({"target_logits": target, "draft_logits": draft}, path)
    return open_dump(path)


@pytest.fixture
def dump(tmp_path: Path) -> FlatDump:
    return saved(tmp_path / "dump.pt")


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[int]], Any]], None]:
    """Have something done before batches of these positions are evaluated."""

    def patch(do: Callable[[list[int]], Any]) -> None:
        evaluate = marginals.evaluate

        def evaluated(*given: Any, **options: Any) -> None:
            do(given[0].positions.tolist())
            evaluate(*given, **options)

        monkeypatch.setattr(table, "evaluate", evaluated)

    return patch


def numbers(dump: FlatDump, evaluation: Evaluation = EVALUATION, **options: Any) -> list[str]:
    batch = options.pop("batch", None)
    found = evaluate_dump(dump, Reading(batch=batch), evaluation, backend=NUMPY, **options)
    return [repr(row) for row in found.rows]


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_number_of_threads_changes_no_bit(dump, name):
    rule = make_rule(name)
    evaluation = replace(EVALUATION, rules=(rule,), candidates=rule.most_candidates or 2)
    whole = numbers(dump, evaluation, jobs=1, batch=POSITIONS)
    for jobs in (1, 2, 5):
        for batch in (None, 1, 4):
            assert numbers(dump, evaluation, jobs=jobs, batch=batch) == whole


def test_positions_are_in_order_whatever_is_finished_first(dump, before):
    before(lambda positions: time.sleep(0.02 * (POSITIONS - positions[0]) / POSITIONS))
    kept: list[tuple[int, int]] = []
    found = evaluate_dump(
        dump, Reading(batch=1), EVALUATION, backend=NUMPY, jobs=5, keep=lambda span, _: kept.append(span)
    )
    assert all(row.position == list(range(POSITIONS)) for row in found.rows)
    assert sorted(kept) == [(i, i + 1) for i in range(POSITIONS)]


def test_batches_of_other_work_are_in_order(dump):
    def slow(batch: Any) -> list[int]:
        time.sleep(0.01 * (batch.positions[0] % 3))
        return batch.positions.tolist()

    advanced: list[int] = []
    options: dict[str, Any] = {"backend": NUMPY, "jobs": 4, "advance": advanced.append}
    assert over_batches(dump, Reading(batch=2), slow, **options) == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
        [8, 9],
        [10],
    ]
    assert sum(advanced) == POSITIONS


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_the_first_bad_position_is_told_and_those_before_it_are_kept(tmp_path, before, jobs):
    dump = saved(tmp_path / "bad.pt", 4, 6)
    before(lambda positions: time.sleep(0.02 if positions[0] < 4 else 0))  # later ones fail first
    kept: list[int] = []
    with pytest.raises(InputError, match=r"bad\.pt: draft_logits has NaN at position 4, token 5"):
        numbers(dump, jobs=jobs, batch=1, keep=lambda span, _: kept.append(span[0]))
    assert set(kept) >= {0, 1, 2, 3}
    assert not {4, 6} & set(kept)
    with pytest.raises(InputError, match="position 4"):
        over_batches(dump, Reading(batch=1), repr, backend=NUMPY, jobs=jobs)


def test_after_an_error_no_more_is_begun(dump, before):
    begun: list[int] = []

    def fail(positions: list[int]) -> None:
        begun.extend(positions)
        if positions == [0]:
            raise InputError("it fails")
        time.sleep(0.05)

    before(fail)
    with pytest.raises(InputError, match="it fails"):
        numbers(dump, jobs=2, batch=1)
    assert max(begun) < 4


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_no_more_is_worked_on_at_a_time_than_was_asked(dump, before, jobs):
    lock, inside, most = threading.Lock(), [0], [0]

    def count(positions: list[int]) -> None:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        time.sleep(0.01)
        with lock:
            inside[0] -= 1

    before(count)
    numbers(dump, jobs=jobs, batch=1)
    assert most[0] == jobs


def test_arrays_of_other_libraries_are_one_threads_work(dump, before):
    seen = set()
    before(lambda positions: seen.add(threading.get_ident()))
    evaluate_dump(dump, Reading(batch=1), EVALUATION, backend=get_backend("torch"), jobs=3)
    assert seen == {threading.get_ident()}


def test_where_memory_ends_with_several_threads_batches_are_halved_once(dump, before):
    notes: list[str] = []

    def most_three(positions: list[int]) -> None:
        time.sleep(0.01)
        if len(positions) > 3:
            raise MemoryError

    whole = numbers(dump, jobs=1)
    before(most_three)
    kept: list[tuple[int, int]] = []
    keep = {"keep": lambda span, _: kept.append(span), "note": notes.append}
    assert numbers(dump, jobs=2, batch=4, **keep) == whole
    assert notes == ["out of memory with 4 positions at a time; going on with 2 (--batch 2)"]
    assert sorted(kept) == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 11)]


def test_where_memory_does_not_hold_two_threads_one_goes_on(dump, before):
    notes: list[str] = []
    inside = threading.Semaphore(1)

    def alone(positions: list[int]) -> None:
        if not inside.acquire(blocking=False):
            raise MemoryError
        time.sleep(0.01)
        inside.release()

    whole = numbers(dump, jobs=1)
    before(alone)
    assert numbers(dump, jobs=3, batch=1, note=notes.append) == whole
    assert notes == ["out of memory with 1 positions at a time; going on with one thread (--jobs 1)"]


def test_a_position_that_memory_never_holds_is_an_error_with_any_number_of_threads(dump, before):
    def never(positions: list[int]) -> None:
        if 5 in positions:
            raise MemoryError

    before(never)
    with pytest.raises(InputError, match="does not hold position 5 alone"):
        numbers(dump, jobs=3, batch=2)


def test_memory_of_a_device_is_that_of_one_thread(dump):
    class Device(Backend):
        def asarray(self, array: Any) -> Any:
            if len(array) > 1:
                raise MemoryError
            return array

    notes: list[str] = []
    evaluate_dump(
        dump, Reading(batch=2), EVALUATION, backend=Device("small", NUMPY.xp), jobs=3, note=notes.append
    )
    assert notes == ["out of memory with 2 positions at a time; going on with 1 (--batch 1)"]


def idents(_: int) -> set[int]:
    return set(in_threads(lambda item: threading.get_ident(), range(8)))


def two_at_a_time(patience: float) -> bool:
    """Whether two threads are inside together: else each waits for the other in vain."""
    gate = threading.Barrier(2)

    def meet(_: int) -> bool:
        try:
            gate.wait(patience)
        except threading.BrokenBarrierError:
            return False
        return True

    return all(in_threads(meet, range(2)))


def test_what_runs_on_a_thread_of_many_starts_no_more():
    gate = threading.Barrier(2, timeout=60)

    def both(item: int) -> set[int]:
        gate.wait()  # both are under way, before and after
        found = idents(item)
        gate.wait()
        return found

    assert all(len(found) == 1 for _, found in as_finished(both, [0, 1, 2, 3], 2))
    with at_most(1):
        assert idents(0) == {threading.get_ident()}
    with at_most(2):
        assert two_at_a_time(60)


def test_the_last_item_may_use_all_threads():
    assert dict(as_finished(lambda _: two_at_a_time(60), [0], 2)) == {0: True}
    assert dict(as_finished(lambda _: two_at_a_time(0.05), [0], 1)) == {0: False}


def test_nobody_waits_for_what_is_not_wanted_any_more():
    go, begun = threading.Event(), list[int]()

    def work(item: int) -> int:
        begun.append(item)
        if item:
            go.wait(60)
        return item

    found = as_finished(work, range(9), 2)
    assert next(found) == (0, 0)
    found.close()
    assert len(begun) <= 3
    go.set()


def test_the_cores_that_this_process_may_use():
    assert cores() >= 1


@pytest.mark.parametrize(("vocab", "rows"), [(1, 64), (2048, 64), (49152, 2), (262144, 1), (1 << 22, 1)])
def test_rows_that_fit_a_core(vocab, rows):
    assert rows_in_cache(vocab) == rows


@pytest.mark.parametrize(("vocab", "rows"), [(1, 64), (49152, 10), (262144, 2), (1 << 22, 1)])
def test_rows_of_light_work(vocab, rows):
    assert rows_in_cache(vocab, light=True) == rows


def test_a_dump_is_cut_alike_for_all_threads(dump, monkeypatch):
    def spans(jobs: int) -> list[tuple[int, int]]:
        kept: list[tuple[int, int]] = []
        numbers(dump, jobs=jobs, keep=lambda span, _: kept.append(span))
        return sorted(kept)

    assert spans(1) == [(0, 11)]
    assert spans(3) == [(0, 3), (3, 7), (7, 11)]
    monkeypatch.setattr("resispec_verify.runs.over_dumps.rows_in_cache", lambda vocab, light: 4)
    assert spans(1) == [(0, 3), (3, 7), (7, 11)]
    assert spans(2) == [(0, 2), (2, 5), (5, 8), (8, 11)]
    assert spans(13) == [(i, i + 1) for i in range(11)]
