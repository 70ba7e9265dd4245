"""The table of engines: rules that there are, laws that enumeration finds, sums by hand in fractions."""

from __future__ import annotations

import importlib.util
import json
from fractions import Fraction as F
from pathlib import Path

import pytest

from resispec_verify.catalogue.measured import rules_table
from resispec_verify.engines import known_engines
from resispec_verify.engines.table import LAWS, Engine
from resispec_verify.rules import SHIPPED

DOCS = Path(__file__).parents[2] / "docs"
ROWS = [(engine, setting) for engine in known_engines().values() for setting in engine.settings]
IDS = [f"{engine.engine}: {setting.name}" for engine, setting in ROWS]


@pytest.fixture(scope="module")
def measured() -> dict[str, dict]:
    return {row["rule"]: row for row in rules_table()}


@pytest.mark.parametrize(("engine", "setting"), ROWS, ids=IDS)
def test_rules_exist_and_are_what_the_row_says(engine, setting, measured):
    assert setting.law in LAWS
    assert setting.greedy in LAWS
    assert setting.measured
    assert setting.upstream
    if setting.rule is None:
        assert setting.options == {}
        return
    assert setting.rule in {rule.name for rule in SHIPPED}
    row = measured[setting.rule]
    if row["measured"] == "exact-if":  # the witness has the options with which it is wrong
        assert (setting.law == "lossy") == (row["witness"]["options"] == setting.options)
    else:
        assert {"exact": "exact", "lossy": "inexact"}[setting.law] == row["measured"]
    assert setting.rule in setting.measured


@pytest.mark.parametrize("engine", known_engines().values(), ids=list(known_engines()))
def test_an_engine_has_one_default_and_decides_by_known_options(engine):
    *others, last = engine.settings
    assert last.default
    assert last.when == {}
    assert not any(setting.default or setting.when == {} for setting in others)
    asked = {name for setting in others for name in setting.when or {}}
    asked |= {name for when in engine.on_if + engine.greedy_if for name in when if not name.endswith(".*")}
    assert asked <= set(engine.decides) | set(engine.no_bearing)
    assert not set(engine.decides) & set(engine.no_bearing)


def test_ten_engines():
    names = "vllm sglang tensorrt-llm llama.cpp transformers mlx-lm openvino-genai mistral.rs lmdeploy tgi"
    assert set(names.split()) == set(known_engines())


def test_a_file_with_a_key_too_few_is_noticed():
    path = Path(__file__).parents[2] / "resispec_verify" / "engines" / "known" / "tgi.json"
    data = json.loads(path.read_text("utf-8"))
    del data["limits"]
    with pytest.raises(KeyError):
        Engine.from_mapping(data)


def tv(p: list[F], law: list[F]) -> F:
    assert sum(p) == sum(law) == 1
    return sum((abs(a - b) for a, b in zip(p, law, strict=True)), F(0)) / 2


def test_synthetic_acceptance_by_hand():
    p, q, rate = [F(1, 10), F(9, 10)], [F(1), F(0)], F(1)
    law = [rate * q[x] + (1 - rate) * p[x] for x in range(2)]
    assert tv(p, law) == F(9, 10)


def test_fly_by_hand():
    """Window 1: a rejection of the first token is taken back if the second passes; at p = 1 it does."""
    p, second = [F(1, 4)] * 4, F(1)
    drafted = p[0] + (1 - p[0]) * second
    law = [drafted, *[(1 - drafted) / 3] * 3]
    assert tv(p, law) == F(3, 4)


def test_best_token_at_every_node_by_hand():
    assert tv([F(1, 4)] * 4, [F(1), F(0), F(0), F(0)]) == F(3, 4)


def test_relaxed_acceptance_by_hand():
    p, delta, best_n, drafted = [F(1, 2), F(9, 20), F(1, 20)], F(1, 10), {0, 1}, 1
    assert drafted in best_n
    assert p[drafted] >= max(p) - delta
    assert tv(p, [F(0), F(1), F(0)]) == F(11, 20)


def test_ensemble_weight_by_hand():
    w, p, q = F(1, 2), [F(1), F(0)], [F(0), F(1)]
    kept = 1 - w + w * p[1] / q[1]
    assert tv(p, [1 - kept, kept]) == F(1, 2)


def test_openvino_ratio_by_hand():
    """Token 0 is drafted with q; the target's own token y decides: r / 100 <= q(0) / p(y), r in 0..100."""
    p, q = [F(1, 10), F(9, 10)], [F(9, 10), F(1, 10)]
    passed = sum(p[y] * sum(F(r, 100) <= q[0] / p[y] for r in range(101)) / F(101) for y in range(2))
    assert passed == 1
    assert q[0] * passed - p[0] == F(4, 5)  # whatever is emitted after a rejection


def test_the_page_is_current():
    spec = importlib.util.spec_from_file_location("make_engines", DOCS / "make_engines.py")
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    text = maker.PAGE.read_text(encoding="utf-8")
    assert maker.with_table(text) == text, "run python docs/make_engines.py"
    assert text.count(maker.BEGIN) == text.count(maker.END) == 1
