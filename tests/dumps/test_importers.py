"""Importers: the laws that each format lists, target and draft by position, and what is refused."""

import copy
import json

import numpy as np
import pytest
from dump_helpers import refused
from top_helpers import (
    DRAWN,
    PROMPT,
    V,
    chat,
    completions,
    cut,
    dumped,
    lines,
    llamacpp,
    llamacpp_old,
    logged,
    sglang,
    vllm_offline,
    vllm_server,
)

from resispec_verify.dumps import open_top_pairs
from resispec_verify.dumps.importers import SOURCES, import_top_pairs, save_top_pairs
from resispec_verify.dumps.importers.nodes import documents

#: Format, what writes an answer in it, and the positions of the text that have a law in it.
FORMS = {
    "vllm": ("vllm", vllm_offline, range(1, 8)),
    "vllm-server": ("vllm", vllm_server, range(1, 8)),
    "sglang": ("sglang", sglang, range(1, 8)),
    "chat": ("openai", chat, range(5, 8)),
    "completions": ("openai", completions, range(5, 8)),
    "llamacpp": ("llamacpp", llamacpp, range(5, 8)),
    "llamacpp-after": ("llamacpp", lambda role="target": llamacpp(role, True), range(5, 8)),
    "jsonl": ("jsonl", lines, range(5, 8)),
}


def both(tmp_path, source, make, **others):
    suffix = ".jsonl" if source == "jsonl" else ".json"
    files = [dumped(tmp_path / f"{role}{suffix}", make(role)) for role in ("target", "draft")]
    return import_top_pairs(*files, source=source, vocab=V, **others)


def edited(tmp_path, edit, make=vllm_offline, source="vllm", **others) -> str:
    """The line that refuses an answer as target after an edit."""
    answer = copy.deepcopy(make())
    edit(answer)
    target, draft = dumped(tmp_path / "t.json", answer), dumped(tmp_path / "d.json", make("draft"))
    return refused(target, lambda path: import_top_pairs(path, draft, source=source, vocab=V, **others))


def own(path):
    """One file as target and draft."""
    return import_top_pairs(path, path, source="jsonl")


def check_side(side, p, text, k=3):
    """The listed are of the law; what is said of the others holds of it."""
    for i, row in enumerate(p):
        tokens = side.tokens[i][side.tokens[i] >= 0]
        assert set(cut(row[None], k)[0][0].tolist()) <= set(tokens.tolist())
        assert np.allclose(side.probabilities[i][: len(tokens)], row[tokens], rtol=1e-5)
        others = np.delete(row, tokens)
        assert side.tail[i, 0] <= others.sum() <= side.tail[i, 1]
        assert others.max() <= side.most[i]


@pytest.mark.parametrize("name", FORMS)
def test_laws_of_each_format(tmp_path, name):
    source, make, positions = FORMS[name]
    dump = both(tmp_path, source, make)
    assert dump.positions == len(positions)
    pairs = dump.pairs(0, dump.positions)
    text = PROMPT + DRAWN
    check_side(pairs.target, logged("target")[list(positions)], text)
    check_side(pairs.draft, logged("draft")[list(positions)], text)
    assert dump.next_tokens.tolist() == [text[i] for i in positions]
    assert not any("nothing says" in note for note in dump.notes)


def test_every_source_is_among_them():
    assert {source for source, _, _ in FORMS.values()} | {"parquet"} == set(SOURCES)


def test_a_sampled_token_beyond_the_top_k_does_not_lower_the_most(tmp_path):
    dump = both(tmp_path, "vllm", vllm_offline)
    pairs = dump.pairs(0, 7)
    text, p = PROMPT + DRAWN, logged("target")
    beyond = [i for i in range(1, 8) if text[i] not in cut(p[i][None], 3)[0][0]]
    assert beyond  # the text has such tokens
    for i in beyond:
        ranked = 4 if text[i] == cut(p[i][None], 4)[0][0, 3] else 3
        lowest = cut(p[i][None], ranked)[1][0, -1]
        assert pairs.target.most[i - 1] == pytest.approx(lowest, rel=1e-5)
    assert any(pairs.target.probabilities[i - 1].min() < 0.9 * pairs.target.most[i - 1] for i in beyond)


