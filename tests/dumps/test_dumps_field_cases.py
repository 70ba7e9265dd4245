"""What downloads and engines do to files: public reports, each as one small input."""

from __future__ import annotations

import contextlib
import io
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from dump_helpers import (
    WRITERS,
    cut_lengths,
    legacy_saved,
    logit_pair,
    refused,
    saved,
    saved_llamacpp,
    saved_npz,
    saved_safetensors,
)

from resispec_verify.dumps import (
    load_mapping,
    looks_like_probabilities,
    open_dump,
    open_rounds,
    open_target,
)
from resispec_verify.errors import InputError
from resispec_verify.tables.input_kind import input_kind

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def same_numbers_whatever_ran_before():
    """Every test draws from the start of the generator, in any order and on any number of workers."""
    RNG.bit_generator.state = np.random.default_rng(11).bit_generator.state


def every_format(folder: Path) -> dict[str, Path]:
    value = logit_pair(40, 50)
    rounds = {"draft_tokens": torch.zeros(2, 3, dtype=torch.int64), "accepted": torch.tensor([1, 3])}
    rounds |= {"draft_logits": torch.randn(2, 3, 9), "target_logits": torch.randn(2, 4, 9)}
    return {
        "pt": saved(folder / "x.pt", value),
        "legacy": legacy_saved(folder / "old.pt", value),
        "safetensors": saved_safetensors(folder / "x.safetensors", value),
        "npz": saved_npz(folder / "x.npz", value),
        "compressed": saved_npz(folder / "c.npz", value, compressed=True),
        "rounds": saved_npz(folder / "r.npz", rounds),
        "llamacpp": saved_llamacpp(folder / "x.kld", RNG.normal(size=(2, 16, 30)), np.zeros((2, 16), int)),
    }


@pytest.mark.parametrize("name", ["pt", "legacy", "safetensors", "npz", "compressed", "rounds", "llamacpp"])
def test_cut_files_name_path_and_size(tmp_path, name):
    """ComfyUI#3225."""
    path = every_format(tmp_path)[name]
    whole = path.read_bytes()
    for size in cut_lengths(len(whole)):
        path.write_bytes(whole[:size])
        message = refused(path)
        assert message.startswith(str(path))
        if size != 7 or name != "llamacpp":  # seven bytes of its magic are no file of llama.cpp
            assert f"{size} bytes" in message, message


def test_numpy_scalars_in_meta(tmp_path):
    """fairseq#5603: torch.load(weights_only=True) refuses these, and they are only numbers."""
    value = logit_pair(2, 3) | {
        "meta": {"loss": np.float64(0.25), "steps": np.int64(7), "name": np.str_("a")}
    }
    assert open_dump(saved(tmp_path / "x.pt", value)).meta == {"loss": 0.25, "steps": 7, "name": "a"}
    with pytest.raises(Exception, match="numpy"):
        torch.load(tmp_path / "x.pt", weights_only=True)
    message = refused(legacy_saved(tmp_path / "old.pt", value))
    assert "torch.load refuses it" in message


def test_padded_and_reduced_vocabularies(tmp_path):
    """vllm#7252 and Automodel#2447."""
    wide = {"target_logits": torch.randn(2, 152), "draft_logits": torch.randn(2, 144)}
    path = saved(tmp_path / "x.pt", wide)
    assert "widths 152 and 144" in refused(path, open_dump)
    assert "d2t" in refused(path, open_dump)
    assert open_dump(path, pad_vocab=True).pad == (152, 144)
    offsets = torch.arange(144) % 2 * 0 + torch.arange(144) // 18  # leaves a hole every 18 tokens
    dump = open_dump(saved(path, wide | {"d2t": offsets}))
    assert dump.pad is None
    assert "144 draft tokens" in dump.notes[0]
    found = dump.batch(0, 2).draft
    ids = (torch.arange(144) + offsets).numpy()
    assert np.array_equal(found[:, ids], wide["draft_logits"].numpy())
    assert (np.delete(found, ids, axis=1) == -np.inf).all()


@pytest.mark.parametrize("name", ["x.pt", "x.safetensors", "x.npz"])
def test_one_bad_row_is_named(tmp_path, name):
    """vllm#53029."""
    value = logit_pair(6, 5)
    value["draft_logits"][4, 1] = torch.nan
    dump = open_dump(WRITERS[name](tmp_path / name, value))
    with pytest.raises(InputError, match=r"draft_logits has NaN at position 4, token 1"):
        dump.batch(0, 6)
    assert len(dump.batch(0, 4).target) == 4


def test_the_same_tokens_forbidden_in_both(tmp_path):
    """heretic#348: readable; the divergences treat 0 log(0/0) as 0."""
    value = logit_pair(3, 6, dtype=torch.float32)
    for key in ("target_logits", "draft_logits"):
        value[key][:, 4:] = -torch.inf
    batch = open_dump(saved(tmp_path / "x.pt", value)).batch(0, 3)
    assert (np.isneginf(batch.target) == np.isneginf(batch.draft)).all()


def test_probabilities_are_noticed_in_every_format(tmp_path):
    """vllm-ascend#6685."""
    rows = torch.randn(4, 6).softmax(-1)
    for name, write in WRITERS.items():
        dump = open_dump(write(tmp_path / name, {"target_logits": rows, "draft_logits": rows.flip(0)}))
        assert looks_like_probabilities(dump)
        with pytest.raises(InputError, match="these look like probabilities, not logits"):
            input_kind(dump, None)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("name", ["x.safetensors", "x.npz"])
