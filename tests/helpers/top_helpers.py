"""Top-k pairs, and answers of engines in the form that each documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from dump_helpers import saved, saved_npz, saved_safetensors
from torch import from_numpy

V = 30


def laws(n: int = 7, vocab: int = V, seed: int = 3) -> np.ndarray:
    """Rows of probabilities, the same at every call."""
    logits = np.random.default_rng(seed).standard_normal((n, vocab)) * 2
    p = np.exp(logits)
    return p / p.sum(axis=-1, keepdims=True)


def cut(p: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids and probabilities of the k most probable tokens."""
    ids = np.argsort(-p, axis=-1)[:, :k]
    return ids, np.take_along_axis(p, ids, axis=-1)


def pairs(n: int = 7, k: int = 5, dtype: type = np.float32, **others: Any) -> dict[str, np.ndarray]:
    """The arrays of a file of top-k pairs."""
    found: dict[str, np.ndarray] = {"vocab": np.asarray([V])}
    for seed, role in ((3, "target"), (4, "draft")):
        ids, p = cut(laws(n, seed=seed), k)
        found |= {
            f"{role}_top_ids": ids.astype(np.int32),
            f"{role}_top_logprobs": np.log(p).astype(dtype),
            f"{role}_ranked": np.asarray([k]),
        }
    return found | others


def write(path: Path, arrays: dict[str, Any]) -> Path:
    """Save arrays in the format that the name ends in."""
    if path.suffix == ".npz":
        return saved_npz(path, arrays)
    tensors = {key: from_numpy(np.array(value)) for key, value in arrays.items()}
    return saved(path, tensors) if path.suffix == ".pt" else saved_safetensors(path, tensors)


#: A text of five tokens, and three more that were drawn.
PROMPT, DRAWN = [3, 1, 4, 1, 5], [9, 2, 6]


def logged(role: str) -> np.ndarray:
    """The laws before each token of PROMPT + DRAWN; the first has none before it."""
    return laws(8, seed=3 if role == "target" else 4)


def _float32(value: float) -> float:
    return float(np.float32(np.log(value)))


def vllm_law(p: np.ndarray, token: int, k: int = 3) -> dict[str, Any]:
    """One position as vLLM 0.33.0 has it: the text's own token first, then the top k (v1/engine)."""
    ids = cut(p[None], k)[0][0].tolist()
    entries = [(token, int((p >= p[token]).sum())), *((x, i + 1) for i, x in enumerate(ids))]
    return {
        str(x): {"logprob": _float32(p[x]), "rank": rank, "decoded_token": f"<{x}>"} for x, rank in entries
    }


def vllm_offline(role: str = "target") -> list[Any]:
    """``[vars(output)]`` of a RequestOutput of vLLM 0.33.0 (outputs.py) as JSON: the fields that are read."""
    p, text = logged(role), PROMPT + DRAWN
    rows = [None, *(vllm_law(p[i], text[i]) for i in range(1, 8))]
    return [
        {
            "request_id": "0",
            "prompt_token_ids": PROMPT,
            "prompt_logprobs": rows[:5],
            "outputs": [{"index": 0, "text": "x", "token_ids": DRAWN, "logprobs": rows[5:]}],
        }
    ]


def vllm_server(role: str = "target") -> dict[str, Any]:
    """``/v1/completions`` of vLLM 0.33.0 with prompt_logprobs, and ids for tokens."""
    whole = vllm_offline(role)[0]
    laws = whole["outputs"][0]["logprobs"]
    return {
        "object": "text_completion",
        "choices": [
            {
                "index": 0,
                "text": "x",
                "logprobs": {
                    "text_offset": [0, 1, 2],
                    "token_logprobs": [law[str(x)]["logprob"] for law, x in zip(laws, DRAWN, strict=True)],
                    "tokens": [f"token_id:{x}" for x in DRAWN],
                    "top_logprobs": [
                        {f"token_id:{x}": said["logprob"] for x, said in law.items()} for law in laws
                    ],
                },
                "prompt_logprobs": whole["prompt_logprobs"],
                "prompt_token_ids": PROMPT,
                "token_ids": DRAWN,
            }
        ],
    }


