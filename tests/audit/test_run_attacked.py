"""Runs that were once misjudged: clean engines that looked wrong, and audits that had tested nothing."""

import threading

import pytest
from audit_helpers import PROMPTS, two

from resispec_verify.audit.run import audit
from resispec_verify.audit.settings import AuditSettings
from resispec_verify.errors import InputError


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
