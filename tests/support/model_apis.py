"""One scripted model behind the APIs of three vendors, on loopback, for coding agents that are not makai.

It speaks Anthropic's Messages, OpenAI's chat completions and Gemini's generateContent. Asked with the tool that writes
files, it calls it once, unless it has no path to write; when any message holds the result, it says that it is done.
Everything else (titles, quota checks, routers) gets one word.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from support.acp_schema import JSON

FINAL_WORDS = "The file is written."
WORDS = "Words"
WRITE_TOOLS = {"Write": "file_path", "write": "filePath", "write_file": "file_path"}
"""The tools that write a file, by the agents' names for them, and what they call the path."""


class ModelApis:
    def __init__(self, path: str, content: str) -> None:
        self.url = ""
        self.asked: list[str] = []
        """The paths of all requests, so that a test can say what came when nothing worked."""
        self._path = path
        self._content = content

    def routes(self) -> list[web.RouteDef]:
        return [web.route("*", "/{path:.*}", self._serve)]

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body: JSON = json.loads(await request.read() or b"{}")
        self.asked.append(f"{request.method} {request.path}")
        if request.path.endswith("/messages"):
            return await self._anthropic(request, body)
        if request.path.endswith("/chat/completions"):
            return await self._openai(request, body)
        if "enerateContent" in request.path:
            return await self._gemini(request, body)
        if request.path.endswith("/count_tokens") or request.path.endswith(":countTokens"):
            return web.json_response({"input_tokens": 10, "totalTokens": 10})
        return web.json_response({"data": []}, status=200 if request.method == "GET" else 404)

    def _decision(self, tools: list[str], is_done: bool) -> tuple[str, JSON] | str:
        """A call of the tool that writes, or words."""
        tool = next((name for name in tools if name in WRITE_TOOLS), None)
        if is_done:
            return FINAL_WORDS
        if tool is None or not self._path:
            return WORDS
        return tool, {WRITE_TOOLS[tool]: self._path, "content": self._content}

    async def _anthropic(self, request: web.Request, body: JSON) -> web.StreamResponse:
        decided = self._decision(
            [tool.get("name", "") for tool in body.get("tools", ())], "tool_result" in json.dumps(body.get("messages"))
        )
        if isinstance(decided, str):
            block: JSON = {"type": "text", "text": decided}
            delta: JSON = {"type": "text_delta", "text": decided}
            start: JSON = {"type": "text", "text": ""}
            reason = "end_turn"
        else:
            name, arguments = decided
            block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
            start = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
            reason = "tool_use"
        usage = {"input_tokens": 10, "output_tokens": 5}
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "scripted"),
            "usage": usage,
        }
        if not body.get("stream"):
            return web.json_response({**message, "content": [block], "stop_reason": reason, "stop_sequence": None})
        events: list[JSON] = [
            {
                "type": "message_start",
                "message": {**message, "content": [], "stop_reason": None, "stop_sequence": None},
            },
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        return await _streamed(request, [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events])

    async def _openai(self, request: web.Request, body: JSON) -> web.StreamResponse:
        tools = [tool["function"]["name"] for tool in body.get("tools", ())]
        decided = self._decision(tools, any(message["role"] == "tool" for message in body["messages"]))
        message: JSON = {"role": "assistant", "content": decided}
        if not isinstance(decided, str):
            call = {
                "id": "call_1",
                "type": "function",
                "function": {"name": decided[0], "arguments": json.dumps(decided[1])},
            }
            message = {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **call}]}
        reason = "tool_calls" if "tool_calls" in message else "stop"
        answer = {"id": "c1", "created": 1, "model": body["model"]}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return web.json_response({**answer, "object": "chat.completion", "choices": [choice], "usage": usage})
        chunks = [
            {
                **answer,
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": message, "finish_reason": None}],
            },
            {
                **answer,
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": {}, "finish_reason": reason}],
                "usage": usage,
            },
        ]
        return await _streamed(request, [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"])

    async def _gemini(self, request: web.Request, body: JSON) -> web.StreamResponse:
        declared = [tool for tools in body.get("tools", ()) for tool in tools.get("functionDeclarations", ())]
        is_done = "functionResponse" in json.dumps(body.get("contents"))
        decided = self._decision([tool["name"] for tool in declared], is_done)
        part: JSON = {"text": decided}
        if not isinstance(decided, str):
            part = {"functionCall": {"name": decided[0], "args": decided[1]}}
        answer = {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
        }
        if "stream" in request.path:
            return await _streamed(request, [f"data: {json.dumps(answer)}\n\n"])
        return web.json_response(answer)


async def _streamed(request: web.Request, pieces: list[str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece.encode())
    await response.write_eof()
    return response


@asynccontextmanager
async def model_apis(path: str, content: str) -> AsyncIterator[ModelApis]:
    """A model that writes `content` to `path` and says so."""
    model = ModelApis(path, content)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.add_routes(model.routes())
    runner: Any = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        model.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield model
    finally:
        await runner.cleanup()
