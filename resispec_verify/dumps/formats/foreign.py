"""Files that are no dumps but hold what one is made of: what each is, and the line that converts it.

Nothing is converted here, and of a file only its beginning and its end are looked at: a pickle runs what is
in it, and other formats need libraries that the package does without. The line is for a shell.
"""

from __future__ import annotations

import shlex
import zipfile
from collections.abc import Iterable
from pathlib import Path

from resispec_verify.dumps.opening import open_file

__all__ = ["conversion", "pair_of_files", "unnamed"]

LOOKED_AT = 1 << 16
CONVERT = "resispec-verify convert"
#: How the answers of engines are known, in this order, and what `convert` calls their format.
ANSWERS = (
    ("prompt_logprobs", "vllm"), ("meta_info", "sglang"), ("completion_probabilities", "llamacpp"),
    ("choices", "openai"), ("ids", "jsonl"),
)  # fmt: skip
ANSWERED = {
    "vllm": "an answer of vLLM", "sglang": "an answer of SGLang", "llamacpp": "an answer of llama.cpp",
    "openai": "an answer of a server", "jsonl": "log-probabilities, one position a line",
}  # fmt: skip
#: Files of one array each: what one is, and what reads it.
ARRAYS = {
    ".npy": ("one NumPy array, and a dump holds two", "np.load({})"),
    ".csv": ("one table, and a dump holds two", "np.loadtxt({}, delimiter=',')"),
    ".tsv": ("one table, and a dump holds two", "np.loadtxt({})"),
    ".txt": ("text, not a dump", "np.loadtxt({})"),
}
KEYS = "('target_logits', 'draft_logits')"
#: Files of named arrays: what one is, what has to be imported, and what opens it.
NAMED = {
    ".h5": ("an HDF5 file", "h5py", "h5py.File(f)"),
    ".parquet": ("a table of parquet", "pyarrow.parquet as pq", "pq.read_table(f).to_pydict()"),
    ".json": ("JSON, not a dump", "json", "json.load(open(f))"),
    ".pkl": (
        "a pickle, which runs what is in it: only if you trust it",
        "pickle",
        "pickle.load(open(f, 'rb'))",
    ),
}
SAME = {".hdf5": ".h5", ".pickle": ".pkl", ".pq": ".parquet"}
SEVERAL_LINES = {".jsonl", ".ndjson"}


def conversion(path: Path) -> str | None:
    """What a file is and the line that makes a dump of it; None where nothing is known of it.

    Parameters
    ----------
    path : Path
        A regular file that no reader takes.

    Raises
    ------
    InputError
        It cannot be opened.
    """
    suffix = SAME.get(path.suffix.lower(), path.suffix.lower())
    with open_file(path) as file:
        head = file.read(LOOKED_AT)
        file.seek(-min(path.stat().st_size, LOOKED_AT), 2)
        tail = file.read()
    if head.startswith(b"PK"):
        return _zipped(path)
    if suffix == ".gguf":
        return (
            "is a model, and its logits are needed; record them: resispec-verify record --target "
            f"{_words(path)} --skip-layers 7,10 --prompt 'Once upon a time' --out dump.pt"
        )
    if suffix == ".npy" and (axes := _axes(path)) and len(axes) > 2 and axes[0] == 2:
        return f"is one NumPy array {axes}, and a dump has two; if the first is the target: {_of_stack(path)}"
    if suffix in ARRAYS:
        what, read = ARRAYS[suffix]
        also = (
            f"; decisions, one a line, go to: resispec-verify replay {_words(path)}"
            if suffix == ".csv"
            else ""
        )
        return f"is {what}; convert it: {_of_two(path, read)}{also}"
    if suffix in SEVERAL_LINES or suffix == ".json":
        return _answers(path, head, suffix)
    if suffix == ".parquet" and b"target_logits" not in tail:
        return f"is a table of parquet without target_logits; {_converted(path, 'parquet')}"
    return _named(path, suffix) if suffix in NAMED else None


def pair_of_files(first: Path, second: Path) -> str | None:
    """What two files of one array each are, and the line that makes one dump of them; None for others.

    The target is the one named first, unless the names say otherwise.
    """
    suffix = first.suffix.lower()
    if suffix not in ARRAYS or second.suffix.lower() != suffix:
        return None
    target, draft = first, second
    if _named_draft(first) and not _named_draft(second):
        target, draft = second, first
    line = _line_of_two(target, draft, ARRAYS[suffix][1])
    return (
        f"{first} and {second}: a dump is one file with both arrays; make it of {target} (the target) and "
        f"{draft} (the draft): {line}"
    )


