"""lucidrains/speculative-decoding: its loop over a batch, with toy models that have its decoder's cache."""

from survey import Configuration, Engine
from toys import INPUTS, SETTINGS, text_rows


def _net(laws):
    """Gives logits of the tokens that are not in the cache, which holds tokens; as its `Decoder` does."""
    import torch

    logits = torch.from_numpy(laws).log().float()

    def net(x, seq_start_pos=None, cache=None, return_cache=True):
        held = x[:, None, :, None].float()
        keep = x.shape[-1] - (cache[0].shape[-2] if cache is not None else 0)
        new = x[:, -keep:]
        return logits[new], (held, None)

    return net


def _loop(**options):
    def loop(target, draft, prompt, length):
        import torch
        from speculative_decoding import speculative_decoding

        until = len(prompt) + length
        given = torch.tensor([prompt])
        out, _ = speculative_decoding(_net(target), _net(draft), given, until, gamma=3, **options)
        return out[0].tolist()

    return text_rows(loop)


def batch(target, draft, rng):
    """The texts of a call as one batch: the rows of it that have the laws of the first one; others alone."""
    import numpy as np
    import torch
    from speculative_decoding import speculative_decoding
    from toys import randomness, table

    vocab, out = target.shape[1], np.empty(len(target), dtype=np.int64)
    same = ((target == target[0]) & (draft == draft[0])).all(axis=1)
    with randomness(rng):
        for rows in (same, ~same):
            if not rows.any():
                continue
            first = int(np.argmax(rows))
            nets = [_net(table(laws[first], vocab, 0)) for laws in (target, draft)]
            count = -(-int(rows.sum()) // 4)
            prompts = torch.from_numpy(rng.integers(vocab, size=(count, 2)))
            new, _ = speculative_decoding(*nets, prompts, 6, gamma=3, filter_thres=0.0)
            out[rows] = new.numpy().ravel()[: rows.sum()]
    return out


ENGINE = Engine(
    "lucidrains/speculative-decoding",
    (
        Configuration(
            "one", "speculative_decoding, gamma 3, a text a call, filter_thres 0",
            _loop(filter_thres=0.0), "tokens", SETTINGS, INPUTS,
        ),
        Configuration(
            "batch", "the same, a batch of texts a call", batch, "tokens",
            {"draws": 100_000, "seconds": 300.0}, INPUTS,
        ),
    ),
    repository="lucidrains/speculative-decoding",
    commit="72171ac91cd040ad6b67c186ac985e4f50a0c269",
    needs=("torch==2.13.0", "einops==0.8.2", "beartype==0.23.1"),
)  # fmt: skip
