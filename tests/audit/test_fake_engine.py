"""The fake engine of the audits' tests: it draws from what it says, and its server answers as servers do."""

import math
from collections import Counter, defaultdict

import fake_engine
import numpy as np
import pytest
from fake_engine import FAULTS, Drawn, callables, engines
from fake_models import VOCAB, Sampling, draw, entropy, pair, shaped
from fake_tv import average_tv, emitted

# After it the target's first token is nearly sure, so that many requests share the tokens before the second.
PROMPT = [7, 75]
REQUESTS, LEAST, DELTA = 2000, 20, 1e-6
RIGHT = [None, "reports-zero", "never-accepts", "no-drafts"]
# Their tokens are not independent between requests; the noise of a call is not known afterwards.
APART = ["equal-seeds", "shared-noise", "noisy"]


def within(count, law):
    """More than this the total variation of ``count`` draws to their law is with probability DELTA.

    Its mean is at most half the sum of the standard deviations of the frequencies, and by McDiarmid's
    inequality it exceeds its mean by t with probability exp(-2 count t**2).
    """
    mean = 0.5 * float(np.sqrt(law * (1.0 - law) / count).sum())
    return mean + math.sqrt(math.log(1.0 / DELTA) / (2.0 * count))


def distance(p, q):
    return 0.5 * float(np.abs(p - q).sum())


def groups(engine, sampling):
    """Tokens after the first of many requests, by the tokens before, the place and what was rejected last."""
    found = defaultdict(Counter)
    for seed in range(REQUESTS):
        out = engine.complete(PROMPT, 4, seed, sampling)
        for at in range(1, 4):
            number = max(i for i, start in enumerate(out.starts) if start <= at)
            place = at - out.starts[number]
            stale = out.rejected[number - 1] if engine.fault == "stale-cache" and place == 0 else None
            found[(*PROMPT, *out.tokens[:at]), place, stale][out.tokens[at]] += 1
    return {key: counts for key, counts in found.items() if counts.total() >= LEAST}


def frequencies(counts):
    out = np.zeros(VOCAB)
    out[list(counts)] = list(counts.values())
    return out / out.sum()


def test_the_toy_target_is_sharp_and_flat_by_turns_and_the_draft_follows_it():
    target, model = pair()
    rng, prefix, nats, agree = np.random.default_rng(1), [3], [], []
    for _ in range(1500):
        p, q = target.law(prefix), model.law(prefix)
        nats.append(entropy(p))
        agree.append(np.minimum(p, q).sum())
        prefix.append(draw(p, rng))
    assert 1.2 < np.mean(nats) < 1.8
    assert np.quantile(nats, 0.1) < 0.5
    assert np.quantile(nats, 0.9) > 2.5
    assert 0.5 < np.mean(agree) < 0.8


def test_a_law_depends_on_the_last_two_tokens_and_on_the_position():
    target, _ = pair()
    here = target.law([1, 2, 3])
    assert np.array_equal(here, target.law([9, 2, 3]))
    assert not here.flags.writeable
    for other in ([1, 4, 3], [1, 2, 4], [1, 1, 2, 3]):
        assert distance(here, target.law(other)) > 0.01
    with pytest.raises(ValueError, match="token ids must be in"):
        target.law([VOCAB])


def test_filters_come_in_the_order_that_is_asked():
    law = np.array([0.5, 0.3, 0.15, 0.05])
    assert shaped(law, Sampling(0.5)) == pytest.approx(law**2 / (law**2).sum())
    assert shaped(law, Sampling(top_k=2)) == pytest.approx([0.625, 0.375, 0, 0])
    assert shaped(law, Sampling(top_p=0.75)) == pytest.approx([0.625, 0.375, 0, 0])
    assert shaped(law, Sampling(min_p=0.25)) == pytest.approx(np.array([0.5, 0.3, 0.15, 0]) / 0.95)
    late = Sampling(0.5, top_p=0.9, order=("top_p", "temperature"))
    assert np.count_nonzero(shaped(law, Sampling(0.5, top_p=0.9))) == 2
    assert np.count_nonzero(shaped(law, late)) == 3


