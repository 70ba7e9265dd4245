"""A tree of candidates in one forward pass, over a plain forward pass of as many tokens.

    python benchmarks/tree_forward.py [--model FILE.gguf] [--topology d5b3] [--prompt 200] [--rounds 9]

Both come after the same cached prompt and give as many rows of logits: those of the nodes with children, and
the last ones of the plain pass. A decoding step also keeps the keys and values of a path. They are timed in
turns; the ratio is the median over the rounds, with its quartiles. Without a model: random weights in the
sizes of SmolLM2-135M, which take as long. The goal is a ratio below 3.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch

from resispec_verify.models.llama import Llama
from resispec_verify.models.llama_trees import LlamaTree
from resispec_verify.topology import Topology

GOAL = 3.0


def random_llama(blocks: int = 30, width: int = 576, inner: int = 1536, vocab: int = 49152) -> Llama:
    """Random weights in the sizes of SmolLM2-135M."""
    heads, kv_heads = 9, 3
    key = width // heads * kv_heads
    shapes = {"token_embd": (vocab, width), "output_norm": (width,)}
    for b in range(blocks):
        parts = {
            "attn_norm": (width,), "attn_q": (width, width), "attn_k": (key, width), "attn_v": (key, width),
            "attn_output": (width, width), "ffn_norm": (width,), "ffn_gate": (inner, width),
            "ffn_up": (inner, width), "ffn_down": (width, inner),
        }  # fmt: skip
        shapes |= {f"blk.{b}.{name}": shape for name, shape in parts.items()}
    torch.manual_seed(0)
    weights = {f"{name}.weight": 0.04 * torch.randn(shape) for name, shape in shapes.items()}
    return Llama(weights, tuple(range(blocks)), heads, kv_heads, 8192, 1e-5, 100000.0)


def load(path: Path | None) -> Llama:
    """The model of a file, or a random one."""
    if path is None:
        return random_llama()
    from resispec_verify.models.gguf_file import load_llama, open_gguf

    return load_llama(open_gguf(path), str(path))


def times(llama: Llama, topology: Topology, prompt: int, rounds: int) -> list[tuple[float, float, float]]:
    """Seconds of the plain pass, the tree's pass, and keeping a path, once a round; the first is dropped."""
    vocab = llama.output.shape[0]
    sequence = [(7919 * i + 11) % vocab for i in range(prompt)]
    tokens = [(104729 * i + 3) % vocab for i in range(topology.nodes)]
    inner = [node for node, children in enumerate(topology.children) if children]
    path = [0]
    while topology.children[path[-1]]:
        path.append(topology.children[path[-1]][-1])
    model, found = LlamaTree(llama), []
    past: dict = {}
    llama.logits(torch.tensor(sequence[:-1]), 1, past)
    for _ in range(rounds + 1):
        model.open(sequence[:-1])
        model.logits([0])
        model.advance([], sequence[-1:])
        model.grow(tokens[1:], topology.parents[1:])
        started = time.perf_counter()
        llama.logits(torch.tensor([sequence[-1], *tokens[1:]]), len(inner), dict(past)).numpy()
        plain = time.perf_counter()
        model.logits(inner)
        tree = time.perf_counter()
        model.advance(path[1:], [*(tokens[node] for node in path[1:]), 0])
        found.append((plain - started, tree - plain, time.perf_counter() - tree))
    return found[1:]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path)
    parser.add_argument("--topology", nargs="+", default=["d5b3", "d7b2", "d4b4"])
    parser.add_argument("--prompt", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args()
    llama = load(asked.model)
    print(f"prompt of {asked.prompt} tokens, {asked.rounds} rounds, {torch.get_num_threads()} threads")
    print("| tree | nodes | plain pass | tree's pass | keeping a path | tree / plain | quartiles | goal |")
    print("|---|---|---|---|---|---|---|---|")
    for text in asked.topology:
        topology = Topology.parse(text)
        found = times(llama, topology, asked.prompt, asked.rounds)
        plain, tree, keep = (statistics.median(column) for column in zip(*found, strict=True))
        low, ratio, high = statistics.quantiles([t / p for p, t, _ in found], n=4)
        print(
            f"| {text} | {topology.nodes} | {plain:.3f} s | {tree:.3f} s | {keep:.3f} s | {ratio:.2f} | "
            f"{low:.2f} to {high:.2f} | {'met' if ratio < GOAL else 'missed'} |"
        )


if __name__ == "__main__":
    main()
