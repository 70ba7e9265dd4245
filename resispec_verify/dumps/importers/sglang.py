"""SGLang's ``/generate``, and what ``Engine.generate`` returns, written as JSON.

Read in SGLang 0.5.23: ``srt/managers/tokenizer_manager.py``, ``srt/layers/sampler.py``. ``meta_info`` has

- ``input_top_logprobs``: for each token of the prompt from ``logprob_start_len`` on, the law before it as a
  list of ``[logprob, id, text]``; the first entry is null. ``input_token_logprobs`` says which tokens they
  are of; an id that is the last of the vocabulary stands there as 0, so 0 is taken for not known;
- ``output_top_logprobs``: the same of the tokens that were drawn, which are in ``output_token_logprobs``.
  These are after the temperature, unless the server runs with SGLANG_RETURN_ORIGINAL_LOGPROB.

A list is what ``torch.topk`` gives: all of it are the most probable tokens, the sampled one is added only
here.
"""

from __future__ import annotations

from resispec_verify.dumps.importers.listing import Listing
from resispec_verify.dumps.importers.nodes import Node

__all__ = ["read_sglang"]

Entry = tuple[int, float]


def read_sglang(document: Node, listing: Listing) -> None:
    """Add one answer."""
    if document.get("error") is not None:
        raise document.refuse("is an error of the server, not an answer; ask again")
    meta = document.need("meta_info")
    count = meta.get("prompt_tokens")
    prompt = None if count is None else count.whole()
    sequence = len(listing.texts)
    listing.texts[sequence] = []
    inputs, outputs = (meta.get(f"{name}_top_logprobs") for name in ("input", "output"))
    found = 0
    if inputs is not None:
        named = meta.need("input_token_logprobs").entries()
        laws = inputs.entries()
        if len(named) != len(laws):
            raise inputs.refuse(f"has {len(laws)} entries for {len(named)} input_token_logprobs")
        if prompt is not None and len(laws) > prompt:
            raise inputs.refuse(f"has {len(laws)} entries, and prompt_tokens is {prompt}; ask again")
        start = None if prompt is None else prompt - len(laws)
        for i, (law, token) in enumerate(zip(laws, named, strict=True)):
            if law.value is None:
                continue
            follows = Node(_fields(token)[1], token.where).whole() or None
            _add(listing, law, sequence, None if start is None else start + i, follows, None)
            found += 1
    if outputs is not None:
        named = meta.need("output_token_logprobs").entries()
        laws = outputs.entries()
        if len(named) != len(laws):
            raise outputs.refuse(f"has {len(laws)} entries for {len(named)} output_token_logprobs")
        for i, (law, token) in enumerate(zip(laws, named, strict=True)):
            own = _pair(token)
            _add(listing, law, sequence, None if prompt is None else prompt + i, own[0], own)
            found += 1
    if not found:
        raise meta.refuse("has no laws; ask with return_logprob and top_logprobs_num")


def _add(
    listing: Listing, law: Node, sequence: int, place: int | None, follows: int | None, own: Entry | None
) -> None:
    pairs = [_pair(entry) for entry in law.entries()]
    ranked = len(pairs)
    if own is not None and own[0] not in {token for token, _ in pairs}:
        if any(log < own[1] for _, log in pairs):
            ranked = 0  # then the list is not that of the most probable
        pairs.append(own)
    listing.add(
        law.where,
        [token for token, _ in pairs],
        [log for _, log in pairs],
        sequence=sequence,
        position=place,
        following=follows,
        ranked=ranked,
    )


def _fields(entry: Node) -> list:
    if not isinstance(entry.value, list) or len(entry.value) < 2:
        raise entry.refuse("must be a list [logprob, id, text]; is it of another format? (--from)")
    return entry.value


def _pair(entry: Node) -> Entry:
    log, token = _fields(entry)[:2]
    return Node(token, f"{entry.where}[1]").whole(), Node(log, f"{entry.where}[0]").number()
