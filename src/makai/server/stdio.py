"""`makai stdio`: the Makai protocol on standard input and output, one envelope per line, after the `ready` line.
Editors and SDKs wait for its start, so nothing is imported that the first `pong` does not need. That includes uvloop:
it would add 4 ms to every start, to save some 60 µs per delta of the few streams that one client has."""

from __future__ import annotations

import gc


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
            server = MakaiServer(backend, sessions=sessions.get, default_sandbox=sessions.default_sandbox)
            await server.serve(channel)
        finally:
            await sessions.close()
            await backend.close()

    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        return 130
    return 0