@pytest.mark.parametrize("fault", RIGHT)
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, 50, 0.95, 0.02)])
def test_an_engine_without_fault_draws_each_token_from_the_target(fault, sampling):
    engine, _ = engines(fault)
    for prefix in ([5, 6], [100, 200, 300], [17]):
        law = engine.target.shaped(prefix, sampling)
        for place in range(engine.k + 1):
            # Some ten operations on each of V masses, and a sum over them.
            assert distance(emitted(engine, prefix, place, sampling), law) < 20 * VOCAB * 2.0**-53


class Scripted:
    """Uniforms that are given."""

    def __init__(self, *uniforms):
        self.left = list(uniforms)

    def random(self):
        return self.left.pop(0)


def middle(law, token):
    """A uniform that draws ``token``."""
    return float((law[:token].sum() + 0.5 * law[token]) / law.sum())


def test_a_draft_token_is_accepted_below_its_ratio_and_replaced_from_the_residual():
    engine, prefix = engines(k=1)[0], [100, 200, 300]
    p, q = engine.target.law(prefix), engine.draft.law(prefix)
    residual, tried = np.maximum(p - q, 0.0), 0

    def second(*uniforms):
        rng, out = Scripted(*uniforms), Drawn(tokens=[0], starts=[0], rejected=[None], laws=[p])
        engine._round(prefix, out, rng, Sampling())
        assert not rng.left
        return out

    for y in np.flatnonzero((p < q) & (q > 1e-6)):
        ratio = p[y] / q[y]
        out = second(middle(q, y), ratio * (1 - 1e-9), 0.5)
        assert (out.tokens[1], len(out.tokens), out.rejected[1]) == (y, 3, None)
        z = int(np.flatnonzero(residual > 1e-6)[tried % np.count_nonzero(residual > 1e-6)])
        out = second(middle(q, y), ratio * (1 + 1e-9), middle(residual, z))
        assert (out.tokens[1:], out.rejected[1]) == ([z], y)
        tried += 1
    assert tried > 50
    # What comes from a residual that is not the right one has other borders between its tokens.
    y = int(np.argmax(np.where(p < q, q, 0.0)))
    below = np.cumsum(residual)[int(residual.argmax()) - 1] / residual.sum()
    top = int(residual.argmax())
    assert second(middle(q, y), 1 - 1e-12, below + 1e-9).tokens[1] == top
    assert second(middle(q, y), 1 - 1e-12, below - 1e-9).tokens[1] != top
    y = int(np.argmax(p - q))
    last = engine.target.law([*prefix, y])
    assert second(middle(q, y), 1 - 1e-12, middle(last, 7)).tokens[1:] == [y, 7]


@pytest.mark.parametrize("fault", [None, *(name for name in FAULTS if name not in APART)])
def test_tokens_come_from_the_law_in_closed_form(fault):
    engine, _ = engines(fault, k=1)
    sampling = FAULTS[fault].sampling if fault else Sampling()
    found = groups(engine, sampling)
    assert {place for _, place, _ in found} == ({0} if fault in ("no-drafts", "never-accepts") else {0, 1})
    evidence = 0.0
    for (prefix, place, rejected), counts in found.items():
        law = emitted(engine, prefix, place, sampling, rejected)
        assert distance(frequencies(counts), law) <= within(counts.total(), law)
        right = engine.target.shaped(prefix, sampling)
        with np.errstate(divide="ignore"):
            evidence += sum(n * (np.log(law[t]) - np.log(right[t])) for t, n in counts.items())
    # The likelihood ratio to the target's law: with probability DELTA above 1/DELTA where that is right.
    if fault in RIGHT:
        assert abs(evidence) < 1e-6
    else:
        assert evidence > math.log(1.0 / DELTA)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_table_says_how_far_each_fault_moves_a_token(fault):
    assert FAULTS[fault].tv == round(average_tv(fault), 3)
    assert (FAULTS[fault].tv > 0) == (fault not in ("equal-seeds", "shared-noise", *RIGHT))


