"""/v1/completions, of vLLM and of plain servers, with answers written by hand as vLLM 0.33 writes them."""

import math

import pytest
from canned_server import CannedServer, Raw, events, toy_logprobs, toy_top

from resispec_verify.audit.interface import EngineError, Sampling
from resispec_verify.audit.servers import connect

PATH = "/v1/completions"
PROMPT = [3, 1, 4]
TOKENS = [5, 9, 2, 6, 7]
MODELS = {"object": "list", "data": [{"id": "org/model", "object": "model"}]}
METRICS = """# HELP vllm:spec_decode_num_draft_tokens_total Number of draft tokens.
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="org/{model}"} 300.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="org/{model}"} 1.2e+02
vllm:spec_decode_num_draft_tokens_created{engine="0",model_name="org/{model}"} 1.79e+09
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="org/{model}"} 200.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="org/{model}"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 120.0
"""
SPECULATIVE = {"metrics": {"speculative_decoding": {"num_draft_tokens": 9, "num_accepted_draft_tokens": 3}}}


def said(prefix, token, k):
    """What vLLM says of one place: the token that is there first, with its rank, then the k most probable."""
    logprobs = toy_logprobs(prefix)
    rank = sum(x >= logprobs[token] for x in logprobs)
    top = [(i, y, at + 1) for at, (i, y) in enumerate(toy_top(prefix, k))]
    return {i: (y, r) for i, y, r in [(token, logprobs[token], rank), *top]}


def prompt_logprobs(ids, k):
    def entry(at):
        return {
            str(i): {"logprob": y, "rank": r, "decoded_token": f"t{i}"}
            for i, (y, r) in said(ids[:at], ids[at], k).items()
        }

    return [None] + [entry(at) for at in range(1, len(ids))]


def vllm(body):
    """The answer of a server of vLLM that emits TOKENS in rounds of 1, 3 and 1."""
    ids, tokens = body["prompt"], TOKENS[: body["max_tokens"]]
    if body.get("stream"):
        pieces = [
            {"choices": [{"index": 0, "text": "", "token_ids": part}]}
            for part in (tokens[:1], tokens[1:4], [], tokens[4:])
        ]
        pieces[0]["choices"][0]["prompt_token_ids"] = ids
        return events([*pieces, {"choices": [], "usage": {"completion_tokens": len(tokens)}} | SPECULATIVE])
    choice = {"index": 0, "text": "", "token_ids": tokens, "prompt_token_ids": ids, "prompt_logprobs": None}
    if body.get("prompt_logprobs") is not None:
        choice["prompt_logprobs"] = prompt_logprobs(ids, body["prompt_logprobs"])
    if body.get("logprobs") is not None:
        places = [said(ids + tokens[:at], token, body["logprobs"]) for at, token in enumerate(tokens)]
        choice["logprobs"] = {
            "tokens": [f"token_id:{token}" for token in tokens],
            "top_logprobs": [{f"token_id:{i}": y for i, (y, _) in place.items()} for place in places],
        }
    return {"choices": [choice], "usage": {}} | SPECULATIVE


def plain(body):
    """A server of OpenAI's schema: refuses what it does not know, and gives texts."""
    if unknown := body.keys() & {"return_token_ids", "top_k", "min_p", "ignore_eos"}:
        return Raw(f'{{"error": {{"message": "Unrecognized request argument: {min(unknown)}"}}}}', 400)
    tokens = [f" t{token}" for token in TOKENS[: body["max_tokens"]]]
    return {"choices": [{"text": "".join(tokens), "logprobs": {"tokens": tokens, "token_logprobs": []}}]}


def without_tokens(body):
    answer = plain(body)
    if not isinstance(answer, Raw):
        answer["choices"][0]["logprobs"] = None
    return answer


@pytest.fixture
def server():
    routes = {
        PATH: vllm,
        "/v1/models": MODELS,
        "/version": {"version": "0.33.0"},
        "/tokenize": {"tokens": [8, 8]},
    }
    with CannedServer(routes) as running:
        yield running


