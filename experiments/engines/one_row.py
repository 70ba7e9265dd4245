"""One row of the survey, in the interpreter that has the engine: started by `run.py`, prints JSON.

The last line of standard output is ``{"result": {...}}`` or ``{"cannot": "why"}``; what the engine prints
goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import survey

from resispec_verify.sampler_check.check import CheckSettings, check_sampler
from resispec_verify.sampler_check.draft import check_declared_draft
from resispec_verify.sampler_check.sources.styles import STYLES, named_inputs

# Inputs with tokens of probability 0, without which nothing shows at the ends.
WITH_ZEROS = {
    "block": "certain", "text": "impossible", "tokens": "zeros", "candidates": "zeros", "uniforms": "zeros",
    "tree": "ends",
}  # fmt: skip


class CannotRun(Exception):
    """Why an engine cannot be run by this interpreter, in one line."""


def identity(engine: survey.Engine) -> dict[str, Any]:
    """What is checked: the installed version, held against ``needs``, or the commit of the clone."""
    for need in engine.needs:
        name, _, wanted = need.partition("==")
        try:
            there = version(name).partition("+")[0]
        except PackageNotFoundError:
            raise CannotRun(f"needs {need}, which is not installed in {_interpreter()}") from None
        if there != wanted:
            raise CannotRun(f"needs {need}; {there} is installed in {_interpreter()}")
    if engine.package is not None:
        # Not there, and nothing asked for: the sampler says what it lacks.
        there = _version(engine.package)
        return {"version": there, "commit": None, "beside": beside()}
    if "RESISPEC_ENGINE_SOURCE" not in os.environ:
        raise CannotRun(f"needs --source NAME=PATH, a clone of https://github.com/{engine.repository}")
    return {"version": None, "commit": _commit(survey.source()), "beside": beside()}


def beside() -> dict[str, str]:
    """Versions of the libraries that it runs on, where they are installed."""
    found = {name: _version(name) for name in ("numpy", "torch", "triton", "mlx")}
    return {name: there for name, there in found.items() if there is not None}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _interpreter() -> str:
    return f"this Python {sys.version_info.major}.{sys.version_info.minor}; see --python"


def _commit(path: Path) -> str:
    def git(*words: str) -> str:
        ran = subprocess.run(["git", "-C", str(path), *words], capture_output=True, text=True)
        if ran.returncode:
            raise CannotRun(f"--source must be a clone: git says {ran.stderr.strip().splitlines()[0]!r}")
        return ran.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "HEAD") + (", changed" if changed else "")


def checked(one: survey.Configuration, seconds: float | None) -> dict[str, Any]:
    """The result of its check, as `CheckResult.result`; the ends of the uniforms come apart, by `ends`."""
    settings = dict(one.settings)
    if one.style == survey.STYLE_OF_DRAFTS:
        return check_declared_draft(one.sampler, **settings).result()
    if seconds is not None:
        settings["seconds"] = seconds
    # The whole battery brings the search with it, named inputs do not.
    settings = {"search": one.inputs is None, "boundary": False} | settings
    return check_sampler(
        one.sampler, CheckSettings(style=one.style, **settings), inputs=_inputs(one)
    ).result()


def ends(one: survey.Configuration) -> dict[str, Any] | None:
    """What happens at the ends of the uniforms, as `CheckResult.ends`, whatever the law is."""
    if one.style == survey.STYLE_OF_DRAFTS:
        return None
    few = {"draws": 64, "batches": (), "search": False, "boundary": True, "fail_ends": "none"}
    settings = CheckSettings(style=one.style, **{**one.settings, **few})
    inputs = _inputs(one)
    names = None if inputs is None else [given.name for given in inputs]
    more = WITH_ZEROS[one.style]
    # An input of one's own, with a law of its own, may be all that the sampler understands.
    if names is not None and more not in names and all(name in STYLES[one.style].names for name in names):
        inputs += named_inputs([more], one.style)
    return check_sampler(one.sampler, settings, inputs=inputs).ends


def _inputs(one: survey.Configuration) -> list[Any] | None:
    if one.inputs is None:
        return None
    return [named_inputs([given], one.style)[0] if isinstance(given, str) else given for given in one.inputs]


def main(wrapper: str, row: str, seconds: str, only_ends: str) -> dict[str, Any]:
    """Do it; numbers and flags as texts, empty for none."""
    engine = survey.load(Path(wrapper))
    one = {found.name: found for found in engine.configurations}[row]
    try:
        what = identity(engine)
    except CannotRun as error:
        return {"cannot": str(error)}
    check = None if only_ends else checked(one, float(seconds) if seconds else None)
    return {"result": {**what, "check": check, "ends": ends(one)}}


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        found = main(*sys.argv[1:])
    print(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # engines leave threads behind
