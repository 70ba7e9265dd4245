"""Uniforms that were not logged, where an engine draws them as a function of a request's seed and a position.

``vllm``
    vLLM 0.33, GPU model runner V2: ``v1/worker/gpu/spec_decode/rejection_sampler_utils.py`` compares draft i
    with ``max(tl.rand(seed, position), 2^-31)`` (``tl_rand32`` in ``v1/worker/gpu/sample/gumbel.py``):
    Triton's Philox 4x32 of ten rounds, where position is that of the token before draft i; block verification
    puts i into the upper half of the seed (``spec_step_seed``). What follows the drafts is drawn by a Gumbel
    race, which has no uniform to invert. Its model runner V1 draws from a generator that it keeps for a
    request, or from the device's: what it gives depends on everything drawn before, and is not recomputed.
``sglang``
    SGLang 0.5.23, ``_seeded_verify_coins`` of ``srt/speculative/eagle_utils.py``, where a sampling seed is
    set: MurmurHash3 of seed, sequence length without drafts, and column, over ``2^32 - 1``. Column j is the
    coin of node j (of draft j in a chain), and the column after the last node that of the final draw, which
    inverts the cumulative sum in token order.

A round needs `context_len`, the tokens before its drafts, and a seed: its own, or that of ``meta["seed"]``,
one for all or one a round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from resispec_verify.dumps import load_mapping
from resispec_verify.dumps.kinds.values import integer
from resispec_verify.errors import InputError
from resispec_verify.logged.rounds_input import Rounds
from resispec_verify.logged.tree_input import TreeRounds
from resispec_verify.rules import Block, Rule

__all__ = ["SCHEMES", "murmur3", "sglang_coins", "triton_rand", "vllm_coins", "with_seeded_uniforms"]

SCHEMES = ("vllm", "sglang")

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_LEAST = np.float32(4.6566127342e-10)  # vLLM's, and Triton's scale of a 31-bit integer
_LARGEST = np.float32(1 - 2.0**-24)  # the largest float32 below 1, to which SGLang clamps


def _words(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lower and upper 32 bits of int64 values, as uint64."""
    bits = np.asarray(values, np.int64).view(np.uint64)
    return bits & _LOW, bits >> _HALF


