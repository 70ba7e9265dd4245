"""Penalties as they stood at the block's start: whether they explain a log that penalties by token do not.

An engine that verifies a block in one pass has to penalise each row by the tokens drafted before it. One that
uses what it had at the start of the block samples another law, in target, draft or both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resispec_verify.logged.replay import Replay
from resispec_verify.logged.replay_summary import ALPHA, summarize_replay
from resispec_verify.logged.tree_replay import replay_any
from resispec_verify.sampling.text import needs_text

__all__ = ["with_other_history"]

_OTHER = {"token": "block-start", "block-start": "token"}


def with_other_history(
    result: Replay, options: Mapping[str, Any], *, uniforms: bool, alpha: float = ALPHA
) -> Replay:
    """The replay with a note on the other history, where penalties matter and the log does not agree."""
    used = [result.rounds.sampling(r, options) for r in range(len(result.rounds.rounds))]
    penalised = [one for one in used if needs_text(one) or needs_text(one.draft_sampling)]
    if not penalised or not _speaks_against(result, alpha):
        return result
    here = penalised[0].reads_history
    other = replay_any(result.rounds, result.rule, {**options, "history": _OTHER[here]}, uniforms=uniforms)
    found, instead = len(result.diverges()), len(other.diverges())
    instead_of = f"history {_OTHER[here]!r}"
    if _speaks_against(other, alpha):
        note = f"{instead_of} does not explain the log either: {instead} decisions differ"
    else:
        note = f"{instead_of} explains the log: nothing differs ({found} decisions here)"
    result.notes.append(note)
    return result


def _speaks_against(result: Replay, alpha: float) -> bool:
    return bool(result.diverges()) or summarize_replay(result, alpha)["statistics"]["verdict"] == "rejected"
