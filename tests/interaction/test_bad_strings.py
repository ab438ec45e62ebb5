"""A bad call is one failed call: whatever a caller, a tool or a model says, the client's next good call succeeds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import examples
from support.sdk import DEADLINE_S, ECHO, KINDS, SCENARIO, serving

import makai

STORY = """
tool: look {"at": "sea\\u0000"}
---
say: Water.
---
say: More.
"""
T = TypeVar("T")

BAD_TEXT = ("a\x00b", "\ud800", "x\udfffy", "\udcff/file", "\ud83d\ude00")
texts = st.text(st.characters(), max_size=12) | st.sampled_from(BAD_TEXT)
"""Any text, also with NUL and lone surrogates."""


def deep(levels: int) -> Any:
    value: Any = "end"
    for _ in range(levels):
        value = [value]
    return value


anything = st.one_of(
    texts,
    st.integers(100, 400).map(deep),
    st.just(float("nan")),
    st.just(object()),
    st.just(b"\xff"),
    st.dictionaries(texts, texts, max_size=2),
)


@pytest.fixture(params=KINDS)
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[makai.MakaiClient]:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(STORY)
    environ = {"MAKAI_SCENARIO": str(scenario), "MAKAI_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    environ["MAKAI_TEST_LOGIN"] = "1"
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(request.param, environ) as options,
        makai.create_makai_client(options) as client,
    ):
        yield client


async def checked(check: Callable[[Callable[[Coroutine[Any, Any, T]], T]], None]) -> None:
    """Run a property in a thread; it gets a function that runs coroutines in this loop."""
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(check, lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(DEADLINE_S))


def look(text: str) -> makai.AgentTool:
    return makai.AgentTool(name="look", description="Look", schema={"type": "object"}, execute=lambda _: text)


Call = Callable[[makai.MakaiClient, Any], Awaitable[object]]


def message(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


async def prompted(client: makai.MakaiClient, answer: str) -> None:
    handlers = makai.AuthFlowHandlers(on_prompt=lambda _: answer)
    await client.auth.login("test-fixture", handlers)


CALLS: dict[str, Call] = {
    "a message": lambda client, bad: client.provider.complete(model_ref=ECHO, messages=bad),
    "a content": lambda client, bad: client.provider.complete(model_ref=ECHO, messages=[message(bad)]),
    "a part": lambda client, bad: client.provider.complete(
        model_ref=ECHO, messages=[message([{"type": "text", "text": bad}])]
    ),
    "a model": lambda client, bad: client.provider.complete(model_ref=bad, messages="Hi"),
    "a tool": lambda client, bad: client.provider.complete(
        model_ref=ECHO, messages="Hi", tools=[{"name": bad, "description": bad, "parameters_schema_json": "{}"}]
    ),
    "a schema": lambda client, bad: client.provider.complete(
        model_ref=ECHO, messages="Hi", tools=[{"name": "t", "description": "", "parameters_schema_json": bad}]
    ),
    "options": lambda client, bad: client.provider.complete(
        model_ref=ECHO, messages="Hi", options={"stop": [bad], "metadata": bad, "temperature": bad}
    ),
    "arguments": lambda client, bad: client.provider.complete(
        model_ref=ECHO,
        messages=[
            message("Hi"),
            {
                "role": "assistant",
                "content": [{"type": "tool_call", "tool_call_id": bad, "name": bad, "arguments_json": bad}],
            },
            {"role": "tool", "tool_call_id": bad, "content": bad},
        ],
    ),
    "a listing": lambda client, bad: client.models.list(provider_id=bad),
    "a login": lambda client, bad: client.auth.login(bad),
    "a prompt": prompted,
    "a run": lambda client, bad: client.agent.run(model_ref=ECHO, messages=bad),
    "a title": lambda client, bad: client.agent.run(model_ref=ECHO, messages="Hi", title=bad, system_prompt=bad),
    "a folder": lambda client, bad: client.agent.run(model_ref=ECHO, messages="Hi", cwd=bad, builtin_tools=True),
    "a session": lambda client, bad: client.agent.status(bad),
    "a reason": lambda client, bad: client.agent.stop(str(uuid4()), reason=bad),
}


async def refused_or_done(call: Awaitable[object]) -> None:
    (outcome,) = await asyncio.gather(call, return_exceptions=True)
    if isinstance(outcome, BaseException):
        assert isinstance(outcome, makai.MakaiError | TypeError), repr(outcome)
        assert getattr(outcome, "kind", "") != "transport_error", repr(outcome)


@pytest.mark.req("MK-ENV-021")
async def test_a_bad_call_and_then_a_good_one(client: makai.MakaiClient) -> None:
    session_id = str(uuid4())

    async def use(where: str, bad: Any) -> None:
        await refused_or_done(CALLS[where](client, bad))
        answer = await client.provider.complete(model_ref=ECHO, messages="Hello")
        assert answer.text == "Hello"
        # The session of a caller, whose envelopes are counted.
        await refused_or_done(client.agent.run(model_ref=ECHO, messages=bad, options={"session_id": session_id}))
        answer = await client.agent.run(model_ref=ECHO, messages="Hello", options={"session_id": session_id})
        assert answer.text == "Hello"

    def check(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        @examples(25)
        @given(st.sampled_from(sorted(CALLS)), anything)
        def any_call(where: str, bad: Any) -> None:
            run(use(where, bad))

        any_call()

    await checked(check)


async def test_a_tool_may_answer_with_any_text(client: makai.MakaiClient) -> None:
    async def use(text: str) -> None:
        run = await client.agent.run(model_ref=SCENARIO, messages="Look", tools=[look(text)])
        assert run.text == "Water."

    def check(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        @examples(8)
        @given(texts)
        def any_text(text: str) -> None:
            run(use(text))

        any_text()

    await checked(check)
