"""What the fake server answers, in the schemas of llama.cpp's server, of vLLM and of OpenAI's chat.

Field names and defaults are those of llama.cpp's tools/server (to_json of its results, logprobs before
sampling) and of vLLM 0.33 (entrypoints/openai). Token ``i`` has the text ``" ti"``; no token ends a text.
"""

from __future__ import annotations

import random
import re
import time
import zlib
from dataclasses import dataclass

import numpy as np
from fake_engine import Drawn, Engine
from fake_models import ORDER, VOCAB, Sampling

MODEL = "toy"
CONTEXT = 4096
# llama.cpp's chain where a request names none: temperature comes last.
LLAMACPP_ORDER = ("top_k", "top_p", "min_p", "temperature")
ROLES = {"system": 1, "user": 2, "assistant": 3}


class Refusal(Exception):
    """An answer with an error: status, message."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status, self.message = status, message


@dataclass(frozen=True)
class Metrics:
    text: str


@dataclass(frozen=True)
class Stream:
    events: list[dict]


def text_of(token: int) -> str:
    return f" t{token}"


def ids_of(text: str) -> list[int]:
    """Token ids of a text: words that are no token's get one by their checksum."""
    words = re.findall(r"\S+", text)
    known = [re.fullmatch(r"t(\d+)", word) for word in words]
    return [
        int(m[1]) if m and int(m[1]) < VOCAB else zlib.crc32(word.encode()) % VOCAB
        for m, word in zip(known, words, strict=True)
    ]


def prompt_ids(prompt) -> list[int]:
    """Ids of a prompt that is a text, ids, or, as llama.cpp has it, a list of both."""
    parts = prompt if isinstance(prompt, list) else [prompt]
    if not parts or not all(isinstance(part, int | str) and not isinstance(part, bool) for part in parts):
        raise Refusal(400, "prompt must be a string or a list of token ids that is not empty")
    ids = [t for part in parts for t in ([part] if isinstance(part, int) else ids_of(part))]
    for t in ids:
        if not 0 <= t < VOCAB:
            raise Refusal(400, f"Token id {t} is out of vocabulary")
    return ids


