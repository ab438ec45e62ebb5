"""Writes the transcripts in `docs/protocol/makai.md`: what real servers really said.

In: the document with its markers, `<!-- transcript:NAME -->` to `<!-- /transcript -->`. Out: the same document with the
text between them made anew by talking to `makai stdio` and, with curl, to `makai serve`. The answers come from a
scripted model. What differs from run to run (ids, times, the port) is replaced by stand-ins, so that the result is the
same every time and `tests/house/test_transcripts.py` can compare it. Nothing here knows what an answer should be.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "protocol" / "makai.md"
DEADLINE_S = 50.0
SHOWN_PORT = "8717"
SHOWN_TIME = 1_760_000_000_000

MARKED = re.compile(r"(<!-- transcript:([a-z-]+) -->\n).*?(<!-- /transcript -->)", re.DOTALL)
VARYING_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # envelopes
    r"|(?<=call_)[0-9a-zA-Z]{8,}"  # tool calls
    r"|\b[0-9a-f]{32}\b"  # connections
)
TIMES = ("timestamp", "fetched_at_ms")
HEADERS_SHOWN = ("http/", "content-type:", "makai-connection:", "www-authenticate:")
TERMINALS = ("result", "stream_error", "nack", "models_response", "pong")

SCENARIO = """
say: Hello there.
usage: input=5 output=3
---
when: weather
think: I should look it up.
signature: c2lnbmVk
say: One moment.
tool: get_weather {"city": "Paris"}
usage: input=20 output=31 reasoning=7
---
when: essay
say: Once upon
stall
---
when: again
say: Hel
fail: rate_limited retry_after=2s Slow down, please.
"""

JSON = dict[str, Any]


class Page:
    """The lines of one transcript, with stand-ins for what varies.

    The n-th id of a page is ...00n; the time of an envelope is its line's number; inside a payload it is that of the
    newest request. A `partial` that repeats the one before it is shown as `{…}`.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._ids: dict[str, str] = {}
        self._frames = 0
        self._asked = 0
        self._partial: object = None

    def text(self) -> str:
        """What stands between the markers."""
        return "\n".join(["```text", *self._lines, "```", ""])

    def line(self, text: str) -> None:
        """Anything that is no frame."""
        self._lines.append(VARYING_ID.sub(self._stand_in, text))

    def said(self, frame: str) -> None:
        """What the client sent."""
        self._asked = self._frames + 1
        self.line(f"→ {self.shown(frame)}")

    def heard(self, frame: str) -> None:
        """What the server sent."""
        self.line(f"← {self.shown(frame)}")

    def shown(self, frame: str) -> str:
        """A frame as it is printed; what is not JSON is printed as it is."""
        try:
            value = json.loads(frame, object_hook=self._at_the_time_of_the_request)
        except ValueError:
            return frame
        self._frames += 1
        if "timestamp" in value:
            value["timestamp"] = SHOWN_TIME + self._frames
        partial = value.get("payload", {}).get("partial")
        if partial is not None and partial == self._partial:
            value["payload"]["partial"] = "…"
        self._partial = partial or self._partial
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.replace('"partial":"…"', '"partial":{…}')

    def _at_the_time_of_the_request(self, value: JSON) -> JSON:
        return value | {key: SHOWN_TIME + self._asked for key in TIMES if key in value}

    def _stand_in(self, found: re.Match[str]) -> str:
        real = found[0]
        number = len(self._ids) + 1
        if "-" in real:
            return self._ids.setdefault(real, f"00000000-0000-4000-8000-{number:012d}")
        return self._ids.setdefault(real, f"{number:0{min(len(real), 32)}d}")


