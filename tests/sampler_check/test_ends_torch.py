"""Torch's global generator, served: what torch makes of its uniforms, and its ends."""

from __future__ import annotations

import numpy as np
import pytest

from resispec_verify.sampler_check.battery import named
from resispec_verify.sampler_check.check import CheckSettings, check_sampler
from resispec_verify.sampler_check.generators import DIGITS, EndsGenerator
from resispec_verify.testing import served_from

torch = pytest.importorskip("torch")


def served(draw, seed=0, **options):
    with served_from(np.random.default_rng(seed), **options) as missed:
        return draw(), missed


def test_what_is_served_is_what_torch_makes_of_its_own_uniforms(monkeypatch):
    # Torch's own functions after the same seed draw the same uniforms as its `rand` does: whatever it makes
    # of those must be made of the served ones.
    law = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])
    functions = {
        "float64": [
            (torch.Size([5]), lambda: torch.empty(5).exponential_(2.0)),
            (torch.Size([5]), lambda: torch.empty(5, dtype=torch.float64).exponential_()),
            (law.shape, lambda: torch.multinomial(law, 1)),
            (law.shape, lambda: torch.multinomial(law, 3)),
            (torch.Size([2, 6]), lambda: torch.multinomial(law, 6, replacement=True)),
            (torch.Size([8]), lambda: torch.empty(8).bernoulli_(0.3)),
            (torch.Size([8]), lambda: torch.bernoulli(torch.full((8,), 0.3, dtype=torch.float64))),
            (torch.Size([5]), lambda: torch.empty(5, dtype=torch.float64).uniform_(-1, 2)),
        ],
        "float32": [
            (torch.Size([8]), lambda: torch.bernoulli(torch.full((8,), 0.3))),
            (torch.Size([5]), lambda: torch.empty(5).uniform_(-1, 2)),
            (torch.Size([5]), lambda: torch.rand_like(torch.empty(5))),
            (torch.Size([5]), lambda: torch.rand(5, generator=torch.default_generator)),
            (torch.Size([5]), lambda: torch.distributions.Uniform(0.0, 3.0).sample((5,))),
        ],
        "bfloat16": [(torch.Size([5]), lambda: torch.rand(5, dtype=torch.bfloat16))],
        "float16": [(torch.Size([5]), lambda: torch.rand(5, dtype=torch.float16))],
    }
    from resispec_verify.testing import torch_uniforms

    for dtype, rows in functions.items():
        for shape, draw in rows:
            torch.manual_seed(3)
            own = draw()
            torch.manual_seed(3)
            uniforms = torch.rand(shape, dtype=getattr(torch, dtype)).double().numpy()

            def from_torch(rng, name, kind, size, uniforms=uniforms, dtype=dtype):
                assert (kind, tuple(size)) == (dtype, uniforms.shape)
                return uniforms

            monkeypatch.setattr(torch_uniforms, "drawn_as", from_torch)
            found, missed = served(draw)
            monkeypatch.undo()
            assert missed == []
            # Up to the last bit of a logarithm.
            assert torch.allclose(found.double(), own.double(), rtol=1e-15, atol=0.0)
            assert (found.dtype, found.shape) == (own.dtype, own.shape)


def test_torch_is_served_from_the_generator_and_put_back():
    state, seeding = torch.get_rng_state(), torch.manual_seed
    found, missed = served(lambda: (torch.rand(3), torch.rand(2, generator=torch.Generator().manual_seed(1))))
    rng = np.random.default_rng(0)
    assert np.array_equal(found[0].numpy(), rng.random(3, dtype=np.float32))
    assert np.array_equal(found[1].numpy(), rng.random(2, dtype=np.float32))
    assert missed == []

    def fails():
        torch.rand(1), torch.randn(1), torch.randint(4, (3,))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        served(fails)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.manual_seed is seeding


@pytest.mark.parametrize("dtype", DIGITS)
def test_the_ends_are_those_of_the_type(dtype):
    kind = getattr(torch, dtype)
    with served_from(EndsGenerator(0, "both")):
        drawn = torch.rand(500, dtype=kind)
    assert drawn.dtype == kind
    assert (float(drawn.min()), float(drawn.max())) == (0.0, 1.0 - 2.0 ** -DIGITS[dtype])
    with served_from(EndsGenerator(0, "both"), "bfloat16"):
        assert float(torch.rand(500, dtype=torch.float64).max()) == 1.0 - 2.0**-8


