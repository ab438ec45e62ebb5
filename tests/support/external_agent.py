"""A scripted agent behind the harness port that is nothing like the native loop.

It has no turns and needs no model, asks for approvals with options of its own, runs sub-agents, and finds its session
again by its own id. The words of the newest input say what it does: `say`, `ask`, `nest`, `read` (further input) or
`hang`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from makai.core import session_events as ev
from makai.core.content import Resource, Text
from makai.core.errors import InvalidRequest
from makai.core.messages import UserMessage
from makai.harness.base import Question, ResumeRun, RunPort, RunStart, Settlement

OPTIONS = (
    ev.ApprovalOption(id="yes", label="Yes", kind="allow_once"),
    ev.ApprovalOption(id="yes-always", label="Yes, always", kind="allow_always"),
    ev.ApprovalOption(id="no", label="No", kind="reject_once"),
)
MODES = (ev.AgentOption(id="code", name="Code"), ev.AgentOption(id="architect", name="Architect"))


class ExternalAgent:
    """One installation of the agent; `sessions` are what it remembers, also after a restart of makai."""

    id = "external"
    capabilities = ev.HarnessCapabilities(
        has_turns=False, needs_model=False, compact=False, change_model=False, images=False, own_approvals=True
    )

    def __init__(self) -> None:
        self.sessions: dict[str, list[str]] = {}
        self.aborted: list[bool] = []
        self.forgotten: list[str] = []

    def check(self, cwd: str | None, roots: tuple[str, ...], terms: ev.SessionTerms) -> None:
        if cwd is None:
            raise InvalidRequest("This agent needs a folder (cwd).")

    async def forget(self, session_id: str) -> None:
        self.forgotten.append(session_id)

    async def run(self, port: RunPort, start: RunStart) -> Settlement:
        agent = port.session.agent
        if agent is None:
            own_id = f"own-{len(self.sessions) + 1}"
            agent = ev.AgentSession(agent_session_id=own_id, agent="external", version="2", modes=MODES, mode="code")
            self.sessions[agent.agent_session_id] = []
            await port.emit(agent)
        messages = [each.message for each in await port.conversation()]
        words = next(each.content for each in reversed(messages) if isinstance(each, UserMessage))
        self.sessions[agent.agent_session_id].append("resumed" if isinstance(start, ResumeRun) else str(words))
        try:
            await self._acts()[str(words)](port)
        except asyncio.CancelledError:
            self.aborted.append(port.is_aborted)
            raise
        return ev.RunFinished(stop_reason="end_turn")

    def _acts(self) -> dict[str, Callable[[RunPort], Awaitable[None]]]:
        return {"say": self._say, "ask": self._ask, "nest": self._nest, "read": self._read, "hang": self._hang}

    async def _say(self, port: RunPort) -> None:
        for text in ("One", "Two"):  # both in block 0: it has no turns that would number them
            await port.emit(ev.AssistantTextDelta(content_index=0, delta=text[:2]))
            await port.emit(ev.AssistantTextDelta(content_index=0, delta=text[2:]))
            await port.emit(ev.AssistantText(content_index=0, text=text))

    async def _ask(self, port: RunPort) -> None:
        call = ev.ToolCalled(
            call_id=port.call_id("edit"), name="edit", arguments_json="{}", title="Edit", raw_input_json='{"path":"a"}'
        )
        await port.emit(call)
        decided = await port.decide(Question(call=call, title="Edit a", options=OPTIONS))
        if decided.decision == "approve":
            await port.emit(ev.ToolStarted(call_id=call.call_id))
            await port.emit(ev.ToolUpdated(call_id=call.call_id, title="Editing a", raw_output_json="{}"))
        content = (Text(text=decided.option_id), Resource(uri="file:///a", text="changed"))
        await port.emit(ev.ToolFinished(call_id=call.call_id, content=content))

    async def _nest(self, port: RunPort) -> None:
        task = ev.ToolCalled(call_id="task", name="task", arguments_json="{}")
        await port.emit(task)
        await port.emit(ev.ToolStarted(call_id="task"))
        await port.emit(ev.TurnStarted(turn=1, parent_call_id="task"))
        await port.emit(ev.AssistantText(content_index=0, text="Looking", parent_call_id="task"))
        await port.emit(ev.ToolCalled(call_id="look", name="read", arguments_json="{}", parent_call_id="task"))
        await port.emit(ev.ToolStarted(call_id="look"))
        await port.emit(ev.TurnEnded(turn=1, stop_reason="tool_use", parent_call_id="task"))
        await port.emit(ev.ToolFinished(call_id="task", content=(Text(text="found"),)))
        await port.emit(ev.AssistantText(content_index=0, text="Done"))

    async def _read(self, port: RunPort) -> None:
        await port.emit(ev.AssistantText(content_index=0, text="Ready"))
        await port.until_steered()
        for words in port.steering():
            await port.emit(words)
            await port.emit(ev.AssistantText(content_index=0, text=f"Read {words.content}"))

    async def _hang(self, port: RunPort) -> None:
        await port.emit(ev.AssistantTextDelta(content_index=0, delta="Wait"))
        await asyncio.Event().wait()
