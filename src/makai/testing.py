"""Test your own program without a model: a scripted one answers, and remembers what it was sent.

    from makai.testing import ScriptedModel, call

    async def test_it_looks_up_the_weather():
        with ScriptedModel(call("weather", city="Rome"), "It is sunny.") as model:
            async with model.connect() as client:
                answer = await client.agent.run(model_ref=model.ref, messages="Rome?", tools=[weather])
        assert answer.text == "It is sunny."
        model.assert_tool_result("weather", "sun")

It is the model `scripted/scenario` of makai itself, with a new MAKAI_HOME in a temporary folder: sessions, tools,
approvals and limits are the real ones. No request leaves the machine, and no variable of yours with a key is read.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import msgspec

from makai.client.connect import MakaiClient, connect
from makai.client.portal import Portal
from makai.client.sync import SyncMakaiClient, connect_sync
from makai.client.type_schema import jsonable
from makai.core.content import Text, ToolResult
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage, Message, StopReason, SystemMessage, ToolMessage
from makai.core.usage import Usage
from makai.providers.base import ProviderRequest
from makai.providers.runtime import ModelRuntime
from makai.providers.scenario import STALL_S, Scenario, ScriptedAnswer, Step, parse_scenario
from makai.providers.scripted import SCENARIO_VARIABLE, ScriptedProvider

__all__ = [
    "ScriptedModel", "SentRequest", "Step", "call", "cut", "fail", "hold", "pause", "say", "stop", "think", "usage",
]  # fmt: skip

Answer: TypeAlias = str | Step | Sequence[str | Step]
"""One answer of the model: what it says, one step, or several steps."""

HELD_S: Final = 30.0
_KEPT_VARIABLES: Final = ("PATH", "TMPDIR", "LANG", "SYSTEMROOT", "PYTHONPATH", "VIRTUAL_ENV")
_OVER: Final = ScriptedAnswer(
    steps=(Step("fail", "The script of the model has no further answer.", "invalid_request"),)
)


def say(text: str) -> Step:
    """The model says it, a word at a time. A plain string means the same."""
    return Step("say", text)


def think(text: str) -> Step:
    return Step("think", text)


def call(tool: str, /, **arguments: Any) -> Step:
    """The model calls a tool with these arguments."""
    return Step("tool", msgspec.json.encode(arguments, enc_hook=jsonable).decode(), tool)


def fail(
    code: str = "provider_error", message: str = "scripted failure", *, retry_after_s: float | None = None
) -> Step:
    """The provider fails, after its own retries; a code is "rate_limited", "auth_required" or "context_overflow"."""
    return Step("fail", message, code, retry_after_ms=None if retry_after_s is None else round(retry_after_s * 1000))


def cut() -> Step:
    """The connection breaks in the middle of the answer. An agent asks again, and gets the next answer."""
    return Step("cut")


def pause(seconds: float) -> Step:
    """The model is silent for so long. No time passes in the test: `model.paused_s` counts it."""
    return Step("wait", number=seconds)


def hold() -> Step:
    """The model is silent until `model.release()`; `await model.held()` waits until it is."""
    return Step("stall")


def usage(input: int = 0, output: int = 0, **tokens: int) -> Step:
    """What the answer reports as used."""
    return Step("usage", usage=Usage(input=input, output=output, **tokens))


def stop(reason: StopReason) -> Step:
    """Why the answer ends, such as "max_tokens" or "refusal"."""
    return Step("stop", reason=reason)


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request that the model got."""

    messages: tuple[Message, ...]
    system_prompt: str
    tools: tuple[str, ...]
    """The names of the tools that it was offered."""
    raw: ProviderRequest

    @property
    def text(self) -> str:
        """Every text that the model was sent: instructions, messages and results of tools."""
        return "\n".join([self.system_prompt, *map(_text_of, self.messages)])

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        return tuple(message.result for message in self.messages if isinstance(message, ToolMessage))


