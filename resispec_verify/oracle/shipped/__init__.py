"""The transcriptions of the shipped rules: each file enters its own in `oracle.registry`."""

import importlib
import pkgutil

for _file in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_file.name)
