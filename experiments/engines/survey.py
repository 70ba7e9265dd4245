"""What a wrapper of somebody's sampler says: which package or source, which configurations, what we judge.

A wrapper is one file of this folder with an ``ENGINE``. It is read without the engine (the page does that),
so that it imports the engine inside its functions, which run in a process of their own. Its name is not that
of a package.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "JUDGEMENTS", "STYLE_OF_DRAFTS", "Configuration", "Engine", "Judgement", "most_probable", "softened",
    "source", "wrappers",
]  # fmt: skip

HERE = Path(__file__).parent
# Modules of this folder that are no wrappers.
FRAME = ("survey", "run", "one_row", "page", "toys", "sequoia_toys")
#: Beside the styles of `check`: a function of `rng` that gives tokens and the logits declared for them, as
#: `resispec_verify.testing.assert_draft_as_declared` takes it.
STYLE_OF_DRAFTS = "declared-draft"
#: Which verdicts a judgement agrees with.
JUDGEMENTS = {
    "fault": ("rejected", "error"),
    "lossy by design": ("rejected",),
    "as claimed": ("not-rejected",),
    "not rejected": ("not-rejected",),
    "could not run": ("error",),
}
#: The ends of a float32 uniform come so often at least, in powers of two.
OFTEN = -25
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True)
class Judgement:
    """What we make of a verdict; written after it was seen, and held against it by the page.

    Attributes
    ----------
    what : {"fault", "lossy by design", "as claimed", "not rejected", "could not run"}
        "as claimed": its authors say that it is lossless, and it was not rejected. "not rejected": they do
        not say so, or what could have been found is not much.
    reason : str
        One sentence or two.
    reproduction : str or None
        For a fault: a file of ``reproductions/``, without ``.py``.
    upstream : str or None
        For a fault: the report, as ``owner/name#number``; or "none found".
    """

    what: str
    reason: str
    reproduction: str | None = None
    upstream: str | None = None

    def __post_init__(self) -> None:
        if self.what not in JUDGEMENTS:
            raise ValueError(f"a judgement is one of {', '.join(JUDGEMENTS)}, not {self.what!r}")
        if not self.reason.endswith("."):
            raise ValueError(f"a judgement needs its reason, in whole sentences; got {self.reason!r}")
        if self.what == "fault" and not (self.reproduction and self.upstream):
            raise ValueError("a fault needs its reproduction, and the report upstream or 'none found'")
        if self.reproduction and not (HERE / "reproductions" / f"{self.reproduction}.py").is_file():
            raise ValueError(f"there is no reproductions/{self.reproduction}.py")


@dataclass(frozen=True)
class Configuration:
    """One row of the page.

    Attributes
    ----------
    name : str
        Short, of a-z, 0-9 and "-": part of the file name of its result.
    what : str
        The setting of the engine, in words.
    sampler : callable
        In the style. Imports the engine inside.
    style : str
        One of `check`'s, or "declared-draft".
    settings : mapping
        Fields of `CheckSettings`; ``seconds`` may be overruled by the command line. For "declared-draft":
        ``draws`` and ``seed``.
    inputs : sequence of str or input, or None
        Names of the style's inputs, or inputs of one's own; None: all of the style.
    note : str
        What was changed or supplied so that it runs here.
    judgement : Judgement or None
        None until its result was seen; the page fails then.
    """

    name: str
    what: str
    sampler: Callable[..., Any]
    style: str = "block"
    settings: Mapping[str, Any] = field(default_factory=dict)
    inputs: Sequence[Any] | None = None
    note: str = ""
    judgement: Judgement | None = None


@dataclass(frozen=True)
class Engine:
    """Whose sampler it is.

    Attributes
    ----------
    name : str
        For people.
    configurations : tuple of Configuration
    package : str or None
        Whose installed version is reported.
    needs : tuple of str
        What must be installed in the interpreter, as ``name==version``; held against what is.
    repository : str or None
        Instead of a package: ``owner/name`` on GitHub, of which ``--source`` names a clone.
    commit : str or None
        The commit of it that was judged; another one is run too, and reported as what it is.
    environment : mapping
        Environment variables that must be set before the engine is imported.
    """

    name: str
    configurations: tuple[Configuration, ...]
    package: str | None = None
    needs: tuple[str, ...] = ()
    repository: str | None = None
    commit: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.package is None) == (self.repository is None):
            raise ValueError(f"{self.name}: give a package or a repository")
        names = [one.name for one in self.configurations]
        if len(set(names)) < len(names) or not all(map(_SLUG.fullmatch, names)):
            raise ValueError(f"{self.name}: names of configurations differ, of a-z, 0-9 and '-'; got {names}")


def source() -> Path:
    """The clone that ``--source`` named; inside a sampler. Its root is on ``sys.path`` already."""
    return Path(os.environ["RESISPEC_ENGINE_SOURCE"])


def most_probable(name: str) -> Any:
    """A chain of the block style whose target is certain: of each law, its most probable token."""
    from resispec_verify.sampler_check.sources.styles import named_inputs

    chain = named_inputs([name], "block")[0]
    certain = np.eye(chain.target.shape[-1])[chain.target.argmax(-1)]
    return replace(chain, name=f"{name}, most probable", target=certain)


def softened(targets: np.ndarray) -> np.ndarray:
    """Laws with the same most probable token where all are possible: what a greedy sampler is given."""
    return 0.6 * targets + 0.4 / targets.shape[-1]


def wrappers(folder: Path = HERE) -> dict[str, Engine]:
    """Every wrapper of the folder by its name, in order."""
    names = sorted(path.stem for path in folder.glob("*.py") if path.stem not in FRAME)
    return {name: load(folder / f"{name}.py") for name in names}


def load(path: Path) -> Engine:
    """The ``ENGINE`` of a file."""
    spec = importlib.util.spec_from_file_location(f"engine_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ENGINE
