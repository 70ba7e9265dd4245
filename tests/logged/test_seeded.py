"""Uniforms that engines draw by seed and position: their own values, and decisions without logged coins.

The reference values were written by the engines' own functions, run by Triton's interpreter (triton 3.9.0):
``tl_rand32`` and ``spec_step_seed`` of vLLM 0.33.0, ``murmur_hash32_kernel`` of SGLang 0.5.23.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tree_rounds import law, rounds

from resispec_verify import InputError, make_rule
from resispec_verify.api.replay import replay
from resispec_verify.logged.seeded import murmur3, sglang_coins, triton_rand, vllm_coins, with_seeded_uniforms
from resispec_verify.logged.tree_input import read_any_rounds


def test_philox_is_tritons():
    seeds = np.array([0, 1, 42, -1, 2**63 - 1, -(2**63), 42], np.int64)
    offsets = np.array([0, 1, 7, 100, 2**31, 2**33 + 5, 8], np.int64)
    expected = ("0x1.989fa2p-1", "0x1.4fdfaep-1", "0x1.6ef60cp-1", "0x1.53dee2p-2", "0x1.be6842p-1",
                "0x1.8211a0p-1", "0x1.ced6b4p-1")  # fmt: skip
    found = triton_rand(seeds, offsets)
    assert found.dtype == np.float32
    assert found.tolist() == [float.fromhex(x) for x in expected]


def test_block_verification_mixes_the_step_into_the_seed():
    assert vllm_coins(42, 7, 2).tolist() == [float.fromhex("0x1.6ef60cp-1"), float.fromhex("0x1.ced6b4p-1")]
    # seed 1 ^ (1 << 32) at position 1, and seed 42 ^ (2 << 32) at position 7
    assert float(vllm_coins(1, 0, 2, block=True)[1]) == float.fromhex("0x1.713f54p-3")
    assert float(vllm_coins(42, 5, 3, block=True)[2]) == float.fromhex("0x1.344aa4p-1")


def test_murmur_is_sglangs():
    words = [np.full(3, 42, np.uint64), np.zeros(3, np.uint64), np.full(3, 7, np.uint64)]
    hashed = murmur3([*words, np.arange(3, dtype=np.uint64)])
    assert hashed.tolist() == [0x661EB28D, 0x860D65EC, 0x1F1CC266]
    coins, last = sglang_coins(42, 7, 2)
    assert coins.tolist() == [float(np.float32(h / (2**32 - 1))) for h in (0x661EB28D, 0x860D65EC)]
    assert last == float(np.float32(0x1F1CC266 / (2**32 - 1)))


def chains(count, coins, vocab=10, g=3, **others):
    """Rounds of speculative sampling, decided with ``coins(context)``, which are not logged."""
    rng, found, context = np.random.default_rng(1), [], 5
    for _ in range(count):
        target = rng.normal(size=(g + 1, vocab)).astype(np.float32) * 2
        draft = target[:g] + rng.normal(size=(g, vocab)).astype(np.float32)
        p, q = np.stack([law(r) for r in target]), np.stack([law(r) for r in draft])
        tokens = [int(rng.choice(vocab, p=row)) for row in q]
        u, k = coins(context), 0
        while k < g and u[k] * q[k, tokens[k]] < p[k, tokens[k]]:
            k += 1
        left = p[g] if k == g else np.clip(p[k] - q[k], 0, None)
        entry = {"draft_tokens": torch.tensor(tokens), "draft_logits": torch.tensor(draft), "accepted": k,
                 "target_logits": torch.tensor(target), "context_len": context,
                 "next_token": int(rng.choice(vocab, p=left / left.sum()))}  # fmt: skip
        found.append(entry | others)
        context += k + 1
    return found


def saved(folder, entries, **others):
    path = folder / "rounds.pt"
    torch.save({"rounds": entries} | others, path)
    return path


def test_decisions_without_logged_coins_are_recomputed(tmp_path):
    entries = chains(40, lambda context: vllm_coins(123, context - 1, 3), seed=123)
    result = replay(saved(tmp_path, entries), uniforms="vllm").to_dict()["results"][0]
    assert result["decisions"] == result["agree"] > 60
    # Without the scheme there is nothing to recompute; with another seed, hardly anything agrees.
    assert replay(tmp_path / "rounds.pt").to_dict()["results"][0]["decisions"] == 0
    for entry in entries:
        del entry["seed"]
    stated = replay(saved(tmp_path, entries, meta={"seed": 123}), uniforms="vllm").to_dict()["results"][0]
    assert (stated["decisions"], stated["divergences"]) == (result["decisions"], 0)
    wrong = replay(saved(tmp_path, entries, meta={"seed": 124}), uniforms="vllm").to_dict()["results"][0]
    assert wrong["divergences"] > 10
    listed = saved(tmp_path, entries, meta={"seed": [123] * 40})
    assert replay(listed, uniforms="vllm").to_dict()["results"][0]["divergences"] == 0


def test_a_position_off_by_one_is_found(tmp_path):
    entries = chains(40, lambda context: vllm_coins(123, context, 3), seed=123)
    result = replay(saved(tmp_path, entries), uniforms="vllm").to_dict()["results"][0]
    assert result["divergences"] > 10


def test_sglangs_trees_and_chains_without_logged_coins(tmp_path):
    entries = rounds(30, rule="sglang", coins=lambda i: sglang_coins(-7, 7 + i, 7))
    for i, entry in enumerate(entries):
        entry |= {"context_len": 8 + i, "seed": 2**64 - 7}  # the same bits as -7
        del entry["u"], entry["u_next"]
    path = saved(tmp_path, entries)
    result = replay(path, rule="sglang", uniforms="sglang").to_dict()["results"][0]
    assert result["decisions"] == result["agree"] > 40
    assert result["next_tokens_redrawn"] == 30
    entries = chains(40, lambda context: sglang_coins(9, context - 1, 4)[0], seed=9)
    for entry in entries:
        del entry["next_token"]
    result = replay(saved(tmp_path, entries), uniforms="sglang").to_dict()["results"][0]
    assert result["decisions"] == result["agree"] > 60


@pytest.mark.parametrize(
    ("change", "scheme", "words"),
    [
        ({}, "torch", "must be one of vllm, sglang"),
        ({"u": torch.rand(3)}, "vllm", "round 0 has uniforms in u; leave --uniforms out"),
        ({"context_len": None}, "vllm", "round 0 has no seed or no context_len"),
        ({"seed": None}, "vllm", "round 0 has no seed or no context_len"),
        ({"seed": 0.5}, "vllm", "round 0: seed is a float"),
        ({"seed": 2**64}, "sglang", "18446744073709551616, outside"),
    ],
)
def test_what_cannot_be_recomputed(tmp_path, change, scheme, words):
    entries = [entry | change for entry in chains(2, lambda context: np.zeros(3), seed=1)]
    with pytest.raises(InputError) as caught:
        with_seeded_uniforms(read_any_rounds(saved(tmp_path, entries)), make_rule("speculative"), scheme)
    assert words in str(caught.value)


def test_vllm_verifies_no_trees(tmp_path):
    with pytest.raises(InputError, match="vLLM verifies chains"):
        with_seeded_uniforms(read_any_rounds(saved(tmp_path, rounds(2))), make_rule("eagle"), "vllm")
    entries = chains(2, lambda context: np.zeros(3))
    with pytest.raises(InputError, match="has 3 entries for 2 rounds"):
        with_seeded_uniforms(
            read_any_rounds(saved(tmp_path, entries, meta={"seed": [1, 2, 3]})),
            make_rule("speculative"),
            "vllm",
        )
