"""Audits of the fake engine in this process: the verdict on each fault, and the sentence that names it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from audit_helpers import PROMPTS, InProcess, draft_of, sampling_of, two
from fake_engine import engines

from resispec_verify.audit.exercise import Exercise
from resispec_verify.audit.gather import Piece
from resispec_verify.audit.interface import EngineError
from resispec_verify.audit.run import audit
from resispec_verify.audit.settings import AuditSettings
from resispec_verify.errors import InputError
from resispec_verify.report.audits import sentences

SETTINGS = AuditSettings(prompts=PROMPTS, tokens=700, length=24, top=40, concurrency=1)


def run(fault, *, rounds=False, draft=False, **settings):
    """One audit of the engine with a fault."""
    engine, reference = two(fault, rounds=rounds)
    chosen = replace(SETTINGS, sampling=sampling_of(fault), **settings)
    return audit(engine, reference, chosen, draft=draft_of(engine) if draft else None)


NAMED = [
    ("temperature-ignored", {}, "too hot: as if drawn at 1."),
    pytest.param("too-cold", {"tokens": 4000}, "too cold: as if drawn at 0.9 times", marks=pytest.mark.slow),
    ("greedy-drafts-ratio", {"draft": True}, "a greedy draft: as if"),
    ("greedy-drafts-ratio", {}, "too greedy: as if"),
    ("correction-from-target", {"draft": True, "tokens": 1200}, "no residual: as if"),
    ("correction-from-next-row", {}, "the next row: as if"),
    ("correction-from-next-row", {"draft": True}, "the next row: as if"),
    ("equal-seeds", {}, "repeated seeds: as if 99% of the tokens"),
    ("shared-noise", {}, "repeated seeds: as if 9"),
    ("tail-cut", {"tokens": 1200}, "the tail is cut: tokens beyond mass 0.95"),
    pytest.param(
        "top-p-twice", {"tokens": 2500}, "the tail is cut: tokens beyond mass 0.", marks=pytest.mark.slow
    ),
    ("draft-law", {"draft": True}, "the draft's law: as if"),
]


@pytest.fixture
def short(monkeypatch):
    """The smallest request has a test of its own; and fewer tokens after a rejection than users want."""
    monkeypatch.setattr("resispec_verify.audit.run.smallest_request", lambda *given: None)
    monkeypatch.setattr("resispec_verify.audit.run.EXPLAINED", 400)
    monkeypatch.setattr("resispec_verify.audit.run.AMPLE", 2)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(("fault", "how", "named"), NAMED)
def test_a_fault_is_rejected_and_named(fault, how, named):
    found = run(fault, **how)
    assert found.verdict == found.stopped == "rejected"
    assert found.looks_like is not None
    # Without the draft's law a greedy draft is both too greedy and too cold.
    assert named in found.looks_like if named == "too greedy: as if" else found.looks_like.startswith(named)
    assert f"after {found.found_after} tokens; they look like this: {found.looks_like}" in found.reasons[0]
    assert found.found_after is not None
    assert found.found_after <= found.tokens <= how.get("tokens", SETTINGS.tokens)
    assert found.detectable_tv is None
    # The reference went through the same test, on twice the tokens that rejected the engine.
    assert found.control["tokens"] >= 2 * found.found_after
    assert found.control["log10_evidence"] < 6


@pytest.mark.slow
def test_the_drafts_law_is_rejected_without_being_known():
    found = run("draft-law", tokens=2500)
    assert found.verdict == "rejected"
    assert found.looks_like is not None
    assert found.looks_like.startswith("too hot")  # the draft is flatter: what can be said without its law


@pytest.mark.usefixtures("short")
def test_a_greedy_bonus_is_found_at_its_place_in_a_round():
    found = run("greedy-bonus", rounds=True)
    assert found.verdict == "rejected"
    assert found.looks_like is not None
    assert found.looks_like.startswith(
        "at place 4 of a round (after 3 accepted draft tokens), too greedy: as if 99% of the tokens were the "
        "most probable one"
    )
    places = {one["place"]: one for one in found.places}
    assert set(places) == {"1", "2", "3", "4"}
    assert places["4"]["leading"] == "the most probable token"
    assert all(one["log10_evidence"] < 2 for name, one in places.items() if name != "4")


def test_the_smallest_request_shows_the_fault_by_itself():
    found = run("correction-from-next-row")
    smallest = found.smallest
    assert smallest is not None
    assert smallest["prompt"] in PROMPTS or len(smallest["prompt"]) > 2
    assert smallest["tokens"] >= 2
    assert smallest["seeds"] == [1_000_000, 1_000_000 + smallest["requests"] - 1]
    assert smallest["request"] is None
    assert smallest["tokens_off"]
    assert found.tokens_off[0]["z"] != 0


@pytest.mark.parametrize("fault", [None, "reports-zero", "noisy"])
def test_an_engine_without_fault_is_not_rejected(fault):
    found = run(fault, rounds=fault is None, tokens=600)
    assert (found.verdict, found.stopped) == ("not-rejected", "tokens")
    assert found.reasons == []
    assert found.looks_like is found.smallest is None
    assert found.tokens >= 600
    assert found.detectable_tv is not None
    assert 0 < found.detectable_tv < 0.4
    assert all(one["used"] for one in found.band["measured"])
    assert (found.band["tv"] > 0.005) == (fault == "noisy")
    assert not found.band["given"]
    assert [tokens for tokens, _ in found.path["engine"]][-1] == found.tokens
    assert found.drafts["source"] == "its completions"
    assert 0 < found.drafts["accepted"] < found.drafts["drafted"]


def test_noise_is_not_held_against_the_engine_only_because_of_the_band():
    found = run("noisy", band=0.0, tokens=400)
    assert found.band["given"]
    assert found.band["tv"] == 0


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("never-accepts", "the draft does not fit, or nothing is accepted"),
        (
            "no-drafts",
            "engine: not one draft token was verified, by its completions: is the draft loaded? Are the "
            "addresses swapped? (--least-drafts 0 asks for none)",
        ),
    ],
)
def test_speculation_that_is_not_exercised(fault, said):
    found = run(fault, tokens=400)
    assert found.verdict == "not-exercised"
    (reason,) = found.reasons
    assert said in reason


@pytest.mark.parametrize(
    ("drafted", "accepted", "said"),
    [
        (200, 190, "190 of 200 draft tokens were accepted, 10 rejected; what happens to rejected ones was "
                   "hardly tested (--least-drafts 64): the draft is the target itself, or all is accepted"),
        (200, 10, "what happens to accepted ones was hardly tested (--least-drafts 64): the draft does not"),
        (60, 30, "what happens to accepted ones was hardly tested (--least-drafts 64): more --tokens have"),
        (0, 0, "not one draft token was verified, by its completions: is the draft loaded? Are the"),
        (128, 64, None),
    ],
)  # fmt: skip
def test_which_drafts_were_hardly_tested(drafted, accepted, said):
    exercise = Exercise(two(None)[0], 64, None)
    exercise.add(Piece(0, 0, [1, 2, 3], None, drafted, accepted, []))
    missing = exercise.missing(exercise.drafts())
    assert missing is said is None or (missing is not None and said is not None and said in missing)


def test_without_drafts_that_are_asked_for_it_is_not_rejected():
    assert run("no-drafts", tokens=400, least_drafts=0).verdict == "not-rejected"


@pytest.mark.parametrize("mode", ["laws", "samples"])
def test_too_few_tokens_to_find_anything_are_not_exercised(mode):
    found = run(None, tokens=200, mode=mode, least_drafts=1)
    assert (found.verdict, found.stopped, found.detectable_tv) == ("not-exercised", "tokens", 1.0)
    (reason,) = found.reasons
    said = "engine: too few tokens to be sure of finding anything; "
    if mode == "laws":  # and they are: the next test
        assert reason == f"{said}about 330 are enough (--tokens, --seconds)"
    else:
        assert reason.startswith(f"{said}about ")
    assert sum("too few" in line.lower() for line in sentences(found)) == 1


@pytest.mark.parametrize("least", [0, 64])
@pytest.mark.parametrize("how", [{}, {"reports": False, "counts": True}])
@pytest.mark.parametrize("mode", ["laws", "samples"])
def test_a_reference_that_drafts_itself_is_none(mode, how, least):
    """Both ways round nothing else is wrong: the two addresses may have been swapped."""
    engine, reference = two(None, **how)
    found = audit(reference, engine, replace(SETTINGS, tokens=400, least_drafts=least, mode=mode))
    assert (found.verdict, found.stopped) == ("reference-mismatch", "control")
    (reason,) = found.reasons
    before, drafted, after = re.split(r"(\d+)", reason, maxsplit=1)
    assert before == "engine: the reference verified "
    assert int(drafted) > 2
    assert after == (
        " draft tokens itself: are the addresses swapped? It must be the engine without speculation"
    )
    assert found.detectable_tv is None
    assert not any("the total variation is that" in note for note in found.notes)


@pytest.mark.parametrize("mode", ["laws", "samples"])
def test_so_many_as_are_called_enough_are_enough(mode):
    few = run(None, tokens=200, mode=mode, least_drafts=1)
    enough = int(re.split(r"about (\d+) are", few.reasons[0])[1])
    assert run(None, tokens=enough, mode=mode, least_drafts=1).verdict == "not-rejected"
    # Nor are far fewer: completions have up to 24 tokens, and what is to be learned is estimated.
    assert run(None, tokens=int(0.7 * enough), mode=mode, least_drafts=1).verdict == "not-exercised"


def test_engines_that_are_asked_in_two_ways_are_noted():
    engine, reference = two(None)
    reference.facts = lambda: {"schema": "other"}
    found = audit(engine, reference, replace(SETTINGS, tokens=400))
    assert "the engine is asked as fake, the reference as other: are they the same engine?" in found.notes


def test_counters_of_a_dead_server_hide_nothing():
    """The error of its completions is said once, with what was found before."""
    engine, reference = two(None, reports=False, dies_after=12)

    def counters(calls=iter((0,))):
        if next(calls, None) is None:
            raise EngineError("engine: closed the connection without an answer")
        return (0, 0)

    engine.counters = counters
    found = audit(engine, reference, replace(SETTINGS, tokens=700))
    assert found.verdict == "error"
    assert found.reasons == ["engine: closed the connection without an answer"]
    assert found.tokens > 0
    assert found.notes == [
        "what was gathered before is in the evidence above",
        "with --resume FILE a run is kept, and the same command goes on from there",
    ]


def test_rounds_of_one_token_are_not_exercised_and_nothing_reported_is_a_note():
    engine, reference = two("no-drafts", rounds=True, reports=False)
    found = audit(engine, reference, replace(SETTINGS, tokens=400))
    assert found.verdict == "not-exercised"
    assert found.reasons == [
        "engine: every token came alone, so that no accepted draft token can be seen: is the draft loaded? "
        "Are the addresses swapped? (--least-drafts 0, where it hands on tokens one by one)"
    ]
    engine, reference = two(None, reports=False)
    found = audit(engine, reference, replace(SETTINGS, tokens=400))
    assert found.verdict == "not-rejected"
    assert found.drafts == {"drafted": None, "accepted": None, "source": None}
    assert any("whether speculation was on is not known" in note for note in found.notes)


def test_counters_say_what_completions_do_not():
    engine, reference = two(None, reports=False, counts=True)
    before = engine.complete((5, 6), 50, 1, SETTINGS.sampling) and engine.counters()
    found = audit(engine, reference, replace(SETTINGS, tokens=400))
    after = engine.counters()
    assert before is not None
    assert after is not None
    assert found.drafts == {
        "drafted": after[0] - before[0],
        "accepted": after[1] - before[1],
        "source": "its counters, over the whole run",
    }


@pytest.mark.parametrize("fault", ["too-cold", "tail-cut", None])
def test_a_reference_that_is_not_what_it_reports_is_a_mismatch(fault):
    """Faults of a reference without drafts: it is asked at a temperature that it does not know."""
    engine, _ = engines(None)
    wrong = InProcess(engines(None)[1], "reference")
    if fault == "too-cold":
        wrong.read_at = lambda sampling: replace(sampling, temperature=0.7 * sampling.temperature)
    elif fault == "tail-cut":
        wrong.read_at = lambda sampling: replace(sampling, top_p=0.8)
    else:  # its laws are of another model
        wrong.law_of, wrong.own = engine.draft.law, False
    found = audit(InProcess(engine), wrong, replace(SETTINGS, tokens=2000))
    assert (found.verdict, found.stopped) == ("reference-mismatch", "control")
    assert found.tokens == found.requests == 0
    assert found.reasons[0].startswith("reference: its own tokens are not from the laws that it reports")
    assert found.reasons[0].endswith("nothing can be said about engine")
    assert found.control["log10_evidence"] > 6
    if fault == "too-cold":
        assert found.looks_like is not None
        assert found.looks_like.startswith("too cold: as if drawn at 0.7")


def test_laws_of_one_temperature_and_tokens_of_another_are_a_mismatch():
    """Asked at 0.7 it draws at 1: both engines misread the request, and neither is to blame."""
    one, other = two(None)
    for engine in (one, other):
        engine.read_at = lambda sampling: replace(sampling, temperature=1.0)
    found = audit(
        one, other, replace(SETTINGS, sampling=replace(SETTINGS.sampling, temperature=0.7), tokens=2000)
    )
    assert found.verdict == "reference-mismatch"
    assert found.looks_like is not None
    assert found.looks_like.startswith("too hot: as if drawn at 1.")


@pytest.mark.slow
def test_a_rejection_extends_the_control_which_then_may_reject_the_reference():
    """Both have the same fault, and the first control is too short to see it. From seed 0 the reference needs
    more than twice the tokens of the engine.
    """
    one, other = two(None)
    for engine in (one, other):
        engine.read_at = lambda sampling: replace(sampling, temperature=0.8)
    found = audit(one, other, replace(SETTINGS, tokens=1500, length=16))
    assert found.tokens > 0
    assert (found.verdict, found.stopped) == ("reference-mismatch", "control")
    assert found.control["tokens"] > 1500 / 4 + 16
    assert found.looks_like is not None
    assert "too cold" in found.looks_like
    assert found.found_after is None


def test_settings_that_the_engines_do_not_fit():
    engine, reference = two(None)
    reference.gives_laws = False
    with pytest.raises(InputError, match="reference: gives no laws of what engine emits; use --mode samples"):
        audit(engine, reference, replace(SETTINGS, mode="laws"))