def unnamed(path: Path, keys: Iterable[object]) -> str | None:
    """The line that names the two arrays that ``numpy.savez(file, target, draft)`` left without names."""
    if not {"arr_0", "arr_1"} <= {*keys}:
        return None
    code = (
        "import numpy as np, sys; f, out = sys.argv[1:]; d = np.load(f); "
        "np.savez(out, target_logits=d['arr_0'], draft_logits=d['arr_1'])"
    )
    return (
        "its arrays have no names; if arr_0 is the target and arr_1 the draft: "
        f'python -c "{code}" {_words(path, path.with_name(f"named-{path.name}"))}'
    )


def _named_draft(path: Path) -> bool:
    name = path.name.lower()
    return "draft" in name and "target" not in name


def _axes(path: Path) -> list[int]:
    """The shape of a NumPy array, from its header; nothing where it cannot be read."""
    import numpy as np

    try:
        return [*np.load(path, mmap_mode="r", allow_pickle=False).shape]
    except (ValueError, OSError, EOFError):
        return []


def _of_stack(path: Path) -> str:
    code = (
        "import numpy as np, sys; x, out = np.load(sys.argv[1]), sys.argv[2]; "
        "np.savez(out, target_logits=x[0], draft_logits=x[1])"
    )
    return f'python -c "{code}" {_words(path, path.with_suffix(".npz"))}'


def _zipped(path: Path) -> str:
    """A zip file: one of torch or NumPy under another name, or a folder."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return "is a damaged zip file; copy it again"
    for ending, suffix, what in (
        ("data.pkl", ".pt", "a file of torch.save"),
        (".npy", ".npz", "a file of NumPy"),
    ):
        if any(name.endswith(ending) for name in names):
            return f"is {what} under another name; rename it: mv {_words(path, path.with_suffix(suffix))}"
    folder = path.with_suffix("")
    return f"is a zip file; unpack it, and give what is in it: python -m zipfile -e {_words(path, folder)}"


def _answers(path: Path, head: bytes, suffix: str) -> str:
    """JSON: what an engine answered, or arrays as lists."""
    found = next((name for key, name in ANSWERS if f'"{key}"'.encode() in head), None)
    if b'"target_logits"' in head and suffix == ".json":
        return _named(path, suffix)
    if found is not None:
        return f"is {ANSWERED[found]}, not a dump; {_converted(path, found)}"
    if suffix == ".json":
        return f"is JSON without target_logits; if an engine answered it, {_converted(path, 'vllm')}"
    return (
        f"is lines of JSON, not a dump; decisions, one a line, go to: resispec-verify replay {_words(path)}; "
        f"what an engine answered, {_converted(path, 'vllm')}"
    )


def _converted(path: Path, source: str) -> str:
    target, draft = _pair(path)
    return f"convert it with the draft's: {CONVERT} {_words(target, draft)} --from {source} --out pairs.npz"


def _of_two(path: Path, read: str) -> str:
    return _line_of_two(*_pair(path), read)


def _line_of_two(target: Path, draft: Path, read: str) -> str:
    code = (
        "import numpy as np, sys; t, d, out = sys.argv[1:]; "
        f"np.savez(out, target_logits={read.format('t')}, draft_logits={read.format('d')})"
    )
    return f'python -c "{code}" {_words(target, draft)} dump.npz'


def _named(path: Path, suffix: str) -> str:
    what, module, opened = NAMED[suffix]
    code = (
        f"import numpy as np, sys, {module}; f, out = sys.argv[1:]; d = {opened}; "
        f"np.savez(out, **{{k: np.array(d[k]) for k in {KEYS}}})"
    )
    return f'is {what}; convert it: python -c "{code}" {_words(path, path.with_suffix(".npz"))}'


def _pair(path: Path) -> tuple[Path, Path]:
    """The file and the one that goes with it: of target and draft, told by their names."""
    name = path.name
    if "draft" in name.lower() and "target" not in name.lower():
        return path.with_name(name.replace("draft", "target").replace("DRAFT", "TARGET")), path
    other = name.replace("target", "draft").replace("TARGET", "DRAFT")
    return path, path.with_name(other if other != name else f"draft{path.suffix}")


def _words(*paths: Path) -> str:
    return shlex.join(str(path) for path in paths)
