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
TIME = re.compile(r'"timestamp":\d+')
TIMES = ("timestamp", "fetched_at_ms")
HEADERS_NOT_SHOWN = (
    "Cache-Control:",
    "X-Accel-",
    "Transfer-Encoding:",
    "Content-Length:",
    "Connection:",
    "Date:",
    "Server:",
)
EVENT = "data: "
TERMINALS = ("result", "stream_error", "nack", "models_response", "pong")

LAST_WORD = " upon"
SCENARIO = f"""
say: Hello there.
usage: input=5 output=3
---
when: weather
think: I should look it up.
signature: c2lnbmVk
say: One moment.
tool: get_weather {{"city": "Paris"}}
usage: input=20 output=31 reasoning=7
---
when: essay
say: Once{LAST_WORD}
stall
---
when: again
say: Hel
fail: rate_limited retry_after=2s Slow down, please.
"""

AGENT_SCENARIO = """
tool: get_weather {"city": "Paris"}
usage: input=20 output=12
---
say: It is sunny in Paris.
usage: input=45 output=7
"""

JSON = dict[str, Any]


class Page:
    """The lines of one transcript, with stand-ins for what varies.

    The n-th id of a page is ...00n. The time of an envelope is its number on the page; inside a payload it is that of
    the newest request. A `partial` that repeats the one before it is shown as `{…}`.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._ids: dict[str, str] = {}
        self._envelopes = 0
        self._asked = 0
        self._partial: object = None

    def text(self) -> str:
        """What stands between the markers."""
        return "```text\n" + "\n".join(self._lines).rstrip() + "\n```\n"

    def line(self, text: str) -> None:
        """Anything that holds no envelope."""
        self._lines.append(VARYING_ID.sub(self._stand_in, text))

    def command(self, text: str) -> None:
        """A shell command, of which an envelope may be part."""
        if TIME.search(text):
            self._envelopes += 1
            self._asked = self._envelopes
        self.line(TIME.sub(f'"timestamp":{SHOWN_TIME + self._envelopes}', text))

    def said(self, frame: str) -> None:
        """What the client sent."""
        self._asked = self._envelopes + 1
        self.line(f"→ {self._shown(frame)}")

    def heard(self, frame: str, mark: str = "← ") -> None:
        """What the server sent."""
        self.line(mark + self._shown(frame))

    def _shown(self, frame: str) -> str:
        """A frame as it is printed; what is not JSON is printed as it is."""
        try:
            value = json.loads(frame, object_hook=self._at_the_time_of_the_request)
        except ValueError:
            return frame
        if "timestamp" in value:
            self._envelopes += 1
            value["timestamp"] = SHOWN_TIME + self._envelopes
        partial = value.get("payload", {}).get("partial")
        if partial is not None and partial == self._partial:
            value["payload"]["partial"] = "…"
        self._partial = partial or self._partial
        return _json(value).replace('"partial":"…"', '"partial":{…}')

    def _at_the_time_of_the_request(self, value: JSON) -> JSON:
        return value | {key: SHOWN_TIME + self._asked for key in TIMES if key in value}

    def _stand_in(self, found: re.Match[str]) -> str:
        real, number = found[0], len(self._ids) + 1
        readable = f"00000000-0000-4000-8000-{number:012d}" if "-" in real else f"{number:0{len(real)}d}"
        return self._ids.setdefault(real, readable)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# ---------------------------------------------------------------- what is asked


def envelope(kind: str, payload: JSON, **fields: Any) -> JSON:
    """A request under a new stream id."""
    ids = {"stream_id": str(uuid.uuid4()), "message_id": str(uuid.uuid4())}
    rest: JSON = {"sequence": 1, "timestamp": SHOWN_TIME, "version": 1} | fields
    return {"type": kind, **ids, **rest, "payload": payload}


def prompt(text: str, model_ref: str = "scripted/scripted@scenario", **context: Any) -> JSON:
    """The payload of a stream or complete request."""
    return {"model_ref": model_ref, "context": {"messages": [{"role": "user", "content": text}], **context}}


def in_two_fragments(whole: JSON) -> list[JSON]:
    """An envelope as its sender would cut it."""
    data = _json(whole["payload"]).encode()
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


WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city now.",
    "parameters_schema_json": _json({"type": "object", "properties": {"city": {"type": "string"}}}),
}
RETIRED = "anthropic/anthropic-messages@claude-3-opus-20240229"
WITHOUT_KEY = "anthropic/anthropic-messages@claude-sonnet-5-5"

QUESTIONS: dict[str, list[JSON | str]] = {
    "stream-full": [envelope("stream_request", prompt("Hi"))],
    "stream-proxy": [envelope("stream_request", prompt("Hi"), encoding="proxy")],
    "tool-call": [envelope("stream_request", prompt("The weather in Paris?", tools=[WEATHER]), encoding="proxy")],
    "complete": [envelope("complete_request", prompt("Hi"))],
    "failure": [envelope("stream_request", prompt("Try again."), encoding="proxy")],
    "models": [envelope("models_request", {"provider_id": "scripted"})],
    "unknown-type": [envelope("translate_request", {})],
    "bad-sequence": [envelope("stream_request", prompt("Hi"), sequence=number) for number in (0, 2)],
    "bad-payload": [envelope("stream_request", {"model_ref": "scripted/scripted@scenario"})],
    "bad-version": [envelope("stream_request", prompt("Hi"), version=2)],
    "missing-key": [envelope("stream_request", prompt("Hi", WITHOUT_KEY))],
    "unknown-model": [envelope("stream_request", prompt("Hi", "scripted/scripted@nope"))],
    "retired-model": [envelope("stream_request", prompt("Hi", RETIRED))],
    "nonsense": ["hello", "{}"],
}
"""Transcripts over stdio in which every request is answered to its end before the next."""


# ---------------------------------------------------------------- over stdio


class Talk:
    """One transcript over the standard streams of a running `makai stdio`."""

    def __init__(self, server: asyncio.subprocess.Process) -> None:
        assert server.stdin is not None
        assert server.stdout is not None
        self._input, self._output = server.stdin, server.stdout
        self.page = Page()

    async def say(self, frame: JSON | str) -> None:
        text = frame if isinstance(frame, str) else _json(frame)
        self.page.said(text)
        self._input.write(f"{text}\n".encode())
        await self._input.drain()

    async def hear(self) -> JSON:
        line = (await self._output.readline()).decode().rstrip("\n")
        if not line:
            raise RuntimeError("the server ended before its answer did")
        self.page.heard(line)
        frame: JSON = json.loads(line)
        return frame

    async def ask(self, frame: JSON | str) -> None:
        """Say it and hear everything up to the end of the answer."""
        await self.say(frame)
        while True:
            heard = await self.hear()
            if heard["type"] in TERMINALS or "payload" not in heard:
                return

    async def hear_the_end(self) -> None:
        if rest := await self._output.read():
            raise RuntimeError(f"the server had more to say: {rest[:200]!r}")
        self.page.line("(end of output, exit status 0)")


async def handshake(talk: Talk) -> None:
    await talk.hear()
    await talk.ask(envelope("ping", {}))
    await talk.say(envelope("goodbye", {"reason": "done"}))
    await talk.hear_the_end()


async def abort(talk: Talk) -> None:
    request = envelope("stream_request", prompt("Write an essay."), encoding="proxy")
    await talk.say(request)
    while (await talk.hear())["payload"].get("delta") != LAST_WORD:
        pass
    await talk.ask(envelope("abort_request", {"target_stream_id": request["stream_id"], "reason": "enough"}))


async def fragments(talk: Talk) -> None:
    first, second = in_two_fragments(envelope("complete_request", prompt("Hi")))
    await talk.say(first)
    await talk.ask(second)


async def agent(talk: Talk) -> None:
    """A run with a tool of the client, from the session's start until the client lets go of it."""
    session_id = str(uuid.uuid4())

    def in_session(kind: str, payload: JSON, sequence: int) -> JSON:
        ids = {"session_id": session_id, "message_id": str(uuid.uuid4())}
        return {"type": kind, **ids, "sequence": sequence, "timestamp": SHOWN_TIME, "version": 1, "payload": payload}

    async def until(kind: str) -> JSON:
        while (heard := await talk.hear())["type"] != kind:
            pass
        return heard

    words = {"messages": [{"role": "user", "content": "The weather in Paris?"}]}
    await talk.say(in_session("agent_start", {"model_ref": "scripted/scripted@scenario", "tools": [WEATHER]}, 1))
    await until("agent_started")
    await talk.say(in_session("agent_message", words, 2))
    call_id = (await until("tool_execute"))["payload"]["tool_call_id"]
    await talk.say(in_session("tool_result", {"tool_call_id": call_id, "content": "Sunny, 24 degrees."}, 3))
    await until("agent_result")
    await talk.say(in_session("agent_stop", {"detach": True}, 4))
    await until("agent_stopped")


