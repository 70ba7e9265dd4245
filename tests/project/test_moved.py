"""Import paths that the documentation named before the rooms were made go on working, with a warning."""

import importlib
import subprocess
import sys

import pytest

import resispec_verify
from resispec_verify.moved import MOVED


@pytest.mark.parametrize("old", [old for old, new in MOVED.items() if new])
def test_an_old_path_gives_what_is_at_the_new_one(old):
    name = f"resispec_verify.{old}"
    sys.modules.pop(name, None)
    with pytest.warns(FutureWarning, match=f"{name} has moved to resispec_verify.{MOVED[old]}"):
        module = importlib.import_module(name)
    new = importlib.import_module(f"resispec_verify.{MOVED[old]}")
    public = [value for value in new.__all__ if value != "__version__"]
    assert public
    assert all(getattr(module, value) is getattr(new, value) for value in public)


def test_a_path_that_never_was_is_no_module():
    with pytest.raises(ModuleNotFoundError, match=r"resispec_verify\.analysis\.nothing"):
        importlib.import_module("resispec_verify.analysis.nothing")


def test_every_public_name_has_a_home():
    assert set(resispec_verify.__all__) == {"__version__", *resispec_verify._HOME}
    assert all(getattr(resispec_verify, name) is not None for name in resispec_verify.__all__)


def test_importing_the_package_loads_nothing():
    code = "import sys, resispec_verify; print([m for m in ('numpy', 'numba', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
