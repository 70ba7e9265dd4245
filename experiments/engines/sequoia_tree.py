"""Sequoia: `SpecTree` on toy engines, as a chain of two tokens and as two branches of two."""

from functools import partial

from sequoia_toys import (
    BRANCHES,
    CHAIN,
    MULTINOMIAL,
    OVERWRITTEN,
    by_rule,
    fresh,
    grown,
    imported,
    row,
    text_of,
)
from survey import Engine, Judgement


def sequoia_tree(shape, target, draft, prompt):
    """A `SpecTree`."""
    from utils import sampling_without_replacement

    widths = [max(n) for n in shape[2]]
    sampling = [partial(sampling_without_replacement, num_samples=n, temperature=1.0) for n in widths]
    return grown(imported("SpecTree"), shape, target, draft, prompt, sampling)


def _round(shape, *given):
    return text_of(sequoia_tree(shape, *given), given[-1], 1, rounds=1)


def _rule(*given):
    return by_rule(sequoia_tree(BRANCHES, *given))


def one_chain(target, draft, prompt, length):
    """One `SpecTree` for all rounds of a text, as in its test bed."""
    return text_of(sequoia_tree(CHAIN, target, draft, prompt), prompt, length)


ENGINE = Engine(
    "Sequoia",
    (
        row(
            "chains",
            "SpecTree, a chain of 2, a new one each round",
            fresh(partial(_round, CHAIN)),
            Judgement(
                "as claimed",
                "Not rejected where each round has new random numbers and the tree is a chain. "
                f"{MULTINOMIAL}",
            ),
        ),
        row(
            "one-chain",
            "SpecTree, a chain of 2, one for a text, as its test bed has it",
            one_chain,
            Judgement(
                "fault",
                "All random numbers are drawn when the tree is made: a node draws its child, and "
                "is accepted, by the same ones in each round.",
                "sequoia_coins_once",
                "none found",
            ),
        ),
        row(
            "trees",
            "SpecTree, 2 branches of 2, a new one each round",
            fresh(partial(_round, BRANCHES)),
            Judgement("fault", OVERWRITTEN, "sequoia_overwritten_token", "none found"),
        ),
        row(
            "rule",
            "accept_step alone, 2 branches of 2, a new tree each round",
            fresh(_rule),
            Judgement(
                "as claimed",
                f"Not rejected: the rule is right, what is done with its result is not. {MULTINOMIAL}",
            ),
        ),
    ),
    repository="Infini-AI-Lab/Sequoia",
    commit="0ff3ff71475ca148f2dfb7545e0de5caf5c67b39",
    needs=("torch==2.13.0",),
)
