"""A server on loopback whose answers are written by hand, and a toy law that depends on the whole prefix."""

import contextlib
import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VOCAB = 12


class Raw:
    """An answer that is no plain JSON: bytes, status, headers; ``hang_up`` ends the connection early."""

    def __init__(self, body=b"", status=200, headers=(), *, hang_up=False):
        self.body = body if isinstance(body, bytes) else body.encode()
        self.status, self.headers, self.hang_up = status, dict(headers), hang_up


def events(pieces, *, done=True):
    """Server-sent events, as vLLM and SGLang write them."""
    body = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces)
    return Raw(": ping\n\n" + body + ("data: [DONE]\n\n" if done else ""))


class CannedServer:
    """Answers of ``routes``: a path to a value, or to a function of the request's body.

    ``requests`` has (path, body, headers) of each request in turn.
    """

    def __init__(self, routes):
        self.routes, self.requests = routes, []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # One write, at once: else every answer waits for an acknowledgement.
            wbufsize, disable_nagle_algorithm = -1, True

            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                server.requests.append((self.path, body, dict(self.headers)))
                found = server.routes.get(self.path, Raw('{"error": "not found"}', 404))
                said = found(body) if callable(found) else found
                raw = said if isinstance(said, Raw) else Raw(json.dumps(said))
                self.send_response(raw.status)
                for name, value in raw.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(raw.body) + (100 if raw.hang_up else 0)))
                self.end_headers()
                # A client that gave up has closed its end.
                with contextlib.suppress(OSError):
                    self.wfile.write(raw.body)
                if raw.hang_up:
                    self.close_connection = True

            do_GET = do_POST = answer

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def __enter__(self):
        # The default looks twice a second whether to stop.
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def bodies(self, path):
        return [body for there, body, _ in self.requests if there == path]


def toy_logprobs(prefix):
    """Log-probabilities after a prefix: another law for every prefix, (VOCAB,)."""
    state = 17
    for token in prefix:
        state = (state * 31 + token + 1) % 100_003
    logits = [((state * (i + 3) * 7919) % 1009) / 250.0 for i in range(VOCAB)]
    total = math.log(math.fsum(math.exp(x) for x in logits))
    return [x - total for x in logits]


def toy_top(prefix, k):
    """The ``k`` most probable (id, log-probability) after a prefix."""
    return sorted(enumerate(toy_logprobs(prefix)), key=lambda pair: -pair[1])[:k]