@pytest.fixture
def engine(server):
    found = connect(server.url)
    yield found
    found.close()


@pytest.fixture
def openai(server):
    server.routes[PATH] = plain
    found = connect(server.url, schema="completions")
    yield found
    found.close()


def test_it_says_what_it_is(engine):
    assert engine.facts() == {"schema": "completions", "model": "org/model", "version": "0.33.0"}
    assert (engine.tokens_are, engine.gives_laws, engine.vocab) == ("ids", True, None)


def test_every_setting_is_stated(engine, server):
    sampling = Sampling(temperature=0.7, top_k=20, top_p=0.9, min_p=0.05, ignore_eos=False)
    engine.complete(PROMPT, 5, 11, sampling)
    assert server.bodies(PATH)[-1] == {
        "model": "org/model",
        "prompt": PROMPT,
        "max_tokens": 5,
        "seed": 11,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0.05,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "ignore_eos": False,
        "n": 1,
        "echo": False,
        "add_special_tokens": False,
        "return_token_ids": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_pieces_of_a_stream_are_rounds(engine):
    found = engine.complete(PROMPT, 5, 0, Sampling())
    assert found.tokens == TOKENS
    assert found.starts == [0, 1, 4]
    assert (found.drafted, found.accepted, found.laws) == (9, 3, None)


def test_single_tokens_are_rounds_without_accepted_drafts(engine, server):
    server.routes[PATH] = lambda body: events([{"choices": [{"token_ids": [token]}]} for token in TOKENS])
    assert engine.complete(PROMPT, 5, 0, Sampling()).starts == [*range(len(TOKENS))]


@pytest.mark.parametrize("k", [1, 4])
def test_laws_are_those_of_their_prefixes_in_one_request(engine, server, k):
    asked = len(server.bodies(PATH))
    laws = engine.laws(PROMPT, TOKENS, k)
    assert [list(zip(law.tokens, law.logprobs, strict=True)) for law in laws] == [
        toy_top(PROMPT + TOKENS[:at], k) for at in range(len(TOKENS))
    ]
    (body,) = server.bodies(PATH)[asked:]
    assert (body["prompt"], body["max_tokens"], body["prompt_logprobs"]) == (PROMPT + TOKENS, 1, k)
    assert engine.laws(PROMPT, [], k) == []


def test_laws_of_its_own_tokens(engine, server):
    found = engine.complete(PROMPT, 5, 0, Sampling(), own_laws=2)
    assert [list(zip(law.tokens, law.logprobs, strict=True)) for law in found.laws] == [
        toy_top(PROMPT + TOKENS[:at], 2) for at in range(len(TOKENS))
    ]
    assert server.bodies(PATH)[-1]["return_tokens_as_token_ids"] is True
    assert (found.tokens, found.drafted, found.accepted) == (TOKENS, 9, 3)


def test_a_text_becomes_ids(engine, server):
    assert engine.encode("hello") == [8, 8]
    assert server.bodies("/tokenize") == [
        {"model": "org/model", "prompt": "hello", "add_special_tokens": True}
    ]
    del server.routes["/tokenize"]
    server.routes[PATH] = lambda body: {
        "choices": [{"prompt_token_ids": [1, 2] if body["prompt"] == "hello" else []}]
    }
    assert engine.encode("hello") == [1, 2]


def test_counters_of_all_its_engines(engine, server):
    assert engine.counters() is None
    server.routes["/metrics"] = Raw("python_gc_total 3.0\n")  # run with --disable-log-stats: nothing is known
    assert engine.counters() is None
    server.routes["/metrics"] = Raw('vllm:num_requests_running{engine="0"} 0.0\n')  # it does not speculate
    assert engine.counters() == (0, 0)
    server.routes["/metrics"] = Raw(METRICS)
    assert engine.counters() == (420, 250)


def test_a_server_without_prompt_logprobs_gives_no_laws(server):
    def without(body):
        answer = vllm(body)
        answer["choices"][0].pop("prompt_logprobs")
        return answer

    server.routes[PATH] = without
    engine = connect(server.url)
    assert (engine.tokens_are, engine.gives_laws) == ("ids", False)
    with pytest.raises(EngineError, match="gives no laws of given tokens"):
        engine.laws(PROMPT, TOKENS, 2)
    engine.close()


def test_a_server_that_refuses_prompt_logprobs_still_gives_ids(server):
    server.routes[PATH] = lambda body: Raw("not here", 400) if "prompt_logprobs" in body else vllm(body)
    engine = connect(server.url)
    assert (engine.tokens_are, engine.gives_laws) == ("ids", False)
    assert engine.complete(PROMPT, 5, 0, Sampling()).tokens == TOKENS
    engine.close()


def test_a_plain_server_gives_texts_and_no_laws(openai, server):
    assert (openai.tokens_are, openai.gives_laws) == ("texts", False)
    assert openai.encode("hello") == "hello"
    assert openai.complete("hello", 3, 5, Sampling(top_p=0.9)).tokens == [" t5", " t9", " t2"]
    assert server.bodies(PATH)[-1] == {
        "model": "org/model",
        "prompt": "hello",
        "max_tokens": 3,
        "seed": 5,
        "temperature": 1.0,
        "top_p": 0.9,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "n": 1,
        "echo": False,
        "logprobs": 1,
        "stream": False,
    }
    assert openai.facts()["tokens"] == "texts of tokens"
    assert openai.facts()["cannot"] == ["top_k", "min_p", "ignore_eos"]


def test_a_plain_server_is_asked_for_nothing_that_its_schema_lacks(openai):
    for sampling in (Sampling(top_k=5), Sampling(min_p=0.1)):
        with pytest.raises(EngineError, match="takes no top_k and no min_p"):
            openai.complete("hello", 3, 5, sampling)
    with pytest.raises(EngineError, match="give prompts as texts"):
        openai.complete(PROMPT, 3, 5, Sampling())


def test_without_tokens_characters_are_tokens(server):
    server.routes[PATH] = without_tokens
    engine = connect(server.url)
    assert engine.complete("hello", 4, 0, Sampling()).tokens == [" ", "t", "5", " "]
    assert engine.facts()["tokens"] == "characters"
    engine.close()


def test_one_model_of_several_is_named(server):
    server.routes["/v1/models"] = {"data": [{"id": "a"}, {"id": "b"}]}
    with pytest.raises(EngineError, match=r"serves 2 models \(a, b\); name one with --model"):
        connect(server.url)
    engine = connect(server.url, model="b")
    engine.complete(PROMPT, 2, 0, Sampling())
    assert server.bodies(PATH)[-1]["model"] == "b"
    engine.close()


def answering(**changes):
    """The answer to a request of laws, with changes to its choice."""

    def answer(body):
        found = vllm(body)
        for name, change in changes.items():
            found["choices"][0][name] = change(found["choices"][0][name])
        return found

    return answer


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"prompt_logprobs": lambda x: x[1:]}, "gives 7 prompt_logprobs for a prompt of 8 tokens"),
        (
            {"prompt_logprobs": lambda x: x[:3] + x[4:] + x[3:4]},
            r"prompt_logprobs\[\d\] of its answer is of another",
        ),
        ({"prompt_logprobs": lambda x: [*x[:5], None, *x[6:]]}, r"field \[5\] of its answer is null"),
        ({"prompt_logprobs": lambda x: [*x[:7], {"7": {"rank": 1}}]}, "its answer has no field logprob"),
        (
            {"prompt_logprobs": lambda x: [*x[:7], {"7": {"logprob": None}}]},
            "field logprob of its answer is null",
        ),
        ({"prompt_logprobs": lambda _: None}, "field prompt_logprobs of its answer is null"),
        ({"prompt_token_ids": lambda x: [0, *x]}, "read a prompt of 9 tokens that is not the one of 8 sent"),
    ],
)
def test_laws_that_are_not_of_their_places(engine, server, changes, text):
    server.routes[PATH] = answering(**changes)
    with pytest.raises(EngineError, match=text):
        engine.laws(PROMPT, TOKENS, 1)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (events([{"choices": [{"text": "hello"}]}]), r"no field choices\[0\]\.token_ids"),
        (events([{"choices": [{"token_ids": ["a"]}]}]), "is no list of token ids"),
        (events([{"object": "x"}]), "its answer has no field choices"),
        (events([{"choices": [{"token_ids": [1]}]}], done=False), "ended before its stream was complete"),
        (Raw('{"error": {"message": "max allowed: 20"}}', 400), "fails with 400: .*max allowed: 20"),
    ],
)
def test_what_is_wrong_with_a_stream(engine, server, answer, text):
    server.routes[PATH] = answer
    with pytest.raises(EngineError, match=text):
        engine.complete(PROMPT, 5, 0, Sampling())


