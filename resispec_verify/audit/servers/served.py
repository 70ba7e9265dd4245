"""What all servers share: ids of prompts, laws of what they report, and counters of Prometheus."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from resispec_verify.audit.interface import Completion, Prompt, RawLaw, Sampling, Token
from resispec_verify.audit.servers.http import Client

__all__ = ["Served"]


class Served:
    """An engine behind HTTP. Every schema is a subclass."""

    tokens_are = "ids"
    gives_laws = True
    vocab: int | None = None
    #: Where `complete` asks.
    path = ""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.name = client.name

    def encode(self, text: str) -> Prompt:
        """The text itself, where a schema knows no ids."""
        return text

    def counters(self) -> tuple[int, int] | None:
        """None: the schema has no such counters."""
        return None

    def request(self, prompt: Prompt, count: int, seed: int, sampling: Sampling) -> dict[str, Any] | None:
        """The request of `complete`, to be shown."""
        return {"url": self.name + self.path, "body": self.body(prompt, count, seed, sampling)}

    def body(self, prompt: Prompt, count: int, seed: int, sampling: Sampling) -> dict[str, Any]:
        """The body of that request."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of connections. The engine itself goes on."""
        self.client.close()

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        """A prompt as ids, also where it is a text."""
        ids = self.encode(prompt) if isinstance(prompt, str) else prompt
        if isinstance(ids, str) or not len(ids):
            self.client.fail("a prompt has at least one token")
        return [int(token) for token in ids]

    def ids(self, tokens: Any, field: str) -> list[Any]:
        """Token ids that a server reported, checked.

        Raises
        ------
        EngineError
        """
        if not isinstance(tokens, list) or not all(type(x) is int and x >= 0 for x in tokens):
            self.client.fail(f"field {field} of its answer is no list of token ids")
        return tokens

    def law(self, pairs: Iterable[tuple[Token, Any]], top: int, field: str) -> RawLaw:
        """The ``top`` most probable of (token, log-probability) pairs, most probable first.

        Raises
        ------
        EngineError
            A log-probability is no number, or there is none at all.
        """
        known = list(pairs)
        for token, logprob in known:
            if type(logprob) not in (int, float) or math.isnan(logprob):
                self.client.fail(f"field {field} of its answer says {logprob} of token {token!r}")
        if not known:
            self.client.fail(f"field {field} of its answer is empty: it reports no law there")
        known.sort(key=lambda pair: -pair[1])
        known = known[:top]
        complete = self.vocab is not None and len(known) >= self.vocab
        return RawLaw(tuple(x for x, _ in known), tuple(float(y) for _, y in known), complete)

    def finished(self, completion: Completion, count: int) -> Completion:
        """A completion of at most ``count`` tokens, with what cannot be right of it said."""
        tokens, drafted, accepted = completion.tokens, completion.drafted, completion.accepted
        if len(tokens) > count:
            completion.oddities.append(f"gave {len(tokens)} tokens where {count} were asked for")
            del tokens[count:]
            if completion.laws is not None:
                del completion.laws[count:]
            if completion.starts is not None:
                completion.starts = [start for start in completion.starts if start < count]
        if drafted is not None and accepted is not None and accepted > drafted:
            completion.oddities.append(f"reports {accepted} accepted draft tokens of {drafted}")
        return completion

    def totals(self, prefix: str) -> tuple[int, int] | None:
        """Draft tokens and accepted ones of the page ``/metrics``, summed over engines."""
        page = self.client.text("/metrics")
        found = []
        for name in ("num_draft_tokens", "num_accepted_tokens"):
            line = rf"^{prefix}:spec_decode_{name}_total(?:\{{.*\}})?\s+([0-9.eE+-]+)\s*(?:\d+)?$"
            values = re.findall(line, page or "", re.MULTILINE)
            if not values:
                return None
            found.append(round(sum(float(value) for value in values)))
        return found[0], found[1]


def rounds(pieces: Sequence[int]) -> list[int]:
    """Where rounds began, of how many tokens each piece of a stream brought.

    An engine that hands over single tokens looks as if it accepted no draft token. Pieces that a busy server
    joins are one round here.
    """
    starts, at = [], 0
    for size in pieces:
        if size:
            starts.append(at)
            at += size
    return starts
