"""Medusa: `evaluate_posterior` on trees, then the root of the next round by `generate_candidates`."""

from survey import Configuration, Engine, Judgement
from toys import TREE_SETTINGS, TREES, paths_of, randomness


def _sampler(**options):
    def sampler(targets, drafts, tokens, parents, rng):
        import numpy as np
        import torch
        from medusa.model import utils

        utils.TOPK = 1  # of its heads, which are not used here, and whose 10 best are more than there are
        paths = paths_of(parents)
        out = np.full((len(tokens), paths.shape[1]), -1)
        known = np.pad(tokens, ((0, 0), (1, 1)))  # the root, the nodes, and its 0 for the end of a path
        heads, root = torch.zeros(1, 1, 1, targets.shape[-1]), torch.tensor([0])
        with randomness(rng):
            for row in range(len(tokens)):
                logits = torch.from_numpy(targets[row]).log().float()[paths]
                candidates = torch.from_numpy(known[row][paths])
                best, accepted = utils.evaluate_posterior(logits, candidates, 1.0, **options)
                last = logits[None, best, accepted : accepted + 1].clone()
                new, _ = utils.generate_candidates(heads, last, root, root[None], 1.0, **options)
                out[row, : int(accepted)] = candidates[best, 1 : int(accepted) + 1]
                out[row, int(accepted)] = new
        return out

    return sampler


def _row(name, what, judgement, **options):
    settings = {**TREE_SETTINGS, "proposal": "top"}
    return Configuration(name, what, _sampler(**options), "tree", settings, TREES, NOTE, judgement)


NOTE = "the tree is handed in; the token after it is the root of the next round"
ENGINE = Engine(
    "Medusa",
    (
        _row(
            "typical-fast",
            "typical, fast, temperature 1",
            Judgement(
                "lossy by design",
                "Accepts what is likely enough, and takes the best token for the next root; its "
                "README says that it does not match the distribution.",
            ),
            sampling="typical",
            fast=True,
        ),
        _row(
            "typical-slow",
            "typical, not fast, temperature 1",
            Judgement(
                "fault",
                "Cannot be called: six arguments for a function of five.",
                "medusa_slow_typical",
                "none found",
            ),
            sampling="typical",
            fast=False,
        ),
        _row(
            "nucleus",
            "nucleus, top_p 1, temperature 1",
            Judgement(
                "lossy by design",
                "Each path compares with draws of its own, and on a mismatch the next root is "
                "drawn once more from the whole law, so that candidates come too often; its "
                "README does not promise the distribution.",
            ),
            sampling="nucleus",
            top_p=1.0,
        ),
    ),
    repository="FasterDecoding/Medusa",
    commit="e2a5d20c048a9b0a4092e6933c34313687422518",
    needs=("torch==2.13.0",),
)
