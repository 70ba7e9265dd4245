"""The client of all schemas: retries, time-outs, and errors of one line without a key."""

import email.utils
import ipaddress
import json
import socket
import threading
import time

import pytest
from canned_server import CannedServer, Raw, events

from resispec_verify.audit.interface import EngineError
from resispec_verify.audit.servers import http
from resispec_verify.audit.servers.http import Client, same_server
from resispec_verify.errors import InputError

KEY = "sk-very-secret-0123"


@pytest.fixture(autouse=True)
def clients(monkeypatch):
    """Every client of a test is closed at its end, and waits for nothing."""
    made = []

    def init(self, *arguments, **options):
        plain(self, *arguments, **options)
        self.waits = []
        self._sleep = self.waits.append
        made.append(self)

    plain = Client.__init__
    monkeypatch.setattr(Client, "__init__", init)
    yield
    for client in made:
        client.close()


def client_of(server, **options):
    return Client(server.url, **options)


def failing(server, path="/x", **options):
    with pytest.raises(EngineError) as caught:
        client_of(server, **options).post(path, {"a": 1})
    text = str(caught.value)
    assert text.startswith(server.url)
    assert "\n" not in text
    return text


def in_turn(*answers):
    left = list(answers)
    return lambda _: left.pop(0)


def test_a_busy_server_is_asked_again_when_it_says():
    busy = Raw("slow down", 429, {"Retry-After": "7"})
    with CannedServer({"/x": in_turn(busy, Raw("", 503), {"ok": 1})}) as server:
        client = client_of(server)
        assert client.post("/x", {}) == {"ok": 1}
        assert client.waits == [7.0, 0.5]


def test_a_date_of_retry_after_is_read():
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    with CannedServer({"/x": in_turn(Raw("", 429, {"Retry-After": date}), {})}) as server:
        client = client_of(server)
        client.post("/x", {})
    assert 25 < client.waits[0] <= 30


def test_waiting_is_bounded_altogether():
    with CannedServer({"/x": lambda _: Raw("quota\nof the day", 429, {"Retry-After": "25"})}) as server:
        text = failing(server)
        assert "busy (429) after 3 tries, and asks to wait 25 s: quota of the day" in text
        assert len(server.requests) == 3
    with CannedServer({"/x": lambda _: Raw("", 503)}) as server:
        assert f"after {http.TRIES} tries" in failing(server)
        assert len(server.requests) == http.TRIES


def test_a_lost_connection_is_tried_again():
    with CannedServer({"/x": in_turn(Raw('{"half": ', hang_up=True), {"ok": 1})}) as server:
        assert client_of(server).post("/x", {}) == {"ok": 1}


def test_a_server_that_always_hangs_up_is_an_error():
    with CannedServer({"/x": lambda _: Raw('{"half": ', hang_up=True)}) as server:
        assert f"the connection broke {http.TRIES} times at /x" in failing(server)


def test_an_error_of_the_server_is_quoted_shortly():
    with CannedServer({"/x": Raw("CUDA error:\n" + "x" * 5000, 500)}) as server:
        text = failing(server)
    assert "/x fails with 500: CUDA error: xxx" in text
    assert len(text) < 300


def test_a_slow_answer_is_an_error_and_not_tried_again():
    def slow(_):
        time.sleep(0.5)
        return {}

    with CannedServer({"/x": slow}) as server:
        assert "no answer to /x within 0.05 s; allow more with --timeout" in failing(server, timeout=0.05)
        assert len(server.requests) == 1


def test_an_answer_that_trickles_is_as_slow():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def trickle():
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while not stop.wait(0.02):
                    connection.sendall(b" ")

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.2)
        with pytest.raises(EngineError, match=r"within 0\.2 s"):
            client.get("/x")
        stop.set()
        thread.join()


def test_what_does_not_speak_http():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            for _ in range(http.TRIES):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(EngineError, match="or this is no HTTP"):
            client.get("/x")
        thread.join()


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(EngineError, match=f"http://127.0.0.1:{port}: no connection .*does the server run"):
        Client(f"http://127.0.0.1:{port}").get("/x")


