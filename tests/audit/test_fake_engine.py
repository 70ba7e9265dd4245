"""The fake engine of the audits' tests: it draws from what it says, and its server answers as servers do."""

import json
import math
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import fake_engine
import httpx
import numpy as np
import pytest
from fake_engine import FAULTS, Drawn, callables, engines
from fake_models import VOCAB, Sampling, draw, entropy, pair, shaped
from fake_schemas import ids_of, text_of
from fake_server import FakeServer
from fake_tv import average_tv, emitted

# After it the target's first token is nearly sure, so that many requests share the tokens before the second.
PROMPT = [7, 75]
REQUESTS, LEAST, DELTA = 2000, 20, 1e-6
RIGHT = [None, "reports-zero", "never-accepts", "no-drafts"]
# Their tokens are not independent between requests; the noise of a call is not known afterwards.
APART = ["equal-seeds", "shared-noise", "noisy"]


def within(count, law):
    """More than this the total variation of ``count`` draws to their law is with probability DELTA.

    Its mean is at most half the sum of the standard deviations of the frequencies, and by McDiarmid's
    inequality it exceeds its mean by t with probability exp(-2 count t**2).
    """
    mean = 0.5 * float(np.sqrt(law * (1.0 - law) / count).sum())
    return mean + math.sqrt(math.log(1.0 / DELTA) / (2.0 * count))


def distance(p, q):
    return 0.5 * float(np.abs(p - q).sum())


def groups(engine, sampling):
    """Tokens after the first of many requests, by the tokens before, the place and what was rejected last."""
    found = defaultdict(Counter)
    for seed in range(REQUESTS):
        out = engine.complete(PROMPT, 4, seed, sampling)
        for at in range(1, 4):
            number = max(i for i, start in enumerate(out.starts) if start <= at)
            place = at - out.starts[number]
            stale = out.rejected[number - 1] if engine.fault == "stale-cache" and place == 0 else None
            found[(*PROMPT, *out.tokens[:at]), place, stale][out.tokens[at]] += 1
    return {key: counts for key, counts in found.items() if counts.total() >= LEAST}


def frequencies(counts):
    out = np.zeros(VOCAB)
    out[list(counts)] = list(counts.values())
    return out / out.sum()


def test_the_toy_target_is_sharp_and_flat_by_turns_and_the_draft_follows_it():
    target, model = pair()
    rng, prefix, nats, agree = np.random.default_rng(1), [3], [], []
    for _ in range(1500):
        p, q = target.law(prefix), model.law(prefix)
        nats.append(entropy(p))
        agree.append(np.minimum(p, q).sum())
        prefix.append(draw(p, rng))
    assert 1.2 < np.mean(nats) < 1.8
    assert np.quantile(nats, 0.1) < 0.5
    assert np.quantile(nats, 0.9) > 2.5
    assert 0.5 < np.mean(agree) < 0.8


def test_a_law_depends_on_the_last_two_tokens_and_on_the_position():
    target, _ = pair()
    here = target.law([1, 2, 3])
    assert np.array_equal(here, target.law([9, 2, 3]))
    assert not here.flags.writeable
    for other in ([1, 4, 3], [1, 2, 4], [1, 1, 2, 3]):
        assert distance(here, target.law(other)) > 0.01
    with pytest.raises(ValueError, match="token ids must be in"):
        target.law([VOCAB])


def test_filters_come_in_the_order_that_is_asked():
    law = np.array([0.5, 0.3, 0.15, 0.05])
    assert shaped(law, Sampling(0.5)) == pytest.approx(law**2 / (law**2).sum())
    assert shaped(law, Sampling(top_k=2)) == pytest.approx([0.625, 0.375, 0, 0])
    assert shaped(law, Sampling(top_p=0.75)) == pytest.approx([0.625, 0.375, 0, 0])
    assert shaped(law, Sampling(min_p=0.25)) == pytest.approx(np.array([0.5, 0.3, 0.15, 0]) / 0.95)
    late = Sampling(0.5, top_p=0.9, order=("top_p", "temperature"))
    assert np.count_nonzero(shaped(law, Sampling(0.5, top_p=0.9))) == 2
    assert np.count_nonzero(shaped(law, late)) == 3


@pytest.mark.parametrize("fault", RIGHT)
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, 50, 0.95, 0.02)])
def test_an_engine_without_fault_draws_each_token_from_the_target(fault, sampling):
    engine, _ = engines(fault)
    for prefix in ([5, 6], [100, 200, 300], [17]):
        law = engine.target.shaped(prefix, sampling)
        for place in range(engine.k + 1):
            # Some ten operations on each of V masses, and a sum over them.
            assert distance(emitted(engine, prefix, place, sampling), law) < 20 * VOCAB * 2.0**-53


