"""`resispec-verify audit`: a running engine with speculation against the same engine without it."""

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from resispec_verify.audit.files import audit_files
from resispec_verify.audit.interface import Engine, EngineError, Prompt, Sampling
from resispec_verify.audit.library import FunctionEngine
from resispec_verify.audit.prompts import PROMPTS, read_prompts
from resispec_verify.audit.run import audit as run_audit
from resispec_verify.audit.servers import connect, same_server
from resispec_verify.audit.settings import AuditResult, AuditSettings, audit_report
from resispec_verify.cli import interrupts
from resispec_verify.cli.options.group import Options, command_line
from resispec_verify.cli.options.outputs import CaseOptions, JsonOption
from resispec_verify.cli.output import stdout_is, write_text
from resispec_verify.cli.parameters import Count, File, Flag, Number, Text
from resispec_verify.cli.user_samplers import load_callable
from resispec_verify.errors import InputError
from resispec_verify.report.audits import audit_cases, files_cases, print_audit, print_files
from resispec_verify.report.table import print_lines
from resispec_verify.runs.journal import Journal
from resispec_verify.schema import envelope

FILES = (".jsonl", ".ndjson")


@dataclass(frozen=True, kw_only=True)
class EngineOptions(Options):
    """Whose tokens, and against what.

    Attributes
    ----------
    url
        The engine with speculation: http://host:port; or FILE.py:generate, called (ids, count, seed); or a
        file of completions (.jsonl). ENGINE in front does as well.
    reference_url
        The same engine without speculation; in the same forms. --reference does as well.
    draft_url
        The draft model, served alone, or FILE.py:law of it: a rejection can then say what became of its
        tokens.
    law
        For a reference that is a function: FILE.py:law, called (ids), the logits after these ids.
    encode
        For functions: FILE.py:encode, called (text), the ids of a prompt.
    """

    url: Text | None = None
    reference_url: Text | None = None
    reference: Text | None = None
    """The same as --reference-url."""
    draft_url: Text | None = None
    law: Text | None = None
    encode: Text | None = None
    schema: Literal["auto", "llamacpp", "completions", "chat", "sglang"] = "auto"
    """How the servers are asked: llama.cpp's, OpenAI's completions (vLLM) or chats, SGLang's."""
    model: Text | None = None
    """The model to ask for, where a server has several."""
    key_env: Text | None = None
    """Name of the environment variable that holds the key; it is not stored or printed."""
    timeout: Number = 60.0
    """Seconds that a request may take."""

    def both(self, engine: str | None) -> tuple[str, str]:
        """What is audited, and the reference."""
        on = [one for one in (engine, self.url) if one is not None]
        off = [one for one in (self.reference_url, self.reference) if one is not None]
        if len(on) != 1 or len(off) != 1:
            wrong = [
                f"{name} is {'missing' if not given else f'given {len(given)} times'}"
                for name, given in (("--url", on), ("--reference-url", off))
                if len(given) != 1
            ]
            raise InputError(
                f"{' and '.join(wrong)}: say what is audited and against what, once each: audit --url "
                "http://127.0.0.1:8001 --reference-url http://127.0.0.1:8000, the same engine without "
                "speculation"
            )
        if _same(on[0], off[0]):
            also = f" ({_public(off[0])} is the same)" if "://" in on[0] and on[0] != off[0] else ""
            raise InputError(
                f"{_public(on[0])}: is both audited and its own reference{also}; nothing would be compared: "
                "give the same engine without speculation"
            )
        return on[0], off[0]

    def shown(self, on: str, off: str) -> "EngineOptions":
        """The same for a page: as --url and --reference-url, and without the passwords of addresses."""
        draft = None if self.draft_url is None else _public(self.draft_url)
        return replace(self, url=_public(on), reference_url=_public(off), reference=None, draft_url=draft)


