"""SpecHub: `MyTree`, its branch of Sequoia's tree, whose two children are the best token and another one."""

import sys
from functools import partial

from sequoia_tree import NOTE, RESERVED, WIDTH, grown, imported, text_of
from survey import Configuration, Engine, source
from toys import INPUTS, SETTINGS, text_rows


def loop(target, draft, prompt, length, rounds=WIDTH):
    """A `MyTree` of its own for each text, as in its test bed."""
    if (folder := str(source() / "Sequoia")) not in sys.path:
        sys.path.insert(0, folder)
    from utils import sampling_a_and_i, sampling_without_replacement

    sampling = [
        partial(sampling_a_and_i, temperature=1.0),
        partial(sampling_without_replacement, num_samples=1, temperature=1.0),
    ]
    return text_of(grown(imported("MyTree"), target, draft, prompt, sampling), length, rounds)


def first(target, draft, prompt, length):
    """A tree a token."""
    return [loop(target, draft, prompt, 1, rounds=1)[0] for _ in range(length)]


def _row(name, what, sampler):
    return Configuration(name, what, sampler, "tokens", SETTINGS, INPUTS, NOTE)


ENGINE = Engine(
    "SpecHub",
    (
        _row("one-round", "MyTree, a tree a token", text_rows(first, reserved=RESERVED)),
        _row("rounds", "MyTree, rounds of a text", text_rows(loop, reserved=RESERVED)),
    ),
    repository="MasterGodzilla/Speculative_decoding_OT",
    commit="7d592b70e954bb1fb48516a5628f9c3439645464",
    needs=("torch==2.13.0",),
)
