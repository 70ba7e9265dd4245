"""Damaged answers of engines end in one line or in laws.

``RESISPEC_FUZZ_CASES=2000 pytest -s tests/dumps/test_importers_fuzz.py`` runs as many cases a format, and
``RESISPEC_FUZZ_SEED`` chooses others. Bytes are damaged as those of dumps are, and values are replaced by
others, at any depth, so that the JSON stays JSON.
"""

import copy
import json
import random
import time
import tracemalloc

import numpy as np
import pytest
from test_dumps_fuzz import CASES, SECONDS, SEED, SPARE, TIMES, mutated
from test_importers import FORMS
from top_helpers import V, dumped, lines

from resispec_verify.dumps.importers import import_top_pairs
from resispec_verify.errors import InputError

ODD = (
    None, True, -1, 0, 2**31, 2**63, 10**400, 0.5, -0.0, float("nan"), float("inf"), -float("inf"), 1e308, "",
    "0", "token_id:3", "token_id:" + "9" * 40, "\x1b[31m" * 50, "\ud800", [], [[]], {}, {"": None}, [0, 0, 0],
    {"0": {"logprob": 0, "rank": 1}}, [[-1.0, 3, None]] * 50,
)  # fmt: skip


def places(value, path=()):
    """Where every value of a document lies."""
    found = [path]
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, entry in entries:
        found += places(entry, (*path, key))
    return found


def replaced(value, rng):
    """The document with up to three of its values replaced, removed or repeated."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 2, 3))):
        path = rng.choice(places(value))
        if not path:
            continue
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        what = rng.random()
        if what < 0.7:
            holder[path[-1]] = copy.deepcopy(rng.choice(ODD))
        elif what < 0.85 or isinstance(holder, dict):
            del holder[path[-1]]
        else:
            holder.insert(path[-1], copy.deepcopy(holder[path[-1]]))
    return value


def read(target, draft, source):
    """Import, and look at what came of it; whether it was read."""
    try:
        dump = import_top_pairs(target, draft, source=source, vocab=V)
    except InputError as error:
        line = str(error)
        faults = [fault for fault in ("\n" in line, len(line) > 1000, not line.isprintable()) if fault]
        if faults:
            raise AssertionError(f"no plain line: {line!r}") from error
        return False
    for found in dump.blocks(2):
        for side in (found.target, found.draft):
            assert (side.tail[:, 0] <= side.tail[:, 1]).all()
            assert np.isfinite(side.probabilities).all()
            assert ((side.most > 0) & (side.most <= 1)).all()
    return True


def tried(write, target, draft, source):
    """Many cases; each is short and takes little memory."""
    read_, refused_ = 0, 0
    tracemalloc.start()
    for case in range(CASES):
        write(case)
        tracemalloc.reset_peak()
        before, began = tracemalloc.get_traced_memory()[0], time.perf_counter()
        if read(target, draft, source):
            read_ += 1
        else:
            refused_ += 1
        assert time.perf_counter() - began < SECONDS, case
        used = tracemalloc.get_traced_memory()[1] - before
        assert used < TIMES * (target.stat().st_size + draft.stat().st_size) + SPARE, case
    tracemalloc.stop()
    print(f"{source}: {read_} read, {refused_} refused")
    assert refused_ or CASES < 20


@pytest.mark.parametrize("name", FORMS)
def test_damaged_bytes(tmp_path, name):
    source, make, _ = FORMS[name]
    suffix = ".jsonl" if source == "jsonl" else ".json"
    target, draft = (dumped(tmp_path / f"{role}{suffix}", make(role)) for role in ("target", "draft"))
    assert read(target, draft, source)
    whole, rng = target.read_bytes(), random.Random(f"{SEED} bytes {name}")
    tried(lambda case: target.write_bytes(mutated(whole, rng)), target, draft, source)


@pytest.mark.parametrize("name", FORMS)
def test_other_values(tmp_path, name):
    source, make, _ = FORMS[name]
    suffix = ".jsonl" if source == "jsonl" else ".json"
    target, draft = (dumped(tmp_path / f"{role}{suffix}", make(role)) for role in ("target", "draft"))
    whole, rng = make("target"), random.Random(f"{SEED} values {name}")
    tried(lambda case: dumped(target, replaced(whole, rng)), target, draft, source)


def test_damaged_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="parquet files need the package pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for role in ("target", "draft"):
        parquet.write_table(pyarrow.Table.from_pylist(lines(role)), tmp_path / role)
    target, draft = tmp_path / "target", tmp_path / "draft"
    whole, rng = target.read_bytes(), random.Random(f"{SEED} parquet")
    tried(lambda case: target.write_bytes(mutated(whole, rng)), target, draft, "parquet")


def test_deep_nesting_and_long_numbers(tmp_path):
    path = tmp_path / "x.json"
    for text in (
        "[" * 100_000,
        '{"choices":' * 5000,
        "9" * 100_000,
        '{"choices": [' + "9" * 5000 + "]}",
        "",
        "\x00",
    ):
        path.write_text(text)
        assert not read(path, path, "openai")
    path.write_bytes(json.dumps({"choices": []}).encode("utf-16"))
    assert not read(path, path, "openai")
