"""`makai stdio` and `makai acp`: one protocol each on standard input and output, one message per line.

Editors and SDKs wait for their start, so nothing is imported that the first answer does not need. That includes uvloop:
it would add 4 ms to every start, to save some 60 µs per delta of the few streams that one client has."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable


def main() -> int:
    # Importing makes thousands of objects and no garbage; searching them for it would take a fifteenth of the start.
    gc.disable()
    import asyncio

    from makai.core.process_privacy import hide_memory
    from makai.protocols.makai.envelope import READY_FRAME
    from makai.server.backend import LazyBackend
    from makai.server.makai_connection import MakaiServer
    from makai.server.session_source import SessionSource
    from makai.transports.stdio import StdioChannel, claim_stdio

    gc.freeze()
    gc.enable()
    streams = claim_stdio()

    async def serve() -> None:
        backend = LazyBackend()
        sessions = SessionSource(backend)
        try:
            channel = StdioChannel(*streams)
            await channel.send([READY_FRAME])
            hide_memory()  # loads a library, which no client waits for
            server = MakaiServer(backend, sessions=sessions.get, settings=sessions.settings)
            await server.serve(channel)
        finally:
            await sessions.close()
            await backend.close()

    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        return 130
    return 0


def acp_main(
    open_page: Callable[[str], bool],
    *,
    model: str | None = None,
    max_turns: int | None = None,
    unstable: bool = False,
) -> int:
    """Serve the Agent Client Protocol until the end of input, then exit. `open_page` opens the user's browser, if it
    can. Returns an exit code only when it was interrupted."""
    try:
        read, is_initialized = _first_message(unstable)
        gc.disable()
        import asyncio

        from makai.server.acp_connection import AcpServer
        from makai.server.acp_handshake import offered_logins
        from makai.server.backend import LazyBackend
        from makai.server.process_end import end_soon, exit_process
        from makai.server.session_source import SessionSource
        from makai.transports.stdio import StdioChannel, claim_stdio

        gc.freeze()
        gc.enable()
        streams = claim_stdio()

        async def serve() -> None:
            backend = LazyBackend()
            sessions = SessionSource(backend)
            server = AcpServer(
                sessions.get,
                backend,
                logins=lambda: offered_logins(os.environ),
                open_page=open_page,
                prepare=_hide_memory,
                has_local_model=_has_local_model,
                model=model,
                max_turns=max_turns,
                unstable=unstable,
                settings=sessions.settings,
            )
            channel = StdioChannel(*streams, already_read=read, on_end=end_soon)
            try:
                await server.serve(channel, is_initialized=is_initialized)
            finally:
                await sessions.close()
                await backend.close()

        asyncio.run(serve())
        exit_process(0)
    except KeyboardInterrupt:
        return 130


def _first_message(unstable: bool) -> tuple[bytes, bool]:
    """Wait for the first line and answer it at once if it is an ordinary `initialize`: everything else is loaded while
    the editor reads the answer. Returns what was read, and whether its first line is answered."""
    from makai.server.acp_handshake import MAX_PLAIN_BYTES, early_answer

    read = b""
    try:
        while b"\n" not in read and len(read) <= MAX_PLAIN_BYTES and (more := os.read(0, MAX_PLAIN_BYTES)):
            read += more
        answer = early_answer(read.partition(b"\n")[0], os.environ, unstable=unstable) if os.get_blocking(1) else None
        while answer:
            answer = answer[os.write(1, answer) :]
    except OSError:  # closed: what follows says so
        return read, False
    return read, answer is not None


def _has_local_model() -> bool:
    from importlib.util import find_spec

    from makai.core.home import home_directory
    from makai.providers.local.weights import installed

    return find_spec("xllamacpp") is not None and installed(home_directory(os.environ)) is not None


def _hide_memory() -> None:
    from makai.core.process_privacy import hide_memory  # loads a library, which no client waits for

    hide_memory()
