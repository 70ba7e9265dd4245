"""vLLM, second model runner: the Triton kernels of `v1/worker/gpu/spec_decode` under Triton's interpreter."""

import functools

from survey import Configuration, Engine, Judgement, most_probable, softened


class Narrow:
    """A kernel in blocks of 16 tokens, not of 8192: the interpreter computes every entry of a block."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        def launch(*arguments, **options):
            return self.kernel[grid](*arguments, **options | {"BLOCK_SIZE": 16})

        return launch


@functools.cache
def prepared():
    """Narrow blocks, and the function that the interpreter lacks."""
    from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils as module

    from resispec_verify.adapters.vllm import supply_log1p

    supply_log1p()
    for name in ("_compute_local_logits_stats", "_compute_local_residual_mass", "_resample"):
        setattr(module, f"{name}_kernel", Narrow(getattr(module, f"{name}_kernel")))


def sampler(**options):
    """A configuration of the function, in the style "block"."""

    def block(targets, drafts, path, rng):
        from resispec_verify.adapters.vllm import block_v2

        prepared()
        if options.get("temperature") == 0.0:
            targets = softened(targets)
        return block_v2(targets, drafts, path, rng, **options)

    return block


NOTE = "CPU, Triton's interpreter, blocks of 16 tokens; libdevice.log1p, which it lacks, is log(1 + x)"
FEW = {"seconds": 900, "call_seconds": 600, "batches": ()}
BLOCK = {"use_block_verification": True}

CLAIMED = Judgement("as claimed", "Its source names the paper whose algorithm it is; the draws are few.")

ENGINE = Engine(
    "vLLM V2",
    (
        Configuration("standard", "standard, draft logits, temperature 0.5", sampler(temperature=0.5),
            settings=FEW | {"draws": 24_000}, inputs=("bonus",), note=NOTE, judgement=CLAIMED),
        Configuration("point-mass", "standard, no draft logits (greedy drafts)", sampler(probabilities=False),
            settings=FEW | {"draws": 12_000}, inputs=("bonus",), note=NOTE,
            judgement=CLAIMED),
        Configuration("block", "block, draft logits", sampler(**BLOCK), settings=FEW | {"draws": 24_000},
            inputs=("random-4",), note=NOTE, judgement=CLAIMED),
        Configuration("block-point-mass", "block, no draft logits", sampler(probabilities=False, **BLOCK),
            settings=FEW | {"draws": 8_000}, inputs=("random-4",), note=NOTE,
            judgement=CLAIMED),
        Configuration("greedy", "temperature 0", sampler(temperature=0.0), settings=FEW | {"draws": 1_600},
            inputs=(most_probable("bonus"),), note=NOTE + "; the law is that of the most probable token",
            judgement=CLAIMED),
    ),
    package="vllm",
    needs=("vllm==0.33.0",),
    environment={"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "VLLM_LOGGING_LEVEL": "ERROR"},
)  # fmt: skip