def sglang(role: str = "target") -> dict[str, Any]:
    """``/generate`` of SGLang 0.5.23 with return_logprob, top_logprobs_num 3 and logprob_start_len 0."""
    p, text = logged(role), PROMPT + DRAWN

    def top(row: np.ndarray) -> list[Any]:
        return [[_float32(row[x]), x, None] for x in cut(row[None], 3)[0][0].tolist()]

    own = [[None, text[0], None], *([_float32(p[i][text[i]]), text[i], None] for i in range(1, 8))]
    tops = [None, *(top(p[i]) for i in range(1, 8))]
    return {
        "text": "x",
        "output_ids": DRAWN,
        "meta_info": {
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "input_token_logprobs": own[:5],
            "input_top_logprobs": tops[:5],
            "output_token_logprobs": own[5:],
            "output_top_logprobs": tops[5:],
        },
    }


def chat(role: str = "target", name: str = "token_id:{}") -> dict[str, Any]:
    """``/v1/chat/completions`` with logprobs and top_logprobs 3, as OpenAI's schema describes it."""
    p = logged(role)[5:]

    def entry(row: np.ndarray, x: int) -> dict[str, Any]:
        return {"token": name.format(x), "logprob": _float32(row[x]), "bytes": None}

    content = [
        entry(row, x) | {"top_logprobs": [entry(row, y) for y in cut(row[None], 3)[0][0].tolist()]}
        for row, x in zip(p, DRAWN, strict=True)
    ]
    return {"choices": [{"index": 0, "message": {"content": "x"}, "logprobs": {"content": content}}]}


def completions(role: str = "target", name: str = "token_id:{}") -> dict[str, Any]:
    """``/v1/completions`` with logprobs 3, in OpenAI's schema: the sampled one is always there."""
    p = logged(role)[5:]
    tops = []
    for row, x in zip(p, DRAWN, strict=True):
        listed = dict.fromkeys([*cut(row[None], 3)[0][0].tolist(), x])
        tops.append({name.format(y): _float32(row[y]) for y in listed})
    logprobs = {
        "tokens": [name.format(x) for x in DRAWN],
        "token_logprobs": [_float32(row[x]) for row, x in zip(p, DRAWN, strict=True)],
        "top_logprobs": tops,
        "text_offset": [0, 1, 2],
    }
    return {"choices": [{"index": 0, "text": "x", "logprobs": logprobs, "finish_reason": "length"}]}


def llamacpp(role: str = "target", after: bool = False) -> dict[str, Any]:
    """``/completion`` of llama.cpp with n_probs 3 (its README at 00dc8057); ``after`` sampling."""
    key, value = ("top_probs", "prob") if after else ("top_logprobs", "logprob")

    def entry(row: np.ndarray, x: int) -> dict[str, Any]:
        return {
            "id": x,
            "token": f"<{x}>",
            "bytes": [60],
            value: float(row[x]) if after else _float32(row[x]),
        }

    return {
        "content": "x",
        "tokens": DRAWN,
        "tokens_evaluated": 5,
        "completion_probabilities": [
            entry(row, x) | {key: [entry(row, y) for y in cut(row[None], 3)[0][0].tolist()]}
            for row, x in zip(logged(role)[5:], DRAWN, strict=True)
        ],
    }


def llamacpp_old(role: str = "target", name: str = "<{}>") -> dict[str, Any]:
    """The same of old builds: texts and probabilities."""
    return {
        "completion_probabilities": [
            {
                "content": name.format(x),
                "probs": [
                    {"tok_str": name.format(y), "prob": float(row[y])}
                    for y in cut(row[None], 3)[0][0].tolist()
                ],
            }
            for row, x in zip(logged(role)[5:], DRAWN, strict=True)
        ]
    }


def lines(role: str = "target") -> list[dict[str, Any]]:
    """Our own form, one position a line."""
    found = []
    for i, (row, x) in enumerate(zip(logged(role)[5:], DRAWN, strict=True)):
        ids = cut(row[None], 3)[0][0].tolist()
        logs = [float(np.log(row[y])) for y in ids]
        tail = 1.0 - float(row[ids].sum())
        found.append(
            {
                "ids": ids,
                "logprobs": logs,
                "tail": tail,
                "ranked": 3,
                "next": x,
                "sequence": 0,
                "position": 5 + i,
            }
        )
    return found


def dumped(path: Path, value: Any) -> Path:
    """Write JSON, or JSON lines where the name says so."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(one) + "\n" for one in value))
    else:
        path.write_text(json.dumps(value))
    return path
