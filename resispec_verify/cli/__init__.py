"""The command line: one command a file. Only this package prints."""

import ast
import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resispec_verify.errors import InputError
from resispec_verify.report.table import safe_line

PROGRAM = "resispec-verify"
#: A command is the function of its name in the module of its name.
COMMANDS = (
    "kl", "inspect", "convert", "limits", "drift", "explore", "picture", "runtime", "report", "record",
    "replay", "weights", "compare", "tree", "rules", "engines", "check", "audit", "prove",
)  # fmt: skip


def make_app(names: Sequence[str] = COMMANDS, *, loaded: bool = True) -> Any:
    """The program, with its commands, or those of these names; a command brings what it computes with.

    Not ``loaded`` it only lists them: enough for its own help, at a fifth of the time.
    """
    import cyclopts

    from resispec_verify import __version__

    app = cyclopts.App(
        name=PROGRAM,
        help="Is a speculative decoding sampler lossless? Certified answers from logged logits.",
        help_epilogue="Exit status: 0 ran; 1 a demand (--require-..., --max-tv) was not met; 2 bad input.",
        version=__version__,
        help_format="plaintext",
        suppress_keyboard_interrupt=False,
    )
    for name in names:
        if loaded:
            app.command(getattr(importlib.import_module(f"resispec_verify.cli.{name}"), name))
        else:
            app.command(lambda: None, name=name, help=_summary(name))
    return app


def _summary(name: str) -> str:
    """The first paragraph of a command's documentation, from its source."""
    where = importlib.util.find_spec(f"resispec_verify.cli.{name}")
    source = Path(str(where.origin if where else None)).read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and (
            node.name == name or f"{name}.default" in map(ast.unparse, node.decorator_list)
        ):
            return (ast.get_docstring(node) or "").partition("\n\n")[0]
    raise LookupError(f"resispec_verify.cli.{name} defines no command {name}")


def _fail(message: str) -> int:
    print(safe_line(f"{PROGRAM}: error: {message}"), file=sys.stderr)
    return 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    from resispec_verify.cli.interrupts import INTERRUPTED, Interrupts
    from resispec_verify.cli.output import unwritten, utf8_or_escaped

    utf8_or_escaped()
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    with Interrupts() as interrupts:
        error: BaseException | None = None
        status: Any = 0
        unwritten()  # of an earlier call
        try:
            first = "".join(tokens[:1])
            listed = len(tokens) < 2 or not first.startswith("-")  # not `--help kl`
            app = make_app([first]) if first in COMMANDS else make_app(loaded=not listed)
            status = app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
            sys.stdout.flush()
        except BaseException as raised:
            error = raised
        if interrupts.ends(error):
            with contextlib.suppress(OSError):
                print(safe_line(f"{PROGRAM}: interrupted{interrupts.note()}"), file=sys.stderr)
            return INTERRUPTED
        if error is not None:
            status = _failed(error)
        for line in unwritten():
            status = _fail(line)
        return status if isinstance(status, int) else 0


def _failed(error: BaseException) -> int:
    """What a user should know about an error as one line; the exit status. Others are raised."""
    import cyclopts

    from resispec_verify.cli.output import abandon_stdout

    if isinstance(error, InputError):
        return _fail(str(error))
    if isinstance(error, cyclopts.CycloptsError):
        from resispec_verify.cli.usage import usage_line

        return _fail(usage_line(error, PROGRAM, make_app))
    if not isinstance(error, OSError):
        raise error
    abandon_stdout()
    if isinstance(error, BrokenPipeError):  # the reader of our output went away, `| head` say
        return 0
    # What has no name is a standard stream: a full disk behind `> FILE`, say.
    where = error.filename or "standard output"
    return _fail(f"cannot write {where}: {error.strerror or error}; make room or choose another place")
