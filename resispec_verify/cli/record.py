"""`resispec-verify record`: log target and draft logits from local models."""

import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from resispec_verify.cli.options.group import Options, check_range
from resispec_verify.cli.options.outputs import JsonOption
from resispec_verify.cli.options.readings import make_sampling
from resispec_verify.cli.output import progress
from resispec_verify.cli.parameters import Count, File, Number, Text
from resispec_verify.errors import InputError
from resispec_verify.models.opening import Variant, encode_all, open_models
from resispec_verify.record import loops
from resispec_verify.record.loops import Settings, check_prompts
from resispec_verify.record.prompts import read_prompts
from resispec_verify.record.recorder import check_path
from resispec_verify.report.table import print_lines, safe_line
from resispec_verify.schema import envelope
from resispec_verify.topology import TREE_FORMS, Topology

# The options of each kind of recording, and what they are by default.
DEFAULTS: dict[str, dict[str, Any]] = {
    "flat": {"positions": 64, "top_k": None},
    "rounds": {"rounds": 12, "gamma": 4},
    "tree": {"positions": 1, "topology": "d4b3", "siblings": "iid"},
}
WIDTHS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
NUMBERS = re.compile(r"\d{1,6}(,\d{1,6})*")


@dataclass(frozen=True, kw_only=True)
class DraftOptions(Options):
    """The draft."""

    draft: Text = "same"
    """Another model with the same tokenizer, or "same": the target, changed by the next three options."""
    skip_layers: Text | None = None
    """Layers of the target that the draft leaves out, "7,10,13", counted from 0."""
    window: Count | None = None
    """Last tokens that the draft sees."""
    round_bits: Count | None = None
    """Bits to which the draft's matrices, embeddings included, are rounded in groups of 32."""

    @property
    def path(self) -> Path | None:
        """Of another model; None for the target, changed."""
        return None if self.draft == "same" else Path(self.draft)

    def variant(self) -> Variant:
        """How the target is changed, checked."""
        if self.skip_layers is not None and not NUMBERS.fullmatch(self.skip_layers):
            raise InputError(f"--skip-layers must be numbers such as 7,10,13; got {self.skip_layers!r}")
        check_range(1, window=self.window)
        if self.round_bits is not None and not 1 <= self.round_bits <= 16:
            raise InputError(f"--round-bits must be 1 to 16, got {self.round_bits}")
        skipped = tuple(int(part) for part in self.skip_layers.split(",")) if self.skip_layers else ()
        variant = Variant(skipped, self.window, self.round_bits)
        if self.path is None and not variant:
            raise InputError(
                "the draft would be the target itself: give --draft PATH, or one of --skip-layers, --window "
                "and --round-bits"
            )
        if self.path is not None and variant:
            raise InputError(
                "--skip-layers, --window and --round-bits make a draft of the target: leave --draft out"
            )
        return variant


@dataclass(frozen=True, kw_only=True)
class PromptOptions(Options):
    """What the models go on from."""

    prompt: Text | None = None
    """One prompt, taken as it is: no chat template is applied."""
    prompts: File | None = None
    """A file of prompts, one a line; or .jsonl with "prompt" (a text) or "tokens" (token ids)."""

    def read(self) -> list[Any]:
        """Texts, or lists of token ids."""
        if (self.prompt is None) == (self.prompts is None):
            raise InputError("give either --prompt TEXT or --prompts FILE")
        return [self.prompt] if self.prompts is None else read_prompts(self.prompts)


@dataclass(frozen=True, kw_only=True)
class KindOptions(Options):
    """What is recorded.

    Attributes
    ----------
    kind
        flat: rows along text sampled from the target. rounds: speculative rounds with their decisions and
        uniforms. tree: trees of candidates drawn from the draft.
    positions
        flat: rows a prompt (64). tree: prefixes a prompt (1).
    rounds
        Rounds a prompt (12).
    gamma
        Draft tokens a round (4).
    siblings
        How the children of a node are drawn: iid (the default), without-replacement, fixed (the draft's best
        tokens) or pairs (SpecHub's two).
    top_k
        flat: keep the k most probable tokens of each law, after the temperature, and the mass of the others.
    """

    kind: Literal["flat", "rounds", "tree"] = "flat"
    positions: Count | None = None
    rounds: Count | None = None
    gamma: Count | None = None
    topology: Annotated[Text | None, Parameter(help=f"tree: {TREE_FORMS} (d4b3).")] = None
    siblings: Literal["iid", "without-replacement", "fixed", "pairs"] | None = None
    top_k: Count | None = None

    def loop(self) -> "_Loop":
        """The loop that the kind asks for, with its options checked and filled in."""
        given = self._filled()
        check_range(1, **{name: value for name, value in given.items() if isinstance(value, int)})
        if self.kind == "flat":
            n = given["positions"]
            return _Loop(partial(loops.record_flat, **given), "positions", n, 2, n - 1, grows=True)
        if self.kind == "rounds":
            n, gamma = given["rounds"], given["gamma"]
            run = partial(loops.record_rounds, **given)
            return _Loop(run, "rounds", n, 2 * gamma + 1, n * (gamma + 1), grows=False)
        n, tree = given["positions"], _topology(given["topology"])
        run = partial(loops.record_trees, **{**given, "topology": tree})
        inner = sum(bool(children) for children in tree.children)
        return _Loop(run, "prefixes", n, 2 * inner, n + tree.levels - 3, grows=True)

    def _filled(self) -> dict[str, Any]:
        """The options of this kind; refuses those of another."""
        own = DEFAULTS[self.kind]
        for name in ("positions", "rounds", "gamma", "topology", "siblings", "top_k"):
            if name not in own and getattr(self, name) is not None:
                kinds = " or ".join(kind for kind, options in DEFAULTS.items() if name in options)
                raise InputError(
                    f"--{name.replace('_', '-')} is for --kind {kinds}, not for {self.kind}; give that, or "
                    "leave it out"
                )
        given = {name: getattr(self, name) for name in own}
        return {name: own[name] if value is None else value for name, value in given.items()}


