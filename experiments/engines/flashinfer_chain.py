"""FlashInfer: its chain speculative sampling, a CUDA kernel."""

from survey import Configuration, Engine, Judgement


def chain(targets, drafts, path, rng):
    """Drawn and emitted on the device."""
    import flashinfer.sampling
    import torch

    def tensor(array, dtype):
        return torch.as_tensor(array, device="cuda").to(dtype)

    tokens, _, _ = flashinfer.sampling.chain_speculative_sampling(
        tensor(drafts, torch.float32), tensor(path, torch.int32), tensor(targets, torch.float32)
    )
    return tokens.cpu().numpy()


ENGINE = Engine(
    "FlashInfer",
    (
        Configuration("chain", "chain_speculative_sampling", chain, inputs=("bonus",), judgement=Judgement(
            "could not run", "Its kernels are CUDA code, compiled when first called; none for the CPU.")),
    ),
    package="flashinfer-python",
    needs=("flashinfer-python==0.7.4",),
)  # fmt: skip
