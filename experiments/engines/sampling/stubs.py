"""Stand-ins for packages that an engine imports and its sampling does not use."""

import importlib
import importlib.abc
import importlib.machinery
import sys
from unittest.mock import MagicMock


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self):
        self.names = set()

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = MagicMock(name=spec.name)
        module.__path__, module.__spec__, module.__file__ = [], spec, "stand-in"
        return module

    def exec_module(self, module):
        pass


def import_with_stubs(name, tries=60):
    """Import a module; every package that is missing on the way is a stand-in. Returns it and their names."""
    finder = _Finder()
    sys.meta_path.append(finder)
    for _ in range(tries):
        try:
            return importlib.import_module(name), sorted(finder.names)
        except ModuleNotFoundError as error:
            missing = (error.name or "").split(".")[0]
            if not missing or missing in finder.names:
                raise
            finder.names.add(missing)
    raise ImportError(f"{name}: more than {tries} packages are missing")
