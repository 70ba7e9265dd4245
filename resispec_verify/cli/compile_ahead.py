"""The first run of all compiles its kernels in two processes: numba compiles one function at a time in each.

The second compiles first what the first needs last. Both look into the cache on disk before they compile a
function, and add to it afterwards, so that neither waits for the other; what the second meets in error it leaves
to the first.
"""

import atexit
import os
import subprocess
import sys

_started: list[subprocess.Popen[bytes]] = []


def start() -> None:
    """Start the second process, where there is a core for it; it is ended with this one at the latest."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < 2 or _started:
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
    """What the default rules take: the grids of ResiSpec's paths, then all that looks at whole rows."""
    import numpy as np

    from resispec_verify.distributions import Pair
    from resispec_verify.kernels.elementwise.ratio_order import ratio_order
    from resispec_verify.kernels.paths.plan import make_plan, survey
    from resispec_verify.kernels.paths.shaped import run_plan
    from resispec_verify.rules import ResiSpec, SpecInfer
    from resispec_verify.tables.marginals import Evaluation
    from resispec_verify.tables.reading import Clock, by_hand
    from resispec_verify.tables.table import Table

    target, draft = np.random.default_rng(0).dirichlet(np.ones(300), (2, 1))
    order = ratio_order(target[0], draft[0])
    plan = make_plan(order, survey(order, 3, 1e-2, 0.0, None), 0.1, 1e6, 1.0)
    run_plan(order, 3, plan, 1e6)
    # The rule without paths first: the other process is at them.
    for rule in (SpecInfer(), ResiSpec()):
        Table().evaluate(by_hand(Pair(target, draft)), Evaluation((rule,)), Clock())
