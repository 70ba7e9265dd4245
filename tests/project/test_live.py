"""The live audits' own code that needs no engine: a draft made of a target by leaving layers out."""

import sys
from pathlib import Path

import numpy as np
import pytest

gguf = pytest.importorskip("gguf", reason="a draft is written with the package gguf")

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "engines" / "live"))
import make_draft  # noqa: E402


@pytest.fixture
def target(tmp_path):
    """Four layers, each with its number as weights, and a tokenizer of three tokens."""
    path = tmp_path / "target.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(4)
    writer.add_token_list(["a", "b", "c"])
    writer.add_token_types([1, 1, 3])
    writer.add_add_bos_token(False)
    writer.add_tensor("token_embd.weight", np.ones((3, 32), np.float32))
    for layer in range(4):
        writer.add_tensor(f"blk.{layer}.attn_q.weight", np.full((32, 32), layer, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_layers_are_left_out_and_the_others_renumbered(target, tmp_path):
    out = tmp_path / "draft.gguf"
    make_draft.write_draft(target, out, (1,))
    make_draft.check_draft(target, out, (1,))
    found = gguf.GGUFReader(out)
    weights = {tensor.name: float(tensor.data.flat[0]) for tensor in found.tensors}
    assert weights == {
        "token_embd.weight": 1.0,
        "blk.0.attn_q.weight": 0.0,
        "blk.1.attn_q.weight": 2.0,
        "blk.2.attn_q.weight": 3.0,
    }
    assert found.fields["llama.block_count"].contents() == 3
    assert found.fields["tokenizer.ggml.tokens"].contents() == ["a", "b", "c"]
    assert found.fields["tokenizer.ggml.token_type"].contents() == [1, 1, 3]


def test_other_layers_than_said_are_noticed(target, tmp_path):
    out = tmp_path / "draft.gguf"
    make_draft.write_draft(target, out, (1,))
    with pytest.raises(ValueError, match=r"another blk\.1"):
        make_draft.check_draft(target, out, (2,))


def test_a_layer_that_is_not_there(target, tmp_path):
    with pytest.raises(ValueError, match="layers 0 to 3"):
        make_draft.write_draft(target, tmp_path / "draft.gguf", (4,))
