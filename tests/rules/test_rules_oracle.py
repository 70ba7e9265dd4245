"""Every rule against its rational transcription, over random small pairs: laws and acceptance."""

from __future__ import annotations

import math
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest

from resispec_verify.evidence import operational_marginals
from resispec_verify.evidence.enumeration import Budget
from resispec_verify.evidence.path_rules import path_marginal
from resispec_verify.oracle import MARGINALS, block_law, complete, marginal, memoryless, rotating
from resispec_verify.oracle import PATH_RULES as ORACLE_PATHS
from resispec_verify.rules import (
    EASD,
    PATH_RULES,
    RULES,
    Block,
    Medusa,
    Rule,
    SGLang,
    make_path_rule,
    make_rule,
)

EPS = float(np.finfo(np.float64).eps)
EVERYTHING = Budget(gap=0.0, most_paths=math.inf, most_states=math.inf, until_decided=False)
NAMES = [name for name in RULES if name in MARGINALS]

Law = tuple[F, ...]


def pairs(seed: int, count: int) -> list[tuple[Law, Law]]:
    """Random laws in twelfths over 2..5 tokens: zeros, ties, and now and then p = q."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        size = int(rng.integers(2, 6))
        target, draft = rng.multinomial(12, rng.dirichlet(np.full(size, 0.7)), size=2).tolist()
        draft = target if i % 17 == 16 else draft
        found.append((tuple(F(k, 12) for k in target), tuple(F(k, 12) for k in draft)))
    return found


def row(law: Law) -> np.ndarray:
    return np.array([law], np.float64)


def check(rule: Rule, name: str, target: Law, draft: Law, n: int, **options: Any) -> None:
    computed = operational_marginals(rule, row(target), row(draft), n, budget=EVERYTHING)
    right = marginal(name, target, draft, n, **options)
    # The derived bound; each of p and q is rounded once on its way in, a round.
    bound = float(computed.rounding[0]) + (n + 1) * EPS
    where = (name, n, target, draft)
    tv = sum(abs(F(float(a)) - b) for a, b in zip(computed.placed[0], right.law, strict=True)) / 2
    assert tv <= bound, where
    acceptance = zip(computed.acceptance[0], right.acceptance, strict=True)
    assert max((abs(F(float(a)) - b) for a, b in acceptance), default=0) <= 2 * bound, where


def counts(rule: Rule) -> list[int]:
    most = 3 if rule.most_candidates is None else rule.most_candidates
    return list(range(max(1, rule.least_candidates), most + 1))


@pytest.mark.parametrize("name", NAMES)
def test_rules_agree_with_their_transcriptions(name):
    rule = make_rule(name)
    for n in counts(rule):
        for target, draft in pairs(n, 40 if n < 3 else 15):
            check(rule, name, target, draft, n)


@pytest.mark.parametrize("redistribution", ["proportional", "water-filling"])
@pytest.mark.parametrize("name", ["sequoia+resispec", "eagle+resispec"])
def test_combinations_with_the_other_options(name, redistribution):
    options = {"redistribution": redistribution, "budget": "floor", "hole": "literal"}
    for target, draft in pairs(11, 20):
        check(make_rule(name, **options), name, target, draft, 2, **options)


@pytest.mark.parametrize("thresholds", [("1", "1/2"), ("3/10", "1"), ("1/2", "3/4"), ("0", "0")])
def test_sglang_with_thresholds(thresholds):
    single, acc = (F(value) for value in thresholds)
    rule = SGLang(float(single), float(acc))
    for target, draft in pairs(12, 20):
        if single in target or F(acc) == 0:
            continue  # an equality, or a division by zero that the kernel's floor avoids
        check(rule, "sglang", target, draft, 2, threshold_single=single, threshold_acc=acc)


@pytest.mark.parametrize("top_n", [2, 9])  # 9: more than there are tokens
@pytest.mark.parametrize("rejects", ["position", "overlap"])
def test_easd(rejects, top_n):
    options = {"target_entropy": 0.7, "draft_entropy": 0.6, "top_n": top_n, "overlap": 0.5}
    for target, draft in pairs(13, 60):
        check(EASD(**options, rejects=rejects), "easd", target, draft, 1, **options, rejects=rejects)


def levels(chain: Any, size: int, length: int) -> list[np.ndarray]:
    """A chain of the oracle as the arrays that `path_marginal` takes."""
    found = []
    for i in range(length):
        level = np.empty((size,) * (i + 1))
        for prefix in np.ndindex(*(size,) * i):
            level[prefix] = [float(mass) for mass in chain(prefix)]
        found.append(level)
    return found


def joint(name: str, target: Any, draft: Any, size: int, length: int, **options: Any) -> np.ndarray:
    law = np.zeros((size,) * (length + 1))
    for key, weight in complete(
        block_law(name, target, draft, length, **options), target, length + 1
    ).items():
        law[key] += float(weight)
    return law


@pytest.mark.parametrize("chain", [memoryless, rotating])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_block_verification(chain, length):
    assert set(PATH_RULES) <= set(ORACLE_PATHS)
    for target, draft in pairs(14, 6):
        size, p, q = len(target), chain(target), chain(draft)
        found = path_marginal(Block(), levels(p, size, length + 1), levels(q, size, length))
        bound = found.rounding + (2 * length + 1) * EPS  # each law rounded once on its way in
        assert 0.5 * np.abs(found.joint - joint("block", p, q, size, length)).sum() <= bound
        assert found.tv <= bound
        assert abs(found.accepted.sum() - 1.0) <= 2 * bound


@pytest.mark.parametrize("options", [{}, {"correction": "target"}, {"correction": "greedy"}])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_medusa_on_one_path(length, options):
    # The oracle's heads propose the draft's best token at the root all along: a draft that is certain.
    for target, draft in pairs(15, 20):
        size, p, q = len(target), rotating(target), rotating(draft)
        best = max(range(size), key=lambda x: (draft[x], -x))
        certain = memoryless([F(int(x == best)) for x in range(size)])
        rule = make_path_rule("medusa", **options)
        found = path_marginal(rule, levels(p, size, length + 1), levels(certain, size, length))
        right = joint("medusa", p, q, size, length, top=1, **options)
        assert 0.5 * np.abs(found.joint - right).sum() <= found.rounding + (2 * length + 1) * EPS
    assert (rule == Medusa()) is (options != {"correction": "target"})
