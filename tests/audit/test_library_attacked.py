"""Functions that do what functions should not."""

import sys

import pytest

from resispec_verify.audit.interface import EngineError, Sampling
from resispec_verify.audit.library import FunctionEngine


def leaves(ids, count, seed):
    sys.exit(0)


def many(found):
    def generate(prompts, counts, seeds):
        return found

    generate.many = True
    return generate


def rising(ids, count, seed):
    yield 1
    raise ValueError("in the middle")


@pytest.mark.parametrize(
    ("generate", "text"),
    [
        (leaves, "raises SystemExit: 0"),
        (rising, "raises ValueError: in the middle"),
        (many(None), "gives NoneType, not a list of completions"),
        (lambda *_: {1: 2, "tokens": [1]}, r"gives \['1', 'tokens'\]; wanted"),
    ],
)
def test_what_a_function_does_wrong_is_an_error_of_one_line(generate, text):
    with pytest.raises(EngineError, match=text):
        FunctionEngine(generate, "f").complete((1,), 3, 0, Sampling())


def test_a_generator_gives_its_tokens():
    assert FunctionEngine(lambda ids, n, seed: iter([4, 5, 6, 7]), "f").complete(
        (1,), 3, 0, Sampling()
    ).tokens == [
        4,
        5,
        6,
    ]


@pytest.mark.parametrize(
    ("law", "text"),
    [(lambda ids: [[1.0], [1.0, 2.0]], "gives no logits"), (lambda ids: None, "gives no logits")],
)
def test_a_law_that_is_none_is_an_error_of_one_line(law, text):
    with pytest.raises(EngineError, match=text):
        FunctionEngine(lambda *_: [1], "f", law=law).laws((1,), [2], 4)


def test_rows_that_are_none_are_an_error_of_one_line():
    def law(ids, tokens):
        return None

    law.many = True
    with pytest.raises(EngineError, match="law gives NoneType, not rows of logits"):
        FunctionEngine(lambda *_: [1], "f", law=law).laws((1,), [2], 4)
