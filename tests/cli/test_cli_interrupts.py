"""Ctrl-C ends every command with 130 and one line, whatever the code that it falls into makes of it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import command, drawn, save

from resispec_verify.cli import interrupts, main
from resispec_verify.tables import marginals, table

SAID = "resispec-verify: interrupted"
pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="signals"), pytest.mark.usefixtures("heard")]


@pytest.fixture
def interrupted_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Interrupt the evaluation of one position, in code that makes something else of it."""

    def patch(position: int, disguise: Callable[[], Any]) -> list[int]:
        seen: list[int] = []
        evaluate = marginals.evaluate

        def evaluated(*arguments: Any, **options: Any) -> None:
            seen.extend(arguments[0].positions.tolist())
            if position in arguments[0].positions:
                disguise()
            evaluate(*arguments, **options)

        monkeypatch.setattr(table, "evaluate", evaluated)
        return seen

    return patch


def plainly() -> None:
    signal.raise_signal(signal.SIGINT)


def as_numba_does() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        raise SystemError("<built-in function kernel> returned a result with an exception set") from error


def as_an_import_does() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError("cannot import name 'half' from partially initialized module 'whole'") from None


def as_a_broken_file() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise OSError(5, "Input/output error") from None


def dropped() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def in_a_finaliser() -> None:
    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    Dying()


def twice() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    "disguise", [plainly, as_numba_does, as_an_import_does, as_a_broken_file, dropped, in_a_finaliser, twice]
)
def test_an_interrupt_in_any_disguise(cli, interrupted_at, dump, tmp_path, disguise):
    seen = interrupted_at(2, disguise)
    journal, report = tmp_path / "j", tmp_path / "r.json"
    one = ["--jobs", 1]  # what an interrupt falls into is in the main thread
    result = cli("kl", "--logits", dump, "--batch", 1, "--resume", journal, "--json", report, *one)
    assert result.status == 130
    assert result.out == ""
    # Where it was dropped the position was finished; what follows is not begun.
    assert result.err == f"{SAID}; 2 of 5 positions are in {journal}: the same command goes on from there\n"
    assert seen == [0, 1, 2]
    assert not report.exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    seen.clear()
    interrupted_at(-1, dropped)
    assert cli("kl", "--logits", dump, "--batch", 1, "--resume", journal).status == 0


def test_an_interrupt_is_not_remembered_by_the_next_command(cli, interrupted_at, dump):
    interrupted_at(0, plainly)
    assert cli("kl", "--logits", dump).status == 130
    interrupted_at(-1, plainly)
    assert cli("inspect", dump).status == 0


def test_an_error_without_an_interrupt_stays_one(interrupted_at, dump):
    def fails() -> None:
        raise SystemError("something else")

    interrupted_at(0, fails)
    with pytest.raises(SystemError, match="something else"):
        main(["kl", "--logits", str(dump)])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL, lambda *_: None])
def test_what_the_program_around_does_with_interrupts_is_left_as_it_is(cli, interrupted_at, dump, handler):
    signal.signal(signal.SIGINT, handler)
    found: list[Any] = []
    interrupted_at(0, lambda: found.append(signal.getsignal(signal.SIGINT)))
    assert cli("kl", "--logits", dump).status == 0
    assert found == [handler]


def test_in_another_thread_nothing_is_installed(dump, capsys):
    status: list[int] = []
    thread = threading.Thread(target=lambda: status.append(main(["inspect", str(dump)])))
    thread.start()
    thread.join()
    assert status == [0]


def test_a_check_raises_only_where_an_interrupt_was_dropped():
    interrupts.check()
    with interrupts.Interrupts() as here:
        interrupts.check()
        dropped()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        assert here.ends(None)
    interrupts.check()


IMPORTS = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            {what}
sys.meta_path.insert(0, Finder())
sys.argv = ["resispec-verify", *{arguments!r}]
from resispec_verify.__main__ import run
sys.exit(run())
"""
KILL = "os.kill(os.getpid(), signal.SIGINT)"
SWALLOW = f"""
            try:
                {KILL}
                while True: pass
            except KeyboardInterrupt:
                raise ImportError('half')"""


@pytest.mark.parametrize(
    "name", ["cyclopts", "numba", "resispec_verify.cli.kl", "resispec_verify.cli.output"]
)
@pytest.mark.parametrize("what", [KILL, SWALLOW], ids=["plain", "as an import error"])
def test_an_interrupt_while_the_program_starts(dump, name, what):
    code = IMPORTS.format(name=name, what=what, arguments=["kl", "--logits", str(dump)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 130, done.stderr
    assert done.stdout == ""
    assert done.stderr == f"{SAID}\n"


@pytest.fixture
def slow(tmp_path: Path) -> list[str]:
    """A run whose third position interrupts the process, and whose first ones take all cores."""
    rule = tmp_path / "slow.py"
    rule.write_text(
        "import os, signal\n"
        "from resispec_verify import SpecInfer, Rule\n"
        "class Slow(Rule):\n"
        "    name, claims_exact, source, depends_on = 'slow', True, 'a test', 'nothing'\n"
        "    def reject(self, state, tokens):\n"
        "        if state.residual.shape[-1] > 3: os.kill(os.getpid(), signal.SIGINT)\n"
        "        return SpecInfer().reject(state, tokens)\n"
    )
    dump = save(tmp_path / "dump.pt", drawn(5, 40, seed=1), drawn(5, 40, seed=2))
    return ["kl", "--logits", str(dump), "--rule", f"{rule}:Slow", "--batch", "1"]


def test_a_process_of_its_own_ends_with_130(slow):
    result = command(*slow)
    assert (result.status, result.out) == (130, "")
    assert [line for line in result.err.splitlines() if "compiling" not in line] == [SAID]


def test_where_interrupts_are_ignored_they_stay_so(slow):
    """As `nohup` and a shell's `&` start a program."""
    result = command(*slow, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert result.status == 0, result.err
    assert "interrupted" not in result.err


def test_what_still_computes_is_not_waited_for():
    from resispec_verify.threads import cores, in_threads

    go, begun = threading.Event(), threading.Event()

    def work(item: int) -> int:
        if item == 0:
            begun.set()
            go.wait(60)
            return 0
        begun.wait(60)
        raise KeyboardInterrupt

    if cores() < 2:
        pytest.skip("needs two threads")
    with pytest.raises(KeyboardInterrupt):
        # In the order of the items the second is asked first: the first still waits when it is raised.
        in_threads(lambda item: work(1 - item), [0, 1])
    assert not go.is_set()
    go.set()
