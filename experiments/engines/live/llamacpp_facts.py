"""What llama.cpp's server answers, as far as an audit depends on it: some minutes of requests to ON and OFF.

Run as a command of `llamacpp_servers.py`, which fills in the two addresses; README.md has the line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np

DRAW = {
    "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "samplers": ["temperature"],
    "ignore_eos": True, "return_tokens": True,
}  # fmt: skip
TEXTS = (
    "Once upon a time, in a small village", "The capital of France is", "def add(a, b):\n    return",
    "Water boils when", "My favourite season is", "The recipe needs two eggs and", "In 1969, astronauts",
    "Dear Sir or Madam,\n",
)  # fmt: skip
TOP = 64


class Client:
    """A server, asked by HTTP."""

    def __init__(self, address: str) -> None:
        self.http = httpx.Client(base_url=address, timeout=300)

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """The answer, which is to be of status 200."""
        answer = self.http.post(path, json=body)
        answer.raise_for_status()
        return answer.json()

    def complete(self, prompt: Sequence[int], count: int, seed: int, **more: Any) -> dict[str, Any]:
        """A completion at temperature 1 without filters."""
        return self.post(
            "/completion", **{**DRAW, "prompt": prompt, "n_predict": count, "seed": seed, **more}
        )

    def stream(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Pieces of a streamed completion.

        The server hangs up after a stream without saying so, and the next request on the connection may fail.
        """
        close = {"Connection": "close"}
        with self.http.stream("POST", "/completion", json=body, headers=close) as stream:
            return [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]

    def law(self, prefix: Sequence[int], **more: Any) -> dict[int, float]:
        """Probabilities of the most probable next tokens.

        Where the token drawn ends inside a character its law is left out: the best one is asked for, and
        another where that is such a token; a ban does not change what is reported.
        """
        banned: list[int] = []
        for _ in range(8):
            ban = [[token, False] for token in banned]
            answer = self.complete(
                prefix, 1, 1, n_probs=TOP, **{"temperature": 0.0, "logit_bias": ban, **more}
            )
            if "completion_probabilities" in answer:
                rows = answer["completion_probabilities"][0]["top_logprobs"]
                return {row["id"]: float(np.exp(row["logprob"])) for row in rows}
            banned.append(answer["tokens"][0])
        raise RuntimeError(f"no law after {list(prefix)}")


def distance(one: dict[int, float], other: dict[int, float]) -> float:
    """TV of two laws, of which what is not in both lists is one token."""
    both = one.keys() & other.keys()
    rest = abs(sum(one[t] for t in both) - sum(other[t] for t in both))
    return 0.5 * (sum(abs(one[t] - other[t]) for t in both) + rest)


