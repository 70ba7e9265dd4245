"""Recorders: what they write is what was given, or nothing at all."""

import errno
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from resispec_verify.dumps import load_mapping, open_dump
from resispec_verify.errors import InputError
from resispec_verify.record import Recorder, RoundsRecorder, TreeRecorder, pt_file
from resispec_verify.record.pt_file import Column

DTYPES = ["float16", "bfloat16", "float32", "float64"]


def rows(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def add(recorder, n=3, vocab=7, seed=0, **others):
    recorder.add(
        target_logits=rows(n, vocab, seed=seed), draft_logits=rows(n, vocab, seed=seed + 1), **others
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_come_back_as_they_were_given(tmp_path, dtype):
    path = tmp_path / "run.pt"
    target, draft = rows(5, 7), rows(5, 7, seed=1)
    with Recorder(path, dtype, {"sampling": {"temperature": np.float64(0.6)}, "seeds": (1, 2)}) as recorder:
        recorder.add(target_logits=target[0], draft_logits=draft[0])
        recorder.add(target_logits=target[1:], draft_logits=draft[1:])
        recorder.note(tokens=np.arange(6, dtype=np.int32), name="x", deep=[{"a": rows(2)}])
    assert leftovers(tmp_path) == ["run.pt"]
    dump = open_dump(path)
    assert (dump.positions, dump.vocab, dump.dtype) == (5, 7, dtype)
    assert dump.sampling == {"temperature": 0.6}
    loaded = load_mapping(path)
    for key, given in (("target_logits", target), ("draft_logits", draft)):
        expected = given.astype(getattr(ml_dtypes, dtype, dtype))
        assert np.array_equal(loaded[key].view(np.uint8), expected.view(np.uint8))
    assert loaded["tokens"].dtype == np.int64
    assert loaded["meta"]["seeds"] == [1, 2]
    assert np.array_equal(loaded["deep"][0]["a"], rows(2))


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_loads_it_with_weights_only(tmp_path, dtype):
    torch = pytest.importorskip("torch", reason="torch is optional")
    path = tmp_path / "run.pt"
    given = torch.randn(4, 9, requires_grad=True).to(getattr(torch, dtype))
    with Recorder(path, dtype, {"list": [1, 2.5, None, True, "text"]}) as recorder:
        for row in given:
            recorder.add(target_logits=row, draft_logits=2 * row, tokens=3, candidates=[1, 2, 3])
        recorder.note(empty=np.zeros((0, 3), np.float32))
    loaded = torch.load(path, weights_only=True)
    assert loaded["target_logits"].dtype == getattr(torch, dtype)
    assert torch.equal(loaded["target_logits"], given)
    assert torch.equal(loaded["draft_logits"], 2 * given)
    assert loaded["tokens"].tolist() == [3] * 4
    assert loaded["candidates"].shape == (4, 3)
    assert loaded["meta"]["list"] == [1, 2.5, None, True, "text"]
    assert loaded["empty"].shape == (0, 3)
    mapped = torch.load(path, weights_only=True, mmap=True)
    assert mapped["draft_logits"].data_ptr() % 16 == 0  # the map itself begins at a page


def test_storages_are_aligned_and_stored(tmp_path):
    path = tmp_path / "run.pt"
    with Recorder(path) as recorder:
        add(recorder)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        for info in archive.infolist():
            with archive.open(info) as record:
                assert (
                    record._orig_compress_start % 64 == 0 if hasattr(record, "_orig_compress_start") else True
                )
            assert info.compress_type == zipfile.ZIP_STORED


def test_large_records_are_zip64(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is optional")
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    path = tmp_path / "run.pt"
    with Recorder(path, "float32") as recorder:
        add(recorder, 50, 20)
    assert np.array_equal(load_mapping(path)["target_logits"], rows(50, 20))
    assert torch.equal(torch.load(path, weights_only=True)["target_logits"], torch.tensor(rows(50, 20)))


def test_a_bfloat16_recording_needs_no_torch(tmp_path):
    code = f"""
import sys
sys.modules["torch"] = None
import numpy as np, ml_dtypes
from resispec_verify.record import Recorder
with Recorder({str(tmp_path / "run.pt")!r}, "bfloat16") as recorder:
    recorder.add(target_logits=np.ones((2, 3), ml_dtypes.bfloat16), draft_logits=np.zeros((2, 3)))
"""
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, timeout=60, cwd=Path(__file__).parents[2]
    )
    assert open_dump(tmp_path / "run.pt").positions == 2


def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(pt_file, "CHUNK", 1 << 16)
    block = rows(1, 10_000)

    def peak(n):
        tracemalloc.start()
        with Recorder(tmp_path / f"{n}.pt") as recorder:
            for _ in range(n):
                recorder.add(target_logits=block, draft_logits=block)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(5)
    assert peak(400) < peak(100) + 100_000
    assert (tmp_path / "400.pt").stat().st_size > 16_000_000


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), ["target_logits has NaN at row 3, token 2"]),
        (float("inf"), ["target_logits has +inf at row 3, token 2"]),
        (70000.0, ["row 3, token 2 is 70000", "float16 cannot hold", "bfloat16 or float32"]),
        (-1e9, ["row 3, token 2 is -1e+09", "-inf for tokens that are masked out"]),
    ],
)
def test_bad_values_are_refused_with_their_row(tmp_path, value, words):
    bad = rows(2, 7)
    bad[1, 2] = value
    with Recorder(tmp_path / "run.pt") as recorder:
        add(recorder, 2)
        with pytest.raises(InputError) as caught:
            recorder.add(target_logits=bad, draft_logits=rows(2, 7))
        add(recorder, 1)
    assert all(word in str(caught.value) for word in words), caught.value
    assert open_dump(tmp_path / "run.pt").positions == 3  # nothing of the bad rows


