"""What all servers share: ids of prompts, laws of what they report, and counters of Prometheus."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from resispec_verify.audit.interface import Completion, Prompt, RawLaw, Sampling, Token
from resispec_verify.audit.servers.http import Client

__all__ = ["Served"]

# Beyond any log-probability: a larger number is none.
MOST = 1e300


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

    def facts(self) -> dict[str, Any]:
        """What the server says of itself, without the key that it was sent."""
        return self.client.clean(self.said())

    def said(self) -> dict[str, Any]:
        """What the server says of itself."""
        raise NotImplementedError

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

    def law(
        self, pairs: Iterable[tuple[Any, Any]], top: int, field: str, *, given: Token | None = None
    ) -> RawLaw:
        """The ``top`` most probable of (token, log-probability) pairs, most probable first.

        Tokens that are equally probable, as many are by logits in bfloat16, come in the order of their ids:
        the order of a list may depend on which of them is the text's, and a law must not.

        Parameters
        ----------
        given : Token, optional
            The text's own token, which the server adds where it is not among the most probable.

        Raises
        ------
        EngineError
            A log-probability is no number, a token is there twice, or there is none at all.
        """
        known = dict(pairs := list(pairs))
        for token, logprob in known.items():
            if type(logprob) not in (int, float) or not (abs(logprob) < MOST or logprob == -math.inf):
                self.client.fail(f"field {field} of its answer says {logprob} of token {token!r}")
        if not known:
            self.client.fail(f"field {field} of its answer is empty: it reports no law there")
        if len(known) < len(pairs):
            self.client.fail(f"field {field} of its answer has a token twice")
        if given is not None and len(known) > top and known[given] <= min(known.values()):
            del known[given]
        order = sorted(known, key=lambda token: (-known[token], token))[:top]
        complete = self.vocab is not None and len(order) >= self.vocab
        # What cannot come has no place among the most probable.
        order = [token for token in order if known[token] > -math.inf]
        return RawLaw(tuple(order), tuple(float(known[token]) for token in order), complete)

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
        completion.oddities = self.client.clean(completion.oddities)
        return completion

    def totals(self, prefix: str, *, none_is_zero: bool = False) -> tuple[int, int] | None:
        """Draft tokens and accepted ones of the page ``/metrics``, summed over engines.

        Parameters
        ----------
        none_is_zero : bool
            A page with other counters of ``prefix`` and none of speculation says that there is none.
        """
        page = self.client.text("/metrics")
        if none_is_zero and page and f"{prefix}:spec_decode_" not in page:
            return (0, 0) if re.search(rf"^{prefix}:", page, re.MULTILINE) else None
        found = []
        for name in ("num_draft_tokens", "num_accepted_tokens"):
            line = rf"^{prefix}:spec_decode_{name}_total(?:\{{.*\}})?\s+([0-9.eE+-]+)\s*(?:\d+)?$"
            values = re.findall(line, page or "", re.MULTILINE)
            try:
                found.append(round(sum(map(float, values))))
            except (ValueError, OverflowError):  # no such number
                return None
            if not values:
                return None
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
