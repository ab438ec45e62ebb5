"""What is measured: which gateway, reached how, under which traffic, how often.

In: whether the run is a quick one. Out: a list of `Job`. Pure. The traffic is that of the streaming benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stream.plan import FLAT_1, FLAT_50, FLAT_500, LIVE, Config

CONFIGS = (FLAT_1, FLAT_50, FLAT_500, LIVE)
STREAMS_PER_WEBSOCKET = 100
"""What makai allows on one connection."""


@dataclass(frozen=True)
class Gateway:
    """One server and one way to talk to it."""

    key: str
    title: str
    server: Literal["makai", "floor", "litellm"]
    client: Literal["websocket", "sse", "chat"]
    streams_per_connection: int = 1


@dataclass(frozen=True)
class Job:
    """One fresh server under one traffic, for so many passes."""

    gateway: Gateway
    config: Config
    passes: int


WEBSOCKET = Gateway("makai-ws", "makai, WebSocket", "makai", "websocket", STREAMS_PER_WEBSOCKET)
WEBSOCKET_EACH = Gateway("makai-ws-each", "makai, a WebSocket per stream", "makai", "websocket")
SSE = Gateway("makai-sse", "makai, SSE", "makai", "sse")
FLOOR = Gateway("floor", "bare relay on aiohttp (SSE)", "floor", "sse")
"""No product: what is left when everything is left out."""
LITELLM = Gateway("litellm", "LiteLLM proxy", "litellm", "chat")
GATEWAYS = (WEBSOCKET, WEBSOCKET_EACH, SSE, FLOOR, LITELLM)
MAKAI = (WEBSOCKET, WEBSOCKET_EACH, SSE)


def jobs(quick: bool) -> list[Job]:
    """Every server of a run, in order.

    A shared machine is fast for a while and slow for a while. LiteLLM takes so long that it sees both, so makai's
    turns come before and after it; all passes of a gateway under one traffic make one row.
    """
    if quick:
        return [Job(gateway, config, 1) for config in (FLAT_50, LIVE) for gateway in (WEBSOCKET, SSE, LITELLM)]
    planned = []
    for config in CONFIGS:
        # With one stream, a WebSocket per stream is a WebSocket.
        lean = [Job(gateway, config, 2) for gateway in (*MAKAI, FLOOR) if (gateway, config) != (WEBSOCKET_EACH, FLAT_1)]
        planned += [*lean, Job(LITELLM, config, 1 if config is FLAT_500 else 3), *lean]
    return planned