def test_memory_stays_below_the_file(tmp_path, name):
    """vllm#5907, smaller: the whole of a pass in a process of its own."""
    rows = torch.zeros(192, 131072, dtype=torch.float16)
    rows[:, 0] = 1
    path = WRITERS[name](tmp_path / name, {"target_logits": rows, "draft_logits": rows.clone()})
    code = (
        "import sys, resource; from resispec_verify.dumps import open_dump\n"
        "def peak(): return int(next(l for l in open('/proc/self/status') if "
        "l.startswith('VmHWM')).split()[1])\n"
        "before = peak(); dump = open_dump(sys.argv[1])\n"
        "for i in range(0, dump.positions, 2): dump.batch(i, i + 2)\n"
        "print((peak() - before) * 1024)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True, timeout=60
    )
    assert int(shown.stdout) < path.stat().st_size / 8


def test_labels_that_lie_about_their_size(tmp_path):
    """A few bytes may describe arrays of any size: nothing is built from them."""
    value = logit_pair(2, 3) | {"candidates": torch.zeros(1, dtype=torch.int64).expand(2, 10**12)}
    assert "candidates is an expanded tensor" in refused(saved(tmp_path / "x.pt", value), open_dump)
    value = logit_pair(2, 3) | {"meta": {"sampling": {"temperature": torch.ones(1).expand(10**12)}}}
    assert "1000000000000 entries" in refused(saved(tmp_path / "x.pt", value), open_dump)
    one = torch.zeros(1, 3).expand(10**12, 3)
    value = {"target_logits": one, "draft_logits": one}
    assert "expanded tensors" in refused(saved(tmp_path / "x.pt", value), open_dump)
    wide = torch.zeros(1, 1).expand(2, 10**12)
    value = {"target_logits": torch.zeros(2, 3), "draft_logits": wide}
    assert "expanded tensor" in refused(saved(tmp_path / "x.pt", value), open_dump, pad_vocab=True)
    assert "expanded tensor" in refused(saved(tmp_path / "x.pt", {"target_logits": one}), open_target)
    value = logit_pair(2, 3) | {"draft_logits": torch.randn(1, 3).expand(2, 3)}
    assert np.ptp(open_dump(saved(tmp_path / "x.pt", value)).batch(0, 2).draft, axis=0).max() == 0


@pytest.mark.parametrize("point", [0x110000, 0x8AEB007D, 0xFFFFFFFF])
def test_text_that_is_none(tmp_path, point):
    bad = np.frombuffer(struct.pack("<2I", point, 65), "<U1")
    path = tmp_path / "x.npz"
    np.savez(path, dataset=bad, **{key: value.numpy() for key, value in logit_pair(2, 3).items()})
    assert "not Unicode" in refused(path, open_dump)
    np.savez(path, meta=bad[:1].reshape(()))
    assert "not Unicode" in refused(path)
    text = np.str_("abc")
    whole = saved(tmp_path / "x.pt", {"meta": {"a": text, "b": np.array(["abc"])}}).read_bytes()
    held = "abc".encode("utf-32-le")
    assert whole.count(held) >= 1
    (tmp_path / "x.pt").write_bytes(whole.replace(held, struct.pack("<I", point) + held[4:]))
    with contextlib.suppress(InputError):  # the text in the array is not looked at
        assert load_mapping(tmp_path / "x.pt")["meta"]["a"] == "abc"


def test_text_that_cannot_be_written(tmp_path):
    assert "cannot be written" in refused(
        saved(tmp_path / "x.pt", logit_pair(2, 3) | {"dataset": "\ud800"}), open_dump
    )


def test_stacked_rounds(tmp_path):
    """Formats without lists of dicts."""
    arrays = {
        "draft_tokens": torch.tensor([[1, 2], [0, 3]]),
        "draft_logits": torch.randn(2, 2, 5),
        "target_logits": torch.randn(2, 3, 5),
        "accepted": torch.tensor([1, 2]),
        "next_token": torch.tensor([4, 0]),
        "u": torch.tensor([[0.5, 0.25], [0.0, 0.75]], dtype=torch.float64),
    }
    for path in (
        saved_npz(tmp_path / "x.npz", arrays),
        saved_safetensors(tmp_path / "x.safetensors", arrays),
    ):
        dump = open_rounds(path)
        assert [one.accepted for one in dump.rounds] == [1, 2]
        assert [one.next_token for one in dump.rounds] == [4, 0]
        assert dump.rounds[1].u.tolist() == [0.0, 0.75]
        assert np.array_equal(dump.logits(1).target, arrays["target_logits"][1].numpy())
        assert "is a rounds dump" in refused(path, open_dump)
    short = arrays | {"accepted": torch.tensor([1])}
    assert "one entry a round" in refused(saved_npz(tmp_path / "x.npz", short))


def test_suffixes(tmp_path):
    buffer = io.BytesIO()
    torch.save(logit_pair(2, 3), buffer)
    (tmp_path / "x.PT").write_bytes(buffer.getvalue())
    assert open_dump(tmp_path / "x.PT").positions == 2
    (tmp_path / "x.bin").write_bytes(b"_logit")
    assert "llama.cpp" in refused(tmp_path / "x.bin")
