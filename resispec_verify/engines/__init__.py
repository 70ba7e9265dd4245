"""What engines verify with: a table of settings, and a reader of configurations.

``known/`` has one file an engine, found by its file: the version that was read, the options that decide, and
every setting with its rule in this project's terms and whether that keeps the target's law. Nothing of an
engine is imported, and no file that a configuration names is opened.
"""

from resispec_verify.engines.answers import Answer, decide
from resispec_verify.engines.options import engine_of, read_command_line, read_config
from resispec_verify.engines.table import Engine, Setting, engine_named, known_engines

__all__ = [
    "Answer",
    "Engine",
    "Setting",
    "decide",
    "engine_named",
    "engine_of",
    "known_engines",
    "read_command_line",
    "read_config",
]
