"""Writing results: checked before the run, atomic after it, nothing half-written."""

import io
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from resispec_verify.cli import interrupts
from resispec_verify.errors import InputError
from resispec_verify.report.table import csv_text, printable, safe_line


def stdout_is(path: Path | None) -> bool:
    """Whether an output path means standard output."""
    return path is not None and str(path) == "-"


#: What the files of an option hold, and how their names may end.
FORMATS = {
    "json": ("JSON", (".json",)),
    "csv": ("CSV", (".csv",)),
    "out": ("HTML", (".html", ".htm")),
    "acceptance_out": ("JSON", (".json",)),
    "junit": ("JUnit XML", (".xml",)),
    "resume": ("lines of JSON", (".jsonl", ".ndjson", ".json", ".journal")),
}
#: Endings that name a format: a file of another format that ends so is not what its reader takes it for.
ENDINGS = {
    ".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".html", ".htm", ".xhtml", ".xml", ".pdf", ".png", ".svg",
    ".jpg", ".jpeg", ".gif", ".webp", ".ps", ".eps", ".pt", ".pth", ".bin", ".safetensors", ".npz", ".npy",
    ".gguf", ".pkl", ".pickle", ".parquet", ".arrow", ".feather", ".h5", ".hdf5", ".sqlite", ".db", ".xls",
    ".xlsx", ".ods", ".doc", ".docx", ".odt", ".rtf", ".ipynb", ".py", ".gz", ".bz2", ".xz", ".zst", ".zip",
    ".tar", ".tgz", ".7z",
}  # fmt: skip


def check_writable(*, inputs: Iterable[Path] = (), **outputs: Path | None) -> None:
    """Raise `InputError` where an output could not be written, before any work is done.

    Parameters
    ----------
    inputs : iterable of Path
        Files that are read and must not be overwritten.
    outputs : Path or None
        By option; ``-`` is standard output.
    """
    named = [path for path in outputs.values() if path is not None]
    if sum(str(path) == "-" for path in named) > 1:
        raise InputError("only one output can go to standard output ('-')")
    files = [path for path in named if str(path) != "-"]
    if len({os.path.realpath(path) for path in files}) < len(files):
        raise InputError(f"two outputs have the same path {files[0]}; give each its own")
    for path in files:
        _check_file(path)
        for source in inputs:
            if path.exists() and source.exists() and path.samefile(source):
                raise InputError(f"cannot write {path}: it is the dump that is read; choose another name")
    for option, path in outputs.items():
        if path is not None and (option == "plot" or str(path) != "-"):
            _check_ending(option, path)


def _check_ending(option: str, path: Path) -> None:
    """Refuse a name that promises another format than the file would have."""
    ending = path.suffix.lower()
    if option == "plot" and ending not in (".png", ".svg", ".pdf"):
        raise InputError(f"--plot {path}: the name must end in .png, .svg or .pdf")
    holds, own = FORMATS.get(option, ("", ENDINGS))
    if option != "plot" and ending in ENDINGS and ending not in own:
        named = option.replace("_", "-")
        raise InputError(f"--{named} {path}: it would hold {holds}, not {ending}; end its name in {own[0]}")


def _check_file(path: Path) -> None:
    folder = Path(os.path.realpath(path)).parent
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        kind = None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        shown = str(path) if len(str(path)) < 160 else f"{str(path)[:60]}...{str(path)[-60:]}"
        raise InputError(f"cannot write {shown}: {reason}; choose another name") from None
    if kind is not None and stat.S_ISDIR(kind):
        raise InputError(f"cannot write {path}: it is a folder; give a file name")
    if kind is not None and not os.access(path, os.W_OK):
        raise InputError(f"cannot write {path}: permission denied; choose another place")
    if kind is not None and not stat.S_ISREG(kind):
        return  # a pipe or a device: written into, not replaced
    if not folder.is_dir():
        raise InputError(f"cannot write {path}: the folder {folder} does not exist; create it first")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; choose another place") from None


