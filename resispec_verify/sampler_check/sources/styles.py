"""The styles, by name. A new one is a file with a `Style`, and its line here."""

from __future__ import annotations

from resispec_verify.sampler_check.sources.block import BLOCK
from resispec_verify.sampler_check.sources.style import Style
from resispec_verify.sampler_check.sources.text import TEXT
from resispec_verify.sampler_check.sources.tokens import CANDIDATES, TOKENS, UNIFORMS
from resispec_verify.sampler_check.sources.tree import TREE

__all__ = ["STYLES"]

STYLES: dict[str, Style] = {
    style.name: style for style in (TOKENS, CANDIDATES, UNIFORMS, BLOCK, TREE, TEXT)
}
