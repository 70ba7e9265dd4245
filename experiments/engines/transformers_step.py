"""transformers: its verification step, through the shipped adapter."""

from survey import Configuration, Engine, Judgement


def step(targets, drafts, path, rng):
    """The step of assisted generation when sampling."""
    from resispec_verify.adapters.transformers import block_sampler

    return block_sampler(targets, drafts, path, rng)


def ensemble(targets, drafts, path, rng):
    """The same with the ensemble of target and draft."""
    from resispec_verify.adapters.transformers import block_sampler

    return block_sampler(targets, drafts, path, rng, assistant_ensemble_weight=0.8)


FEW = {"seconds": 100, "call_seconds": 600}

ENGINE = Engine(
    "transformers",
    (
        Configuration("sampling", "_speculative_sampling", step, settings=FEW, judgement=Judgement(
            "as claimed", "Its source says that it applies the paper's algorithm 1. Not rejected, but at a "
            "float32 uniform of 0, once in 2^24, its r <= p / q accepts a token of probability 0.",
            "transformers_zero_uniform", "none found")),
        Configuration("ensemble", "_speculative_sampling, assistant_ensemble_weight=0.8", ensemble,
            settings=FEW, judgement=Judgement("lossy by design", "It verifies against a mixture of target "
                "and draft, and says so: tokens of target probability 0 are accepted.")),
    ),
    package="transformers",
    needs=("transformers==5.24.0", "torch==2.13.0"),
)  # fmt: skip
