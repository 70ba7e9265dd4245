"""lucidrains/speculative-decoding: its loop over a batch, with toy models that have its decoder's cache."""

from survey import Configuration, Engine, Judgement
from toys import MULTINOMIAL, TEXT_SETTINGS, TEXTS, randomness


def _net(laws):
    """Gives logits of the tokens that are not in the cache, which holds tokens; as its `Decoder` does."""
    import torch

    logits = torch.from_numpy(laws).log().float()

    def net(x, seq_start_pos=None, cache=None, return_cache=True):
        held = x[:, None, :, None].float()
        keep = x.shape[-1] - (cache[0].shape[-2] if cache is not None else 0)
        return logits[x[:, -keep:]], (held, None)

    return net


def _sampler(at_once):
    def sampler(target, draft, prompt, length, rng):
        import torch
        from speculative_decoding import speculative_decoding

        nets, until = (_net(target.table), _net(draft.table)), prompt.shape[1] + length
        with randomness(rng):
            parts = torch.from_numpy(prompt).split(len(prompt) if at_once else 1)
            found = [speculative_decoding(*nets, part, until, gamma=3, filter_thres=0.0)[0] for part in parts]
        return torch.cat([part[:, :length] for part in found])

    return sampler


LUCID = (
    "Not rejected, but accepts at a float32 uniform of 0, once in 2^24: its test is r > p / q, and a token "
    "of probability 0 comes out; by default it keeps a tenth of the tokens, so that there are many. "
    f"{MULTINOMIAL}"
)
ENGINE = Engine(
    "lucidrains/speculative-decoding",
    (
        Configuration(
            "one", "speculative_decoding, gamma 3, filter_thres 0, a text a call", _sampler(at_once=False),
            "text", TEXT_SETTINGS, TEXTS, judgement=Judgement("as claimed", LUCID),
        ),
        Configuration(
            "batch", "the same, a batch of texts a call", _sampler(at_once=True),
            "text", {**TEXT_SETTINGS, "draws": 100_000, "batches": (1, 4, 64)}, TEXTS,
            judgement=Judgement("as claimed", LUCID),
        ),
    ),
    repository="lucidrains/speculative-decoding",
    commit="72171ac91cd040ad6b67c186ac985e4f50a0c269",
    needs=("torch==2.13.0", "einops==0.8.2", "beartype==0.23.1"),
)  # fmt: skip
