"""llama.cpp's own schema: ``/completion``, ``/tokenize``, ``/props``.

Read in ``tools/server`` of ggml-org/llama.cpp: README.md at commit 00dc8057, server-task.cpp at 17f5f8a8,
server-schema.cpp at 23b5dbd4. What matters here:

- ``completion_probabilities`` has one entry a token, with ``id``, ``logprob`` and ``top_logprobs`` (entries
  with ``id`` and ``logprob``), which are of the raw logits; or, with ``post_sampling_probs``, with ``prob``
  and ``top_probs`` (entries with ``id`` and ``prob``), which are what the token was drawn from.
- The raw ones are normalised by a sum in float32, one token after the other, which loses small terms: with a
  vocabulary of 49,152 tokens all probabilities came out 1.7e-4 to 2.6e-4 too large, in proportion. And they
  know nothing of ``ignore_eos``, which bars the tokens that end a text. So a law is asked for as what a token
  is drawn from, at temperature 1 without filters. Only where a completion with other settings is to bring
  laws are the raw ones taken, without those that ``generation_settings.logit_bias`` bars (``bias`` is null).
- Tokens of a verified draft come with ``logprob`` 0.0 and an empty ``top_logprobs`` (issue 27972): no law.
- ``samplers`` is the order of the filters, and what is not in the list is not applied.
- ``timings.draft_n`` and ``timings.draft_n_accepted`` are there where draft tokens were verified in the
  request; ``timings`` without them says that none were.
- A token that ends inside a character has no entry in ``completion_probabilities``, and where it was the only
  one the field is missing; so laws are asked for with another seed then. A stream leaves its id out, so that
  nothing is streamed, although with ``timings_per_token`` a stream would show rounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from resispec_verify.audit.interface import Completion, Prompt, RawLaw, Sampling, Token
from resispec_verify.audit.servers.http import Client
from resispec_verify.audit.servers.served import Served

__all__ = ["LlamaCpp"]

# A setting is float32 in the server.
FLOAT32 = 2.0**-20
# -1 and 2**32 - 1 mean any seed; builds differ in whether a seed is read as int32 or uint32.
SEEDS = 1 << 31
# Tokens drawn for one law, until one has it.
DRAWS = 8
# Asked for beyond those that are wanted: some of the most probable tokens may be barred ones.
SPARE = 8
FIELD = "completion_probabilities."


class LlamaCpp(Served):
    """A server of llama.cpp.

    Attributes
    ----------
    ignore_eos : bool
        What `laws` asks with: whether the law is that of going on after the end of a text, without the tokens
        that end one. It has to be as in the `Sampling` of the completions.
    """

    path = "/completion"

    ignore_eos = True

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._props = client.part({"props": client.get("/props", optional=True)}, "props")
        models = client.get("/v1/models", optional=True)
        try:
            vocab = models["data"][0]["meta"]["n_vocab"]
        except (KeyError, IndexError, TypeError):
            vocab = None
        self.vocab = vocab if type(vocab) is int and vocab > 0 else None

    def said(self) -> dict[str, Any]:
        """The model, the build and the length of the context.

        Not whether it speculates: ``/props`` says ``speculative.types`` "none" also of a server that drafts.
        """
        settings = self.client.part(self._props, "default_generation_settings")
        return {
            "schema": "llamacpp",
            "model": self._props.get("model_path"),
            "version": self._props.get("build_info"),
            "context": settings.get("n_ctx"),
            "slots": self._props.get("total_slots"),
            "vocab": self.vocab,
        }

    def encode(self, text: str) -> list[int]:
        """The ids of a text, with the token that begins one where the model has it."""
        body = {"content": text, "add_special": True, "parse_special": True, "with_pieces": False}
        return self.ids(self.client.need(self.client.post("/tokenize", body), list, "tokens"), "tokens")

    def complete(
        self, prompt: Prompt, count: int, seed: int, sampling: Sampling, *, own_laws: int = 0
    ) -> Completion:
        """At most ``count`` tokens after ``prompt``; `Engine.complete`."""
        body = self._body(self.prompt_ids(prompt), count, seed, sampling, own_laws, cache=True)
        began = time.monotonic()
        answer = self._answer(body)
        seconds = time.monotonic() - began
        completion = Completion(self.ids(self.client.need(answer, list, "tokens"), "tokens"), seconds=seconds)
        timings = self.client.part(answer, "timings")
        if timings.get("draft_n") is not None:
            completion.drafted = self.client.need(answer, int, "timings", "draft_n")
            completion.accepted = self.client.need(answer, int, "timings", "draft_n_accepted")
        elif timings:
            completion.drafted = completion.accepted = 0
        completion.oddities += self._changed(answer, body)
        if own_laws:
            self._own_laws(answer, completion, own_laws)
        return self.finished(completion, count)

    def laws(self, prompt: Prompt, tokens: Sequence[Token], top: int, *, fresh: bool = False) -> list[RawLaw]:
        """The law before each of ``tokens``: one request for one token each; `Engine.laws`.

        They come one after the other, so that the server computes the last token of each only, unless
        ``fresh``.
        """
        ids = self.prompt_ids(prompt)
        plain = Sampling(ignore_eos=self.ignore_eos)
        found = []
        for at in range(len(tokens)):
            prefix = ids + [int(token) for token in tokens[:at]]
            found.append(self._law_after(prefix, plain, top, cache=not fresh))
        return found

    def _law_after(self, prefix: list[int], plain: Sampling, top: int, *, cache: bool) -> RawLaw:
        """The law after a text; it comes with a token, not with every one, so that several are drawn."""
        answer: dict[str, Any] = {}
        for seed in range(DRAWS):
            answer = self._answer(self._body(prefix, 1, seed, plain, top, cache=cache))
            if answer.get("completion_probabilities"):
                entry = self.client.need(answer, dict, "completion_probabilities", 0)
                return self._law(entry, top, self._barred(answer))
            if not answer.get("tokens"):
                break
        else:
            return RawLaw((), ())
        self.client.fail("its answer has no field completion_probabilities")

    def body(self, prompt: Prompt, count: int, seed: int, sampling: Sampling) -> dict[str, Any]:
        """Of a completion without laws."""
        return self._body(self.prompt_ids(prompt), count, seed, sampling, 0, cache=True)

    def counters(self) -> tuple[int, int] | None:
        """Of ``/metrics``, where the server was started with ``--metrics``."""
        return self.totals("llamacpp")

    def _body(
        self, ids: list[int], count: int, seed: int, sampling: Sampling, top: int, *, cache: bool
    ) -> dict[str, Any]:
        if not 0 <= seed < SEEDS:
            self.client.fail(f"seed {seed} is not between 0 and 2**31 - 1, which llama.cpp takes")
        asked = min(top + SPARE, self.vocab or top + SPARE) if top else 0
        return {
            "prompt": ids,
            "n_predict": count,
            "seed": seed,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "ignore_eos": sampling.ignore_eos,
            "samplers": ["temperature", "top_k", "top_p", "min_p"],
            "repeat_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "dry_multiplier": 0.0,
            "xtc_probability": 0.0,
            "typical_p": 1.0,
            "top_n_sigma": -1.0,
            "dynatemp_range": 0.0,
            "mirostat": 0,
            "min_keep": 0,
            "n_probs": asked,
            "post_sampling_probs": sampling == Sampling(ignore_eos=sampling.ignore_eos),
            "return_tokens": True,
            "cache_prompt": cache,
            "stream": False,
        }

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.client.need(self.client.post(self.path, body), dict)
        if answer.get("truncated") is True:
            self.client.fail(
                "the context is full, and the server dropped tokens from its start; ask for fewer tokens"
            )
        return answer

    def _barred(self, answer: dict[str, Any]) -> set[Any]:
        """Ids that could not be drawn: those that end a text, where that is ignored."""
        biases = self.client.part(answer, "generation_settings").get("logit_bias") or []
        return {
            self.client.need(entry, int, "token")
            for entry in self.client.need(biases, list)
            if isinstance(entry, dict) and entry.get("bias") is None
        }

    def _law(self, entry: dict[str, Any], top: int, barred: set[int]) -> RawLaw:
        """The law of an entry: as it was drawn from, or raw and then without barred tokens."""
        if "top_probs" in entry:
            return self.law(self._pairs(entry, "top_probs", "prob"), top, FIELD + "top_probs")
        pairs = self._pairs(entry, "top_logprobs", "logprob")
        law = self.law(pairs, len(pairs), FIELD + "top_logprobs")
        lost = math.fsum(math.exp(y) for x, y in zip(law.tokens, law.logprobs, strict=True) if x in barred)
        kept = [(x, y) for x, y in zip(law.tokens, law.logprobs, strict=True) if x not in barred]
        if lost >= 1.0 or not kept:
            self.client.fail("reports only tokens that end a text, which ignore_eos bars; use another prompt")
        # The mass of barred tokens is the others' in proportion.
        shift = math.log1p(-lost)
        logprobs = tuple(min(0.0, y - shift) if lost else y for _, y in kept[:top])
        return RawLaw(tuple(x for x, _ in kept[:top]), logprobs, law.complete and len(kept) <= top)

    def _pairs(self, entry: dict[str, Any], name: str, value: str) -> list[tuple[int, Any]]:
        """(id, log-probability) of an entry's list; tokens of probability 0 are left out."""
        reported = self.client.need(entry, list, name)
        ids = self.ids([self.client.need(x, int, "id") for x in reported], FIELD + name)
        if value == "logprob":
            return list(zip(ids, [x.get(value) for x in reported], strict=True))
        probs = [self.client.need(x, (int, float), value) for x in reported]
        if not all(0.0 <= p <= 1.0 + FLOAT32 for p in probs):
            self.client.fail(f"field {FIELD}{name} of its answer has what is no probability")
        return [(i, min(0.0, math.log(p))) for i, p in zip(ids, probs, strict=True) if p > 0.0]

    def _own_laws(self, answer: dict[str, Any], completion: Completion, top: int) -> None:
        """Laws that came with a completion, or what is odd of them (issue 27972)."""
        entries = answer.get("completion_probabilities")
        if not isinstance(entries, list) or len(entries) != len(completion.tokens):
            return
        empty = sum(
            not (self.client.need(x, dict).get("top_probs") or x.get("top_logprobs")) for x in entries
        )
        if empty:
            completion.oddities.append(
                f"{empty} of {len(entries)} tokens came without a law, as drafted ones do in llama.cpp "
                "(log-probability 0.0 and no alternatives)"
            )
            return
        barred = self._barred(answer)
        completion.laws = [self._law(entry, top, barred) for entry in entries]
        if [entry.get("id") for entry in entries] != completion.tokens:
            completion.laws = None
            completion.oddities.append("its log-probabilities are of other tokens than those it gave")

    def _changed(self, answer: dict[str, Any], body: dict[str, Any]) -> list[str]:
        """Settings that the server says it used, where they are not those asked for."""
        used = self.client.part(answer, "generation_settings")
        found = []
        for name in ("temperature", "top_k", "top_p", "min_p", "seed", "samplers", "ignore_eos"):
            asked, got = body[name], used.get(name, body[name])
            if type(asked) is float and isinstance(got, (int, float)):
                same = math.isclose(asked, got, rel_tol=FLOAT32, abs_tol=FLOAT32)
            else:
                same = asked == got
            if not same:
                found.append(f"says that it used {name} {got}, where {asked} was asked for")
        return found
