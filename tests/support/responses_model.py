"""A model behind OpenAI's Responses API, on loopback, that does what the newest prompt tells it.

A prompt may hold `[[tool NAME {json}]]` (several: one after the other; `SPACE/NAME` for a tool of an MCP server),
`[[slow N]]` (N words with a pause after each), `[[think TEXT]]`, `[[error CODE]]`, `[[json TEXT]]`. After the last
result of a tool the answer is `done: RESULT`, otherwise `echo: PROMPT`.
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

_TOOL = re.compile(r"\[\[tool (\S+) (\{.*?\})\]\]", re.DOTALL)
_SLOW = re.compile(r"\[\[slow (\d+)\]\]")
_THINK = re.compile(r"\[\[think (.*?)\]\]")
_ERROR = re.compile(r"\[\[error (\d+)\]\]")
_JSON = re.compile(r"\[\[json (.*?)\]\]")
PAUSE_S = 0.05
USAGE = {
    "input_tokens": 100, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 107,
}  # fmt: skip


class ResponsesModel:
    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        """The bodies of all requests for an answer."""
        self.authorized: set[str] = set()
        """The keys that came with them."""
        self._ids = count(1)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/responses"):
            return web.json_response({"data": []})
        body = json.loads(await request.read())
        self.asked.append(body)
        self.authorized.add(request.headers.get("Authorization", ""))
        prompt, results = _heard(body["input"])
        if (error := _ERROR.search(prompt)) is not None:
            return web.json_response({"error": {"message": f"scripted {error[1]}"}}, status=int(error[1]))
        calls = _TOOL.findall(prompt)
        items: list[dict[str, Any]] = []
        if (thought := _THINK.search(prompt)) is not None:
            items.append(self._item("reasoning", summary=[{"type": "summary_text", "text": thought[1]}]))
        slow = _SLOW.search(prompt)
        if len(results) < len(calls):
            space, _, name = calls[len(results)][0].rpartition("/")
            call = {"name": name, "arguments": calls[len(results)][1], "call_id": f"call_{next(self._ids)}"}
            items.append(self._item("function_call", **call, **({"namespace": space} if space else {})))
        else:
            words = "".join(f"w{number} " for number in range(int(slow[1]))) if slow else f"echo: {prompt}"
            said = _JSON.search(prompt)
            text = said[1] if said else f"done: {results[-1]}" if results else words
            content: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": []}]
            items.append(self._item("message", role="assistant", content=content))
        return await self._answered(request, items, PAUSE_S if slow else 0.0)

    def _item(self, kind: str, **members: Any) -> dict[str, Any]:
        return {"type": kind, "id": f"{kind}_{next(self._ids)}", **members}

    async def _answered(self, request: web.Request, items: list[dict[str, Any]], pause_s: float) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        answer = {"id": f"resp_{next(self._ids)}", "object": "response", "status": "in_progress"}
        await _send(response, {"type": "response.created", "response": answer})
        for index, item in enumerate(items):
            place = {"output_index": index, "item_id": item["id"]}
            await _send(response, {"type": "response.output_item.added", **place, "item": _begun(item)})
            for kind, text in _deltas(item):
                place |= {"content_index": 0, "summary_index": 0}
                await _send(response, {"type": kind, **place, "delta": text})
                await asyncio.sleep(pause_s)
            await _send(response, {"type": "response.output_item.done", "output_index": index, "item": item})
        done = {**answer, "status": "completed", "usage": USAGE}
        await _send(response, {"type": "response.completed", "response": done})
        await response.write_eof()
        return response


def _heard(items: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """The newest prompt, and the results of tools since."""
    prompt, results = "", list[str]()
    for item in items:
        if item.get("type") == "function_call_output":
            results.append(str(item.get("output")))
        elif item.get("role") == "user":
            texts = [part["text"] for part in item["content"] if part.get("type") == "input_text"]
            if texts and not texts[-1].lstrip().startswith("<"):
                prompt, results = texts[-1], []
    return prompt, results


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {}
    return item | empty | ({"summary": []} if item["type"] == "reasoning" else {})


def _deltas(item: dict[str, Any]) -> list[tuple[str, str]]:
    match item["type"]:
        case "message":
            words = re.findall(r"\S*\s*", item["content"][0]["text"])
            return [("response.output_text.delta", word) for word in words if word]
        case "reasoning":
            return [("response.reasoning_summary_text.delta", item["summary"][0]["text"])]
        case _:
            return []


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


@asynccontextmanager
async def responses_model() -> AsyncIterator[ResponsesModel]:
    model = ResponsesModel()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.add_routes([web.route("*", "/{path:.*}", model.serve)])
    runner: Any = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        model.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield model
    finally:
        await runner.cleanup()