def crowd(client: Client, asked: Sequence[Any], ask) -> list[Any]:
    """Answers to four requests at a time."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(ask, asked))


def rounds(on: Client, prompt: Sequence[int]) -> None:
    """Whether a stream shows the rounds: pieces are single tokens, but their time is that of the round."""
    body = {**DRAW, "prompt": prompt, "n_predict": 64, "seed": 3, "stream": True, "timings_per_token": True}
    pieces = [piece for piece in on.stream(body) if piece["tokens"]]
    times = [piece["timings"]["predicted_ms"] for piece in pieces]
    begins = [i for i in range(len(times)) if i == 0 or times[i] != times[i - 1]]
    kept = [end - begin - 1 for begin, end in zip(begins, [*begins[1:], len(times)], strict=True)]
    last = pieces[-1]["timings"]
    print(
        f"on, stream: {len(pieces)} pieces, at most {max(len(p['tokens']) for p in pieces)} token each; "
        f"{len(begins)} different times; by them {sum(kept)} tokens were accepted, "
        f"by the count {last.get('draft_n_accepted')} of {last.get('draft_n')}; by round: {kept}"
    )


def own_laws(name: str, client: Client, prompt: Sequence[int]) -> None:
    """What a server reports of its own tokens, and the counts of the draft."""
    answer = client.complete(prompt, 48, 7, n_probs=3)
    rows = answer["completion_probabilities"]
    empty = sum(row["logprob"] == 0.0 and not row["top_logprobs"] for row in rows)
    drafted = {key: answer["timings"].get(key) for key in ("draft_n", "draft_n_accepted")}
    print(f"{name}: {len(rows)} tokens, {empty} with log-probability 0.0 and no list; {drafted}")


def reported_law(off: Client, prefix: Sequence[int]) -> None:
    """Whether what is reported is the law at temperature 1 without filters, whatever is asked for."""
    raw = off.law(prefix)
    for change in ({"temperature": 0.5}, {"top_k": 3, "samplers": ["top_k", "temperature"]}):
        print(
            f"off: reported at {change}: TV {distance(raw, off.law(prefix, **change)):.1e} from that without"
        )
    orders = (
        ["top_k", "temperature"],
        ["temperature", "top_k"],
        ["min_p", "temperature"],
        ["temperature", "min_p"],
    )
    for order in orders:
        found = off.complete(
            prefix,
            1,
            1,
            n_probs=TOP,
            samplers=order,
            temperature=2.0,
            top_k=4,
            min_p=0.2,
            post_sampling_probs=True,
        )
        rows = found["completion_probabilities"][0]["top_probs"]
        drawn_from = [round(row["prob"], 3) for row in rows if row["prob"] > 0]
        print(f"off: T = 2, top-k 4, min-p .2 in order {order}: {drawn_from}")


def characters(off: Client, prefix: Sequence[int]) -> None:
    """What is left out where a token ends inside a character: at temperature 3 such tokens are common."""
    tokens = rows = streamed = 0
    for seed in range(8):
        asked = {"temperature": 3.0, "n_probs": 1}
        answer = off.complete(prefix, 16, seed, **asked)
        tokens += len(answer["tokens"])
        rows += len(answer["completion_probabilities"])
        body = {**DRAW, **asked, "prompt": prefix, "n_predict": 16, "seed": seed, "stream": True}
        streamed += sum(len(piece["tokens"]) for piece in off.stream(body))
    print(f"off, T = 3: {tokens} tokens, {rows} with a law, {streamed} in a stream of the same seeds")


def ends(off: Client) -> None:
    """Whether the reported law leaves out what `ignore_eos` forbids."""
    text = "<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\nYes."
    prompt = off.post("/tokenize", content=text, parse_special=True)["tokens"]
    answer = off.complete(prompt, 1, 1)
    law = off.law(prompt)
    banned = {entry["token"] for entry in answer["generation_settings"]["logit_bias"]}
    print(f"off: ignore_eos bans {sorted(banned)}; mass that is reported for them at the end of a text: "
        f"{sum(law.get(token, 0.0) for token in banned):.3f}")  # fmt: skip


def seeds(name: str, client: Client, prompt: Sequence[int]) -> None:
    """Whether equal seeds give equal tokens, one after another and at once, and others others."""
    alone = client.complete(prompt, 12, 11)["tokens"]
    again = client.complete(prompt, 12, 11)["tokens"]
    same = crowd(client, range(8), lambda _: client.complete(prompt, 12, 11)["tokens"])
    other = crowd(client, range(8), lambda i: client.complete(prompt, 12, 100 + i)["tokens"])
    print(
        f"{name}: seed 11 twice alone: {'equal' if alone == again else 'different'}; 8 at once: "
        f"{sum(tokens == alone for tokens in same)} equal to it, {len({tuple(t) for t in same})} different; "
        f"8 other seeds at once: {len({tuple(tokens) for tokens in other})} different"
    )


def noise(off: Client, prefixes: Sequence[Sequence[int]]) -> None:
    """How far the law of a prefix moves: again, in a crowd, from the cache, in the middle of a completion."""
    fresh = [off.law(prefix, cache_prompt=False) for prefix in prefixes]
    cases = {
        "alone again, not cached": [off.law(prefix, cache_prompt=False) for prefix in prefixes],
        "four at once, not cached": crowd(off, prefixes, lambda prefix: off.law(prefix, cache_prompt=False)),
        "alone, cached": [(off.law(prefix), off.law(prefix))[1] for prefix in prefixes],
        "four at once, cached": crowd(off, prefixes, lambda prefix: off.law(prefix)),
        "cached but for the last 8 tokens": [
            (off.law(prefix[:-8], cache_prompt=False), off.law(prefix))[1] for prefix in prefixes
        ],
    }
    for name, laws in cases.items():
        apart = [distance(one, other) for one, other in zip(fresh, laws, strict=True)]
        print(
            f"off, law of {len(apart)} prefixes {name}: TV mean {np.mean(apart):.1e}, most {max(apart):.1e}"
        )


def on_and_off(on: Client, off: Client, prefixes: Sequence[Sequence[int]]) -> None:
    """The law of the first token, which is not speculative, of both servers; and of a completion's tokens."""
    apart = [
        distance(on.law(prefix, cache_prompt=False), off.law(prefix, cache_prompt=False))
        for prefix in prefixes
    ]
    print(f"on against off, law of the first token: TV mean {np.mean(apart):.1e}, most {max(apart):.1e}")
    apart = []
    for prefix in prefixes[:2]:
        answer = off.complete(prefix, 32, 5, n_probs=TOP)
        if len(answer["completion_probabilities"]) != len(answer["tokens"]):
            continue  # a token that ends inside a character has no row, and the others would not fit
        for i, row in enumerate(answer["completion_probabilities"]):
            while_drawn = {r["id"]: np.exp(r["logprob"]) for r in row["top_logprobs"]}
            asked = off.law(list(prefix) + answer["tokens"][:i], cache_prompt=False)
            apart.append(distance(while_drawn, asked))
    print(f"off, law while it drew against asked afterwards, {len(apart)} places: "
        f"TV mean {np.mean(apart):.1e}, most {max(apart):.1e}")  # fmt: skip
    same = sum(
        on.complete(p, 24, i)["tokens"] == off.complete(p, 24, i)["tokens"] for i, p in enumerate(prefixes)
    )
    print(f"equal seeds on both: {same} of {len(prefixes)} completions of 24 tokens are equal")


