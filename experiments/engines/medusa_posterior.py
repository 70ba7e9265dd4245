"""Medusa: `evaluate_posterior` on a chain, then the root of the next round by `generate_candidates`."""

from survey import Configuration, Engine
from toys import randomness


def _sampler(**options):
    def sampler(targets, drafts, path, rng):
        import numpy as np
        import torch
        from medusa.model import utils

        utils.TOPK = 1  # its heads' 10 best are more than the tokens there are; not used here
        out = np.full((len(path), path.shape[1] + 1), -1)
        heads, root = torch.zeros(1, 1, 1, targets.shape[-1]), torch.tensor([0])
        fast = {"fast": options.get("fast", False)}
        with randomness(rng):
            logits = torch.from_numpy(targets).log().float()
            candidates = torch.from_numpy(np.pad(path, ((0, 0), (1, 0))))
            for row in range(len(path)):
                given = logits[row : row + 1]
                _, n = utils.evaluate_posterior(given, candidates[row : row + 1], 1.0, **{**options, **fast})
                new, _ = utils.generate_candidates(
                    heads, given[:, n : n + 1].clone(), root, root[None], 1.0, **{**options, **fast}
                )
                out[row, : int(n)] = path[row, : int(n)]
                out[row, int(n)] = int(new)
        return out

    return sampler


def _row(name, what, **options):
    settings = {"draws": 64_000, "seconds": 200.0}
    return Configuration(name, what, _sampler(**options), "block", settings, ("bonus", "random-3"), NOTE)


NOTE = "the path is handed in; the token after it is the root of the next round"
ENGINE = Engine(
    "Medusa",
    (
        _row("typical-fast", "typical, fast, temperature 1", sampling="typical", fast=True),
        _row("typical-slow", "typical, not fast, temperature 1", sampling="typical", fast=False),
        _row("nucleus", "nucleus, top_p 1, temperature 1", sampling="nucleus", top_p=1.0),
    ),
    repository="FasterDecoding/Medusa",
    commit="e2a5d20c048a9b0a4092e6933c34313687422518",
    needs=("torch==2.13.0",),
)
