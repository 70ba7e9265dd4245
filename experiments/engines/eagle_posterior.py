"""EAGLE (1 to 3): `evaluate_posterior` on trees, and the draw after it, at temperature 1."""

from survey import Configuration, Engine, Judgement
from toys import MULTINOMIAL, TREE_SETTINGS, TREES, paths_of, randomness


def sampler(targets, drafts, tokens, parents, rng):
    """Its own tree has the draft's best tokens; other drafts count as point masses all the same."""
    import numpy as np
    import torch
    from eagle.model import utils

    paths = paths_of(parents)
    out = np.full((len(tokens), paths.shape[1]), -1)
    # The root, which is not looked at; the nodes; and -1 for the end of a path.
    known = np.pad(tokens, ((0, 0), (1, 1)), constant_values=((0, 0), (0, -1)))
    with randomness(rng):
        processor = utils.prepare_logits_processor(temperature=1.0)
        for row in range(len(tokens)):
            logits = torch.from_numpy(targets[row]).log().float()[paths]
            candidates = torch.from_numpy(known[row][paths])
            best, accepted, law = utils.evaluate_posterior(logits, candidates, processor)
            # As `update_inference_inputs` draws the token after.
            out[row, accepted] = torch.multinomial(law, 1)
            out[row, :accepted] = candidates[best, 1 : accepted + 1]
    return out


def _row(name, what, proposal):
    return Configuration(
        name, what, sampler, "tree", {**TREE_SETTINGS, "proposal": proposal}, TREES, judgement=JUDGEMENT
    )


JUDGEMENT = Judgement(
    "as claimed",
    "Not rejected: candidates as point masses, one after the other. At a float64 uniform of 0, once in 2^53, "
    "its r <= p accepts a token of probability 0 (it draws by random.random, so that float32 does not come "
    f"in). {MULTINOMIAL}",
)
ENGINE = Engine(
    "EAGLE",
    (
        _row("best", "evaluate_posterior, trees of the draft's best tokens, as it grows them", "top"),
        _row("drawn", "evaluate_posterior, trees of drawn tokens", "iid"),
    ),
    repository="SafeAILab/EAGLE",
    commit="cb7e0841fe0c206c6ed74a197ad5e2a1f13f5a2b",
    needs=("torch==2.13.0", "transformers==4.57.6"),
)