@pytest.mark.parametrize("text", [5, 6, 7])
def test_a_law_does_not_depend_on_which_of_equally_probable_tokens_came(engine, server, text):
    # As vLLM with logits in bfloat16: 5, 6 and 7 are alike, the two most probable it lists are 5 and 6, and
    # the text's own token stands first, also where it is not in that list.
    listed = {i: {"logprob": -1.5} for i in dict.fromkeys((text, 5, 6))}
    server.routes[PATH] = answering(
        prompt_logprobs=lambda entries: [None] * (len(entries) - 1) + [{str(i): x for i, x in listed.items()}]
    )
    (law,) = engine.laws(PROMPT, [text], 2)
    assert (law.tokens, law.logprobs) == ((5, 6), (-1.5, -1.5))


@pytest.mark.parametrize("logprob", [math.nan, math.inf, 10**400, -1e308])
def test_what_is_no_log_probability_is_an_error_of_one_line(engine, server, logprob):
    server.routes[PATH] = answering(prompt_logprobs=lambda x: [*x[:-1], {"5": {"logprob": logprob}}])
    with pytest.raises(EngineError, match="of its answer says"):
        engine.laws(PROMPT, [5], 2)


def test_tokens_that_cannot_come_are_not_in_a_law(engine, server):
    entry = {"5": {"logprob": -0.1}, "6": {"logprob": -math.inf}}
    server.routes[PATH] = answering(prompt_logprobs=lambda x: [*x[:-1], entry])
    (law,) = engine.laws(PROMPT, [5], 2)
    assert (law.tokens, law.logprobs) == ((5,), (-0.1,))


@pytest.mark.parametrize("value", ["1e999", "1.2.3", "e"])
def test_a_counter_that_is_no_number_is_none(engine, server, value):
    server.routes["/metrics"] = Raw(METRICS.replace("300.0", value).encode())
    assert engine.counters() is None


@pytest.mark.parametrize(
    "changes", [{"token_ids": [1], "prompt_token_ids": 7}, {"token_ids": [1], "logprobs": 3}]
)
def test_a_choice_of_another_shape_is_an_error_of_one_line(engine, server, changes):
    server.routes[PATH] = lambda body: {"choices": [changes]}
    with pytest.raises(EngineError, match="of its answer is"):
        engine.complete(PROMPT, 1, 0, Sampling(), own_laws=2)


def test_laws_of_its_own_tokens_under_keys_that_are_no_ids_are_not_read(engine, server):
    choice = {"token_ids": [5], "logprobs": {"top_logprobs": [{"token_id:x": -1.0}]}}
    server.routes[PATH] = lambda body: {"choices": [choice]}
    assert engine.complete(PROMPT, 1, 0, Sampling(), own_laws=2).laws is None
