"""`resispec-verify record`: log target and draft logits from local models."""

from __future__ import annotations

import math
import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from resispec_verify.cli.output import check_writable, print_lines, progress, table_console, write_json
from resispec_verify.cli.parameters import Count, File, Number, Text
from resispec_verify.errors import InputError
from resispec_verify.schema import envelope

if TYPE_CHECKING:
    from resispec_verify.models.opening import Opened, Variant
    from resispec_verify.topology import Topology

__all__ = ["record"]

DEFAULTS: dict[str, dict[str, Any]] = {
    "flat": {"positions": 64},
    "rounds": {"rounds": 12, "gamma": 4},
    "tree": {"topology": "d4b3", "siblings": "iid"},
}


def record(
    *,
    target: File,
    out: File,
    draft: Text = "same",
    skip_layers: Text | None = None,
    window: Count | None = None,
    round_bits: Count | None = None,
    prompt: Text | None = None,
    prompts: File | None = None,
    kind: Literal["flat", "rounds", "tree"] = "flat",
    positions: Count | None = None,
    rounds: Count | None = None,
    gamma: Count | None = None,
    topology: Text | None = None,
    siblings: Literal["iid", "without-replacement", "fixed", "pairs"] | None = None,
    temperature: Number = 1.0,
    seed: Count = 0,
    dtype: Literal["float16", "bfloat16", "float32", "float64"] = "float16",
    device: Text = "cpu",
    json: File | None = None,
) -> int:
    """Log target and draft logits from a local GGUF file or Hugging Face folder. Needs no network.

    Parameters
    ----------
    target
        A GGUF file (Llama architecture) or a Hugging Face folder.
    out
        The dump to write (.pt).
    draft
        Another model with the same tokenizer, or "same": the target, changed by the next three options.
    skip_layers
        Layers of the target that the draft leaves out, "7,10,13", counted from 0.
    window
        Last tokens that the draft sees.
    round_bits
        Bits to which the draft's matrices, embeddings included, are rounded in groups of 32.
    prompt
        One prompt, taken as it is: no chat template is applied.
    prompts
        A file of prompts, one a line; or .jsonl with "prompt" (a text) or "tokens" (token ids).
    kind
        flat: rows along text sampled from the target. rounds: speculative rounds with their decisions and
        uniforms. tree: trees of candidates drawn from the draft.
    positions
        flat: rows a prompt (64). tree: prefixes a prompt (1).
    rounds
        Rounds a prompt (12).
    gamma
        Draft tokens a round (4).
    topology
        "d4b3": 4 levels, the root included, 3 children a node; children by level, "4,2,1"; or the parent of
        each node, "-1,0,0,1".
    siblings
        How the children of a node are drawn: iid (the default), without-replacement, fixed (the draft's best
        tokens) or pairs (SpecHub's two).
    temperature
        Of target and draft. Logits are logged before it.
    seed
        Prompt i uses seed + i.
    dtype
        Type of the logits in the dump.
    device
        Where a Hugging Face model is computed: cpu, cuda, cuda:1, ...
    json
        Write the report here ("-": standard output).
    """
    from resispec_verify.record.loops import Settings, check_prompts
    from resispec_verify.record.recorder import check_path

    job = _job(
        kind, positions=positions, rounds=rounds, gamma=gamma, topology=topology, siblings=siblings
    )  # fmt: skip
    variant = _variant(draft, skip_layers, window, round_bits)
    _check_numbers(temperature, seed)
    check_path(out)
    inputs = [target, *([] if draft == "same" else [Path(draft)]), *([] if prompts is None else [prompts])]
    check_writable(dump=out, json=json, inputs=inputs)
    texts = _prompts(prompt, prompts)
    opened = _open(target, None if draft == "same" else Path(draft), variant, device)
    tokens = _encoded(opened, texts)
    meta = {"target": target.name, "draft": str(variant) if draft == "same" else Path(draft).name}
    settings = Settings(temperature, seed, dtype, meta)
    check_prompts(opened.target, opened.draft, tokens, job.more)
    _announce(job, len(tokens), opened.target.vocab, dtype, out)
    begun = time.perf_counter()
    with progress(out.name, len(tokens) * job.units) as advance:
        job.run(out, opened.target, opened.draft, tokens, settings=settings, advance=advance)
    result = {
        "path": str(out),
        "kind": kind,
        "prompts": len(tokens),
        job.unit: len(tokens) * job.units,
        "vocab": opened.target.vocab,
        "dtype": dtype,
        "bytes": out.stat().st_size,
        "seconds": time.perf_counter() - begun,
    }
    write_json(json, envelope("record", [result]))
    text = f"{out}: {result[job.unit]} {job.unit}, vocabulary {result['vocab']}, {dtype}"
    print_lines(table_console(json), [f"{text}, {_size(result['bytes'])} in {result['seconds']:.1f} s"])
    return 0


@dataclass(frozen=True)
class _Job:
    """One kind of recording with its options.

    Attributes
    ----------
    run : callable
        The loop.
    unit, units : str, int
        What is counted, and how many a prompt.
    rows : int
        Rows of logits, of target and draft together, a unit.
    more : int
        Tokens fed after a prompt, at most.
    grows : bool
        Whether target and draft lie in one file each until the end, so that the disk holds one of them twice.
    """

    run: Callable[..., None]
    unit: str
    units: int
    rows: int
    more: int
    grows: bool


