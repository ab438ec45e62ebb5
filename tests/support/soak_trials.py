"""A server that runs for long: sessions that work, clients that die, restarts, and what it holds at quiet moments.

Between two restarts is a life. After its first third, and again before the next restart, all clients pause until no run
is active, and the server's tasks, descriptors, children and memory are counted: in between nothing may grow.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import time
import zlib
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import aiohttp
import msgspec

from support.minicodex_client import BOTH, JSON, Ended, MinicodexClient, logged
from support.serve_process import ServeProcess, serve_process

QUIET_S = 300.0
"""How long clients may take to pause, and runs to end, on a machine that is busy with other things."""
KILL_CHANCE = 0.3
MESSAGES = (15, 45)
"""After a number of messages between these a client compares its session with the log, deletes it and begins another:
the conversation that a run sends to its model is in memory while it runs, so sessions that only grew would look like a
leak."""
SETTLED_LOOKS = 20
"""How often the number of tasks is the same, half a second apart, before it counts."""
_SAY = "pace: 2ms\nrepeat: 12 word "
_TOOL = 'tool: shell {"command": "echo step >> made"}'
SCENARIO = "\n---\n".join([*[_SAY, _SAY, _TOOL, _SAY] * 100, _SAY])
_CLOSE = {"Connection": "close"}
"""An idle connection of this client is a task and a descriptor of the server: it must not look like a leak."""
_RETRY = (aiohttp.ClientError, ConnectionError, Ended, TimeoutError)


class Holding(msgspec.Struct, frozen=True):
    """What a server holds on to at a quiet moment."""

    tasks: int
    descriptors: int
    children: int
    rss_mb: float


class Life(msgspec.Struct, frozen=True):
    """One life of the server, from the first quiet moment to the last."""

    minutes: float
    first: Holding
    last: Holding


class SoakReport(msgspec.Struct, frozen=True):
    lives: tuple[Life, ...]
    life_minutes: float
    sessions: int
    """All of them, also those that were deleted."""
    messages: int
    client_kills: int
    events: int
    lost: int
    """Events of the log that the client of a session has not received."""
    unlike_the_log: int
    not_once: int
    """Accepted messages that are not in their log exactly once."""

    def rss_slope(self) -> float:
        """MB per minute over the ends of all lives, by least squares: what a life leaves for the next ones to load."""
        ends = [life.last.rss_mb for life in self.lives]
        return statistics.linear_regression(range(len(ends)), ends).slope / self.life_minutes

    def rss_growth(self) -> float:
        """MB from the first quiet moment of a life to its last, the median of all lives. Bounded caches fill then."""
        return statistics.median(life.last.rss_mb - life.first.rss_mb for life in self.lives)

    def growth(self, field: str) -> int:
        """The largest growth in a life, or from one life to another."""
        within = [getattr(life.last, field) - getattr(life.first, field) for life in self.lives]
        ends = [getattr(life.last, field) for life in self.lives]
        return int(max(*within, max(ends) - ends[0]))


class _Compared:
    """What clients of sessions received, beside their logs."""

    def __init__(self) -> None:
        self.sessions = self.events = self.messages = self.lost = self.unlike = self.not_once = 0

    def add(self, heard: _Heard, log: list[JSON]) -> None:
        marks = [_mark(frame) for frame in log]
        said = [frame.get("client_msg_id") for frame in log]
        self.sessions += 1
        self.events += len(log)
        self.messages += len(heard.accepted)
        self.lost += len({number for number, _ in marks} - {number for number, _ in heard.received})
        self.unlike += heard.received != marks
        self.not_once += sum(said.count(message) != 1 for message in heard.accepted)


class _Heard:
    """What a client knows of one session."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.received: list[tuple[int, int]] = []
        """Number and checksum of each event."""
        self.accepted: list[str] = []
        """Messages."""

    @property
    def cursor(self) -> int:
        return self.received[-1][0] if self.received else 0


