"""The result of one proof."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ProofReport"]


@dataclass(frozen=True)
class ProofReport:
    """What was claimed, and what became of each check.

    Attributes
    ----------
    statement : str
        The claim, in words, with its range (which V, which n).
    reaches : str
        The status if all checks pass: ``"proved"``, ``"proved for V <= k"``, ``"refuted"`` (the statement as
        printed is false) or ``"repaired"`` (a true statement in the place of a false one).
    methods : tuple of str
        How it was established: ``"SymPy"`` (identities and inequalities between symbols, pattern by pattern),
        ``"rational"`` (exhaustion or search in fractions).
    checks : tuple of (str, bool)
        Every machine check that was run, and whether it passed.
    lines : tuple of str
        The argument in words, and worked values.
    left : str
        What is argued in words only, or not shown at all.
    coq : tuple of str
        Theorems of ``proofs/coq`` that say the same, as ``"file.v: name"``. They are checked there, not here.
    """

    statement: str
    reaches: str
    methods: tuple[str, ...]
    checks: tuple[tuple[str, bool], ...]
    lines: tuple[str, ...] = ()
    left: str = ""
    coq: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """What was reached: `reaches` if there are checks and all of them passed, else ``"failed"``."""
        return self.reaches if self.checks and all(passed for _, passed in self.checks) else "failed"

    @property
    def method(self) -> str:
        """The methods in one string, Coq included."""
        return ", ".join([*self.methods, *(["Coq"] if self.coq else [])])
