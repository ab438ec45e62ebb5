"""Keys that an attached process lent to a run end with its connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from support.live_sessions import WAIT_S, Desk
from support.upstream import Request, Upstream, answers, chat_stream, head, upstream

from makai.core import session_events as ev
from makai.providers.runtime import ModelRuntime
from makai.server.session_router import SessionRouter, _Owning
from makai.sessions.commands import Send
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession, RunCommand

MODEL = "openai/openai-completions@gpt-test"
CALL = {"index": 0, "id": "c1", "function": {"name": "unknown", "arguments": "{}"}}
TOOL_CALL = {"choices": [{"delta": {"tool_calls": [CALL]}, "finish_reason": "tool_calls"}]}


def at(server: Upstream, key: str) -> dict[str, str]:
    return {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": f"{server.url}/v1"}


@asynccontextmanager
async def opened(home: Path, environ: dict[str, str]) -> AsyncIterator[SessionRouter]:
    async with ModelRuntime(environ, home=home) as models:
        sessions = await SessionRouter.open(home, lambda: OwnedSessions.open(home, models), environ=environ)
        try:
            yield sessions
        finally:
            await sessions.close()


async def link_ended(owner: SessionRouter) -> None:
    """The owner has seen that the attached process is gone."""
    assert isinstance(owner._place, _Owning)
    for _ in range(10_000):
        if not owner._place._socket._links:
            return
        await asyncio.sleep(0)
    raise AssertionError("the link did not end")


@pytest.mark.req("DM-ENDP-010")
@pytest.mark.parametrize("owner_has_a_key", [True, False])
async def test_a_run_continues_without_the_keys_of_a_caller_that_left(home: Path, owner_has_a_key: bool) -> None:
    asked, caller_left = asyncio.Event(), asyncio.Event()

    async def calls_a_tool(request: Request, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await caller_left.wait()
        writer.write(head() + b"data: " + msgspec.json.encode(TOOL_CALL) + b"\n\ndata: [DONE]\n\n")

    async with asyncio.timeout(WAIT_S), upstream(calls_a_tool, answers(chat_stream("Done"))) as server:
        owners = at(server, "sk-owner") if owner_has_a_key else {}
        async with opened(home, owners) as owner:
            async with opened(home, at(server, "sk-caller")) as caller:
                session_id = await caller.dispatch(CreateSession(model_ref=MODEL, mode="never_ask"))
                await caller.dispatch(RunCommand(session_id, Send(now=0, input_id="i", content="Hi")))
                await asked.wait()
            await link_ended(owner)
            caller_left.set()
            end = await Desk(owner, session_id).until_settled()
    sent = [request.headers["authorization"] for request in server.requests]
    if owner_has_a_key:
        assert isinstance(end, ev.RunFinished)
        assert sent == ["Bearer sk-caller", "Bearer sk-owner"]
    else:
        assert isinstance(end, ev.RunFailed)
        assert sent == ["Bearer sk-caller"]
        assert (end.code, f"process {os.getpid()}" in (end.hint or "")) == ("auth_required", True)