class ScriptedModel:
    """A model that gives these answers, one per request of a conversation; one that is sent again after a failure gets
    the next. After the last answer the model fails, or gives that again with `repeat_last`. `when` has answers for
    messages of the user that contain a text."""

    ref: Final = "scripted/scripted@scenario"

    def __init__(self, *answers: Answer, when: Mapping[str, Answer] | None = None, repeat_last: bool = False) -> None:
        ordered = [ScriptedAnswer(steps=_steps(answer)) for answer in answers]
        special = [ScriptedAnswer(steps=_steps(answer), when=words) for words, answer in (when or {}).items()]
        if repeat_last and not ordered:
            raise InvalidRequest("repeat_last needs an answer that can be repeated")
        self._use(Scenario(answers=(*special, *ordered, *(() if repeat_last else (_OVER,)))))

    @classmethod
    def from_scenario(cls, text: str) -> Self:
        """A model that follows a scenario in makai's own language of scripts, as in the file of MAKAI_SCENARIO."""
        model = cls()
        model._use(parse_scenario(text))
        return model

    def _use(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._provider = ScriptedProvider(scenario, sleep=self._pause, failures_count=True)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._watching: list[asyncio.Future[None]] = []
        self.paused_s = 0.0
        """How long the model would have been silent."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="makai-test-")
        self.home.chmod(0o700)
        (self.home / "scenario.json").write_bytes(msgspec.json.encode(self._scenario))
        return self

    def __exit__(self, *error: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    @property
    def home(self) -> Path:
        """The MAKAI_HOME of the test, removed at the end of `with`."""
        if self._folder is None:
            raise InvalidRequest(
                "the model is used outside of `with`", hint="Write `with ScriptedModel(...) as model:`."
            )
        return Path(self._folder.name)

    @property
    def environ(self) -> dict[str, str]:
        """For child processes and calls that take variables, such as `makai.complete(..., environ=...)`. What they send
        is not remembered here, and pauses are real there."""
        own = {"HOME": str(self.home), "MAKAI_HOME": str(self.home)}
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        return {**kept, **own, SCENARIO_VARIABLE: str(self.home / "scenario.json")}

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[MakaiClient]:
        """A client whose sessions are in `home`; several may be open."""
        async with self._runtime() as runtime, connect(backend=runtime) as client:
            yield client

    @contextmanager
    def connect_sync(self) -> Iterator[SyncMakaiClient]:
        runtime = self._runtime()
        try:
            with connect_sync(backend=runtime) as client:
                yield client
        finally:
            portal = Portal()
            portal.run(runtime.close())
            portal.stop()

    @property
    def requests(self) -> tuple[SentRequest, ...]:
        """What the model was sent so far, the oldest first."""
        return tuple(map(_sent, self._provider.requests))

    def release(self) -> None:
        """Let the model continue where it holds. From any thread."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.get_loop().call_soon_threadsafe(_settle, future)

    async def held(self, timeout_s: float = HELD_S) -> None:
        """Return when the model holds; `TimeoutError` when it does not in time."""
        async with asyncio.timeout(timeout_s):
            while not self._waiting:
                watching: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._watching.append(watching)
                await watching

    def assert_asked(self, times: int) -> None:
        """The model was asked so often."""
        asked = len(self._provider.requests)
        assert asked == times, f"the model was asked {_times(asked)}, not {_times(times)}"

    def assert_sent(self, text: str) -> None:
        """The newest request contains the text."""
        newest = self._newest()
        assert text in newest.text, f"the model was not sent {text!r}, but:\n{newest.text}"

    def assert_never_sent(self, text: str) -> None:
        """No request contains the text, such as a secret."""
        for number, request in enumerate(self.requests, 1):
            assert text not in request.text, f"request {number} contains {text!r}:\n{request.text}"

    def assert_offered(self, *tools: str) -> None:
        """The newest request offers these tools, and possibly others."""
        newest = self._newest()
        missing = [tool for tool in tools if tool not in newest.tools]
        assert not missing, (
            f"the model was not offered {', '.join(missing)}, but: {', '.join(newest.tools) or 'nothing'}"
        )

    def assert_tool_result(self, tool: str, text: str, *, is_error: bool = False) -> None:
        """The newest request has a result of the tool that is exactly this."""
        results = [(each.tool_name, each.text(), each.is_error) for each in self._newest().tool_results]
        assert (tool, text, is_error) in results, f"no such result; there are: {results}"

    def assert_finished(self) -> None:
        """The longest conversation came to the last answer of the script."""
        ordered = sum(answer.when is None and answer is not _OVER for answer in self._scenario.answers)
        reached = self._provider.answered
        assert reached >= ordered, f"the model gave {reached} of its {ordered} answers"

    def _runtime(self) -> ModelRuntime:
        runtime = ModelRuntime(self.environ)
        runtime.registry.register("scripted", self._provider)
        return runtime

    def _newest(self) -> SentRequest:
        assert self._provider.requests, "the model was not asked"
        return _sent(self._provider.requests[-1])

    async def _pause(self, seconds: float) -> None:
        if seconds < STALL_S:
            self.paused_s += seconds
            await asyncio.sleep(0)
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        watching, self._watching = self._watching, []
        for future in watching:
            future.get_loop().call_soon_threadsafe(_settle, future)
        try:
            await waiting
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)


def _steps(answer: Answer) -> tuple[Step, ...]:
    parts = (answer,) if isinstance(answer, str | Step) else tuple(answer)
    if wrong := [part for part in parts if not isinstance(part, str | Step)]:
        raise InvalidRequest(f"an answer consists of texts and steps, not of {wrong[0]!r}")
    return tuple(say(part) if isinstance(part, str) else part for part in parts)


def _sent(request: ProviderRequest) -> SentRequest:
    context = request.context
    return SentRequest(
        messages=context.messages,
        system_prompt=context.system_prompt or "",
        tools=tuple(tool.name for tool in context.tools),
        raw=request,
    )


def _text_of(message: Message) -> str:
    match message:
        case SystemMessage():
            return message.content
        case AssistantMessage():
            return message.text()
        case ToolMessage():
            return message.result.text()
        case _:
            return "".join(part.text for part in message.parts() if isinstance(part, Text))


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
