"""EAGLE (1 to 3): `evaluate_posterior` on a chain, on siblings, and the draw after it, at temperature 1."""

from survey import Configuration, Engine
from toys import INPUTS, SETTINGS, randomness

ROOT = 0  # stands for the last token of the text; it is not looked at


def _verified(logits, candidates):
    """Tokens accepted of the candidates ``(paths, 1 + L)``, whose first is the root; and one more."""
    import torch
    from eagle.model import utils

    best, accepted, law = utils.evaluate_posterior(
        logits, candidates, utils.prepare_logits_processor(temperature=1.0)
    )
    # As `update_inference_inputs` draws the token after.
    last = torch.multinomial(law, 1)
    return [*candidates[best, 1 : accepted + 1].tolist(), int(last)]


def chain(targets, drafts, path, rng):
    """One path; the draft counts as a point mass."""
    import numpy as np
    import torch

    out = np.full((len(path), path.shape[1] + 1), -1)
    with randomness(rng):
        logits = torch.from_numpy(targets).log().float()
        candidates = torch.from_numpy(np.pad(path, ((0, 0), (1, 0)), constant_values=ROOT))
        for row in range(len(path)):
            new = _verified(logits[row : row + 1], candidates[row : row + 1])
            out[row, : len(new)] = new
    return out


def siblings(target, draft, candidates, rng):
    """Paths of one token from one root."""
    import numpy as np
    import torch

    out = np.empty(len(target), dtype=np.int64)
    with randomness(rng):
        logits = torch.from_numpy(target).log().float()
        paths = torch.from_numpy(np.pad(candidates[..., None], ((0, 0), (0, 0), (1, 0)), constant_values=ROOT))
        for row, path in enumerate(paths):
            out[row] = _verified(logits[row].expand(len(path), 2, -1).clone(), path)[0]
    return out


ENGINE = Engine(
    "EAGLE",
    (
        Configuration(
            "chain", "evaluate_posterior, one path", chain, "block", {"draws": 64_000, "seconds": 300.0},
            ("bonus", "certain", "random-3"),
        ),
        Configuration(
            "siblings", "evaluate_posterior, the 3 best of the draft", siblings, "candidates",
            {**SETTINGS, "candidates": 3, "proposal": "top"}, INPUTS,
        ),
    ),
    repository="SafeAILab/EAGLE",
    commit="cb7e0841fe0c206c6ed74a197ad5e2a1f13f5a2b",
    needs=("torch==2.13.0", "transformers==4.57.6"),
)  # fmt: skip