@dataclass(frozen=True, kw_only=True)
class ModelRunOptions(Options):
    """How the models run, and how their logits are kept."""

    temperature: Number = 1.0
    """Of target and draft. Logits are logged before it."""
    seed: Count = 0
    """Prompt i uses seed + i."""
    dtype: Literal["float16", "bfloat16", "float32", "float64"] = "float16"
    """Type of the logits in the dump."""
    device: Text = "cpu"
    """Where a Hugging Face model is computed: cpu, cuda, cuda:1, ..."""

    def check(self) -> None:
        """Refuse numbers that are out of range."""
        make_sampling("--", self.temperature)
        if self.seed < 0:
            raise InputError(f"--seed must be at least 0, got {self.seed}")


def record(
    *,
    target: File,
    out: File,
    draft: DraftOptions = DraftOptions(),
    prompt: PromptOptions = PromptOptions(),
    kind: KindOptions = KindOptions(),
    run: ModelRunOptions = ModelRunOptions(),
    output: JsonOption = JsonOption(),
) -> int:
    """Log target and draft logits from a local GGUF file or Hugging Face folder. Needs no network.

    Parameters
    ----------
    target
        A GGUF file (Llama architecture) or a Hugging Face folder.
    out
        The dump to write (.pt).
    """
    loop, variant = kind.loop(), draft.variant()
    run.check()
    check_path(out)
    inputs = [path for path in (target, draft.path, prompt.prompts) if path is not None]
    output.check(inputs, dump=out)
    texts = prompt.read()
    opened = open_models(target, draft.path, variant, run.device)
    try:
        tokens = encode_all(opened, texts)
    except ModuleNotFoundError as error:
        raise InputError(f"the package {error.name} is missing; run: pip install {error.name}") from None
    meta = {"target": target.name, "draft": str(variant) if draft.path is None else draft.path.name}
    settings = Settings(run.temperature, run.seed, run.dtype, meta)
    check_prompts(opened.target, opened.draft, tokens, loop.more)
    units, vocab = len(tokens) * loop.units, opened.target.vocab
    _announce(loop, units, _row(vocab, kind.top_k, run.dtype), out)
    begun = time.perf_counter()
    with progress(out.name, units) as advance:
        loop.run(out, opened.target, opened.draft, tokens, settings=settings, advance=advance)
    size, seconds = out.stat().st_size, time.perf_counter() - begun
    result = {
        "path": str(out), "kind": kind.kind, "prompts": len(tokens), loop.unit: units, "vocab": vocab,
        "dtype": run.dtype, "bytes": size, "seconds": seconds,
        **({} if kind.top_k is None else {"top_k": min(kind.top_k, vocab)}),
    }  # fmt: skip
    how = run.dtype if kind.top_k is None else f"{result['top_k']} tokens each"
    text = f"{out}: {units} {loop.unit}, vocabulary {vocab}, {how}, {_size(size)} in {seconds:.1f} s"
    print_lines(output.write(envelope("record", [result])), [text])
    return 0


@dataclass(frozen=True)
class _Loop:
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


def _topology(text: str) -> Topology:
    """A tree with candidates."""
    try:
        tree = Topology.parse(text)
    except InputError as error:
        raise InputError(f"--topology: {error}") from None
    if tree.nodes == 1:
        raise InputError(f"--topology {text} has no candidates; take one with two levels at least")
    return tree


def _row(vocab: int, top_k: int | None, dtype: str) -> tuple[int, str]:
    """Bytes of a row, and what it is."""
    if top_k is None:
        return vocab * WIDTHS[dtype], dtype
    k = min(vocab, top_k)
    return k * (4 + max(4, WIDTHS[dtype])) + 8, f"{k} tokens each"


def _announce(loop: _Loop, units: int, row: tuple[int, str], out: Path) -> None:
    """Say how large the dump will be, and refuse what the disk has no room for."""
    size = units * loop.rows * row[0]
    needed = size * 3 // 2 if loop.grows else size
    free = shutil.disk_usage(out.resolve().parent).free
    if needed > free:
        raise InputError(
            f"{out}: the dump needs about {_size(needed)} while it is written, and the disk has "
            f"{_size(free)}; record less or choose another place"
        )
    what = f"{units} {loop.unit} of {loop.rows} rows, {row[1]}"
    print(safe_line(f"resispec-verify: {out} will be about {_size(size)} ({what})"), file=sys.stderr)


def _size(count: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"