def test_a_completion_counts_its_least_token_only_where_it_was_not_sampled(tmp_path):
    dump = both(tmp_path, "openai", completions)
    p = logged("target")[5:]
    for most, row, x in zip(dump.pairs(0, 3).target.most, p, DRAWN, strict=True):
        ids, top = cut(row[None], 3)
        expected = top[0, 1] if x == ids[0, 2] else top[0, 2]
        assert most == pytest.approx(expected, rel=1e-5)


def test_unlikely_tokens_of_openai_are_not_tokens_of_probability_zero(tmp_path):
    def unlikely(role="target"):
        answer = chat(role)
        for entry in answer["choices"][0]["logprobs"]["content"]:
            entry["logprob"] = -9999.0
            entry["token"] = "token_id:28"
        return answer

    dump = both(tmp_path, "openai", unlikely)
    assert dump.k == 3
    assert 28 not in dump.pairs(0, 3).target.tokens


def test_another_draft_format_joins_by_position(tmp_path):
    target = dumped(tmp_path / "t.json", vllm_offline("target"))
    draft = dumped(tmp_path / "d.json", sglang("draft"))
    dump = import_top_pairs(target, draft, source="vllm", draft_source="sglang", vocab=V)
    assert dump.positions == 7
    check_side(dump.pairs(0, 7).draft, logged("draft")[1:], PROMPT + DRAWN)


def test_the_draft_may_have_scored_the_whole_text_as_a_prompt(tmp_path):
    scored = vllm_offline("draft")[0]
    scored["prompt_logprobs"] += scored["outputs"][0]["logprobs"]
    scored["prompt_token_ids"] = PROMPT + DRAWN
    scored["outputs"] = [{"token_ids": [8], "logprobs": [scored["prompt_logprobs"][1]]}]
    answer = vllm_offline()[0] | {"prompt_logprobs": None}
    files = dumped(tmp_path / "t.json", [answer]), dumped(tmp_path / "d.json", [scored])
    dump = import_top_pairs(*files, source="vllm", vocab=V)
    assert dump.positions == 3
    check_side(dump.pairs(0, 3).draft, logged("draft")[5:], PROMPT + DRAWN)
    assert any("d.json: 5 of 8 positions are not in the other file" in note for note in dump.notes)


def test_another_text_is_an_error_with_its_place(tmp_path):
    def prompt(answer):
        answer[0]["prompt_token_ids"] = [3, 1, 7, 1, 5]

    assert "sequence 0, token 2 is 7 in" in edited(tmp_path, prompt)
    change = lambda answer: answer["meta_info"]["output_token_logprobs"][1].__setitem__(1, 8)  # noqa: E731
    assert "the token after sequence 0, position 6 is 8 in" in edited(tmp_path, change, sglang, "sglang")


def test_without_positions_there_must_be_as_many(tmp_path):
    def fewer(answer):
        for key in ("tokens", "token_logprobs", "top_logprobs"):
            answer["choices"][0]["logprobs"][key].pop()

    assert "has 2 positions and" in edited(tmp_path, fewer, completions, "openai")


def test_drafted_tokens_of_llamacpp_have_no_law(tmp_path):
    def speculative(role="target"):
        answer = llamacpp(role)
        if role == "target":
            answer["completion_probabilities"][1] |= {"logprob": 0.0, "top_logprobs": []}
        return answer

    dump = both(tmp_path, "llamacpp", speculative)
    assert dump.positions == 2
    assert dump.next_tokens.tolist() == [DRAWN[0], DRAWN[2]]
    assert any("1 positions have no law" in note for note in dump.notes)


