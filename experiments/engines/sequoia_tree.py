"""Sequoia: `SpecTree` on toy engines, two branches of two tokens; a tree a text, or as many as a text takes."""

import sys
from functools import partial
from types import ModuleType, SimpleNamespace

from survey import Configuration, Engine
from toys import INPUTS, SETTINGS, text_rows

WIDTH = 64  # tokens of its buffers
# The root, its two children, a child of each.
SUCCESSORS = [[1, 2], [3], [4], [], []]
BRANCHES, ROOTS, DEPTH = [[2], [1, 1]], [[0], [1, 2], [3, 4]], [0, 1, 1, 2, 2]
# It ends a text at tokens 0 and 2.
RESERVED = 3


def grown(make, target, draft, prompt, sampling):
    """A tree of theirs at its root: ``make`` is the class, ``sampling`` draws the children of a node."""
    import torch

    engines = []
    for laws in (draft, target):
        logits = torch.from_numpy(laws).log().half()
        run = partial(_logits, logits)
        cache = SimpleNamespace(gather_kv_incremental=lambda *_: None)
        inner = SimpleNamespace(max_length=WIDTH, kv_cache=cache)
        engines.append(
            SimpleNamespace(engine=inner, inference=run, graph_inference=run, dtype=torch.float16)
        )
    mask = torch.eye(5) + torch.eye(5)[[0, 0, 0, 1, 2]] + torch.eye(5)[[0] * 5]
    grow_map = {
        "roots": ROOTS, "branches": BRANCHES, "Successors": SUCCESSORS, "size": 5,
        "depth": torch.tensor(DEPTH), "mask": (mask > 0).float(),
    }  # fmt: skip
    from utils import get_residual

    ids = [torch.arange(2), torch.arange(2)]
    return make(
        *engines, torch.tensor(prompt), 1.0, 1.0, max_length=WIDTH, vocab_size=len(target),
        grow_map=grow_map, attn_mask=torch.zeros(WIDTH, WIDTH, dtype=torch.float16),
        position_ids=torch.zeros(WIDTH, dtype=torch.long), residual_graph=get_residual,
        sampling_callables=sampling, sample_gather_indices=ids,
    )  # fmt: skip


def _logits(logits, input_ids, **_):
    return logits[input_ids]


def text_of(tree, length, rounds):
    """New tokens after so many rounds at most."""
    start, new = tree.num_nodes, []
    for _ in range(rounds):
        tree.construct_grow_map()
        tokens, *_ = tree.verify()
        new = tokens[start:].tolist()
        if len(new) >= length:
            break
    return new


def imported(name):
    """A class of theirs. Their engines are named in annotations only, and want an old transformers."""
    module = ModuleType("Engine.Engine")
    module.GraphInferenceEngine = module.GraphInferenceEngineTG = object
    sys.modules.setdefault("Engine.Engine", module)
    from importlib import import_module

    return getattr(import_module(f"Tree.{name}"), name)


def loop(target, draft, prompt, length, rounds=WIDTH):
    """A `SpecTree` of its own for each text, as in its test bed."""
    from utils import sampling_without_replacement

    sampling = [partial(sampling_without_replacement, num_samples=n, temperature=1.0) for n in (2, 1)]
    return text_of(grown(imported("SpecTree"), target, draft, prompt, sampling), length, rounds)


def first(target, draft, prompt, length):
    """A tree a token."""
    return [loop(target, draft, prompt, 1, rounds=1)[0] for _ in range(length)]


NOTE = "float16 on the CPU; its CUDA graphs are the functions that they record, its engines toys"


def _row(name, what, sampler):
    return Configuration(name, what, sampler, "tokens", SETTINGS, INPUTS, NOTE)


ENGINE = Engine(
    "Sequoia",
    (
        _row("one-round", "SpecTree, a tree a token", text_rows(first, reserved=RESERVED)),
        _row("rounds", "SpecTree, rounds of a text", text_rows(loop, reserved=RESERVED)),
    ),
    repository="Infini-AI-Lab/Sequoia",
    commit="0ff3ff71475ca148f2dfb7545e0de5caf5c67b39",
    needs=("torch==2.13.0",),
)
