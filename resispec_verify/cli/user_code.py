"""What a user names in Python code: ``FILE.py:NAME`` or ``package.module:NAME``, on every command line alike.

Rules, samplers, laws and whatever else a command calls are named so. Loading one executes its file or module.
"""

import importlib
import os
import pkgutil
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resispec_verify.errors import InputError, did_you_mean
from resispec_verify.rules.foreign import muted, reason_of

FORMS = "FILE.py:NAME or package.module:NAME"
_DOTTED = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
MOST_SHOWN = 6


class StartedInside(BaseException):
    """The module that is loaded for a check starts one itself: it has been loaded far enough."""


def names_code(text: str) -> bool:
    """Whether a text has the form of a name in Python code; ``NAME:option=value`` of a rule has not."""
    where, _, attribute = text.rpartition(":")
    code = _is_file(where) or re.fullmatch(_DOTTED, where) is not None
    return text.endswith(".py") or (code and re.fullmatch(_DOTTED, attribute) is not None)


def load_object(
    name: str, wanted: Callable[[Any], bool] = callable, *, said: str = "", more: str = ""
) -> Any:
    """What ``FILE.py:NAME`` or ``package.module:NAME`` names; its file or module is executed.

    Parameters
    ----------
    name : str
        NAME may be dotted. A file's folder, and the current one for modules, is where it imports from.
    wanted : callable
        Which values of a module are worth suggesting where it has no such name.
    said : str
        Begins the messages: the name with its option. Default: the name.
    more : str
        What else could have been named, for the message.

    Raises
    ------
    InputError
        Another form, no such file, module or name, with the nearest one, or code that fails.
    """
    said = said or name
    where, colon, attribute = name.rpartition(":")
    if name.endswith(".py"):
        raise InputError(f"{said}: say what of the file is meant, as in {name}:NAME{more}")
    if not colon or not where or not attribute:
        raise InputError(f"{said}: say which object of which file, as in {FORMS}{more}")
    found: Any = _executed(Path(where), said) if _is_file(where) else _imported(where, said)
    for part in attribute.split("."):
        if part not in dir(found):
            raise InputError(f"{said}: there is no {part!r}{_others(part, found, wanted)}")
        found = getattr(found, part)
    return found


def _is_file(where: str) -> bool:
    return where.endswith(".py") or os.sep in where


def _others(name: str, holder: Any, wanted: Callable[[Any], bool]) -> str:
    """What there is instead: the nearest name, or the first ones."""
    home = getattr(holder, "__name__", None)
    names = [
        key
        for key, value in getattr(holder, "__dict__", {}).items()
        if key[:1] != "_" and wanted(value) and not _imported_there(value, home)
    ]
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    shown = f" (there are: {', '.join(names[:MOST_SHOWN])}{more})" if names else "; check the name"
    return did_you_mean(name, names) or shown


def _imported_there(value: Any, home: str | None) -> bool:
    """Whether a class or function of a module comes from another one; a value is the module's own."""
    return isinstance(value, (type, types.FunctionType)) and value.__module__ != home


def _imported(module: str, said: str) -> types.ModuleType:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; a console script does not
    try:
        with muted:
            return importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise InputError(
                f"{said}: the module needs {error.name!r}, which is not installed; install it"
            ) from None
        near = did_you_mean(error.name, _modules()) or f"; a file is named as in path/to/{error.name}.py:NAME"
        raise InputError(f"{said}: there is no module {error.name!r}{near}") from None
    except BaseException as error:
        raise InputError(f"{said}: the module fails: {reason_of(error)}; import it once by itself") from None


def _modules() -> list[str]:
    """Names of modules here and of those that are installed."""
    return sorted(
        {module.name for module in pkgutil.iter_modules()} | {path.stem for path in Path().glob("*.py")}
    )


def _executed(path: Path, said: str) -> types.ModuleType:
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{said}: not a regular file; give a file of Python code")
        source = path.read_bytes()
    except OSError as error:
        raise InputError(f"{said}: cannot be read ({error.strerror}); check the path") from None
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # for what lies beside it, as `python FILE` does
    module = types.ModuleType(f"_resispec_user_rule_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        with muted:
            exec(compile(source, str(path), "exec"), vars(module))
    except KeyboardInterrupt:
        raise
    except StartedInside:  # a script that checks its own sampler: what comes before is all it takes
        pass
    except BaseException as error:
        line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else _line(error, str(path))
        at = "" if line is None else f", line {line}"
        raise InputError(f"{said}: the file fails{at}: {reason_of(error)}; run it once by itself") from None
    return module


def _line(error: BaseException, path: str) -> int | None:
    """The last line of the file that the error came through."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