class Talk:
    """One transcript over the standard streams of a running `makai stdio`."""

    def __init__(self, server: asyncio.subprocess.Process) -> None:
        assert server.stdin is not None
        assert server.stdout is not None
        self._input, self._output = server.stdin, server.stdout
        self._page = Page()

    async def say(self, frame: JSON | str) -> None:
        text = frame if isinstance(frame, str) else json.dumps(frame)
        self._page.said(text)
        self._input.write(f"{text}\n".encode())
        await self._input.drain()

    async def hear_until(self, *types: str) -> None:
        while True:
            line = (await self._output.readline()).decode().rstrip("\n")
            if not line:
                raise RuntimeError(f"the server ended before it sent any of {', '.join(types)}")
            self._page.heard(line)
            if json.loads(line)["type"] in types:
                return

    async def ask(self, frame: JSON | str, *terminals: str) -> None:
        await self.say(frame)
        await self.hear_until(*(terminals or TERMINALS))

    async def hear_the_end(self) -> None:
        rest = await self._output.read()
        if rest:
            raise RuntimeError(f"the server had more to say: {rest[:200]!r}")
        self._page.line("(end of output, exit status 0)")

    def text(self) -> str:
        return self._page.text()


def envelope(kind: str, payload: JSON, **fields: Any) -> JSON:
    """A request under a new stream id."""
    own_id, message_id = str(uuid.uuid4()), str(uuid.uuid4())
    head: JSON = {"type": kind, "stream_id": own_id, "message_id": message_id, "sequence": 1}
    return head | {"timestamp": SHOWN_TIME, "version": 1} | fields | {"payload": payload}


def prompt(text: str, model_ref: str = "scripted/scripted@scenario") -> JSON:
    """The payload of a stream or complete request."""
    return {"model_ref": model_ref, "context": {"messages": [{"role": "user", "content": text}]}}


