"""What the agent loop needs around it in tests: a host that remembers, models that follow a script, small tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from makai.agent.host import Toolbox
from makai.agent.loop import run_agent
from makai.agent.settings import AgentOutcome, AgentSettings, Standing
from makai.core import session_events as ev
from makai.core.content import Text, UserPart
from makai.core.messages import StopReason, ToolMessage, UserMessage
from makai.core.model import Model
from makai.core.request import Context, StreamOptions, ToolDefinition
from makai.core.stream_events import StreamEvent
from makai.core.usage import Usage
from makai.providers.base import ProviderRequest
from makai.providers.http import HttpClient, HttpProvider
from makai.providers.registry import builtin_api
from makai.providers.scenario import Scenario, parse_scenario
from makai.providers.scripted import ScriptedProvider
from makai.tools.base import CallDescription, Tool, ToolContext, ToolKind, ToolOutcome, text_outcome

MODEL = Model(id="scripted-model", api="scripted", provider="scripted")
ANY_OBJECT = '{"type": "object"}'


class FakeHost:
    """Remembers every fact. `decisions` are by the name of the tool; what is not there is approved."""

    def __init__(
        self, decisions: Mapping[str, ev.Decision] | None = None, steering: Sequence[Sequence[ev.UserInput]] = ()
    ) -> None:
        self.facts: list[ev.SessionEvent] = []
        self.questions: list[tuple[str, CallDescription, tuple[ev.FileDiff, ...]]] = []
        self.decisions = dict(decisions or {})
        self.clock = 0.0
        self.on_fact: Callable[[ev.SessionEvent], None] = lambda fact: None
        self._steering = [list(words) for words in steering]
        self._calls = 0

    def emit_delta(self, event: ev.AssistantTextDelta | ev.ReasoningDelta) -> bool:
        return False

    async def emit(self, event: ev.SessionEvent) -> None:
        self.facts.append(event)
        self.on_fact(event)
        await asyncio.sleep(0)

    async def decide(
        self, call: ev.ToolCalled, description: CallDescription, diffs: tuple[ev.FileDiff, ...]
    ) -> ev.ApprovalDecided:
        self.questions.append((call.call_id, description, diffs))
        await asyncio.sleep(0)
        decision = self.decisions.get(call.name, "approve")
        reason = "" if decision == "approve" else "not today"
        return ev.ApprovalDecided(call_id=call.call_id, decision=decision, by="rule", reason=reason)

    def steering(self) -> Sequence[ev.UserInput]:
        return self._steering.pop(0) if self._steering else ()

    def call_id(self, vendor_call_id: str) -> str:
        self._calls += 1
        return f"c{self._calls}"

    def position(self) -> int:
        return len(self.facts)

    def now(self) -> float:
        return self.clock

    @property
    def told(self) -> list[ev.SessionEvent]:
        """The facts without the vendor's ids, which are random."""
        return [
            msgspec.structs.replace(fact, vendor_call_id="") if isinstance(fact, ev.ToolCalled) else fact
            for fact in self.facts
        ]


class ScriptedModels:
    """The n-th request gets the n-th answer of the script, whatever it asks; the last answer repeats."""

    def __init__(self, script: str, model: Model = MODEL) -> None:
        self._answers = list(parse_scenario(script).answers)
        self._model = model
        self._provider = ScriptedProvider(self._next)

    def _next(self, model_id: str) -> Scenario:
        answer = self._answers[0] if len(self._answers) == 1 else self._answers.pop(0)
        return Scenario(answers=(answer,))

    @property
    def requests(self) -> list[ProviderRequest]:
        return self._provider.requests

    def resolve(self, model: str | Model | None) -> Model:
        return self._model

    def stream(
        self, model: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        request = ProviderRequest(model=self._model, context=context, options=options or StreamOptions())
        return self._provider.stream(request)


class HttpModels:
    """One model behind a real HTTP client."""

    def __init__(self, target: Model, client: HttpClient) -> None:
        self._model = target
        self._provider = HttpProvider(builtin_api(target.api), client)

    def resolve(self, name: str | Model | None) -> Model:
        return self._model

    def stream(
        self, name: str | Model | None, context: Context, options: StreamOptions | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        return self._provider.stream(
            ProviderRequest(model=self._model, context=context, options=options or StreamOptions())
        )


class FakeTool:
    """A tool that does what its function does; by default it says its name."""

    def __init__(
        self,
        name: str,
        run: Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolOutcome]] | None = None,
        *,
        kind: ToolKind = "read",
        schema: str = ANY_OBJECT,
        diffs: Callable[[], tuple[ev.FileDiff, ...]] = tuple,
    ) -> None:
        self.definition = ToolDefinition(name=name, description=f"The tool {name}.", parameters_schema_json=schema)
        self._run = run
        self._kind: ToolKind = kind
        self._diffs = diffs
        self.ran: list[Mapping[str, Any]] = []

    async def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
        return CallDescription(kind=self._kind, title=f"Use {self.definition.name}", diffs=self._diffs())

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        self.ran.append(arguments)
        if self._run is not None:
            return await self._run(arguments, context)
        return text_outcome(f"{self.definition.name} did it")


