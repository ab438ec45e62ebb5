"""An agent without a model or a process that does the same every time: for tests of everything that drives an agent.

`AgentLaunch.options_json` chooses what it does: `stub.behavior` names one of `BEHAVIOURS`, else the variable
`MAKAI_STUB_MODE`, else it succeeds. Further options: `stub.progressTicks`, `stub.text` (a text or several that it says
instead), `stub.asks` (it asks before it runs its command), `stub.injectUnsupported` and `stub.resumeFailure`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from makai.core.content import words_of
from makai.core.errors import NO_RESULT, AgentFailed
from makai.harness.acp.content import part_of
from makai.harness.acp.peer import AgentClient, AgentLaunch
from makai.harness.acp.updates_to_facts import TURNS
from makai.wire import json_rpc
from makai.wire.acp import client_calls, updates
from makai.wire.acp.common import ContentBlock, TextBlock
from makai.wire.json_rpc_errors import RpcError

MODE_VARIABLE: Final = "MAKAI_STUB_MODE"
BEHAVIOURS: Final = (
    "succeed-with-pr",
    "fail-on-clone",
    "hang-then-timeout",
    "silent-fail",
    "slow-tool",
    "cost-overrun",
    "mid-stream-error",
    "inject-test",
    "resume-steer",
)
PULL_REQUEST: Final = "stub://pr/123"
_ASKED: Final = (
    client_calls.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    client_calls.PermissionOption(option_id="no", name="No", kind="reject_once"),
)
_USAGE: Final = {"totalTokens": 15, "inputTokens": 10, "outputTokens": 5}


class StubAgent:
    """`peer.AgentPeer` in this process."""

    def __init__(self, title: str, launch: AgentLaunch, environ: Mapping[str, str], client: AgentClient) -> None:
        self._title = title
        self._client = client
        options: dict[str, Any] = msgspec.json.decode(launch.options_json)
        self._options = options
        wanted = options.get("stub.behavior") or environ.get(MODE_VARIABLE)
        self._behaviour = wanted if wanted in BEHAVIOURS else BEHAVIOURS[0]
        self._session_id = ""
        self._is_resumed = False
        self._injected: asyncio.Queue[str] = asyncio.Queue(maxsize=100)
        self._cancelled = asyncio.Event()
        self.drift: Mapping[str, int] = {}
        self.ended = asyncio.Event()

    async def request(self, method: str, params: Any, *, seconds: float | None = None) -> Any:
        if self.ended.is_set():
            raise self.failure("has ended")
        match method:
            case "initialize":
                steering = {"supported": not self._options.get("stub.injectUnsupported")}
                offered = {"sessionCapabilities": {"resume": {}}, "mcpCapabilities": {"http": True, "sse": True}}
                return {"protocolVersion": 1, "agentCapabilities": offered, "_meta": {"steering": steering}}
            case "session/new":
                self._session_id = f"stub-session-{secrets.token_hex(8)}"
                return {"sessionId": self._session_id}
            case "session/resume":
                if self._options.get("stub.resumeFailure"):
                    raise RpcError(json_rpc.INVALID_PARAMS, "There is no such session.")
                self._session_id, self._is_resumed = params.session_id, True
                return {}
            case "session/prompt":
                return await self._answer(_words(params.prompt))
            case "_session/steering":
                with suppress(asyncio.QueueFull):
                    self._injected.put_nowait(_words(params.prompt))
                    return {"outcome": "injected"}
                return {"outcome": "failed"}
            case _:
                raise RpcError(json_rpc.METHOD_NOT_FOUND, f"The stub does not know {method[:100]}.")

    def notify(self, method: str, params: Any) -> None:
        if method == "session/cancel":
            self._cancelled.set()

    def failure(self, why: str) -> AgentFailed:
        return AgentFailed(f"{self._title} {why.rstrip('.')}.")

    async def close(self) -> None:
        self.ended.set()
        self._cancelled.set()

    async def _answer(self, prompt: str) -> dict[str, Any]:
        """Act, unless the prompt is cancelled meanwhile."""
        self._cancelled.clear()
        acting = asyncio.create_task(self._act(prompt), name="makai-stub")
        stopping = asyncio.create_task(self._cancelled.wait(), name="makai-stub-stop")
        try:
            await asyncio.wait({acting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not acting.done():
                return {"stopReason": "cancelled"}
            acting.result()
            return {"stopReason": "end_turn", "usage": _USAGE, "_meta": {TURNS: 1}}
        finally:
            for task in (acting, stopping):
                task.cancel()
            await asyncio.wait({acting, stopping})

    async def _act(self, prompt: str) -> None:
        if (texts := self._options.get("stub.text")) is not None:
            for number, text in enumerate([texts] if isinstance(texts, str) else texts):
                self._say(text, str(number))
            return
        match self._behaviour:
            case "fail-on-clone":
                raise self._broken("could not clone the repository", "clone_failed")
            case "hang-then-timeout":
                self._notice("hanging")
                await asyncio.Event().wait()
            case "silent-fail":
                self._notice("starting")
                self.ended.set()
                raise self._broken("ended without a result", NO_RESULT)
            case "slow-tool":
                await self._command(ticks=int(self._options.get("stub.progressTicks", 3)))
            case "cost-overrun":
                self._say("This was expensive.")
                self._cost(999.99)
            case "mid-stream-error":
                self._say("Working on it.")
                raise self._broken("crashed", "provider_crash")
            case "inject-test":
                self._notice("waiting for a message")
                self._say(f"Injected: {await self._injected.get()}")
            case "resume-steer":
                self._say(
                    f"{prompt}\nWORK_RESULT:passed {PULL_REQUEST}" if self._is_resumed else "No pull request yet."
                )
            case _:
                await self._succeed()

    async def _succeed(self) -> None:
        self._notice("starting")
        self._say("Looking at the repository.", "first")
        await self._command(ticks=0)
        self._say(f"Opened {PULL_REQUEST}.\nWORK_RESULT:passed", "last")
        self._cost(0.001)

    async def _command(self, ticks: int) -> None:
        """Run a command, as far as anybody can tell."""
        call = updates.NewToolCall(
            tool_call_id="tu-1",
            title="git status",
            name="Bash",
            kind="execute",
            status="pending",
            raw_input=msgspec.Raw(b'{"command":"git status"}'),
        )
        self._update(call)
        if self._options.get("stub.asks") and not await self._is_permitted(call):
            self._update(updates.ToolCallUpdate(tool_call_id="tu-1", status="failed", content=_content("denied")))
            return
        for _ in range(ticks):
            self._update(updates.ToolCallUpdate(tool_call_id="tu-1", status="in_progress"))
            await asyncio.sleep(0)
        self._update(updates.ToolCallUpdate(tool_call_id="tu-1", status="completed", content=_content("clean")))

    async def _is_permitted(self, call: updates.NewToolCall) -> bool:
        fields = {name: getattr(call, name) for name in updates.ToolCallFields.__struct_fields__}
        request = client_calls.RequestPermissionRequest(
            session_id=self._session_id, tool_call=updates.ToolCallFields(**fields), options=_ASKED
        )
        outcome = (await self._client.on_permission(request)).outcome
        return isinstance(outcome, client_calls.SelectedOutcome) and outcome.option_id == "yes"

    def _broken(self, why: str, code: str) -> AgentFailed:
        error = self.failure(why)
        error.code = code
        return error

    def _say(self, text: str, message_id: str = "only") -> None:
        self._update(updates.AgentMessageChunk(content=TextBlock(text=text), message_id=message_id))

    def _notice(self, title: str) -> None:
        self._update(updates.NoticeUpdate(severity="info", title=title))

    def _cost(self, usd: float) -> None:
        self._update(updates.UsageUpdate(used=15, size=8192, cost=updates.Cost(amount=usd, currency="USD")))

    def _update(self, update: updates.SessionUpdate) -> None:
        self._client.on_session_update(self._session_id, update)


def _content(text: str) -> tuple[updates.ToolCallContent, ...]:
    return (updates.ContentItem(content=TextBlock(text=text)),)


def _words(blocks: tuple[ContentBlock, ...]) -> str:
    return words_of(tuple(map(part_of, blocks)))
