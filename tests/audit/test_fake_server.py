"""The fake server of the audits' tests answers as servers do, and misbehaves as it is told."""

import json
import math
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fake_server
import httpx
import numpy as np
import pytest
from fake_engine import engines
from fake_models import VOCAB, Sampling, shaped
from fake_schemas import ids_of, text_of
from fake_server import FakeServer

PROMPT = [7, 75]


def test_texts_of_tokens_are_read_back():
    assert ids_of("".join(map(text_of, [0, 399, 7]))) == [0, 399, 7]
    assert ids_of("t400 hello") == ids_of("t400 hello")


def at_once(server, path, **body):
    return httpx.post(server.url + path, json=body)


def test_llamacpp_server():
    engine, reference = engines("reports-zero")
    with FakeServer(engine, "llamacpp") as on, FakeServer(reference, "llamacpp") as off:
        asked = {"prompt": PROMPT, "n_predict": 4, "seed": 1, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        asked |= {
            "min_p": 0.0,
            "n_probs": 3,
            "return_tokens": True,
            "cache_prompt": False,
            "ignore_eos": True,
        }
        answer = at_once(on, "/completion", **asked).json()
        expected = engine.complete(PROMPT, 4, 1)
        assert answer["tokens"] == expected.tokens
        assert answer["content"] == "".join(map(text_of, expected.tokens))
        assert answer["timings"]["draft_n"] == expected.drafted
        assert answer["timings"]["draft_n_accepted"] == expected.accepted
        rows = answer["completion_probabilities"]
        assert [len(row["top_logprobs"]) for row in rows] == [3, 0, 0, 0]
        assert [row["logprob"] for row in rows[1:]] == [0.0] * 3
        plain = at_once(off, "/completion", **asked | {"n_predict": 1, "n_probs": VOCAB}).json()
        assert "draft_n" not in plain["timings"]
        (row,) = plain["completion_probabilities"]
        law = np.zeros(VOCAB)
        for entry in row["top_logprobs"]:
            law[entry["id"]] = math.exp(entry["logprob"])
        # float32 logarithms above -100.
        assert np.abs(law - reference.target.law(PROMPT)).sum() < 100 * 2.0**-23
        assert at_once(off, "/tokenize", content=" t5 t6").json() == {"tokens": [5, 6]}
        assert httpx.get(off.url + "/health").json() == {"status": "ok"}
        assert httpx.get(off.url + "/props").json()["total_slots"] == 4
        assert httpx.get(off.url + "/v1/models").json()["data"][0]["meta"]["n_vocab"] == VOCAB
        assert httpx.get(off.url + "/version").status_code == 404
        assert at_once(off, "/completion", prompt=[VOCAB]).status_code == 400


def test_llamacpp_draws_as_its_chain_of_samplers_says():
    _, reference = engines()
    law = reference.target.law(PROMPT[:1])
    with FakeServer(reference, "llamacpp") as server, httpx.Client() as client:
        for chain, order in ((None, ("top_k", "top_p", "min_p", "temperature")), (["top_p"], ("top_p",))):
            sampling = Sampling(0.5, 0, 0.6, 0.0, order)
            asked = {"prompt": PROMPT[:1], "n_predict": 1, "temperature": 0.5, "top_k": 0, "top_p": 0.6}
            asked |= {"min_p": 0.0, "return_tokens": True} | ({"samplers": chain} if chain else {})
            support = set(np.flatnonzero(shaped(law, sampling)).tolist())
            url = server.url + "/completion"
            tokens = [client.post(url, json=asked | {"seed": s}).json()["tokens"] for s in range(30)]
            assert tokens == [reference.complete(PROMPT[:1], 1, s, sampling).tokens for s in range(30)]
            assert {t for (t,) in tokens} <= support


def test_vllm_server():
    engine, _ = engines()
    expected = engine.complete(PROMPT, 9, 5)
    with FakeServer(engine, "vllm") as server:
        asked = {"model": "toy", "prompt": PROMPT, "max_tokens": 9, "seed": 5, "return_token_ids": True}
        answer = at_once(server, "/v1/completions", **asked, logprobs=2, prompt_logprobs=2).json()
        (choice,) = answer["choices"]
        assert choice["token_ids"] == expected.tokens
        assert choice["prompt_token_ids"] == PROMPT
        assert len(choice["logprobs"]["top_logprobs"]) == 9
        first, second = choice["prompt_logprobs"]
        assert first is None
        law = engine.target.law(PROMPT[:1])
        assert second[str(PROMPT[1])]["logprob"] == pytest.approx(math.log(law[PROMPT[1]]), rel=2.0**-20)
        assert {entry["rank"] for entry in second.values()} >= {1, 2}
        assert second[str(int(law.argmax()))]["rank"] == 1
        with httpx.stream("POST", server.url + "/v1/completions", json=asked | {"stream": True}) as response:
            lines = [line for line in response.iter_lines() if line]
        assert lines[-1] == "data: [DONE]"
        pieces = [json.loads(line[6:])["choices"][0] for line in lines[:-1]]
        assert [t for piece in pieces for t in piece["token_ids"]] == expected.tokens
        assert np.cumsum([0, *(len(piece["token_ids"]) for piece in pieces)]).tolist()[:-1] == expected.starts
        assert [piece["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
        metrics = httpx.get(server.url + "/metrics").text
        assert f'accepted_tokens_total{{engine="0",model_name="toy"}} {float(engine.accepted)}\n' in metrics
        assert httpx.get(server.url + "/v1/models").json()["data"][0]["id"] == "toy"
        assert httpx.get(server.url + "/version").json() == {"version": "0.33.0+fake"}
        assert at_once(server, "/tokenize", prompt=" t5 t6").json()["tokens"] == [5, 6]
        refused = at_once(server, "/v1/completions", **asked, prompt_logprobs=21)
        assert refused.status_code == 400
        assert "greater than max allowed: 20" in refused.json()["error"]["message"]
        assert at_once(server, "/v1/completions", **asked | {"model": "other"}).status_code == 404


def test_chat_server():
    engine, _ = engines()
    with FakeServer(engine, "chat") as server:
        asked = {"model": "toy", "max_tokens": 4, "seed": 2, "logprobs": True, "top_logprobs": 3}
        messages = [{"role": "user", "content": " t5 t6"}]
        (choice,) = at_once(server, "/v1/chat/completions", **asked, messages=messages).json()["choices"]
        texts = [entry["token"] for entry in choice["logprobs"]["content"]]
        assert texts == [text_of(t) for t in engine.complete([2, 5, 6, 3], 4, 2).tokens]
        assert choice["message"]["content"] == "".join(texts)
        assert all(len(entry["top_logprobs"]) == 3 for entry in choice["logprobs"]["content"])
        # A last message of the assistant is continued: the law after it is that of the prefix.
        messages.append({"role": "assistant", "content": texts[0]})
        (choice,) = at_once(server, "/v1/chat/completions", **asked, messages=messages).json()["choices"]
        law = engine.target.law([2, 5, 6, 3, *ids_of(texts[0])])
        assert choice["logprobs"]["content"][0]["top_logprobs"][0]["token"] == text_of(int(law.argmax()))


def test_a_server_that_misbehaves():
    _, reference = engines()
    asked = {"prompt": PROMPT, "max_tokens": 1, "logprobs": 1, "prompt_logprobs": 1}
    with FakeServer(reference, "vllm", no_logprobs=True, rate_limit=3, retry_after=1) as server:
        answers = [at_once(server, "/v1/completions", **asked) for _ in range(4)]
        assert [a.status_code for a in answers] == [200, 200, 429, 200]
        assert answers[2].headers["Retry-After"] == "1"
        choice = answers[0].json()["choices"][0]
        assert choice["logprobs"] is None
        assert choice["prompt_logprobs"] is None
    with FakeServer(reference, "vllm", dies_after=2) as server, httpx.Client() as client:
        for _ in range(2):
            assert client.post(server.url + "/v1/completions", json=asked).status_code == 200
        for _ in range(2):
            with pytest.raises(httpx.RemoteProtocolError):
                client.post(server.url + "/v1/completions", json=asked)
            with pytest.raises(httpx.RemoteProtocolError):
                client.get(server.url + "/version")
    with (
        FakeServer(reference, "vllm", slow=30.0) as server,
        pytest.raises(httpx.ReadTimeout),
        httpx.Client(timeout=0.1) as client,
    ):
        client.post(server.url + "/v1/completions", json=asked)


def test_a_server_answers_many_at_once():
    engine, _ = engines()
    asked = {"prompt": PROMPT, "max_tokens": 8, "return_token_ids": True}
    with FakeServer(engine, "vllm") as server, httpx.Client() as client, ThreadPoolExecutor(16) as pool:

        def tokens(seed):
            answer = client.post(server.url + "/v1/completions", json=asked | {"seed": seed}).json()
            return answer["choices"][0]["token_ids"]

        found = list(pool.map(tokens, range(100)))
        assert server.answered == 100
    drafted = engine.drafted
    assert found == [engine.complete(PROMPT, 8, seed).tokens for seed in range(100)]
    assert engine.drafted == 2 * drafted


def test_a_server_of_its_own_process(tmp_path):
    program, port = Path(fake_server.__file__), tmp_path / "port"
    command = [sys.executable, program, "--schema", "llamacpp", "--fault", "too-cold", "--port-file", port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            assert url == f"http://127.0.0.1:{int(port.read_text())}"
            assert httpx.get(url + "/health").status_code == 200
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
