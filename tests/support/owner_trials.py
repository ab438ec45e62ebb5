"""Sessions in disorder: clients that do anything at any time, owners that come and go, and what holds all the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import MakaiError, SessionRefused, StorageUnavailable
from makai.core.request import ToolDefinition
from makai.harness.base import ToolAnswer, ToolRequest
from makai.providers.runtime import ModelRuntime
from makai.sessions import requests
from makai.sessions.commands import Abort, ApproveCall, Compact, DenyCall, Send, SetMode, SetTitle, UserCommand
from makai.sessions.log.base import Pending, Record, SessionFilter
from makai.sessions.log.memory import MemoryLog
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession, DeleteSession, ForkSession, GetState, ListApprovals, ListSessions
from makai.sessions.service import ToolRegistration
from makai.sessions.state import fold
from support.live_sessions import SCENARIO_MODEL, decoded, kind_of, scripted_models

SCRIPT = """say: Well.
---
when: chat
pace: 1ms
repeat: 15 word
---
when: look
tool: look {"n": 1}
tool: look {"n": 2}
---
when: write
tool: write {"path": "made", "content": "x"}
---
when: both
say: Both.
tool: look {"n": 3}
tool: write {"path": "made", "content": "y"}
tool: look {"n": 4}
---
when: fail
say: Half
fail: provider_error Broken.
---
when: silent
say: One.
stall
"""
WORDS = ("chat", "chat", "look", "look", "write", "write", "both", "fail", "silent", "anything")
LOOK = ToolDefinition(name="look", description="Look.", parameters_schema_json='{"type":"object"}')
LIMITS = ev.RunTerms(max_turns=3)  # the scripted model calls its tools again and again
REST_S = 60.0
ALL = SessionFilter(limit=100_000)

FactT = TypeVar("FactT", bound=ev.Fact)


class MortalLog(MemoryLog):
    """A log of which an owner can be robbed: then nothing that this owner still does counts."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.deleted: dict[str, list[Record]] = {}
        """What those read who followed a session that is gone."""
        self.is_lost = False
        self._random = random

    async def append(
        self, session_id: str, events: Sequence[Pending], expected_last: int, generation: int | None = None
    ) -> tuple[int, int]:
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)
        self._check()
        numbers = await super().append(session_id, events, expected_last, generation)
        await asyncio.sleep(0)
        self._check()  # stored, although no client learns of it
        return numbers

    async def delete(self, session_id: str) -> bool:
        await asyncio.sleep(0)
        self._check()
        self.deleted[session_id] = await self.everything(session_id)
        return await super().delete(session_id)

    async def everything(self, session_id: str) -> list[Record]:
        """The whole log of a session, also of one that was deleted."""
        records: list[Record] = []
        while page := await self.read_raw(session_id, records[-1].event_id if records else 0):
            records += page
        return records or self.deleted.get(session_id, [])

    def _check(self) -> None:
        if self.is_lost:
            raise StorageUnavailable("The process is dead.")


class Watch(msgspec.Struct, eq=False):
    """A client that follows one session across owners, and what it received."""

    session_id: str
    after: int
    deltas: bool
    seen: list[Record] = []
    is_over: bool = False
    news: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    @property
    def cursor(self) -> int:
        return self.seen[-1].event_id if self.seen else self.after


class Report(msgspec.Struct, frozen=True):
    sessions: int
    events: int
    runs: int
    tools: int
    decisions: int
    watched: int
    owners: int
    refusals: Counter[str]


