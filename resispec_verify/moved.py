"""Import paths that the documentation named before modules moved: they go on working, with a warning.

Only here for one version. `install` adds a finder that is asked for names in this package which have no file.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["MOVED", "install"]

_PACKAGE = __name__.rpartition(".")[0]

#: Old path to new path, inside the package. A folder that only held others has no new path.
MOVED: dict[str, str | None] = {
    "analysis": None,
    "analysis.compare": "logged.compare",
    "analysis.compare_summary": "logged.compare_summary",
    "analysis.gpu_replay": "device.replay_dump",
    "analysis.replay": "logged.replay",
    "analysis.replay_summary": "logged.replay_summary",
    "analysis.rounds_input": "logged.rounds_input",
    "analysis.rules_table": "catalogue.measured",
    "analysis.specinfer_bound": "tables.specinfer_bound",
    "analysis.trees": "tables.trees",
    "dumps.tree": "dumps.kinds.tree",
    "evidence.paths": "evidence.path_rules",
    "kernels.gpu": "device",
    "kernels.residuals": "kernels.elementwise.residuals",
    "record.models": "models.opening",
}


class _Moved:
    """Finds a moved module under its old name, and fills it with what is at the new place."""

    # The base classes of `importlib.abc` would cost every import of the package 17 ms.

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.removeprefix(f"{_PACKAGE}.") not in MOVED or not fullname.startswith(f"{_PACKAGE}."):
            return None
        folder = any(old.startswith(f"{fullname.removeprefix(f'{_PACKAGE}.')}.") for old in MOVED)
        return ModuleSpec(fullname, self, is_package=folder)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """A plain module will do."""

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__.removeprefix(f"{_PACKAGE}.")
        new = MOVED[old]
        if new is None:
            return
        warnings.warn(
            f"{_PACKAGE}.{old} has moved to {_PACKAGE}.{new}; the old name goes with the next version",
            FutureWarning,  # which Python shows wherever the import stands
            stacklevel=2,
        )
        found = vars(importlib.import_module(f"{_PACKAGE}.{new}"))
        vars(module).update({name: value for name, value in found.items() if not name.startswith("__")})


def install() -> None:
    """Let the old paths be found, after everything that has a file."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())  # type: ignore[arg-type]
