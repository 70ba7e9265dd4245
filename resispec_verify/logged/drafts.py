"""Drafted tokens: evidence that they are draws from the rows that they are logged with.

Each is one draw from the draft after the sampling, or from ``proposal_logits`` where a dump says that those
are what the drafts were drawn from. A draft that is no random choice is a draw from its own row all the same:
one-hot, at temperature 0 or as logged. Drafting comes before any coin, so all drafted tokens are tested,
accepted or not; up to the first that ends the text, for nothing need be drawn after that.
"""

from __future__ import annotations

import numpy as np

from resispec_verify.distributions import Sampling
from resispec_verify.evidence.changing_laws import ChangingLaws
from resispec_verify.logged.round_rows import RoundRows

__all__ = ["DRAFT", "bet_on_drafts"]

#: Laws that a wrong draft token may come from. The draft's row after is none: it depends on the token.
DRAFT = ("the target", "the draft's row before", "the draft without temperature and filters")
_PLAIN = Sampling()


def bet_on_drafts(tests: dict[str, ChangingLaws], rows: RoundRows, tokens: np.ndarray) -> None:
    """Add ``tokens (m,)`` to the test; token i was drawn from draft row i of ``rows``."""
    test = tests.setdefault("draft", ChangingLaws(DRAFT))
    p, q = rows.p, rows.q
    box = rows.draft_box()
    untouched = rows.sampling.draft_sampling == _PLAIN
    plain = None if untouched else _PLAIN.probabilities(rows.draft, dtype=np.float64)
    for i, token in enumerate(tokens.tolist()):
        others = [p[i], q[i - 1] if i else None, None if plain is None else plain[i]]
        test.add(box.low[i], box.high[i], token, others)