#: What could not be written, one line each; `main` says so when the command has said all else.
_unwritten: list[str] = []


def unwritten() -> list[str]:
    """What could not be written since this was last asked."""
    lines, _unwritten[:] = list(_unwritten), []
    return lines


def not_written(path: Path | str, error: OSError) -> None:
    """Note that a file could not be written: a full disk must not cost the table as well."""
    _unwritten.append(f"cannot write {path}: {error.strerror or error}; make room or choose another place")


def write_bytes(path: Path, data: bytes) -> bool:
    """Write a file as a whole or not at all; a link stays a link, a pipe or device is written into.

    Returns
    -------
    bool
        Whether it was written. If not, the command goes on: `main` names the file at the end.
    """
    try:
        _write(path, data)
    except BrokenPipeError:  # the reader of a pipe went away; nothing is wrong
        return False
    except OSError as error:
        not_written(path, error)
        return False
    return True


def _write(path: Path, data: bytes) -> None:
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            file.write(data)
        return
    path = Path(os.path.realpath(path))
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".resispec-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> bool:
    """Write text to a path, or to standard output for ``-``; whether it was written, as `write_bytes`."""
    if str(path) != "-":
        return write_bytes(path, text.encode())
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon_stdout()
        not_written("standard output", error)
        return False
    return True


def abandon_stdout() -> None:
    """Let what is still to be printed go nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_figure(path: Path, figure: Any) -> None:
    """Write a figure in the format that the name ends in."""
    data = io.BytesIO()
    figure.savefig(data, format=path.suffix[1:].lower(), dpi=150)
    write_bytes(path, data.getvalue())


def write_json(path: Path, report: Mapping[str, Any]) -> None:
    """Write a report; NaN is a defect and raises."""
    write_text(path, json.dumps(report, indent=2, allow_nan=False) + "\n")


def write_csv(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records as CSV with a header line."""
    write_text(path, csv_text(records))


def table_console(*outputs: Path | None) -> Any:
    """A rich console for tables: standard output, or standard error when a report goes to the former."""
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with 1, which means an unmet demand here
            raise BrokenPipeError

    taken = any(stdout_is(path) for path in outputs)
    console = Terminal(stderr=taken, highlight=False, emoji=False)  # ":loop" in a name is no picture
    # Into a file or a pipe nothing is gained by wrapping at 80 columns.
    return console if console.is_terminal else Terminal(stderr=taken, highlight=False, emoji=False, width=160)


def utf8_or_escaped() -> None:
    """Let nothing that is printed fail: what a terminal cannot show is escaped, a closed stream swallows."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - lives as long as the process
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def progress(path: str, positions: int | None) -> Iterator[Any]:
    """A progress bar on standard error, only on a terminal; where an interrupt got lost it is raised."""
    interrupts.check()
    if not sys.stderr.isatty():
        yield lambda done: interrupts.check()
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(os.path.basename(path)), total=positions)

        def advance(done: float) -> None:
            interrupts.check()
            bar.advance(task, done)

        yield advance


def open_dump(path: Path, **options: Any) -> Any:
    """Open a flat dump, and say on standard error how it is read where that is not obvious."""
    from resispec_verify.dumps import open_dump as opened

    dump = opened(path, **options)
    say_notes(dump)
    return dump


def say_notes(dump: Any) -> None:
    """Say on standard error how a dump is read where that is not obvious, masks first of all."""
    for note in dump.notes:
        line = f"resispec-verify: {printable(str(dump.path))}: {printable(note, None)}"
        print(safe_line(line), file=sys.stderr)


def files_read(paths: list[Path]) -> list[Path]:
    """All files that will be read, which the report must not overwrite; bad paths are reported later."""
    from resispec_verify.dumps import files_of

    found = list(paths)
    for path in paths:
        try:
            found += [*files_of(path), path / "index.json"]
        except InputError:
            continue
    return found
