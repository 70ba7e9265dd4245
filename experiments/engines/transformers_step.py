"""transformers: its verification step, through the shipped adapter."""

from survey import Configuration, Engine


def step(targets, drafts, path, rng):
    """The step of assisted generation when sampling."""
    from resispec_verify.adapters.transformers import block_sampler

    return block_sampler(targets, drafts, path, rng)


def ensemble(targets, drafts, path, rng):
    """The same with the ensemble of target and draft."""
    from resispec_verify.adapters.transformers import block_sampler

    return block_sampler(targets, drafts, path, rng, assistant_ensemble_weight=0.8)


ENGINE = Engine(
    "transformers",
    (
        Configuration(
            "sampling", "_speculative_sampling", step, settings={"seconds": 100, "call_seconds": 600}
        ),
        Configuration(
            "ensemble", "_speculative_sampling, assistant_ensemble_weight=0.8", ensemble,
            settings={"seconds": 60, "call_seconds": 600},
        ),
    ),
    package="transformers",
    needs=("transformers==5.24.0", "torch==2.13.0"),
)  # fmt: skip
