"""Models that follow a script: the same in every test, and free. Events are made by the same `Parts` as those of every
real adapter; time passes only where the scenario says so. The scripted models `echo` and `demo` always exist; the
environment can name a file for `scenario`."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from typing import assert_never

from makai.catalog.models import ModelRow
from makai.core.content import Text
from makai.core.errors import ProviderError, error_from_code
from makai.core.messages import AssistantMessage, Message, StopReason, UserMessage
from makai.core.model import ModelCapability
from makai.core.stream_events import StreamEvent
from makai.core.usage import Price
from makai.providers.base import ProviderRequest
from makai.providers.parts import Parts
from makai.providers.scenario import STALL_S, Scenario, ScriptedAnswer, Step, parse_scenario, read_scenario

SCENARIO_VARIABLE = "MAKAI_SCENARIO"
"""Names a file; its scenario is the model `scripted/scenario`."""
SCENARIO_NAMES = ("scripted/scenario", "scripted/scripted@scenario")

_WORD = re.compile(r"\s*\S+\s*$|\s*\S+")

DEMO = """pace: 12ms
think: This is a script, not a model. It shows what an agent does here.
say: I am a **scripted demo**: no model is behind these words, but the tools, the approvals and the sandbox are real.
  Let me look at the project first.
tool: plan {"steps": [{"content": "Read the code", "status": "in_progress"}, {"content": "Fix the greeting"},
  {"content": "Run the test"}]}
tool: read {"path": "greet.py"}
---
pace: 12ms
say: There is a typo in the greeting. I will fix it; you decide.
tool: edit {"path": "greet.py", "old_text": "Helo, ", "new_text": "Hello, "}
---
pace: 12ms
say: Now the test. Commands run in a sandbox: they see this folder, and no network.
tool: shell {"command": "python3 test_greet.py"}
---
tool: plan {"steps": [{"content": "Read the code", "status": "completed"},
  {"content": "Fix the greeting", "status": "completed"}, {"content": "Run the test", "status": "completed"}]}
---
pace: 12ms
say: Done. To talk to a real model, start a new session: the local one needs no account. In short:

  | step | result |
  |---|---|
  | read | `greet.py` |
  | edit | one line, after your approval |
  | test | see the card above |
