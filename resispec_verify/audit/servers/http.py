"""One HTTP client for all schemas: time-outs, bounded retries, bounded answers, and errors of one line.

Neither a key nor a password is ever part of an error: both are taken out of what a server says, too.
"""

from __future__ import annotations

import base64
import email.utils
import ipaddress
import json
import math
import os
import socket
import time
from typing import Any, NoReturn
from urllib.parse import quote, unquote, urlsplit

import httpx

from resispec_verify.audit.interface import EngineError
from resispec_verify.errors import InputError

__all__ = ["Client", "same_server"]

#: The laws of 4,096 places with 1,000 tokens each are some 300 bytes a token: more than any one answer needs.
MOST_BYTES = 1 << 28
#: Tries of one request, and seconds that it waits between them altogether.
TRIES = 5
PATIENCE = 60.0
FIRST_WAIT = 0.25
#: Connections at once; requests beyond wait for one.
CONNECTIONS = 64
#: Statuses that say: no such door here, or not for such a request.
ABSENT = frozenset({400, 404, 405, 422, 501})
#: Statuses of a server that will answer later.
BUSY = frozenset({429, 503})
QUOTED = 200


class Client:
    """Requests to one server. May be used from several threads at once.

    Parameters
    ----------
    url : str
        ``http://host:port``, with a path where the server stands below one; ``/v1`` at its end is left out.
        ``user:password@`` is sent as basic authentication.
    key_env : str, optional
        Name of the environment variable that holds a key, sent as ``Authorization: Bearer``.
    timeout : float
        Seconds for one request from its start to the end of the answer.

    Raises
    ------
    InputError
        No such address, or no usable key in the environment.
    """

    def __init__(self, url: str, *, key_env: str | None = None, timeout: float = 60.0) -> None:
        self.name, auth = _address(url)
        self._secrets = [secret for secret in auth or () if secret]
        if auth:
            self._secrets.append(base64.b64encode(":".join(auth).encode()).decode())
        headers = {"Accept-Encoding": "identity"}
        if key_env is not None:
            key = _key(key_env)
            self._secrets.append(key)
            headers["Authorization"] = f"Bearer {key}"
            auth = None
        if not timeout > 0.0:
            raise InputError(f"timeout: {timeout} is not a positive number of seconds")
        # As they may come back: in JSON, in an address.
        self._secrets += [form for one in self._secrets for form in (json.dumps(one)[1:-1], quote(one, ""))]
        self._secrets.sort(key=len, reverse=True)
        self._timeout = timeout
        self._sleep = time.sleep
        # Without trust_env: no proxy, and no credentials of .netrc, comes in by the environment.
        self._http = httpx.Client(
            headers=headers,
            auth=auth,
            timeout=timeout,
            trust_env=False,
            limits=httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS),
        )

    def get(self, path: str, *, optional: bool = False) -> Any:
        """The JSON that is at a path; None where ``optional`` and the server has none there."""
        body = self._request("GET", path, None, ABSENT if optional else frozenset())
        return None if body is None else self._json(path, body, optional=optional)

    def text(self, path: str) -> str | None:
        """The text that is at a path, None where the server has none there."""
        body = self._request("GET", path, None, ABSENT)
        return None if body is None else body.decode("utf-8", "replace")

    def post(self, path: str, body: dict[str, Any], *, optional: bool = False) -> Any:
        """The JSON that answers ``body``; None where ``optional`` and the server does not take it."""
        answer = self._request("POST", path, body, ABSENT if optional else frozenset())
        return None if answer is None else self._json(path, answer)

    def has(self, path: str, body: dict[str, Any]) -> bool:
        """Whether a server takes posts at a path, whatever it says of this one."""
        status, _ = self._answered("POST", path, body)
        if status in (401, 403):
            self._refused(path, status)
        return status not in (404, 405)

    def events(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The server-sent events that answer ``body``, up to ``[DONE]``: one entry a piece of the stream."""
        answer = self._request("POST", path, body, frozenset())
        assert answer is not None
        found: list[dict[str, Any]] = []
        for line in answer.decode("utf-8", "replace").split("\n"):
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:") or not data:
                continue
            if data == "[DONE]":
                return found
            event = self._json(path, data.encode())
            if not isinstance(event, dict):
                self.fail(f"{path} streamed {self._quoted(data)}, which is no object")
            if "error" in event:
                self.fail(f"{path} broke off: {self._quoted(json.dumps(event['error']))}")
            found.append(event)
        self.fail(f"{path} ended before its stream was complete (no [DONE] after {len(found)} pieces)")

    def need(self, data: Any, kind: type | tuple[type, ...], *keys: str | int) -> Any:
        """What is at ``keys`` in an answer, of the kind that it must be.

        Raises
        ------
        EngineError
            It is not there or of another kind; the field is named.
        """
        for depth, key in enumerate(keys):
            inside = isinstance(key, int) and key < len(data) if isinstance(data, list) else False
            if inside or (isinstance(data, dict) and key in data):
                data = data[key]  # type: ignore[index]
            else:
                self.fail(f"its answer has no {_field(keys[: depth + 1])}")
        if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
            self.fail(f"{_field(keys)} of its answer is {self._quoted(json.dumps(data))}")
        return data

    def part(self, data: Any, *keys: str) -> dict[str, Any]:
        """The object at ``keys`` in an object; empty where there is none, or null.

        Raises
        ------
        EngineError
            There is something else.
        """
        for key in keys:
            data = self.need(data, dict).get(key)
            if data is None:
                return {}
        return self.need(data, dict)

    def fail(self, what: str) -> NoReturn:
        """Raise `EngineError` that names the address.

        Raises
        ------
        EngineError
        """
        raise EngineError(f"{self.name}: {self._clean(what)}") from None

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None, absent: frozenset[int]
    ) -> bytes | None:
        """The body of an answer; None where its status is one of ``absent``."""
        status, answer = self._answered(method, path, body)
        if status in absent:
            return None
        if status in (401, 403):
            self._refused(path, status)
        if status == 404:
            self.fail(f"there is no {path} (404); is it another --schema, or another --model?")
        if status != 200:
            self.fail(f"{path} fails with {status}: {self._quoted(answer)}")
        return answer

    def _answered(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        """Status and body of an answer, after waiting for a server that is busy or lost the connection."""
        waited = 0.0
        for attempt in range(1, TRIES + 1):
            wait = FIRST_WAIT * 2 ** (attempt - 1)
            try:
                status, headers, answer = self._once(method, path, body)
            except httpx.TimeoutException:
                self.fail(f"no answer to {path} within {self._timeout:g} s; allow more with --timeout")
            except httpx.ConnectError as error:
                self.fail(f"no connection ({_line(error)}); does the server run there?")
            except httpx.RequestError as error:
                if attempt == TRIES:
                    self.fail(
                        f"the connection broke {TRIES} times at {path}, or this is no HTTP ({_line(error)})"
                    )
            else:
                if status not in BUSY:
                    return status, answer
                wait = _retry_after(headers.get("retry-after"), wait)
                if attempt == TRIES or waited + wait > PATIENCE:
                    self.fail(
                        f"{path} is busy ({status}) after {attempt} tries, and asks to wait {wait:g} s: "
                        f"{self._quoted(answer)}"
                    )
            self._sleep(wait)
            waited += wait
        raise AssertionError("the last try returns or raises")

    def _once(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, httpx.Headers, bytes]:
        """One try: its status, headers and body, within the time and the size that are allowed."""
        end = time.monotonic() + self._timeout
        answer = bytearray()
        # Escaped: a text may have a lone surrogate, which is no UTF-8.
        content = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        with self._http.stream(method, self.name + path, content=content, headers=kind) as response:
            for piece in response.iter_bytes():
                answer += piece
                if len(answer) > MOST_BYTES:
                    self.fail(f"{path} answers with more than {MOST_BYTES >> 20} MiB")
                # httpx counts the time between two pieces only.
                if time.monotonic() > end:
                    raise httpx.ReadTimeout("too slow")
            return response.status_code, response.headers, bytes(answer)

    def _refused(self, path: str, status: int) -> NoReturn:
        self.fail(
            f"{path} is refused without a valid key ({status}); "
            "name the environment variable that holds it with --key-env"
        )

    def _json(self, path: str, body: bytes, *, optional: bool = False) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            if optional:
                return None
            self.fail(f"{path} answers with what is no JSON: {self._quoted(body)}")

    def _quoted(self, body: bytes | str) -> str:
        """A short piece of what a server said, on one line."""
        text = body if isinstance(body, str) else body[: 8 * QUOTED].decode("utf-8", "replace")
        text = " ".join("".join(c if c.isprintable() else " " for c in self._clean(text)).split())
        return (text[:QUOTED] + "…" if len(text) > QUOTED else text) or "(nothing)"

    def clean(self, said: Any) -> Any:
        """What a server said of itself, plain values, without the key; what is no number in JSON as text."""
        if isinstance(said, dict):
            return {self.clean(key): self.clean(value) for key, value in said.items()}
        if isinstance(said, list):
            return [self.clean(one) for one in said]
        if isinstance(said, float) and not math.isfinite(said):
            return str(said)
        return self._clean(said) if isinstance(said, str) else said

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _address(url: str) -> tuple[str, tuple[str, str] | None]:
    """An address without credentials, and these."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InputError("url: this is no address; give http://host:port") from None
    if parts.scheme not in ("http", "https") or not host or any(c.isspace() for c in url.strip()):
        raise InputError("url: an address is http://host:port or https://host:port")
    if parts.query or parts.fragment:
        raise InputError("url: an address has no '?' or '#'; a key is named with --key-env")
    try:
        httpx.URL(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")
    except httpx.InvalidURL:
        raise InputError("url: this is no address; give http://host:port") from None
    host = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    auth = (unquote(parts.username or ""), unquote(parts.password or "")) if "@" in parts.netloc else None
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{path}", auth


def same_server(one: str, other: str) -> bool:
    """Whether two addresses are known to lead to one server, by what their hosts resolve to, port and path.

    Two different names of one host may be two servers (behind a proxy that goes by names), and are not called
    one; a name and an address, ``localhost`` and its addresses, are. A host that cannot be resolved is left
    to the connection.

    Raises
    ------
    InputError
        One is no address.
    """
    parts = [urlsplit(_address(url)[0]) for url in (one, other)]
    ports = [part.port or (443 if part.scheme == "https" else 80) for part in parts]
    if ports[0] != ports[1] or parts[0].path != parts[1].path:
        return False
    hosts = [(part.hostname or "").rstrip(".") for part in parts]
    if hosts[0] == hosts[1]:
        return True
    if not any(host == "localhost" or _literal(host) for host in hosts):
        return False
    return bool(_resolved(hosts[0]) & _resolved(hosts[1]))


def _literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host.replace(".", "").isdigit()  # 127.1
    return True


def _resolved(host: str) -> set[str]:
    """The addresses of a host; both of loopback, and the unspecified ones, are one server to a client."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return set()
    addresses = {ipaddress.ip_address(one.partition("%")[0]) for one in found}
    addresses = {getattr(one, "ipv4_mapped", None) or one for one in addresses}
    return {
        "loopback" if one.is_unspecified or str(one) in ("127.0.0.1", "::1") else str(one)
        for one in addresses
    }


def _key(key_env: str) -> str:
    key = os.environ.get(key_env, "").strip()
    if not key:
        raise InputError(f"key-env: the environment variable {key_env} is not set or empty")
    if not key.isascii() or not key.isprintable():
        raise InputError(f"key-env: what {key_env} holds is no key (unprintable characters)")
    return key


def _retry_after(value: str | None, default: float) -> float:
    """Seconds that ``Retry-After`` asks for: a number, or a date."""
    if value is None:
        return default
    try:
        return max(0.0, float(value)) if value.strip().replace(".", "", 1).isdigit() else _until(value)
    except (ValueError, TypeError):
        return default


def _until(date: str) -> float:
    return max(0.0, email.utils.parsedate_to_datetime(date).timestamp() - time.time())


def _field(keys: tuple[str | int, ...]) -> str:
    """``choices[0].token_ids``."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return f"field {text.lstrip('.')}" if keys else "body"


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
