"""Samplers from a user's own code: ``FILE.py:NAME``, ``package.module:NAME`` or ``cmd:PROGRAM``.

Draft-length policies too, by the first two of these.
"""

import shlex
import shutil
from collections.abc import Callable
from typing import Any

from resispec_verify.cli.user_code import load_object
from resispec_verify.errors import InputError
from resispec_verify.rules.stopping import AfterVerification, CheckedPolicy, StopPolicy
from resispec_verify.sampler_check.command import CommandSampler
from resispec_verify.sampler_check.settings import CheckSettings
from resispec_verify.sampler_check.sources.styles import arguments_of


def load_sampler(name: str, settings: CheckSettings) -> Callable[..., Any]:
    """The sampler of this name; its file or module is executed.

    Raises
    ------
    InputError
        As `load_callable`; or a program that is to get what no JSON can hold.
    """
    if name.startswith("cmd:"):
        return _command(name.removeprefix("cmd:"), settings)
    return load_callable(name, " or cmd:PROGRAM")


def load_callable(name: str, more: str = "") -> Callable[..., Any]:
    """What ``FILE.py:NAME`` or ``package.module:NAME`` names, if it can be called.

    Parameters
    ----------
    name : str
    more : str
        What else could have been named, for the message.

    Raises
    ------
    InputError
        As `load_object`; or something that cannot be called.
    """
    found = load_object(name, more=more)
    attribute = name.rpartition(":")[2]
    if isinstance(found, type):
        raise InputError(
            f"{name}: {attribute!r} is a class; name a function, or an instance that can be called"
        )
    if not callable(found):
        raise InputError(
            f"{name}: {attribute!r} is not callable, it is of type {type(found).__name__}; name a function"
        )
    return found


def load_policy(name: str) -> StopPolicy:
    """The draft-length policy that ``FILE.py:NAME`` names; its file or module is executed.

    Raises
    ------
    InputError
        As `load_object`, or something that is no policy which cuts before verification.
    """
    where = f"--stop {name}"
    found = load_object(name, lambda value: isinstance(value, StopPolicy), said=where)
    attribute = name.rpartition(":")[2]
    if isinstance(found, type):
        raise InputError(
            f"{where}: {attribute!r} is a class; name an instance of it, as policy = {found.__name__}(...)"
        )
    if not isinstance(found, StopPolicy):
        raise InputError(
            f"{where}: {attribute!r} is no StopPolicy of resispec_verify.rules.stopping, it is of type "
            f"{type(found).__name__}; name an instance of one"
        )
    if isinstance(found, AfterVerification):
        raise InputError(
            f"{where}: {attribute!r} cuts after verification, which a sampler does by itself; give the "
            "policy that cuts before it, or check the sampler without --stop"
        )
    return CheckedPolicy(found, where)


def _command(line: str, settings: CheckSettings) -> Callable[..., Any]:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InputError(f"cmd:{line}: {error}; quote it as for a shell") from None
    if not words:
        raise InputError("cmd: needs a program, as in 'cmd:python sampler.py'")
    if shutil.which(words[0]) is None:
        raise InputError(f"cmd:{line}: there is no program {words[0]!r} that can be executed; check its path")
    if settings.arrays != "numpy":
        raise InputError(
            f"cmd:{line}: a program gets numbers in JSON and no arrays; leave out --arrays {settings.arrays}"
        )
    return CommandSampler(words, settings.style, arguments_of(settings))
