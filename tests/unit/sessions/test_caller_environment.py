"""Variables of a caller belong to the run that it starts: in memory, over the link to the owner, and in no log."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from support.live_sessions import Desk, owned_sessions

from makai.agent.host import CallerModels
from makai.core import session_events as ev
from makai.core.errors import SessionRefused
from makai.core.secret import Secret
from makai.harness.base import RunPort, RunStart, Settlement
from makai.protocols.attach import frames
from makai.protocols.attach.messages import RequestMessage
from makai.providers.runtime import ModelRuntime
from makai.server.backend import LazyBackend
from makai.sessions.commands import Compact, Send, WithdrawInput
from makai.sessions.log.memory import MemoryLog
from makai.sessions.requests import CreateSession, GetState, RunCommand

CANARY = "c4n4ry"


class Listener:
    """A harness that keeps what it is given; the word `wait` keeps its run active until the next word is steered."""

    id = "listener"
    capabilities = ev.HarnessCapabilities(has_turns=False, needs_model=False)

    def __init__(self) -> None:
        self.given: list[dict[str, str]] = []
        self.shown: list[str] = []
        self.may_end = asyncio.Event()

    def check(self, cwd: str | None, roots: tuple[str, ...], terms: ev.SessionTerms) -> None:
        pass

    async def run(self, port: RunPort, start: RunStart) -> Settlement:
        self.given.append(dict(port.environ))
        self.shown.append(repr(port.environ))
        await self.may_end.wait()
        return ev.RunFinished(stop_reason="end_turn")

    async def forget(self, session_id: str) -> None:
        pass


@pytest.mark.req("DM-ENDP-010")
async def test_every_run_gets_the_variables_of_the_caller_that_started_it(tmp_path: Path) -> None:
    harness, log = Listener(), MemoryLog()
    async with owned_sessions(tmp_path, "say: Hi", log, harnesses=[harness]) as sessions:
        client = Desk(sessions, await sessions.dispatch(CreateSession(model_ref="", harness="listener")))
        for number, environ in enumerate(({"KEY": CANARY}, {}, {"KEY": "second"})):
            send = Send(now=0, input_id=f"input-{number}", content="go", delivery="queue" if number else None)
            secrets = {name: Secret(value) for name, value in environ.items()}
            await sessions.dispatch(RunCommand(client.session_id, send, secrets))
        harness.may_end.set()
        for _ in range(3):
            await client.until_settled()
        state = await sessions.dispatch(GetState(client.session_id))
        stored = await log.read_raw(client.session_id, 0, 1000)

    assert harness.given == [{"KEY": CANARY}, {}, {"KEY": "second"}]
    assert not [shown for shown in harness.shown if CANARY in shown]
    assert CANARY.encode() not in b"".join(record.line for record in stored)
    assert CANARY not in repr(state)


async def test_variables_of_a_withdrawn_message_reach_no_later_run(tmp_path: Path) -> None:
    harness = Listener()
    async with owned_sessions(tmp_path, "say: Hi", MemoryLog(), harnesses=[harness]) as sessions:
        client = Desk(sessions, await sessions.dispatch(CreateSession(model_ref="", harness="listener")))
        await client.send("first")
        queued = Send(now=0, input_id="same", content="go", delivery="queue")
        await sessions.dispatch(RunCommand(client.session_id, queued, {"KEY": Secret(CANARY)}))
        await client.do(WithdrawInput(now=0, input_id="same"))
        await client.do(queued)
        harness.may_end.set()
        for _ in range(2):
            await client.until_settled()

    assert harness.given == [{}, {}]


async def test_variables_of_a_refused_compaction_reach_no_later_run(tmp_path: Path) -> None:
    harness = Listener()
    async with owned_sessions(tmp_path, "say: Hi", MemoryLog(), harnesses=[harness]) as sessions:
        client = Desk(sessions, await sessions.dispatch(CreateSession(model_ref="", harness="listener")))
        await sessions.dispatch(RunCommand(client.session_id, Send(now=0, input_id="first", content="go")))
        with pytest.raises(SessionRefused):
            await sessions.dispatch(
                RunCommand(client.session_id, Compact(now=0, input_id="c"), {"KEY": Secret(CANARY)})
            )
        kept = dict((await sessions._session(client.session_id))._environs)
        harness.may_end.set()
        await client.until_settled()

    assert (kept, harness.given) == ({}, [{}])


def test_the_link_to_the_owner_carries_variables_and_nothing_else_shows_them() -> None:
    send = Send(now=0, input_id="i", content="go")
    request = RunCommand("s", send, {"KEY": Secret(CANARY)}, ("KEY",))
    message = frames.from_attached(frames.encoded_request(1, request))

    assert isinstance(message, RequestMessage)
    assert frames.request_of(message) == request
    assert CANARY not in repr(request)
    with pytest.raises(TypeError):
        msgspec.json.encode(request)


async def test_models_for_a_caller_use_its_keys_and_addresses_over_those_of_the_process(tmp_path: Path) -> None:
    async with ModelRuntime({"OPENAI_API_KEY": "of-the-process", "OTHER": "x"}, home=tmp_path) as models:
        caller = models.for_caller({"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": "https://proxy.test/v1"})
        model, plain = caller.resolve("openai/gpt-6.1-sol"), models.resolve("openai/gpt-6.1-sol")
        key, own = caller.resolver.credential_for(model), models.resolver.credential_for(plain)

    assert key is not None
    assert own is not None
    assert (key.secret.reveal(), own.secret.reveal()) == (CANARY, "of-the-process")
    assert model.base_url == "https://proxy.test/v1"
    assert plain.base_url != model.base_url


async def test_the_models_of_a_server_are_those_of_a_caller_too() -> None:
    assert isinstance(LazyBackend(), CallerModels)
    assert isinstance(ModelRuntime({}, home=Path("/nowhere")), CallerModels)
