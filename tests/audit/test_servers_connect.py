"""Which schema a server speaks, and chats, of which there is little to know."""

import threading

import pytest
from canned_server import CannedServer, Raw, toy_top

from resispec_verify.audit.interface import EngineError, Sampling
from resispec_verify.audit.servers import SCHEMAS, connect
from resispec_verify.errors import InputError

CHAT = "/v1/chat/completions"
MODELS = {"data": [{"id": "m"}]}


def chat(body):
    tokens = ["Hel", "lo", "!"][: body["max_tokens"]]
    choice = {"message": {"role": "assistant", "content": "".join(tokens)}, "logprobs": None}
    if body.get("logprobs"):
        choice["logprobs"] = {"content": [{"token": token, "logprob": -0.1} for token in tokens]}
    details = {"accepted_prediction_tokens": 4, "rejected_prediction_tokens": 3}
    return {"choices": [choice], "usage": {"completion_tokens_details": details}}


def silent(body):
    if body.get("logprobs"):
        return Raw("logprobs are not supported", 400)
    answer = chat(body)
    answer["usage"]["completion_tokens_details"] = {
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    }
    return answer


@pytest.fixture
def server():
    with CannedServer({CHAT: chat, "/v1/models": MODELS}) as running:
        yield running


def test_a_chat_gives_texts_of_tokens(server):
    engine = connect(server.url)
    assert (engine.tokens_are, engine.gives_laws, engine.vocab) == ("texts", False, None)
    assert engine.facts()["tokens"] == "texts of tokens"
    assert engine.encode("hi") == "hi"
    found = engine.complete("hi", 2, 7, Sampling(temperature=0.5, top_p=0.9))
    assert (found.tokens, found.drafted, found.accepted) == (["Hel", "lo"], 7, 4)
    assert server.bodies(CHAT)[-1] == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 2,
        "seed": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "n": 1,
        "stream": False,
        "logprobs": True,
    }
    for sampling in (Sampling(top_k=3), Sampling(min_p=0.1)):
        with pytest.raises(EngineError, match="takes no top_k and no min_p"):
            engine.complete("hi", 2, 7, sampling)
    with pytest.raises(EngineError, match="give prompts as texts"):
        engine.complete([1], 2, 7, Sampling())
    with pytest.raises(EngineError, match="gives no laws"):
        engine.laws("hi", ["a"], 3)
    engine.close()


def test_without_tokens_a_chat_gives_characters_and_no_counts(server):
    server.routes[CHAT] = silent
    engine = connect(server.url, schema="chat")
    found = engine.complete("hi", 3, 7, Sampling())
    assert (found.tokens, found.drafted, found.accepted) == (["H", "e", "l"], None, None)
    assert engine.facts()["tokens"] == "characters"
    assert "logprobs" not in server.bodies(CHAT)[-1]
    engine.close()


def test_tokens_that_were_there_and_are_missing_are_an_error(server):
    engine = connect(server.url)
    server.routes[CHAT] = lambda body: chat(body | {"logprobs": False})
    with pytest.raises(EngineError, match=r"its answer has no field logprobs\.content"):
        engine.complete("hi", 3, 7, Sampling())
    engine.close()


def test_a_server_of_no_known_schema():
    with CannedServer({"/v1/models": {"models": []}}) as server, pytest.raises(EngineError, match="--schema"):
        connect(server.url)
    page = Raw("<html>")
    routes = dict.fromkeys(("/props", "/model_info", "/get_model_info", "/v1/models"), page)
    with CannedServer(routes) as server, pytest.raises(EngineError, match="no schema known here"):
        connect(server.url)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_key_is_asked_for_and_a_wrong_one_not_shown(schema, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-secret")
    refuse = Raw("who is sk-secret?", 401)
    paths = ("/props", "/model_info", "/v1/models", "/v1/completions", CHAT)
    with CannedServer(dict.fromkeys(paths, refuse)) as server:
        for key_env in (None, "MY_KEY"):
            with pytest.raises(EngineError, match="--key-env") as caught:
                connect(server.url, schema=schema, key_env=key_env)
            assert "sk-secret" not in str(caught.value)


def test_another_schema_than_the_server_speaks(server):
    engine = connect(server.url, schema="llamacpp")
    with pytest.raises(EngineError, match=r"there is no /completion \(404\); is it another --schema"):
        engine.laws([1], [2], 3)
    engine.close()
    with pytest.raises(EngineError, match=r"there is no /v1/completions \(404\)"):
        connect(server.url, schema="completions")
    engine = connect(server.url, schema="sglang")
    with pytest.raises(EngineError, match=r"there is no /generate \(404\)"):
        engine.complete([1], 2, 3, Sampling())
    engine.close()


def test_an_unknown_schema_and_nobody_there():
    with pytest.raises(InputError, match="there is no 'vllm'; choose one of auto"):
        connect("http://127.0.0.1:1", schema="vllm")
    with pytest.raises(EngineError, match=r"http://127\.0\.0\.1:1: no connection"):
        connect("http://127.0.0.1:1")


def test_many_threads_at_once():
    def answer(body):
        top = [{"id": i, "logprob": y} for i, y in toy_top(body["prompt"], body["n_probs"])]
        return {"tokens": [body["prompt"][0]], "completion_probabilities": [{"top_logprobs": top}]}

    with CannedServer({"/props": {"default_generation_settings": {}}, "/completion": answer}) as server:
        engine = connect(server.url)
        found = {}

        def ask(token):
            found[token] = engine.laws([token], [0, 1], 2)

        threads = [threading.Thread(target=ask, args=(token,)) for token in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        engine.close()
    for token in range(12):
        expected = [toy_top(prefix, 2) for prefix in ([token], [token, 0])]
        assert [list(zip(law.tokens, law.logprobs, strict=True)) for law in found[token]] == expected


@pytest.mark.parametrize(
    "usage",
    [
        [1],
        {"completion_tokens_details": "x"},
        {"completion_tokens_details": {"accepted_prediction_tokens": "9"}},
    ],
)
def test_a_usage_of_another_shape_is_an_error_of_one_line(server, usage):
    server.routes[CHAT] = lambda body: chat(body) | {"usage": usage}
    engine = connect(server.url, schema="chat", model="m")
    with pytest.raises(EngineError, match="of its answer is"):
        engine.complete("a", 2, 0, Sampling())
    engine.close()
