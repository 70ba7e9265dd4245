"""Samplers from a user's own code: ``module:callable``, ``path/to/file.py:callable`` or ``cmd:PROGRAM``.

Draft-length policies too, by the same names.
"""

import difflib
import importlib
import importlib.util
import os
import pkgutil
import shlex
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resispec_verify.cli.user_rules import _execute
from resispec_verify.errors import InputError
from resispec_verify.rules.foreign import muted, reason_of
from resispec_verify.rules.stopping import AfterVerification, CheckedPolicy, StopPolicy
from resispec_verify.sampler_check.command import CommandSampler
from resispec_verify.sampler_check.settings import CheckSettings
from resispec_verify.sampler_check.sources.styles import arguments_of


def load_sampler(name: str, settings: CheckSettings) -> Callable[..., Any]:
    """The sampler of this name; its file or module is executed.

    Raises
    ------
    InputError
        No such module, file or name, code that fails, or something that cannot be called; with the nearest
        name. Or a program that is to get what no JSON can hold.
    """
    if name.startswith("cmd:"):
        return _command(name.removeprefix("cmd:"), settings)
    return load_callable(name, " or cmd:PROGRAM")


def load_callable(name: str, more: str = "") -> Callable[..., Any]:
    """What ``module:callable`` or ``path/to/file.py:callable`` names; its file or module is executed.

    Parameters
    ----------
    name : str
    more : str
        What else such a name may be, for the message.

    Raises
    ------
    InputError
        As `load_sampler`.
    """
    module, attribute = _module_of(
        name, name, f"say which callable, as in module:callable or path/to/file.py:callable{more}"
    )
    return _callable(module, attribute, name)


def load_policy(name: str) -> StopPolicy:
    """The draft-length policy that ``path/to/file.py:NAME`` names; its file or module is executed.

    Raises
    ------
    InputError
        As `load_sampler`, or something that is no policy which cuts before verification.
    """
    where = f"--stop {name}"
    module, attribute = _module_of(name, where, "say which policy, as in path/to/file.py:policy")
    found = _named(module, attribute, where, _policies(module))
    if isinstance(found, type):
        raise InputError(
            f"{where}: {attribute!r} is a class; name an instance of it, as policy = {found.__name__}(...)"
        )
    if not isinstance(found, StopPolicy):
        raise InputError(
            f"{where}: {attribute!r} is no StopPolicy of resispec_verify.rules.stopping, it is of type "
            f"{type(found).__name__}{_nearest(attribute, _policies(module))}"
        )
    if isinstance(found, AfterVerification):
        raise InputError(
            f"{where}: {attribute!r} cuts after verification, which a sampler does by itself; give the "
            "policy that cuts before it, or check the sampler without --stop"
        )
    return CheckedPolicy(found, where)


def _policies(module: types.ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, StopPolicy)]


def _module_of(name: str, said: str, wanted: str) -> tuple[types.ModuleType, str]:
    """The module of ``module:NAME`` or ``path/to/file.py:NAME``, executed, and NAME; called ``said``."""
    where, colon, attribute = name.rpartition(":")
    if not colon or not where or not attribute:
        raise InputError(f"{said}: {wanted}")
    is_file = where.endswith(".py") or os.sep in where
    if is_file:
        sys.path.insert(
            0, str(Path(where).resolve().parent)
        )  # for what lies beside it, as `python FILE` does
    return (_execute(Path(where), said) if is_file else _imported(where, said)), attribute


def _imported(module: str, where: str) -> types.ModuleType:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; a console script does not
    try:
        with muted:
            return importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise InputError(f"{where}: the module needs {error.name!r}, which is not installed") from None
        raise InputError(
            f"{where}: there is no module {error.name!r}{_nearest(error.name, _modules())}"
        ) from None
    except BaseException as error:
        raise InputError(f"{where}: the module fails: {reason_of(error)}") from None


def _modules() -> list[str]:
    """Names of modules here and of those that are installed."""
    return sorted(
        {module.name for module in pkgutil.iter_modules()} | {path.stem for path in Path().glob("*.py")}
    )


def _callable(module: types.ModuleType, attribute: str, where: str) -> Callable[..., Any]:
    found = _named(module, attribute, where)
    if isinstance(found, type):
        raise InputError(
            f"{where}: {attribute!r} is a class; name a function, or an instance that can be called"
        )
    if not callable(found):
        raise InputError(
            f"{where}: {attribute!r} is not callable, it is of type {type(found).__name__}"
            f"{_nearest(attribute, _callables(module))}"
        )
    return found


def _named(module: types.ModuleType, attribute: str, where: str, there: list[str] | None = None) -> Any:
    """What the module has under a name, which may have dots; ``there`` are names that could be meant."""
    found: Any = module
    for part in attribute.split("."):
        if part not in dir(found):
            near = _callables(found) if there is None else there
            raise InputError(f"{where}: there is no {part!r}{_nearest(part, near)}")
        found = getattr(found, part)
    return found


def _callables(found: Any) -> list[str]:
    """Public names that could be samplers."""
    return [
        name for name, value in getattr(found, "__dict__", {}).items() if name[:1] != "_" and callable(value)
    ]


def _nearest(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    shown = ", ".join(names[:6])
    return f" (there are: {shown})" if 0 < len(names) <= 6 else ""


def _command(line: str, settings: CheckSettings) -> Callable[..., Any]:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InputError(f"cmd:{line}: {error}; quote it as for a shell") from None
    if not words:
        raise InputError("cmd: needs a program, as in 'cmd:python sampler.py'")
    if shutil.which(words[0]) is None:
        raise InputError(f"cmd:{line}: there is no program {words[0]!r} that can be executed")
    if settings.arrays != "numpy":
        raise InputError(
            f"cmd:{line}: a program gets numbers in JSON and no arrays; leave out --arrays {settings.arrays}"
        )
    return CommandSampler(words, settings.style, arguments_of(settings))
