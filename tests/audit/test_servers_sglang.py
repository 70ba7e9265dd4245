"""SGLang's /generate, with answers written by hand as SGLang 0.5.23 writes them."""

import pytest
from canned_server import CannedServer, Raw, events, toy_logprobs, toy_top

from resispec_verify.audit.interface import EngineError, Sampling
from resispec_verify.audit.servers import connect

PATH = "/generate"
PROMPT = [3, 1, 4]
TOKENS = [5, 9, 2, 6, 7]
MODEL = {"model_path": "org/model", "is_generation": True}
SERVER = {"version": "0.5.23", "speculative_algorithm": "EAGLE", "enable_deterministic_inference": False}
COUNTS = {"spec_num_proposed_drafts": 6, "spec_num_correct_drafts": 3, "spec_verify_ct": 2}
SIZES = (1, 3, 1)


def top(prefix, k):
    return [[y, i, None] for i, y in toy_top(prefix, k)]


def generate(body):
    ids, tokens = body["input_ids"], TOKENS[: body["sampling_params"]["max_new_tokens"]]
    meta = {"completion_tokens": len(tokens), "finish_reason": {"type": "length"}} | COUNTS
    if body.get("return_logprob"):
        start, k = body.get("logprob_start_len", len(ids)), body["top_logprobs_num"]
        places = range(start + 1, len(ids))
        meta["input_token_logprobs"] = [[None, ids[start], None]] if start < len(ids) else []
        meta["input_token_logprobs"] += [[toy_logprobs(ids[:at])[ids[at]], ids[at], None] for at in places]
        meta["input_top_logprobs"] = [None] + [top(ids[:at], k) for at in places]
        meta["output_top_logprobs"] = [top(ids + tokens[:at], k) for at in range(len(tokens))]
    return {"text": "", "output_ids": tokens, "meta_info": meta}


def streaming(*, incremental):
    """Pieces of 1, 3 and 1 tokens: all so far in each, or its own only."""

    def answer(body):
        at, pieces = 0, []
        for size in SIZES:
            shown = TOKENS[at : at + size] if incremental else TOKENS[: at + size]
            at += size
            pieces.append(
                {"output_ids": shown, "meta_info": {"completion_tokens": at, "finish_reason": None}}
            )
        pieces[-1]["meta_info"] |= COUNTS
        return events(pieces) if body["stream"] else generate(body)

    return answer


@pytest.fixture
def server():
    routes = {PATH: generate, "/model_info": MODEL, "/server_info": SERVER, "/tokenize": {"tokens": [8, 8]}}
    with CannedServer(routes) as running:
        yield running


@pytest.fixture
def engine(server):
    found = connect(server.url)
    yield found
    found.close()


def test_it_says_what_it_is(engine, server):
    expected = {
        "schema": "sglang",
        "model": "org/model",
        "version": "0.5.23",
        "speculation": "EAGLE",
        "seeded": False,
    }
    assert engine.facts() == expected
    server.routes["/get_server_info"] = server.routes.pop("/server_info")
    server.routes["/get_model_info"] = server.routes.pop("/model_info")
    older = connect(server.url)
    assert older.facts() == expected
    older.close()


def test_every_setting_is_stated(engine, server):
    server.routes[PATH] = streaming(incremental=False)
    engine.complete(
        PROMPT, 5, 11, Sampling(temperature=0.7, top_k=20, top_p=0.9, min_p=0.05, ignore_eos=False)
    )
    assert server.bodies(PATH)[-1] == {
        "input_ids": PROMPT,
        "sampling_params": {
            "max_new_tokens": 5,
            "sampling_seed": 11,
            "temperature": 0.7,
            "top_k": 20,
            "top_p": 0.9,
            "min_p": 0.05,
            "ignore_eos": False,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "min_new_tokens": 0,
            "n": 1,
        },
        "stream": True,
    }
    engine.complete(PROMPT, 5, 11, Sampling())
    assert server.bodies(PATH)[-1]["sampling_params"]["top_k"] == -1


@pytest.mark.parametrize("incremental", [False, True])
def test_pieces_of_a_stream_are_rounds(engine, server, incremental):
    server.routes[PATH] = streaming(incremental=incremental)
    found = engine.complete(PROMPT, 5, 0, Sampling())
    assert (found.tokens, found.starts, found.drafted, found.accepted) == (TOKENS, [0, 1, 4], 6, 3)