class Trial:
    def __init__(self, folder: Path, seed: int) -> None:
        self._random = Random(seed)
        self._log = MortalLog(self._random)
        self._home = folder / "makai-home"
        self._project = folder / "project"
        self._folder = folder
        self._sessions: OwnedSessions
        self._known: list[str] = []
        self._acknowledged: dict[str, set[str]] = {}
        self._executed: Counter[tuple[str, str]] = Counter()
        self._watches: list[Watch] = []
        self._executors: list[ToolRegistration] = []
        self._refusals: Counter[str] = Counter()
        self._owners = 0
        self._number = 0

    async def run(self, *, clients: int, actions: int, restarts: int) -> Report:
        """Let them loose, restart meanwhile, come to rest, and look."""
        for folder in (self._home, self._project):
            folder.mkdir(exist_ok=True)
        before = asyncio.all_tasks()
        async with scripted_models(self._folder, SCRIPT) as models:
            await self._own(models)
            try:
                await self._create()
                async with asyncio.TaskGroup() as everyone:
                    watching = everyone.create_task(self._watch_all(), name="trial-watches")
                    acting = [everyone.create_task(self._client(actions)) for _ in range(clients)]
                    fate = everyone.create_task(self._restarts(models, restarts))
                    await asyncio.wait({*acting, fate})
                    await self._come_to_rest()
                    await self._until_everything_is_read()
                    watching.cancel()
                report = await self._check()
            finally:
                await self._sessions.close()
        await asyncio.sleep(0)
        assert {task.get_name() for task in asyncio.all_tasks() - before} == set()
        return report

    async def _own(self, models: ModelRuntime) -> None:
        self._log.is_lost = False
        recover_all = self._random.random() < 0.5
        self._sessions = await OwnedSessions.open(self._home, models, log=self._log, recover_all=recover_all)
        self._owners += 1

    async def _restarts(self, models: ModelRuntime, times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(self._random.uniform(0.01, 0.08))
            self._log.is_lost = self._random.random() < 0.5
            await self._sessions.close()
            await self._own(models)

    async def _client(self, actions: int) -> None:
        choices = self._choices()
        for _ in range(actions):
            await asyncio.sleep(self._random.choice((0, 0, 0, 0.001, 0.004)))
            action = self._random.choices(list(choices), weights=list(choices.values()))[0]
            try:
                # Some lose patience: what they asked for may happen all the same.
                async with asyncio.timeout(self._random.choice((0, 0.001, 10, 10, 10, 10))):
                    await action()
            except MakaiError as error:
                self._refusals[error.code] += 1
            except TimeoutError:
                self._refusals["impatient"] += 1

    def _choices(self) -> dict[Callable[[], Coroutine[Any, Any, None]], int]:
        return {
            self._send: 40, self._abort: 8, self._approve: 20, self._deny: 6, self._set: 4, self._compact: 2,
            self._fork: 3, self._create: 3, self._delete: 1, self._follow: 8, self._register: 8, self._leave: 3,
        }  # fmt: skip

    def _any(self) -> str:
        return self._random.choice(self._known[-6:])

    async def _ask(self, session_id: str, command: UserCommand) -> None:
        await self._sessions.dispatch(requests.RunCommand(session_id, command))

    async def _create(self) -> None:
        builtin = self._random.random() < 0.8
        wanted = CreateSession(
            model_ref=SCENARIO_MODEL,
            cwd=str(self._project) if builtin else None,
            terms=ev.SessionTerms(builtin_tools=builtin, tools=(LOOK,), approval_s=self._random.choice((0.02, 60.0))),
        )
        self._known.append(await self._sessions.dispatch(wanted))

    async def _fork(self) -> None:
        origin = self._any()
        last = (await self._sessions.dispatch(GetState(origin))).last_event_id
        at = self._random.choice((None, self._random.randint(1, last)))
        self._known.append(await self._sessions.dispatch(ForkSession(origin=origin, at=at)))

    async def _delete(self) -> None:
        if len(self._known) > 3:
            await self._sessions.dispatch(DeleteSession(self._any()))

    async def _send(self) -> None:
        self._number += 1
        session_id = self._any()
        delivery: ev.Delivery | None = self._random.choice((None, None, "queue", "steer"))
        command = Send(
            now=0,
            input_id=f"input-{self._number}",
            content=self._random.choice(WORDS),
            delivery=delivery,
            client_msg_id=f"message-{self._number}",
            terms=LIMITS,
        )
        for _ in range(self._random.choice((1, 1, 2))):  # some repeat themselves
            await self._ask(session_id, command)
            self._acknowledged.setdefault(session_id, set()).add(command.input_id)

    async def _abort(self) -> None:
        await self._ask(self._any(), Abort(now=0, by="trial"))

    async def _approve(self) -> None:
        await self._decide(ApproveCall)

    async def _deny(self) -> None:
        await self._decide(DenyCall)

    async def _decide(self, decision: type[ApproveCall] | type[DenyCall]) -> None:
        pending = await self._sessions.dispatch(ListApprovals())
        if pending:
            one = self._random.choice(pending)
            await self._ask(one.session_id, decision(now=0, call_id=one.request.call_id, by="trial"))

    async def _set(self) -> None:
        self._number += 1
        title = SetTitle(now=0, title=f"title {self._number}")
        mode = SetMode(now=0, mode=self._random.choice(("ask", "accept_edits", "plan")))
        await self._ask(self._any(), self._random.choice((title, mode)))

    async def _compact(self) -> None:
        self._number += 1
        await self._ask(self._any(), Compact(now=0, input_id=f"compaction-{self._number}"))

    async def _register(self) -> None:
        self._executors.append(await self._sessions.register_executor(self._any(), self._execute))

    async def _leave(self) -> None:
        if self._executors:
            self._executors.pop(self._random.randrange(len(self._executors))).unregister()

    async def _execute(self, request: ToolRequest) -> ToolAnswer:
        self._executed[request.session_id, request.call_id] += 1
        await asyncio.sleep(self._random.choice((0, 0.001, 0.01)))
        if self._random.random() < 0.1:
            raise ValueError("a tool that breaks")
        return ToolAnswer(content=(Text(text="seen"),))

    async def _follow(self) -> None:
        session_id = self._any()
        last = await self._log.last(session_id)
        after = self._random.choice((0, self._random.randint(0, last)))
        self._watches.append(Watch(session_id, after, deltas=self._random.random() < 0.7))

    async def _watch_all(self) -> None:
        """Every watch in a task of its own, from when it is wanted."""
        begun = 0
        async with asyncio.TaskGroup() as group:
            while True:
                for watch in self._watches[begun:]:
                    group.create_task(self._watch(watch), name="trial-watch")
                begun = len(self._watches)
                await asyncio.sleep(0.002)

    async def _watch(self, watch: Watch) -> None:
        """Some look away now and then, and come back where they were."""
        while not watch.is_over:
            sessions = self._sessions
            follower = sessions.follow(watch.session_id, watch.cursor, deltas=watch.deltas)
            try:
                for _ in range(self._random.randint(1, 20)):
                    records = await follower.next()
                    watch.seen += records
                    watch.news.set()
                    if not records:
                        break
            except StorageUnavailable:
                pass
            except SessionRefused:
                watch.is_over = True  # deleted
                watch.news.set()
            finally:
                follower.close()
            await asyncio.sleep(0.001)  # until there is another owner

    async def _come_to_rest(self) -> None:
        """Everything that waits is answered or aborted, until nothing does."""
        async with asyncio.timeout(REST_S):
            while True:
                busy = []
                for summary in await self._sessions.dispatch(ListSessions(ALL)):
                    state = await self._sessions.dispatch(GetState(summary.session_id))
                    if state.active_run is not None or state.waiting:
                        busy.append(summary.session_id)
                if not busy:
                    return
                for session_id in busy:
                    try:
                        await self._ask(session_id, Abort(now=0, by="rest"))
                    except SessionRefused:
                        continue  # it ended by itself
                await asyncio.sleep(0.002)

    async def _until_everything_is_read(self) -> None:
        async with asyncio.timeout(REST_S):
            for watch in self._watches:
                wanted = (await self._due(watch))[-1:]
                while not watch.is_over and watch.seen[-1:] != wanted:
                    watch.news.clear()
                    await watch.news.wait()

    async def _due(self, watch: Watch) -> list[Record]:
        """What the watch has to have been given by now."""
        records = [record for record in await self._log.everything(watch.session_id) if record.event_id > watch.after]
        return records if watch.deltas else [record for record in records if b'_delta"' not in record.line[:120]]

    async def _check(self) -> Report:
        for watch in self._watches:
            due = await self._due(watch)
            # A follower may learn of the deletion before it could read the last events.
            assert watch.seen == (due[: len(watch.seen)] if watch.is_over else due)
        events = runs = tools = decisions = 0
        summaries = await self._sessions.dispatch(ListSessions(ALL))
        for summary in summaries:
            logged = decoded(await self._log.everything(summary.session_id))
            check_log(logged)
            assert fold(logged) == await self._sessions.dispatch(GetState(summary.session_id))
            said = [event.input_id for event in facts(logged, ev.UserInput)]
            assert self._acknowledged.get(summary.session_id, set()) <= set(said)
            started = {event.call_id for event in facts(logged, ev.ToolStarted)}
            executed = {call for (session_id, call) in self._executed if session_id == summary.session_id}
            assert executed <= started
            events += len(logged)
            runs += len(facts(logged, ev.RunStarted))
            tools += len(started)
            decisions += len(facts(logged, ev.ApprovalDecided))
        assert set(self._executed.values()) <= {1}
        assert "internal_error" not in self._refusals
        assert await self._sessions.dispatch(ListApprovals()) == []
        return Report(
            sessions=len(summaries),
            events=events,
            runs=runs,
            tools=tools,
            decisions=decisions,
            watched=len(self._watches),
            owners=self._owners,
            refusals=self._refusals,
        )


def facts(events: Sequence[ev.Logged], kind: type[FactT]) -> list[FactT]:
    return [logged.event for logged in events if isinstance(logged.event, kind)]


def check_log(events: Sequence[ev.Logged]) -> None:
    """What holds in the log of a session that has come to rest."""
    assert [logged.event_id for logged in events] == list(range(1, len(events) + 1))
    assert [logged.ts for logged in events] == sorted(logged.ts for logged in events)
    begun = Counter(logged.run_id for logged in events if isinstance(logged.event, ev.RunStarted))
    settled = Counter(logged.run_id for logged in events if isinstance(logged.event, ev.RunFinished | ev.RunFailed))
    assert set(begun.values()) <= {1}
    assert settled == begun
    _check_nothing_after_the_end(events)
    called, finished = once_each(events, ev.ToolCalled), once_each(events, ev.ToolFinished)
    assert finished == called
    assert once_each(events, ev.ToolStarted) <= called
    assert once_each(events, ev.ApprovalRequested) <= once_each(events, ev.ApprovalDecided) <= called
    said = Counter(event.input_id for event in facts(events, ev.UserInput))
    assert set(said.values()) <= {1}


def _check_nothing_after_the_end(events: Sequence[ev.Logged]) -> None:
    over: set[str | None] = {None}
    for logged in events:
        assert logged.run_id is None or logged.run_id not in over, kind_of(logged.event)
        if isinstance(logged.event, ev.RunFinished | ev.RunFailed):
            over.add(logged.run_id)


def once_each(
    events: Sequence[ev.Logged],
    kind: type[ev.ToolCalled | ev.ToolStarted | ev.ToolFinished | ev.ApprovalRequested | ev.ApprovalDecided],
) -> set[str]:
    """The calls of which there is such an event; there is only one of each."""
    call_ids = [logged.event.call_id for logged in events if isinstance(logged.event, kind)]
    assert len(set(call_ids)) == len(call_ids)
    return set(call_ids)
