"""One row of docs/howto/scale.md a test: a cost over what it is measured in. Run by `run.py`."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from resispec_verify.cli import main as command
from resispec_verify.distributions import Sampling
from resispec_verify.evidence.enumeration import operational_marginals
from resispec_verify.evidence.path_identity import draw_candidates, identity_of
from resispec_verify.kernels.elementwise.divergences import distances
from resispec_verify.kernels.elementwise.ratio_order import ratio_order
from resispec_verify.kernels.optimal.candidate_limits import without_replacement_limit
from resispec_verify.kernels.optimal.layouts import best_layout
from resispec_verify.kernels.optimal.sequential import levels, overlap
from resispec_verify.kernels.optimal.transport import transport_limit
from resispec_verify.kernels.paths.plan import survey
from resispec_verify.kernels.paths.shaped import shaped_marginal
from resispec_verify.rules import KSeq, OptimalSequential, ResiSpec, Sequoia, SpecInfer
from resispec_verify.samplers import verify_optimal_joint, verify_optimal_sequential, verify_specinfer
from resispec_verify.tables.shaping import explore_pair

BATCH = 16
EASY = 3e7  # paths of two rejections
MOST_PATHS = 5e8
SORT = "`argsort(p/q)`"
BOTH = "softmax of both matrices"


def softmax(*logits):
    for x in logits:
        Sampling().probabilities(x, dtype=np.float64)


def sort(p, q):
    np.argsort(p / q)


def in_batches(rows):
    return [slice(i, i + BATCH) for i in range(0, len(rows.p), BATCH)]


def softmax_of_all(rows):
    for b in in_batches(rows):
        softmax(rows.target_logits[b], rows.draft_logits[b])


def test_token_free_rounds(compare, rows):
    compare(
        f"SpecInfer's rounds, n = 3, {len(rows.p)} positions",
        lambda: [operational_marginals(SpecInfer(), rows.p[b], rows.q[b], 3) for b in in_batches(rows)],
        BOTH, lambda: softmax_of_all(rows), goal=0.5, positions=len(rows.p),
    )  # fmt: skip


def test_token_free_identities(compare, rows):
    uniforms = np.random.default_rng(0).random((BATCH, 3))

    def rounds():
        for b in in_batches(rows):
            p, q = rows.p[b], rows.q[b]
            operational_marginals(SpecInfer(), p, q, 3)
            for rule in (SpecInfer(), ResiSpec()):
                identity_of(rule, p, q, draw_candidates(q, 3, uniforms[: len(p)]), 3)

    compare(
        f"SpecInfer's rounds, n = 3, and both path identities, {len(rows.p)} positions",
        rounds, BOTH, lambda: softmax_of_all(rows), goal=1.5, positions=len(rows.p),
    )  # fmt: skip


def test_optimal_sequential_marginal(compare, rows):
    compare(
        f"`optimal-sequential`'s marginal, n = 3, {len(rows.p)} positions",
        lambda: [
            operational_marginals(OptimalSequential(), rows.p[b], rows.q[b], 3) for b in in_batches(rows)
        ],
        BOTH, lambda: softmax_of_all(rows), goal=3, positions=len(rows.p),
    )  # fmt: skip


def test_divergences_and_limit(compare, rows):
    placed = operational_marginals(SpecInfer(), rows.p, rows.q, 3).placed

    def measures():
        distances(placed, rows.p)
        transport_limit(rows.p, rows.q, 3)

    compare(
        f"divergences and limit, n = 3, {len(rows.p)} positions",
        measures,
        SORT,
        lambda: [sort(*row) for row in pairs(rows)],
        goal=2,
        positions=len(rows.p),
    )


def pairs(rows):
    """The positions of the dump, one after the other."""
    return list(zip(rows.p, rows.q, strict=True))


@pytest.mark.parametrize(
    ("n", "gap", "goal"), [(1, 0.0, 4), (2, 0.0, 300), (2, 1e-3, None), (3, 1e-2, None), (3, 1e-3, 400)]
)
def test_resispec(compare, rows, n, gap, goal):
    inputs, which = pairs(rows), ""
    if (n, gap) == (2, 0.0):
        easy = [row for row in inputs if survey(ratio_order(*row), 2, 1e-3).pairs <= EASY]
        which = f", {len(easy)} of {len(inputs)} positions: under {EASY:.0e} paths"
        inputs = easy or [tuple(np.full((2, 4), 0.25))]
    hard = np.random.default_rng(0).dirichlet(np.ones(2000), 2)
    shaped_marginal(ratio_order(*hard), n, gap, 1e7)  # compile all of it: an easy position does not merge

    compare(
        f"ResiSpec's marginal, n = {n}, gap {gap:g}{which}",
        lambda p, q: shaped_marginal(ratio_order(p, q), n, gap, MOST_PATHS),
        SORT,
        sort,
        goal=goal,
        inputs=inputs,
    )


def quiet(*arguments):
    with contextlib.redirect_stdout(None):
        return command([str(argument) for argument in arguments])


def test_kl(compare, rows):
    positions = min(16, len(rows.p))
    kl = ("kl", "--logits", rows.path, "--positions", f"0:{positions}")
    compare(f"`kl` with defaults, {positions} positions together", lambda: quiet(*kl), rounds=2)


def test_kl_of_one_rule(compare, rows):
    """The whole command in this process: reading, rounds, identities, divergences, limit, verdict, table."""
    kl = ("kl", "--logits", rows.path, "--positions", f"0:{len(rows.p)}", "--rule", "specinfer")
    compare(
        f"`kl --rule specinfer`, {len(rows.p)} positions",
        lambda: quiet(*kl), BOTH, lambda: softmax_of_all(rows), goal=3, positions=len(rows.p),
    )  # fmt: skip


@pytest.mark.parametrize("vocab", [151_936, 262_144])
def test_kl_of_one_rule_at_width(compare, quick, tmp_path, synthetic_logits, vocab):
    positions, vocab = (2, 4_096) if quick else (32, vocab)
    target, draft = (synthetic_logits(positions, vocab, seed).astype(np.float16) for seed in (0, 1))
    path = tmp_path / "wide.npz"
    np.savez(path, target_logits=target, draft_logits=draft)
    compare(
        f"`kl --rule specinfer`, {positions} positions, V = {vocab:,}",
        lambda: quiet("kl", "--logits", path, "--rule", "specinfer"),
        BOTH, lambda: [softmax(target[i : i + 1], draft[i : i + 1]) for i in range(positions)],
        goal=4, positions=positions,
    )  # fmt: skip


@pytest.mark.parametrize("rule", [SpecInfer(), KSeq(), OptimalSequential()], ids=lambda rule: rule.name)
def test_token_free_rule(compare, rows, rule):
    p, q = rows.p[:1], rows.q[:1]

    def unit():
        for _ in range(2):
            softmax(rows.target_logits[:1], rows.draft_logits[:1])
            sort(p[0], q[0])

    compare(
        f"`{rule.name}`, n = 3, V = {p.shape[-1]:,}",
        lambda: operational_marginals(rule, p, q, 3),
        "4 softmax and 2 `argsort(p/q)`",
        unit,
    )


LIMITS = {
    "optimal transport, n = 3": lambda p, q: transport_limit(p, q, 3),
    "sequential, n = 3": lambda p, q: overlap(p, q, levels(p, q, 3)[..., 0]),
    "without replacement, n = 2": lambda p, q: without_replacement_limit(p, q, 2),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limit(compare, synthetic, quick, name):
    p, q = synthetic(4_096 if quick else 256_000)
    goal = 6 if "without" in name else 0.4
    compare(f"limit, {name}, V = {len(p):,}", lambda: LIMITS[name](p, q), SORT, lambda: sort(p, q), goal=goal)


def test_explore(compare, rows):
    p, q = rows.p[0], rows.q[0]
    compare(
        f"`explore`'s curve, V = {len(p):,}", lambda: explore_pair(p, q), SORT, lambda: sort(p, q), goal=6
    )


def test_joint_layout(compare, rows):
    p, q = rows.p[0], rows.q[0]
    compare(
        f"`optimal-joint`'s layout, n = 3, V = {len(p):,}",
        lambda: best_layout(p, q, 3),
        SORT,
        lambda: sort(p, q),
    )


def test_sequoia(compare, rows):
    compare(
        "`sequoia`, n = 3",
        lambda p, q: operational_marginals(Sequoia(), p[None], q[None], 3),
        SORT,
        sort,
        inputs=pairs(rows)[:BATCH],
    )


SAMPLERS = {
    "specinfer": (verify_specinfer, 1),
    "optimal-sequential": (verify_optimal_sequential, 1),
    "optimal-joint": (verify_optimal_joint, 2),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("library", ["NumPy", "torch"])
def test_verification_step(compare, rows, library, name):
    """From probabilities to emitted tokens, in the arrays of a library; its own softmax is the unit."""
    rng = np.random.default_rng(0)
    verify, more = SAMPLERS[name]
    p, q, logits = (a[:BATCH] for a in (rows.p, rows.q, rows.target_logits.astype(np.float64)))
    candidates = np.stack([rng.choice(q.shape[-1], size=3, p=row) for row in q])
    arrays = (p, q, candidates, rng.random((len(p), 3 + more)))

    def unit():
        softmax(logits)

    if library == "torch":
        torch = pytest.importorskip("torch")
        arrays = tuple(torch.from_numpy(a) for a in arrays)
        tensor = torch.from_numpy(logits)

        def unit():
            torch.softmax(tensor, dim=-1)

    compare(
        f"verification step, {library}, `{name}`, n = 3, {len(p)} rows",
        lambda: verify(*arrays),
        f"softmax of the target by {library}",
        unit,
        positions=len(p),
    )


MEMORY = """
import contextlib, sys
from resispec_verify.cli import main
from streaming import peak
with peak() as most, contextlib.redirect_stdout(None):
    main(sys.argv[1:])