@pytest.mark.parametrize(
    ("fault", "sampling", "expected"),
    [
        (None, Sampling(0.7), lambda target, at: target.law(at, 0.7)),
        ("temperature-ignored", Sampling(0.7), lambda target, at: target.law(at)),
        ("too-cold", Sampling(0.8), lambda target, at: target.law(at, 0.72)),
        ("tail-cut", Sampling(), lambda target, at: shaped(target.law(at), Sampling(top_p=0.95))),
        (
            "top-p-twice",
            Sampling(top_p=0.9),
            lambda target, at: shaped(target.shaped(at, Sampling(top_p=0.9)), Sampling(top_p=0.9)),
        ),
    ],
)
def test_what_verification_takes_for_the_targets_law(fault, sampling, expected):
    engine, prefix = engines(fault)[0], [100, 200, 300]
    law = engine.verified(prefix, engine.raw(prefix), sampling)
    assert distance(law, expected(engine.target, prefix)) < 20 * VOCAB * 2.0**-53
    assert (distance(law, engine.target.shaped(prefix, sampling)) > 0.01) == (fault is not None)


def test_a_stale_cache_keeps_the_token_for_one_law():
    engine, clean = engines("stale-cache")[0], engines()[0]
    assert engine.row([1, 2], 0, 9) == [1, 9, 2]
    assert engine.row([1, 2], 0, None) == engine.row([1, 2], 1, 9) == clean.row([1, 2], 0, 9) == [1, 2]


def test_equal_seeds_and_shared_noise_repeat_themselves():
    same, _ = engines("equal-seeds")
    assert len({tuple(same.complete(PROMPT, 6, seed).tokens) for seed in range(20)}) == 1
    shared, clean = engines("shared-noise")[0], engines()[0]
    prompt = [5, 2]
    for engine, repeats in ((shared, True), (clean, False)):
        drawn = {tuple(engine.complete(prompt, 6, seed).tokens) for seed in range(60)}
        firsts = {tokens[0] for tokens in drawn}
        assert len(firsts) > 1
        assert (len(drawn) == len(firsts)) == repeats


def test_noise_differs_from_call_to_call_also_in_the_reference():
    for engine in engines("noisy"):
        one, other = engine.raw(PROMPT), engine.raw(PROMPT)
        assert 0 < distance(one, other) < 0.1
    assert engines("too-cold")[1].fault is None


@pytest.mark.parametrize(
    ("fault", "starts"), [("no-drafts", [0, 1, 2, 3, 4, 5, 6, 7, 8]), ("draft-law", [0, 1, 5])]
)
def test_rounds_start_where_they_do(fault, starts):
    out = engines(fault)[0].complete(PROMPT, 9, 3)
    assert out.starts == starts
    assert len(out.tokens) == len(out.laws) == 9


def test_rounds_have_their_accepted_tokens_and_one_more():
    engine, reference = engines()
    out = engine.complete(PROMPT, 60, 4)
    lengths = np.diff([*out.starts[1:], 60])
    assert out.starts[:2] == [0, 1]
    assert set(lengths) <= {1, 2, 3, 4}
    assert out.drafted == 3 * len(lengths)
    # The last round may have been cut.
    assert sum(lengths[:-1] - 1) <= out.accepted <= sum(lengths[:-1] - 1) + 3
    assert (engine.rounds, engine.drafted, engine.accepted) == (len(lengths), out.drafted, out.accepted)
    plain = reference.complete(PROMPT, 60, 4)
    assert (plain.drafted, plain.accepted, plain.starts) == (0, 0, list(range(60)))
    assert out.tokens == engine.complete(PROMPT, 60, 4).tokens


def test_what_is_accepted():
    rates = {}
    for fault in (None, "never-accepts"):
        engine, _ = engines(fault)
        for seed in range(20):
            engine.complete([seed, 1], 40, seed)
        rates[fault] = engine.accepted / engine.drafted
    assert 0.4 < rates[None] < 0.8
    assert rates["never-accepts"] < 0.02


def test_only_speculative_tokens_are_reported_without_a_law():
    out = engines("reports-zero")[0].complete(PROMPT, 5, 1)
    assert out.laws[0] is not None
    assert out.laws[1:] == [None] * 4


def test_functions_for_a_library():
    wrong, plain = callables("draft-law")
    assert wrong([1, 2], 5, 3) == engines("draft-law")[0].complete([1, 2], 5, 3).tokens
    assert (
        plain([1, 2], 5, 3) == fake_engine.plain([1, 2], 5, 3) == engines()[1].complete([1, 2], 5, 3).tokens
    )
    assert fake_engine.generate([1, 2], 5, 3) == engines()[0].complete([1, 2], 5, 3).tokens


def test_an_unknown_fault():
    with pytest.raises(ValueError, match="fault must be one of"):
        engines("too-warm")
