"""vLLM, first model runner: the kernels of `v1/sample/rejection_sampler.py` under Triton's interpreter."""

import functools

from survey import Configuration, Engine, Judgement, most_probable, softened


@functools.cache
def prepared():
    """Blocks of 16 tokens instead of 8192: the interpreter computes every entry of a block."""
    from vllm.v1.sample import rejection_sampler as module

    kernel = module.sample_recovered_tokens_kernel

    def recovered(out, lengths, path, drafts, targets, noise, *, max_spec_len):
        kernel[(len(lengths), max_spec_len)](
            out, lengths, path, drafts, targets, noise, targets.shape[1], BLOCK_SIZE=16,
            NO_DRAFT_PROBS=drafts is None, USE_FP64_GUMBEL=False,
        )  # fmt: skip

    module._sample_recovered_tokens = recovered
    module.MAX_SPEC_LEN = 8


def sampler(**options):
    """A configuration of the function, in the style "block"."""

    def block(targets, drafts, path, rng):
        from resispec_verify.adapters.vllm import block_v1

        prepared()
        if options.get("greedy"):
            targets = softened(targets)
        return block_v1(targets, drafts, path, rng, **options)

    return block


NOTE = "CPU, Triton's interpreter, blocks of 16 tokens; the bonus token, an argument, is drawn by the adapter"
FEW = {"seconds": 600, "call_seconds": 600, "batches": ()}
FLY = {"fly_window_size": 1, "fly_entropy_threshold": 0.3}

CLAIMED = Judgement(
    "as claimed",
    "Its source says that it follows the paper strictly, and that uniforms are float64 because of 0.",
)

ENGINE = Engine(
    "vLLM V1",
    (
        Configuration("random", "standard, draft probabilities", sampler(), settings=FEW | {"draws": 60_000},
            inputs=("bonus",), note=NOTE, judgement=CLAIMED),
        Configuration("ngram", "standard, no draft probabilities (n-gram and greedy drafts)",
            sampler(probabilities=False), settings=FEW | {"draws": 60_000}, inputs=("bonus",), note=NOTE,
            judgement=CLAIMED),
        Configuration("greedy", "temperature 0", sampler(greedy=True), settings=FEW | {"draws": 4_000},
            inputs=(most_probable("bonus"),), note=NOTE + "; the law is that of the most probable token",
            judgement=CLAIMED),
        Configuration("fly", "FLy, window 1, entropy 0.3", sampler(**FLY), settings=FEW | {"draws": 60_000},
            inputs=("random-3",), note=NOTE, judgement=Judgement(
                "lossy by design", "Its source calls it lossy: a rejected token stays where the target's "
                "entropy is high and the tokens after it pass.")),
    ),
    package="vllm",
    needs=("vllm==0.33.0",),
    environment={"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "VLLM_LOGGING_LEVEL": "ERROR"},
)  # fmt: skip