print(most[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("part", [4, 2, 1])
def test_memory(compare, benchmark, rows, part):
    """Anonymous pages of a process of its own, packages included: not the page cache."""
    positions = max(len(rows.p) // part, 1)
    run = [sys.executable, "-c", MEMORY, "kl", "--logits", str(rows.path), "--positions", f"0:{positions}"]

    def kl():
        return subprocess.run(run, check=True, cwd=Path(__file__).parent, stdout=subprocess.PIPE).stdout

    found = compare(f"peak memory of `kl` with defaults, {positions} positions", kl, rounds=1, warm=False)
    benchmark.extra_info["bytes"] = int(found)


def process(*arguments, **environment):
    """Run Python in a process of its own, from nothing but what is in the environment."""
    environment = {**os.environ, **environment}
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


HAND = ("kl", "--target", "0.3,0.4,0.3", "--draft", "0.6,0.3,0.1", "--candidates", "1")
STARTS = {"`--help`": ("--help",), "`kl --help`": ("kl", "--help"), "`kl` by hand": HAND}


@pytest.mark.parametrize("name", STARTS)
def test_start_up(compare, name):
    """Goals in seconds, .15 for help and .6 by hand, are in the column of costs."""
    compare(
        f"start-up: {name}",
        lambda: process("-m", "resispec_verify", *STARTS[name]),
        "`import numpy` in a process",
        lambda: process("-c", "import numpy"),
    )


def test_first_use(compare, quick, tmp_path):
    """Nothing is cached in a new folder: all that the README's first command needs is compiled."""
    example = Path(__file__).parents[1] / "examples" / "smollm2-skip6-N8-fp16.pt"
    folders = (tmp_path / str(i) for i in itertools.count())

    def first():
        less = ("--rule", "specinfer", "--positions", "0:1") if quick else ()
        kl = ("kl", "--logits", str(example), *less)
        process("-m", "resispec_verify", *kl, NUMBA_CACHE_DIR=str(next(folders)))

    compare("first use: `kl` on the README's example, nothing compiled yet", first, rounds=2, warm=False)


@pytest.mark.parametrize("rule", ["specinfer", "optimal-sequential", "optimal-joint", "resispec"])
def test_jobs(compare, rows, rule):
    """The same positions by two threads and by one; the speed-up is one over the ratio."""
    kl = ("kl", "--logits", rows.path, "--positions", f"0:{len(rows.p)}", "--rule", rule, "--jobs")
    compare(
        f"`kl --rule {rule} --jobs 2`, {len(rows.p)} positions",
        lambda: quiet(*kl, 2), "`--jobs 1`", lambda: quiet(*kl, 1), goal=0.56, rounds=3,
    )  # fmt: skip


def test_verdicts(compare, rows):
    """Verdicts alone, against the whole command."""
    kl = ("kl", "--logits", rows.path, "--positions", f"0:{len(rows.p)}", "--rule", "resispec")
    compare(
        f"`kl --rule resispec --until verdict`, {len(rows.p)} positions",
        lambda: quiet(*kl, "--until", "verdict"), "the same without", lambda: quiet(*kl),
        goal=0.1, rounds=1, warm=False,
    )  # fmt: skip
