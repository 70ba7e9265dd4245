"""llama.cpp's /completion, with answers written by hand as its server writes them."""

import math

import pytest
from canned_server import VOCAB, CannedServer, Raw, toy_logprobs, toy_top

from resispec_verify.audit.interface import EngineError, RawLaw, Sampling
from resispec_verify.audit.servers import connect

PROPS = {
    "default_generation_settings": {"n_ctx": 512, "params": {"speculative.types": "none"}},
    "total_slots": 2,
    "model_path": "/models/m.gguf",
    "build_info": "b10566-bb4caa75",
}
MODELS = {"object": "list", "data": [{"id": "m", "meta": {"n_vocab": VOCAB}}]}
PROMPT = [3, 1, 4]
TOKENS = [5, 9, 2, 6]


def entry(prefix, token, body, barred=()):
    """Raw log-probabilities, or, after sampling, probabilities without barred tokens."""
    said = {"id": token, "token": f"t{token}", "bytes": []}
    if not body["post_sampling_probs"]:
        top = [{"id": i, "logprob": y} for i, y in toy_top(prefix, body["n_probs"])]
        return said | {"logprob": toy_logprobs(prefix)[token], "top_logprobs": top}
    law = {i: math.exp(y) * (i not in barred) for i, y in toy_top(prefix, VOCAB)}
    law = {i: p / math.fsum(law.values()) for i, p in law.items()}
    top = [{"id": i, "prob": p} for i, p in law.items()][: body["n_probs"]]
    return said | {"prob": law[token], "top_probs": top}


def pairs(law):
    return [x for pair in zip(law.tokens, law.logprobs, strict=True) for x in pair]


def expected(prefix, k):
    return pytest.approx([x for pair in toy_top(prefix, k) for x in pair])


def completion(body, **changes):
    tokens = TOKENS[: body["n_predict"]]
    settings = {name: value for name, value in body.items() if name not in ("prompt", "return_tokens")}
    answer = {
        "content": "".join(f"t{x}" for x in tokens),
        "tokens": tokens,
        "stop": True,
        "generation_settings": settings | {"logit_bias": []},
        "truncated": False,
        "stop_type": "limit",
        "timings": {"predicted_n": len(tokens)},
    }
    if body["n_probs"]:
        answer["completion_probabilities"] = [
            entry(body["prompt"] + tokens[:i], token, body) for i, token in enumerate(tokens)
        ]
    return answer | changes


@pytest.fixture
def server():
    routes = {
        "/props": PROPS,
        "/v1/models": MODELS,
        "/completion": completion,
        "/tokenize": {"tokens": [1, 7, 8]},
    }
    with CannedServer(routes) as running:
        yield running


@pytest.fixture
def engine(server):
    found = connect(server.url)
    yield found
    found.close()


def test_it_says_what_it_is(engine, server):
    assert engine.facts() == {
        "schema": "llamacpp",
        "model": "/models/m.gguf",
        "version": "b10566-bb4caa75",
        "context": 512,
        "slots": 2,
        "vocab": VOCAB,
    }
    assert (engine.name, engine.tokens_are, engine.gives_laws, engine.vocab) == (
        server.url,
        "ids",
        True,
        VOCAB,
    )


def test_a_text_becomes_ids(engine, server):
    assert engine.encode("hello") == [1, 7, 8]
    assert server.bodies("/tokenize")[0]["add_special"] is True
    engine.complete("hello", 2, 0, Sampling())
    assert server.bodies("/completion")[-1]["prompt"] == [1, 7, 8]


def test_every_setting_is_stated(engine, server):
    sampling = Sampling(temperature=0.7, top_k=20, top_p=0.9, min_p=0.05, ignore_eos=False)
    assert engine.complete(PROMPT, 3, 11, sampling).tokens == TOKENS[:3]
    assert server.bodies("/completion") == [
        {
            "prompt": PROMPT,
            "n_predict": 3,
            "seed": 11,
            "temperature": 0.7,
            "top_k": 20,
            "top_p": 0.9,
            "min_p": 0.05,
            "ignore_eos": False,
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
            "n_probs": 0,
            "post_sampling_probs": False,
            "return_tokens": True,
            "cache_prompt": True,
            "stream": False,
        }
    ]


