"""Logits recorded along text sampled from the target, and what commands of the package say about them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from pairs import Job, ModelPair
from texts import sampled_prefixes

from resispec_verify.cli import main as resispec_verify
from resispec_verify.errors import InputError
from resispec_verify.models.gguf_file import load_tokenizer, open_gguf


def command(*arguments: object) -> None:
    """Run a command of ``resispec-verify`` in this process, its table unseen; raises where it fails."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        status = resispec_verify([str(argument) for argument in arguments])
    if status:
        raise InputError(f"resispec-verify {arguments[0]} ended with status {status}")


def report(job: Job, *arguments: object) -> dict[str, Any]:
    """What a command writes with ``--json``."""
    path = job.work / f"report-{os.getpid()}.json"
    command(*arguments, "--json", path)
    found = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    return found


def dump(job: Job, pair: ModelPair, temperature: float) -> Path:
    """The dump of a pair at a temperature, one position a common prefix, recorded unless it is there."""
    settings = job.config["recorded"]
    prefixes = sampled_prefixes(job, pair)
    lines = [json.dumps({"tokens": tokens}) for (_, _, t), tokens in prefixes.items() if t == temperature]
    options = [
        *pair.record_options(), "--positions", 1, "--dtype", settings["dtype"], "--temperature", temperature,
        "--seed", job.config["seed"],
    ]  # fmt: skip
    key = hashlib.sha256("\n".join([*map(str, options), *lines]).encode()).hexdigest()[:12]
    path = job.work / f"{pair.name}-T{temperature:g}-{key}.pt"
    if not path.exists():
        prompts = path.with_suffix(".jsonl")
        prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command("record", *options, "--prompts", prompts, "--out", path)
    return path


def token_texts(pair: ModelPair, tokens: list[int]) -> dict[int, str] | None:
    """Names of tokens in the target's vocabulary; None where it has none that is read."""
    if pair.target.is_dir():
        from transformers import AutoTokenizer

        names = AutoTokenizer.from_pretrained(pair.target).convert_ids_to_tokens(tokens)
        return dict(zip(tokens, names, strict=True))
    tokenizer = load_tokenizer(open_gguf(pair.target), str(pair.target))
    return {token: tokenizer.id_to_token(token) or "" for token in tokens}