@pytest.mark.parametrize(
    ("edit", "message", "make", "source"),
    [
        (lambda a: a[0]["outputs"][0]["token_ids"].pop(), "has 3 entries for 2 tokens", vllm_offline, "vllm"),
        (lambda a: a[0]["prompt_logprobs"][2].update(x={}), "its key is no token id", vllm_offline, "vllm"),
        (lambda a: a[0]["prompt_logprobs"][2].clear(), "lists no token", vllm_offline, "vllm"),
        (lambda a: a.pop("choices"), "has no choices; is it of another format?", chat, "openai"),
        (lambda a: a["choices"][0].pop("logprobs"), "has no logprobs", chat, "openai"),
        (lambda a: a.update(error={"message": "x"}), "is an error of the server", chat, "openai"),
        (lambda a: a["tokens"].pop(), "for 2 tokens: nothing says of which", llamacpp, "llamacpp"),
        (lambda a: a.pop("completion_probabilities"), "has no completion_prob", llamacpp, "llamacpp"),
        (lambda a: a["meta_info"].pop("input_token_logprobs"), "has no input_token", sglang, "sglang"),
        (lambda a: a["meta_info"]["output_top_logprobs"][0][1].reverse(), "must be a", sglang, "sglang"),
    ],
)  # fmt: skip
def test_answers_of_another_form_are_refused(tmp_path, edit, message, make, source):
    assert message in edited(tmp_path, edit, make, source)


def test_laws_that_are_none_are_refused_when_they_are_read(tmp_path):
    def above(answer):
        answer["completion_probabilities"][2]["top_logprobs"][0]["logprob"] = 0.7

    def twice(answer):
        answer["completion_probabilities"][2]["top_logprobs"][0]["id"] = 4
        answer["completion_probabilities"][2]["top_logprobs"][1]["id"] = 4

    def too_much(answer):
        for entry in answer["completion_probabilities"][1]["top_logprobs"]:
            entry["logprob"] = -0.1

    assert "position 2: entry 0 has the log-probability 0.7" in edited(tmp_path, above, llamacpp, "llamacpp")
    assert "two of its entries are of one token" in edited(tmp_path, twice, llamacpp, "llamacpp")
    assert "position 1: its probabilities add up to 2.7" in edited(tmp_path, too_much, llamacpp, "llamacpp")


def tokenizer_file(path, texts):
    tokenizers = pytest.importorskip("tokenizers", reason="texts of tokens need the package tokenizers")
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({text: i for i, text in enumerate(texts)}, unk_token="<0>")
    )
    made.save(str(path))
    return path


def test_texts_are_tokens_of_a_tokenizer(tmp_path):
    tokenizer = tokenizer_file(tmp_path / "tokenizer.json", [f"<{i}>" for i in range(V)])
    for source, make in (
        ("openai", lambda role="target": chat(role, "<{}>")),
        ("openai", lambda role="target": completions(role, "<{}>")),
        ("llamacpp", llamacpp_old),
    ):
        dump = both(tmp_path, source, make, tokenizer=tokenizer)
        check_side(dump.pairs(0, 3).target, logged("target")[5:], PROMPT + DRAWN)
    with_texts = lambda role="target": chat(role, "<{}>")  # noqa: E731
    assert "lists token texts" in edited(tmp_path, lambda a: None, with_texts, "openai")
    other = lambda a: a["choices"][0]["logprobs"]["content"][0].update(token="<99>")  # noqa: E731
    found = edited(tmp_path, other, with_texts, "openai", tokenizer=tokenizer)
    assert "has the text <99>; log token ids" in found


