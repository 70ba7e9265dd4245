"""Mode samples on the fake engine: first tokens are counted over all pairs, and one completion is named."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from audit_helpers import InProcess, two

from resispec_verify.audit.run import audit
from resispec_verify.audit.samples import SampleAudit
from resispec_verify.audit.settings import AuditSettings

PROMPTS = ((5, 6), (7, 75))
SETTINGS = AuditSettings(prompts=PROMPTS, mode="samples", tokens=1200, first=3, concurrency=1)
#: The seeds of the reference begin so far after those of the engine.
APART = 500_000


def drawn(engine, start, pairs):
    """What an engine gives to the requests of an audit, by prompt."""
    rows = {0: [], 1: []}
    for i in range(pairs):
        rows[i % 2].append(tuple(engine.complete(PROMPTS[i % 2], 3, start + i, SETTINGS.sampling).tokens))
    return rows


def test_first_tokens_are_counted_over_all_pairs_those_of_the_pilot_too():
    found = audit(*two("correction-from-next-row"), SETTINGS)
    assert found.verdict == "rejected"
    assert found.looks_like == "first tokens with other frequencies than the reference's"
    # Drawn again, by engines that nobody audits.
    engine, reference = two("correction-from-next-row")
    on, off = drawn(engine, 0, found.requests), drawn(reference, APART, found.requests)
    differences = []
    for prompt in (0, 1):
        for length in (2, 3):
            seen, due = (Counter(row[:length] for row in rows[prompt]) for rows in (on, off))
            pairs = len(on[prompt])
            differences += [abs(seen[tokens] - due[tokens]) / pairs for tokens in seen | due]
    assert len(found.prefixes_off) == 5
    for one in found.prefixes_off:
        assert one.keys() == {"prompt", "tokens", "seen", "due", "pairs"}
        pairs = len(on[one["prompt"]])
        assert one["pairs"] == pairs
        for name, rows in (("seen", on), ("due", off)):
            same = [row[: len(one["tokens"])] == tuple(one["tokens"]) for row in rows[one["prompt"]]]
            assert one[name] == sum(same) / pairs
    shown = [abs(one["seen"] - one["due"]) for one in found.prefixes_off]
    assert shown == pytest.approx(sorted(differences, reverse=True)[:5], rel=1e-12)


def pairs_of(rows):
    """An audit that has seen these pairs, of a prompt each."""
    engine, reference = two(None)
    sample = SampleAudit(engine, reference, SETTINGS, PROMPTS, journal=None, until=0.0)
    sample.pairs = rows
    return sample


def test_a_completion_that_ended_early_has_one_row():
    """Two tokens are a beginning of two, and not once more one of three."""
    sample = pairs_of([(0, (1, 2), (3, 4, 5)), (0, (1, 2, 6), (3, 4, 5))])
    found = {tuple(one["tokens"]): (one["seen"], one["due"]) for one in sample._prefixes_off()}
    assert found == {(1, 2): (1.0, 0.0), (3, 4): (0.0, 1.0), (3, 4, 5): (0.0, 1.0), (1, 2, 6): (0.5, 0.0)}
    assert len(sample._prefixes_off()) == 4


class One(InProcess):
    """Draws with one seed whatever it is told: one completion a prompt."""

    def complete(self, prompt, count, seed, sampling, *, own_laws=0):
        return super().complete(prompt, count, 0, sampling, own_laws=own_laws)


def test_one_completion_only_is_called_that():
    one, other = two(None)
    found = audit(One(one.engine), other, replace(SETTINGS, tokens=600))
    assert found.verdict == "rejected"
    assert found.looks_like is not None
    assert found.looks_like.startswith("one completion only: all of the engine's of a prompt are equal")
    assert found.prefixes_off[0]["seen"] == 1.0


def test_one_completion_only_needs_some_pairs_and_a_reference_that_varies():
    def rows(count, other):
        return [(i % 2, (1, i % 2), (2, i % other)) for i in range(count)]

    assert pairs_of(rows(16, 5))._one_only()
    assert not pairs_of(rows(14, 5))._one_only()  # eight of each prompt are wanted
    assert not pairs_of(rows(16, 2))._one_only()  # the reference's are one a prompt as well
    assert not pairs_of([*rows(16, 5), (0, (1, 7), (2, 0))])._one_only()
