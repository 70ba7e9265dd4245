"""Time against the vocabulary V, the number of candidates n and that of positions N. Run by `run.py`."""

from __future__ import annotations

from resispec_verify.evidence.enumeration import Budget, operational_marginals
from resispec_verify.rules import OptimalJoint, OptimalSequential, ResiSpec, SpecInfer

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
    many, rounds = 1, 3
    if against == "N":  # of a shorter dump, as large a part
        size = many = max(size * len(rows.p) // 128, 1)
        rounds = max(64 // many, 1)
    p, q = (x[None] for x in synthetic(size)) if against == "V" else (rows.p[:many], rows.q[:many])
    n = size if against == "n" else n
    point(against, name, size, lambda: operational_marginals(rule, p, q, n, budget=BUDGET), rounds)