@pytest.mark.parametrize("fault", [None, *(name for name in FAULTS if name not in APART)])
def test_tokens_come_from_the_law_in_closed_form(fault):
    engine, _ = engines(fault, k=1)
    sampling = FAULTS[fault].sampling if fault else Sampling()
    found = groups(engine, sampling)
    assert {place for _, place, _ in found} == ({0} if fault in ("no-drafts", "never-accepts") else {0, 1})
    evidence = 0.0
    for (prefix, place, rejected), counts in found.items():
        law = emitted(engine, prefix, place, sampling, rejected)
        assert distance(frequencies(counts), law) <= within(counts.total(), law)
        right = engine.target.shaped(prefix, sampling)
        with np.errstate(divide="ignore"):
            evidence += sum(n * (np.log(law[t]) - np.log(right[t])) for t, n in counts.items())
    # The likelihood ratio to the target's law: with probability DELTA above 1/DELTA where that is right.
    if fault in RIGHT:
        assert abs(evidence) < 1e-6
    else:
        assert evidence > math.log(1.0 / DELTA)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_table_says_how_far_each_fault_moves_a_token(fault):
    assert FAULTS[fault].tv == round(average_tv(fault), 3)
    assert (FAULTS[fault].tv > 0) == (fault not in ("equal-seeds", "shared-noise", *RIGHT))


def test_equal_seeds_and_shared_noise_repeat_themselves():
    same, _ = engines("equal-seeds")
    assert len({tuple(same.complete(PROMPT, 6, seed).tokens) for seed in range(20)}) == 1
    shared, clean = engines("shared-noise")[0], engines()[0]
    prompt = [5, 2]
    for engine, repeats in ((shared, True), (clean, False)):
        drawn = {tuple(engine.complete(prompt, 6, seed).tokens) for seed in range(60)}
        firsts = {tokens[0] for tokens in drawn}
        assert len(firsts) > 1
        assert (len(drawn) == len(firsts)) == repeats


def test_noise_differs_from_call_to_call_also_in_the_reference():
    for engine in engines("noisy"):
        one, other = engine.raw(PROMPT), engine.raw(PROMPT)
        assert 0 < distance(one, other) < 0.1
    assert engines("too-cold")[1].fault is None


@pytest.mark.parametrize(
    ("fault", "starts"), [("no-drafts", [0, 1, 2, 3, 4, 5, 6, 7, 8]), ("draft-law", [0, 1, 5])]
)
def test_rounds_start_where_they_do(fault, starts):
    out = engines(fault)[0].complete(PROMPT, 9, 3)
    assert out.starts == starts
    assert len(out.tokens) == len(out.laws) == 9


def test_rounds_have_their_accepted_tokens_and_one_more():
    engine, reference = engines()
    out = engine.complete(PROMPT, 60, 4)
    lengths = np.diff([*out.starts[1:], 60])
    assert out.starts[:2] == [0, 1]
    assert set(lengths) <= {1, 2, 3, 4}
    assert out.drafted == 3 * len(lengths)
    # The last round may have been cut.
    assert sum(lengths[:-1] - 1) <= out.accepted <= sum(lengths[:-1] - 1) + 3
    assert (engine.rounds, engine.drafted, engine.accepted) == (len(lengths), out.drafted, out.accepted)
    plain = reference.complete(PROMPT, 60, 4)
    assert (plain.drafted, plain.accepted, plain.starts) == (0, 0, list(range(60)))
    assert out.tokens == engine.complete(PROMPT, 60, 4).tokens


def test_what_is_accepted():
    rates = {}
    for fault in (None, "never-accepts"):
        engine, _ = engines(fault)
        for seed in range(20):
            engine.complete([seed, 1], 40, seed)
        rates[fault] = engine.accepted / engine.drafted
    assert 0.4 < rates[None] < 0.8
    assert rates["never-accepts"] < 0.02


def test_only_speculative_tokens_are_reported_without_a_law():
    out = engines("reports-zero")[0].complete(PROMPT, 5, 1)
    assert out.laws[0] is not None
    assert out.laws[1:] == [None] * 4


def test_functions_for_a_library():
    wrong, plain = callables("draft-law")
    assert wrong([1, 2], 5, 3) == engines("draft-law")[0].complete([1, 2], 5, 3).tokens
    assert (
        plain([1, 2], 5, 3) == fake_engine.plain([1, 2], 5, 3) == engines()[1].complete([1, 2], 5, 3).tokens
    )
    assert fake_engine.generate([1, 2], 5, 3) == engines()[0].complete([1, 2], 5, 3).tokens


def test_an_unknown_fault():
    with pytest.raises(ValueError, match="fault must be one of"):
        engines("too-warm")


def test_texts_of_tokens_are_read_back():
    assert ids_of("".join(map(text_of, [0, 399, 7]))) == [0, 399, 7]
    assert ids_of("t400 hello") == ids_of("t400 hello")
    assert isinstance(Drawn().tokens, list)


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
        assert distance(law, reference.target.law(PROMPT)) < 100 * 2.0**-23
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


def test_a_server_of_its_own_process(tmp_path):
    program, port = Path(fake_engine.__file__).with_name("fake_server.py"), tmp_path / "port"
    command = [sys.executable, program, "--schema", "llamacpp", "--fault", "too-cold", "--port-file", port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            assert url == f"http://127.0.0.1:{int(port.read_text())}"
            assert httpx.get(url + "/health").status_code == 200
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
