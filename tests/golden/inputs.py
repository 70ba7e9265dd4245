"""The small files that the golden commands read, the same on every machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parents[2]

OWN_RULE = '''"""A rule of one's own."""
from dataclasses import dataclass

from resispec_verify import Rule, State
from resispec_verify.kernels.elementwise.residuals import standard_residual


@dataclass(frozen=True)
class Greedy(Rule):
    name = "own"
    claims_exact = False
    source = "here"
    depends_on = "nothing"

    def accept(self, state):
        return state.draft * 0 + 0.5

    def reject(self, state, tokens):
        return State(standard_residual(state.residual, state.draft), state.draft, state.round + 1)
'''

SAMPLERS = '''"""Samplers: one right, one that keeps what it should not."""
import numpy as np


def pick(law, rng):
    edges = np.cumsum(law, axis=-1)
    last = law.shape[-1] - 1 - np.argmax(law[:, ::-1] > 0, axis=-1)
    return np.minimum((edges <= (rng.random(len(law)) * edges[:, -1])[:, None]).sum(-1), last)


def right(target, draft, rng):
    return pick(target, rng)


def keeps(target, draft, rng):
    return pick(draft, rng)
'''


def rows(seed: int, *shape: int) -> np.ndarray:
    """Logits, drawn."""
    return np.random.default_rng(seed).normal(scale=2, size=shape).astype(np.float32)


def logs(*laws: tuple[float, ...]) -> torch.Tensor:
    """Logits of laws."""
    return torch.tensor(laws, dtype=torch.float64).log()


def write(folder: Path) -> None:
    """Write all inputs into a folder."""
    shutil.copy(ROOT / "examples" / "smollm2-skip6-N8-fp16.pt", folder / "example.pt")
    for name in ("on", "off"):
        shutil.copy(ROOT / "examples" / f"completions-{name}.jsonl", folder / f"{name}.jsonl")
    flat = {"target_logits": rows(1, 5, 6), "draft_logits": rows(2, 5, 6)}
    np.savez(folder / "dump.npz", **flat)
    torch.save({k: torch.from_numpy(v) for k, v in flat.items()}, folder / "dump.pt")
    np.savez(folder / "narrow.npz", target_logits=rows(1, 3, 6), draft_logits=rows(2, 3, 5))
    np.savez(folder / "nan.npz", target_logits=np.full((2, 4), np.nan), draft_logits=rows(2, 2, 4))
    law = np.exp(rows(3, 2, 5))
    law /= law.sum(-1, keepdims=True)
    np.savez(folder / "laws.npz", target_logits=law, draft_logits=law[::-1])
    for name, seed in (("a", 4), ("b", 5)):
        np.savez(folder / f"{name}.npz", target_logits=rows(seed, 4, 6))
    (folder / "broken.pt").write_bytes(b"PK\x03\x04 not a dump")
    law, draft = (0.5, 0.3, 0.2), (0.6, 0.3, 0.1)
    entry = {"draft_logits": logs(draft), "target_logits": logs(law, law)}
    for name, second in (("right", 0), ("wrong", 1)):
        entries = [
            entry
            | {"draft_tokens": torch.tensor([t]), "accepted": a, "u": torch.tensor([u]), "next_token": 2}
            for t, a, u in ((0, 1, 0.5), (0, second, 0.9))
        ]
        torch.save({"rounds": entries}, folder / f"{name}.pt")
    decisions = [
        {"p": p, "q": 0.625, "accepted": a, "u": u, "round": i, "depth": 0, "reported": -0.5}
        for i, (p, a, u) in enumerate(
            ((0.5123456789, True, 0.4012345678), (0.3, False, 0.9), (0.3, True, 0.9))
        )
    ]
    text = "".join(json.dumps(line) + "\n" for line in decisions)
    listed = '{"ids": [4, 7], "logprobs": [-0.25, -2.0], "ranked": 2, "next": 4, "position": 3}'
    (folder / "laws.jsonl").write_text(listed + "\n", encoding="utf-8")
    (folder / "decisions.jsonl").write_text(text, encoding="utf-8")
    parent = (-1, 0, 0, 1, 1, 2, 2)
    tokens = np.random.default_rng(6).integers(6, size=(3, len(parent)))
    torch.save(
        {
            "parent": torch.tensor(parent),
            "tokens": torch.from_numpy(tokens),
            "target_logits": torch.from_numpy(rows(7, 3, 3, 6)),
            "draft_logits": torch.from_numpy(rows(8, 3, 3, 6)),
        },
        folder / "tree.pt",
    )
    (folder / "own.py").write_text(OWN_RULE)
    (folder / "samplers.py").write_text(SAMPLERS)
    words = {chr(97 + i): i for i in range(6)}
    tokenizer = {"model": {"type": "BPE", "vocab": words, "merges": []}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
