"""The command line: one command a file. Only this package prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from resispec_verify.errors import InputError

__all__ = ["main"]

PROGRAM = "resispec-verify"


def _app() -> Any:
    import cyclopts

    from resispec_verify import __version__
    from resispec_verify.cli.inspect import inspect
    from resispec_verify.cli.kl import kl
    from resispec_verify.cli.rules import rules

    app = cyclopts.App(
        name=PROGRAM,
        help="Is a speculative decoding sampler lossless? Certified answers from logged logits.",
        help_epilogue="Exit status: 0 ran; 1 a demand (--require-exact, --max-tv) was not met; 2 bad input.",
        version=__version__,
        help_format="plaintext",
    )
    for command in (kl, inspect, rules):
        app.command(command)
    return app


def _one_line(error: Exception) -> str:
    """A cyclopts error as one line with the remedy."""
    text = " ".join(str(error).split())
    return f"{text} See '{PROGRAM} --help'." if "--help" not in text else text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    import cyclopts

    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = _app()(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    except InputError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    except cyclopts.CycloptsError as error:
        print(f"{PROGRAM}: error: {_one_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away, `| head` say; nothing is wrong
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status if isinstance(status, int) else 0