class _Client:
    """One client of one session at a time: it talks, dies, comes back with its cursor, and repeats what was not
    accepted."""

    def __init__(self, soak: _Soak, project: Path, session_id: str, seed: int) -> None:
        self.kills = 0
        self.compared = _Compared()
        self._heard = _Heard(session_id)
        self._messages = random.Random(seed).randint(*MESSAGES)
        self._project = project
        self._soak = soak
        self._chance = random.Random(seed)
        self._message = str(uuid4())
        self._busy = asyncio.Lock()

    async def work(self) -> None:
        while not self._soak.is_over:
            await self._soak.may_work.wait()
            with suppress(*_RETRY):
                await self.talk()
            await asyncio.sleep(self._chance.uniform(0.05, 1.0))  # people think

    async def talk(self) -> None:
        """One message and its run, unless the client or the server dies."""
        async with self._busy:
            if len(self._heard.accepted) >= self._messages:
                await self._catch_up()
                await self._compare()
                await self._begin_another()
            await self._talk()

    async def _begin_another(self) -> None:
        server = self._soak.server
        following = _Heard(await server.session(self._project, mode="never_ask"))
        former, self._heard = self._heard.session_id, following
        url, headers = f"{server.url}/api/sessions/{former}", {**server.headers, **_CLOSE}
        async with server.http.delete(url, headers=headers) as response:
            assert response.status in (200, 204), await response.text()

    async def _compare(self) -> None:
        """Compare what was received with the log as it is now."""
        heard = self._heard
        reader = await self._soak.server.connect(heard.session_id, *BOTH)
        try:
            await reader.resume(0)
            await reader.until_event(heard.cursor)
        finally:
            reader.drop()
        self.compared.add(heard, logged(reader.frames))

    async def finish(self) -> None:
        await self.catch_up()
        await self._compare()

    async def _talk(self) -> None:
        client = await self._soak.server.connect(self._heard.session_id, *BOTH)
        try:
            await client.resume(self._heard.cursor)
            if await client.ask("send", text="go", client_msg_id=self._message) == "accepted":
                self._heard.accepted.append(self._message)
                self._message = str(uuid4())
            if self._chance.random() < KILL_CHANCE:
                self.kills += 1
                async with asyncio.timeout(self._chance.uniform(0, 0.1)):
                    await client.until_over()
            else:
                await client.until_over()
        finally:
            client.drop()
            self._keep(client)

    async def catch_up(self) -> None:
        """Read everything until the session is idle."""
        async with self._busy, asyncio.timeout(QUIET_S):
            while True:
                with suppress(
                    aiohttp.ClientError, ConnectionError, Ended
                ):  # such as a connection that was idle too long
                    return await self._catch_up()

    async def _catch_up(self) -> None:
        client = await self._soak.server.connect(self._heard.session_id, *BOTH)
        try:
            await client.resume(self._heard.cursor)
            self._keep(client)
            while not await self._has_everything():
                await client.hear()
                self._keep(client)
        finally:
            client.drop()

    async def _has_everything(self) -> bool:
        """Whether no run is active, and the newest event was received."""
        server = self._soak.server
        url = f"{server.url}/api/sessions/{self._heard.session_id}"
        async with server.http.get(url, headers={**server.headers, **_CLOSE}) as response:
            found = await response.json()
        assert response.status == 200, found
        is_active = found["status"] in ("starting", "running", "awaiting_approval", "aborting")
        return not is_active and self._heard.cursor >= found["events"]

    def _keep(self, client: MinicodexClient) -> None:
        self._heard.received += [_mark(frame) for frame in logged(client.frames)]
        client.frames.clear()


def _mark(frame: JSON) -> tuple[int, int]:
    return frame["event_id"], zlib.crc32(msgspec.json.encode(frame))


