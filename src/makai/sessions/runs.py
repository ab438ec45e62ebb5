"""How a run of the native agent is carried out: what it works with, what it continues, and how it ended.

In: a live session and what the engine wants started. Out: the facts of the run through the session, and its
settlement. The loop itself is `agent`'s, and what tools may do is `tools`'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, assert_never

import msgspec

from makai.agent.host import Models
from makai.agent.loop import run_agent, run_compaction
from makai.agent.terms import AgentSettings, RunOutcome, Standing
from makai.core.content import Text
from makai.core.model import ModelCapability
from makai.core.request import Context
from makai.core.session_events import (
    ApprovalDecided,
    Logged,
    RunFinished,
    RunTerms,
    TitleChanged,
    ToolCalled,
)
from makai.sessions.client_tools import ClientTool, ToolExecutors
from makai.sessions.commands import ResumeRun, StartCompaction, StartRun
from makai.sessions.conversation import conversation
from makai.sessions.history import History, PlacedMessage
from makai.sessions.host import Judge, SessionHost
from makai.sessions.live import LiveSession, RunStart, Settlement, run_failed
from makai.sessions.log.base import EventLog, replay
from makai.sessions.run_port import RunPort
from makai.tools.base import CallDescription, Tool
from makai.tools.permission_rules import PermissionRules
from makai.tools.permissions import Verdict, judge

if TYPE_CHECKING:
    from makai.agent.workbench import Workbench

MCP_PATIENCE_S: Final = 3.0
"""How long the first prompt waits for tool servers that are still starting."""
LONGEST_TITLE: Final = 80


class Surroundings(Protocol):
    """What the owner of the log keeps for its sessions between runs."""

    def tool_executors(self, session_id: str) -> ToolExecutors:
        """Clients that carry out the session's own tools."""

    async def workbench(self, session: LiveSession) -> Workbench | None:
        """The built-in tools of the session, or None when its terms want none."""


