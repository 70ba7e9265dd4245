"""Time against the vocabulary V, the number of candidates n and that of positions N. Run by `run.py`."""

from __future__ import annotations

from resispec_verify.backends import get_backend
from resispec_verify.dumps import open_dump
from resispec_verify.evidence.enumeration import Budget, operational_marginals
from resispec_verify.rules import OptimalJoint, OptimalSequential, ResiSpec, SpecInfer
from resispec_verify.runs.over_dumps import evaluate_dump
from resispec_verify.tables.marginals import Evaluation
from resispec_verify.tables.reading import Reading

SIZES = {"V": [1 << k for k in range(10, 19)], "n": list(range(1, 9)), "N": [8, 16, 32, 64, 128]}
QUICK = {"V": [256, 1024], "n": [1, 2], "N": [64, 128]}
RULES = {
    "specinfer": (SpecInfer(), 3),
    "optimal-sequential": (OptimalSequential(), 3),
    "optimal-joint": (OptimalJoint(), 3),
    "resispec, n = 2": (ResiSpec(), 2),
}
BUDGET = Budget(gap=1e-3, until_decided=False)


def pytest_generate_tests(metafunc):
    """All points; the number of candidates of the last rule stays what it is."""
    sizes = QUICK if metafunc.config.getoption("--quick") else SIZES
    points = [
        (against, rule, size)
        for against, many in sizes.items()
        for rule in RULES
        for size in many
        if not (against == "n" and "n =" in rule)
    ]
    metafunc.parametrize(("against", "name", "size"), points)


def test_growth(point, rows, synthetic, against, name, size):
    rule, n = RULES[name]
    if against == "N":  # of a shorter dump, as large a part; one thread
        positions = max(size * len(rows.p) // 128, 1)
        dump, reading = open_dump(rows.path), Reading(start=0, stop=positions)
        evaluation = Evaluation((rule,), n, budget=BUDGET)
        point(
            against, name, positions,
            lambda: evaluate_dump(dump, reading, evaluation, backend=get_backend("numpy"), jobs=1),
            max(32 // positions, 3),
        )  # fmt: skip
        return
    p, q = (x[None] for x in synthetic(size)) if against == "V" else (rows.p[:1], rows.q[:1])
    n = size if against == "n" else n
    point(against, name, size, lambda: operational_marginals(rule, p, q, n, budget=BUDGET), 3)