def test_what_is_not_served_is_named():
    _, missed = served(lambda: (torch.randn(3), torch.empty(2).normal_(), torch.randperm(3)))
    assert missed == ["torch.randn", "torch.normal_"]
    again, _ = served(lambda: torch.randn(3))
    assert torch.equal(again, served(lambda: torch.randn(3))[0])  # of a seed of rng
    torch.manual_seed(5)
    own = torch.rand(2)
    found, missed = served(lambda: (torch.manual_seed(5), torch.rand(2))[1])
    assert torch.equal(found, own)
    assert missed == ["torch, after torch.manual_seed"]


def test_what_torch_refuses_is_refused():
    for draw in (
        lambda: torch.multinomial(torch.tensor([-1.0, 2.0]), 1),
        lambda: torch.multinomial(torch.tensor([0.0, 0.0]), 2, replacement=True),
        lambda: torch.bernoulli(torch.tensor([2.0])),
    ):
        with pytest.raises(RuntimeError):
            served(draw)


def sampler_of(draw, dtype=torch.float32, **options):
    """Speculative sampling with ``<=``; its candidates and the residual are right at every uniform."""

    def cut(law, u):
        law = law / law.sum(-1, keepdim=True)
        below = (law.cumsum(-1) <= u[:, None]).sum(-1)
        last = law.shape[-1] - 1 - (law.flip(-1) > 0).int().argmax(-1)
        return torch.minimum(below, last)

    def sampler(target, draft, rng):
        with served_from(rng, **options):
            p, q = (torch.from_numpy(law) for law in (target, draft))
            x = cut(q, torch.rand(len(p), dtype=torch.float64))
            at = torch.arange(len(p))
            rest = (p - q).clamp(min=0)
            rest = torch.where(rest.sum(-1, keepdim=True) > 0, rest, p)
            accepted = draw(len(p), dtype) * q[at, x] <= p[at, x]
            return torch.where(accepted, x, cut(rest, torch.rand(len(p), dtype=torch.float64)))

    return sampler


@pytest.mark.parametrize("ordinary", ["serve", "seed"])
@pytest.mark.parametrize(("dtype", "often"), [(torch.float32, 24), (torch.float64, 53)])
def test_a_torch_sampler_that_accepts_at_0_is_found(ordinary, dtype, often):
    sampler = sampler_of(lambda n, dtype: torch.rand(n, dtype=dtype), dtype, ordinary=ordinary)
    settings = CheckSettings(draws=300, search=False, batches=())
    result = check_sampler(sampler, settings, inputs=[named("zeros")])
    (fault,) = result.ends["faults"]
    assert (fault["end"], fault["log2_probability"]) == ("lowest", -often)
    assert f"once in 2^{often} draws" in result.reason
    assert named("zeros").target[fault["token"]] == 0.0


def test_the_same_sampler_with_a_seed_of_its_own_is_not_tested_there():
    def seeded(target, draft, rng):
        torch.manual_seed(int(rng.integers(2**63)))
        return torch.multinomial(torch.from_numpy(target), 1)[:, 0]

    settings = CheckSettings(draws=300, search=False, batches=())
    state = torch.get_rng_state()
    result = check_sampler(seeded, settings, inputs=[named("zeros")])
    torch.set_rng_state(state)
    assert (result.verdict, result.ends["verdict"]) == ("not-rejected", "not-tested")
    assert "takes only a seed" in result.ends["reason"]


def test_an_exponential_of_0_is_an_end_that_torch_has_on_the_cpu():
    # p / q is 0 / 0 there: `multinomial` draws a token of probability 0, once in 2^53 exponentials.
    law = torch.tensor([0.0, 0.5, 0.5])
    with served_from(EndsGenerator(0, "lowest")):
        assert float(torch.empty(200).exponential_().min()) == 0.0
        assert 0 in [int(torch.multinomial(law, 1)) for _ in range(50)]
        assert 0 in torch.multinomial(law, 50, replacement=True)
    with served_from(EndsGenerator(0, "highest")):
        assert torch.isfinite(torch.empty(200).exponential_()).all()
