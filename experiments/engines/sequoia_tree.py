"""Sequoia: `SpecTree` on toy engines, as a chain of two tokens and as two branches of two."""

import sys
from functools import partial
from types import ModuleType, SimpleNamespace

from survey import Configuration, Engine, Judgement
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


def sequoia_tree(shape, target, draft, prompt):
    """A `SpecTree`."""
    from utils import sampling_without_replacement

    widths = [max(n) for n in shape[2]]
    sampling = [partial(sampling_without_replacement, num_samples=n, temperature=1.0) for n in widths]
    return grown(imported("SpecTree"), shape, target, draft, prompt, sampling)


def _round(shape, *given):
    return text_of(sequoia_tree(shape, *given), given[-1], 1, rounds=1)


def _rule(*given):
    return by_rule(sequoia_tree(BRANCHES, *given))


def one_chain(target, draft, prompt, length):
    """One `SpecTree` for all rounds of a text, as in its test bed."""
    return text_of(sequoia_tree(CHAIN, target, draft, prompt), prompt, length)


OVERWRITTEN = (
    "The new token is written to the slot after the accepted ones before they are collected; where a node of "
    "the accepted path lies in that slot, its token is lost and the new one comes twice."
)
NOTE = "float16 on the CPU; its CUDA graphs are the functions that they record, its engines toys"


def row(name, what, loop, judgement):
    """A row of these trees."""
    return Configuration(
        name, what, texts(loop), "text", {**TEXT_SETTINGS, "offset": RESERVED}, TEXTS, NOTE, judgement
    )


ENGINE = Engine(
    "Sequoia",
    (
        row(
            "chains",
            "SpecTree, a chain of 2, a new one each round",
            fresh(partial(_round, CHAIN)),
            Judgement(
                "as claimed", "Not rejected where each round has new random numbers and the tree is a chain."
            ),
        ),
        row(
            "one-chain",
            "SpecTree, a chain of 2, one for a text, as its test bed has it",
            one_chain,
            Judgement(
                "fault",
                "All random numbers are drawn when the tree is made: a node draws its child, and "
                "is accepted, by the same ones in each round.",
                "sequoia_coins_once",
                "none found",
            ),
        ),
        row(
            "trees",
            "SpecTree, 2 branches of 2, a new one each round",
            fresh(partial(_round, BRANCHES)),
            Judgement("fault", OVERWRITTEN, "sequoia_overwritten_token", "none found"),
        ),
        row(
            "rule",
            "accept_step alone, 2 branches of 2, a new tree each round",
            fresh(_rule),
            Judgement("as claimed", "Not rejected: the rule is right, what is done with its result is not."),
        ),
    ),
    repository="Infini-AI-Lab/Sequoia",
    commit="0ff3ff71475ca148f2dfb7545e0de5caf5c67b39",
    needs=("torch==2.13.0",),
)
