"""Parts of what top-k files say: what is above a limit for certain, and what is kept."""

from dataclasses import replace

import numpy as np
import pytest
from cut_helpers import logits

from resispec_verify import topk
from resispec_verify.dumps import TopPairs
from resispec_verify.rules import make_rule
from resispec_verify.tables import top_rows
from resispec_verify.tables.top_drift import top_drift
from resispec_verify.tables.top_rows import TopQuestion
from resispec_verify.tables.top_summary import summarize_top_limits


def pairs(k, rows=5, vocab=30):
    target, draft = logits(rows, vocab)
    return TopPairs(topk.cut_logits(target, k), topk.cut_logits(draft, k))


def test_above_the_limit_only_where_no_completion_is_below(monkeypatch):
    found = topk.bounds(pairs(6), make_rule("specinfer"), 2)
    high = found.limit[:, 1]
    low = np.where(np.arange(5) >= 3, high + 1e-6, high)
    changed = replace(found, acceptance=np.stack([low, np.ones(5)], axis=1))
    monkeypatch.setattr(top_rows, "bounds", lambda *arguments: changed)
    question = TopQuestion([make_rule("specinfer")], 2)
    (row,) = question.rows([question.answer("a.npz", 10, pairs(6))])
    result = summarize_top_limits(row)
    assert (result["above_limit"], result["witness_position"], result["witness_path"]) == (2, 13, "a.npz")
    assert result["cannot_be_exact"]


def test_columns_are_kept_only_where_they_are_asked_for():
    for asked in (False, True):
        (part,) = TopQuestion([make_rule("specinfer")], 2, columns=asked).answer("", 0, pairs(6))
        assert bool(part.columns) == bool(part.verdicts) == asked
        assert part.width.dtype == np.float32


def test_a_draft_that_is_the_target_never_gets_to_a_second_candidate():
    target, _ = logits(4, 12)
    rows = topk.cut_logits(target, 12)
    found = top_drift(TopPairs(rows, rows), 3)
    assert found.total[0].tolist() == pytest.approx([4.0, 4.0], abs=1e-11)
    assert found.looked[1].tolist() == pytest.approx([0.0, 0.0], abs=1e-11)
    # Nobody gets there: anything may hold.
    assert np.all(found.accepted[1:, 0] >= 0.0)
    assert np.all(found.accepted[1:, 1] <= 4.0)