def said(content: str | tuple[UserPart, ...], input_id: str = "i1") -> ev.UserInput:
    return ev.UserInput(input_id=input_id, content=content)


def asked(words: str = "Hi") -> Context:
    return Context(messages=(UserMessage(content=words),), system_prompt="Be brief.")


def fixed(tools: Mapping[str, Tool]) -> Toolbox:
    """The same tools in every turn."""

    async def toolbox() -> Mapping[str, Tool]:
        return tools

    return toolbox


async def run(
    script: str | ScriptedModels,
    *tools: FakeTool,
    host: FakeHost | None = None,
    conversation: Context | None = None,
    standing: Standing | None = None,
    **settings: Any,
) -> tuple[AgentOutcome, FakeHost, list[ProviderRequest]]:
    """Run the loop; gives its outcome, the host with its facts, and what the model was asked."""
    models = ScriptedModels(script) if isinstance(script, str) else script
    host = host or FakeHost()
    async with asyncio.timeout(60):
        outcome = await run_agent(
            host,
            models,
            conversation or asked(),
            fixed({tool.definition.name: tool for tool in tools}),
            host.decide,
            AgentSettings(model="scripted/scripted-model", **settings),
            standing,
        )
    return outcome, host, models.requests


def turn(
    number: int,
    *facts: ev.SessionEvent,
    stop: StopReason = "end_turn",
    usage: Usage | None = None,
    total: Usage | None = None,
    context_tokens: int | None = None,
) -> list[ev.SessionEvent]:
    usage = usage or Usage()
    return [
        ev.TurnStarted(turn=number),
        *facts,
        ev.TurnEnded(turn=number, stop_reason=stop, usage=usage),
        ev.UsageReported(total=total or usage, context_tokens=context_tokens),
    ]


def text(words: str, content_index: int = 0) -> list[ev.SessionEvent]:
    """The facts of a text block of which every delta is a word."""
    first, *others = words.split(" ")
    deltas = [first, *(f" {word}" for word in others)]
    return [
        *(ev.AssistantTextDelta(content_index=content_index, delta=delta) for delta in deltas),
        ev.AssistantText(content_index=content_index, text=words),
    ]


def called(
    name: str, call_id: str = "c1", arguments_json: str = "{}", kind: str = "read", content_index: int = 0
) -> ev.ToolCalled:
    return ev.ToolCalled(
        call_id=call_id,
        name=name,
        arguments_json=arguments_json,
        content_index=content_index,
        kind=kind,
        title=f"Use {name}",
    )


def warning(code: str, message: str) -> ev.Notice:
    return ev.Notice(level="warning", code=code, message=message)


def info(code: str, message: str) -> ev.Notice:
    return ev.Notice(level="info", code=code, message=message)


def finished(call_id: str, words: str, *, is_error: bool = False, interrupted: bool = False) -> ev.ToolFinished:
    return ev.ToolFinished(call_id=call_id, content=(Text(text=words),), is_error=is_error, interrupted=interrupted)


def result_texts(request: ProviderRequest) -> list[tuple[str, bool]]:
    results = [message.result for message in request.context.messages if isinstance(message, ToolMessage)]
    return [(result.text(), result.is_error) for result in results]
