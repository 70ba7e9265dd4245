"""`record`: dumps from a tiny local model, and one line for everything that cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import assert_refused, strict_json

from resispec_verify.dumps import load_mapping, open_dump, open_top_pairs

sys.path.append(str(Path(__file__).parents[1] / "unit"))
from record_helpers import CONTEXT, TOKENS, write_gguf

for package in ("torch", "gguf", "tokenizers"):
    pytest.importorskip(package, reason=f"recording needs the package {package}")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def record(cli, model, tmp_path, monkeypatch):
    """Run the command with a usual target, draft and prompt, and with what the test changes."""
    monkeypatch.chdir(tmp_path)

    def run(**changes):
        options = {"target": model, "skip_layers": 1, "prompt": "the cat", "out": "run.pt"} | changes
        pairs = [(f"--{k.replace('_', '-')}", v) for k, v in options.items() if v is not None]
        return cli("record", *(part for pair in pairs for part in pair))

    return run


def test_a_flat_dump_that_kl_reads(record, cli):
    result = record(positions=5, json="report.json", seed=2, temperature=0.5)
    assert result.status == 0
    assert "run.pt will be about 1.2 kB (5 positions of 2 rows, float16)" in result.err
    assert result.out.startswith("run.pt: 5 positions, vocabulary 62, float16")
    report = strict_json(Path("report.json").read_text())
    (row,) = report["results"]
    assert (report["schema"], report["command"]) == (1, "record")
    assert (row["kind"], row["positions"], row["vocab"], row["dtype"]) == ("flat", 5, 62, "float16")
    assert row["bytes"] == Path("run.pt").stat().st_size
    dump = open_dump("run.pt")
    assert dump.meta["draft"] == "the target without layers 1"
    assert dump.meta["target"] == "tiny.gguf"
    checked = cli("kl", "--logits", "run.pt", "--rule", "specinfer", "--json", "-")
    (law,) = (r for r in checked.json["results"] if r["marginal"] == "operational")
    assert (law["verdict"], law["temperature"]) == ("exact", 0.5)
    assert cli("inspect", "run.pt").status == 0


def test_the_same_seed_gives_the_same_bytes(record):
    for name, seed in (("a.pt", 1), ("b.pt", 1), ("c.pt", 2)):
        assert record(out=name, seed=seed, positions=6).status == 0
    assert Path("a.pt").read_bytes() == Path("b.pt").read_bytes()
    assert load_mapping("a.pt")["tokens"].tolist() != load_mapping("c.pt")["tokens"].tolist()


def test_rounds_and_trees_from_a_file_of_prompts(record):
    Path("p.jsonl").write_text('{"prompt": "the cat"}\n{"tokens": [2, 3, 4]}\n')
    options = {"prompt": None, "prompts": "p.jsonl", "skip_layers": None}
    assert record(**options, window=3, kind="rounds", rounds=4, gamma=2, dtype="float32").status == 0
    rounds = load_mapping("run.pt")["rounds"]
    assert [entry["prompt"] for entry in rounds] == [0] * 4 + [1] * 4
    assert rounds[0]["target_logits"].dtype == np.float32
    assert record(**options, round_bits=3, kind="tree", topology="3,2", positions=2, out="t.pt").status == 0
    tree = load_mapping("t.pt")
    assert tree["target_logits"].shape == (4, 4, 62)
    assert tree["tokens"].shape == (4, 10)
    assert record(**options, round_bits=3, kind="tree", out="u.pt").status == 0
    assert load_mapping("u.pt")["tokens"].shape == (2, 40)
    shaped = {"topology": "-1,0,0,1", "siblings": "without-replacement", "out": "v.pt"}
    assert record(**options, round_bits=3, kind="tree", **shaped).status == 0
    assert load_mapping("v.pt")["parent"].tolist() == [-1, 0, 0, 1]
    assert load_mapping("v.pt")["meta"]["siblings"] == "without-replacement"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target": "missing.gguf"}, ["missing.gguf: no such model"]),
        ({"draft": "missing", "skip_layers": None}, ["missing: no such model"]),
        ({"draft": "missing"}, ["make a draft of the target", "leave --draft out"]),
        ({"skip_layers": None}, ["the draft would be the target itself", "--round-bits"]),
        ({"skip_layers": "9"}, ["layer 9 is not one of the target's 3"]),
        ({"skip_layers": "a"}, ["--skip-layers", "7,10,13"]),
        ({"skip_layers": None, "window": 0}, ["--window must be at least 1"]),
        ({"skip_layers": None, "round_bits": 17}, ["--round-bits must be 1 to 16"]),
        ({"prompt": None}, ["--prompt TEXT or --prompts FILE"]),
        ({"prompt": "1"}, ["prompt 0 has no tokens"]),
        ({"prompt": "a" * CONTEXT}, [f"prompt 0 has {CONTEXT} tokens", f"is {CONTEXT} tokens"]),
        ({"prompt": None, "prompts": "none.txt"}, ["none.txt: cannot be read", "No such file"]),
        ({"positions": 0}, ["--positions must be at least 1"]),
        ({"gamma": 3}, ["--gamma is for --kind rounds, not for flat"]),
        ({"kind": "rounds", "positions": 3}, ["--positions is for --kind flat or tree, not for rounds"]),
        ({"kind": "tree", "topology": "x"}, ["--topology: 'x' is no tree", "as d5b3"]),
        ({"kind": "tree", "topology": "d30b3"}, ["more than 65536 nodes"]),
        ({"kind": "tree", "topology": "500,500"}, ["more than 65536 nodes"]),
        ({"kind": "tree", "topology": "3,0"}, ["at least one"]),
        ({"kind": "tree", "topology": "-1,0,3"}, ["--topology: node 2 has parent 3"]),
        ({"kind": "tree", "topology": "d1b3"}, ["has no candidates"]),
        ({"siblings": "fixed"}, ["--siblings is for --kind tree, not for flat"]),
        ({"temperature": -1}, ["--temperature must be"]),
        ({"seed": -1}, ["--seed must be at least 0"]),
        ({"out": "run.npz"}, ["end the name with .pt"]),
        ({"out": "missing/run.pt"}, ["does not exist"]),
        ({"device": "cuda"}, ["leave --device out"]),
    ],
)
def test_what_cannot_be_is_one_line(record, tmp_path, changes, words):
    assert_refused(record(**changes), *words)
    assert not list(tmp_path.iterdir())


def test_a_tree_that_the_draft_cannot_fill_leaves_nothing(record, tmp_path):
    result = record(kind="tree", siblings="pairs")
    assert result.status == 2
    assert "node 0 needs 3 candidates drawn pairs, and there are only 2" in result.err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_no_tokenizer_and_another_vocabulary_are_one_line(record, tmp_path_factory):
    folder = tmp_path_factory.mktemp("others")
    bare = write_gguf(folder / "bare.gguf", tokenizer=False)
    assert_refused(record(target=bare), "bare.gguf: has no tokenizer", '{"tokens": [1, 2, 3]}')
    short = write_gguf(folder / "short.gguf", tokens=TOKENS[:-2])
    assert_refused(record(draft=short, skip_layers=None), "vocabularies of 62 and 60")
    (folder / "p.jsonl").write_text('{"tokens": [1, 2]}')
    assert record(target=bare, prompt=None, prompts=folder / "p.jsonl", positions=1).status == 0


def test_the_model_and_the_prompts_are_never_overwritten(record, tmp_path):
    path = tmp_path / "p.pt"
    path.write_text("the cat\n")
    assert_refused(record(prompt=None, prompts=path, out=path), "choose another name")
    assert path.read_text() == "the cat\n"


def test_a_disk_without_room_is_refused_before_the_work(record, monkeypatch):
    import shutil
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**6, 10**6, 1000))
    assert_refused(record(positions=50), "needs about 18.6 kB", "the disk has 1.0 kB")


def test_help_is_fast_and_needs_no_model_packages():
    code = (
        "import sys\nfrom resispec_verify.cli import main\nmain(['record', '--help'])\nmain(['--help'])\n"
        "print(sorted({'torch', 'gguf', 'tokenizers', 'transformers'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.stderr.strip() == "[]"
    assert "--round-bits" in done.stdout


def test_an_interrupt_leaves_nothing(record, tmp_path, monkeypatch):
    from resispec_verify.record import loops

    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(loops, "draw", stop)
    assert record(positions=5).status == 130
    assert not list(tmp_path.iterdir())


def test_the_top_k_of_each_law(record, cli):
    result = record(positions=5, temperature=0.5, top_k=4, json="report.json")
    assert result.status == 0
    assert "(5 positions of 2 rows, 4 tokens each)" in result.err
    assert result.out.startswith("run.pt: 5 positions, vocabulary 62, 4 tokens each")
    assert strict_json(Path("report.json").read_text())["results"][0]["top_k"] == 4
    dump = open_top_pairs("run.pt")
    assert (dump.positions, dump.k, dump.vocab) == (5, 4, 62)
    assert dump.meta["applied"] == {"temperature": 0.5}
    record(positions=5, temperature=0.5, out="whole.pt")
    whole = open_dump("whole.pt")
    p = np.exp(whole.batch(0, 5).target.astype(np.float64) / 0.5)
    p /= p.sum(axis=-1, keepdims=True)
    found = dump.pairs(0, 5).target
    assert np.allclose(found.probabilities, np.sort(p, axis=-1)[:, :-5:-1], rtol=1e-5)
    assert dump.next_tokens.tolist() == load_mapping("whole.pt")["tokens"][1:].tolist()
    assert cli("inspect", "run.pt").status == 0
    assert "top 4 listed" in cli("kl", "--logits", "run.pt").out
    assert_refused(record(kind="tree", top_k=3), "--top-k is for --kind flat, not for tree")
