"""SpecHub: `MyTree`, its branch of Sequoia's tree, whose two children are the best token and another one."""

import sys
from functools import partial

from sequoia_toys import BRANCHES, MULTINOMIAL, OVERWRITTEN, by_rule, fresh, grown, imported, row, text_of
from survey import Engine, Judgement, source


def _tree(target, draft, prompt):
    if (folder := str(source() / "Sequoia")) not in sys.path:
        sys.path.insert(0, folder)
    from utils import sampling_a_and_i, sampling_without_replacement

    sampling = [
        partial(sampling_a_and_i, temperature=1.0),
        partial(sampling_without_replacement, num_samples=1, temperature=1.0),
    ]
    return grown(imported("MyTree"), BRANCHES, target, draft, prompt, sampling)


def _round(*given):
    return text_of(_tree(*given), given[-1], 1, rounds=1)


def _rule(*given):
    return by_rule(_tree(*given))


ENGINE = Engine(
    "SpecHub",
    (
        row(
            "trees",
            "MyTree, 2 branches of 2, a new one each round",
            fresh(_round),
            Judgement(
                "fault",
                OVERWRITTEN + " As in Sequoia, from which it comes.",
                "sequoia_overwritten_token",
                "none found",
            ),
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
    repository="MasterGodzilla/Speculative_decoding_OT",
    commit="7d592b70e954bb1fb48516a5628f9c3439645464",
    needs=("torch==2.13.0",),
)
