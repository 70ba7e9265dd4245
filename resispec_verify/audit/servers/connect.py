"""Which schema a server speaks."""

from __future__ import annotations

from resispec_verify.audit.interface import Engine
from resispec_verify.audit.servers.chat import Chat
from resispec_verify.audit.servers.completions import Completions, served_model
from resispec_verify.audit.servers.http import Client
from resispec_verify.audit.servers.llamacpp import LlamaCpp
from resispec_verify.audit.servers.sglang import SGLang, model_info
from resispec_verify.errors import InputError

__all__ = ["SCHEMAS", "connect"]

SCHEMAS = ("auto", "llamacpp", "completions", "chat", "sglang")


def connect(
    url: str,
    *,
    schema: str = "auto",
    key_env: str | None = None,
    timeout: float = 60.0,
    model: str | None = None,
    ignore_eos: bool = True,
) -> Engine:
    """The engine at an address.

    Parameters
    ----------
    url : str
        ``http://host:port``.
    schema : str
        One of `SCHEMAS`; ``auto`` looks for what only llama.cpp and SGLang have, then for OpenAI's.
    key_env : str, optional
        Name of the environment variable that holds a key.
    timeout : float
        Seconds for one request.
    model : str, optional
        Which model to ask for, where a server of OpenAI's schemas has several.
    ignore_eos : bool
        As in the `Sampling` that will be asked for: llama.cpp's laws are then without tokens that end a text.

    Raises
    ------
    EngineError
        Nothing answers there, or nothing known.
    InputError
        No such schema, no such address, or no key in the environment.
    """
    if schema not in SCHEMAS:
        raise InputError(f"schema: there is no {schema!r}; choose one of {', '.join(SCHEMAS)}")
    client = Client(url, key_env=key_env, timeout=timeout)
    try:
        engine = _engine(client, _schema(client, model) if schema == "auto" else schema, model)
        if isinstance(engine, LlamaCpp):
            engine.ignore_eos = ignore_eos
        return engine
    except BaseException:
        client.close()
        raise


def _engine(client: Client, schema: str, model: str | None) -> Engine:
    if schema == "llamacpp":
        return LlamaCpp(client)
    if schema == "sglang":
        return SGLang(client)
    return Chat(client, model) if schema == "chat" else Completions(client, model)


def _schema(client: Client, model: str | None) -> str:
    props = client.get("/props", optional=True)
    if isinstance(props, dict) and "default_generation_settings" in props:
        return "llamacpp"
    if model_info(client) is not None:
        return "sglang"
    models = client.get("/v1/models", optional=True)
    if not isinstance(models, dict) or not isinstance(models.get("data"), list):
        client.fail("answers, but as no schema known here; name one with --schema")
    body = {"model": served_model(client, model), "prompt": "A", "max_tokens": 1}
    return "completions" if client.has("/v1/completions", body) else "chat"
