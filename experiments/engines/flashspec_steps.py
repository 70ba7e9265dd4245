"""flashspec: its two rejection steps on the CPU, through the shipped adapter."""

from survey import Configuration, Engine, Judgement


def standard(targets, drafts, path, rng):
    """Ratio test against the draft's law."""
    from resispec_verify.adapters.flashspec import block_sampler

    return block_sampler(targets, drafts, path, rng)


def onehot(targets, drafts, path, rng):
    """The draft as a point mass on its token."""
    from resispec_verify.adapters.flashspec import onehot_sampler

    return onehot_sampler(targets, drafts, path, rng)


FEW = {"seconds": 60, "call_seconds": 600}

ENGINE = Engine(
    "flashspec",
    (
        Configuration("standard", "rejection_step", standard, settings=FEW,
            judgement=Judgement("as claimed", "Its authors call it lossless.")),
        Configuration("onehot", "rejection_step_onehot, ragged", onehot, settings=FEW | {"ragged": True},
            judgement=Judgement("as claimed", "Its authors call it lossless.")),
    ),
    package="flashspec",
    needs=("flashspec==0.3.1", "torch==2.13.0"),
)  # fmt: skip
