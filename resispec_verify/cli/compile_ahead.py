"""The first run of all compiles its kernels in two processes: numba compiles one function at a time in each.

The second compiles first what the first needs last. Both look into the cache on disk before they compile a
function, and add to it afterwards, so that neither waits for the other. Where the second fails, the first
compiles what it would have.
"""

import atexit
import subprocess
import sys

from resispec_verify.threads import cores

_started: list[subprocess.Popen[bytes]] = []


def start() -> None:
    """Start the second process, where there is a core for it; it is ended with this one at the latest."""
    if cores() < 2 or _started:
        return
    # With the import path of this process: a checkout that is not installed compiles into its own cache.
    code = f"import sys; sys.path[:] = {sys.path!r}; from resispec_verify.cli.compile_ahead import run; run()"
    quiet = subprocess.DEVNULL
    _started.append(subprocess.Popen([sys.executable, "-c", code], stdin=quiet, stdout=quiet, stderr=quiet))
    atexit.register(end)


def end() -> None:
    """End the second process. A function that it is about to keep is kept whole or not at all."""
    while _started:
        process = _started.pop()
        process.kill()
        process.wait()


def run() -> None:
    """What the default rules take last: following ResiSpec's paths, then all that looks at whole rows."""
    import numpy as np

    from resispec_verify.distributions import Pair
    from resispec_verify.kernels.elementwise.ratio_order import BUCKETS, RatioOrder
    from resispec_verify.kernels.paths.grids import new_sums
    from resispec_verify.kernels.paths.plan import no_grids
    from resispec_verify.kernels.paths.walk import new_path, walk_paths
    from resispec_verify.rules import ResiSpec, SpecInfer
    from resispec_verify.tables.marginals import Evaluation
    from resispec_verify.tables.reading import Clock, by_hand
    from resispec_verify.tables.table import Table

    # One token, which is never rejected: the walk is compiled and is over.
    one, none = np.ones(1), np.zeros((2, 2))
    order = RatioOrder(np.zeros(1, np.int64), one, one, one, none, np.zeros(BUCKETS + 1, np.int32))
    grids, limits = no_grids(order, 3, 0.0).grids, np.zeros(3)
    walk_paths((0, 1), order, None, grids, new_path(order, 3, limits), new_sums(1, 3, grids.low.size))
    pair = Pair(*np.random.default_rng(0).dirichlet(np.ones(300), (2, 1)))
    # The rule without paths first: the other process is at them.
    for rule in (SpecInfer(), ResiSpec()):
        Table().evaluate(by_hand(pair), Evaluation((rule,)), Clock())
