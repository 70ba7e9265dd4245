"""Recording from models: every draw and decision follows from what is in the file."""

import numpy as np
import pytest
from record_helpers import HashModel

from resispec_verify import make_rule
from resispec_verify.dumps import load_mapping, open_dump, open_rounds, open_tree
from resispec_verify.errors import InputError
from resispec_verify.logged.replay import replay
from resispec_verify.logged.replay_summary import summarize_replay
from resispec_verify.logged.rounds_input import read_rounds
from resispec_verify.record import record_flat, record_rounds, record_trees
from resispec_verify.record.loops import Settings, draw
from resispec_verify.record.prompts import read_prompts
from resispec_verify.topology import Topology

PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8]]
TARGET, DRAFT = HashModel(1), HashModel(2)
SETTINGS = Settings(temperature=0.7, seed=3)


def softmax(logits, temperature):
    wide = np.asarray(logits, np.float64)
    weights = np.exp((wide - wide.max(-1, keepdims=True)) / temperature)
    return weights / weights.sum(-1, keepdims=True)


def test_draw_inverts_the_cumulative_sum():
    weights = np.array([0.0, 0.5, 0.0, 1.5, 0.0])
    assert [draw(weights, u) for u in (0.0, 0.2499, 0.25, 1 - 2**-53)] == [1, 1, 3, 3]


def test_flat_rows_follow_the_prefixes_they_say(tmp_path):
    record_flat(tmp_path / "a.pt", TARGET, DRAFT, PROMPTS[:1], positions=9, settings=SETTINGS)
    loaded = load_mapping(tmp_path / "a.pt")
    tokens, context = loaded["tokens"].tolist(), loaded["context_tokens"].tolist()
    assert (len(tokens), context + tokens[:1]) == (10, PROMPTS[0])
    for i in range(9):
        prefix = context + tokens[: i + 1]
        for key, model in (("target_logits", TARGET), ("draft_logits", DRAFT)):
            assert np.array_equal(loaded[key][i], model.logits(prefix)[0].astype(np.float16))
    uniforms = np.random.default_rng(3).random(9)
    laws = softmax(loaded["target_logits"], 0.7)
    assert tokens[1:] == [draw(law, u) for law, u in zip(laws, uniforms, strict=True)]
    assert open_dump(tmp_path / "a.pt").sampling == {"temperature": 0.7}


def test_prompt_i_uses_seed_s_plus_i(tmp_path):
    record_flat(tmp_path / "both.pt", TARGET, DRAFT, PROMPTS, positions=5, settings=SETTINGS)
    record_flat(tmp_path / "second.pt", TARGET, DRAFT, PROMPTS[1:], positions=5, settings=Settings(0.7, 4))
    both, second = load_mapping(tmp_path / "both.pt"), load_mapping(tmp_path / "second.pt")
    assert both["target_logits"].shape == (2, 5, 11)
    assert both["tokens"].shape == (2, 6)
    assert np.array_equal(both["target_logits"][1], second["target_logits"])
    assert np.array_equal(both["tokens"][1], second["tokens"])
    assert [c.tolist() for c in both["context_tokens"]] == [p[:-1] for p in PROMPTS]
    assert open_dump(tmp_path / "both.pt").positions == 10


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_every_decision_of_the_rounds_can_be_recomputed(tmp_path, dtype):
    settings = Settings(0.7, 3, dtype)
    record_rounds(tmp_path / "r.pt", TARGET, DRAFT, PROMPTS, rounds=40, gamma=2, settings=settings)
    loaded = load_mapping(tmp_path / "r.pt")
    assert len(loaded["rounds"]) == 80
    contexts = [list(prompt) for prompt in PROMPTS]
    emitted, accepted_all = [], []
    for entry in loaded["rounds"]:
        context, drafted = contexts[entry["prompt"]], entry["draft_tokens"].tolist()
        assert entry["context_len"] == len(context)
        for j in range(3):
            expected = TARGET.logits(context + drafted[:j])[0]
            assert np.array_equal(entry["target_logits"][j], expected.astype(entry["target_logits"].dtype))
        p, q = softmax(entry["target_logits"], 0.7), softmax(entry["draft_logits"], 0.7)
        passed = [u * q[j, x] < p[j, x] for j, (u, x) in enumerate(zip(entry["u"], drafted, strict=True))]
        accepted = passed.index(False) if False in passed else 2
        weights = p[2] if accepted == 2 else np.maximum(p[accepted] - q[accepted], 0)
        assert entry["accepted"] == accepted
        assert entry["next_token"] == draw(weights, entry["u_next"])
        new = [*drafted[:accepted], entry["next_token"]]
        context += new
        emitted += new
        accepted_all.append(accepted)
    assert loaded["output_tokens"].tolist() == emitted
    assert set(accepted_all) == {0, 1, 2}
    # And so `replay` does, of two prompts in one dump.
    row = summarize_replay(replay(read_rounds(tmp_path / "r.pt"), make_rule("speculative")))
    assert (row["agree"], row["divergences"], row["notes"]) == (row["decisions"], 0, [])
    assert row["next_tokens_redrawn"] == 80
    assert row["tokens_emitted"] == len(emitted)
    assert [c.tolist() for c in open_rounds(tmp_path / "r.pt").context_tokens] == [list(p) for p in PROMPTS]


