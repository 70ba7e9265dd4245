"""vLLM: answers of its server, and the objects of offline use written as JSON.

Read in vLLM 0.33.0: ``outputs.py``, ``logprobs.py``, ``v1/engine/logprobs.py``,
``entrypoints/openai/completion/``. Offline, a ``RequestOutput`` has ``prompt_token_ids``,
``prompt_logprobs`` and ``outputs``, each with ``token_ids`` and ``logprobs``: for each token an object from
ids to ``logprob``, ``rank`` and ``decoded_token`` (``json.dump`` writes them so, of ``vars`` of an output).
A server's choice has ``prompt_logprobs`` of the same form, ``logprobs`` as OpenAI has them, and with
``return_token_ids`` also ``prompt_token_ids`` and ``token_ids``. What matters here:

- The sampled (or the prompt's own) token is listed beyond the top k, with its rank in the vocabulary. Those
  of ranks 1, 2, ... without a gap are the most probable; what comes after a gap is not counted as one.
- ``logprobs`` of a completion are by text, unless ``return_tokens_as_token_ids`` makes them ``token_id:N``.
- A chat's ``top_logprobs`` begin with the sampled token, which takes the place of the last of the top k.
- Of raw logits, unless the engine runs with another ``--logprobs-mode``, which no answer says.
"""

from __future__ import annotations

from resispec_verify.dumps.importers.listing import Listing
from resispec_verify.dumps.importers.nodes import Node
from resispec_verify.dumps.importers.openai import add_chat, add_completion

__all__ = ["read_vllm"]


def read_vllm(document: Node, listing: Listing) -> None:
    """Add one answer of a server, or one ``RequestOutput``."""
    if document.get("error") is not None:
        raise document.refuse("is an error of the server, not an answer; ask again")
    offline = document.get("outputs")
    for i, choice in enumerate((offline or document.need("choices")).entries()):
        sequence = len(listing.texts)
        prompt = choice.get("prompt_token_ids") or document.get("prompt_token_ids")
        before = None if prompt is None else prompt.ids()
        tokens = choice.get("token_ids")
        after = None if tokens is None else tokens.ids()
        listing.texts[sequence] = [] if before is None else before + (after or [])
        laws = choice.get("prompt_logprobs") or document.get("prompt_logprobs")
        if laws is not None and not (offline and i):
            _add_laws(laws, listing, sequence, 0, before)
        logprobs = choice.get("logprobs")
        start = None if before is None else len(before)
        if logprobs is None:
            if laws is None:
                raise choice.refuse("has no logprobs and no prompt_logprobs; ask for them")
        elif offline:
            _add_laws(logprobs, listing, sequence, start, after)
        elif logprobs.get("content") is not None:
            add_chat(logprobs, listing, sequence, start)
        else:
            add_completion(logprobs, listing, sequence, _start(logprobs, before, after))


def _start(logprobs: Node, before: list[int] | None, after: list[int] | None) -> int | None:
    """Tokens before the first of ``logprobs``: none where the prompt is echoed."""
    if before is None or after is None:
        return None
    count = len(logprobs.need("tokens").entries())
    if count == len(after):
        return len(before)
    if count == len(before) + len(after):
        return 0
    raise logprobs.refuse(f"has {count} tokens, of a prompt of {len(before)} and {len(after)} token_ids")


def _add_laws(
    laws: Node, listing: Listing, sequence: int, start: int | None, tokens: list[int] | None
) -> None:
    """Objects from ids to log-probability and rank, of one token after the other."""
    entries = laws.entries()
    if tokens is not None and len(tokens) != len(entries):
        raise laws.refuse(f"has {len(entries)} entries for {len(tokens)} tokens")
    for i, entry in enumerate(entries):
        if entry.value is None and i == 0 and start == 0:
            continue  # nothing comes before the first token of a prompt
        ids, logs, ranks = [], [], set()
        for key, value in entry.object().items():
            said = Node(value, f"{entry.where}[{key[:20]!r}]")
            if not (key.isascii() and key.isdecimal() and len(key) < 10):
                raise said.refuse("its key is no token id")
            ids.append(int(key))
            logs.append(said.need("logprob").number())
            rank = said.get("rank")
            ranks.add(0 if rank is None else rank.whole())
        ranked = next(n for n in range(len(ids) + 1) if n + 1 not in ranks)
        listing.add(
            entry.where,
            ids,
            logs,
            sequence=sequence,
            position=None if start is None else start + i,
            following=None if tokens is None else tokens[i],
            ranked=ranked,
        )
