"""A program that shares the sessions of a MAKAI_HOME: it follows one session, talks in it, and says what it saw.

`python -m support.attach_child HOME SESSION NAME`. It begins when it reads "go", stops talking at "quiet" and, at
"end", gives the session its last title once nothing runs any more. A client that sees that title
ends. Each line of its output is one JSON `Said`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path
from zlib import crc32

import msgspec

from makai.core.errors import SessionRefused
from makai.server.session_router import SessionRouter
from makai.sessions.commands import Send, SetTitle
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession, GetSession, GetState, RunCommand
from makai.sessions.service import Sessions
from support.agent import ScriptedModels

SCRIPT = "pace: 1ms\nchunk: 4\nsay: The quick brown fox jumps over the lazy dog."
LAST_TITLE = "everything was said"


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    opened: bool = False
    owner: bool = False
    """It opened as the owner, or it took over."""
    received: tuple[tuple[int, int], ...] = ()
    """Number and checksum of events."""
    acknowledged: str = ""
    """The `client_msg_id` of words that were taken."""
    quiet: bool = False
    failed: str = ""


def _say(said: Said) -> None:
    os.write(sys.stdout.fileno(), msgspec.json.encode(said) + b"\n")


async def _talk(sessions: Sessions, session_id: str, name: str, quiet: asyncio.Event) -> None:
    number = 0
    while not quiet.is_set():
        number += 1
        words = f"{name}-{number}"
        command = Send(now=0, input_id=words, content=words, client_msg_id=words, delivery="queue")
        try:
            await sessions.dispatch(RunCommand(session_id, command))
            _say(Said(acknowledged=words))
        except SessionRefused as refusal:
            if refusal.code != "BUSY":
                raise
        await asyncio.sleep(0.05)
    _say(Said(quiet=True))


async def _listen(sessions: Sessions, session_id: str) -> None:
    follower = sessions.follow(session_id)
    ending = f'"title":"{LAST_TITLE}"'.encode()
    while records := await follower.next():
        _say(Said(received=tuple((record.event_id, crc32(record.line)) for record in records)))
        if any(ending in record.line for record in records):
            return


async def _obey(sessions: Sessions, session_id: str, quiet: asyncio.Event, orders: asyncio.StreamReader) -> None:
    while order := (await orders.readline()).strip():
        if order == b"quiet":
            quiet.set()
        elif order == b"end":
            follower = sessions.follow(session_id)
            while (state := await sessions.dispatch(GetState(session_id))).active_run is not None or state.waiting:
                await follower.next()
            follower.close()
            await sessions.dispatch(RunCommand(session_id, SetTitle(now=0, title=LAST_TITLE)))


async def _main(home: Path, session_id: str, name: str) -> None:
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    assert (await orders.readline()).strip() == b"go"
    own = partial(OwnedSessions.open, home, ScriptedModels(SCRIPT))
    sessions = await SessionRouter.open(home, own, on_takeover=lambda: _say(Said(owner=True)))
    _say(Said(opened=True, owner=sessions.is_owner))
    if sessions.is_owner and await sessions.dispatch(GetSession(session_id)) is None:
        await sessions.dispatch(CreateSession(model_ref="scripted/scripted@model", session_id=session_id))
    quiet = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as tasks:
            obeying = tasks.create_task(_obey(sessions, session_id, quiet, orders))
            talking = tasks.create_task(_talk(sessions, session_id, name, quiet))
            await tasks.create_task(_listen(sessions, session_id))
            obeying.cancel()
            talking.cancel()
    except* Exception as failures:
        _say(Said(failed=repr(failures.exceptions)))
    await sessions.close()


if __name__ == "__main__":
    _, _home, _session, _name = sys.argv
    asyncio.run(_main(Path(_home), _session, _name))