def test_answers_that_are_no_json():
    with CannedServer({"/x": Raw("<html>hello</html>")}) as server:
        assert "/x answers with what is no JSON: <html>hello</html>" in failing(server)
        assert client_of(server).get("/x", optional=True) is None


def test_an_answer_too_large(monkeypatch):
    monkeypatch.setattr(http, "MOST_BYTES", 1 << 20)
    with CannedServer({"/x": Raw(b" " * (1 << 20) + b"{}")}) as server:
        assert "answers with more than 1 MiB" in failing(server)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_never_shown(status, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY + "\n")
    with CannedServer({"/x": Raw(f"bad key {KEY}", status)}) as server:
        text = failing(server, key_env="MY_KEY")
        assert server.requests[0][2]["Authorization"] == f"Bearer {KEY}"
    assert f"refused without a valid key ({status})" in text
    assert "--key-env" in text
    assert KEY not in text


def test_a_key_that_a_server_repeats_is_not_shown(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with CannedServer({"/x": Raw(f"Bearer {KEY} is over its limit", 500), "/y": {"n": KEY}}) as server:
        assert "Bearer *** is over its limit" in failing(server, key_env="MY_KEY")
        client = client_of(server, key_env="MY_KEY")
        with pytest.raises(EngineError) as caught:
            client.need(client.get("/y"), int, "n")
    assert KEY not in str(caught.value)


def test_credentials_of_an_address_are_sent_and_not_shown():
    with CannedServer({"/a/x": Raw("no, pa ss", 500)}) as server:
        port = server.url.rpartition(":")[2]
        client = Client(f"http://me:pa%20ss@127.0.0.1:{port}/a/v1/")
        assert client.name == f"http://127.0.0.1:{port}/a"
        with pytest.raises(EngineError, match=r"/a: /x fails with 500: no, \*\*\*"):
            client.get("/x")
        server.routes["/a/x"] = Raw(server.requests[0][2]["Authorization"], 500)
        with pytest.raises(EngineError, match=r"/a: /x fails with 500: Basic \*\*\*$"):
            client.get("/x")


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:80",
        "ftp://h",
        "http://",
        "http://h:99999",
        "http://h/?key=sk-1",
        "http://[::1",
        "http://a b",
    ],
)
def test_what_is_no_address(url):
    with pytest.raises(InputError, match=r"^url: ") as caught:
        Client(url)
    assert "sk-1" not in str(caught.value)


def test_a_key_has_to_be_there(monkeypatch):
    monkeypatch.delenv("NO_KEY", raising=False)
    with pytest.raises(InputError, match="NO_KEY is not set"):
        Client("http://127.0.0.1:1", key_env="NO_KEY")
    monkeypatch.setenv("NO_KEY", "geheim\x01")
    with pytest.raises(InputError) as caught:
        Client("http://127.0.0.1:1", key_env="NO_KEY")
    assert "geheim" not in str(caught.value)


def test_no_proxy_comes_in_by_the_environment(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with CannedServer({"/x": {"ok": 1}}) as server:
        assert client_of(server).get("/x") == {"ok": 1}


def test_what_is_not_there_is_none_where_that_may_be():
    with CannedServer({"/x": Raw("{}", 501)}) as server:
        client = client_of(server)
        assert client.get("/x", optional=True) is None
        assert client.text("/x") is None
        assert client.get("/none", optional=True) is None
        with pytest.raises(EngineError, match=r"there is no /none \(404\); is it another --schema"):
            client.get("/none")


def test_missing_fields_are_named():
    with CannedServer({}) as server:
        client = client_of(server)
    data = {"choices": [{"token_ids": None, "n": True}]}
    for kind, keys, text in (
        (list, ("choices", 1), r"its answer has no field choices\[1\]"),
        (list, ("choices", 0, "ids"), r"its answer has no field choices\[0\]\.ids"),
        (list, ("choices", 0, "token_ids"), r"field choices\[0\]\.token_ids of its answer is null"),
        (int, ("choices", 0, "n"), r"field choices\[0\]\.n of its answer is true"),
        (list, (), r"body of its answer is \{"),
    ):
        with pytest.raises(EngineError, match=text):
            client.need(data, kind, *keys)


def test_streams_are_read_to_their_end():
    with CannedServer({"/x": events([{"a": 1}, {"a": 2}]), "/y": events([{"a": 1}], done=False)}) as server:
        client = client_of(server)
        assert client.events("/x", {}) == [{"a": 1}, {"a": 2}]
        with pytest.raises(
            EngineError, match=r"ended before its stream was complete \(no \[DONE\] after 1 pieces"
        ):
            client.events("/y", {})


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        (json.dumps({"error": {"message": "engine died"}}), "broke off: .*engine died"),
        ("[1]", "which is no object"),
        ("{", "what is no JSON"),
    ],
)
def test_what_breaks_a_stream(piece, text):
    with CannedServer({"/x": Raw(f"data: {piece}\n\ndata: [DONE]\n\n")}) as server:
        client = client_of(server)
        with pytest.raises(EngineError, match=text):
            client.events("/x", {})


