"""Audits that end early, go on from a journal, or whose engines die: what they still say."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from audit_helpers import PROMPTS, InProcess, draft_of, two

from resispec_verify.audit.interface import EngineError, Sampling
from resispec_verify.audit.run import audit
from resispec_verify.audit.settings import AuditSettings
from resispec_verify.errors import InputError
from resispec_verify.runs.journal import Journal

SETTINGS = AuditSettings(prompts=PROMPTS, tokens=600, length=24, top=40, concurrency=2)
HEADER = {"journal": "a test", "engines": "two", "settings": {"seed": 0}}


def plain(found):
    """The result without what is of the clock."""
    result = found.result()
    del result["seconds"]
    return result


class Killed(BaseException):
    """The end of the process."""


def killer(after):
    """Ends the run after so many steps."""
    left = [after]

    def progress(what, tokens, evidence):
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    return progress


@pytest.mark.parametrize("fault", [None, "correction-from-next-row"])
def test_a_run_that_is_killed_again_and_again_gives_the_same_result(tmp_path, fault):
    def one_run(journal=None, **how):
        engine, reference = two(fault, rounds=True)
        found = audit(engine, reference, SETTINGS, draft=draft_of(engine), journal=journal, **how)
        return plain(found), engine.completed + reference.completed

    whole, asked = one_run()
    path = tmp_path / "journal"
    for after in (3, 9):
        with Journal(path, HEADER) as journal, pytest.raises(Killed):
            one_run(journal, progress=killer(after))
    with Journal(path, HEADER) as journal:
        kept = len(journal.entries)
        assert kept >= 9
        resumed, anew = one_run(journal)
    assert resumed == whole
    assert anew < asked
    with Journal(path, HEADER) as journal:
        again, anew = one_run(journal)
    assert again == whole
    # What is asked again: once for its own log-probabilities, what was begun ahead of the end, and, of a
    # rejection, for the smallest request.
    assert anew <= 1 + 3 * SETTINGS.concurrency or fault is not None


def test_a_journal_serves_mode_samples_as_well(tmp_path):
    chosen = replace(SETTINGS, mode="samples", tokens=160)

    def one_run(journal=None, **how):
        return plain(audit(*two("equal-seeds"), chosen, journal=journal, **how))

    whole = one_run()
    path = tmp_path / "journal"
    with Journal(path, HEADER) as journal, pytest.raises(Killed):
        one_run(journal, progress=killer(5))
    with Journal(path, HEADER) as journal:
        assert one_run(journal) == whole
    assert whole["verdict"] == "rejected"


def test_a_journal_of_other_settings_is_refused(tmp_path):
    path = tmp_path / "journal"
    with Journal(path, HEADER):
        pass
    with pytest.raises(InputError, match="was begun with --seed 0, not 1; name another file to start anew"):
        Journal(path, HEADER | {"settings": {"seed": 1}})


def test_the_order_of_arrival_does_not_matter():
    def one_run(wait, concurrency):
        engine, reference = two("draft-law", rounds=True)
        engine.wait = wait
        return plain(audit(engine, reference, replace(SETTINGS, tokens=400, concurrency=concurrency)))

    arrived = []

    def slow_first(seed):
        if seed == 0:
            time.sleep(0.3)
        arrived.append(seed)

    in_turn = one_run(lambda seed: None, 1)
    assert one_run(slow_first, 4) == in_turn
    # The first request is for log-probabilities; of those after it others came before the slow one.
    assert arrived[1] != 0


def test_out_of_time_says_what_is_known_so_far():
    engine, reference = two(None)
    hold = threading.Event()
    engine.wait = lambda seed: hold.wait(30.0) if seed >= 8 else None
    try:
        found = audit(engine, reference, replace(SETTINGS, tokens=5000, length=8, seconds=8.0, concurrency=1))
    finally:
        hold.set()
    assert (found.verdict, found.stopped) == ("not-exercised", "time")
    assert found.requests == 8
    assert found.tokens == 64
    assert found.detectable_tv == 1.0


def test_an_engine_that_gives_nothing_in_time_is_an_error():
    engine, reference = two(None)
    hold = threading.Event()
    reference.wait = lambda seed: hold.wait(30.0)
    try:
        found = audit(engine, reference, replace(SETTINGS, seconds=0.3))
    finally:
        hold.set()
    assert (found.verdict, found.stopped) == ("error", "error")
    assert found.reasons == ["reference: gave nothing in 0.3 s"]


def test_an_engine_that_dies_half_way_is_an_error_with_the_evidence_so_far():
    engine, reference = two(None, dies_after=11)
    found = audit(engine, reference, SETTINGS)
    assert (found.verdict, found.stopped) == ("error", "error")
    assert found.reasons == ["engine: closed the connection without an answer"]
    assert found.requests == 10  # one was for its log-probabilities
    assert found.tokens == 240
    assert found.path["engine"][-1][0] == 240
    assert found.control["tokens"] >= 96
    assert found.notes == [
        "what was gathered before is in the evidence above",
        "with --resume FILE a run is kept, and the same command goes on from there",
    ]
    assert found.detectable_tv is not None


def test_an_engine_that_dies_after_the_evidence_is_rejected():
    """It rejects while a request is on its way that will not be answered, and so is what explains it."""
    whole = audit(*two("correction-from-next-row"), SETTINGS)
    engine, reference = two("correction-from-next-row", dies_after=1 + whole.requests)
    found = audit(engine, reference, replace(SETTINGS, concurrency=1))
    assert (found.verdict, found.stopped) == ("rejected", "rejected")
    assert found.found_after == whole.found_after
    assert found.smallest is None
    assert "no smallest request was found: engine: closed the connection" in found.notes[-1]


def test_a_reference_that_dies_is_named():
    engine, reference = two(None)
    reference.laws_die_after = 3
    found = audit(engine, reference, SETTINGS)
    assert found.verdict == "error"
    assert found.reasons == ["reference: closed the connection without an answer"]


def test_a_control_that_cannot_go_on_is_said():
    engine, reference = two("correction-from-next-row")
    reference.dies_after = 8
    found = audit(engine, reference, SETTINGS)
    assert found.verdict == "rejected"
    assert any(note.startswith("the control has only ") and "closed the connection" in note
               for note in found.notes)  # fmt: skip


def test_laws_that_reach_beyond_what_is_reported_are_left_out():
    engine, reference = two(None)
    reference.most = 10
    found = audit(engine, reference, replace(SETTINGS, sampling=Sampling(top_p=0.9)))
    assert found.verdict == "not-rejected"
    assert 0 < found.tokens < SETTINGS.tokens
    note = next(note for note in found.notes if "too few to tell what top-p 0.9 keeps" in note)
    assert note.startswith("reference: reports 10 tokens")
    assert "ask for more with --top" in note
    assert int(note.rsplit("(", 1)[1].split()[0]) >= SETTINGS.tokens - found.tokens


def test_laws_that_are_never_known_are_an_error():
    engine, reference = two(None)
    reference.most = 10
    found = audit(engine, reference, replace(SETTINGS, sampling=Sampling(top_k=30)))
    assert found.verdict == "error"
    assert found.reasons == ["reference: reports 10 tokens, fewer than top-k 30; ask for as many with --top"]


def test_an_engine_that_gives_no_tokens_or_too_few_laws_is_an_error():
    class Empty(InProcess):
        def complete(self, prompt, count, seed, sampling, *, own_laws=0):
            found = super().complete(prompt, count, seed, sampling, own_laws=own_laws)
            found.tokens = []
            return found

    class Short(InProcess):
        def laws(self, prompt, tokens, top, *, fresh=False):
            return super().laws(prompt, tokens, top, fresh=fresh)[1:]

    one, other = two(None)
    found = audit(Empty(one.engine), other, SETTINGS)
    assert found.verdict == "error"
    assert found.reasons == ["engine: gave no tokens to a request of 24"]
    found = audit(one, Short(other.engine, "reference"), SETTINGS)
    assert found.reasons == ["reference: gave 23 laws for 24 tokens"]


def test_what_is_odd_of_its_own_log_probabilities_is_a_note():
    class Odd(InProcess):
        def complete(self, prompt, count, seed, sampling, *, own_laws=0):
            if own_laws and self.name == "engine":
                raise EngineError(f"{self.name}: status 500")
            return super().complete(prompt, count, seed, sampling, own_laws=own_laws)

    one, other = two(None)
    found = audit(Odd(one.engine), other, replace(SETTINGS, tokens=400))
    assert found.verdict == "not-rejected"
    assert "asked for log-probabilities, engine: status 500 (1 times)" in found.notes