@pytest.mark.parametrize(("meta", "counts"), [({}, (0, 0)), ({"spec_verify_ct": 2}, (None, None))])
def test_no_counts_say_that_nothing_was_verified_unless_it_does_not_count(engine, server, meta, counts):
    meta = {"completion_tokens": 1} | meta
    server.routes[PATH] = events([{"output_ids": [5], "meta_info": meta}])
    found = engine.complete(PROMPT, 5, 0, Sampling())
    assert (found.drafted, found.accepted) == counts


def test_names_of_counts_of_older_versions(engine, server):
    meta = {"completion_tokens": 1, "spec_draft_token_num": 4, "spec_accept_token_num": 7}
    server.routes[PATH] = events([{"output_ids": [5], "meta_info": meta}])
    found = engine.complete(PROMPT, 5, 0, Sampling())
    assert (found.drafted, found.accepted, found.starts) == (4, 7, [0])
    assert found.oddities == ["reports 7 accepted draft tokens of 4"]


@pytest.mark.parametrize("fresh", [False, True])
def test_laws_are_those_of_their_prefixes_in_one_request(engine, server, fresh):
    laws = engine.laws(PROMPT, TOKENS, 4, fresh=fresh)
    assert [list(zip(law.tokens, law.logprobs, strict=True)) for law in laws] == [
        toy_top(PROMPT + TOKENS[:at], 4) for at in range(len(TOKENS))
    ]
    (body,) = server.bodies(PATH)
    assert (body["input_ids"], body["logprob_start_len"]) == (PROMPT + TOKENS, 0 if fresh else 2)
    assert body["sampling_params"]["max_new_tokens"] == 1
    assert engine.laws(PROMPT, [], 4) == []


def test_laws_of_its_own_tokens_are_at_temperature_1_only(engine):
    found = engine.complete(PROMPT, 5, 0, Sampling(), own_laws=3)
    assert [list(zip(law.tokens, law.logprobs, strict=True)) for law in found.laws] == [
        toy_top(PROMPT + TOKENS[:at], 3) for at in range(len(TOKENS))
    ]
    assert engine.complete(PROMPT, 5, 0, Sampling(temperature=0.9), own_laws=3).laws is None


def test_a_text_becomes_ids(engine, server):
    assert engine.encode("hello") == [8, 8]
    assert server.bodies("/tokenize") == [{"prompt": "hello", "add_special_tokens": True}]


def answering(change):
    def answer(body):
        found = generate(body)
        change(found["meta_info"])
        return found

    return answer


def shift(name, by):
    def change(meta):
        meta[name] = meta[name][by:] + meta[name][:by]

    return answering(change)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (shift("input_token_logprobs", 1), r"input_token_logprobs\[1\] is of token 9, not of 5"),
        (shift("input_top_logprobs", 1), r"field \[5\] of its answer is null"),
        (answering(lambda meta: meta["input_top_logprobs"].pop()), "gives 5 input_top_logprobs and 6 "),
        (
            answering(lambda meta: meta.pop("input_top_logprobs")),
            "its answer has no field input_top_logprobs",
        ),
        (
            answering(lambda meta: meta["input_top_logprobs"][2].clear()),
            r"input_top_logprobs\[2\] .* is empty",
        ),
        (Raw('{"error": {"message": "too long"}}', 400), "fails with 400: .*too long"),
    ],
)
def test_laws_that_are_not_of_their_places(engine, server, answer, text):
    server.routes[PATH] = answer
    with pytest.raises(EngineError, match=text):
        engine.laws(PROMPT, TOKENS, 4)


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (
            [{"output_ids": [5], "meta_info": {"completion_tokens": 3}}],
            "0 and 1 tokens, where completion_tokens is 3",
        ),
        (
            [
                {"output_ids": [5], "meta_info": {"completion_tokens": 1}},
                {"output_ids": [6, 7], "meta_info": {"completion_tokens": 2}},
            ],
            "do not go on",
        ),
        ([], "not one token"),
        ([{"output_ids": [5], "meta_info": {}}], "its answer has no field completion_tokens"),
        (
            [
                {
                    "output_ids": [5],
                    "meta_info": {
                        "completion_tokens": 1,
                        "finish_reason": {"type": "abort", "message": "oom"},
                    },
                }
            ],
            "gave a completion up: oom",
        ),
    ],
)
def test_what_is_wrong_with_a_stream(engine, server, pieces, text):
    server.routes[PATH] = events(pieces)
    with pytest.raises(EngineError, match=text):
        engine.complete(PROMPT, 5, 0, Sampling())
