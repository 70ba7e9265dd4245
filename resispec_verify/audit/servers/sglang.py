"""SGLang's own schema: ``/generate``.

Read in SGLang 0.5.23: ``srt/managers/tokenizer_manager.py``, ``srt/managers/io_struct.py``,
``srt/managers/scheduler_components/logprob_result_processor.py``, ``srt/sampling/sampling_params.py``,
``srt/layers/sampler.py``, ``srt/entrypoints/http_server.py``. What matters here:

- ``meta_info.input_top_logprobs`` has an entry for each token of the prompt from ``logprob_start_len`` on,
  each the law *before* that token as a list of ``[logprob, id, text]``. The first entry is null, also where
  something stands before it: laws from place P on are asked for with ``logprob_start_len`` P - 1.
  ``meta_info.input_token_logprobs`` says which tokens they are of; an id that is the last of the vocabulary
  stands there as 0. Nothing from ``logprob_start_len`` on is read from the cache of prefixes.
- ``meta_info.output_top_logprobs`` is of the law after the temperature, unless the server runs with
  SGLANG_RETURN_ORIGINAL_LOGPROB: laws of a completion are taken at temperature 1 only.
- ``output_ids`` of a stream's piece are all tokens so far, or those of the piece where the server runs with
  ``--incremental-streaming-output``; ``meta_info.completion_tokens`` is how many there are so far.
- ``meta_info.spec_num_proposed_drafts`` and ``spec_num_correct_drafts`` (before: ``spec_draft_token_num``,
  ``spec_accept_token_num``) are there at the end of a speculative request; others that begin with
  ``spec_`` alone are of a version that does not count, and none at all says that nothing was verified.
- ``sampling_seed`` is used only where the server runs with ``--enable-deterministic-inference``.
- ``/model_info`` and ``/server_info`` were ``/get_model_info`` and ``/get_server_info``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from resispec_verify.audit.interface import Completion, Prompt, RawLaw, Sampling, Token
from resispec_verify.audit.servers.http import Client
from resispec_verify.audit.servers.served import Served, rounds

__all__ = ["SGLang", "model_info"]

PATH = "/generate"
COUNTS = (
    ("spec_num_proposed_drafts", "spec_num_correct_drafts"),
    ("spec_draft_token_num", "spec_accept_token_num"),
)


def model_info(client: Client) -> dict[str, Any] | None:
    """What SGLang says of its model; None where this is no SGLang."""
    for path in ("/model_info", "/get_model_info"):
        said = client.get(path, optional=True)
        if isinstance(said, dict) and "model_path" in said:
            return said
    return None


class SGLang(Served):
    """A server of SGLang."""

    path = PATH

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._model = model_info(client) or {}

    def said(self) -> dict[str, Any]:
        """The model, the version, how it speculates, and whether it heeds seeds."""
        info: Any = None
        for path in ("/server_info", "/get_server_info"):
            info = info or self.client.get(path, optional=True)
        info = info if isinstance(info, dict) else {}
        return {
            "schema": "sglang",
            "model": self._model.get("model_path"),
            "version": info.get("version"),
            "speculation": info.get("speculative_algorithm"),
            "seeded": info.get("enable_deterministic_inference"),
        }

    def encode(self, text: str) -> list[int]:
        """The ids of a text, with the token that begins one where the model has it."""
        body = {"prompt": text, "add_special_tokens": True}
        return self.ids(self.client.need(self.client.post("/tokenize", body), list, "tokens"), "tokens")

    def complete(
        self, prompt: Prompt, count: int, seed: int, sampling: Sampling, *, own_laws: int = 0
    ) -> Completion:
        """At most ``count`` tokens after ``prompt``; `Engine.complete`. Streamed, without laws."""
        body = self._body(self.prompt_ids(prompt), count, seed, sampling)
        began = time.monotonic()
        if own_laws:
            answer = self.client.need(
                self.client.post(PATH, body | {"return_logprob": True, "top_logprobs_num": own_laws}), dict
            )
            tokens = self.ids(self.client.need(answer, list, "output_ids"), "output_ids")
            completion, meta = Completion(tokens), self.client.need(answer, dict, "meta_info")
            if sampling.temperature == 1.0:
                self._own_laws(meta, completion, own_laws)
        else:
            completion, meta = self._streamed(self.client.events(PATH, body | {"stream": True}))
        completion.seconds = time.monotonic() - began
        reason = meta.get("finish_reason")
        if isinstance(reason, dict) and reason.get("type") == "abort":
            self.client.fail(f"gave a completion up: {reason.get('message')}")
        for drafted, accepted in COUNTS:
            if meta.get(drafted) is not None:
                completion.drafted = self.client.need(meta, int, drafted)
                completion.accepted = self.client.need(meta, int, accepted)
        if meta and not any(name.startswith("spec_") for name in meta):
            completion.drafted = completion.accepted = 0
        return self.finished(completion, count)

    def laws(self, prompt: Prompt, tokens: Sequence[Token], top: int, *, fresh: bool = False) -> list[RawLaw]:
        """The law before each of ``tokens``, in one request; `Engine.laws`."""
        if not tokens:
            return []
        before = self.prompt_ids(prompt)
        ids = before + [int(token) for token in tokens]
        start = 0 if fresh else len(before) - 1
        extra = {"return_logprob": True, "logprob_start_len": start, "top_logprobs_num": top}
        answer = self.client.post(PATH, self._body(ids, 1, 0, Sampling()) | extra)
        meta = self.client.need(answer, dict, "meta_info")
        entries = self.client.need(meta, list, "input_top_logprobs")
        named = self.client.need(meta, list, "input_token_logprobs")
        if not len(entries) == len(named) == len(ids) - start:
            self.client.fail(
                f"gives {len(entries)} input_top_logprobs and {len(named)} input_token_logprobs "
                f"for {len(ids) - start} tokens"
            )
        found = []
        for at in range(len(before) - start, len(entries)):
            token = self.client.need(named, int, at, 1)
            if token not in (ids[start + at], 0):
                self.client.fail(
                    f"field input_token_logprobs[{at}] is of token {token}, not of {ids[start + at]}"
                )
            entry = self.client.need(entries, list, at)
            found.append(self._law(entry, top, f"input_top_logprobs[{at}]"))
        return found

    def _law(self, entry: list[Any], top: int, field: str) -> RawLaw:
        ids = self.ids([self.client.need(x, int, 1) for x in entry], field)
        return self.law(list(zip(ids, [x[0] for x in entry], strict=True)), top, field)

    def _own_laws(self, meta: dict[str, Any], completion: Completion, top: int) -> None:
        entries = meta.get("output_top_logprobs")
        if not isinstance(entries, list) or len(entries) != len(completion.tokens):
            return
        empty = sum(not entry for entry in entries)
        if empty:
            completion.oddities.append(f"{empty} of {len(entries)} tokens came without a law")
            return
        completion.laws = [
            self._law(self.client.need(entries, list, at), top, f"output_top_logprobs[{at}]")
            for at in range(len(entries))
        ]

    def _streamed(self, events: list[dict[str, Any]]) -> tuple[Completion, dict[str, Any]]:
        tokens: list[Token] = []
        pieces: list[int] = []
        meta: dict[str, Any] = {}
        for event in events:
            said = self.ids(self.client.need(event, list, "output_ids"), "output_ids")
            meta = self.client.need(event, dict, "meta_info")
            so_far = self.client.need(meta, int, "completion_tokens")
            piece = said
            if len(said) >= so_far:
                if said[: len(tokens)] != tokens:
                    self.client.fail("streamed output_ids that do not go on from those of the piece before")
                piece = said[len(tokens) :]
            elif len(tokens) + len(said) != so_far:
                self.client.fail(
                    f"streamed {len(tokens)} and {len(said)} tokens, where completion_tokens is {so_far}"
                )
            pieces.append(len(piece))
            tokens = tokens + piece
        if not events:
            self.client.fail("streamed no field output_ids: not one token")
        return Completion(tokens, starts=rounds(pieces)), meta

    def body(self, prompt: Prompt, count: int, seed: int, sampling: Sampling) -> dict[str, Any]:
        """Of a completion without laws."""
        return self._body(self.prompt_ids(prompt), count, seed, sampling)

    def _body(self, ids: list[int], count: int, seed: int, sampling: Sampling) -> dict[str, Any]:
        return {
            "input_ids": ids,
            "sampling_params": {
                "max_new_tokens": count,
                "sampling_seed": seed,
                "temperature": sampling.temperature,
                "top_k": sampling.top_k or -1,
                "top_p": sampling.top_p,
                "min_p": sampling.min_p,
                "ignore_eos": sampling.ignore_eos,
                "repetition_penalty": 1.0,
                "presence_penalty": 0.0,
                "frequency_penalty": 0.0,
                "min_new_tokens": 0,
                "n": 1,
            },
            "stream": False,
        }
