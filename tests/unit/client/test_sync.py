"""The client without `await`: the same methods, the same behaviour, from any thread."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.sdk import DEADLINE_S, ECHO, SCENARIO

import makai
from makai import ErrorEvent, MakaiStreamError, MessageEndEvent, MessageStartEvent, SyncMakaiClient, TextDeltaEvent
from makai.client import sync
from makai.client.agent import AgentApi
from makai.client.auth import AuthApi
from makai.client.models import ModelsApi
from makai.client.provider import ProviderApi
from makai.client.sync import SyncAgent
from makai.client.types import AuthFlowHandlers

PAIRS = [
    (AuthApi, sync.SyncAuth),
    (ModelsApi, sync.SyncModels),
    (AgentApi, SyncAgent),
    (ProviderApi, sync.SyncProvider),
]
NOT_FOR_CALLERS = {"known", "forget", "login_for_retry"}
SCRIPT = """
when: endless
say: a b c
stall
---
when: quota
say: So far
fail: overloaded Later.
---
when: look
tool: look {"at": "sea"}
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncMakaiClient]:
    (tmp_path / "scenario.txt").write_text(SCRIPT)
    environ = {"MAKAI_SCENARIO": str(tmp_path / "scenario.txt"), "MAKAI_HOME": str(tmp_path / "home")}
    with makai.connect_sync(environ=environ) as client:
        yield client


def methods(kind: type) -> dict[str, list[str]]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {
        name: list(inspect.signature(method).parameters)
        for name, method in found
        if not name.startswith("_") and name not in NOT_FOR_CALLERS
    }


@pytest.mark.parametrize(("of_async", "of_sync"), PAIRS)
def test_both_clients_have_the_same_methods_with_the_same_parameters(of_async: type, of_sync: type) -> None:
    assert methods(of_sync) == methods(of_async)
    assert methods(of_sync)


def test_both_connect_with_the_same_parameters() -> None:
    """But for a ready channel, which belongs to the event loop it was made in."""
    wanted = [name for name in inspect.signature(makai.connect).parameters if name != "channel"]

    assert list(inspect.signature(makai.connect_sync).parameters) == wanted


START = MessageStartEvent(provider_id="scripted", api="scripted", model_id="echo")


def test_a_stream_is_a_plain_loop(client: SyncMakaiClient) -> None:
    stream = client.provider.stream(model_ref=ECHO, messages="Hello there")

    events = list(stream)

    assert events[:-1] == [START, TextDeltaEvent("Hello"), TextDeltaEvent(" there")]
    assert isinstance(events[-1], MessageEndEvent)
    assert stream.response is not None
    assert stream.response.text == "Hello there"


def test_complete_and_models_answer_at_once(client: SyncMakaiClient) -> None:
    model = client.models.resolve(provider_id="scripted", model_id="echo").model

    assert client.provider.complete(model_ref=model.model_ref, messages="Hi").text == "Hi"
    assert model in client.models.list(provider_id="scripted").models


def test_failures_are_the_same(client: SyncMakaiClient) -> None:
    events = list(client.provider.stream(model_ref=SCENARIO, messages="quota"))

    assert events[-1] == ErrorEvent(message="Later.", code="overloaded", provider_id="scripted")
    with pytest.raises(MakaiStreamError, match="model not found"):
        list(client.provider.stream(model_ref="scripted/scripted@unknown", messages="Hi"))
    with pytest.raises(MakaiStreamError, match="model not found"):
        list(client.agent.stream(model_ref="scripted/scripted@unknown", messages="Hi"))
    with pytest.raises(makai.MakaiAuthError, match="no provider of that name"):
        client.auth.login("unknown")


@pytest.mark.req("MK-SDK-035")
def test_an_agent_runs_with_plain_functions_as_tools(client: SyncMakaiClient) -> None:
    threads: list[str] = []

    def look(arguments: dict[str, Any]) -> dict[str, Any]:
        threads.append(threading.current_thread().name)
        return {"seen": arguments["at"]}

    tools = [makai.AgentTool(name="look", execute=look)]
    stream = client.agent.stream(model_ref=SCENARIO, messages="look", tools=tools, options={"max_turns": 1})

    types = [event.type for event in stream]

    assert (types[0], types[-1]) == ("agent_start", "agent_end")
    assert stream.response is not None
    assert (stream.response.stop_reason, stream.response.session_id) == ("max_turns", stream.session_id)
    assert threading.main_thread().name not in threads
    assert len(threads) == 1
    seen = [event.type for event in itertools.islice(client.agent.attach(stream.session_id, after_event_id=0), 1)]
    assert seen == ["agent_start"]


@pytest.mark.req("MK-SDK-036")
def test_leaving_an_agents_loop_stops_its_run(client: SyncMakaiClient) -> None:
    stream = client.agent.stream(model_ref=SCENARIO, messages="endless")
    for event in stream:
        if event.type == "text_delta":
            break

    assert client.agent.status(stream.session_id).status == "idle"
    client.agent.stop(stream.session_id)
    assert client.agent.run(model_ref=ECHO, messages="Hi", options={"session_id": stream.session_id}).text == "Hi"


@pytest.mark.req("MK-SDK-036")
def test_leaving_the_loop_aborts(client: SyncMakaiClient) -> None:
    """The 101st open stream of a connection would be refused."""
    heard = 0
    for _ in range(110):
        for event in client.provider.stream(model_ref=SCENARIO, messages="endless"):
            heard += event.type == "text_delta"
            if event.type == "text_delta":
                break

    assert heard == 110


@pytest.mark.req("MK-SDK-037")
def test_closing_frees_a_thread_that_waits(client: SyncMakaiClient) -> None:
    failures: list[str] = []
    reading = threading.Event()

    def read() -> None:
        try:
            for event in client.provider.stream(model_ref=SCENARIO, messages="endless"):
                if event == TextDeltaEvent(" c"):
                    reading.set()
        except MakaiStreamError as error:
            failures.append(error.kind)

    thread = threading.Thread(target=read)
    thread.start()
    assert reading.wait(DEADLINE_S)
    client.close()
    client.close()
    thread.join(DEADLINE_S)

    assert failures == ["aborted"]
    with pytest.raises(MakaiStreamError, match="closed"):
        client.models.list()


def test_a_client_nobody_holds_any_more_ends_its_thread() -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "makai-client"]

    before = threads()
    client = makai.connect_sync(environ={})
    assert client.provider.complete(model_ref=ECHO, messages="Hi").text == "Hi"

    del client

    assert threads() == before


def test_it_works_inside_a_running_loop_as_notebooks_have() -> None:
    async def cell() -> str:
        with makai.connect_sync(environ={}) as client:
            return client.provider.complete(model_ref=ECHO, messages="Hi").text

    assert asyncio.run(cell()) == "Hi"


def test_a_child_can_be_the_server() -> None:
    with makai.connect_sync(stdio=True) as client:
        assert client.provider.complete(model_ref=ECHO, messages="Hi").text == "Hi"


async def test_plain_handlers_run_in_a_worker_thread() -> None:
    """`input()` in a handler must not stop the connection."""
    handlers = AuthFlowHandlers(on_prompt=lambda prompt: threading.current_thread().name)
    on_prompt = sync._in_threads(handlers).on_prompt
    assert on_prompt is not None
    answer = on_prompt(makai.AuthPromptEvent(flow_id="f", prompt_id="p", provider_id="acme", message="?"))

    assert not isinstance(answer, str)
    assert await answer != threading.current_thread().name