def test_infinite_logits_in_the_right_direction_are_kept(tmp_path):
    masked = rows(1, 7)
    masked[0, :3] = -np.inf
    with Recorder(tmp_path / "run.pt") as recorder:
        recorder.add(target_logits=masked, draft_logits=masked)
        with pytest.raises(InputError, match="row 1 is -inf for every token"):
            recorder.add(target_logits=np.full(7, -np.inf), draft_logits=masked)
    assert np.isneginf(load_mapping(tmp_path / "run.pt")["target_logits"][0, :3]).all()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"target_logits": np.zeros((1, 7), int)}, "dtype int64"),
        ({"target_logits": np.zeros((1, 1, 7))}, r"\[1, 1, 7\]"),
        ({"target_logits": np.zeros((0, 7))}, "not empty"),
        ({"target_logits": [[0.0, 1.0], [0.0]]}, "different lengths"),
        ({"target_logits": np.zeros(8)}, "8 tokens of vocabulary"),
        ({"draft_logits": np.zeros((2, 7))}, "1 rows but draft_logits has 2"),
        ({"proposal_logits": np.zeros(7)}, "earlier rows do not"),
        ({"tokens": 7}, "token 7"),
        ({"tokens": 0.5}, "must be integers"),
        ({"candidates": [[1], [2]]}, "candidates has shape"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path, arguments, word):
    with Recorder(tmp_path / "run.pt") as recorder:
        add(recorder, 1)
        with pytest.raises(InputError, match=word):
            recorder.add(**{"target_logits": np.zeros(7), "draft_logits": np.zeros(7), **arguments})


def test_an_optional_argument_is_there_always_or_never(tmp_path):
    with Recorder(tmp_path / "run.pt") as recorder:
        add(recorder, 1, proposal_logits=rows(1, 7), tokens=[3])
        with pytest.raises(InputError, match=r"row 1 has no (proposal_logits|tokens)"):
            add(recorder, 1)
        add(recorder, 1, proposal_logits=rows(1, 7), tokens=[4])
    assert open_dump(tmp_path / "run.pt").proposal.shape == (2, 7)


def broken_off(path, **options):
    """A recording whose loop ends by an exception after three rows."""
    try:
        with Recorder(path, **options) as recorder:
            add(recorder)
            raise KeyError
    except KeyError:
        return
    pytest.fail("the exception did not come through")


def test_an_exception_leaves_nothing(tmp_path):
    path = tmp_path / "run.pt"
    path.write_bytes(b"before")
    broken_off(path)
    assert leftovers(tmp_path) == ["run.pt"]
    assert path.read_bytes() == b"before"


def test_keep_partial_writes_what_there_is(tmp_path):
    broken_off(tmp_path / "run.pt", keep_partial=True)
    dump = open_dump(tmp_path / "run.pt")
    assert dump.positions == 3
    assert dump.meta["partial"] == "ended by KeyError after 3 rows"
    with pytest.raises(KeyError), Recorder(tmp_path / "none.pt", keep_partial=True):
        raise KeyError
    assert leftovers(tmp_path) == ["run.pt"]


def test_nothing_recorded_is_an_error(tmp_path):
    with pytest.raises(InputError, match="nothing was recorded"), Recorder(tmp_path / "run.pt"):
        pass
    assert leftovers(tmp_path) == []


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, monkeypatch):
    def full(self, entries):
        if self.length:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.length += len(entries)

    monkeypatch.setattr(Column, "append", full)
    path = tmp_path / "run.pt"
    recorder = Recorder(path)
    add(recorder)
    with pytest.raises(OSError, match="No space left on device") as caught, recorder:
        add(recorder)
    assert caught.value.filename == str(path)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "dtype", "word"),
    [
        ("run.npz", "float16", r"\.pt"),
        ("missing/run.pt", "float16", "does not exist"),
        ("folder.pt", "float16", "is a folder"),
        ("run.pt", "int8", "not one of"),
    ],
)
def test_bad_destinations_are_refused_at_once(tmp_path, name, dtype, word):
    (tmp_path / "folder.pt").mkdir()
    with pytest.raises(InputError, match=word):
        Recorder(tmp_path / name, dtype)


