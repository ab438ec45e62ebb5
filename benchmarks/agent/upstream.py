"""A model API made of bytes whose model follows `script`.

In: HTTP POSTs of OpenAI chat completions. Out: an event stream, in one write. It reads of a request how many results of
tools are in it, and nothing else.

Run as `python -m agent.upstream`; the first line on stdout is the port.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import uvloop
from agent.script import TOOL, TURNS, Turn, turn_after
from stream.cores import take_core
from stream.traffic import HEAD, LAST_CHUNK, MODEL_ID, chunk

_RESULT = b'"role":"tool"'


def event(delta: dict[str, Any] | None, finish_reason: str | None = None, **more: Any) -> bytes:
    """One chunk of a chat completion."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]
    body = {
        "id": "chatcmpl-9f8e7d6c5b4a",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": MODEL_ID,
        "choices": choices,
        **more,
    }
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def answer(turn: Turn) -> bytes:
    """A whole answer with its HTTP head."""
    events = [event({"role": "assistant", "content": ""})]
    events += [event({"content": word}) for word in turn.words]
    if turn.arguments:
        function = {"name": TOOL, "arguments": ""}
        events.append(
            event({"tool_calls": [{"index": 0, "id": turn.call_id, "type": "function", "function": function}]})
        )
        events += [event({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in turn.arguments]
    usage = {"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 130}
    events += [event({}, "tool_calls" if turn.arguments else "stop"), event(None, usage=usage), b"data: [DONE]\n\n"]
    return HEAD + chunk(b"".join(events)) + LAST_CHUNK


class Upstream(asyncio.Protocol):
    """One connection; answers one request after the other."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = answers
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if len(body) >= length:
            self._received = b""
            results = body.replace(b'": "', b'":"').count(_RESULT)
            self._transport.write(self._answers[min(results, TURNS - 1)])


async def serve() -> None:
    """Listen on a free loopback port until killed."""
    answers = [answer(turn_after(results)) for results in range(TURNS)]
    server = await asyncio.get_running_loop().create_server(lambda: Upstream(answers), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    take_core("upstream")
    uvloop.run(serve())