@dataclass(frozen=True, kw_only=True)
class RequestOptions(Options):
    """What is asked for, of both alike."""

    mode: Literal["auto", "laws", "samples"] = "auto"
    """laws: tokens against the reference's log-probabilities; samples: first tokens of both."""
    prompts: File | None = None
    """Prompts, one JSON text or list of token ids a line. Default: eight of its own."""
    temperature: Number = 1.0
    """Sampling temperature, above 0."""
    top_k: Count = 0
    """Top-k; 0 for none."""
    top_p: Number = 1.0
    """Top-p; 1 for none."""
    min_p: Number = 0.0
    """Min-p; 0 for none."""
    stop_at_eos: Flag = False
    """Let completions end where the model ends them; else they go on."""
    length: Count = 64
    """Tokens of a completion."""
    first: Count = 4
    """First tokens that are compared in mode samples, and of files."""
    top: Count | None = None
    """Most probable tokens that are asked of the reference (64; 20 of OpenAI's completions)."""
    concurrency: Count = 4
    """Requests at a time."""

    def sampling(self) -> Sampling:
        """The same, as every request states it."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p, not self.stop_at_eos)


@dataclass(frozen=True, kw_only=True)
class AuditEffortOptions(Options):
    """How sure, and for how long."""

    alpha: Number = 1e-6
    """Probability that a lossless engine is rejected, in the whole run."""
    power: Number = 0.99
    """With which the TV that is stated would have been found."""
    tokens: Count = 10_000
    """Tokens of the engine at most; the reference's come on top."""
    requests: Count | None = None
    """Completions of the engine at most. Default: as many as its tokens take."""
    seconds: Number = 600.0
    """Stop after this long; explaining a rejection may take half as long again."""
    least_drafts: Count = 64
    """Fewer accepted or rejected draft tokens than this is not-exercised."""
    band: Number | None = None
    """Total variation up to which the reference's laws count as known. Default: measured."""
    seed: Count = 0
    """Of the first request; each has its own."""


@dataclass(frozen=True, kw_only=True)
class AuditOutputOptions(JsonOption):
    """Where the report goes."""

    out: File | None = None
    """Write a page (HTML) here."""
    resume: File | None = None
    """Keep what was gathered in this journal, and go on from it."""


def audit(
    engine: Text | None = None,
    /,
    *,
    engines: EngineOptions = EngineOptions(),
    requests: RequestOptions = RequestOptions(),
    effort: AuditEffortOptions = AuditEffortOptions(),
    output: AuditOutputOptions = AuditOutputOptions(),
    ci: CaseOptions = CaseOptions(),
) -> int:
    """Is a running engine lossless? Its tokens against the law of the same engine without speculation.

    Exit status: 0 not rejected; 1 rejected, or nothing can be said (reference-mismatch, not-exercised,
    error); 2 bad usage.

    Parameters
    ----------
    engine
        What is audited: --url need not be written. FILE.py:NAME may be package.module:NAME; its code is
        executed.
    """
    on, off = engines.both(engine)
    output.check(junit=ci.file())
    for name in (on, off):
        _no_address(name)
    if on.endswith(FILES) or off.endswith(FILES):
        found = _files(on, off, requests, effort, output)
        return ci.tell("audit", files_cases(found))
    prompts = PROMPTS if requests.prompts is None else read_prompts(requests.prompts)
    result = _Audit(engines, requests, effort, output).run(on, off, prompts)
    console = output.write(audit_report(result))
    print_audit(result, console)
    if output.out is not None:
        from resispec_verify.report.audit_page import audit_page

        command = command_line("audit", engines.shown(on, off), requests, effort, output)
        if write_text(output.out, audit_page(result, command)) and not stdout_is(output.out):
            print_lines(console, [f"{output.out}: the page"])
    return ci.tell("audit", audit_cases(result))


