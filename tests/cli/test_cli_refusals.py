"""Sixty and more ways to hold it wrong: each is status 2 and one line, which says what to do instead."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
import torch
from cli_helpers import assert_refused, drawn, save

HAND = ("--target", "0.3,0.4,0.3", "--draft", "0.6,0.3,0.1")

# Arguments, and the words that say what to do. DUMP is a flat dump of 5 positions and 6 tokens.
REFUSALS: dict[str, tuple[str, str]] = {
    # commands
    "kll DUMP": ("kll", "did you mean 'kl'? See"),
    "verify DUMP": ("unknown command 'verify'", "commands: kl, inspect,"),
    "DUMP": ("which is a dump", "write 'resispec-verify kl DUMP'"),
    "tree lenght DUMP": ("unknown command 'tree lenght'", "did you mean 'length'?"),
    "rules specinfer": ("one word too many", "see 'resispec-verify rules --help'"),
    "compare DUMP": ("compare needs B", "see 'resispec-verify compare --help'"),
    "inspect": ("inspect needs FILE", "see 'resispec-verify inspect --help'"),
    "check": ("check needs SAMPLER", "see 'resispec-verify check --help'"),
    # options
    "kl DUMP --rules specinfer": ("--rules", "did you mean --rule?"),
    "kl DUMP --temp 1": ("--temp", "did you mean --temperature?"),
    "kl DUMP --candidate 3": ("--candidate", "did you mean --candidates?"),
    "kl DUMP --require_exactly": ("--require_exactly", "did you mean --require-exact?"),
    "kl DUMP --max-t 2": ("--max-t", "did you mean --max-tv?"),
    "kl DUMP --verbose": ("unknown option --verbose", "see 'resispec-verify kl --help'"),
    "limits DUMP --plot x.png": ("--plot of limits", "it is one of kl, drift, explore, picture and 1 more"),
    "limits DUMP --require-exact": ("--require-exact of limits", "it is one of kl"),
    "tree length DUMP --topolgy d3b2": ("--topolgy", "did you mean --topology?"),
    "kl DUMP --rule": ("--rule needs a value", "see 'resispec-verify kl --help'"),
    "kl DUMP --json a.json --json b.json": ("--json is given twice", "give it once"),
    # values
    "kl DUMP --marginal operatonal": ("--marginal must be one of", "did you mean 'operational'?"),
    "kl DUMP --input logit": ("--input must be one of", "did you mean 'logits'?"),
    "kl DUMP --candidates two": ("'two'", "--candidates must be a whole number"),
    "kl DUMP --candidates 0": ("got 0", "--candidates must be in 1.."),
    "kl DUMP --temperature warm": ("'warm'", "--temperature must be a number"),
    "kl DUMP --temperature -1": ("--temperature", "must be"),
    "kl DUMP --top-p 2": ("--top-p", "must be"),
    "kl DUMP --max-tv 2": ("got 2", "--max-tv must be in [0, 1]"),
    "kl DUMP --positions 3": ("'3'", "--positions must be"),
    "kl DUMP --positions 3:9": ("outside the dump", "give a non-empty range inside it"),
    "kl DUMP --precision float16": ("'float16'", "--precision must be one of float64, float32"),
    "explore DUMP --position 9": ("position 9", "outside 0..4; give one of these"),
    "record --target m.gguf --out x.pt --prompt a": ("--draft PATH", "give --draft PATH, or one of"),
    "record --target m.gguf --out x.pt --window 3 --topology d3b2": (
        "--kind tree",
        "give that, or leave it out",
    ),
    # rules
    "kl DUMP --rule spec-infer": ("unknown rule 'spec-infer'", "did you mean 'specinfer'?"),
    "kl DUMP --rule SpecInfer": ("unknown rule 'SpecInfer'", "did you mean 'specinfer'?"),
    "kl DUMP --rule optimal_sequential": ("unknown rule", "did you mean 'optimal-sequential'?"),
    "kl DUMP --rule zzz": ("unknown rule 'zzz'", "'resispec-verify rules' lists all of them"),
    "kl DUMP --rule resispec:budgt=floor": ("no option 'budgt'", "did you mean 'budget'?"),
    "kl DUMP --rule resispec:budget=flor": ("got 'flor'", "budget must be one of local, floor"),
    "kl DUMP --rule block": ("verifies paths", "rounds dump"),
    "rules --attack specinfr": ("--attack", "did you mean 'specinfer'?"),
    "prove theorm-2": ("unknown statement", "did you mean 'theorem-2'?"),
    "prove theorem-9": ("unknown statement 'theorem-9'", "there are: eq-1-2, proposition-1"),
    "engines vlm": ("no engine 'vlm'", "did you mean 'vllm'?"),
    "engines ollama": ("no engine 'ollama'", "there are llama.cpp"),
    # names in Python code
    "kl DUMP --rule own.py": ("own.py", "as in own.py:NAME"),
    "kl DUMP --rule nowhere.py:Mine": ("cannot be read", "check the path"),
    "kl DUMP --rule nowhere.at.all:Mine": ("there is no module 'nowhere'", "as in path/to/nowhere.py:NAME"),
    "kl DUMP --rule own.py:Mien": ("there is no 'Mien'", "did you mean 'Mine'?"),
    "check own.py:nothing": ("there is no 'nothing'", "(there are: right"),
    "check own": ("own: say which object", "FILE.py:NAME or package.module:NAME or cmd:PROGRAM"),
    "check cmd:no-such-program-here": ("there is no program", "check its path"),
    "audit own.py:rihgt --reference own.py:Mine": ("there is no 'rihgt'", "did you mean 'right'?"),
    "audit 127.0.0.1:80 --reference x.jsonl": ("127.0.0.1:80", "did you mean http://127.0.0.1:80?"),
    # dumps
    "kl": ("nothing to verify", "give FILE..., or --target and --draft"),
    "drift": ("nothing to measure", "give FILE..., or --target and --draft"),
    "replay": ("nothing to replay", "give FILE..."),
    "explore": ("give one of FILE", "--target and --draft, or --random V"),
    "report DUMP": ("where the page goes", "--out report.html"),
    "tree": ("nothing to do", "write tree cost TREE..., tree length FILE..."),
    "tree length": ("nothing to measure", "give FILE..., one or more tree dumps"),
    "tree grow --nodes 5": ("growing needs probabilities", "give --acceptance A,B,... or FILE"),
    "kl DUMP --logits DUMP": ("by --logits", "give all dumps as FILE"),
    "kl DUMP HAND": ("not both", "give either FILE... or --target and --draft"),
    "kl HAND --top-k 3": ("--top-k needs a dump", "leave it out"),
    "kl --target 0.5,0.5": ("--draft is missing", "give both --target and --draft"),
    "kl nowhere.pt": ("no such file", "check the path"),
    "kl .": ("directory without dumps", "name a dump file or a folder of shards"),
    "kl rows.npy": ("one NumPy array", 'python -c "import numpy'),
    "kl rows.npy draft.npy": (
        "rows.npy (the target) and draft.npy (the draft)",
        "rows.npy draft.npy dump.npz",
    ),
    "kl draft.npy rows.npy": (
        "rows.npy (the target) and draft.npy (the draft)",
        "rows.npy draft.npy dump.npz",
    ),
    "inspect rows.npy draft.npy": ("a dump is one file with both", "rows.npy draft.npy dump.npz"),
    "kl --target rows.npy --draft draft.npy": ("takes numbers", "rows.npy draft.npy dump.npz"),
    "kl --target DUMP --draft 0.5,0.5": ("is a file", "give a dump of both as FILE"),
    "kl DUMP --rule resispec specinfer": ("the name of a rule", "as in --rule resispec --rule specinfer"),
    "kl DUMP --rule resispec,specinfer": ("is several rules", "repeat the option: --rule resispec --rule"),
    "kl DUMP --temperature 1 0.6": ("0.6: no such file", "as in --temperature 1 --temperature 0.6"),
    "kl answer.json": ("an answer of vLLM", "resispec-verify convert answer.json draft.json --from vllm"),
    "kl ROUNDS": ("rounds dump", "give it to replay or weights"),
    "replay DUMP": ("flat dump", "give it to kl, limits, drift"),
    "tree length DUMP": ("flat dump", "give it to kl, limits, drift"),
    "kl BATCHED": ("the same positions", "save draft_logits.reshape(2, 3, 6)"),
    "kl TURNED": ("the wrong way round", "save that one as .T"),
    "kl WIDTHS": ("vocabulary widths 6 and 5 differ", "pass --pad-vocab"),
    # outputs
    "kl DUMP --json rows.csv": ("it would hold JSON", "end its name in .json"),
    "kl DUMP --json nowhere/r.json": ("does not exist", "create it first"),
    "kl DUMP --json DUMP": ("DUMP", "choose another name"),
    "kl DUMP --plot p.xyz": ("p.xyz", ".png"),
    "kl DUMP --seed 3 --marginal operational": ("--seed", "leave it out"),
    "convert DUMP --out p.csv --top-k 3": ("p.csv", "end the name so"),
    "convert DUMP --out p.npz": ("--from", "give the files of target and draft"),
    # trees
    "tree cost": ("nothing to do", "give one or more trees"),
    "tree cost d3c2": ("'d3c2' is no tree", "give levels with the root and children of each node, as d5b3"),
    "tree cost 4,0,1": ("each level needs at least one", "parents begin with -1"),
    "tree cost d99b9": ("d99b9", "take a smaller tree"),
}
REMEDY = re.compile(
    r"did you mean|\b(give|leave|choose|check|create|write|save|pass|see|name|say|take|end the name|needs?|"
    r"must be|make it|repeat|there are|lists all|commands:|it is one of|convert|--out|as in|FILE\.py)\b|\.png"
)
OWN = """
import resispec_verify as rv
Mine = rv.ResiSpec(budget="floor")
def right(target, draft, rng): return 0
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The dumps that the table names, and code of a user's own, in the current folder."""
    monkeypatch.chdir(tmp_path)
    T, D = drawn(6, 6, seed=3), drawn(6, 6, seed=4)
    save(tmp_path / "dump.pt", T[:5], D[:5])
    save(tmp_path / "batched.pt", T.reshape(2, 3, 6), D)
    save(tmp_path / "turned.pt", T[:4], D[:4].T.contiguous())
    save(tmp_path / "widths.pt", T, D[:, :5].contiguous())
    one = {"draft_tokens": [1], "draft_logits": D[:1], "target_logits": T[:2], "accepted": 1}
    torch.save({"rounds": [one]}, tmp_path / "rounds.pt")
    np.save(tmp_path / "rows.npy", T.numpy())
    np.save(tmp_path / "draft.npy", D.numpy())
    (tmp_path / "empty").mkdir()
    (tmp_path / "answer.json").write_text('{"choices": [{"prompt_logprobs": [null]}]}')
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return {
        "DUMP": "dump.pt", "BATCHED": "batched.pt", "TURNED": "turned.pt", "WIDTHS": "widths.pt",
        "ROUNDS": "rounds.pt", ".": "empty",
    }  # fmt: skip


@pytest.mark.parametrize("asked", REFUSALS)
def test_a_refusal_says_what_to_do(cli, files, asked):
    words = [files.get(word, word) for word in asked.replace("HAND", " ".join(HAND)).split()]
    what, remedy = (text.replace("DUMP", "dump.pt") for text in REFUSALS[asked])
    done = cli(*words)
    assert_refused(done, what, remedy)
    assert REMEDY.search(done.err), done.err


def test_nothing_is_suggested_that_is_not_close(cli, files):
    for asked in (
        "limits dump.pt --plot x.png", "kl dump.pt --nonsense 3", "prove theorem-9", "check nope:x",
        "kl dump.pt --rule zzz", "rules --attack nothing", "engines ollama", "sample dump.pt",
    ):  # fmt: skip
        assert "did you mean" not in cli(*asked.split()).err, asked
