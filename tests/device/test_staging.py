"""Double buffering against a simulated device that does its work as late, or as out of order, as it may."""

from __future__ import annotations

import inspect
import random
from types import SimpleNamespace

import numpy as np
import pytest

from resispec_verify.device import staging
from resispec_verify.device.staging import staged


class Simulator:
    """Streams as queues. The host only puts work on them; it runs in any order that the events allow."""

    def __init__(self, seed: int) -> None:
        self.random, self.streams, self.pinned = random.Random(seed), [], 0
        self.current = self.stream()
        simulator = self

        class Event:
            """What was put on a stream before the last call of record."""

            def __init__(self) -> None:
                self.before = (None, 0)

            def record(self, stream) -> Event:
                self.before = (stream, stream.put)
                return self

            def synchronize(self) -> None:
                while not simulator.over(self.before):
                    simulator.step()

        self.event = Event
        self.cuda = SimpleNamespace(
            get_current_stream=lambda: self.current,
            Stream=lambda non_blocking: self.stream(),
            Event=Event,
            alloc_pinned_memory=self.memory,
        )

    def stream(self):
        stream = SimpleNamespace(queue=[], put=0, done=0)

        def put(work, waits=None):
            stream.queue.append((work, waits))
            stream.put += 1

        stream.work = put
        # An event's wait is for what was recorded by then, not for what is recorded later.
        stream.wait_event = lambda event: put(lambda: None, event.before)
        stream.record = lambda: self.event().record(stream)
        self.streams.append(stream)
        return stream

    def over(self, before) -> bool:
        stream, put = before
        return stream is None or stream.done >= put

    def step(self) -> bool:
        """One piece of work of any stream that can go on."""
        able = [s for s in self.streams if s.queue and self.over(s.queue[0][1] or (None, 0))]
        if not able:
            return False
        stream = self.random.choice(able)
        work, _ = stream.queue.pop(0)
        work()
        stream.done += 1
        return True

    def memory(self, size):
        self.pinned += 1
        return bytearray(size)

    def empty(self, shape, dtype):
        return Array(np.full(shape, 99, dtype))


class Array:
    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def __getitem__(self, key) -> Array:
        return Array(self.values[key])

    def set(self, host: np.ndarray, stream) -> None:
        stream.work(lambda: np.copyto(self.values, host))  # reads the pinned memory only then


def run(function, seed: int, count: int = 7) -> bool:
    """Whether every batch was seen by the work put on the computing stream for it."""
    device = Simulator(seed)
    batches = [(np.full((2, 3), k, np.uint16), np.full((2, 3), k, np.float32)) for k in range(count - 1)]
    batches += [(np.full((1, 3), count - 1, np.uint16), np.full((1, 3), count - 1, np.float32))]
    seen = []
    for target, draft in function(iter(batches), device):
        for _ in range(device.random.randrange(4)):
            device.step()
        device.current.work(lambda t=target, d=draft: seen.append((t.values.copy(), d.values.copy())))
    while device.step():
        pass
    assert device.pinned <= 4  # two slots of two arrays
    return len(seen) == count and all(
        (ours == theirs).all() and ours.shape == theirs.shape
        for pair, batch in zip(seen, batches, strict=True)
        for ours, theirs in zip(pair, batch, strict=True)
    )


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_batch_arrives_whatever_the_order(count):
    assert all(run(staged, seed, count) for seed in range(100))


def test_nothing_comes_of_nothing():
    assert list(staged(iter([]), Simulator(0))) == []


@pytest.mark.parametrize(
    "guard",
    [
        "self.copied.synchronize()",
        "copying.wait_event(self.computed)",
        "computing.wait_event(self.copied)",
        "waiting.computed.record(computing)",
        "self.copied.record(copying)",
    ],
)
def test_each_guard_is_needed(guard):
    source = inspect.getsource(staging)
    assert source.count(guard) == 1
    scope: dict = {}
    exec(compile(source.replace(guard, "pass"), "<without a guard>", "exec"), scope)
    assert not all(run(scope["staged"], seed) for seed in range(100))
