"""SGLang: its chain sampler under Triton's interpreter; and its tree kernel, which is CUDA's."""

from survey import Configuration, Engine, Judgement


def chain(targets, drafts, path, rng):
    """Token by token."""
    from resispec_verify.adapters.sglang import block_chain

    return block_chain(targets, drafts, path, rng)


def block(targets, drafts, path, rng):
    """With block verification."""
    from resispec_verify.adapters.sglang import block_chain

    return block_chain(targets, drafts, path, rng, block_verification=True)


def tree(targets, drafts, path, rng):
    """The default on CUDA, for trees: takes no drafts."""
    from sglang.kernels.ops.speculative.verify_sampling import tree_speculative_sampling_target_only as kernel

    from resispec_verify.adapters.sglang import chain_arguments, emitted_chain

    if kernel is None:
        raise RuntimeError("tree_speculative_sampling_target_only is None: no kernel on this platform")
    arguments = chain_arguments(targets, drafts, path, rng, device="cuda")
    arguments["draft_probs"] = arguments["target_probs"] * 0
    kernel(**arguments)
    return emitted_chain(arguments)


NOTE = "CPU, Triton's interpreter"
FEW = {"seconds": 600, "call_seconds": 600, "batches": ()}

ENGINE = Engine(
    "SGLang",
    (
        Configuration("chain", "rejection sampling on a chain (--speculative-use-rejection-sampling)", chain,
            settings=FEW | {"draws": 60_000}, inputs=("bonus",), note=NOTE, judgement=Judgement(
                "not rejected", "min(1, p/q) and the residual; its source makes no claim for this mode.")),
        Configuration("block", "block verification (--speculative-use-block-verification)", block,
            settings=FEW | {"draws": 60_000}, inputs=("random-4",), note=NOTE, judgement=Judgement(
                "as claimed", "Its source says that it is the paper's algorithm 2.")),
        Configuration("tree", "target-only tree sampling, the default on CUDA", tree, inputs=("bonus",),
            judgement=Judgement("could not run", "Its kernel is CUDA code; elsewhere the name is None.")),
    ),
    package="sglang",
    needs=("sglang==0.5.23",),
    environment={"TRITON_INTERPRET": "1"},
)  # fmt: skip
