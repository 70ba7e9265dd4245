"""mlx-lm: its loop, `speculative_generate_step`, over several rounds, on mlx's build for the CPU."""

import functools

from survey import Configuration, Engine, Judgement


class Table:
    """A model without layers or cache: logits are a table, looked up by the token."""

    layers = ()

    def __init__(self, model, size):
        import mlx.core as mx
        import numpy as np

        law = np.asarray(model(np.arange(size)[None]))[0]
        with np.errstate(divide="ignore"):
            self.logits = mx.array(np.log(law).astype(np.float32))

    def __call__(self, tokens, cache=None):
        """Logits after each token."""
        return self.logits[tokens]


def text(target, draft, prompt, length, rng, **options):
    """Row by row; mlx draws from a seed of ``rng`` for each call."""
    import mlx.core as mx
    import numpy as np
    from mlx_lm.generate import speculative_generate_step

    mx.set_default_device(mx.cpu)
    mx.random.seed(int(rng.integers(2**63)))
    models = [Table(model, model.table.shape[0]) for model in (target, draft)]
    options |= {"stream": mx.default_stream(mx.cpu), "max_tokens": length, "sampler": draw}
    loops = [speculative_generate_step(mx.array(row), *models, **options) for row in prompt]
    return np.array([[int(token) for token, *_ in loop] for loop in loops])


def draw(logprobs):
    """Sampling at temperature 1."""
    import mlx.core as mx

    return mx.random.categorical(logprobs)


def same(tokens, logits):
    """A processor that changes nothing: with one, mlx-lm goes another way through its loop."""
    return logits


FEW = {"seconds": 300, "call_seconds": 600, "batches": (8,), "draws": 130_000}

MATCH = Judgement(
    "not rejected", "Token match: a drafted token stays where the target's own draw is the same."
)

ENGINE = Engine(
    "mlx-lm",
    (
        Configuration("loop", "speculative_generate_step, 2 draft tokens", text, "text", FEW, ("two",),
            judgement=MATCH),
        Configuration("processor", "the same with a logits processor, which returns its logits",
            functools.partial(text, logits_processors=[same]), "text", FEW, ("two",),
            judgement=MATCH),
    ),
    package="mlx-lm",
    needs=("mlx-lm==0.32.2", "mlx==0.32.4"),
)  # fmt: skip
