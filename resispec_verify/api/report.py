"""What an answer looks like: as its command prints it, here and in a notebook; else a dictionary."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Report"]

_WIDTH = 160  # as a command has it that prints into a file


class Report:
    """An answer. ``print`` it, look at it in a notebook, or take `to_dict`."""

    def to_dict(self) -> dict[str, Any]:
        """What the command of the same name writes with ``--json``."""
        raise NotImplementedError

    def _print(self, console: Any) -> None:
        """What that command prints, onto a rich console."""
        raise NotImplementedError

    def _printed(self) -> Any:
        from rich.console import Console

        console = Console(
            file=io.StringIO(), record=True, width=_WIDTH, force_jupyter=False, highlight=False, emoji=False
        )
        self._print(console)
        return console

    def __repr__(self) -> str:
        lines = self._printed().export_text().splitlines()
        return "\n".join(line.rstrip() for line in lines).strip("\n")

    def _repr_mimebundle_(
        self, include: Sequence[str] | None = None, exclude: Sequence[str] | None = None, **options: Any
    ) -> Mapping[str, str]:
        """For notebooks: the same, in colour."""
        from rich.jupyter import JUPYTER_HTML_FORMAT

        html = self._printed().export_html(inline_styles=True, code_format=JUPYTER_HTML_FORMAT)
        return {"text/plain": repr(self), "text/html": html}