class _Soak:
    def __init__(self, server: ServeProcess, questions: Path) -> None:
        self.server = server
        self.may_work = asyncio.Event()
        self.is_over = False
        self.clients: list[_Client] = []
        self._questions = questions

    async def quiet(self) -> Holding:
        """Let every client finish and leave, then look at the server."""
        self.may_work.clear()
        async with asyncio.timeout(QUIET_S):
            await asyncio.gather(*(client.catch_up() for client in self.clients))
            tasks = await self._settled_tasks()
        held = await asyncio.to_thread(_held_by, self.server.pid)
        return msgspec.structs.replace(held, tasks=tasks)

    async def _settled_tasks(self) -> int:
        """The number of tasks, once it does not fall any more: connections that were dropped have ended."""
        least, unchanged = await self._tasks(), 0
        while unchanged < SETTLED_LOOKS:
            now = await self._tasks()
            least, unchanged = (now, 0) if now < least else (least, unchanged + 1)
        return least

    async def _tasks(self) -> int:
        answer = self.server.folder / f"tasks-{uuid4()}"
        await asyncio.to_thread(self._questions.write_text, f"{answer}\n", encoding="utf-8")
        while not answer.exists():  # noqa: ASYNC110 another process writes it
            await asyncio.sleep(0.05)
        found = int(answer.read_text(encoding="ascii"))
        answer.unlink()
        await asyncio.sleep(0.5)
        return found

    async def live(self, minutes: float) -> Life:
        self.may_work.set()
        await asyncio.sleep(minutes * 60 / 3)
        first, begun = await self.quiet(), time.monotonic()
        self.may_work.set()
        await asyncio.sleep(minutes * 60 * 2 / 3)
        last = await self.quiet()
        return Life((time.monotonic() - begun) / 60, first, last)

    async def restart(self, number: int) -> None:
        """kill -9, or every second time an orderly end."""
        self.may_work.set()  # clients are at work when it happens
        await asyncio.sleep(0.5)
        await (self.server.kill() if number % 2 else self.server.stop())
        await self.server.start()


def _held_by(pid: int) -> Holding:
    children = sum(_parent(entry) == pid for entry in os.listdir("/proc") if entry.isdigit())
    with open(f"/proc/{pid}/statm", encoding="ascii") as found:
        rss = int(found.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return Holding(0, len(os.listdir(f"/proc/{pid}/fd")), children, rss / 1e6)


def _parent(pid: str) -> int:
    with suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as found:
        return int(found.read().rpartition(")")[2].split()[1])
    return 0


async def soak(folder: Path, *, lives: int, life_minutes: float, sessions: int, seed: int) -> SoakReport:
    questions = folder / "questions"
    os.mkfifo(questions)
    before = (sys.executable, str(Path(__file__).with_name("soak_server.py")), str(questions))
    async with serve_process(folder, SCENARIO, before=before) as server:
        trial = _Soak(server, questions)
        for number in range(sessions):
            project = folder / f"project-{number}"
            project.mkdir()
            session_id = await server.session(project, mode="never_ask")
            trial.clients.append(_Client(trial, project, session_id, seed + number))
        working = [asyncio.create_task(client.work()) for client in trial.clients]
        try:
            found = []
            for number in range(lives):
                found.append(await trial.live(life_minutes))
                if number + 1 < lives:
                    await trial.restart(number)
            trial.is_over = True
            trial.may_work.set()
            async with asyncio.timeout(QUIET_S):
                await asyncio.gather(*working)
            return await _report(trial, tuple(found), life_minutes)
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)


async def _report(trial: _Soak, lives: tuple[Life, ...], life_minutes: float) -> SoakReport:
    for client in trial.clients:
        await client.finish()
    found = [client.compared for client in trial.clients]
    return SoakReport(
        lives=lives,
        life_minutes=life_minutes,
        sessions=sum(compared.sessions for compared in found),
        messages=sum(compared.messages for compared in found),
        client_kills=sum(client.kills for client in trial.clients),
        events=sum(compared.events for compared in found),
        lost=sum(compared.lost for compared in found),
        unlike_the_log=sum(compared.unlike for compared in found),
        not_once=sum(compared.not_once for compared in found),
    )
