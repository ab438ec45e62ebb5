"""makai's server with one session of the benchmark's model in it.

In: a MAKAI_HOME and how far behind a client may fall. Out: the first line on stdout, a JSON `Address`. Everything but
the model is as `makai serve` has it: the application, the guard, the log. Ends in order on SIGTERM.

Run as `python -m sessions.server <home> <most events behind>`.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
import uvloop
from aiohttp import web
from sessions.desk import new_session, owned
from sessions.model import BenchModels
from stream.cores import take_core

from makai.auth.private_files import load_or_create_token
from makai.protocols.minicodex.server import Limits
from makai.server.app import make_app
from makai.server.makai_connection import MakaiServer
from makai.server.serve import tune_garbage_collection
from makai.sessions.owner import OwnedSessions
from makai.transports.guard import Guard, GuardConfig

SEND_BUFFER = 16 * 1024
"""Of a socket: small, so that a client that does not read is noticed before megabytes are on their way to it."""


class Address(msgspec.Struct, frozen=True):
    """Where the session is."""

    pid: int
    port: int
    token: str
    session_id: str


def allow_many_sockets() -> None:
    """As many as the system lets us have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def listener() -> socket.socket:
    """On a free loopback port."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # those it accepts inherit it
    return listening


def announce(port: int, token: str = "", session_id: str = "") -> None:
    """Report to the parent process."""
    print(msgspec.json.encode(Address(os.getpid(), port, token, session_id)).decode(), flush=True)


async def until_stopped() -> None:
    """Wait for SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


async def serve(home: Path, max_behind: int) -> None:
    """Serve until told to stop."""
    token = load_or_create_token(home)
    async with owned(home) as sessions:

        async def service() -> OwnedSessions:
            return sessions

        makai = MakaiServer(cast(Any, BenchModels()), sessions=service)
        listening = listener()
        port = listening.getsockname()[1]
        app = make_app(
            makai, Guard(GuardConfig(token=token, port=port)), minicodex_limits=Limits(max_behind=max_behind)
        )
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        tune_garbage_collection()
        announce(port, token.reveal(), await new_session(sessions))
        await until_stopped()
        await runner.cleanup()


if __name__ == "__main__":
    take_core("client")
    allow_many_sockets()
    uvloop.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