---
pace: 12ms
say: This was the scripted demo; it has nothing more to say. Start a new session to talk to a real model.
"""
"""Shows reading, a plan, an edit and a command with their approvals. `server.demo` makes the project it speaks of."""

_SCENARIOS = {"demo": DEMO, "echo": "echo", "fixture": "say: You are logged in.\necho"}


def scripted_models(environ: Mapping[str, str]) -> list[ModelRow]:
    """Catalog rows of the scripted models under this environment."""
    names = {"echo": "Echo (scripted: says what you say)", "demo": "Demo (scripted: shows tools and approvals)"}
    if environ.get(SCENARIO_VARIABLE):
        names["scenario"] = "A scripted scenario"
    capabilities = (ModelCapability.CHAT, ModelCapability.STREAMING, ModelCapability.TOOLS, ModelCapability.REASONING)
    media = (ModelCapability.VISION, ModelCapability.AUDIO_INPUT)
    return [
        ModelRow(
            provider="scripted",
            id=model_id,
            name=name,
            capabilities=capabilities if model_id == "demo" else (*capabilities, *media),
            price=Price(input=0, output=0),
        )
        for model_id, name in names.items()
    ]


def scenario_of(model_id: str, environ: Mapping[str, str]) -> Scenario:
    if model_id in _SCENARIOS:
        return parse_scenario(_SCENARIOS[model_id])
    with open(environ[SCENARIO_VARIABLE], encoding="utf-8") as file:
        return read_scenario(file.read())


class ScriptedProvider:
    """Performs a scenario. The newest requests it got are kept in `requests`, so that tests can look at what was asked.
    `scenario` may be a function of the model id, for a provider that serves several scripted models."""

    def __init__(
        self,
        scenario: Scenario | Callable[[str], Scenario],
        *,
        keep_requests: int = 1000,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        failures_count: bool = False,
    ) -> None:
        """With `failures_count` a failed answer counts as given: a request that is sent again gets the next one."""
        self._sleep = sleep
        self._failures_count = failures_count
        self._failed: list[tuple[object, ...]] = []
        """The conversations in which an answer failed."""
        self._scenario = scenario if callable(scenario) else lambda model_id: scenario
        self._keep = keep_requests
        self.requests: list[ProviderRequest] = []
        self.answered = 0
        """How many answers the longest conversation got."""

    async def stream(self, request: ProviderRequest) -> AsyncGenerator[StreamEvent, None]:
        scenario = self._scenario(request.model.id)
        self.requests.append(request)
        del self.requests[: max(0, len(self.requests) - self._keep)]
        said = tuple(map(_words, request.context.messages))
        turn = sum(isinstance(message, AssistantMessage) for message in request.context.messages)
        turn += sum(said[: len(failed)] == failed for failed in self._failed)
        self.answered = max(self.answered, turn + 1)
        user_text = _newest_user_text(request)
        answer = scenario.answer(turn, user_text)
        if self._failures_count and answer.when is None and any(step.word in ("fail", "cut") for step in answer.steps):
            self._failed.append(said)
            del self._failed[: -self._keep]
        parts = Parts(request.model, time.time_ns() // 1_000_000)
        parts.start()
        performance = _Performance(parts, answer, user_text)
        for event in parts.take():
            yield event
        for delay in performance.run():
            for event in parts.take():
                yield event
            await self._sleep(delay)
        for event in parts.take():
            yield event


class _Performance:
    """One answer being performed: pushes into parts, yields the seconds to wait."""

    def __init__(self, parts: Parts, answer: ScriptedAnswer, user_text: str) -> None:
        self._parts = parts
        self._answer = answer
        self._user_text = user_text
        self._pace = 0.0
        self._chunk = 0
        self._block = 0
        self._reason: StopReason = "end_turn"

    def run(self) -> Iterator[float]:
        for step in self._answer.steps:
            yield from self._perform(step)
            if self._parts.finished:
                return
        self._parts.done(self._reason)

    def _perform(self, step: Step) -> Iterator[float]:
        match step.word:
            case "say":
                yield from self._say(self._parts.text, self._deltas(step.text))
            case "echo":
                yield from self._say(self._parts.text, self._deltas(self._user_text))
            case "repeat":
                yield from self._say(self._parts.text, (step.text for _ in range(int(step.number))))
            case "think":
                yield from self._say(self._parts.thinking, self._deltas(step.text))
            case "tool":
                self._next_block()
                self._parts.tool(self._block, None, step.name)
                yield from self._pieces(self._parts.arguments, self._deltas(step.text))
            case "signature":
                self._parts.sign(self._block, step.text)
            case "wait":
                yield step.number
            case "pace":
                self._pace = step.number
            case "chunk":
                self._chunk = int(step.number)
            case "usage":
                self._parts.usage = step.usage
            case "stop":
                self._reason = step.reason
            case "fail":
                wait_ms = step.retry_after_ms
                self._parts.fail(error_from_code(step.name, step.text, provider_id="scripted", retry_after_ms=wait_ms))
            case "cut":
                self._parts.fail(ProviderError("the connection broke in the middle of the answer"), retryable=True)
            case "stall":
                yield STALL_S
            case _:
                assert_never(step.word)

    def _say(self, push: Callable[[int, str], None], deltas: Iterator[str]) -> Iterator[float]:
        self._next_block()
        yield from self._pieces(push, deltas)

    def _pieces(self, push: Callable[[int, str], None], deltas: Iterator[str]) -> Iterator[float]:
        for delta in deltas:
            if self._pace:
                yield self._pace
            push(self._block, delta)

    def _next_block(self) -> None:
        self._parts.end(self._block)
        self._block += 1

    def _deltas(self, text: str) -> Iterator[str]:
        if self._chunk:
            return (text[at : at + self._chunk] for at in range(0, len(text), self._chunk))
        return (match[0] for match in _WORD.finditer(text))


def _words(message: Message) -> object:
    """Recognises a conversation: an answer that is read from the log has another timestamp than it had live."""
    return message.content if isinstance(message, AssistantMessage) else message


def _newest_user_text(request: ProviderRequest) -> str:
    for message in reversed(request.context.messages):
        if isinstance(message, UserMessage):
            return "".join(part.text for part in message.parts() if isinstance(part, Text))
    return ""
