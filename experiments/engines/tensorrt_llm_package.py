"""TensorRT-LLM: whether what PyPI has under its name can be run here at all."""

from survey import Configuration, Engine, Judgement


def rejection(targets, drafts, path, rng):
    """Its rejection sampling of one model."""
    from tensorrt_llm._torch.speculative.one_model_sampler import rejection_sampling_one_model

    raise NotImplementedError(f"write the call of {rejection_sampling_one_model.__name__}")


ENGINE = Engine(
    "TensorRT-LLM",
    (
        Configuration("rejection", "rejection_sampling_one_model", rejection, inputs=("bonus",),
            judgement=Judgement("could not run", "On PyPI, release 1.2.1 is a stub: pip install stops where "
                "NVIDIA's driver is missing.")),
    ),
    package="tensorrt-llm",
)  # fmt: skip
