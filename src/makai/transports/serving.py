"""Runs the server of one connection inside the HTTP request that carries it, up to an orderly end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from makai.core.errors import ChannelClosed
from makai.transports.channel import Channel

END_DEADLINE_S: Final = 5.0
"""How long a server may take to end by itself once its peer is gone."""


class LosableChannel(Channel, Protocol):
    """A channel that can be told that its peer is gone."""

    def lose(self) -> None:
        """From now on `receive` returns `None` and `send` raises `ChannelClosed`."""


LosableT = TypeVar("LosableT", bound=LosableChannel)


async def serve_to_the_end(serve: Callable[[LosableT], Awaitable[None]], channel: LosableT) -> None:
    """Run `serve(channel)`, then close the channel.

    Libraries report a peer that hung up by cancelling the request. A cancellation can hit any await, so it does not
    reach `serve`: that sees a channel whose peer is gone, and is cancelled only if it does not end in time.
    """
    serving = asyncio.ensure_future(serve(channel))
    try:
        await asyncio.shield(serving)
    except ChannelClosed:
        pass  # the server found out by sending that its peer is gone
    except asyncio.CancelledError:
        channel.lose()
        await asyncio.wait({serving}, timeout=END_DEADLINE_S)
        raise
    finally:
        if not serving.done():
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        await channel.close()
