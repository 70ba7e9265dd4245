"""The first EAGLE as Spec-Bench has it: `evaluate_posterior` on trees drawn without replacement."""

from survey import Configuration, Engine, Judgement
from toys import MULTINOMIAL, TREE_SETTINGS, TREES, paths_of, randomness


def _sampler(temperature):
    def sampler(targets, drafts, tokens, parents, rng):
        import numpy as np
        import torch
        from model.eagle import utils

        paths, siblings = paths_of(parents), _siblings(parents)
        above = [[0 if node < 1 else parents[node - 1] + 1 for node in path] for path in paths]
        before = [[siblings[node - 1] if node > 0 else [] for node in path] for path in paths]
        out = np.full((len(tokens), paths.shape[1]), -1)
        known = np.pad(tokens, ((0, 0), (1, 1)), constant_values=((0, 0), (0, -1)))
        with randomness(rng):
            processor = utils.prepare_logits_processor(temperature=temperature)
            for row in range(len(tokens)):
                # Laws at this temperature are the targets.
                logits = temperature * torch.from_numpy(targets[row]).log().float()[paths]
                candidates = torch.from_numpy(known[row][paths])
                laws = torch.from_numpy(drafts[row]).float()
                chance = _chances(laws, known[row], parents, siblings)[paths]
                best, accepted, law = utils.evaluate_posterior(
                    logits, candidates, processor, chance, [laws] * paths.shape[1], above,
                    torch.from_numpy(known[row][None]), before,
                )  # fmt: skip
                out[row, accepted] = torch.multinomial(law, 1)
                out[row, :accepted] = candidates[best, 1 : accepted + 1]
        return out

    return sampler


def _siblings(parents):
    """Of each node, those drawn before it; 1 is the first node."""
    return [[i + 1 for i in range(node) if parents[i] == parent] for node, parent in enumerate(parents)]


def _chances(laws, known, parents, siblings):
    """Of each token, given that it is none of its siblings before; 1 for the root and the end of a path."""
    import torch

    found = [1.0]
    for node, parent in enumerate(parents.tolist()):
        law = laws[parent + 1]
        found.append(float(law[known[node + 1]] / (1 - law[known[siblings[node]]].sum())))
    return torch.tensor([*found, 1.0])


def _row(name, what, temperature, judgement):
    settings = {**TREE_SETTINGS, "proposal": "without-replacement"}
    return Configuration(name, what, _sampler(temperature), "tree", settings, TREES, judgement=judgement)


ONE = (
    "Not rejected. Its test is r <= p / q with random.random, which accepts a token of probability 0 at a "
    "float64 uniform of 0, once in 2^53. "
    f"{MULTINOMIAL}"
)
ENGINE = Engine(
    "EAGLE 1 in Spec-Bench",
    (
        _row("temperature-1", "evaluate_posterior, temperature 1", 1.0, Judgement("as claimed", ONE)),
        _row(
            "temperature-half", "evaluate_posterior, temperature 0.5", 0.5,
            Judgement(
                "fault",
                "The token after a path that was accepted in full is drawn from the logits as "
                "they are, without temperature, top-k and top-p. Later EAGLE has it right.",
                "eagle_1_last_token",
                "none found",
            ),
        ),
    ),
    repository="hemingkx/Spec-Bench",
    commit="fd2c1cd7d2201ef71db4c5f4e455008f017967bf",
    needs=("torch==2.13.0", "transformers==4.57.6"),
)  # fmt: skip
