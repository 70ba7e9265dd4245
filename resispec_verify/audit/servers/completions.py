"""OpenAI's ``/v1/completions``: as vLLM extends it, and plain.

Read in vLLM 0.33.0: ``entrypoints/openai/completion/`` (``protocol.py``, ``serving.py``), ``logprobs.py``,
``v1/engine/logprobs.py``, ``v1/spec_decode/metrics.py``, ``entrypoints/serve/tokenize/protocol.py``. What
matters here:

- ``return_token_ids`` puts ``token_ids`` and ``prompt_token_ids`` into each choice; of a stream, those of the
  piece.
- ``prompt_logprobs`` has an entry for each token of the prompt, the first null: entry i is the law *before*
  token i, an object from ids (as strings) to ``logprob``, ``rank`` and ``decoded_token``. The prompt's own
  token comes first, also where it is not among the most probable. They are of raw logits, and are computed
  without the cache of prefixes (``skip_reading_prefix_cache``): every such request is a fresh one.
- ``logprobs.top_logprobs`` of a completion is the same, from texts, or from ``token_id:N`` with
  ``return_tokens_as_token_ids``. Of raw logits too, unless the server runs with another ``--logprobs-mode``.
- ``ignore_eos`` does not bar the tokens that end a text: they may be drawn, and the completion goes on.
- At most ``--max-logprobs`` (20 unless it is set) tokens of a law can be asked for.
- A stream's piece is what the engine made in one step: the tokens of one round, or of several where the
  server was too busy to send them at once. The first token comes of the prompt alone.

A plain server gives no ids. Its tokens are the texts of ``logprobs.tokens``, or characters where it has none,
and it gives no laws: a law after a text is one after *a* tokenisation of it, not necessarily that of the
completion.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from resispec_verify.audit.interface import Completion, Prompt, RawLaw, Sampling, Token
from resispec_verify.audit.servers.http import Client
from resispec_verify.audit.servers.served import Served, rounds

__all__ = ["Completions", "first_choice", "served_model"]

PATH = "/v1/completions"
_ID = re.compile(r"token_id:[0-9]+")


def served_model(client: Client, model: str | None) -> str:
    """The name of the model to ask for: the one that was given, or the only one that is served."""
    if model is not None:
        return model
    models = client.need(client.get("/v1/models"), list, "data")
    names = [client.need(entry, str, "id") for entry in models]
    if len(names) != 1:
        client.fail(f"serves {len(names)} models ({', '.join(names[:8])}); name one with --model")
    return names[0]


def first_choice(answer: Any) -> dict[str, Any]:
    """The first of the choices of an answer to a probe; empty where there is none."""
    try:
        choice = answer["choices"][0]
    except (KeyError, IndexError, TypeError):
        return {}
    return choice if isinstance(choice, dict) else {}


class Completions(Served):
    """A server with ``/v1/completions``. What it can is found by up to three requests at the beginning."""

    path = PATH

    def __init__(self, client: Client, model: str | None = None) -> None:
        super().__init__(client)
        self.model = served_model(client, model)
        self.gives_laws = False
        for extra in ({"prompt_logprobs": 1}, {}):
            # Two tokens that every vocabulary has.
            body = self._ids_body([1, 1], 1, 0, Sampling()) | extra
            choice = first_choice(client.post(PATH, body, optional=True))
            if isinstance(choice.get("token_ids"), list):
                laws = choice.get("prompt_logprobs")
                self.gives_laws = isinstance(laws, list) and len(laws) == 2
                return
        self.tokens_are = "texts"
        answer = client.need(client.post(PATH, self._text_body("A", 1, 0, Sampling())), dict)
        logprobs = client.need(answer, dict, "choices", 0).get("logprobs")
        self._has_tokens = isinstance(logprobs, dict) and isinstance(logprobs.get("tokens"), list)

    def said(self) -> dict[str, Any]:
        """The model, and the version where it says one (vLLM's ``/version``)."""
        version = self.client.get("/version", optional=True)
        said = {
            "schema": "completions",
            "model": self.model,
            "version": version.get("version") if isinstance(version, dict) else None,
        }
        if self.tokens_are == "texts":
            said["tokens"] = "texts of tokens" if self._has_tokens else "characters"
            said["cannot"] = ["top_k", "min_p", "ignore_eos"]
        return said

    def encode(self, text: str) -> Prompt:
        """The ids of a text, of vLLM's ``/tokenize`` or as it reads the text as a prompt."""
        if self.tokens_are == "texts":
            return text
        body = {"model": self.model, "prompt": text, "add_special_tokens": True}
        answer = self.client.post("/tokenize", body, optional=True)
        if answer is not None:
            return self.ids(self.client.need(answer, list, "tokens"), "tokens")
        body = self._ids_body([], 1, 0, Sampling()) | {"prompt": text, "add_special_tokens": True}
        answer = self.client.post(PATH, body)
        field = "choices[0].prompt_token_ids"
        return self.ids(self.client.need(answer, list, "choices", 0, "prompt_token_ids"), field)

    def complete(
        self, prompt: Prompt, count: int, seed: int, sampling: Sampling, *, own_laws: int = 0
    ) -> Completion:
        """At most ``count`` tokens after ``prompt``; `Engine.complete`. Streamed, without laws."""
        if self.tokens_are == "texts":
            return self._texts(prompt, count, seed, sampling)
        ids = self.prompt_ids(prompt)
        body = self._ids_body(ids, count, seed, sampling)
        began = time.monotonic()
        if not own_laws:
            events = self.client.events(
                PATH, body | {"stream": True, "stream_options": {"include_usage": True}}
            )
            completion = self._streamed(events, ids)
            metrics = [event["metrics"] for event in events if event.get("metrics")]
        else:
            answer = self.client.post(PATH, body | {"logprobs": own_laws, "return_tokens_as_token_ids": True})
            choice = self.client.need(answer, dict, "choices", 0)
            self._same_prompt(choice, ids)
            tokens = self.ids(self.client.need(choice, list, "token_ids"), "choices[0].token_ids")
            completion = Completion(tokens)
            self._own_laws(choice, completion, own_laws)
            metrics = [answer["metrics"]] if answer.get("metrics") else []
        completion.seconds = time.monotonic() - began
        for entry in metrics:
            if isinstance(entry, dict) and entry.get("speculative_decoding"):
                said = entry["speculative_decoding"]
                completion.drafted = self.client.need(said, int, "num_draft_tokens")
                completion.accepted = self.client.need(said, int, "num_accepted_draft_tokens")
        return self.finished(completion, count)

    def laws(self, prompt: Prompt, tokens: Sequence[Token], top: int, *, fresh: bool = False) -> list[RawLaw]:
        """The law before each of ``tokens``, in one request; `Engine.laws`. Always computed anew."""
        if not self.gives_laws:
            self.client.fail("gives no laws of given tokens (no prompt_logprobs with ids)")
        if not tokens:
            return []
        before = self.prompt_ids(prompt)
        ids = before + [int(token) for token in tokens]
        answer = self.client.post(PATH, self._ids_body(ids, 1, 0, Sampling()) | {"prompt_logprobs": top})
        choice = self.client.need(answer, dict, "choices", 0)
        self._same_prompt(choice, ids)
        entries = self.client.need(choice, list, "prompt_logprobs")
        if len(entries) != len(ids):
            self.client.fail(f"gives {len(entries)} prompt_logprobs for a prompt of {len(ids)} tokens")
        return [self._prompt_law(entries, at, ids[at], top) for at in range(len(before), len(ids))]

    def counters(self) -> tuple[int, int] | None:
        """Of vLLM's ``/metrics``, over all its engines; it has them only where it speculates."""
        return self.totals("vllm", none_is_zero=True)

    def _prompt_law(self, entries: list[Any], at: int, token: int, top: int) -> RawLaw:
        field = f"prompt_logprobs[{at}]"
        entry = self.client.need(entries, dict, at)
        if str(token) not in entry:
            self.client.fail(f"field {field} of its answer is of another token than {token}, which is there")
        pairs = []
        for key, said in entry.items():
            if not key.isdecimal():
                self.client.fail(f"field {field} of its answer has the key {key!r}, which is no token id")
            pairs.append((int(key), self.client.need(said, (int, float), "logprob")))
        return self.law(pairs, top, field, given=token)

    def _streamed(self, events: list[dict[str, Any]], ids: list[int]) -> Completion:
        tokens: list[Token] = []
        pieces = []
        for event in events:
            for choice in self.client.need(event, list, "choices"):
                self._same_prompt(choice, ids)
                piece = self.ids(
                    self.client.need(choice, dict).get("token_ids") or [], "choices[0].token_ids"
                )
                pieces.append(len(piece))
                tokens += piece
        if not tokens:
            self.client.fail("streamed no field choices[0].token_ids: not one token")
        return Completion(tokens, starts=rounds(pieces))

    def _same_prompt(self, choice: dict[str, Any], ids: list[int]) -> None:
        """What the server says it read as the prompt is what was sent."""
        read = self.client.need(choice, dict).get("prompt_token_ids")
        if read is not None and self.client.need(read, list) != ids:
            self.client.fail(f"read a prompt of {len(read)} tokens that is not the one of {len(ids)} sent")

    def _own_laws(self, choice: dict[str, Any], completion: Completion, top: int) -> None:
        entries = self.client.part(choice, "logprobs").get("top_logprobs")
        if not isinstance(entries, list) or len(entries) != len(completion.tokens):
            return
        laws = []
        for at, (entry, token) in enumerate(zip(entries, completion.tokens, strict=True)):
            field = f"logprobs.top_logprobs[{at}]"
            if not isinstance(entry, dict) or not all(map(_ID.fullmatch, entry)):
                return
            pairs = [(int(key.removeprefix("token_id:")), logprob) for key, logprob in entry.items()]
            if token not in dict(pairs):
                completion.oddities.append("its log-probabilities are of other tokens than those it gave")
                return
            laws.append(self.law(pairs, top, field, given=token))
        completion.laws = laws

    def _texts(self, prompt: Prompt, count: int, seed: int, sampling: Sampling) -> Completion:
        if sampling.top_k or sampling.min_p:
            self.client.fail("takes no top_k and no min_p, as OpenAI's schema has none; leave them at 0")
        if not isinstance(prompt, str):
            self.client.fail("has no token ids; give prompts as texts")
        began = time.monotonic()
        answer = self.client.post(PATH, self._text_body(prompt, count, seed, sampling))
        seconds = time.monotonic() - began
        choice = self.client.need(answer, dict, "choices", 0)
        if self._has_tokens:
            tokens = self.client.need(choice, list, "logprobs", "tokens")
            if not all(isinstance(token, str) for token in tokens):
                self.client.fail("field choices[0].logprobs.tokens of its answer is no list of texts")
        else:
            tokens = list(self.client.need(choice, str, "text"))[:count]
        return self.finished(Completion(tokens, seconds=seconds), count)

    def body(self, prompt: Prompt, count: int, seed: int, sampling: Sampling) -> dict[str, Any]:
        """Of a completion without laws."""
        if self.tokens_are == "texts":
            return self._text_body(str(prompt), count, seed, sampling)
        return self._ids_body(self.prompt_ids(prompt), count, seed, sampling)

    def _text_body(self, prompt: str, count: int, seed: int, sampling: Sampling) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": count,
            "seed": seed,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "n": 1,
            "echo": False,
            "logprobs": 1,
            "stream": False,
        }

    def _ids_body(self, ids: list[int], count: int, seed: int, sampling: Sampling) -> dict[str, Any]:
        body = self._text_body("", count, seed, sampling)
        del body["logprobs"]
        return body | {
            "prompt": ids,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "repetition_penalty": 1.0,
            "ignore_eos": sampling.ignore_eos,
            "add_special_tokens": False,
            "return_token_ids": True,
        }