def test_the_rounds_emit_the_target(tmp_path):
    # One round a seed from the same prompt: the first token emitted has the law of the target.
    prompts = [[1, 2, 3]] * 1000
    record_rounds(
        tmp_path / "r.pt", TARGET, DRAFT, prompts, rounds=1, gamma=1, settings=Settings(dtype="float32")
    )
    rounds = load_mapping(tmp_path / "r.pt")["rounds"]
    first = [int(e["draft_tokens"][0]) if e["accepted"] else e["next_token"] for e in rounds]
    law = softmax(TARGET.logits([1, 2, 3])[0], 1.0)
    counts = np.bincount(first, minlength=11)
    from scipy.stats import chisquare

    assert chisquare(counts, law * len(first)).pvalue > 1e-4


def test_trees_are_breadth_first_and_drawn_from_the_draft(tmp_path):
    tree = Topology.by_level([3, 2])
    record_trees(tmp_path / "t.pt", TARGET, DRAFT, PROMPTS, topology=tree, positions=2, settings=SETTINGS)
    loaded = load_mapping(tmp_path / "t.pt")
    parent = loaded["parent"].tolist()
    assert parent == [-1, 0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert loaded["depth"].tolist() == [0, 1, 1, 1, 2, 2, 2, 2, 2, 2]
    assert loaded["target_logits"].shape == (4, 4, 11)
    generator = np.random.default_rng(SETTINGS.seed)
    for r in range(4):
        length = int(loaded["prefix_len"][r])
        prefix = loaded["prefix"][r, -length:].tolist()
        tokens = loaded["tokens"][r].tolist()
        assert prefix[: len(PROMPTS[r // 2])] == PROMPTS[r // 2]
        assert tokens[0] == prefix[-1]
        paths = {0: prefix}
        for n in range(1, 10):
            paths[n] = [*paths[parent[n]], tokens[n]]
        for n in range(4):
            for key, model in (("target_logits", TARGET), ("draft_logits", DRAFT)):
                assert np.array_equal(loaded[key][r, n], model.logits(paths[n])[0].astype(np.float16))
        if r < 2:
            laws = softmax(loaded["draft_logits"][r], 0.7)
            assert tokens[1:] == [draw(laws[p], generator.random()) for p in parent[1:]]
            generator.random()  # the token sampled from the target after the tree
    assert loaded["prefix_len"].tolist() == [3, 4, 5, 6]


UNEVEN = Topology((-1, 0, 0, 1, 1, 1, 3, 2))


@pytest.mark.parametrize("siblings", ["iid", "without-replacement", "fixed"])
def test_trees_of_any_shape_and_siblings(tmp_path, siblings):
    record_trees(
        tmp_path / "t.pt", TARGET, DRAFT, PROMPTS[:1], topology=UNEVEN, siblings=siblings, positions=30,
        settings=SETTINGS,
    )  # fmt: skip
    dump = open_tree(tmp_path / "t.pt")
    assert tuple(dump.parent) == UNEVEN.parents
    assert (dump.siblings, dump.sampling) == (siblings, {"temperature": 0.7})
    generator = np.random.default_rng(SETTINGS.seed)
    repeats = 0
    for r in range(dump.prefixes):
        logits, tokens = dump.logits(r), dump.tokens[r]
        paths = {0: dump.prefix[r].tolist()}
        for n in range(1, dump.nodes):
            paths[n] = [*paths[int(dump.parent[n])], int(tokens[n])]
        for node, children in enumerate(dump.children):
            if not len(children):
                continue
            row = logits.draft[dump.draft_row[node]]
            expected = DRAFT.logits(paths[node])[0].astype(np.float16)
            assert np.array_equal(row, expected.astype(row.dtype))
            law, best = softmax(row, 0.7), np.argsort(-row, kind="stable")
            for i, child in enumerate(children):
                u = generator.random()
                if siblings == "fixed":
                    assert tokens[child] == best[i]
                    continue
                assert tokens[child] == draw(law, u)
                if siblings == "without-replacement":
                    law[tokens[child]] = 0
            repeats += len(children) - len(set(tokens[children].tolist()))
        generator.random()  # the token sampled from the target after the tree
    assert (repeats > 0) == (siblings == "iid")


def test_the_best_tokens_are_those_of_the_logits_at_temperature_zero_too(tmp_path):
    record_trees(
        tmp_path / "t.pt", TARGET, DRAFT, PROMPTS, topology=Topology.complete(2, 3), siblings="fixed",
        settings=Settings(0.0),
    )  # fmt: skip
    dump = open_tree(tmp_path / "t.pt")
    for r in range(dump.prefixes):
        best = np.argsort(-dump.logits(r).draft[0], kind="stable")[:3]
        assert dump.tokens[r, 1:].tolist() == best.tolist()


def test_pairs_hold_the_best_token_of_the_draft(tmp_path):
    record_trees(
        tmp_path / "t.pt", TARGET, DRAFT, PROMPTS, topology=Topology.complete(3, 2), siblings="pairs"
    )
    dump = open_tree(tmp_path / "t.pt")
    for r in range(dump.prefixes):
        for node in range(3):
            best = int(dump.logits(r).draft[node].argmax())
            pair = dump.tokens[r, dump.children[node]].tolist()
            assert best in pair
            assert pair[0] != pair[1]


@pytest.mark.parametrize(("siblings", "settings", "tree"), [
    ("without-replacement", Settings(0.0), Topology.complete(2, 2)),
    ("fixed", Settings(), Topology.complete(2, 12)),
    ("pairs", Settings(), Topology.complete(2, 3)),
])  # fmt: skip
def test_more_candidates_than_there_are_to_draw_are_refused(tmp_path, siblings, settings, tree):
    with pytest.raises(InputError, match=r"prompt 0, prefix of 3 tokens: node 0 needs .* only (1|2|11)"):
        record_trees(
            tmp_path / "t.pt", TARGET, DRAFT, PROMPTS, topology=tree, siblings=siblings, settings=settings
        )
    assert list(tmp_path.iterdir()) == []


def test_temperature_zero_is_greedy(tmp_path):
    record_flat(tmp_path / "a.pt", TARGET, DRAFT, PROMPTS[:1], positions=5, settings=Settings(0.0))
    loaded = load_mapping(tmp_path / "a.pt")
    assert loaded["tokens"][1:].tolist() == loaded["target_logits"].argmax(-1).tolist()


@pytest.mark.parametrize(
    ("draft", "prompts", "word"),
    [
        (HashModel(2, vocab=12), PROMPTS, "vocabularies of 11 and 12"),
        (DRAFT, [], "no prompts"),
        (DRAFT, [[1], []], "prompt 1 has no tokens"),
        (DRAFT, [[1, 11]], "token 11"),
        (HashModel(2, context=6), PROMPTS, "prompt 1 has 5 tokens and up to 2 are added"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, draft, prompts, word):
    with pytest.raises(InputError, match=word):
        record_flat(tmp_path / "a.pt", TARGET, draft, prompts, positions=3)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_breaks_leaves_nothing(tmp_path):
    class Broken(HashModel):
        def logits(self, tokens, last=1):
            rows = super().logits(tokens, last)
            rows[-1, 4] = np.nan if len(tokens) > 5 else 0
            return rows

    for record, options in (
        (record_flat, {"positions": 8}),
        (record_rounds, {"rounds": 5, "gamma": 2}),
        (record_trees, {"topology": Topology.complete(5, 2)}),
    ):
        with pytest.raises(InputError, match="NaN at token"):
            record(tmp_path / "a.pt", Broken(1), DRAFT, PROMPTS[:1], **options)
        assert list(tmp_path.iterdir()) == []


def test_prompts_from_files(tmp_path):
    plain, lines = tmp_path / "p.txt", tmp_path / "p.jsonl"
    plain.write_text("one\r\n\n  two words \n{not json\n", encoding="utf-8")
    assert read_prompts(plain) == ["one", "  two words ", "{not json"]
    lines.write_text('{"prompt": "a\\nb", "id": 3}\n\n{"tokens": [1, 2]}\n', encoding="utf-8")
    assert read_prompts(lines) == ["a\nb", [1, 2]]


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("p.txt", b"\n\n", "no prompts"),
        ("p.txt", b"\xff\xfe", "UTF-8"),
        ("p.jsonl", b'{"prompt": "a"}\nnope\n', "line 2: is not JSON"),
        ("p.jsonl", b'{"text": "a"}\n', "line 1: needs"),
        ("p.jsonl", b'{"prompt": "a", "tokens": [1]}\n', "not both"),
        ("p.jsonl", b'{"tokens": [1, true]}\n', "line 1: needs"),
        ("p.jsonl", b"[" * 100_000, "line 1: is not JSON"),
    ],
)
def test_bad_prompt_files_are_refused(tmp_path, name, content, word):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=word):
        read_prompts(tmp_path / name)
    with pytest.raises(InputError, match="cannot be read"):
        read_prompts(tmp_path / "missing.txt")
