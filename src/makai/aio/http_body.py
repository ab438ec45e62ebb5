"""Reads HTTP bodies to their end, within a size and a time. One read of a body gives what one segment of the network
brought, so every reader of a response uses this one and not a read of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import aiohttp


class HttpBody(msgspec.Struct, frozen=True):
    """What could be read of a body."""

    data: bytes
    """At most as many bytes as were allowed, after decompression."""
    is_cut: bool = False
    """There was more than that."""
    failure: Exception | None = None
    """What ended the body early: `TimeoutError`, `aiohttp.ClientError` or `OSError`."""

    def complete(self) -> bytes:
        """The data of a body that may be cut; what ended it early is raised."""
        if self.failure is not None:
            raise self.failure
        return self.data


async def read_http_body(content: aiohttp.StreamReader, limit: int, deadline_s: float | None = None) -> HttpBody:
    """Read up to `limit` bytes. What has arrived is kept when the connection breaks or the time is over: half of a
    refusal still says more than none. `None` as the deadline leaves the time to a caller that has one already."""
    import aiohttp

    data = bytearray()
    failure: Exception | None = None
    try:
        async with asyncio.timeout(deadline_s):
            while len(data) <= limit and (chunk := await content.readany()):
                data += chunk
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        failure = error
    return HttpBody(bytes(data[:limit]), len(data) > limit, failure)
