"""A model behind OpenAI's chat completions, on loopback, that follows a scenario and wants a key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from makai.providers.scenario import ScriptedAnswer, parse_scenario
from support.upstream import Request, Upstream, head, upstream


@asynccontextmanager
async def scenario_server(text: str, key: str) -> AsyncIterator[Upstream]:
    """The n-th answer of a conversation is the n-th one of the scenario. Requests with another key are refused."""
    scenario = parse_scenario(text)

    async def serve(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.headers.get("authorization") != f"Bearer {key}":
            writer.write(head(401, "application/json") + b'{"error": {"message": "no such key"}}')
        elif request.method == "GET":
            writer.write(head(200, "application/json") + b'{"data": [{"id": "coder"}]}')
        else:
            turn = sum(message["role"] == "assistant" for message in request.json()["messages"])
            writer.write(head() + _stream(scenario.answer(turn, "")))

    async with upstream(serve) as server:
        yield server


def user_texts(request: Request) -> list[str]:
    """The words of the user in a request."""
    return [message["content"] for message in request.json()["messages"] if message["role"] == "user"]


def _stream(answer: ScriptedAnswer) -> bytes:
    deltas: list[dict[str, Any]] = []
    usage: dict[str, int] = {}
    reason = "stop"
    for number, step in enumerate(answer.steps):
        match step.word:
            case "say":
                deltas.append({"content": step.text})
            case "tool":
                called = {"name": step.name, "arguments": step.text}
                deltas.append({"tool_calls": [{"index": 0, "id": f"call_{number}", "function": called}]})
                reason = "tool_calls"
            case "usage":
                usage = {"prompt_tokens": step.usage.input, "completion_tokens": step.usage.output}
            case _:
                raise AssertionError(f"this server cannot {step.word}")
    chunks: list[dict[str, Any]] = [{"choices": [{"delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"delta": {}, "finish_reason": reason}], **({"usage": usage} if usage else {})})
    return b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
