"""An engine's own loop, over several rounds: the style text."""

from __future__ import annotations

from typing import Any

import numpy as np

from resispec_verify.evidence.eprocess import FitTest
from resispec_verify.rules.foreign import reason_of
from resispec_verify.sampler_check.battery.texts import TEXTS, Models, models
from resispec_verify.sampler_check.calls import Caller, SamplerError, tokens_of
from resispec_verify.sampler_check.sources.drawn import MOST_ROWS, Drawn
from resispec_verify.sampler_check.sources.handing import PLAIN, Handing
from resispec_verify.sampler_check.sources.sequences import Sequences
from resispec_verify.sampler_check.sources.style import Style

__all__ = ["TEXT", "Model", "TextSource"]


class Model:
    """A model that looks at the last token: ``model(tokens)`` is the law after each token, in the form and
    precision that was asked for.

    Parameters
    ----------
    name : str
    table : array (V, V)
        Row x: what is returned after token x.
    handing : Handing
    """

    def __init__(self, name: str, table: np.ndarray, handing: Handing) -> None:
        self.name, self.table, self._held = name, table, handing.array(table.copy())
        self._handing = handing

    def __call__(self, tokens: Any) -> Any:
        """``(..., V)`` for integer tokens ``(...)``, a new array of the same library, on the same device.

        Raises
        ------
        ValueError
            Something that is no array of tokens. Negative ones are not counted from the end.
        """
        if self._handing.arrays == "numpy" or not hasattr(tokens, "dtype"):
            tokens = np.asarray(tokens)
        if isinstance(tokens, np.ndarray):
            tokens = self._handing.array(tokens)
        if not tokens.shape:
            raise ValueError(f"the {self.name} was asked for one token; give it a text, (..., T)")
        kind = str(tokens.dtype).rpartition(".")[2]
        if not kind.startswith(("int", "uint")):
            raise ValueError(f"the {self.name} was given tokens of type {kind}, not integers")
        if bool(((tokens < 0) | (tokens >= len(self.table))).any()):
            raise ValueError(f"the {self.name} was given a token outside of 0..{len(self.table) - 1}")
        return self._held[tokens]


class TextSource:
    """A text a row, written by the sampler's own loop over a target and a draft; its joint law is tested.

    Parameters
    ----------
    models : Models
    handing : Handing
    offset : int
    """

    kind = "text"

    def __init__(self, models: Models, *, handing: Handing = PLAIN, offset: int = 0) -> None:
        self.name, self.handing = models.name, handing
        shifted = models.shifted(offset) if offset else models
        target, targets = handing.laws(shifted.target)
        draft, _ = handing.laws(shifted.draft)
        self.target, self.draft = Model("target", target, handing), Model("draft", draft, handing)
        self.prompt, self.length = np.array(shifted.prompt, dtype=np.int64), shifted.length
        after = [targets] * (self.length - 1)
        self.sequences = Sequences(targets[self.prompt[-1]], after, self.name)
        self.law, self.vocab = self.sequences.law, self.sequences.vocab

    def fit(self) -> FitTest:
        """Over all texts, each token by itself, and each two, however far apart.

        Coins that are drawn once a text make tokens of different rounds depend on each other.
        """
        return self.sequences.fit(apart=self.length - 1)

    @property
    def most_rows(self) -> int:
        """Rows of the largest call."""
        return MOST_ROWS

    def draw(
        self, caller: Caller, rng: np.random.Generator, rows: int, theirs: np.random.Generator | None = None
    ) -> Drawn:
        """One call; ``theirs`` is the generator that the sampler gets, where it is not ``rng``."""
        prompt = {"prompt": np.tile(self.prompt, (rows, 1))}
        result = self.handing.call(
            caller, prompt, theirs or rng, before=(self.target, self.draft), after=(self.length,)
        )
        texts = tokens_of(self._cut(result), rows, self.vocab, columns=self.length, low=0)
        return Drawn(self.sequences.number(texts))

    def _cut(self, result: Any) -> Any:
        """The first ``length`` tokens of each text: the last round may have given more."""
        if isinstance(result, tuple):
            return result
        if isinstance(result, list):
            try:
                short = [len(text) for text in result if len(text) < self.length]
                result = [list(text[: self.length]) for text in result]
            except Exception as error:
                raise SamplerError(f"returned texts that are no lists: {reason_of(error)}") from None
        else:
            result = np.asarray(result)
            if result.ndim != 2:
                raise SamplerError(f"returned texts of shape {result.shape}, not (rows, {self.length})")
            short = [result.shape[1]] if result.shape[1] < self.length else []
            result = result[:, : self.length]
        if short:
            raise SamplerError(f"returned a text of {short[0]} new tokens; {self.length} were asked for")
        return result

    def describe(self, token: int) -> str:
        """A text, in words."""
        return self.sequences.describe(token)


def _sources(one: Models, settings: Any, handing: Handing) -> list[TextSource]:
    return [TextSource(one, handing=handing, offset=settings.offset)]


TEXT = Style("text", ("target", "draft", "prompt", "length"), Models, TEXTS, models, _sources)