async def agent_over_stdio(environ: Mapping[str, str]) -> dict[str, str]:
    """The transcript of an agent; its model follows a script of its own."""
    async with server("stdio", environ) as process:
        await Talk(process).hear()
        talk = Talk(process)
        await agent(talk)
        return {"agent": talk.page.text()}


async def over_stdio(environ: Mapping[str, str]) -> dict[str, str]:
    """The other transcripts of `makai stdio`."""
    made: dict[str, str] = {}
    async with server("stdio", environ) as process:
        talk = Talk(process)
        await handshake(talk)
        made["handshake"] = talk.page.text()
    async with server("stdio", environ) as process:
        await Talk(process).hear()
        for name, perform in (("abort", abort), ("fragments", fragments)):
            talk = Talk(process)
            await perform(talk)
            made[name] = talk.page.text()
        for name, frames in QUESTIONS.items():
            talk = Talk(process)
            for frame in frames:
                await talk.ask(frame)
            made[name] = talk.page.text()
    return made


# ---------------------------------------------------------------- over HTTP


class Terminal:
    """One transcript of shell commands against a running `makai serve`."""

    def __init__(self, port: str, environ: Mapping[str, str]) -> None:
        self._port = port
        self._environ = environ
        self.page = Page()

    async def start(self, command: str) -> asyncio.subprocess.Process:
        """Show the command and run it, with the real port."""
        self.page.command(f"$ {command}")
        real = command.replace(f":{SHOWN_PORT}/", f":{self._port}/")
        return await asyncio.create_subprocess_exec("sh", "-c", real, env=self._environ, stdout=asyncio.subprocess.PIPE)

    async def show(self, running: asyncio.subprocess.Process, until: str | None = None) -> str:
        """Print what it writes, up to and including a line with `until`, which is returned, or up to its end."""
        assert running.stdout is not None
        while raw := await running.stdout.readline():
            line = raw.decode().rstrip("\r\n")
            if line.startswith(HEADERS_NOT_SHOWN):
                continue
            if line.startswith(EVENT):
                self.page.heard(line.removeprefix(EVENT), EVENT)
            else:
                self.page.line(line)
            if until is not None and until in line:
                return line
        if until is not None or await running.wait() != 0:
            raise RuntimeError(f"the command ended too early or failed; is curl installed? (waited for {until})")
        return ""

    async def run(self, command: str) -> None:
        await self.show(await self.start(command))