def field(body: dict, name: str, default, kinds):
    """A field of a request; null is the default."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise Refusal(400, f"{name} has the wrong type: {value!r}")
    return value


def logprob(law: np.ndarray | None, token: int) -> float:
    """In float32, as engines have it; 0.0 where the engine reports no law."""
    if law is None:
        return 0.0
    with np.errstate(divide="ignore"):
        return max(float(np.log(np.float32(law[token]))), -9999.0)


def ranked(law: np.ndarray | None, top: int) -> list[tuple[int, float]]:
    """The ``top`` most probable tokens with their log-probabilities; none where the engine reports no law."""
    if law is None:
        return []
    return [(int(t), logprob(law, t)) for t in np.argsort(-law, kind="stable")[:top]]


class Schema:
    """What all have: an engine, and the limits that `fake_server.Behaviour` sets."""

    paths: tuple[str, ...] = ()

    def __init__(self, engine: Engine, no_logprobs: bool, most_logprobs: int):
        self.engine, self.no_logprobs, self.most_logprobs = engine, no_logprobs, most_logprobs

    def top(self, body: dict, name: str) -> int | None:
        """How many log-probabilities are asked for; None for none."""
        wanted = field(body, name, None, int)
        if wanted is None or self.no_logprobs:
            return None
        most = VOCAB if self.most_logprobs < 0 else self.most_logprobs
        wanted = VOCAB if wanted == -1 else wanted
        if wanted < 0:
            raise Refusal(400, f"`{name}` must be a positive value or -1.")
        if wanted > most:
            kind = "prompt" if name == "prompt_logprobs" else "sample"
            raise Refusal(
                400, f"Requested {kind} logprobs of {wanted}, which is greater than max allowed: {most}"
            )
        return wanted

    def draw(self, body: dict, ids: list[int], count: int, defaults: Sampling, order=ORDER) -> Drawn:
        if count < 1:
            raise Refusal(400, f"max_tokens must be at least 1, got {count}.")
        temperature = float(field(body, "temperature", defaults.temperature, int | float))
        if temperature < 0.05:
            raise Refusal(400, f"this toy engine needs a temperature of at least 0.05, got {temperature}")
        sampling = Sampling(
            temperature,
            max(0, field(body, "top_k", defaults.top_k, int)),
            float(field(body, "top_p", defaults.top_p, int | float)),
            float(field(body, "min_p", defaults.min_p, int | float)),
            order,
        )
        seed = field(body, "seed", -1, int)
        return self.engine.complete(ids, count, seed if seed >= 0 else random.getrandbits(32), sampling)

    def error(self, refusal: Refusal) -> dict:
        kind = "BadRequestError" if refusal.status == 400 else "NotFoundError"
        return {"error": {"message": refusal.message, "type": kind, "param": None, "code": refusal.status}}

    def get(self, path: str):
        raise Refusal(404, "Not Found")

    def post(self, path: str, body: dict):
        raise Refusal(404, "Not Found")


class LlamaCpp(Schema):
    paths = ("/completion", "/completions")
    defaults = Sampling(0.8, 40, 0.95, 0.05)

    def error(self, refusal: Refusal) -> dict:
        kind = {400: "invalid_request_error", 404: "not_found_error"}.get(refusal.status, "server_error")
        return {"error": {"code": refusal.status, "message": refusal.message, "type": kind}}

    def get(self, path: str):
        if path == "/health":
            return {"status": "ok"}
        if path == "/props":
            params = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "n_predict": -1}
            return {
                "default_generation_settings": {"n_ctx": CONTEXT, "params": params},
                "total_slots": 4,
                "model_alias": MODEL,
                "model_path": "toy.gguf",
                "build_info": "b0-fake",
            }
        if path in ("/v1/models", "/models"):
            meta = {"vocab_type": 2, "n_vocab": VOCAB, "n_ctx_train": CONTEXT}
            card = {"id": MODEL, "object": "model", "created": 0, "owned_by": "llamacpp", "meta": meta}
            return {"object": "list", "data": [card]}
        raise Refusal(404, "File Not Found")

    def post(self, path: str, body: dict):
        if path == "/tokenize":
            return {"tokens": ids_of(field(body, "content", "", str))}
        if path == "/detokenize":
            return {"content": "".join(map(text_of, body.get("tokens", [])))}
        if path not in self.paths:
            raise Refusal(404, "File Not Found")
        if body.get("stream"):
            raise Refusal(400, "this toy server streams in the schema of vLLM only")
        ids = prompt_ids(body.get("prompt"))
        order = tuple(name for name in body.get("samplers", LLAMACPP_ORDER) if name in ORDER)
        top = self.top(body, "n_probs") or 0
        out = self.draw(body, ids, field(body, "n_predict", 128, int), self.defaults, order)
        count = len(out.tokens)
        timings = {"cache_n": 0, "prompt_n": len(ids), "prompt_ms": 1.0, "predicted_n": count}
        timings |= {"predicted_ms": 1.0 * count, "predicted_per_second": 1000.0}
        if out.drafted:
            timings |= {"draft_n": out.drafted, "draft_n_accepted": out.accepted}
        answer = {
            "index": 0,
            "content": "".join(map(text_of, out.tokens)),
            "tokens": out.tokens if body.get("return_tokens") else [],
            "id_slot": 0,
            "stop": True,
            "model": MODEL,
            "tokens_predicted": count,
            "tokens_evaluated": len(ids),
            "generation_settings": {**body, "prompt": None},
            "prompt": "".join(map(text_of, ids)),
            "has_new_line": False,
            "truncated": False,
            "stop_type": "limit",
            "stopping_word": "",
            "tokens_cached": len(ids) + count - 1,
            "timings": timings,
        }
        if top:
            answer["completion_probabilities"] = [
                self._entry(t, logprob(law, t))
                | {"top_logprobs": [self._entry(*e) for e in ranked(law, top)]}
                for t, law in zip(out.tokens, out.laws, strict=True)
            ]
        return answer

    @staticmethod
    def _entry(token: int, logprob: float) -> dict:
        text = text_of(token)
        return {"id": token, "token": text, "bytes": list(text.encode()), "logprob": logprob}


class Vllm(Schema):
    paths = ("/v1/completions",)

    def get(self, path: str):
        if path == "/health":
            return None
        if path == "/version":
            return {"version": "0.33.0+fake"}
        if path == "/v1/models":
            card = {"id": MODEL, "object": "model", "created": 0, "owned_by": "vllm", "root": MODEL}
            return {"object": "list", "data": [{**card, "parent": None, "max_model_len": CONTEXT}]}
        if path == "/metrics":
            return Metrics(self._metrics())
        raise Refusal(404, "Not Found")

    def _metrics(self) -> str:
        running = f'vllm:num_requests_running{{engine="0",model_name="{MODEL}"}} 0.0\n'
        if not self.engine.k:
            return running
        counts = {
            "num_drafts": self.engine.rounds,
            "num_draft_tokens": self.engine.drafted,
            "num_accepted_tokens": self.engine.accepted,
        }
        return running + "".join(
            f"# HELP vllm:spec_decode_{name}_total A counter.\n# TYPE vllm:spec_decode_{name}_total counter\n"
            f'vllm:spec_decode_{name}_total{{engine="0",model_name="{MODEL}"}} {float(value)}\n'
            for name, value in counts.items()
        )

    def post(self, path: str, body: dict):
        if path == "/tokenize":
            ids = ids_of(field(body, "prompt", "", str))
            strs = [text_of(t) for t in ids] if body.get("return_token_strs") else None
            return {"count": len(ids), "max_model_len": CONTEXT, "tokens": ids, "token_strs": strs}
        if path not in self.paths:
            raise Refusal(404, "Not Found")
        if body.get("model") not in (None, MODEL):
            raise Refusal(404, f"The model `{body['model']}` does not exist.")
        ids = prompt_ids(body.get("prompt"))
        top, prompt_top = self.top(body, "logprobs"), self.top(body, "prompt_logprobs")
        if body.get("stream") and prompt_top:
            raise Refusal(400, "`prompt_logprobs` are not available when `stream=True`.")
        out = self.draw(body, ids, field(body, "max_tokens", 16, int), Sampling())
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(out.tokens)}
        usage["total_tokens"] = len(ids) + len(out.tokens)
        if body.get("stream"):
            return self._stream(body, ids, out, top, usage)
        choice = self._choice(body, out, slice(None), top) | {"finish_reason": "length"}
        choice["prompt_logprobs"] = None if prompt_top is None else self._prompt_logprobs(ids, prompt_top)
        choice["prompt_token_ids"] = ids if body.get("return_token_ids") else None
        return self._envelope([choice]) | {"usage": usage}

    @staticmethod
    def _envelope(choices: list[dict]) -> dict:
        head = {"id": "cmpl-fake", "object": "text_completion", "created": int(time.time())}
        return {**head, "model": MODEL, "choices": choices}

    def _choice(self, body: dict, out: Drawn, part: slice, top: int | None) -> dict:
        tokens, as_id = out.tokens[part], body.get("return_tokens_as_token_ids")
        name = (lambda t: f"token_id:{t}") if as_id else text_of
        logprobs = None
        if top is not None:
            laws = out.laws[part]
            # vLLM adds the token that came to the most probable ones.
            own = [logprob(law, t) for t, law in zip(tokens, laws, strict=True)]
            tops = [
                {} if law is None else {name(t): lp} | {name(e): v for e, v in ranked(law, top)}
                for t, lp, law in zip(tokens, own, laws, strict=True)
            ]
            offsets = np.cumsum([0, *(len(name(t)) for t in out.tokens[:-1])])[part].tolist()
            logprobs = {"text_offset": offsets, "token_logprobs": own}
            logprobs |= {"tokens": [name(t) for t in tokens], "top_logprobs": tops}
        return {
            "index": 0,
            "text": "".join(map(text_of, tokens)),
            "logprobs": logprobs,
            "finish_reason": None,
            "stop_reason": None,
            "token_ids": tokens if body.get("return_token_ids") else None,
        }

    def _prompt_logprobs(self, ids: list[int], top: int) -> list[dict | None]:
        """Per prompt token its own log-probability and the ``top`` most probable; null for the first."""
        rows: list[dict | None] = [None]
        for i in range(1, len(ids)):
            law = self.engine.raw(ids[:i])
            rank = int(np.count_nonzero(law > law[ids[i]])) + 1
            entries = [(ids[i], logprob(law, ids[i]), rank)]
            entries += [(t, lp, r) for r, (t, lp) in enumerate(ranked(law, top), 1) if t != ids[i]]
            rows.append(
                {str(t): {"logprob": lp, "rank": r, "decoded_token": text_of(t)} for t, lp, r in entries}
            )
        return rows

    def _stream(self, body: dict, ids: list[int], out: Drawn, top: int | None, usage: dict) -> Stream:
        """A chunk for the tokens of each round."""
        ends = [*out.starts[1:], len(out.tokens)]
        events = []
        for start, end in zip(out.starts, ends, strict=True):
            choice = self._choice(body, out, slice(start, end), top)
            if not start and body.get("return_token_ids"):
                choice["prompt_token_ids"] = ids
            if end >= len(out.tokens):
                choice["finish_reason"] = "length"
            events.append(self._envelope([choice]))
        if (body.get("stream_options") or {}).get("include_usage"):
            events.append(self._envelope([]) | {"usage": usage})
        return Stream(events)


class Chat(Schema):
    """OpenAI's chat: texts of tokens, no ids. A last message of the assistant is continued."""

    paths = ("/v1/chat/completions",)

    def get(self, path: str):
        if path == "/v1/models":
            return {
                "object": "list",
                "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "me"}],
            }
        raise Refusal(404, "Not Found")

    def post(self, path: str, body: dict):
        if path not in self.paths:
            raise Refusal(404, "Not Found")
        if body.get("stream"):
            raise Refusal(400, "this toy server streams in the schema of vLLM only")
        messages = field(body, "messages", [], list)
        if not messages or not all(isinstance(m, dict) and m.get("role") in ROLES for m in messages):
            raise Refusal(400, "messages must be a list of objects with a role and a content")
        ids = [t for m in messages for t in (ROLES[m["role"]], *ids_of(m.get("content") or ""))]
        if messages[-1]["role"] != "assistant":
            ids.append(ROLES["assistant"])
        top = self.top(body, "top_logprobs")
        if top and not body.get("logprobs"):
            raise Refusal(400, "when using `top_logprobs`, `logprobs` must be set to true.")
        count = field(body, "max_completion_tokens", field(body, "max_tokens", 16, int), int)
        out = self.draw(body, ids, count, Sampling())
        content = None
        if body.get("logprobs") and not self.no_logprobs:
            content = [
                self._entry(t, logprob(law, t))
                | {"top_logprobs": [self._entry(*e) for e in ranked(law, top or 0)]}
                for t, law in zip(out.tokens, out.laws, strict=True)
            ]
        message = {"role": "assistant", "content": "".join(map(text_of, out.tokens))}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        choice["logprobs"] = None if content is None else {"content": content}
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(out.tokens)}
        usage["total_tokens"] = len(ids) + len(out.tokens)
        head = {"id": "chatcmpl-fake", "object": "chat.completion", "created": int(time.time())}
        return {**head, "model": MODEL, "choices": [choice], "usage": usage}

    @staticmethod
    def _entry(token: int, logprob: float) -> dict:
        text = text_of(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


SCHEMAS = {"llamacpp": LlamaCpp, "vllm": Vllm, "chat": Chat}