def speed(name: str, client: Client, prompts: Sequence[Sequence[int]]) -> None:
    """Tokens a second, alone and four at once, and of laws after a prefix."""
    for at_once in (1, 4):
        began = time.perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            answers = list(pool.map(lambda i: client.complete(prompts[i], 32, i), range(len(prompts))))
        seconds = time.perf_counter() - began
        tokens = sum(len(answer["tokens"]) for answer in answers)
        drafted, kept = (
            sum(a["timings"].get(k, 0) for a in answers) for k in ("draft_n", "draft_n_accepted")
        )
        print(
            f"{name}: {at_once} at once: {tokens / seconds:.1f} tokens a second; {kept} of {drafted} accepted"
        )
    if name == "off":
        began = time.perf_counter()
        texts = [
            list(prompt) + answer["tokens"] for prompt, answer in zip(prompts[:4], answers, strict=False)
        ]
        crowd(client, texts, lambda text: [client.law(text[:i]) for i in range(len(text) - 32, len(text))])
        print(f"off: {4 * 32 / (time.perf_counter() - began):.1f} laws a second along four texts at once")


def main(on_address: str, off_address: str) -> None:
    """Ask everything."""
    on, off = Client(on_address), Client(off_address)
    prompts = [off.post("/tokenize", content=text)["tokens"] for text in TEXTS]
    same = [on.post("/tokenize", content=text)["tokens"] for text in TEXTS] == prompts
    print(f"both tokenise alike: {same}")
    prefixes = [p + off.complete(p, n, n)["tokens"] for p in prompts for n in (12, 90)]
    for name, client in (("on", on), ("off", off)):
        own_laws(name, client, prompts[0])
        seeds(name, client, prompts[0])
    rounds(on, prompts[0])
    reported_law(off, prefixes[0])
    characters(off, prefixes[0])
    ends(off)
    noise(off, prefixes)
    on_and_off(on, off, prefixes)
    for name, client in (("on", on), ("off", off)):
        speed(name, client, prompts)


if __name__ == "__main__":
    main(*sys.argv[1:])