def post(frame: JSON, *headers: str) -> str:
    """A curl command that posts one envelope."""
    lines = [
        f"curl -sN -i http://127.0.0.1:{SHOWN_PORT}/v1/makai",
        '-H "Authorization: Bearer $(cat ~/.makai/server-token)"',
        '-H "Content-Type: application/json"',
        *(f'-H "{header}"' for header in headers),
        f"-d '{_json(frame)}'",
    ]
    return " \\\n    ".join(lines)


async def sse(terminal: Terminal) -> None:
    await terminal.run(post(envelope("stream_request", prompt("Hi"), encoding="proxy")))


async def sse_abort(terminal: Terminal) -> None:
    request = envelope("stream_request", prompt("Write an essay."), encoding="proxy")
    first = await terminal.start(post(request))
    connection = await terminal.show(first, "Makai-Connection: ")
    await terminal.show(first, f'"delta":"{LAST_WORD}"')
    terminal.page.line("\n(in another terminal, while the first one waits)")
    await terminal.run(post(envelope("abort_request", {"target_stream_id": request["stream_id"]}), connection))
    terminal.page.line("(the first terminal goes on)")
    await terminal.show(first)


async def http_refusals(terminal: Terminal) -> None:
    url = f"http://127.0.0.1:{SHOWN_PORT}"
    for command in (
        f"curl -si {url}/api/models",
        f"curl -si {url}/healthz -H 'Host: evil.example'",
        f"curl -si {url}/healthz -H 'Origin: https://evil.example'",
        post(envelope("ping", {}), "Makai-Connection: gone"),
    ):
        await terminal.run(command)
        terminal.page.line("")


async def over_http(environ: Mapping[str, str]) -> dict[str, str]:
    """The transcripts of `makai serve`."""
    made: dict[str, str] = {}
    async with server("serve", environ, "--port", "0") as process:
        assert process.stdout is not None
        port = (await process.stdout.readline()).decode().strip().rpartition(":")[2]
        for name, perform in (("sse", sse), ("sse-abort", sse_abort), ("http-refusals", http_refusals)):
            terminal = Terminal(port, environ)
            await perform(terminal)
            made[name] = terminal.page.text()
    return made


# ---------------------------------------------------------------- all of it


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
        agent_scenario = Path(folder) / "agent_scenario.txt"
        agent_scenario.write_text(AGENT_SCENARIO, encoding="utf-8")
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "src"),
            "HOME": folder,
            "MAKAI_SCENARIO": str(scenario),
        }
        async with asyncio.timeout(DEADLINE_S):
            made = await agent_over_stdio(environ | {"MAKAI_SCENARIO": str(agent_scenario)})
            return made | await over_stdio(environ) | await over_http(environ)


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
