"""A folder with a small file for every file that the pages name, so that what they print can be run."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import top_helpers
import torch
from cli_helpers import drawn, save
from fake_engine import Engine, engines
from fake_models import Sampling
from printed_commands import ROOT, pages
from record_helpers import write_gguf

from resispec_verify.cli import main
from resispec_verify.topology import Topology

# Token matching along a path: what the target draws stands, and the path goes on while it is drawn.
BLOCK_SAMPLER = """
import numpy as np


def sampler(targets, drafts, path, rng):
    out = np.full((len(path), path.shape[1] + 1), -1)
    for row, laws in enumerate(targets):
        for i, law in enumerate(laws):
            out[row, i] = rng.choice(len(law), p=law / law.sum())
            if i == path.shape[1] or out[row, i] != path[row, i]:
                break
    return out
"""

PROGRAM = """
import json, random, sys

for line in sys.stdin:
    asked = json.loads(line)
    law, rng = asked["target"], random.Random(asked["seed"])
    print(json.dumps({"tokens": rng.choices(range(len(law)), law, k=asked["rows"])}), flush=True)
"""

TOP_FORMS: dict[str, Callable[[str], object]] = {
    "vllm": top_helpers.vllm_server,
    "sglang": top_helpers.sglang,
    "openai": lambda role: top_helpers.completions(role, "{}"),
    "llamacpp": top_helpers.llamacpp,
    "jsonl": top_helpers.lines,
}


def write(folder: Path) -> None:
    """Write the files that do not depend on the command."""
    (folder / "examples").symlink_to(ROOT / "examples")
    for name in ("docs/img", "path/to"):
        (folder / name).mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "my_rule.py", folder / "path" / "to")
    (folder / "path" / "to" / "engine.py").write_text(BLOCK_SAMPLER)
    for name in ("test_engine.py", "policies.py", "ms.csv"):
        (folder / name).write_text(next(_marked(name)))
    (folder / "prompts.txt").write_text("the cat\nthe hat\n")
    (folder / "extra-llm-api-config.yml").write_text(
        "speculative_config:\n  decoding_type: Eagle\n  max_draft_len: 3\n"
    )
    words = {str(i): i for i in range(top_helpers.V)}
    (folder / "tokenizer.json").write_text(
        json.dumps({"model": {"type": "BPE", "vocab": words, "merges": []}, "added_tokens": []})
    )
    top_helpers.write(folder / "pairs.npz", top_helpers.pairs())
    top_helpers.write(folder / "top100.npz", top_helpers.pairs(k=20))
    rows = drawn(6, 40)
    for name, other in (("decode", rows), ("verify", rows + 1e-3 * drawn(6, 40, seed=1))):
        save(folder / f"{name}.pt", other)
    on, off = engines(None)
    _completions(folder / "on.jsonl", on, 0)
    _completions(folder / "off.jsonl", off, 1000)
    _recorded(folder)


def _recorded(folder: Path) -> None:
    """A model of a few thousand parameters, dumps of a smaller one, and trees of random logits."""
    write_gguf(folder / "model.gguf", blocks=14, context=512)
    model = write_gguf(folder / "small.gguf", blocks=2, context=512)
    common = ["--target", str(model), "--skip-layers", "1", "--prompts", str(folder / "prompts.txt")]
    for name, options in {"dump": "--positions 4", "rounds": "--kind rounds --rounds 4"}.items():
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            status = main(["record", *common, *options.split(), "--out", str(folder / f"{name}.pt")])
        assert status == 0, f"{name}.pt was not recorded"
    for name in ("run", "DUMP"):
        shutil.copy(folder / "dump.pt", folder / f"{name}.pt")
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["kl", str(folder / "dump.pt"), "--json", str(folder / "report.json")]) == 0
    parent = Topology.parse("d5b3").parents
    inner = sum(node in parent for node in range(len(parent)))
    tokens = torch.randint(12, (2, len(parent)), generator=torch.Generator().manual_seed(2))
    save(folder / "trees.pt", drawn(2, inner, 12), drawn(2, inner, 12, seed=1), tokens=tokens,
         parent=torch.tensor(parent), meta={"siblings": "iid"})  # fmt: skip


def _completions(path: Path, engine: Engine, first_seed: int) -> None:
    with path.open("w") as file:
        for seed in range(first_seed, first_seed + 300):
            tokens = engine.complete((5, 6), 4, seed, Sampling()).tokens
            file.write(json.dumps({"tokens": list(tokens), "seed": seed}) + "\n")


def write_for(folder: Path, arguments: list[str]) -> None:
    """Write the files whose contents depend on the command that reads them."""
    text = " ".join(arguments)
    if "cmd:" in text:
        (folder / "engine.py").write_text(PROGRAM)
    elif "engine" in text and arguments[0] in ("audit", "check"):
        function = "generate" if arguments[0] == "audit" else "sampler"
        (folder / "engine.py").write_text(engine_of_the_pages(function))
    if arguments[0] == "convert" and "--from" in arguments:
        _top_files(folder, arguments)


def engine_of_the_pages(function: str) -> str:
    """The block that is ``engine.py`` of a page, without what a page says to leave out."""
    for code in (*_marked("engine.py"), *_saved_as("engine.py")):
        if f"def {function}(" in code:
            return code.partition("\nfrom resispec_verify")[0]
    raise AssertionError(f"no page has a block with {function} that is to be saved as engine.py")


def _marked(name: str) -> Iterator[str]:
    """Blocks of pages below ``<!-- file: NAME -->``."""
    block = re.compile(rf"<!-- file: {re.escape(name)} -->\n```\w+\n(.*?)^```", re.M | re.S)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for found in block.finditer(page.read_text(encoding="utf-8")):
            yield found[1]


def _saved_as(name: str) -> Iterator[str]:
    """Blocks above the words that say to save them."""
    block = re.compile(rf"^```python\n(.*?)^```\n+Save it as `{re.escape(name)}`", re.M | re.S)
    for page in pages():
        for found in block.finditer(page.read_text(encoding="utf-8")):
            yield found[1].rpartition("```python\n")[2]


def _top_files(folder: Path, arguments: list[str]) -> None:
    form = arguments[arguments.index("--from") + 1]
    forms = {"target": form, "draft": form}
    if "--draft-from" in arguments:
        forms["draft"] = arguments[arguments.index("--draft-from") + 1]
    for role, name in forms.items():
        if name == "parquet":
            _parquet(folder / f"{role}.parquet", top_helpers.lines(role))
            continue
        path = folder / f"{role}.{'jsonl' if name == 'jsonl' else 'json'}"
        top_helpers.dumped(path, TOP_FORMS[name](role))


def _parquet(path: Path, lines: list[dict]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(lines), path)
