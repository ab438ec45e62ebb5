"""Owners that die, stand still or are of another version, seen by the program that is attached to them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.attach import MODEL_REF, StubOwner, programs

from makai.core.errors import InvalidRequest, NotSupported, SessionRefused, StorageUnavailable, TransportError
from makai.core.secret import Secret
from makai.harness.base import ToolAnswer, ToolRequest
from makai.protocols.attach import messages as wire
from makai.protocols.attach.frames import MAX_FRAME_BYTES, encoded
from makai.protocols.attach.messages import problem_of
from makai.server import remote_sessions, session_router
from makai.server.owner_socket import FILE_NAME
from makai.server.session_router import SessionRouter
from makai.sessions import commands as cmd
from makai.sessions import requests as req
from makai.sessions.log.leases import HomeLock
from makai.sessions.service import Sessions
from makai.transports.channel import Channel
from makai.transports.unix import Peer, UnixListener

SESSION = "the-session"


class DyingOwner:
    """Dies when it is asked for something, having done it or not: the caller cannot know."""

    def __init__(self, home: Path) -> None:
        self.asked: list[wire.FromAttached] = []
        self._stub = StubOwner(home, self._take)
        self._dying: asyncio.Task[None] | None = None

    async def _take(self, message: wire.FromAttached, channel: Channel) -> None:
        if isinstance(message, wire.RequestMessage | wire.RegisterExecutor):
            self.asked.append(message)
            self._dying = asyncio.ensure_future(self._stub.die())

    async def gone(self) -> None:
        assert self._dying is not None
        await self._dying


async def with_a_dying_owner(home: Path, ask: Callable[[SessionRouter], Awaitable[object]]) -> object:
    """What a program gets that asks an owner who dies of it."""
    async with programs(home) as sharing:
        before = await sharing.start("before")
        await before.dispatch(req.CreateSession(model_ref=MODEL_REF, session_id=SESSION))
        await before.close()
        owner = DyingOwner(home)
        sessions = await sharing.start("attached")
        try:
            return await ask(sessions)
        finally:
            await owner.gone()
            assert len(owner.asked) == 1
            assert await sessions.dispatch(req.GetSession(SESSION)) is not None
            assert sessions.is_owner
            assert sharing.took_over == ["attached"]


async def test_words_with_an_id_are_said_again_to_the_next_owner(home: Path) -> None:
    command = cmd.Send(now=0, input_id="i1", content="hi", client_msg_id="c1")

    async def ask(sessions: SessionRouter) -> object:
        await sessions.dispatch(req.RunCommand(SESSION, command))
        records = await sessions.dispatch(req.ReadEvents(SESSION))
        return sum(b"user_message" in record.line for record in records)

    assert await with_a_dying_owner(home, ask) == 1


async def test_words_without_an_id_are_not_said_twice(home: Path) -> None:
    command = cmd.Send(now=0, input_id="i1", content="hi")

    with pytest.raises(TransportError, match="may or may not have been carried out"):
        await with_a_dying_owner(home, lambda s: s.dispatch(req.RunCommand(SESSION, command)))


async def test_a_repeated_approval_that_is_refused_says_why_that_may_be(home: Path) -> None:
    command = cmd.ApproveCall(now=0, call_id="call", by="cli")

    with pytest.raises(SessionRefused, match="the first attempt may have been carried out") as refused:
        await with_a_dying_owner(home, lambda s: s.dispatch(req.RunCommand(SESSION, command)))
    assert refused.value.code == "UNKNOWN_CALL_ID"


async def test_a_session_of_no_particular_id_is_created_by_the_next_owner(home: Path) -> None:
    async def ask(sessions: SessionRouter) -> object:
        session_id = await sessions.dispatch(req.CreateSession(model_ref=MODEL_REF))
        return len(await sessions.dispatch(req.ReadEvents(session_id)))

    assert await with_a_dying_owner(home, ask) == 1


async def test_a_session_of_a_given_id_is_not_created_twice(home: Path) -> None:
    with pytest.raises(TransportError, match="may or may not have been carried out"):
        await with_a_dying_owner(home, lambda s: s.dispatch(req.CreateSession(model_ref=MODEL_REF, session_id="mine")))


async def test_an_executor_whose_owner_died_is_registered_with_the_next(home: Path) -> None:
    async def execute(request: ToolRequest) -> ToolAnswer:
        raise AssertionError

    async def ask(sessions: SessionRouter) -> object:
        (await sessions.register_executor(SESSION, execute)).unregister()
        return "made"

    assert await with_a_dying_owner(home, ask) == "made"


@pytest.mark.parametrize(
    ("command", "repeatable"),
    [
        (cmd.Send(now=0, input_id="i", content="x", client_msg_id="c"), True),
        (cmd.Send(now=0, input_id="i", content="x"), False),
        (cmd.WithdrawInput(now=0, input_id="i"), True),
        (cmd.ApproveCall(now=0, call_id="c", by="me"), True),
        (cmd.DenyCall(now=0, call_id="c", by="me"), True),
        (cmd.Abort(now=0, run_id="r"), True),
        (cmd.Abort(now=0), False),
        (cmd.SetMode(now=0, mode="ask"), False),
        (cmd.SetModel(now=0, model_ref="m"), False),
        (cmd.SetTitle(now=0, title="t"), False),
        (cmd.SetTerms(now=0, terms=req.CreateSession(model_ref="m").terms), False),
        (cmd.Compact(now=0, input_id="i"), False),
        (cmd.Archive(now=0), False),
        (cmd.Close(now=0), False),
    ],
)
def test_only_what_cannot_count_twice_is_repeated(command: cmd.UserCommand, repeatable: bool) -> None:
    assert req.RunCommand(SESSION, command).is_repeatable is repeatable


async def test_what_the_owner_did_not_take_is_asked_of_the_next_one_whatever_it_is(home: Path) -> None:
    async def refuse(message: wire.FromAttached, channel: Channel) -> None:
        if isinstance(message, wire.RequestMessage):
            await channel.send([encoded(wire.Moved(number=message.number))])
            dying.append(asyncio.ensure_future(owner.die()))

    dying: list[asyncio.Task[None]] = []
    async with programs(home) as sharing:
        before = await sharing.start("before")
        await before.dispatch(req.CreateSession(model_ref=MODEL_REF, session_id=SESSION))
        await before.close()
        owner = StubOwner(home, refuse)
        sessions = await sharing.start("attached")
        await sessions.dispatch(req.RunCommand(SESSION, cmd.SetTitle(now=0, title="asked once")))
        await asyncio.gather(*dying)

        assert (await sessions.dispatch(req.GetState(SESSION))).title == "asked once"


async def test_an_owner_without_a_socket_is_awaited_and_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_router, "OWNER_S", 0.2)
    lock = HomeLock(home)
    async with programs(home) as sharing:
        with pytest.raises(TransportError, match=f"Process {os.getpid()} owns the sessions in .* does not answer"):
            await sharing.start("attached")
        lock.release()

        assert (await sharing.start("owner")).is_owner


async def test_an_owner_that_stands_still_is_noticed_and_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stand_still(message: wire.FromAttached, channel: Channel) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(session_router, "OWNER_S", 0.3)
    monkeypatch.setattr(remote_sessions, "SILENCE_S", 0.2)
    monkeypatch.setattr(remote_sessions, "PING_EVERY_S", 0.05)
    async with programs(home) as sharing:
        owner = StubOwner(home, stand_still)
        sessions = await sharing.start("attached")
        # It still says hello, so that each attempt to attach succeeds: the request itself must end.
        with pytest.raises(TransportError):
            await sessions.dispatch(req.RunCommand(SESSION, cmd.SetTitle(now=0, title="?")))
        with pytest.raises(TransportError):
            await sessions.dispatch(req.ListSessions())
        await sessions.close()
        await owner.die()


async def test_an_owner_of_another_version_is_named_at_once(home: Path) -> None:
    async def serve(channel: Channel, peer: Peer) -> None:
        other = wire.AttachHello(makai="0.0.1", format=wire.FORMAT, pid=os.getpid(), key=Secret("k"))
        objection = wire.objection(other, Secret("k"), 4711)
        assert objection is not None
        await channel.receive()
        await channel.send([encoded(wire.Refused(problem=problem_of(objection)))])

    lock = HomeLock(home)
    listener = UnixListener.open(home / FILE_NAME, serve, max_frame_bytes=MAX_FRAME_BYTES)
    async with programs(home) as sharing:
        with pytest.raises(NotSupported, match="Restart process"):
            await sharing.start("attached")
        await listener.close()
        lock.release()


async def test_a_store_that_cannot_be_opened_is_told_at_once(home: Path) -> None:
    async def broken() -> Sessions:
        raise StorageUnavailable("The disk is gone.")

    with pytest.raises(StorageUnavailable, match="The disk is gone"):
        await SessionRouter.open(home, broken)


async def test_a_home_that_others_can_read_is_not_shared(home: Path) -> None:
    os.mkdir(home)
    os.chmod(home, 0o755)
    async with programs(home) as sharing:
        with pytest.raises(InvalidRequest, match="open to other users"):
            await sharing.start("owner")
        os.chmod(home, 0o700)

        assert (await sharing.start("owner")).is_owner