def _job(kind: str, **options: Any) -> _Job:
    """The loop that a kind asks for, with its options checked and filled in."""
    from functools import partial

    from resispec_verify.record import loops

    if kind == "tree":
        options["positions"] = 1 if options["positions"] is None else options["positions"]
    own = {
        "flat": ("positions",),
        "rounds": ("rounds", "gamma"),
        "tree": ("positions", "topology", "siblings"),
    }[kind]
    for name, value in options.items():
        if name not in own and value is not None:
            kinds = {"positions": "flat or tree", "topology": "tree", "siblings": "tree"}.get(name, "rounds")
            raise InputError(f"--{name} is for --kind {kinds}, not for {kind}; leave it out")
    given: dict[str, Any] = {
        name: DEFAULTS[kind].get(name) if options[name] is None else options[name] for name in own
    }
    for name, value in given.items():
        if isinstance(value, int) and value < 1:
            raise InputError(f"--{name} must be at least 1, got {value}")
    if kind == "flat":
        return _Job(
            partial(loops.record_flat, **given),
            "positions",
            given["positions"],
            2,
            given["positions"] - 1,
            True,
        )
    if kind == "rounds":
        rows, more = 2 * given["gamma"] + 1, given["rounds"] * (given["gamma"] + 1)
        return _Job(partial(loops.record_rounds, **given), "rounds", given["rounds"], rows, more, False)
    tree = _topology(given.pop("topology"))
    inner = sum(bool(children) for children in tree.children)
    run = partial(loops.record_trees, topology=tree, **given)
    more = given["positions"] + tree.levels - 3
    return _Job(run, "prefixes", given["positions"], 2 * inner, more, True)


def _topology(text: str) -> Topology:
    """A tree by its levels and branches, by its parents, or by the children of each level."""
    from resispec_verify.topology import Topology

    by_level = re.fullmatch(r"\d{1,6}(,\d{1,6})*", text)
    try:
        tree = Topology.by_level([int(n) for n in text.split(",")]) if by_level else Topology.parse(text)
    except InputError as error:
        raise InputError(f"--topology: {error}") from None
    if tree.nodes == 1:
        raise InputError(f"--topology {text} has no candidates; take one with two levels at least")
    return tree


def _variant(draft: str, skip_layers: str | None, window: int | None, round_bits: int | None) -> Variant:
    from resispec_verify.models.opening import Variant

    if skip_layers is not None and not re.fullmatch(r"\d{1,6}(,\d{1,6})*", skip_layers):
        raise InputError(f"--skip-layers must be numbers such as 7,10,13; got {skip_layers!r}")
    if window is not None and window < 1:
        raise InputError(f"--window must be at least 1, got {window}")
    if round_bits is not None and not 1 <= round_bits <= 16:
        raise InputError(f"--round-bits must be 1 to 16, got {round_bits}")
    skipped = tuple(int(part) for part in skip_layers.split(",")) if skip_layers else ()
    variant = Variant(skipped, window, round_bits)
    if draft == "same" and not variant:
        raise InputError(
            "the draft would be the target itself: give --draft PATH, or one of --skip-layers, --window and "
            "--round-bits"
        )
    if draft != "same" and variant:
        raise InputError(
            "--skip-layers, --window and --round-bits make a draft of the target: leave --draft out"
        )
    return variant


def _check_numbers(temperature: float, seed: int) -> None:
    if not (math.isfinite(temperature) and temperature >= 0):
        raise InputError(f"--temperature must be a finite number >= 0, got {temperature:g}")
    if seed < 0:
        raise InputError(f"--seed must be at least 0, got {seed}")


def _prompts(prompt: str | None, prompts: Path | None) -> list[Any]:
    from resispec_verify.record.prompts import read_prompts

    if (prompt is None) == (prompts is None):
        raise InputError("give either --prompt TEXT or --prompts FILE")
    return [prompt] if prompts is None else read_prompts(prompts)


def _open(target: Path, draft: Path | None, variant: Variant, device: str) -> Opened:
    from resispec_verify.models.opening import open_models

    return open_models(target, draft, variant, device)


def _encoded(opened: Opened, prompts: list[Any]) -> list[list[int]]:
    from resispec_verify.models.opening import encode_all

    try:
        return encode_all(opened, prompts)
    except ModuleNotFoundError as error:
        raise InputError(f"the package {error.name} is missing; run: pip install {error.name}") from None


def _announce(job: _Job, prompts: int, vocab: int, dtype: str, out: Path) -> None:
    """Say how large the dump will be, and refuse what the disk has no room for."""
    width = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}[dtype]
    units = prompts * job.units
    size = units * job.rows * vocab * width
    needed = size * 3 // 2 if job.grows else size
    free = shutil.disk_usage(out.resolve().parent).free
    if needed > free:
        raise InputError(
            f"{out}: the dump needs about {_size(needed)} while it is written, and the disk has "
            f"{_size(free)}; record less or choose another place"
        )
    what = f"{units} {job.unit} of {job.rows} rows, {dtype}"
    print(f"resispec-verify: {out} will be about {_size(size)} ({what})", file=sys.stderr)


def _size(count: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"
