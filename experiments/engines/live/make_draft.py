"""The models of the live audits: SmolLM2-135M, a draft made of it, and both as OpenVINO's IR.

``python experiments/engines/live/make_draft.py`` writes what is missing into the folder that
``RESISPEC_LIVE_MODELS`` names (default: ``~/.cache/resispec-live``) and prints where it lies. The draft is
the target without the layers of the pair ``poor-skip6`` of ``experiments/config.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

EXPERIMENTS = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(EXPERIMENTS))
from smollm2 import find_gguf  # noqa: E402

SKIP = tuple(json.loads((EXPERIMENTS / "config.json").read_text())["pairs"]["poor-skip6"]["skip_layers"])
_BLOCK = re.compile(r"blk\.(\d+)\.(.*)")


def folder() -> Path:
    """Where models are kept."""
    there = Path(os.environ.get("RESISPEC_LIVE_MODELS") or Path.home() / ".cache" / "resispec-live")
    there.mkdir(parents=True, exist_ok=True)
    return there.resolve()


def renamed(name: str, skip: Sequence[int]) -> str | None:
    """Name of a tensor in the model without the layers ``skip``; None for a tensor of one of them."""
    found = _BLOCK.fullmatch(name)
    if found is None:
        return name
    block = int(found[1])
    if block in skip:
        return None
    return f"blk.{block - sum(s < block for s in skip)}.{found[2]}"


def write_draft(source: Path, out: Path, skip: Sequence[int]) -> None:
    """Write the model of ``source`` without the layers ``skip``: bytes of tensors and tokenizer as they were.

    Raises
    ------
    ValueError
        A layer is not there.
    """
    import gguf

    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    blocks = reader.fields[f"{architecture}.block_count"].contents()
    if not set(skip) <= set(range(blocks)):
        raise ValueError(f"{source} has layers 0 to {blocks - 1}; to be left out: {list(skip)}")
    writer = gguf.GGUFWriter(out, architecture)
    for name, field in reader.fields.items():
        # The writer sets the first by itself, and those of the header.
        if name == "general.architecture" or name.startswith("GGUF."):
            continue
        value = field.contents()
        if name == f"{architecture}.block_count":
            value = blocks - len(skip)
        inner = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(name, value, field.types[0], inner)
    for tensor in reader.tensors:
        name = renamed(tensor.name, skip)
        if name is not None:
            writer.add_tensor(name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_draft(source: Path, out: Path, skip: Sequence[int]) -> None:
    """Hold every tensor of the draft against the one it was, and the tokenizer.

    Raises
    ------
    ValueError
        Something differs.
    """
    import gguf
    import numpy as np

    before, after = gguf.GGUFReader(source), gguf.GGUFReader(out)
    there = {tensor.name: tensor for tensor in after.tensors}
    wanted = {renamed(tensor.name, skip): tensor for tensor in before.tensors}
    wanted.pop(None, None)
    if set(there) != set(wanted):
        raise ValueError(f"{out} has other tensors: {sorted(set(there) ^ set(wanted))[:4]}")
    for name, tensor in wanted.items():
        same = list(tensor.shape) == list(there[name].shape) and np.array_equal(tensor.data, there[name].data)
        if not same or tensor.tensor_type != there[name].tensor_type:
            raise ValueError(f"{out} has another {name}")
    for name, field in before.fields.items():
        expected = field.contents()
        if name.endswith(".block_count"):
            expected -= len(skip)
        if not name.startswith("GGUF.") and after.fields[name].contents() != expected:
            raise ValueError(f"{out} says something else of {name}")


def draft_gguf() -> Path:
    """The draft, written if it is not there."""
    out = folder() / ("draft-skip-" + "-".join(map(str, SKIP)) + ".gguf")
    if not out.is_file():
        part = out.with_suffix(".part")
        write_draft(find_gguf(), part, SKIP)
        check_draft(find_gguf(), part, SKIP)
        part.rename(out)
    return out


def openvino_folder(gguf_file: Path) -> Path:
    """A model as OpenVINO's IR with its tokenizer, saved from the GGUF file if it is not there.

    OpenVINO GenAI reads a GGUF file as a target but refuses it as a draft. It writes beside the file it
    reads, and so reads a link in a folder of its own.
    """
    out = folder() / f"openvino-{gguf_file.stem}"
    if not (out / "openvino_model.xml").is_file():
        out.mkdir(exist_ok=True)
        link = out / gguf_file.name
        if not link.exists():
            link.symlink_to(gguf_file)
        # In a process of its own, whose memory and threads end with it.
        code = "import sys, openvino_genai as g; g.LLMPipeline(sys.argv[1], 'CPU', enable_save_ov_model=True)"
        subprocess.run([sys.executable, "-c", code, str(link)], check=True, stdout=sys.stderr)
        if not (out / "openvino_model.xml").is_file():
            raise FileNotFoundError(f"OpenVINO GenAI saved no model in {out}: {sorted(os.listdir(out))}")
    return out


def main() -> None:
    """Make what is missing and print where it lies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--openvino", action="store_true", help="also target and draft as OpenVINO's IR")
    options = parser.parse_args()
    target, draft = find_gguf(), draft_gguf()
    print(f"target {target} {target.stat().st_size / 1e6:.1f} MB")
    print(f"draft {draft} {draft.stat().st_size / 1e6:.1f} MB")
    if options.openvino:
        for name, source in (("target", target), ("draft", draft)):
            there = openvino_folder(source)
            size = sum(file.stat().st_size for file in there.iterdir() if not file.is_symlink())
            print(f"openvino {name} {there} {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
