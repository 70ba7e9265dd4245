"""Where draws come from: a call of the sampler becomes integers of one known law.

An integer is the emitted token, or the number of a sequence of tokens. One file a style; `styles` lists them.
"""

from resispec_verify.sampler_check.sources.block import BlockSource
from resispec_verify.sampler_check.sources.drawing import draw_candidates
from resispec_verify.sampler_check.sources.drawn import Drawn
from resispec_verify.sampler_check.sources.mixed import MixedSource
from resispec_verify.sampler_check.sources.text import TextSource
from resispec_verify.sampler_check.sources.tokens import TokenSource
from resispec_verify.sampler_check.sources.tree import TreeSource

__all__ = [
    "BlockSource",
    "Drawn",
    "MixedSource",
    "TextSource",
    "TokenSource",
    "TreeSource",
    "draw_candidates",
]