def test_a_text_that_several_tokens_have_is_refused(tmp_path):
    path = tokenizer_file(tmp_path / "tokenizer.json", [f"<{i}>" for i in range(V)])
    whole = json.loads(path.read_text())
    # Every token decodes to the same text.
    whole["decoder"] = {"type": "Replace", "pattern": {"Regex": ".+"}, "content": "a"}
    path.write_text(json.dumps(whole))
    make = lambda role="target": chat(role, "a")  # noqa: E731
    assert "several tokens of" in edited(tmp_path, lambda a: None, make, "openai", tokenizer=path)


def test_lines_take_nothing_for_granted(tmp_path):
    def bare(role="target"):
        return [{"ids": one["ids"], "logprobs": one["logprobs"]} for one in lines(role)]

    dump = both(tmp_path, "jsonl", bare)
    assert np.array_equal(dump.pairs(0, 3).target.most, np.ones(3))
    assert "positions are joined in the order of the files" in dump.notes
    path = dumped(tmp_path / "odd.jsonl", [lines()[0] | {"top": 3}])
    assert "line 1: has unknown keys top" in refused(path, own)
    path = dumped(tmp_path / "odd.jsonl", [lines()[0] | {"ranked": 9}])
    assert "ranked is 9, and 3 tokens are listed" in refused(
        path, import_top_pairs, draft=path, source="jsonl"
    )


def test_rows_of_parquet_are_lines(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="parquet files need the package pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    files = []
    for role in ("target", "draft"):
        files.append(tmp_path / f"{role}.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(lines(role)), files[-1])
    dump = import_top_pairs(*files, source="parquet", vocab=V)
    check_side(dump.pairs(0, 3).target, logged("target")[5:], PROMPT + DRAWN)
    assert dump.next_tokens.tolist() == DRAWN
    files[0].write_bytes(files[0].read_bytes()[:200])
    assert "cannot be read as parquet" in refused(
        files[0], import_top_pairs, draft=files[1], source="parquet"
    )


def test_lists_of_very_different_lengths_cost_no_memory(tmp_path):
    many = [{"ids": [1], "logprobs": [-1.0]}] * 4000
    path = dumped(tmp_path / "x.jsonl", [{"ids": list(range(3000)), "logprobs": [-20.0] * 3000}, *many])
    assert "very different lengths" in refused(path, own)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_what_is_saved_is_read_again(tmp_path, suffix):
    dump = both(tmp_path, "sglang", sglang)
    save_top_pairs(tmp_path / f"x{suffix}", dump.mapping)
    again = open_top_pairs(tmp_path / f"x{suffix}")
    one, other = dump.pairs(0, 7), again.pairs(0, 7)
    for name in ("tokens", "probabilities", "tail", "most"):
        assert np.array_equal(getattr(one.target, name), getattr(other.target, name))
    assert again.meta["draft"] == {"file": "draft.json", "from": "sglang"}
    assert again.vocab == V
    assert "end the name so" in refused(tmp_path / "x.csv", save_top_pairs, pairs=dump.mapping)


def test_answers_one_a_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(sglang()) + "\n\n" + json.dumps(sglang()) + "\n")
    assert len(list(documents(path))) == 2
    dump = import_top_pairs(path, path, source="sglang", vocab=V)
    assert dump.positions == 14


def test_a_list_that_leaves_out_a_more_probable_sampled_token_is_not_of_the_most_probable(tmp_path):
    top = [{"token": "token_id:1", "logprob": -3.0}, {"token": "token_id:2", "logprob": -4.0}]
    entry = {"token": "token_id:9", "logprob": -0.1, "top_logprobs": top}
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"choices": [{"logprobs": {"content": [entry]}}]}))
    dump = import_top_pairs(path, path, source="openai")
    assert dump.pairs(0, 1).target.most.tolist() == [1.0]
    meta = {
        "output_top_logprobs": [[[-3.0, 1, None], [-4.0, 2, None]]],
        "output_token_logprobs": [[-0.1, 9, None]],
    }
    path.write_text(json.dumps({"meta_info": meta}))
    assert import_top_pairs(path, path, source="sglang").pairs(0, 1).draft.most.tolist() == [1.0]
