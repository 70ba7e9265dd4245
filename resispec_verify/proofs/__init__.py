"""Each statement of the paper, and of this project, proved, repaired or refuted by machine.

One file a statement, with a function ``prove() -> ProofReport`` whose parameters mutate the proof; a mutated
proof must fail, which the tests check. The arithmetic is symbols (SymPy) or fractions; the oracle enumerates.
``proofs/coq``, outside the package, holds machine-checked proofs of some of the same statements.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from resispec_verify.errors import InputError, did_you_mean

from ._report import ProofReport

__all__ = ["TITLES", "ProofReport", "Proved", "find", "prove", "prove_all"]

#: Statement -> title: the paper's, then this project's own. The file is the name with ``_`` for ``-``.
TITLES = {
    "eq-1-2": "Eq. 1-2: residuals",
    "proposition-1": "Proposition 1: global mass identity",
    "lemma-1": "Lemma 1, and its converse",
    "proposition-2": "Proposition 2: capacity bound",
    "degeneracy": "The degeneracy paradox",
    "eq-12": "Eq. 12: least budget",
    "eq-13": "Eq. 13: applied budget",
    "eq-13-repaired": "Eq. 13, repaired",
    "theorem-1": "Theorem 1: exactness",
    "theorem-1-repaired": "Theorem 1, repaired",
    "theorem-2": "Theorem 2, part 2: strictness",
    "theorem-2-repaired": "Theorem 2, repaired",
    "path-identity": "Appendix B: path identity",
    "exact-rounds": "Which rounds are exact",
    "token-free": "Token-free shaping",
    "optimal-sequential": "The optimal sequential rule",
    "transport-limit": "The transport limit, by prefixes",
    "specinfer-bound": "SpecInfer and the limit",
    "layout": "The optimal joint rule's layout",
    "longest-step": "The longest step by node",
    "two-distinct": "Two distinct candidates",
    "three-distinct": "Three distinct candidates",
    "longest-tree": "The longest step over a tree",
    "tree-rules": "Published rules over trees as the longest",
}


class Proved(NamedTuple):
    """One line of the ledger: a statement, its report, and the seconds that it took."""

    name: str
    report: ProofReport
    seconds: float

    @property
    def file(self) -> str:
        """Where the proof is, below the package."""
        return f"resispec_verify/proofs/{self.name.replace('-', '_')}.py"

    def result(self) -> dict[str, Any]:
        """As a dictionary for JSON."""
        return {
            "statement": self.name,
            "title": TITLES[self.name],
            "claim": self.report.statement,
            "status": self.report.status,
            "method": self.report.method,
            "seconds": self.seconds,
            "file": self.file,
            "coq": list(self.report.coq),
            "checks": [{"check": name, "passed": passed} for name, passed in self.report.checks],
            "left": self.report.left,
        }


def find(statement: str) -> str:
    """The name of a statement, however its words are separated; `InputError` with the nearest name."""
    name = re.sub(r"[^a-z0-9]+", "-", statement.lower()).strip("-")
    if name in TITLES:
        return name
    near = did_you_mean(name, TITLES) or f"; there are: {', '.join(TITLES)}"
    raise InputError(f"unknown statement {statement[:60]!r}{near}")


def prove(name: str) -> Proved:
    """Run the proof of one statement.

    Parameters
    ----------
    name : str
        A key of `TITLES`.

    Returns
    -------
    Proved
        Its report; ``report.status`` is ``"failed"`` where a check failed.

    Raises
    ------
    InputError
        If SymPy is needed and not installed.
    """
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    started = time.perf_counter()
    report = module.prove()
    return Proved(name, report, time.perf_counter() - started)


def prove_all() -> Iterator[Proved]:
    """Run every proof, in order."""
    yield from map(prove, TITLES)