@pytest.mark.parametrize("fresh", [False, True])
def test_laws_are_those_of_their_prefixes(engine, server, fresh):
    laws = engine.laws(PROMPT, TOKENS, 5, fresh=fresh)
    for at, law in enumerate(laws):
        assert pairs(law) == expected(PROMPT + TOKENS[:at], 5)
        assert not law.complete
    asked = server.bodies("/completion")
    assert [body["prompt"] for body in asked] == [PROMPT + TOKENS[:i] for i in range(4)]
    assert {body["cache_prompt"] for body in asked} == {not fresh}
    assert {(body["n_predict"], body["temperature"], body["post_sampling_probs"]) for body in asked} == {
        (1, 1.0, True)
    }
    assert engine.laws(PROMPT, [], 5) == []


def test_a_law_of_the_whole_vocabulary_is_complete(engine):
    (law,) = engine.laws(PROMPT, [0], VOCAB)
    assert law.complete
    assert math.fsum(map(math.exp, law.logprobs)) == pytest.approx(1.0)


def test_a_law_that_goes_on_has_no_tokens_that_end_a_text(engine, server):
    ending = toy_top(PROMPT, 1)[0][0]

    def answer(body):
        barred = [ending] if body["ignore_eos"] else []
        return completion(body, completion_probabilities=[entry(body["prompt"], TOKENS[0], body, barred)])

    server.routes["/completion"] = answer
    (law,) = engine.laws(PROMPT, [0], VOCAB)
    assert law.tokens == tuple(i for i, _ in toy_top(PROMPT, VOCAB)[1:])
    engine.ignore_eos = False
    assert pairs(engine.laws(PROMPT, [0], 3)[0]) == expected(PROMPT, 3)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_laws_of_its_own_tokens(engine, server, temperature):
    found = engine.complete(PROMPT, 4, 0, Sampling(temperature), own_laws=4)
    for at, law in enumerate(found.laws):
        assert pairs(law) == expected(PROMPT + TOKENS[:at], 4)
    assert server.bodies("/completion")[-1]["post_sampling_probs"] is (temperature == 1.0)
    assert found.oddities == []


def test_raw_laws_are_freed_of_tokens_that_end_a_text(engine, server):
    (ending, top), *others = toy_top(PROMPT, 4)
    bias = [{"token": ending, "bias": None}, {"token": 11, "bias": 0.0}]
    server.routes["/completion"] = lambda body: completion(
        body, generation_settings={"logit_bias": bias if body["ignore_eos"] else []}
    )
    law = engine.complete(PROMPT, 1, 0, Sampling(0.7), own_laws=3).laws[0]
    assert law.tokens == tuple(i for i, _ in others)
    assert law.logprobs == pytest.approx([y - math.log1p(-math.exp(top)) for _, y in others])
    law = engine.complete(PROMPT, 1, 0, Sampling(0.7, ignore_eos=False), own_laws=3).laws[0]
    assert law.tokens[0] == ending


def test_a_probability_that_is_none(engine, server):
    wrong = {"id": 5, "top_probs": [{"id": 1, "prob": 1.5}]}
    server.routes["/completion"] = lambda body: completion(body, completion_probabilities=[wrong])
    with pytest.raises(EngineError, match=r"completion_probabilities\.top_probs .* is no probability"):
        engine.laws(PROMPT, [0], 3)


@pytest.mark.parametrize(
    ("temperature", "empty"),
    [(0.7, {"logprob": 0.0, "top_logprobs": []}), (1.0, {"prob": 1.0, "top_probs": []})],
)
def test_drafted_tokens_without_a_law_are_odd_and_give_none(engine, server, temperature, empty):
    def speculative(body):
        answer = completion(body, timings={"draft_n": 5, "draft_n_accepted": 3})
        for at in (1, 2, 3):
            answer["completion_probabilities"][at].update(empty)
        return answer

    server.routes["/completion"] = speculative
    found = engine.complete(PROMPT, 4, 0, Sampling(temperature), own_laws=4)
    assert found.laws is None
    assert (found.drafted, found.accepted, found.starts) == (5, 3, None)
    (oddity,) = found.oddities
    assert "3 of 4 tokens came without a law" in oddity


