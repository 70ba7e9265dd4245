"""Compile what the tests need once, in two processes, before they start: each worker would do it again.

``python tests/helpers/compile_kernels.py paths`` (or ``others``) compiles one half into the cache on disk.
"""

from __future__ import annotations

import compileall
import subprocess
import sys
from pathlib import Path

import numpy as np

HALVES = ("paths", "others")
PACKAGE = Path(__file__).parents[2] / "resispec_verify"
KERNELS = PACKAGE / "kernels"


def before_workers() -> None:
    """Compile both halves at the same time, where nothing has been compiled yet or kernels have changed.

    numba dates a compiled function by its own file, and not by those of the functions that it calls.

    What fails here is met again by the test that needs it, and said there. The modules too: where Python
    keeps no bytecode (PYTHONDONTWRITEBYTECODE), each process that a test starts would compile them all.
    """
    compileall.compile_dir(PACKAGE, quiet=2)
    compiled = [path.stat().st_mtime for path in KERNELS.rglob("*.nbi")]
    if compiled and min(compiled) > max(path.stat().st_mtime for path in KERNELS.rglob("*.py")):
        return
    for path in (*KERNELS.rglob("*.nbi"), *KERNELS.rglob("*.nbc")):
        path.unlink(missing_ok=True)
    started = [
        subprocess.Popen(
            [sys.executable, __file__, half], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for half in HALVES
    ]
    for process in started:
        process.wait()


def pair(vocab: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """A target and a draft ``(1, V)`` with zeros on both sides."""
    rng = np.random.default_rng(0)
    target, draft = rng.dirichlet(np.full(vocab, 0.5), (2, 1))
    target[0, :5] = draft[0, -5:] = 0.0
    return target / target.sum(), draft / draft.sum()


def paths() -> None:
    """ResiSpec's path sums, in both readings of the redistribution, with grids and without."""
    from resispec_verify.kernels.elementwise.ratio_order import ratio_order
    from resispec_verify.kernels.paths import shaped

    order = ratio_order(*(rows[0] for rows in pair(300)))
    for redistribution in ("proportional", "water-filling"):
        shape = {"redistribution": redistribution, "budget": "local"}
        shaped.single_round(order, hole="excluded", **shape)
        for gap in (0.0, 1e-2):
            shaped.shaped_marginal(order, 2, gap, 1e8, **shape)
        shaped.shaped_marginal(order, 3, 1e-2, 1e8, **shape)


def others() -> None:
    """All other rules and measures, in float64, in float32, and for rows that cannot be written to."""
    from resispec_verify.evidence import operational_marginals, path_identity
    from resispec_verify.evidence.path_identity import identity_of
    from resispec_verify.kernels.elementwise import divergences
    from resispec_verify.kernels.optimal.candidate_limits import without_replacement_limit
    from resispec_verify.rules import RULES, ResiSpec, SpecInfer, make_rule

    target, draft = pair(6 + 5)
    for dtype, read_only in ((np.float64, False), (np.float32, False), (np.float64, True)):
        p, q = (rows.astype(dtype) for rows in (target, draft))
        p.flags.writeable = q.flags.writeable = not read_only
        tokens = np.array([[1, 3]])
        for rule in (SpecInfer(), ResiSpec()):
            path_identity(p, q, rule.proxy, tokens, 2)
            identity_of(rule, p, q, tokens, 2)
        for name in RULES if p.dtype == np.float64 and not read_only else ("specinfer", "k-seq"):
            rule = make_rule(name)
            if not isinstance(rule, ResiSpec):
                operational_marginals(rule, p, q, max(2, rule.least_candidates))
    for n in (2, 3):
        without_replacement_limit(target, draft, n)
    divergences.distances(target, draft)
    divergences.divergence_bounds(0.5 * target, target, np.array([0.5]), target > 0)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