def in_two_fragments(whole: JSON) -> list[JSON]:
    """An envelope as its sender would cut it."""
    data = json.dumps(whole["payload"]).encode()
    pieces = (data[: len(data) // 2], data[len(data) // 2 :])
    return [
        envelope(
            whole["type"],
            {"data": base64.b64encode(piece).decode()},
            stream_id=whole["stream_id"],
            sequence=whole["sequence"] + index,
            fragment={"index": index, "total": len(pieces), "id": whole["message_id"]},
        )
        for index, piece in enumerate(pieces)
    ]


async def handshake(server: asyncio.subprocess.Process) -> str:
    talk = Talk(server)
    await talk.hear_until("ready")
    await talk.ask(envelope("ping", {}))
    await talk.say(envelope("goodbye", {"reason": "done"}))
    await talk.hear_the_end()
    return talk.text()


async def stream_full(talk: Talk) -> None:
    await talk.ask(envelope("stream_request", prompt("Hi")))


async def stream_proxy(talk: Talk) -> None:
    await talk.ask(envelope("stream_request", prompt("Hi"), encoding="proxy"))


async def tool_call(talk: Talk) -> None:
    payload = prompt("What is the weather in Paris?")
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = {"name": "get_weather", "description": "Weather now", "parameters_schema_json": json.dumps(schema)}
    payload["context"]["tools"] = [tool]
    await talk.ask(envelope("stream_request", payload, encoding="proxy"))


async def complete(talk: Talk) -> None:
    await talk.ask(envelope("complete_request", prompt("Hi")))


async def abort(talk: Talk) -> None:
    request = envelope("stream_request", prompt("Write an essay."), encoding="proxy")
    await talk.ask(request, "text_delta")
    await talk.hear_until("text_delta")
    await talk.ask(envelope("abort_request", {"target_stream_id": request["stream_id"], "reason": "enough"}))


async def failure(talk: Talk) -> None:
    await talk.ask(envelope("stream_request", prompt("Try again."), encoding="proxy"))


async def models(talk: Talk) -> None:
    await talk.ask(envelope("models_request", {"provider_id": "scripted"}))


async def fragments(talk: Talk) -> None:
    first, second = in_two_fragments(envelope("complete_request", prompt("Hi")))
    await talk.say(first)
    await talk.ask(second)


async def unknown_type(talk: Talk) -> None:
    await talk.ask(envelope("auth_providers_request", {}))


async def bad_sequence(talk: Talk) -> None:
    for sequence in (0, 2):
        await talk.ask(envelope("stream_request", prompt("Hi"), sequence=sequence))


async def bad_payload(talk: Talk) -> None:
    await talk.ask(envelope("stream_request", {"model_ref": "scripted/scripted@scenario"}))


async def bad_version(talk: Talk) -> None:
    await talk.ask(envelope("stream_request", prompt("Hi"), version=2))


async def missing_key(talk: Talk) -> None:
    await talk.ask(envelope("stream_request", prompt("Hi", "groq/openai-completions@llama-3.3-70b-versatile")))


async def unknown_model(talk: Talk) -> None:
    await talk.ask(envelope("stream_request", prompt("Hi", "scripted/scripted@nope")))


async def retired_model(talk: Talk) -> None:
    await talk.ask(envelope("stream_request", prompt("Hi", "anthropic/anthropic-messages@claude-3-opus-20240229")))


async def nonsense(talk: Talk) -> None:
    for line in ("hello", "{}"):
        await talk.ask(line, "error")


OVER_STDIO = {
    "stream-full": stream_full,
    "stream-proxy": stream_proxy,
    "tool-call": tool_call,
    "complete": complete,
    "abort": abort,
    "failure": failure,
    "models": models,
    "fragments": fragments,
    "unknown-type": unknown_type,
    "bad-sequence": bad_sequence,
    "bad-payload": bad_payload,
    "bad-version": bad_version,
    "missing-key": missing_key,
    "unknown-model": unknown_model,
    "retired-model": retired_model,
    "nonsense": nonsense,
}


CURL = f"""curl -sN -i http://127.0.0.1:{SHOWN_PORT}/v1/makai \\
    -H "Authorization: Bearer $(cat ~/.makai/server-token)" \\
    -H "Content-Type: application/json" """


class Terminal:
    """One transcript of shell commands against a running `makai serve`."""

    def __init__(self, port: str, environ: Mapping[str, str]) -> None:
        self._port = port
        self._environ = environ
        self._page = Page()

    async def start(self, command: str) -> asyncio.subprocess.Process:
        """Show the command and run it, with the real port."""
        for line in f"$ {command}".split("\n"):
            self._page.line(line)
        real = command.replace(f":{SHOWN_PORT}/", f":{self._port}/")
        return await asyncio.create_subprocess_exec("sh", "-c", real, env=self._environ, stdout=asyncio.subprocess.PIPE)

    async def show(self, running: asyncio.subprocess.Process, until: str | None = None) -> str:
        """Print what it writes, up to and including a line with `until`; that line, or what it wrote last."""
        assert running.stdout is not None
        in_headers = False
        line = ""
        while raw := await running.stdout.readline():
            line = raw.decode().rstrip("\r\n")
            in_headers = line.startswith("HTTP/") or (in_headers and line != "")
            if in_headers and not line.lower().startswith(HEADERS_SHOWN):
                continue
            field, colon, value = line.partition(": ")
            self._page.line(f"data: {self._page.shown(value)}" if (field, colon) == ("data", ": ") else line)
            if until is not None and until in line:
                return line
        await running.wait()
        return line

    def note(self, text: str) -> None:
        self._page.line(text)

    def text(self) -> str:
        return self._page.text()


def body(kind: str, payload: JSON, number: int, **fields: Any) -> str:
    """An envelope as a shell word. Its ids are readable from the start, because the command shows them."""
    ids = [f"00000000-0000-4000-8000-{number + offset:012d}" for offset in (0, 1)]
    value = envelope(kind, payload, stream_id=ids[0], message_id=ids[1], timestamp=SHOWN_TIME + 1, **fields)
    return f"\\\n    -d '{json.dumps(value, separators=(',', ':'))}'"


async def sse(terminal: Terminal) -> None:
    running = await terminal.start(CURL + body("stream_request", prompt("Hi"), 1, encoding="proxy"))
    await terminal.show(running)


async def sse_abort(terminal: Terminal) -> None:
    first = await terminal.start(CURL + body("stream_request", prompt("Write an essay."), 1, encoding="proxy"))
    connection = (await terminal.show(first, "Makai-Connection: ")).partition(": ")[2]
    await terminal.show(first, '"delta":" upon"')
    terminal.note("")
    terminal.note("(in another terminal, while the first one waits)")
    target = {"target_stream_id": "00000000-0000-4000-8000-000000000001"}
    header = f'\\\n    -H "Makai-Connection: {connection}" '
    second = await terminal.start(CURL + header + body("abort_request", target, 8))
    await terminal.show(second)
    terminal.note("(the first terminal goes on)")
    await terminal.show(first)


async def http_refusals(terminal: Terminal) -> None:
    url = f"http://127.0.0.1:{SHOWN_PORT}"
    header = "-H 'Authorization: Bearer '$(cat ~/.makai/server-token)"
    for command in (
        f"curl -si {url}/api/models",
        f"curl -si {url}/healthz -H 'Host: evil.example'",
        f"curl -si {url}/healthz -H 'Origin: https://evil.example'",
        f"curl -si {url}/v1/makai {header} -H 'Makai-Connection: gone' \\\n    -H 'Content-Type: application/json' -d '{{}}'",
    ):
        await terminal.show(await terminal.start(command))
        terminal.note("")


OVER_HTTP = {"sse": sse, "sse-abort": sse_abort, "http-refusals": http_refusals}

NAMES = ("handshake", *OVER_STDIO, *OVER_HTTP)


@asynccontextmanager
async def server(command: str, environ: Mapping[str, str], *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running `makai stdio` or `makai serve`; it is asked to end, and must end well."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "makai", command, *options), env=environ, stdin=pipe, stdout=pipe, stderr=pipe
    )
    try:
        yield process
        if command == "serve":
            process.terminate()
        _, complaint = await process.communicate(b"")
        if process.returncode != 0:
            raise RuntimeError(f"makai {command} ended with {process.returncode}: {complaint.decode()}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def transcripts() -> dict[str, str]:
    """Every transcript by name."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "scenario.txt"
        scenario.write_text(SCENARIO, encoding="utf-8")
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "src"),
            "HOME": folder,
            "MAKAI_SCENARIO": str(scenario),
        }
        async with asyncio.timeout(DEADLINE_S):
            return {**await _over_stdio(environ), **await _over_http(environ)}


async def _over_stdio(environ: Mapping[str, str]) -> dict[str, str]:
    made: dict[str, str] = {}
    async with server("stdio", environ) as process:
        made["handshake"] = await handshake(process)
    async with server("stdio", environ) as process:
        await Talk(process).hear_until("ready")
        for name, perform in OVER_STDIO.items():
            talk = Talk(process)
            await perform(talk)
            made[name] = talk.text()
    return made


async def _over_http(environ: Mapping[str, str]) -> dict[str, str]:
    made: dict[str, str] = {}
    async with server("serve", environ, "--port", "0") as process:
        assert process.stdout is not None
        port = (await process.stdout.readline()).decode().strip().rpartition(":")[2]
        for name, perform in OVER_HTTP.items():
            terminal = Terminal(port, environ)
            await perform(terminal)
            made[name] = terminal.text()
    return made


def renewed(document: str, made: Mapping[str, str]) -> str:
    """The document with every marked block replaced; each transcript must have exactly one place."""
    places = [name for _, name, _ in MARKED.findall(document)]
    if sorted(places) != sorted(made):
        raise ValueError(f"the document has places for {sorted(places)}, the transcripts are {sorted(made)}")
    return MARKED.sub(lambda block: block[1] + made[block[2]] + block[3], document)


def main() -> None:
    """Write the document anew."""
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(renewed(text, asyncio.run(transcripts())), encoding="utf-8")
    print(f"wrote {DOCUMENT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
