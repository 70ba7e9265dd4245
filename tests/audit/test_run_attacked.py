"""Runs that were once misjudged: clean engines that looked wrong, and audits that had tested nothing."""

import threading

import pytest
from audit_helpers import PROMPTS, two

from resispec_verify.audit import noise
from resispec_verify.audit.run import audit
from resispec_verify.audit.settings import AuditSettings
from resispec_verify.errors import InputError
from resispec_verify.runs.journal import Journal


def test_an_engine_that_fails_half_way_is_an_error_in_samples_too():
    on, off = two(dies_after=60)
    found = audit(on, off, AuditSettings(mode="samples", prompts=PROMPTS[:1], tokens=2000))
    assert (found.verdict, found.stopped) == ("error", "error")
    assert found.requests > 30


@pytest.mark.parametrize("settings", [{"length": 1}, {"mode": "samples", "first": 1}])
def test_first_tokens_alone_exercise_no_speculation(settings):
    on, off = two(reports=False)
    found = audit(on, off, AuditSettings(prompts=PROMPTS[:1], tokens=400, **settings))
    assert found.verdict == "not-exercised"
    assert "no completion has a second token" in found.reasons[0]


@pytest.mark.parametrize("mode", ["auto", "samples"])
def test_ids_are_not_compared_with_texts(mode):
    on, off = two()
    on.tokens_are = "texts"
    with pytest.raises(InputError, match="gives texts, reference gives ids"):
        audit(on, off, AuditSettings(mode=mode, prompts=PROMPTS[:1], tokens=400))


def test_texts_of_tokens_are_not_compared_with_characters():
    on, off = two()
    on.tokens_are = off.tokens_are = "texts"
    on.facts = lambda: {"schema": "completions", "tokens": "characters"}
    off.facts = lambda: {"schema": "completions", "tokens": "texts of tokens"}
    with pytest.raises(InputError, match="gives characters, reference gives texts of tokens"):
        audit(on, off, AuditSettings(prompts=PROMPTS[:1], tokens=400))


def test_a_run_without_time_for_one_pair_is_an_error_that_says_so():
    on, off = two()
    gate = threading.Event()
    off.wait = lambda seed: gate.wait(10)
    found = audit(on, off, AuditSettings(mode="samples", prompts=PROMPTS[:1], tokens=400, seconds=1e-6))
    gate.set()
    assert found.verdict == "error"
    assert "gave nothing in 1e-06 s" in found.reasons[0]


def kept(path, **settings):
    on, off = two()
    chosen = AuditSettings(prompts=PROMPTS[:2], tokens=300, length=16, least_drafts=0, **settings)
    with Journal(path, {"journal": "test"}) as journal:
        return audit(on, off, chosen, journal=journal)


def test_the_band_is_measured_once(tmp_path, monkeypatch):
    path = tmp_path / "run.journal"
    first = kept(path)
    monkeypatch.setattr(noise, "ERRORS", 1e6)  # another measurement would be far wider
    again = kept(path)
    assert again.band == first.band
    assert (again.path, again.log10_evidence) == (first.path, first.log10_evidence)
    assert kept(tmp_path / "other.journal").band != first.band


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ('"piece":', '"pieces":'),
        ('"request":0,', '"request":"0",'),
        ('"oddities":[]', '"other":[]'),
        ('"laws":[', '"laws":[{"tokens":[1],"logprobs":[0],"complete":true},'),
        ('"laws":[', '"laws":null,"old":['),
        ('"tv":', '"tv":-'),
        ('"used":', '"kept":'),
    ],
)
def test_a_journal_that_is_damaged_or_of_another_version_is_refused(tmp_path, was, now):
    path = tmp_path / "run.journal"
    kept(path)
    text = path.read_text()
    assert was in text
    path.write_text(text.replace(was, now, 1))
    with pytest.raises(InputError, match=r"run\.journal: .*damaged"):
        kept(path)
