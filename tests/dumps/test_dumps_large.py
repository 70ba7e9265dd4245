"""Offsets beyond 2^31 bytes, 2^32 bytes and 2^31 elements: files with a hole, one row of it written."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from resispec_verify.dumps import open_dump
from resispec_verify.dumps.fingerprint import fingerprint
from resispec_verify.record.pt_file import Tensor, _Pickler

VOCAB = 1 << 18
ROWS = 8196  # row 8192 begins at element 2^31, byte 2^32; row 4096 at byte 2^31
# Row 0 as well: rows of a hole are all alike, and opening looks at rows until one is in no order.
WRITTEN = (0, 4096, 8191, 8192, 8195)
BF16 = np.dtype(ml_dtypes.bfloat16)
SIZE = ROWS * VOCAB * BF16.itemsize
KEYS = ("target_logits", "draft_logits")


def row(key: int, position: int) -> np.ndarray:
    """What is written there: no two alike."""
    return np.random.default_rng((key, position)).normal(size=VOCAB).astype(BF16)


def fill(path: Path, starts: tuple[int, ...], size: int) -> Path:
    """Write the rows of each tensor at its start, in a file of so many bytes."""
    with open(path, "r+b") as file:
        file.truncate(size)
        for key, start in enumerate(starts):
            for position in WRITTEN:
                file.seek(start + position * VOCAB * BF16.itemsize)
                file.write(row(key, position).tobytes())
    if os.stat(path).st_blocks * 512 > SIZE:
        pytest.skip("this file system stores holes")
    return path


def safetensors(path: Path) -> Path:
    entry = {"dtype": "BF16", "shape": [ROWS, VOCAB]}
    spans = {key: entry | {"data_offsets": [i * SIZE, (i + 1) * SIZE]} for i, key in enumerate(KEYS)}
    header = json.dumps(spans).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    start = 8 + len(header)
    return fill(path, (start, start + SIZE), start + 2 * SIZE)


def zipped(path: Path, large: dict[str, bytes], small: dict[str, bytes]) -> Path:
    """A zip file with a hole behind the given first bytes of each large record."""
    with zipfile.ZipFile(path, "w") as archive:
        starts = []
        assert archive.fp is not None
        for name, first in large.items():
            info = zipfile.ZipInfo(name)
            info.file_size = info.compress_size = len(first) + SIZE
            info.CRC, info.header_offset = 0, archive.fp.tell()  # of mapped arrays the sum is not read
            archive.fp.write(info.FileHeader(zip64=True) + first)
            starts.append(archive.fp.tell())
            archive.fp.seek(SIZE, os.SEEK_CUR)
            archive.start_dir = archive.fp.tell()
            archive.filelist.append(info)
            archive.NameToInfo[name] = info
        for name, data in small.items():
            archive.writestr(name, data)
    return fill(path, tuple(starts), path.stat().st_size)


def npz(path: Path) -> Path:
    text = f"{{'descr': 'bfloat16', 'fortran_order': False, 'shape': ({ROWS}, {VOCAB}), }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    first = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
    return zipped(path, {f"{key}.npy": first for key in KEYS}, {})


def pt(path: Path) -> Path:
    data = io.BytesIO()
    _Pickler(data, {}).dump({key: Tensor(i, BF16, (ROWS, VOCAB)) for i, key in enumerate(KEYS)})
    small = {"data.pkl": data.getvalue(), "version": b"3\n", "byteorder": b"little"}
    storages = {f"archive/data/{i}": b"" for i in range(len(KEYS))}
    return zipped(path, storages, {f"archive/{name}": value for name, value in small.items()})


@pytest.mark.parametrize("write", [safetensors, npz, pt])
def test_rows_behind_large_offsets_are_the_rows_that_were_written(tmp_path, write):
    path = write(tmp_path / f"large.{write.__name__}")
    dump = open_dump(path)
    assert dump.target.shape == dump.draft.shape == (ROWS, VOCAB)
    assert dump.dtype == "bfloat16"
    for position in WRITTEN:
        batch = dump.batch(position, position + 1)
        for key, found in enumerate((batch.target, batch.draft)):
            assert found.dtype == np.float32
            assert np.array_equal(found[0], row(key, position).astype(np.float32)), (key, position)
    # A batch that goes over the border, and the hole beside it.
    batch = dump.batch(8190, 8194)
    assert np.array_equal(batch.draft[1:3], np.stack([row(1, 8191), row(1, 8192)]).astype(np.float32))
    assert not batch.draft[0].any()
    assert not batch.target[3].any()


def test_a_digest_of_samples_reads_both_ends_of_a_large_file(tmp_path):
    path = safetensors(tmp_path / "large.safetensors")
    before = fingerprint(path, whole=False)
    assert before.size == path.stat().st_size > 2**33
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    assert fingerprint(path, whole=False) != before


def test_a_whole_digest_finds_any_changed_byte_and_a_digest_of_samples_does_not_claim_to(tmp_path):
    path = tmp_path / "some.pt"
    data = bytearray(np.random.default_rng(0).bytes(8 << 20))
    path.write_bytes(data)
    whole, samples = fingerprint(path, whole=True), fingerprint(path, whole=False)
    data[5_000_000] ^= 1  # between two samples
    path.write_bytes(data)
    assert fingerprint(path, whole=True) != whole
    assert fingerprint(path, whole=False) == samples
    path.write_bytes(data + b"\0")
    assert fingerprint(path, whole=False) != samples
    seen = []
    fingerprint(path, whole=True, advance=seen.append)
    assert sum(seen) == len(data) + 1