@dataclass
class _Audit:
    """Opens the engines and runs the audit."""

    engines: EngineOptions
    requests: RequestOptions
    effort: AuditEffortOptions
    output: AuditOutputOptions
    opened: list[Engine] = field(default_factory=list)

    def run(self, on: str, off: str, prompts: tuple[Prompt, ...]) -> AuditResult:
        """The result; an engine that does not answer at the beginning is bad input."""
        with ExitStack() as stack:
            # What functions print is not part of the report, which may go there.
            stack.enter_context(redirect_stdout(sys.stderr))
            stack.callback(lambda: [one.close() for one in self.opened])
            with _of("--url"):
                engine = self._open(on)
            with _of("--reference-url"):
                reference = self._open(off, law=True)
            with _of("--draft-url"):
                draft = None if self.engines.draft_url is None else self._draft(self.engines.draft_url)
            settings = self._settings(prompts, reference)
            journal = None
            if self.output.resume is not None:
                journal = stack.enter_context(Journal(self.output.resume, self._header(on, off, settings)))
                interrupts.remark(lambda: f"; what was gathered is in {self.output.resume}")
            say = stack.enter_context(_progress(settings))
            return run_audit(engine, reference, settings, draft=draft, journal=journal, progress=say)

    def _settings(self, prompts: tuple[Prompt, ...], reference: Engine) -> AuditSettings:
        asked, effort = self.requests, self.effort
        # vLLM refuses more than its --max-logprobs, which is 20 unless it was told otherwise.
        few = reference.facts().get("schema") == "completions"
        return AuditSettings(
            sampling=asked.sampling(), mode=asked.mode, prompts=prompts, tokens=effort.tokens,
            requests=effort.requests,
            length=asked.length, first=asked.first, concurrency=asked.concurrency,
            top=asked.top if asked.top is not None else 20 if few else 64,
            seconds=effort.seconds, alpha=effort.alpha, power=effort.power,
            least_drafts=effort.least_drafts, band=effort.band, seed=effort.seed,
        )  # fmt: skip

    def _open(self, name: str, *, law: bool = False) -> Engine:
        chosen = self.engines
        _no_address(name)
        if "://" in name:
            found = connect(
                name, schema=chosen.schema, key_env=chosen.key_env, timeout=chosen.timeout,
                model=chosen.model, ignore_eos=not self.requests.stop_at_eos,
            )  # fmt: skip
        else:
            found = FunctionEngine(
                load_callable(name, ", a file of completions (.jsonl) or http://host:port"),
                name,
                law=load_callable(chosen.law) if law and chosen.law is not None else None,
                encode=None if chosen.encode is None else load_callable(chosen.encode),
            )
        self.opened.append(found)
        return found

    def _draft(self, name: str) -> Engine:
        """The draft's laws: of a server, or of a function that is called as --law is."""
        if "://" in name:
            draft = self._open(name)
            if not draft.gives_laws:
                raise InputError(f"--draft-url {name}: gives no log-probabilities of token ids; leave it out")
            return draft
        _no_address(name)
        law = load_callable(name, " or http://host:port")
        return FunctionEngine(law, name, law=law)

    def _header(self, on: str, off: str, settings: AuditSettings) -> dict[str, Any]:
        """What may share a journal: all that the completions depend on."""
        if str(self.output.resume) == "-":
            raise InputError("--resume needs a file: a journal cannot go to standard output")
        names = [one.name for one in self.opened]
        facts = settings.facts()
        # Not the tokens: the completions of one text are chosen, and begin, by how many there are to be.
        for name in ("seconds", "alpha", "power", "least_drafts", "concurrency"):
            del facts[name]
        return {
            "journal": "resispec-verify audit",
            "engines": ", ".join(names),
            "prompts": [list(p) if not isinstance(p, str) else p for p in settings.prompts],
            "settings": facts,
        }


@contextmanager
def _of(option: str) -> Iterator[None]:
    """An engine that does not answer at the beginning is bad input, of this option."""
    try:
        yield
    except EngineError as error:
        raise InputError(f"{option} {error}") from None


def _no_address(name: str) -> None:
    """Refuse an address without its scheme, which would be read as FILE.py:NAME."""
    if "://" not in name and re.fullmatch(r"[\w.-]+:\d+(/\S*)?", name):
        raise InputError(f"{name}: did you mean http://{name}? Give the scheme, or FILE.py:NAME")


def _same(on: str, off: str) -> bool:
    """Whether both are one function, one file or, as far as that is known, one server."""
    if "://" in on and "://" in off:
        return same_server(on, off)
    return on == off or (os.path.exists(on) and os.path.exists(off) and os.path.samefile(on, off))


def _public(address: str) -> str:
    """Without ``user:password@``."""
    return re.sub(r"(\w+://)[^/]*@", r"\1", address)


def _files(
    on: str, off: str, requests: RequestOptions, effort: AuditEffortOptions, output: AuditOutputOptions
) -> dict[str, Any]:
    """Two files of completions, printed; what was found."""
    if not (on.endswith(FILES) and off.endswith(FILES)):
        raise InputError(f"{on} and {off}: give two files of completions (.jsonl), or two engines")
    if output.out is not None or output.resume is not None:
        raise InputError("--out and --resume are for engines; leave them out with files")
    found = audit_files(Path(on), Path(off), requests.first, effort.alpha, effort.power)
    console = output.write(envelope("audit", [found]))
    print_files(found, console)
    return found


@contextmanager
def _progress(settings: AuditSettings) -> Iterator[Any]:
    """What is going on, on a terminal: tokens, evidence, time."""
    started = time.monotonic()
    if not sys.stderr.isatty():
        yield lambda what, tokens, evidence: interrupts.check()
        return
    from rich.console import Console

    with Console(stderr=True).status("asking the engines") as status:

        def say(what: str, tokens: int, evidence: float) -> None:
            interrupts.check()
            status.update(
                f"{what}: {tokens} (of at most {settings.tokens} tokens), evidence 1e{evidence:.1f}, "
                f"{time.monotonic() - started:.0f} of {settings.seconds:.0f} s"
            )

        yield say
