"""What an audit asks of an engine, whether it is a server or a function: tokens, and the law of the next one.

Tokens are ids. Where an engine has only texts of tokens they are texts, and an audit of the two never
mixes them: `Engine.tokens_are` says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from resispec_verify.errors import InputError

__all__ = [
    "Completion",
    "Engine",
    "EngineError",
    "Prompt",
    "RawLaw",
    "Sampling",
    "Token",
    "same_schema",
    "same_tokens",
]

#: An id, or the text of a token where an engine has no ids.
Token = int | str
#: Token ids, or a text that the engine tokenises itself.
Prompt = Sequence[int] | str


class EngineError(Exception):
    """An engine did not answer, or not what it is to answer: one line. What was gathered before is kept."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are to be drawn: stated in every request, also where it is the engine's default.

    Attributes
    ----------
    temperature : float
        Above 0.
    top_k : int
        0 for none.
    top_p : float
        1 for none.
    min_p : float
        0 for none.
    ignore_eos : bool
        Go on after the end of a text, so that completions have one length.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    ignore_eos: bool = True


@dataclass(frozen=True)
class RawLaw:
    """What an engine says of the next token: its most probable ones, at temperature 1 and without filters.

    Attributes
    ----------
    tokens : tuple of Token (k,)
        Most probable first.
    logprobs : tuple of float (k,)
        Natural logarithms of their probabilities, descending.
    complete : bool
        Whether these are all tokens there are.

    Without tokens: the engine could not say this law.
    """

    tokens: tuple[Token, ...]
    logprobs: tuple[float, ...]
    complete: bool = False


@dataclass
class Completion:
    """What an engine emitted after a prompt.

    Attributes
    ----------
    tokens : list of Token
        At most as many as were asked for.
    starts : list of int or None
        Where each round of verification began in ``tokens``, where that can be seen (a stream that comes in
        pieces of several tokens); the first is 0.
    drafted, accepted : int or None
        Draft tokens that were verified, and that were accepted, where the engine reports them; 0 where it
        would have reported them and did not.
    laws : list of RawLaw or None
        What the engine said of its own tokens while it drew them: used of a reference only.
    oddities : list of str
        What it reported that cannot be right, a sentence each; the audit goes on.
    seconds : float
    """

    tokens: list[Token]
    starts: list[int] | None = None
    drafted: int | None = None
    accepted: int | None = None
    laws: list[RawLaw] | None = None
    oddities: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Engine(Protocol):
    """An engine that is audited, or the reference. All methods may be called from several threads at once.

    Attributes
    ----------
    name : str
        What the user called it: an address without credentials, ``file.py:callable``.
    tokens_are : {"ids", "texts"}
    gives_laws : bool
        Whether `laws` can be asked.
    vocab : int or None
        Size of the vocabulary, where it is known.
    """

    name: str
    tokens_are: str
    gives_laws: bool
    vocab: int | None

    def facts(self) -> dict[str, Any]:
        """What the engine says of itself (model, version, schema), plain values for the report."""
        ...

    def encode(self, text: str) -> Prompt:
        """The ids of a text, as the engine tokenises a prompt; the text itself where it has none."""
        ...

    def complete(
        self, prompt: Prompt, count: int, seed: int, sampling: Sampling, *, own_laws: int = 0
    ) -> Completion:
        """At most ``count`` tokens after ``prompt``.

        Parameters
        ----------
        own_laws : int
            Ask for the ``own_laws`` most probable tokens at each place, as the engine saw them while it drew;
            0 asks for nothing. ``laws`` of the result is None where it gave none.

        Raises
        ------
        EngineError
        """
        ...

    def request(self, prompt: Prompt, count: int, seed: int, sampling: Sampling) -> dict[str, Any] | None:
        """The request that `complete` sends, to be shown: ``url`` without credentials, and ``body``; None
        where it sends none.
        """
        ...

    def laws(self, prompt: Prompt, tokens: Sequence[Token], top: int, *, fresh: bool = False) -> list[RawLaw]:
        """The law before each of ``tokens`` after ``prompt``: entry i is after ``prompt + tokens[:i]``.

        Parameters
        ----------
        top : int
            How many of the most probable tokens are wanted; an engine may give fewer.
        fresh : bool
            Have the engine compute it anew, without what it cached of earlier requests, where that can be
            asked.

        Raises
        ------
        EngineError
        """
        ...

    def counters(self) -> tuple[int, int] | None:
        """Draft tokens verified and accepted since the engine started, where it has such counters."""
        ...

    def close(self) -> None:
        """Let go of connections. The engine itself goes on."""
        ...


def same_tokens(engine: Engine, reference: Engine, facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse two engines whose completions are not of one kind: they differ whatever is drawn.

    Parameters
    ----------
    facts : mapping
        What each says of itself, ``engine`` and ``reference``.

    Raises
    ------
    InputError
    """
    kinds = []
    for one, said in ((engine, facts["engine"]), (reference, facts["reference"])):
        kind = "ids" if one.tokens_are == "ids" else said.get("tokens", one.tokens_are)
        kinds.append(f"{kind} of a chat" if said.get("schema") == "chat" else kind)
    if kinds[0] != kinds[1]:
        raise InputError(
            f"{engine.name} gives {kinds[0]}, {reference.name} gives {kinds[1]}: they cannot be compared; "
            "serve both with the same options, and name one --schema"
        )


def same_schema(facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """That two engines are not asked in one way, where they are not; ``facts`` as in `same_tokens`."""
    one, other = (facts[who].get("schema") for who in ("engine", "reference"))
    if one == other:
        return []
    return [f"the engine is asked as {one}, the reference as {other}: are they the same engine?"]
