"""A model behind Anthropic's Messages API, on loopback, that does what the newest prompt tells it.

A prompt may hold `[[tool NAME {json}]]` (several: one after the other), `[[slow N]]` (N words, a pause after each),
`[[think TEXT]]`, `[[error CODE]]`. After the last tool result the answer is `done: RESULT`, otherwise `echo: PROMPT`. A
tool is called only when the request offers it, so that requests for titles get words.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from aiohttp import web

from support.acp_schema import JSON

_TOOL = re.compile(r"\[\[tool (\S+) ")
_SLOW = re.compile(r"\[\[slow (\d+)\]\]")
_THINK = re.compile(r"\[\[think (.*?)\]\]")
_ERROR = re.compile(r"\[\[error (\d+)\]\]")
PAUSE_S = 0.05


class DirectedModel:
    def __init__(self) -> None:
        self.url = ""
        self.asked: list[JSON] = []
        """The bodies of all requests for an answer."""
        self._ids = count(1)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        body: JSON = json.loads(await request.read() or b"{}")
        if not request.path.endswith("/messages"):
            return web.json_response({"input_tokens": 10, "data": []})
        self.asked.append(body)
        prompt, results = _heard(body.get("messages", []))
        if (error := _ERROR.search(prompt)) is not None:
            problem = {"type": "error", "error": {"type": "api_error", "message": f"scripted {error[1]}"}}
            return web.json_response(problem, status=int(error[1]))
        offered = {tool.get("name") for tool in body.get("tools", ())}
        calls = [(name, arguments) for name, arguments in _calls(prompt) if name in offered]
        thought = _THINK.search(prompt)
        blocks: list[JSON] = [{"type": "thinking", "thinking": thought[1], "signature": "sig"}] if thought else []
        if len(results) < len(calls):
            name, arguments = calls[len(results)]
            blocks.append({"type": "text", "text": "Calling the tool."})
            blocks.append({"type": "tool_use", "id": f"toolu_{next(self._ids)}", "name": name, "input": arguments})
        elif (slow := _SLOW.search(prompt)) is not None:
            blocks.append({"type": "text", "text": "".join(f"w{number} " for number in range(int(slow[1])))})
        else:
            blocks.append({"type": "text", "text": f"done: {results[-1]}" if results else f"echo: {prompt}"})
        return await self._answered(request, body, blocks, pause_s=PAUSE_S if _SLOW.search(prompt) else 0.0)

    async def _answered(
        self, request: web.Request, body: JSON, blocks: list[JSON], *, pause_s: float
    ) -> web.StreamResponse:
        reason = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
        usage = {"input_tokens": 100, "cache_read_input_tokens": 20, "output_tokens": 5}
        message: JSON = {
            "id": f"msg_{next(self._ids)}", "type": "message", "role": "assistant", "model": body.get("model", "m"),
            "content": blocks, "stop_reason": reason, "stop_sequence": None, "usage": usage,
        }  # fmt: skip
        if not body.get("stream"):
            return web.json_response(message)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        start = {**message, "content": [], "stop_reason": None}
        await _send(response, {"type": "message_start", "message": start})
        for index, block in enumerate(blocks):
            first, deltas = _pieces(block)
            await _send(response, {"type": "content_block_start", "index": index, "content_block": first})
            for delta in deltas:
                await _send(response, {"type": "content_block_delta", "index": index, "delta": delta})
                await asyncio.sleep(pause_s)
            await _send(response, {"type": "content_block_stop", "index": index})
        ending = {"stop_reason": reason, "stop_sequence": None}
        await _send(response, {"type": "message_delta", "delta": ending, "usage": usage})
        await _send(response, {"type": "message_stop"})
        await response.write_eof()
        return response


def _heard(messages: list[JSON]) -> tuple[str, list[str]]:
    """The newest prompt, and the results of tools since."""
    prompt, results = "", list[str]()
    for message in messages:
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        for block in blocks if message.get("role") == "user" else ():
            text = block.get("text", "") if block.get("type") == "text" else ""
            if block.get("type") == "tool_result":
                results.append(_words(block.get("content")))
            elif text and not text.startswith(("<system-reminder>", "[Request interrupted")):
                prompt, results = text.strip(), []
    return prompt, results


def _calls(prompt: str) -> list[tuple[str, JSON]]:
    """The calls that a prompt asks for. The arguments of one may hold the prompt of another agent, with calls."""
    found: list[tuple[str, JSON]] = []
    at = 0
    while (match := _TOOL.search(prompt, at)) is not None:
        arguments, at = json.JSONDecoder().raw_decode(prompt, match.end())
        found.append((match[1], arguments))
    return found


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(block.get("text", "") for block in content or () if isinstance(block, dict))


def _pieces(block: JSON) -> tuple[JSON, list[JSON]]:
    match block["type"]:
        case "text":
            words = re.findall(r"\S*\s*", block["text"])
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in words if word]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            return {"type": "thinking", "thinking": "", "signature": ""}, [
                *deltas, {"type": "signature_delta", "signature": block["signature"]},
            ]  # fmt: skip
        case _:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            return {**block, "input": {}}, [delta]


async def _send(response: web.StreamResponse, event: JSON) -> None:
    await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


@asynccontextmanager
async def directed_model() -> AsyncIterator[DirectedModel]:
    model = DirectedModel()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.add_routes([web.route("*", "/{path:.*}", model.serve)])
    runner: Any = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        model.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield model
    finally:
        await runner.cleanup()
