"""Two llama.cpp HTTP servers on 127.0.0.1 with the same target: OFF, and ON with a draft model.

``python experiments/engines/live/llamacpp_servers.py --verification plain -- COMMAND {on} {off}`` runs a
command with their addresses filled in and passes its exit status; without one the servers run until Ctrl-C.
Each is llama.cpp's own server, built into the package xllamacpp, in a process of its own that ends when this
one does, however that ends.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from make_draft import draft_gguf, find_gguf

#: plain: the draft's best tokens, the target's sampler decides by match. probabilistic
#: (--spec-draft-sampling): drawn from the draft, verified by rejection sampling. synthetic
#: (--spec-synth-rates): kept at given rates whatever the models say; lossy on purpose.
VERIFICATIONS = ("plain", "probabilistic", "synthetic")
# Of the draft tokens by position; the last goes on.
SYNTHETIC_RATES = (0.6, 0.5, 0.4, 0.3)
START_SECONDS = 120
#: llama.cpp computes attention of 64 or more tokens of a sequence at once by another kernel, whose rounding
#: moves the law of a quantised model by some hundredths. Below, a prefix has one law however it was computed.
BATCH = 32


@dataclass(frozen=True)
class Server:
    """How one server is to run; without a draft it is OFF."""

    target: str
    draft: str | None = None
    verification: str = "plain"
    draft_tokens: int = 4
    parallel: int = 4
    context: int = 1024
    threads: int = 1
    batch: int = BATCH


def serve(server: Server) -> None:
    """Run one server in this process, print its address and stay until standard input ends."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = server.target
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = server.parallel
    params.n_ctx = server.context * server.parallel
    params.n_batch = params.n_ubatch = server.batch
    params.n_gpu_layers = 0
    params.fit_params = False
    params.endpoint_metrics = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = server.threads
    if server.draft is not None:
        speculative = params.speculative
        speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        draft = speculative.draft
        draft.mparams.path = server.draft
        draft.n_max = server.draft_tokens
        draft.n_gpu_layers = 0
        draft.cpuparams.n_threads = draft.cpuparams_batch.n_threads = server.threads
        draft.probabilistic = server.verification == "probabilistic"
        if server.verification == "synthetic":
            rates = SYNTHETIC_RATES + SYNTHETIC_RATES[-1:] * server.draft_tokens
            speculative.synth_rates = list(rates[: server.draft_tokens])
    running = xllamacpp.Server(params)
    print(running.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # the server's threads would be waited for


@contextmanager
def running(server: Server) -> Iterator[str]:
    """Address of a server that runs as long as the block.

    Raises
    ------
    RuntimeError
        It did not start; the end of what it wrote is in the message.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--serve", json.dumps(asdict(server))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
        try:
            yield _address(process, log)
        finally:
            process.stdin.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def _address(process: subprocess.Popen, log) -> str:
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        line = process.stdout.readline().strip() if selector.select(START_SECONDS) else ""
    if not line.startswith("http"):
        log.seek(0)
        lines = log.read().splitlines()
        # llama.cpp marks its errors so; the last line is Python's.
        said = [line for line in lines if " E " in line][:1] + lines[-1:]
        raise RuntimeError(f"a llama.cpp server did not start: {' | '.join(said)}")
    return line


@contextmanager
def servers(
    draft: str | Path | None = None,
    verification: str = "plain",
    draft_tokens: int = 4,
    parallel: int = 4,
    threads: int = 1,
    batch: int = BATCH,
) -> Iterator[tuple[str, str]]:
    """Addresses of ON and OFF, which run as long as the block.

    Parameters
    ----------
    draft : path, optional
        A GGUF file with the tokenizer of the target. Default: the one of `make_draft`.
    verification : {"plain", "probabilistic", "synthetic"}
    draft_tokens : int
        At most so many are drafted in a round.
    parallel : int
        Slots of each server.
    threads : int
        Of each server.
    batch : int
        Tokens computed at once; llama.cpp's own default is 512.

    Raises
    ------
    ValueError
        Another verification.
    RuntimeError
        A server did not start.
    """
    if verification not in VERIFICATIONS:
        raise ValueError(f"verification is one of {', '.join(VERIFICATIONS)}, not {verification!r}")
    off = Server(str(find_gguf()), parallel=parallel, threads=threads, batch=batch)
    path = str(Path(draft or draft_gguf()).resolve())
    on = replace(off, draft=path, verification=verification, draft_tokens=draft_tokens)
    with ExitStack() as stack:
        yield stack.enter_context(running(on)), stack.enter_context(running(off))


def run(command: Sequence[str], on: str, off: str) -> int:
    """Exit status of a command in whose words ``{on}`` and ``{off}`` are the addresses."""
    words = [word.replace("{on}", on).replace("{off}", off) for word in command]
    return subprocess.run(words).returncode


def main() -> int:
    """Start both and run the command, or wait."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", metavar="JSON", help=argparse.SUPPRESS)
    parser.add_argument("--draft", type=Path, help="a GGUF file; default: made of the target")
    parser.add_argument("--verification", choices=VERIFICATIONS, default="plain")
    parser.add_argument("--draft-tokens", type=int, default=4)
    parser.add_argument("--parallel", type=int, default=4, help="slots of each server")
    parser.add_argument("--threads", type=int, default=1, help="of each server")
    parser.add_argument(
        "--batch", type=int, default=BATCH, help="tokens computed at once; llama.cpp's own: 512"
    )
    parser.add_argument("command", nargs="*", help="with {on} and {off} where the addresses are to be")
    options = parser.parse_args()
    if options.serve:
        serve(Server(**json.loads(options.serve)))
    if options.draft is not None and not options.draft.is_file():
        parser.error(f"there is no draft {options.draft}")
    # What ends this process from outside is to end the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    settings = (options.draft_tokens, options.parallel, options.threads, options.batch)
    try:
        with servers(options.draft, options.verification, *settings) as (on, off):
            print(f"on {on}\noff {off}", file=sys.stderr, flush=True)
            if options.command:
                return run(options.command, on, off)
            signal.pause()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except RuntimeError as error:
        sys.exit(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
