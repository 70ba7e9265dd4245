"""What Sequoia's and SpecHub's trees need to be run: toy engines, and rounds of them as texts."""

import sys
from functools import partial
from types import ModuleType, SimpleNamespace

from survey import Configuration
from toys import TEXT_SETTINGS, TEXTS, texts

WIDTH = 64  # tokens of its buffers
# Children of each node, the root first; nodes of each depth; how many children they get; depth of each node.
CHAIN = [[1], [2], []], [[0], [1], [2]], [[1], [1]], [0, 1, 2]
BRANCHES = [[1, 2], [3], [4], [], []], [[0], [1, 2], [3, 4]], [[2], [1, 1]], [0, 1, 1, 2, 2]
# It ends a text at tokens 0 and 2.
RESERVED = 3


def grown(make, shape, target, draft, prompt, sampling):
    """A tree of theirs, not yet grown: ``make`` is the class, ``sampling`` draws the children of a depth."""
    import torch
    from utils import get_residual

    engines = []
    for laws in (draft, target):
        run = partial(_logits, torch.from_numpy(laws).log().half())
        cache = SimpleNamespace(gather_kv_incremental=lambda *_: None)
        inner = SimpleNamespace(max_length=WIDTH, kv_cache=cache)
        engines.append(SimpleNamespace(engine=inner, inference=run, graph_inference=run, dtype=torch.float16))
    successors, roots, branches, depth = shape
    mask = torch.ones(len(depth), len(depth))  # the toy engines look at the last token only
    grow_map = {
        "roots": roots, "branches": branches, "Successors": successors, "size": len(depth),
        "depth": torch.tensor(depth), "mask": mask,
    }  # fmt: skip
    return make(
        *engines, torch.tensor(prompt), 1.0, 1.0, max_length=WIDTH, vocab_size=len(target),
        grow_map=grow_map, attn_mask=torch.zeros(WIDTH, WIDTH, dtype=torch.float16),
        position_ids=torch.zeros(WIDTH, dtype=torch.long), residual_graph=get_residual,
        sampling_callables=sampling, sample_gather_indices=[torch.arange(sum(n)) for n in branches],
    )  # fmt: skip


def _logits(logits, input_ids, **_):
    return logits[input_ids]


def text_of(tree, prompt, length, rounds=WIDTH):
    """New tokens after so many rounds at most."""
    text = []
    for _ in range(rounds):
        tree.construct_grow_map()
        tokens, *_, ended = tree.verify()
        text = tokens[len(prompt) :].tolist()
        if ended or len(text) >= length:
            break
    return text


def by_rule(tree):
    """The tokens of one round by its `accept_step`, without what `verify` does with them afterwards."""
    import torch

    tree.construct_grow_map()
    start = tree.num_nodes - tree.tree_size
    tree.target_logits = tree.target_model_engine.inference(tree.tokens[start : tree.num_nodes])
    tree.target_logits = torch.softmax(tree.target_logits, dim=-1)
    path = [start]
    while True:
        node, residual = tree.accept_step(path[-1])
        if node == -1:
            return [*tree.tokens[path[1:]].tolist(), int(residual.multinomial(1))]
        path.append(node)


def imported(name):
    """A class of theirs. Their engines are named in annotations only, and want an old transformers."""
    module = ModuleType("Engine.Engine")
    module.GraphInferenceEngine = module.GraphInferenceEngineTG = object
    sys.modules.setdefault("Engine.Engine", module)
    from importlib import import_module

    return getattr(import_module(f"Tree.{name}"), name)


def fresh(round_of):
    """A text of rounds, each with a tree of its own: ``round_of(target, draft, text)`` gives its tokens."""

    def loop(target, draft, prompt, length):
        text = list(prompt)
        while len(text) < len(prompt) + length:
            text += round_of(target, draft, text)
        return text[len(prompt) :]

    return loop


OVERWRITTEN = (
    "The new token is written to the slot after the accepted ones before they are collected; where a node of "
    "the accepted path lies in that slot, its token is lost and the new one comes twice."
)
# For judgements: what torch.multinomial does on the CPU in float16, whose least number above 0 is 2^-24.
MULTINOMIAL = (
    "In float16 on the CPU torch.multinomial itself draws a token of probability 0 where its exponential "
    "rounds to 0, once in some 2^25 uniforms."
)
NOTE = "float16 on the CPU; its CUDA graphs are the functions that they record, its engines toys"


def row(name, what, loop, judgement):
    """A row of these trees."""
    return Configuration(
        name, what, texts(loop), "text", {**TEXT_SETTINGS, "offset": RESERVED}, TEXTS, NOTE, judgement
    )
