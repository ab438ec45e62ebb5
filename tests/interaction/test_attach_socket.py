"""The owner's socket: whom it lets in, and what it endures."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from support.agent import ScriptedModels
from support.attach import MODEL_REF, RawLink, pair, raw_link
from support.log_events import pending, steps
from support.machine import RecordMeasure, slack
from support.places import mode
from support.profiles import FAULTS

from makai.auth.private_files import load_or_create_token
from makai.core.errors import StorageUnavailable, TransportError
from makai.core.secret import Secret
from makai.core.session_events import SessionCreated
from makai.harness.base import ToolAnswer
from makai.protocols.attach import messages as wire
from makai.protocols.attach.frames import encoded, encoded_request
from makai.server import owner_socket
from makai.server.owner_socket import FILE_NAME, MAX_REQUESTS, OwnerSocket
from makai.server.remote_sessions import RemoteSessions
from makai.sessions import requests as req
from makai.sessions.commands import SetTitle
from makai.sessions.log.base import BATCH_EVENTS, Record, SessionFilter
from makai.sessions.log.memory import MemoryLog
from makai.sessions.owner import OwnedSessions

FRAMES = 10_000 if FAULTS else 500


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


@pytest.fixture
def reachable_home() -> Iterator[Path]:
    """One that another user could reach, if it were not for its mode and that of the socket."""
    with TemporaryDirectory(prefix="makai-attach-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        yield home


def open_to_everyone(home: Path) -> None:
    home.chmod(0o755)
    (home / FILE_NAME).chmod(0o666)


@asynccontextmanager
async def owner(home: Path, log: MemoryLog | None = None) -> AsyncIterator[tuple[OwnedSessions, MemoryLog]]:
    """An owner that listens; what it owns is in memory."""
    log = log or MemoryLog()
    sessions = await OwnedSessions.open(home, ScriptedModels("say: Hello there."), log=log)
    async with asyncio.timeout(300 if FAULTS else 50), OwnerSocket(sessions, home) as listening:
        yield sessions, log
        await listening.drain()
        await sessions.close()


@pytest.mark.proof("L10")
async def test_the_socket_is_for_its_user_alone_and_goes_with_its_owner(home: Path) -> None:
    async with owner(home):
        assert (home / FILE_NAME).is_socket()
        assert (mode(home), mode(home / FILE_NAME)) == (0o700, 0o600)
    assert not (home / FILE_NAME).exists()


async def test_the_socket_of_a_dead_owner_is_replaced(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home / FILE_NAME))
    with pytest.raises(TransportError):
        await RemoteSessions.connect(home)
    async with owner(home):
        link = await RemoteSessions.connect(home)
        assert await link.dispatch(req.ListSessions()) == []
        await link.close()


async def test_a_file_in_the_place_of_the_socket_is_left_alone(home: Path) -> None:
    (home / FILE_NAME).write_text("precious")
    with pytest.raises(StorageUnavailable, match="not a socket of this user"):
        async with owner(home):
            pass
    assert (home / FILE_NAME).read_text() == "precious"


async def test_a_home_whose_path_is_longer_than_an_address_is_shared_too(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 50) / "home"
    async with pair(home) as (first, second):
        session_id = await second.dispatch(req.CreateSession(model_ref=MODEL_REF))

        assert not second.is_owner
        assert (await first.dispatch(req.GetSession(session_id))) is not None
        assert (home / FILE_NAME).is_socket()


async def test_a_process_that_cannot_read_the_home_is_refused(home: Path) -> None:
    async with owner(home):
        link = await RawLink.open(home)
        answer = await link.ask(wire.hello(os.getpid(), Secret("guessed")))

        assert isinstance(answer, wire.Refused)
        assert answer.problem.code == "auth_required"
        assert await link.hear() is None
        await link.channel.close()


async def test_another_version_is_refused_by_name(home: Path) -> None:
    async with owner(home):
        link = await RawLink.open(home)
        hello = wire.hello(4711, load_or_create_token(home))
        answer = await link.ask(msgspec.structs.replace(hello, makai="99.0"))

        assert isinstance(answer, wire.Refused)
        assert f"Restart process {os.getpid()}, the older one" in (answer.problem.hint or "")
        await link.channel.close()


async def test_a_process_that_does_not_greet_is_hung_up_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_socket, "GREETING_S", 0.05)
    async with owner(home):
        silent = await RawLink.open(home)
        assert await silent.hear() is None
        rude = await RawLink.open(home)
        assert isinstance(await rude.ask(wire.AttachPing()), wire.Refused)
        assert await rude.hear() is None
        for link in (silent, rude):
            await link.channel.close()


@pytest.mark.proof("L10")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user: a foreign uid was not tried")
async def test_a_process_of_another_user_is_refused(reachable_home: Path) -> None:
    script = (
        "import os, socket, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); s = socket.socket(1)\n"
        "try: s.connect(sys.argv[1])\nexcept PermissionError: sys.exit(7)\n"
        "try: s.sendall(b'{}\\n')\nexcept BrokenPipeError: sys.exit(0)\n"
        "try: sys.exit(len(s.recv(100)))\nexcept ConnectionResetError: sys.exit(0)\n"
    )
    async with owner(reachable_home):

        async def connect() -> int:
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(reachable_home / FILE_NAME))
            return await child.wait()

        by_the_mode = await connect()
        open_to_everyone(reachable_home)  # what the mode lets in, the kernel's word about the peer keeps out
        by_the_uid = await connect()

    assert (by_the_mode, by_the_uid) == (7, 0)


async def test_a_follower_gets_one_batch_and_the_next_when_it_pulls(home: Path) -> None:
    async with owner(home) as (sessions, _), raw_link(home) as link:
        session_id = await sessions.dispatch(req.CreateSession(model_ref=MODEL_REF))
        first = await link.ask(wire.Follow(number=1, session_id=session_id))
        await sessions.dispatch(req.RunCommand(session_id, SetTitle(now=0, title="more")))
        pong = await link.ask(wire.AttachPing())
        second = await link.ask(wire.Pull(number=1))

    assert isinstance(first, wire.Records)
    assert isinstance(second, wire.Records)
    assert (first.ids, type(pong), second.ids) == ([1], wire.AttachPong, [2])


class CountingLog(MemoryLog):
    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def read_raw(
        self, session_id: str, after: int = 0, limit: int = BATCH_EVENTS, *, deltas: bool = True
    ) -> list[Record]:
        self.reads += 1
        return await super().read_raw(session_id, after, limit, deltas=deltas)


async def test_a_process_that_does_not_read_slows_nobody_and_nothing_is_read_for_it(home: Path) -> None:
    log = CountingLog()
    async with owner(home, log), raw_link(home) as stalled:
        await log.append("long", pending(SessionCreated(model_ref=MODEL_REF)), 0)
        await log.append("long", steps(2000, "x" * 1000), 1)
        pages = [encoded_request(number, req.ReadEvents("long")) for number in range(1, 50)]
        follows = [encoded(wire.Follow(number=number, session_id="long")) for number in range(50, 60)]
        await stalled.channel.send([*pages, *follows])
        link = await RemoteSessions.connect(home)
        start = time.perf_counter()
        for _ in range(20):
            assert len(await link.dispatch(req.ReadEvents("long"))) == 1000
        assert time.perf_counter() - start < 40
        reads_for_the_stalled = log.reads - 20
        await link.close()

    # One batch for each follower, four to load the session, and what the two ends of the socket hold: not 49 pages.
    assert reads_for_the_stalled <= len(follows) + 4 + 3


async def test_a_process_that_stands_still_loses_its_link(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_socket, "SILENCE_S", 0.05)
    async with owner(home), raw_link(home) as link:
        assert await link.hear() is None


@pytest.mark.proof("limit-inbound")
async def test_too_many_requests_at_once_are_refused_one_by_one(home: Path) -> None:
    async with owner(home) as (sessions, _), raw_link(home) as link:
        count = MAX_REQUESTS * 3
        await link.channel.send([encoded_request(n, req.CreateSession(model_ref="m")) for n in range(count)])
        answers = [await link.hear() for _ in range(count)]
        refused = [answer for answer in answers if isinstance(answer, wire.Failure)]

        numbers = [answer.number for answer in answers if isinstance(answer, wire.AttachAnswer | wire.Failure)]
        assert sorted(numbers) == list(range(count))
        assert {answer.problem.code for answer in refused} == {"overloaded"}
        assert len(answers) - len(refused) == len(await sessions.dispatch(req.ListSessions(SessionFilter(limit=1000))))
        assert len(answers) - len(refused) >= MAX_REQUESTS


def originals(chance: random.Random, session_id: str) -> bytes:
    number = chance.randint(0, 5)
    frames = [
        encoded_request(number, req.CreateSession(model_ref="m")),
        encoded_request(number, req.RunCommand(session_id, SetTitle(now=0, title="mutated"))),
        encoded_request(number, req.ReadEvents(session_id)),
        encoded_request(number, req.ListSessions()),
        encoded(wire.Follow(number=number, session_id=session_id)),
        encoded(wire.Pull(number=number)),
        encoded(wire.Executed(call=number, answer=ToolAnswer(content=()))),
        encoded(wire.AttachPing()),
    ]
    return chance.choice(frames)


def mutated(frame: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(frame))
    end = chance.randint(start, min(start + 8, len(frame)))
    broken = [b"", b"null", b"-1", b"1e999", b'"', b"[" * 200, b"\xff\xfe", b"\n", b"\\u0000"]
    pieces = [*broken, frame, chance.randbytes(6)]
    return frame[:start] + chance.choice(pieces) + frame[end:]


@pytest.mark.proof("E1")
@pytest.mark.scaled
@pytest.mark.timeout(600)
async def test_mutated_frames_never_harm_the_owner(home: Path, record_measure: RecordMeasure) -> None:
    chance = random.Random(2026)
    links = 0
    async with owner(home) as (sessions, _):
        session_id = await sessions.dispatch(req.CreateSession(model_ref=MODEL_REF))
        honest = await RemoteSessions.connect(home)
        link: RawLink | None = None
        for number in range(FRAMES):
            if link is None:
                link = await RawLink.open(home)
                links += 1
                if chance.random() < 0.9:
                    await link.greet(home)
            try:
                await link.channel.send([mutated(originals(chance, session_id), chance), encoded(wire.AttachPing())])
                while (said := await link.hear()) is not None and not isinstance(said, wire.AttachPong):
                    pass
            except TransportError:
                said = None
            if said is None:
                await link.channel.close()
                link = None
            if number % 50 == 0:
                assert await honest.dispatch(req.GetSession(session_id)) is not None
        if link is not None:
            await link.channel.close()
        assert await honest.dispatch(req.GetState(session_id)) == await sessions.dispatch(req.GetState(session_id))
        await honest.close()
    record_measure(f"attach: {FRAMES} mutated frames, {links} links: owner lost", "0", "0")


async def time_to_attach(home: Path) -> float:
    start = time.perf_counter()
    link = await RemoteSessions.connect(home)
    milliseconds = (time.perf_counter() - start) * 1000
    await link.close()
    return milliseconds


async def test_the_link_is_fast_enough_to_forget(home: Path, record_measure: RecordMeasure) -> None:
    count = 50_000
    async with owner(home) as (_, log):
        session_id = "long"
        await log.append(session_id, pending(SessionCreated(model_ref=MODEL_REF)), 0)
        for _ in range(count // 1000):
            await log.append(session_id, steps(1000), await log.last(session_id))
        attach_ms = min([await time_to_attach(home) for _ in range(5)])
        link = await RemoteSessions.connect(home)
        follower = link.follow(session_id)
        start = time.perf_counter()
        received = 0
        while received <= count:
            received += len(await follower.next())
        per_event_us = (time.perf_counter() - start) / received * 1e6
        start = time.perf_counter()
        for _ in range(200):
            await link.dispatch(req.GetSession(session_id))
        request_us = (time.perf_counter() - start) / 200 * 1e6
        await link.close()
    record_measure("attach: time to attach", "< 100 ms", f"{attach_ms:.1f} ms")
    record_measure("attach: an event over the link", "< 50 us", f"{per_event_us:.1f} us")
    record_measure("attach: a request over the link", "< 5 ms", f"{request_us:.0f} us")
    assert attach_ms < 100 * slack()
    assert per_event_us < 50 * slack()
    assert request_us < 5000 * slack()
