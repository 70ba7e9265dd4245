"""The result of a proof script, and how a script prints it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """What was claimed, and what became of each check.

    Attributes
    ----------
    statement : str
        The claim, in words, with its range (which V, which n).
    method : str
        How it was established: by symbols, by exhaustion over rationals, by an argument in words.
    checks : tuple of (str, bool)
        Every machine check that was run, and whether it passed.
    lines : tuple of str
        The argument in words, and worked values.
    """

    statement: str
    method: str
    checks: tuple[tuple[str, bool], ...]
    lines: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """``"proved"`` if there are checks and all of them passed, else ``"failed"``."""
        return "proved" if self.checks and all(passed for _, passed in self.checks) else "failed"

    def __str__(self) -> str:
        marks = [f"  [{'ok' if passed else 'FAILED'}] {name}" for name, passed in self.checks]
        head = [f"Statement: {self.statement}", f"Status: {self.status}", f"Method: {self.method}"]
        return "\n".join([*head, "Checks:", *marks, *(f"  {line}" for line in self.lines)])


def run(prove: Callable[[], Report]) -> int:
    """Print the report of `prove` and return the exit status: 0 if proved, else 1."""
    report = prove()
    print(report)
    return 0 if report.status == "proved" else 1