def test_a_key_is_not_shown_in_another_form(monkeypatch):
    key = 'sk-"quoted"/0123'
    monkeypatch.setenv("MY_KEY", key)
    for form in (key, json.dumps(key), "sk-%22quoted%22%2F0123"):
        with CannedServer({"/x": Raw(f"bad: {form}".encode(), 500)}) as server:
            assert "quoted" not in failing(server, key_env="MY_KEY")


def test_a_key_that_a_server_has_in_its_facts_is_taken_out(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with CannedServer({}) as server:
        said = {"version": f"1 {KEY}", "more": [{KEY: 1}], "n": 2, "x": float("nan")}
        assert client_of(server, key_env="MY_KEY").clean(said) == {
            "version": "1 ***",
            "more": [{"***": 1}],
            "n": 2,
            "x": "nan",
        }


def test_a_text_that_is_no_utf_8_is_sent_escaped():
    with CannedServer({"/x": {"a": 1}}) as server:
        assert client_of(server).post("/x", {"prompt": "\ud800"}) == {"a": 1}
        assert server.bodies("/x") == [{"prompt": "\ud800"}]


NAMES = {
    "localhost": ["127.0.0.1", "::1"],
    "on.example": ["10.0.0.7"],
    "off.example": ["10.0.0.7"],
    "127.1": ["127.0.0.1"],
}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://localhost:8001", "http://127.0.0.1:8001", True),
        ("http://[::1]:8001/", "http://LOCALHOST:8001", True),
        ("http://[::1]:8001", "http://127.0.0.1:8001/v1", True),
        ("http://0.0.0.0:8001", "http://127.0.0.1:8001", True),
        ("http://[::ffff:127.0.0.1]:8001", "http://127.0.0.1:8001", True),
        ("http://127.1:8001", "http://127.0.0.1:8001", True),
        ("http://user:word@127.0.0.1:8001", "http://127.0.0.1:8001", True),
        ("http://on.example", "http://ON.example:80", True),
        ("https://on.example.", "https://on.example:443/v1/", True),
        ("http://on.example:8001", "http://10.0.0.7:8001", True),
        ("http://on.example", "http://off.example", False),  # a proxy may tell them apart by their names
        ("http://on.example", "https://on.example", False),
        ("http://localhost:8001", "http://localhost:8000", False),
        ("http://localhost/on", "http://localhost/off", False),
        ("http://127.0.0.1:8001", "http://127.0.0.2:8001", False),
        ("http://nobody.example", "http://127.0.0.1", False),
    ],
)
def test_which_addresses_are_one_server(monkeypatch, one, other, same):
    def resolve(host, port, type):
        if host in NAMES:
            return [(None, None, None, None, (address, 0)) for address in NAMES[host]]
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise OSError("no such name") from None
        return [(None, None, None, None, (host, 0))]

    monkeypatch.setattr(http.socket, "getaddrinfo", resolve)
    assert same_server(one, other) is same
    assert same_server(other, one) is same