class NativeRunner:
    """`live.Runner` for our own agent."""

    def __init__(self, log: EventLog, models: Models, surroundings: Surroundings, clock: Callable[[], int]) -> None:
        self._log = log
        self._models = models
        self._surroundings = surroundings
        self._clock = clock

    async def run(self, session: LiveSession, port: RunPort, start: RunStart) -> Settlement:
        """Carry out one run."""
        history = await conversation(self._log, session.session_id, summary=session.state.compacted_through)
        match start:
            case StartCompaction():
                return await self._compaction(session, port, start, history)
            case StartRun():
                return await self._answer(session, port, history, Standing(), {})
            case ResumeRun():
                return await self._answer(session, port, history, *await self._standing(session))
            case _:
                assert_never(start)

    # ------------------------------------------------------------ an answer

    async def _answer(
        self,
        session: LiveSession,
        port: RunPort,
        history: History,
        standing: Standing,
        earlier: Mapping[str, ApprovalDecided],
    ) -> Settlement:
        run = session.state.run
        assert run is not None, "the engine starts a run before its effect"
        model = self._models.resolve(run.model_ref)
        tools: dict[str, Tool] = {}
        bench = await self._surroundings.workbench(session) if model.can(ModelCapability.TOOLS) else None
        rules = PermissionRules(workspace="/")
        if bench is not None:
            await bench.ready(MCP_PATIENCE_S)
            rules = bench.rules(run.terms.allow, run.terms.deny)
            tools |= bench.tools(rules)
        own_tools = self._client_tools(session, port)
        tools |= own_tools
        host = SessionHost(session, port, self._judge(session, rules, own_tools), self._clock, earlier)
        if bench is not None:
            for notice in bench.take_notices():
                await host.emit(notice)
        if session.state.title == "" and run.run_number == 1 and (title := _title(history)):
            await host.emit(TitleChanged(title=title))
        placed = history.placed()
        context = Context(
            messages=tuple(each.message for each in placed),
            system_prompt=_system_prompt(session, bench),
        )
        standing = msgspec.structs.replace(standing, places=_places(placed), usage_before=session.state.usage)
        outcome = await run_agent(host, self._models, context, tools, _settings(session, run.terms), standing)
        return _settlement(outcome)

    async def _standing(self, session: LiveSession) -> tuple[Standing, dict[str, ApprovalDecided]]:
        """Where a run that another process began stands, and what was decided about its calls."""
        run = session.state.run
        assert run is not None
        calls: dict[str, ToolCalled] = {}
        decided: dict[str, ApprovalDecided] = {}
        if run.calls:
            async for logged in replay(self._log, session.session_id, run.turn_began - 1, deltas=False):
                event = logged.event if isinstance(logged, Logged) else None
                if isinstance(event, ToolCalled):
                    calls[event.call_id] = event
                elif isinstance(event, ApprovalDecided):
                    decided[event.call_id] = event
        standing = Standing(
            turns=run.turn,
            usage=run.usage,
            seconds=max(self._clock() - run.started_at, 0) / 1000,
            open_calls=tuple(calls[call_id] for call_id in run.calls if call_id in calls),
        )
        return standing, decided

    def _client_tools(self, session: LiveSession, port: RunPort) -> dict[str, Tool]:
        tool_executors = self._surroundings.tool_executors(session.session_id)
        return {
            definition.name: ClientTool(definition, session.session_id, port.run_id, tool_executors)
            for definition in session.state.terms.tools
        }

    def _judge(self, session: LiveSession, rules: PermissionRules, own_tools: Mapping[str, Tool]) -> Judge:
        async def judged(call: ToolCalled, description: CallDescription) -> Verdict:
            state = session.state  # the mode may change while a run goes on
            stored = await self._log.grants(state.cwd or "")  # None would mean those of all folders
            grants = [*((grant.rule, grant.allow) for grant in stored), *((g.rule, g.allow) for g in state.grants)]
            return judge(state.mode, rules, grants, call.name, description, is_clients_own=call.name in own_tools)

        return judged

    # ------------------------------------------------------------ a compaction

    async def _compaction(
        self, session: LiveSession, port: RunPort, start: StartCompaction, history: History
    ) -> Settlement:
        placed = history.placed()
        context = Context(messages=tuple(each.message for each in placed))

        async def nothing_to_judge(call: ToolCalled, description: CallDescription) -> Verdict:
            raise AssertionError("a compaction calls no tools")

        host = SessionHost(session, port, nothing_to_judge, self._clock)
        outcome = await run_compaction(
            host,
            self._models,
            context,
            _settings(session, RunTerms()),
            instructions=start.instructions,
            places=_places(placed),
        )
        return _settlement(outcome)


def _places(placed: Sequence[PlacedMessage]) -> tuple[int, ...]:
    """Where the messages are in the session's log."""
    return tuple(each.event_id for each in placed)


def _settings(session: LiveSession, terms: RunTerms) -> AgentSettings:
    run = session.state.run
    assert run is not None
    return AgentSettings(
        model=run.model_ref,
        options=msgspec.structs.replace(terms.options, session_id=session.session_id),
        max_turns=terms.max_turns,
        max_output_tokens=terms.max_output_tokens,
        max_usd=terms.max_usd,
        max_seconds=terms.max_seconds,
        max_waits=0,  # providers wait and say so; waiting here too would multiply their attempts
    )


def _system_prompt(session: LiveSession, bench: Workbench | None) -> str | None:
    if session.state.terms.system is not None:
        return session.state.terms.system
    return bench.system_prompt() if bench is not None else None


def _settlement(outcome: RunOutcome) -> Settlement:
    if outcome.error is not None:
        return run_failed(outcome.error, outcome.usage)
    return RunFinished(stop_reason=outcome.stop_reason, usage=outcome.usage)


def _title(history: History) -> str:
    """The first words of the first message, until somebody thinks of something better."""
    for message in history.messages():
        content = getattr(message, "content", "")
        text = content if isinstance(content, str) else next((p.text for p in content if isinstance(p, Text)), "")
        line = " ".join(text.split())
        if line:
            return line if len(line) <= LONGEST_TITLE else line[: LONGEST_TITLE - 1].rstrip() + "…"
    return ""