def triton_rand(seeds: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """``tl.rand(seed, offset)`` of int64 seeds and offsets ``(n,)``: Philox 4x32, ten rounds; float32.

    Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
    """
    k0, k1 = _words(seeds)
    c0, c1 = _words(offsets)
    c2, c3 = np.zeros_like(c0), np.zeros_like(c0)
    a, b = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
    for _ in range(10):
        left, right = a * c0, b * c2
        c0, c1, c2, c3 = (right >> _HALF) ^ c1 ^ k0, right & _LOW, (left >> _HALF) ^ c3 ^ k1, left & _LOW
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & _LOW, (k1 + np.uint64(0xBB67AE85)) & _LOW
    signed = c0.astype(np.uint32).view(np.int32)
    return np.where(signed < 0, ~signed, signed).astype(np.float32) * _LEAST


def murmur3(words: list[np.ndarray]) -> np.ndarray:
    """MurmurHash3 (x86, 32 bits, seed 0) of 32-bit words, each uint64 ``(n,)``; uint64 ``(n,)``."""

    def rotated(x: np.ndarray, by: int) -> np.ndarray:
        return ((x << np.uint64(by)) | (x >> np.uint64(32 - by))) & _LOW

    h = np.zeros_like(words[0])
    for word in words:
        k = rotated((word * np.uint64(0xCC9E2D51)) & _LOW, 15)
        h = rotated(h ^ ((k * np.uint64(0x1B873593)) & _LOW), 13)
        h = (h * np.uint64(5) + np.uint64(0xE6546B64)) & _LOW
    h = h ^ np.uint64(4 * len(words))
    h = ((h ^ (h >> np.uint64(16))) * np.uint64(0x85EBCA6B)) & _LOW
    h = ((h ^ (h >> np.uint64(13))) * np.uint64(0xC2B2AE35)) & _LOW
    return h ^ (h >> np.uint64(16))


def vllm_coins(seed: int, position: int, count: int, block: bool = False) -> np.ndarray:
    """The uniforms of `count` drafts that follow the token at a position, float32."""
    steps = np.arange(count, dtype=np.int64)
    seeds = np.full(count, seed, np.int64)
    if block:
        seeds = seeds ^ (steps << 32)
    return np.maximum(triton_rand(seeds, position + steps), _LEAST)


def sglang_coins(seed: int, length: int, nodes: int) -> tuple[np.ndarray, float]:
    """The coins of the nodes of a tree, float32, and of the draw after them."""
    low, high = _words(np.full(nodes + 1, seed, np.int64))
    columns = np.arange(nodes + 1, dtype=np.uint64)
    hashed = murmur3([low, high, np.full(nodes + 1, length, np.uint64), columns])
    coins = np.minimum((hashed / np.float64(2**32 - 1)).astype(np.float32), _LARGEST)
    return coins[:nodes], float(coins[nodes])


def with_seeded_uniforms(rounds: Rounds, rule: Rule | Block, scheme: str) -> Rounds:
    """The same rounds with the uniforms that an engine drew by seed and position.

    Raises
    ------
    InputError
        An unknown scheme, a round that has logged uniforms or lacks `context_len` or a seed, or trees where
        the engine verifies chains.
    """
    if scheme not in SCHEMES:
        raise InputError(f"--uniforms must be one of {', '.join(SCHEMES)}, got {scheme}")
    if scheme == "vllm" and isinstance(rounds, TreeRounds):
        raise InputError(f"{rounds.path}: vLLM verifies chains, and these rounds are over trees")
    entries = _raw(rounds)
    found = []
    for r, (entry, raw) in enumerate(zip(rounds.rounds, entries, strict=True)):
        where = f"{rounds.path}: round {r}"
        if entry["u"] is not None:
            raise InputError(f"{where} has uniforms in u; leave --uniforms out, and those are used")
        seed, position = raw
        g = len(entry["draft_tokens"])
        new = dict(entry)
        if scheme == "vllm":
            new["u"] = vllm_coins(seed, position, g, isinstance(rule, Block)).astype(np.float64)
        else:
            nodes = len(entry["tree"].tokens) if isinstance(rounds, TreeRounds) else g + 1
            coins, last = sglang_coins(seed, position, nodes)
            new["u"] = (coins if isinstance(rounds, TreeRounds) else coins[:g]).astype(np.float64)
            new["u_next"] = np.asarray([last]) if entry["next_token"] is not None else None
        found.append(new)
    return replace(rounds, rounds=found)


def _raw(rounds: Rounds) -> list[tuple[int, int]]:
    """Seed and position of the token before the drafts, by round."""
    mapping = load_mapping(rounds.path)
    meta = mapping.get("meta")
    stated = meta.get("seed") if isinstance(meta, Mapping) else None
    listed = np.asarray(stated).tolist() if isinstance(stated, (list, tuple, np.ndarray)) else None
    if isinstance(listed, list) and len(listed) != len(rounds.rounds):
        raise InputError(
            f"{rounds.path}: meta['seed'] has {len(listed)} entries for {len(rounds.rounds)} rounds; state "
            "one for all, or one a round"
        )
    found = []
    for r, entry in enumerate(mapping["rounds"]):
        where = f"{rounds.path}: round {r}"
        seed: Any = entry.get("seed")
        if seed is None:
            seed = listed[r] if isinstance(listed, list) else stated
        if seed is None or entry.get("context_len") is None:
            raise InputError(
                f"{where} has no seed or no context_len, of which the uniforms are a function; log the seed "
                "of the request (in the round, or as meta['seed']) and the tokens before the drafts"
            )
        length = integer(f"{where}: context_len", entry["context_len"], 1, 2**31 - 1)
        found.append((_signed(integer(f"{where}: seed", seed, -(2**63), 2**64 - 1)), length - 1))
    return found


def _signed(seed: int) -> int:
    """The int64 of the same bits: engines keep seeds as either."""
    return seed - 2**64 if seed >= 2**63 else seed
