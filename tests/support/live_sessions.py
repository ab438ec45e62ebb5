"""Real sessions for tests: an owner over a real log, a scripted model, and clients that wait with a bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import msgspec
import pytest

from makai.core import session_events as ev
from makai.core.errors import SessionRefused
from makai.core.observation import NO_OBSERVER, Observer
from makai.harness.base import SessionHarness
from makai.providers.runtime import ModelRuntime
from makai.providers.scripted import SCENARIO_VARIABLE
from makai.sessions.commands import ApproveCall, DenyCall, Send, UserCommand
from makai.sessions.log.base import EventLog, Record
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession, GetTrust, ReadEvents, Receipt, RunCommand, SetTrust
from makai.sessions.service import Sessions

WAIT_S = 60.0
SCENARIO_MODEL = "scripted/scenario"
FactT = TypeVar("FactT", bound=ev.Fact)


@asynccontextmanager
async def scripted_models(folder: Path, scenario: str, observer: Observer = NO_OBSERVER) -> AsyncIterator[ModelRuntime]:
    """Models of which `scripted/scenario` follows this script."""
    path = folder / f"scenario-{uuid4()}.txt"
    path.write_text(scenario, encoding="utf-8")
    home = folder / "makai-home"
    async with ModelRuntime({SCENARIO_VARIABLE: str(path)}, home=home, observer=observer) as models:
        yield models


@asynccontextmanager
async def owned_sessions(
    folder: Path,
    scenario: str,
    log: EventLog | None = None,
    *,
    recover_all: bool = False,
    harnesses: Sequence[SessionHarness] = (),
) -> AsyncIterator[OwnedSessions]:
    """The sessions of `folder/makai-home`, over its SQLite log unless another one is given."""
    home = folder / "makai-home"
    home.mkdir(exist_ok=True)
    async with scripted_models(folder, scenario) as models:
        sessions = await OwnedSessions.open(home, models, log=log, recover_all=recover_all, harnesses=harnesses)
        try:
            yield sessions
        finally:
            await sessions.close()


class Desk:
    """A client of one session: it says things, and reads everything that happens."""

    def __init__(self, sessions: Sessions, session_id: str, after: int = 0) -> None:
        self.sessions = sessions
        self.session_id = session_id
        self.seen: list[ev.Logged] = []
        self._follower = sessions.follow(session_id, after)

    async def send(
        self,
        text: str,
        *,
        delivery: ev.Delivery | None = None,
        client_msg_id: str | None = None,
        terms: ev.RunTerms | None = None,
    ) -> Receipt:
        command = Send(
            now=0,
            input_id=str(uuid4()),
            content=text,
            delivery=delivery,
            client_msg_id=client_msg_id,
            terms=terms or ev.RunTerms(),
        )
        return await self.do(command)

    async def do(self, command: UserCommand) -> Receipt:
        return await self.sessions.dispatch(RunCommand(self.session_id, command))

    async def run(self, text: str, *, terms: ev.RunTerms | None = None) -> ev.RunFinished | ev.RunFailed:
        await self.send(text, terms=terms)
        return await self.until_settled()

    async def approve(self, call_id: str, by: str = "tester") -> Receipt:
        return await self.do(ApproveCall(now=0, call_id=call_id, by=by))

    async def deny(self, call_id: str, reason: str = "") -> Receipt:
        return await self.do(DenyCall(now=0, call_id=call_id, by="tester", reason=reason))

    async def until(self, wanted: Callable[[ev.Logged], bool]) -> ev.Logged:
        """Read on until such an event, which may be among those seen already read by `next`."""
        async with asyncio.timeout(WAIT_S):
            while True:
                found: ev.Logged | None = None
                for logged in decoded(await self._follower.next()):
                    self.seen.append(logged)
                    if found is None and wanted(logged):
                        found = logged
                if found is not None:
                    return found

    async def until_settled(self) -> ev.RunFinished | ev.RunFailed:
        event = (await self.until(lambda logged: isinstance(logged.event, ev.RunFinished | ev.RunFailed))).event
        assert isinstance(event, ev.RunFinished | ev.RunFailed)
        return event

    async def until_asked(self) -> ev.ApprovalRequested:
        event = (await self.until(lambda logged: isinstance(logged.event, ev.ApprovalRequested))).event
        assert isinstance(event, ev.ApprovalRequested)
        return event

    def events(self, kind: type[FactT]) -> list[FactT]:
        return [logged.event for logged in self.seen if isinstance(logged.event, kind)]

    def kinds(self) -> list[str]:
        return [kind_of(logged.event) for logged in self.seen]


async def desk(
    sessions: Sessions,
    *,
    mode: ev.PermissionMode = "ask",
    cwd: Path | None = None,
    terms: ev.SessionTerms | None = None,
    harness: str = "native",
) -> Desk:
    """A client of a new session on the scripted model; with a folder, built-in tools are at hand."""
    wanted = CreateSession(
        model_ref=SCENARIO_MODEL if harness == "native" else "",
        mode=mode,
        harness=harness,
        cwd=str(cwd) if cwd is not None else None,
        terms=terms or ev.SessionTerms(builtin_tools=cwd is not None),
    )
    return Desk(sessions, await sessions.dispatch(wanted))


@asynccontextmanager
async def new_session(
    folder: Path,
    scenario: str,
    log: EventLog | None = None,
    *,
    mode: ev.PermissionMode = "ask",
    cwd: Path | None = None,
    terms: ev.SessionTerms | None = None,
) -> AsyncIterator[tuple[OwnedSessions, Desk]]:
    async with owned_sessions(folder, scenario, log) as sessions:
        yield sessions, await desk(sessions, mode=mode, cwd=cwd, terms=terms)


@contextmanager
def refused(code: str, match: str | None = None) -> Iterator[None]:
    with pytest.raises(SessionRefused, match=match) as caught:
        yield
    assert caught.value.code == code


def decoded(records: list[Record]) -> list[ev.Logged]:
    return [msgspec.json.decode(record.line, type=ev.Logged) for record in records]


def kind_of(event: ev.SessionEvent) -> str:
    return str(type(event).__struct_config__.tag)


async def whole_log(sessions: Sessions, session_id: str) -> list[ev.Logged]:
    events: list[ev.Logged] = []
    while page := await sessions.dispatch(ReadEvents(session_id, events[-1].event_id if events else 0)):
        events += decoded(page)
    return events


async def trust_folder(sessions: Sessions, folder: Path) -> None:
    """Trust a folder with its project files as they are now."""
    seen = await sessions.dispatch(GetTrust(str(folder)))
    assert await sessions.dispatch(SetTrust(str(folder), True, seen.digests))
