"""The fake engine as an HTTP server on the loopback, in a thread of this process or as a process of its own.

``python tests/helpers/fake_server.py --schema llamacpp --fault too-cold`` prints its address and serves until
it gets SIGTERM; ``--k 0`` is a reference.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fake_engine import FAULTS, Engine
from fake_models import pair
from fake_schemas import SCHEMAS, Metrics, Refusal, Schema, Stream


@dataclass(frozen=True)
class Behaviour:
    """What a server does wrong beside its engine. Requests are those for tokens: other paths do not count.

    Attributes
    ----------
    dies_after : int or None
        Answers so many requests; then closes every connection without an answer.
    slow : float
        Seconds before each answer.
    rate_limit : int
        Every so many requests one gets status 429 with Retry-After; 0 for none.
    retry_after : int
        Seconds.
    no_logprobs : bool
        Ignores what asks for log-probabilities.
    most_logprobs : int or None
        Status 400 above it; -1 for the whole vocabulary. Default 20, and -1 for llama.cpp.
    """

    dies_after: int | None = None
    slow: float = 0.0
    rate_limit: int = 0
    retry_after: int = 0
    no_logprobs: bool = False
    most_logprobs: int | None = None


class _Server(ThreadingHTTPServer):
    """Ends its connections with it, so that no thread waits on one that a client keeps open."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, port: int, schema: Schema, behaviour: Behaviour):
        self.schema, self.behaviour = schema, behaviour
        self.requests, self.answered = 0, 0
        self.lock, self.ending = threading.Lock(), threading.Event()
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def get_request(self):
        connection, address = super().get_request()
        with self.lock:
            self._open.add(connection)
        return connection, address

    def shutdown_request(self, request):
        with self.lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address):
        """A client that went away is no error of the server."""

    def end(self) -> None:
        self.ending.set()
        self.shutdown()
        with self.lock:
            connections = list(self._open)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # its client closed it first
        self.server_close()

    @property
    def dead(self) -> bool:
        return self.behaviour.dies_after is not None and self.answered >= self.behaviour.dies_after

    def admit(self) -> str:
        """What becomes of a request for tokens: "answer", "wait" or "die"."""
        with self.lock:
            b = self.behaviour
            if self.dead:
                return "die"
            self.requests += 1
            if b.rate_limit and self.requests % b.rate_limit == 0:
                return "wait"
            self.answered += 1
            return "answer"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def log_message(self, format, *args):
        """Say nothing on standard error."""

    def do_GET(self):
        if self.server.dead:
            self.close_connection = True
            return
        self._answer(lambda: self.server.schema.get(self.path))

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path in self.server.schema.paths:
            fate = self.server.admit()
            if fate == "die":
                self.close_connection = True
                return
            if fate == "wait":
                refusal = Refusal(429, "Rate limit reached, try again later")
                after = str(self.server.behaviour.retry_after)
                self._send(429, self.server.schema.error(refusal), {"Retry-After": after})
                return
            self.server.ending.wait(self.server.behaviour.slow)
        elif self.server.dead:
            self.close_connection = True
            return
        self._answer(lambda: self.server.schema.post(self.path, self._json(raw)))

    @staticmethod
    def _json(raw: bytes) -> dict:
        try:
            body = json.loads(raw)
        except ValueError as error:
            raise Refusal(400, f"not JSON: {error}") from None
        if not isinstance(body, dict):
            raise Refusal(400, "the body must be an object")
        return body

    def _answer(self, make) -> None:
        try:
            answer = make()
        except Refusal as refusal:
            self._send(refusal.status, self.server.schema.error(refusal))
            return
        if isinstance(answer, Stream):
            self._events(answer)
        else:
            self._send(200, answer)

    def _send(self, status: int, answer, headers: dict[str, str] | None = None) -> None:
        if isinstance(answer, Metrics):
            kind, data = "text/plain; version=0.0.4; charset=utf-8", answer.text.encode()
        else:
            kind, data = "application/json", b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _events(self, stream: Stream) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in [*map(json.dumps, stream.events), "[DONE]"]:
            data = f"data: {event}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


class FakeServer:
    """An engine behind HTTP while the context lasts: ``with FakeServer(engine, "vllm", slow=0.1) as server``.

    Attributes
    ----------
    url : str
        ``http://127.0.0.1:PORT``.
    """

    def __init__(self, engine: Engine, schema: str = "vllm", port: int = 0, **behaviour):
        self.behaviour = Behaviour(**behaviour)
        most = self.behaviour.most_logprobs
        if most is None:
            most = -1 if schema == "llamacpp" else 20
        made = SCHEMAS[schema](engine, self.behaviour.no_logprobs, most)
        self._server = _Server(port, made, self.behaviour)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def answered(self) -> int:
        """Requests for tokens that were answered."""
        return self._server.answered

    def __enter__(self) -> FakeServer:
        self._thread.start()
        return self

    def __exit__(self, *exc) -> None:
        self._server.end()
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake inference server with planted faults, on 127.0.0.1.")
    parser.add_argument("--schema", choices=list(SCHEMAS), default="vllm")
    parser.add_argument("--fault", choices=list(FAULTS))
    parser.add_argument("--k", type=int, default=3, help="draft tokens a round; 0 decodes plainly")
    parser.add_argument("--seed", type=int, default=0, help="of the toy models")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--port-file", type=Path, help="gets the port once the server listens")
    parser.add_argument("--dies-after", type=int)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--rate-limit", type=int, default=0)
    parser.add_argument("--retry-after", type=int, default=0)
    parser.add_argument("--no-logprobs", action="store_true")
    parser.add_argument("--most-logprobs", type=int)
    given = vars(parser.parse_args())
    target, draft = pair(given.pop("seed"))
    engine = Engine(target, draft, given.pop("k"), given.pop("fault"))
    port_file, stop = given.pop("port_file"), threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: stop.set())
    with FakeServer(engine, given.pop("schema"), given.pop("port"), **given) as server:
        if port_file:
            # Whoever waits for the file never reads half of it.
            port_file.with_suffix(".part").write_text(f"{server.port}\n")
            port_file.with_suffix(".part").rename(port_file)
        print(server.url, flush=True)
        stop.wait()


if __name__ == "__main__":
    main()
