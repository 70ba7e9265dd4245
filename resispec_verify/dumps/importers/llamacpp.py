"""llama.cpp's ``/completion`` with ``n_probs``.

Written from ``tools/server/README.md`` of ggml-org/llama.cpp at commit 00dc8057, and ``probs`` with
``tok_str`` from what that page said before. ``completion_probabilities`` has an entry a token:

- ``top_logprobs`` with ``id`` and ``logprob``, of the raw logits; or, with ``post_sampling_probs``,
  ``top_probs`` with ``id`` and ``prob``, of what the token was drawn from; in old builds ``probs`` with
  ``tok_str`` (a text) and ``prob``. All of a list are the most probable tokens.
- A drafted token that was accepted has the log-probability 0.0 and an empty list (issue 27972): it has no
  law, and its position is left out.
- A token that ends inside a character has no entry, so there may be fewer entries than ``tokens``; then
  nothing says which they are, and the answer is refused.
- The laws are normalised by a sum in float32, one token after the other: log-probabilities are a few 1e-4
  off, and may be above 0 by as much.
"""

from __future__ import annotations

import math

from resispec_verify.dumps.importers.listing import Listing
from resispec_verify.dumps.importers.nodes import Node

__all__ = ["read_llamacpp"]

ROUNDING = 2.0**-10
LISTS = (("top_logprobs", "logprob"), ("top_probs", "prob"), ("probs", "prob"))


def read_llamacpp(document: Node, listing: Listing) -> None:
    """Add one answer."""
    if document.get("error") is not None:
        raise document.refuse("is an error of the server, not an answer; ask again")
    entries = document.need("completion_probabilities").entries()
    said, count = document.get("tokens"), document.get("tokens_evaluated")
    tokens = said.ids() if said is not None and said.value else None
    if tokens is not None and len(tokens) != len(entries):
        raise document.refuse(
            f"has {len(entries)} completion_probabilities for {len(tokens)} tokens: nothing says of which; "
            "ask again with another seed"
        )
    sequence = len(listing.texts)
    listing.texts[sequence] = []
    start = None if count is None or tokens is None else count.whole()
    for i, entry in enumerate(entries):
        lists = [(entry.get(name), value) for name, value in LISTS]
        laws = [(law, value) for law, value in lists if law is not None]
        if not laws:
            raise entry.refuse("has no top_logprobs, top_probs or probs; ask with n_probs")
        law, value = laws[0]
        pairs = [_pair(one, value) for one in law.entries()]
        if not pairs:
            listing.skipped += 1
            if start is None:
                raise entry.refuse("has no law, as drafted tokens have none, and no tokens say where it lies")
            continue
        identity = entry.get("id")
        follows = None if identity is None else identity.whole()
        if tokens is not None and follows not in (None, tokens[i]):
            raise entry.refuse(f"is of token {follows}, and tokens[{i}] is {tokens[i]}; ask again")
        pairs = [(token, log) for token, log in pairs if log > -math.inf] or pairs
        listing.add(
            entry.where,
            [token for token, _ in pairs],
            [log for _, log in pairs],
            sequence=sequence,
            position=None if start is None else start + i,
            following=follows if tokens is None else tokens[i],
            ranked=len(pairs),
        )


def _pair(entry: Node, value: str) -> tuple[int | str, float]:
    identity = entry.get("id")
    token = entry.need("tok_str").text() if identity is None else identity.whole()
    number = entry.need(value).number()
    if value == "logprob":
        return token, min(number, 0.0) if number < ROUNDING else number
    if not 0.0 <= number < 1.0 + ROUNDING:
        raise entry.refuse(f"its prob is {number:g}; it must be a probability")
    return token, math.log(min(number, 1.0)) if number else -math.inf
