"""Parameters that a rule's source does not give: asked for by name, never invented."""

from __future__ import annotations

from typing import Any

from resispec_verify.errors import InputError

__all__ = ["require"]


def require(rule: Any, *names: str) -> tuple[Any, ...]:
    """The values of these fields of a rule.

    Raises
    ------
    InputError
        Some are None; names all of them.
    """
    missing = [name for name in names if getattr(rule, name) is None]
    if missing:
        raise InputError(
            f"rule {rule.name!r} needs {', '.join(missing)}: its source gives no value and none is invented; "
            f"construct {type(rule).__name__}({', '.join(f'{name}=...' for name in missing)})"
        )
    return tuple(getattr(rule, name) for name in names)