def test_a_law_that_is_empty_is_an_error(engine, server):
    def empty(body):
        answer = completion(body)
        answer["completion_probabilities"][0].update(prob=1.0, top_probs=[])
        return answer

    server.routes["/completion"] = empty
    with pytest.raises(EngineError, match=r"completion_probabilities\.top_probs of its answer is empty"):
        engine.laws(PROMPT, TOKENS, 3)


def test_settings_that_were_not_used_are_odd(engine, server):
    used = {"temperature": 0.800000011920929, "top_k": 40, "seed": 3, "top_p": 0.8999999761581421}
    server.routes["/completion"] = lambda body: completion(body, generation_settings=used)
    found = engine.complete(PROMPT, 2, 3, Sampling(temperature=1.0, top_p=0.9))
    assert found.oddities == [
        "says that it used temperature 0.800000011920929, where 1.0 was asked for",
        "says that it used top_k 40, where 0 was asked for",
    ]


def test_more_tokens_than_asked_for_are_cut_and_said(engine, server):
    server.routes["/completion"] = lambda body: completion(body | {"n_predict": 4}, generation_settings={})
    found = engine.complete(PROMPT, 2, 0, Sampling())
    assert found.tokens == TOKENS[:2]
    assert found.oddities == ["gave 4 tokens where 2 were asked for"]


def test_timings_without_drafts_say_that_there_were_none(engine, server):
    found = engine.complete(PROMPT, 3, 0, Sampling())
    assert (found.drafted, found.accepted) == (0, 0)
    server.routes["/completion"] = lambda body: completion(body, timings=None)
    found = engine.complete(PROMPT, 3, 0, Sampling())
    assert (found.drafted, found.accepted) == (None, None)


def test_counters_of_all_its_requests(engine, server):
    assert engine.counters() is None
    server.routes["/metrics"] = Raw(
        "# TYPE llamacpp:spec_decode_num_draft_tokens_total counter\n"
        "llamacpp:spec_decode_num_draft_tokens_total 120\n"
        "llamacpp:spec_decode_num_accepted_tokens_total 45\n"
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 30\n'
    )
    assert engine.counters() == (120, 45)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tokens": ["a"]}, "field tokens of its answer is no list of token ids"),
        ({"tokens": None}, "field tokens of its answer is null"),
        ({"truncated": True}, "the context is full"),
        ({"timings": {"draft_n": 3}}, r"its answer has no field timings\.draft_n_accepted"),
    ],
)
def test_what_is_wrong_with_an_answer(engine, server, changes, text):
    server.routes["/completion"] = lambda body: completion(body, **changes)
    with pytest.raises(EngineError, match=text):
        engine.complete(PROMPT, 2, 0, Sampling())


def test_seeds_that_it_does_not_take(engine):
    with pytest.raises(EngineError, match="seed 2147483648 is not between"):
        engine.complete(PROMPT, 2, 1 << 31, Sampling())


def test_a_prompt_of_nothing(engine):
    with pytest.raises(EngineError, match="a prompt has at least one token"):
        engine.complete([], 2, 0, Sampling())


def test_a_law_that_does_not_come_with_one_token_is_asked_for_with_another(engine, server):
    def some(body):
        answer = completion(body)
        if body["seed"] < 2 and body["n_probs"]:
            del answer["completion_probabilities"]  # its token ends inside a character
        return answer

    server.routes["/completion"] = some
    laws = engine.laws(PROMPT, TOKENS[:1], 3)
    assert [body["seed"] for body in server.bodies("/completion")] == [0, 1, 2]
    assert laws[0].tokens == tuple(i for i, _ in toy_top(PROMPT, 3))


def test_a_law_that_never_comes_is_not_known(engine, server):
    def none(body):
        answer = completion(body)
        answer.pop("completion_probabilities", None)
        return answer

    server.routes["/completion"] = none
    assert engine.laws(PROMPT, TOKENS[:1], 3) == [RawLaw((), ())]
    assert len(server.bodies("/completion")) == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"timings": [1]},
        {"generation_settings": "x"},
        {"generation_settings": {"logit_bias": [{"token": []}]}},
    ],
)
def test_an_answer_of_another_shape_is_an_error_of_one_line(engine, server, changes):
    server.routes["/completion"] = lambda body: completion(body) | changes
    with pytest.raises(EngineError, match="of its answer is"):
        engine.complete(PROMPT, 2, 0, Sampling(temperature=0.5), own_laws=2)
