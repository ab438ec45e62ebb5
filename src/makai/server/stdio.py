"""`makai stdio`: the Makai protocol on standard input and output.

In: envelopes, one per line. Out: envelopes, one per line, after the `ready` line. Start-up is the feature here: an
editor or SDK waits for it, so nothing is imported that the first `pong` does not need.
"""

from __future__ import annotations

import asyncio

from makai.protocols.makai.envelope import READY_FRAME
from makai.server.backend import LazyBackend
from makai.server.makai_connection import MakaiServer
from makai.transports.stdio import StdioChannel, claim_stdio


def main() -> int:
    """Serve until the client closes our input; then 0."""
    streams = claim_stdio()

    async def serve() -> None:
        backend = LazyBackend()
        try:
            channel = StdioChannel(streams.input, streams.output)
            await channel.send([READY_FRAME])
            await MakaiServer(backend).serve(channel)
        finally:
            await backend.close()

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve())
    except KeyboardInterrupt:
        return 130
    return 0


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop
