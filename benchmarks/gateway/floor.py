"""The least a gateway on our HTTP library can be: it shows what the library and the machine cost in any gateway.

In: the upstream's base URL (with /v1). Out: on POST /v1/makai an event stream of text deltas and a `result`. It checks
no token, keeps no state, counts no tokens, never retries and cannot be cancelled. Its first line on stdout is its URL.

Run as `python benchmarks/gateway/floor.py <base-url>`.
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import msgspec
import uvloop
from aiohttp import web


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta


class Chunk(msgspec.Struct):
    choices: list[Choice] = []


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta"):
    delta: str


RESULT = b'data: {"type":"result"}\n\n'
DECODER = msgspec.json.Decoder(Chunk)
encode = msgspec.json.Encoder().encode


def translate(event: bytes) -> bytes:
    """One upstream event as an event of this server; empty for events without text."""
    data = event.removeprefix(b"data: ")
    if data == b"[DONE]":
        return RESULT
    choices = DECODER.decode(data).choices
    text = choices[0].delta.content if choices else None
    return b"data: " + encode(TextDelta(text)) + b"\n\n" if text else b""


async def serve(upstream_url: str) -> None:
    """Listen on a free loopback port until killed."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1_000)) as session:

        async def relay(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            body = await request.read()
            await response.prepare(request)
            async with session.post(f"{upstream_url}/chat/completions", data=body) as answer:
                unread = b""
                while data := await answer.content.readany():
                    *events, unread = (unread + data).split(b"\n\n")
                    if translated := b"".join(map(translate, events)):
                        await response.write(translated)
            return response

        app = web.Application()
        app.router.add_post("/v1/makai", relay)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1_024).start()
        print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
