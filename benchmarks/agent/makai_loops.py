"""makai's agent: its loop alone, and a whole session with its durable log.

In: the upstream's base URL, or None for a model in process. Out: context managers that yield `RunOne`. Both run the
same loop; a session also decides and stores every fact, and starts no tool before its start is on the disk.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from agent.script import DESCRIPTION, LAST_WORD, PROMPT, SCHEMA, TOOL, squared, turn_after
from stream.traffic import MODEL_ID

from makai.agent.loop import run_agent
from makai.agent.settings import AgentSettings
from makai.core.content import Text
from makai.core.messages import ToolMessage, UserMessage
from makai.core.model import Model, ModelCapability
from makai.core.request import Context, StreamOptions, ToolDefinition
from makai.core.secret import Secret
from makai.core.session_events import (
    ApprovalDecided,
    AssistantText,
    AssistantTextDelta,
    FileDiff,
    Logged,
    RunFailed,
    RunFinished,
    SessionEvent,
    SessionTerms,
    ToolCalled,
    UserInput,
)
from makai.core.stream_events import StreamEvent
from makai.core.usage import Usage
from makai.harness.base import ToolAnswer, ToolRequest
from makai.providers.base import ProviderRequest
from makai.providers.http import HttpClient, HttpProvider
from makai.providers.openai_completions import OpenAICompletions
from makai.providers.parts import Parts
from makai.sessions.commands import Send
from makai.sessions.log.encoding import decoded
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession, RunCommand
from makai.tools.base import CallDescription, Tool, ToolContext, ToolOutcome, text_outcome

RunOne = Callable[[], Awaitable[int]]
"""Carries out one run; how many characters of text its caller saw arrive, which are the same for all."""
_CAPABILITIES = (ModelCapability.CHAT, ModelCapability.STREAMING, ModelCapability.TOOLS)
_DEFINITION = ToolDefinition(name=TOOL, description=DESCRIPTION, parameters_schema_json=SCHEMA)


# ---------------------------------------------------------------- models


class HttpModels:
    """`agent.host.Models` over makai's provider path."""

    def __init__(self, http: HttpClient, base_url: str) -> None:
        self._provider = HttpProvider(OpenAICompletions(), http)
        self._model = Model(
            id=MODEL_ID,
            api="openai-completions",
            provider="bench",
            base_url=f"{base_url}/v1",
            capabilities=_CAPABILITIES,
        )

    def resolve(self, model: str | Model | None) -> Model:
        """Always the same."""
        return self._model

    def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Ask upstream."""
        request = ProviderRequest(
            model=self._model, context=context, options=options or StreamOptions(), secret=Secret("no-key-needed")
        )
        return self._provider.stream(request)


class ScriptModels:
    """The same in process, through the same `Parts` as every adapter."""

    def __init__(self) -> None:
        self._model = Model(id=MODEL_ID, api="script", provider="bench", capabilities=_CAPABILITIES)

    def resolve(self, model: str | Model | None) -> Model:
        """Always the same."""
        return self._model

    async def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """Follow the script."""
        turn = turn_after(sum(isinstance(message, ToolMessage) for message in context.messages))
        parts = Parts(self._model, time.time_ns() // 1_000_000)
        parts.usage = Usage(input=100, output=30)
        parts.start()
        for word in turn.words:
            parts.text(0, word)
        if turn.arguments:
            parts.tool(1, turn.call_id, TOOL)
            for piece in turn.arguments:
                parts.arguments(1, piece)
        parts.done("tool_use" if turn.arguments else "end_turn")
        for event in parts.take():
            yield event


@asynccontextmanager
async def models(base_url: str | None) -> AsyncIterator[HttpModels | ScriptModels]:
    """Of the upstream, or in process."""
    if base_url is None:
        yield ScriptModels()
    else:
        async with HttpClient() as http:
            yield HttpModels(http, base_url)


# ---------------------------------------------------------------- the loop


class Square:
    """`tools.base.Tool`."""

    definition = _DEFINITION

    async def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
        """It only looks."""
        return CallDescription(kind="read", title=f"Square {arguments['number']}")

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Do it."""
        return text_outcome(squared(arguments["number"]))


class Memory:
    """`agent.host.AgentHost` that keeps facts in a list and allows everything."""

    def __init__(self) -> None:
        self.facts: list[SessionEvent] = []

    def emit_delta(self, event: AssistantTextDelta) -> bool:
        self.facts.append(event)
        return True

    async def emit(self, event: SessionEvent) -> None:
        """Keep it."""
        self.facts.append(event)

    async def decide(
        self, call: ToolCalled, description: CallDescription, diffs: tuple[FileDiff, ...]
    ) -> ApprovalDecided:
        """Yes."""
        return ApprovalDecided(call_id=call.call_id, decision="approve", by="mode")

    def steering(self) -> Sequence[UserInput]:
        """No steering input."""
        return ()

    def call_id(self, vendor_call_id: str) -> str:
        """The model's own ids are unique here."""
        return vendor_call_id

    def position(self) -> int:
        """How many facts there are."""
        return len(self.facts)

    def now(self) -> float:
        """Seconds that only go forward."""
        return time.monotonic()


@asynccontextmanager
async def makai_loop(base_url: str | None) -> AsyncIterator[RunOne]:
    """The loop without a session."""
    async with models(base_url) as answering:
        tools: dict[str, Tool] = {TOOL: Square()}

        async def toolbox() -> dict[str, Tool]:
            return tools

        async def run_one() -> int:
            host = Memory()
            context = Context(messages=(UserMessage(content=PROMPT),))
            outcome = await run_agent(host, answering, context, toolbox, host.decide, AgentSettings(model=MODEL_ID))
            said = [fact for fact in host.facts if isinstance(fact, AssistantText)]
            if outcome.stop_reason != "end_turn" or not said[-1].text.endswith(LAST_WORD):
                raise RuntimeError(f"the run went wrong: {outcome}"[:500])
            return sum(len(fact.delta) for fact in host.facts if isinstance(fact, AssistantTextDelta))

        yield run_one


@asynccontextmanager
async def makai_session(base_url: str | None) -> AsyncIterator[RunOne]:
    """A session per run, its log on the disk, its tool a client's own, followed by that client."""
    with tempfile.TemporaryDirectory(prefix="makai-bench-") as folder:
        async with models(base_url) as answering:
            sessions = await OwnedSessions.open(Path(folder), answering)

            async def execute(request: ToolRequest) -> ToolAnswer:
                return ToolAnswer(content=(Text(text=squared(request.arguments["number"])),))

            async def run_one() -> int:
                terms = SessionTerms(tools=(_DEFINITION,), system="")
                session_id = await sessions.dispatch(CreateSession(model_ref=MODEL_ID, mode="never_ask", terms=terms))
                executor = await sessions.register_executor(session_id, execute)
                follower = sessions.follow(session_id)
                await sessions.dispatch(RunCommand(session_id, Send(now=0, input_id=str(uuid4()), content=PROMPT)))
                seen, event = 0, None
                while not isinstance(event, RunFinished | RunFailed):
                    for logged in decoded(await follower.next()):
                        event = logged.event if isinstance(logged, Logged) else None
                        if isinstance(event, AssistantTextDelta):
                            seen += len(event.delta)
                if isinstance(event, RunFailed):
                    raise RuntimeError(f"the run failed: {event}"[:500])
                follower.close()
                executor.unregister()
                return seen

            yield run_one
            await sessions.close()