def test_meta_is_plain_data(tmp_path):
    with pytest.raises(InputError, match=r"meta\['model'\] is a object"):
        Recorder(tmp_path / "run.pt", meta={"model": object()})


def test_a_closed_recording_takes_no_more(tmp_path):
    recorder = Recorder(tmp_path / "run.pt")
    add(recorder)
    recorder.close()
    recorder.close()
    with pytest.raises(InputError, match="closed"):
        add(recorder)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link.pt").symlink_to(tmp_path / "real.pt")
    with Recorder(tmp_path / "link.pt") as recorder:
        add(recorder)
    assert (tmp_path / "link.pt").is_symlink()
    assert open_dump(tmp_path / "real.pt").positions == 3


def test_rounds_are_checked_and_come_back(tmp_path):
    draft, target = rows(2, 7), rows(3, 7, seed=1)
    good = {
        "draft_tokens": [3, 1],
        "draft_logits": draft,
        "target_logits": target,
        "accepted": 1,
        "next_token": 6,
    }
    with RoundsRecorder(tmp_path / "run.pt", "float32") as recorder:
        recorder.add(**good, u=[0.25, 0.5], u_next=0.75, context_len=9)
        for change, word in (
            ({"target_logits": draft}, r"must be \[3, 7\]"),
            ({"draft_tokens": [3]}, "draft_tokens has shape"),
            ({"draft_tokens": [3, 7]}, "token 7"),
            ({"accepted": 3}, "accepted"),
            ({"next_token": -1}, "next_token"),
            ({"u": [0.5]}, "2 numbers"),
            ({"u": [0.5, 1.5]}, "2 numbers"),
        ):
            with pytest.raises(InputError, match=word):
                recorder.add(**{**good, **change})
    (entry,) = load_mapping(tmp_path / "run.pt")["rounds"]
    assert np.array_equal(entry["draft_logits"], draft)
    assert np.array_equal(entry["target_logits"], target)
    assert entry["draft_tokens"].tolist() == [3, 1]
    assert entry["u"].tolist() == [0.25, 0.5]
    assert {k: entry[k] for k in ("accepted", "next_token", "u_next", "context_len")} == {
        "accepted": 1, "next_token": 6, "u_next": 0.75, "context_len": 9,
    }  # fmt: skip


def test_trees_are_checked_and_come_back(tmp_path):
    path = tmp_path / "run.pt"
    for parent in ([0], [-1], [-1, 1], [-1, 0, 2, 1], [-1, 0, -1]):
        with pytest.raises(InputError, match="parent"):
            TreeRecorder(path, parent)
    with TreeRecorder(path, [-1, 0, 0, 1, 1]) as recorder:
        for prefix in ([4, 5], [1, 2, 5]):
            recorder.add(
                target_logits=rows(2, 7), draft_logits=rows(2, 7), tokens=[5, 1, 2, 3, 4], prefix=prefix
            )
        good = {
            "target_logits": rows(2, 7),
            "draft_logits": rows(2, 7),
            "tokens": [5, 1, 2, 3, 4],
            "prefix": [5],
        }
        for change in ({"tokens": [5, 1]}, {"prefix": [4]}, {"prefix": []}, {"draft_logits": rows(3, 7)}):
            with pytest.raises(InputError, match="prefix 2"):
                recorder.add(**{**good, **change})
    loaded = load_mapping(path)
    assert loaded["target_logits"].shape == (2, 2, 7)
    assert loaded["depth"].tolist() == [0, 1, 1, 2, 2]
    assert loaded["prefix"].tolist() == [[-1, 4, 5], [1, 2, 5]]
    assert loaded["prefix_len"].tolist() == [2, 3]
    assert leftovers(tmp_path) == ["run.pt"]


def test_trees_whose_inner_nodes_are_anywhere(tmp_path):
    with TreeRecorder(tmp_path / "run.pt", [-1, 0, 0, 2, 1]) as recorder:
        recorder.add(target_logits=rows(3, 7), draft_logits=rows(3, 7), tokens=[5, 1, 2, 3, 4], prefix=[5])
    assert load_mapping(tmp_path / "run.pt")["target_logits"].shape == (1, 3, 7)
    assert load_mapping(tmp_path / "run.pt")["depth"].tolist() == [0, 1, 1, 2, 2]
