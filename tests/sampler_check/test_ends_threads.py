"""Blocks of `served_from` that overlap: of threads, and left out of order."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest

from resispec_verify.errors import InputError
from resispec_verify.testing import served_from

legacy: Any = np.random  # the global generator


@pytest.fixture(autouse=True)
def put_back():
    """All functions are, after each test."""
    owners = random, legacy, random._inst  # type: ignore[attr-defined]
    before = [{name: getattr(owner, name) for name in dir(owner)} for owner in owners]
    yield
    for owner, names in zip(owners, before, strict=True):
        assert {name: getattr(owner, name) for name in dir(owner)} == names
    random.seed(0)
    first = random.random()
    random.seed(0)
    assert random.random() == first


def test_a_second_thread_is_refused_while_a_block_is_open():
    entered, tried = threading.Event(), threading.Event()
    refused: list[str] = []

    def first():
        with served_from(np.random.default_rng(1)):
            entered.set()
            assert tried.wait(10)

    def second():
        assert entered.wait(10)
        try:
            with served_from(np.random.default_rng(2)):
                refused.append("entered")
        except InputError as error:
            refused.append(str(error))
        tried.set()

    threads = [threading.Thread(target=first, name="one"), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    assert "open in another thread, 'one'" in refused[0]
    assert "one thread at a time" in refused[0]


def test_threads_after_each_other_are_served():
    found: list[float] = []

    def job(seed):
        with served_from(np.random.default_rng(seed)):
            found.append(random.random())

    for seed in (1, 2):
        thread = threading.Thread(target=job, args=(seed,))
        thread.start()
        thread.join()
    assert found == [np.random.default_rng(seed).random() for seed in (1, 2)]


def test_generators_that_are_closed_out_of_order_leave_nothing_behind():
    def block(seed):
        with served_from(np.random.default_rng(seed)):
            yield

    outer, inner = block(1), block(2)
    next(outer), next(inner)
    outer.close()
    assert random.random() == np.random.default_rng(2).random()  # the inner one serves on
    inner.close()


def test_torch_is_put_back_by_blocks_that_are_closed_out_of_order():
    torch = pytest.importorskip("torch")
    state, seeding = torch.get_rng_state(), torch.manual_seed

    def block(seed):
        with served_from(np.random.default_rng(seed)):
            torch.randn(1)
            yield

    outer, inner = block(1), block(2)
    next(outer), next(inner)
    outer.close()
    inner.close()
    assert torch.manual_seed is seeding
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(0)
    own = torch.rand(2)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(2), own)
    torch.set_rng_state(state)


def test_a_block_that_cannot_be_entered_replaces_nothing():
    for _ in range(2):
        with pytest.raises(InputError), served_from(np.random.default_rng(0), libraries=["numpy", "jax"]):
            pass
    with served_from(np.random.default_rng(3)):
        assert legacy.random() == np.random.default_rng(3).random()
