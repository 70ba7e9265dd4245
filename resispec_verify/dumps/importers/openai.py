"""OpenAI's ``/v1/completions`` and ``/v1/chat/completions``, and servers that answer as these do.

Written from the descriptions of the fields in OpenAI's published API schema. What matters here:

- completions: ``logprobs.top_logprobs`` has an object from texts to log-probabilities for each token. The
  sampled token is among them in any case, so that there may be one more than were asked for.
- chat: ``logprobs.content`` has an entry a token with ``top_logprobs``, the most likely tokens, at times
  fewer than were asked for. The sampled one stands beside them; -9999.0 says that it is not among the most
  likely 20, not that its probability is 0, so such an entry is taken for none.

A sampled token that is the least of a list need not be one of the most probable, so it is not counted as
one. A text stands for one token only where a tokenizer says so; then no two entries of an object can have
been merged.
"""

from __future__ import annotations

from resispec_verify.dumps.importers.listing import Listing
from resispec_verify.dumps.importers.nodes import Node

__all__ = ["add_chat", "add_completion", "read_openai", "with_sampled"]

UNLIKELY = -9999.0
Pairs = list[tuple["int | str", float]]


def read_openai(document: Node, listing: Listing) -> None:
    """Add the choices of one answer."""
    if document.get("error") is not None:
        raise document.refuse("is an error of the server, not an answer; ask again")
    for choice in document.need("choices").entries():
        sequence = len(listing.texts)
        listing.texts[sequence] = []
        logprobs = choice.need("logprobs")
        add = add_chat if logprobs.get("content") is not None else add_completion
        add(logprobs, listing, sequence, None)


def add_completion(logprobs: Node, listing: Listing, sequence: int, start: int | None) -> None:
    """The laws of ``logprobs`` of a completion; its first token has `start` tokens before it."""
    tokens = logprobs.need("tokens").entries()
    tops, own = (logprobs.need(key).entries() for key in ("top_logprobs", "token_logprobs"))
    if not len(tokens) == len(tops) == len(own):
        raise logprobs.refuse(
            f"has {len(tokens)} tokens, {len(tops)} top_logprobs and {len(own)} token_logprobs"
        )
    for i, (token, top, log) in enumerate(zip(tokens, tops, own, strict=True)):
        if top.value is None and i == 0:
            continue  # an echoed prompt: nothing comes before its first token
        pairs: Pairs = [(text, Node(value, top.where).number()) for text, value in top.object().items()]
        place = None if start is None else start + i
        with_sampled(listing, top.where, pairs, token.text(), log.number(), sequence, place)


def add_chat(logprobs: Node, listing: Listing, sequence: int, start: int | None) -> None:
    """The laws of ``logprobs.content`` of a chat."""
    for i, entry in enumerate(logprobs.need("content").entries()):
        tops = entry.need("top_logprobs").entries()
        pairs: Pairs = [(top.need("token").text(), top.need("logprob").number()) for top in tops]
        place = None if start is None else start + i
        token, log = entry.need("token").text(), entry.need("logprob").number()
        with_sampled(listing, entry.where, pairs, token, log, sequence, place)


def with_sampled(
    listing: Listing,
    where: str,
    pairs: Pairs,
    token: int | str,
    log: float,
    sequence: int,
    position: int | None,
) -> None:
    """Add a list of which all are the most probable tokens, but perhaps the sampled one."""
    pairs = [(name, value) for name, value in pairs if value > UNLIKELY]
    names = [name for name, _ in pairs]
    ranked = len(pairs)
    if token in names:
        ranked -= log <= min(value for _, value in pairs)
    elif log > UNLIKELY:
        if any(value < log for _, value in pairs):
            ranked = 0  # then the list is not that of the most probable
        pairs.append((token, log))
    if not pairs:
        raise Node(None, where).refuse("lists no token; ask for log-probabilities of the most probable ones")
    listing.add(
        where,
        [name for name, _ in pairs],
        [value for _, value in pairs],
        sequence=sequence,
        position=position,
        following=token,
        ranked=ranked,
    )
