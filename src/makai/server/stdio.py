"""`makai stdio`: the Makai protocol on standard input and output.

In: envelopes, one per line. Out: envelopes, one per line, after the `ready` line. Start-up is the feature here: an
editor or SDK waits for it, so nothing is imported that the first `pong` does not need. That also goes for uvloop: it
would add 4 ms to every start, to save some 60 µs per delta of the few streams that one client has.
"""

from __future__ import annotations

import gc


def main() -> int:
    """Serve until the client closes our input; then 0."""
    # Importing makes thousands of objects and no garbage; searching them for it would take a fifteenth of the start.
    gc.disable()
    import asyncio

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
            channel = StdioChannel(streams.input, streams.output)
            await channel.send([READY_FRAME])
            await MakaiServer(backend, sessions=sessions.get).serve(channel)
        finally:
            await sessions.close()
            await backend.close()

    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        return 130
    return 0
