"""Laws and a drafted path as the arguments of vLLM's and SGLang's verification functions, without either."""

from __future__ import annotations

import os

import numpy as np
import pytest

from resispec_verify.adapters import sglang, vllm
from resispec_verify.errors import InputError
from resispec_verify.sampler_check.check import CheckSettings, check_sampler
from resispec_verify.sampler_check.sources.styles import named_inputs

torch = pytest.importorskip("torch")

ROWS, LENGTH, VOCAB = 3, 2, 4


@pytest.fixture
def block():
    """Laws, and paths of two, one and two tokens."""
    rng = np.random.default_rng(1)
    targets, drafts = (rng.dirichlet(np.ones(VOCAB), (ROWS, n)) for n in (LENGTH + 1, LENGTH))
    return targets, drafts, np.array([[3, 1], [2, -1], [0, 0]])


def close(tensor, wanted):
    return np.allclose(tensor.numpy(), wanted, rtol=1e-6)


def test_v1_has_a_row_for_every_drafted_token_of_all_requests(block):
    targets, drafts, path = block
    found = vllm.v1_arguments(targets, drafts, path, np.random.default_rng(0))
    assert found["draft_token_ids"].tolist() == [3, 1, 2, 0, 0]
    assert found["draft_token_ids"].dtype == found["cu_num_draft_tokens"].dtype == torch.int32
    assert found["num_draft_tokens"] == [2, 1, 2]
    assert found["cu_num_draft_tokens"].tolist() == [2, 3, 5]
    assert found["max_spec_len"] == LENGTH
    rows = [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]
    assert close(found["draft_probs"], [drafts[at] for at in rows])
    assert close(found["target_logits"].softmax(-1), [targets[at] for at in rows])
    assert found["bonus_token_ids"].shape == (ROWS, 1)
    assert vllm.v1_arguments(targets, None, path, np.random.default_rng(0))["draft_probs"] is None


def test_the_bonus_of_v1_comes_from_the_target_after_the_path(block):
    targets, drafts, path = block
    last = [(0, 2), (1, 1), (2, 2)]
    targets = targets.copy()
    for row, place in last:
        targets[row, place] = np.eye(VOCAB)[row + 1]
    for greedy in (False, True):
        found = vllm.v1_arguments(targets, drafts, path, np.random.default_rng(0), greedy=greedy)
        assert found["bonus_token_ids"].ravel().tolist() == [1, 2, 3]
        assert found["sampling_metadata"].all_greedy is greedy
    targets[0, 2] = [0.0, 0.25, 0.75, 0.0]
    rng = np.random.default_rng(0)
    drawn = [int(vllm.v1_arguments(targets, drafts, path, rng)["bonus_token_ids"][0, 0]) for _ in range(400)]
    assert set(drawn) == {1, 2}
    assert abs(drawn.count(2) / 400 - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 400)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_v2_has_a_row_more_and_drafts_before_temperature(block, temperature):
    targets, drafts, path = block
    found = vllm.v2_arguments(targets, drafts, path, np.random.default_rng(0), temperature=temperature)
    assert found["draft_sampled"].tolist() == [0, 3, 1, 0, 2, 0, 0, 0]
    assert found["cu_num_logits"].tolist() == [0, 3, 5, 8]
    assert found["expanded_idx_mapping"].tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert found["expanded_local_pos"].tolist() == [0, 1, 2, 0, 1, 0, 1, 2]
    rows = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert close(found["target_logits"].softmax(-1), [targets[at] for at in rows])
    assert close((found["draft_logits"] / temperature).softmax(-1), drafts)
    position = found["pos"] - found["expanded_local_pos"]
    assert [len(set(part.tolist())) for part in position.split([3, 2, 3])] == [1, 1, 1]
    assert len(set(found["seed"].tolist())) == ROWS
    assert found["num_speculative_steps"] == LENGTH


def test_results_of_vllm_are_padded_after_the_last_token():
    sampled, count = torch.tensor([[5, 6, 7], [8, 9, 9]]), torch.tensor([3, 1], dtype=torch.int32)
    assert vllm.emitted_v2((sampled, count)).tolist() == [[5, 6, 7], [8, -1, -1]]
    assert vllm.emitted_v1(torch.tensor([[5, -1, -1]], dtype=torch.int32)).tolist() == [[5, -1, -1]]


def test_sglang_has_a_slot_for_the_token_before_the_path(block):
    targets, drafts, path = block
    path = np.abs(path)
    found = sglang.chain_arguments(targets, drafts, path, np.random.default_rng(0))
    assert found["candidates"].tolist() == [[0, 3, 1], [0, 2, 1], [0, 0, 0]]
    assert found["retrive_index"].tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert found["retrive_next_token"].tolist() == [[1, 2, -1]] * ROWS
    assert close(found["target_probs"], targets)
    assert close(found["draft_probs"], drafts)
    for name in ("uniform_samples", "uniform_samples_for_final_sampling"):
        assert found[name].dtype == torch.float32
        assert found[name].max() < 1.0
    # As the kernel fills them in: the second path whole, the first up to its first token, of the third none.
    found["accept_token_num"][:] = torch.tensor([1, 2, 0])
    found["accept_index"][0, :2] = torch.tensor([0, 1])
    found["accept_index"][1] = torch.tensor([3, 4, 5])
    found["accept_index"][2, 0] = 6
    found["predicts"][:] = torch.tensor([3, 2, 99, 2, 1, 0, 1, 99, 99])
    assert sglang.emitted_chain(found).tolist() == [[3, 2, -1], [2, 1, 0], [1, -1, -1]]


def test_sglang_takes_no_paths_that_end_early(block):
    with pytest.raises(InputError, match="one length"):
        sglang.chain_arguments(*block, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("engine", "sampler"), [("vllm", vllm.block_v1), ("vllm", vllm.block_v2), ("sglang", sglang.block_chain)]
)
def test_engines_that_are_installed_are_not_rejected(engine, sampler):
    pytest.importorskip(engine, reason=f"{engine} is not installed", exc_type=ImportError)
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("Triton needs a CUDA device, or TRITON_INTERPRET=1")
    if engine == "vllm" and not torch.cuda.is_available():
        vllm.supply_log1p()
    settings = CheckSettings(style="block", draws=256, batches=(8,), boundary=False)
    assert check_sampler(sampler, settings, inputs=named_inputs(["bonus"], "block")).verdict == "not-rejected"
