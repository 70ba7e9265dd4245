"""OpenAI's ``/v1/chat/completions``: texts in, texts out.

Read in vLLM 0.33.0 (``entrypoints/openai/chat_completion/``), and ``usage`` in OpenAI's published schema. A
prompt is one message of the user; what a template makes of it is not seen. Tokens are the texts of
``logprobs.content``, where the server gives them, and else the characters of the text: at most as many as
tokens were asked for, so that they are always of the completion. There are no laws of given tokens.

OpenAI's schema has no ``top_k``, ``min_p`` and ``ignore_eos``. ``usage.completion_tokens_details`` may say
how many tokens of a prediction were accepted and rejected; where both are 0 there may have been none at all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from resispec_verify.audit.interface import Completion, Prompt, RawLaw, Sampling, Token
from resispec_verify.audit.servers.completions import first_choice, served_model
from resispec_verify.audit.servers.http import Client
from resispec_verify.audit.servers.served import Served

__all__ = ["Chat"]

PATH = "/v1/chat/completions"


class Chat(Served):
    """A server with ``/v1/chat/completions``. Whether it gives texts of tokens is found by one request."""

    path = PATH

    tokens_are = "texts"
    gives_laws = False

    def __init__(self, client: Client, model: str | None = None) -> None:
        super().__init__(client)
        self.model = served_model(client, model)
        answer = client.post(PATH, self._body("A", 1, 0, Sampling()) | {"logprobs": True}, optional=True)
        logprobs = first_choice(answer).get("logprobs")
        self._has_tokens = isinstance(logprobs, dict) and isinstance(logprobs.get("content"), list)

    def said(self) -> dict[str, Any]:
        """The model, and what tokens are here."""
        return {
            "schema": "chat",
            "model": self.model,
            "tokens": "texts of tokens" if self._has_tokens else "characters",
            "cannot": ["top_k", "min_p", "ignore_eos"],
        }

    def complete(
        self, prompt: Prompt, count: int, seed: int, sampling: Sampling, *, own_laws: int = 0
    ) -> Completion:
        """At most ``count`` tokens of an answer to ``prompt``; `Engine.complete`. Never with laws."""
        if sampling.top_k or sampling.min_p:
            self.client.fail("takes no top_k and no min_p, as OpenAI's schema has none; leave them at 0")
        if not isinstance(prompt, str):
            self.client.fail("has no token ids; give prompts as texts")
        body = self._body(prompt, count, seed, sampling)
        began = time.monotonic()
        answer = self.client.post(PATH, body | {"logprobs": True} if self._has_tokens else body)
        seconds = time.monotonic() - began
        choice = self.client.need(answer, dict, "choices", 0)
        tokens: list[Token]
        if self._has_tokens:
            entries = self.client.need(choice, list, "logprobs", "content")
            tokens = [self.client.need(entry, str, "token") for entry in entries]
        else:
            tokens = list(self.client.need(choice, str, "message", "content"))[:count]
        completion = Completion(tokens, seconds=seconds)
        details = self.client.part(answer, "usage", "completion_tokens_details")
        accepted, rejected = (
            self.client.need(details.get(name) or 0, int)
            for name in ("accepted_prediction_tokens", "rejected_prediction_tokens")
        )
        if accepted or rejected:
            completion.drafted, completion.accepted = accepted + rejected, accepted
        return self.finished(completion, count)

    def laws(self, prompt: Prompt, tokens: Sequence[Token], top: int, *, fresh: bool = False) -> list[RawLaw]:
        """None of this schema.

        Raises
        ------
        EngineError
        """
        self.client.fail("gives no laws of given tokens: OpenAI's schema of a chat has none")

    def body(self, prompt: Prompt, count: int, seed: int, sampling: Sampling) -> dict[str, Any]:
        """Of a completion."""
        return self._body(str(prompt), count, seed, sampling)

    def _body(self, prompt: str, count: int, seed: int, sampling: Sampling) -> dict[str, Any]:
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": count,
            "seed": seed,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "n": 1,
            "stream": False,
        }
