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
    server: Literal["makai", "litellm"]
    client: Literal["websocket", "sse", "chat"]
    streams_per_connection: int = 1


@dataclass(frozen=True)
class Job:
    """One fresh server under one traffic."""

    gateway: Gateway
    config: Config
    passes: int


WEBSOCKET = Gateway("makai-ws", "makai, WebSocket", "makai", "websocket", STREAMS_PER_WEBSOCKET)
WEBSOCKET_EACH = Gateway("makai-ws-each", "makai, a WebSocket per stream", "makai", "websocket")
SSE = Gateway("makai-sse", "makai, SSE", "makai", "sse")
LITELLM = Gateway("litellm", "LiteLLM proxy", "litellm", "chat")
GATEWAYS = (WEBSOCKET, WEBSOCKET_EACH, SSE, LITELLM)
MAKAI = (WEBSOCKET, WEBSOCKET_EACH, SSE)


def jobs(quick: bool) -> list[Job]:
    """Every server of a run; those that are compared run one after the other."""
    if quick:
        return [Job(gateway, config, 1) for config in (FLAT_50, LIVE) for gateway in (WEBSOCKET, SSE, LITELLM)]
    return [
        Job(gateway, config, 1 if gateway is LITELLM and config is FLAT_500 else 3)
        for config in CONFIGS
        for gateway in GATEWAYS
        if not (gateway is WEBSOCKET_EACH and config is FLAT_1)  # the same as WEBSOCKET
    ]
