"""The client: one connection and the four APIs that use it."""

from __future__ import annotations

import warnings
from typing import Self

from makai.client.agent import AgentApi
from makai.client.auth import AuthApi
from makai.client.connection import MakaiConnection
from makai.client.model_calls import DirectCalls, ModelCalls, RemoteCalls
from makai.client.models import ModelsApi
from makai.client.provider import ProviderApi
from makai.client.types import AuthOptions
from makai.server.backend import Backend
from makai.transports.channel import Channel


class MakaiClient:
    """A connected client. Use it as `async with`, or `close` it; any number of requests may run at once."""

    def __init__(self, channel: Channel, auth: AuthOptions | None = None, backend: Backend | None = None) -> None:
        """`backend`: the models of a server in this process, which are asked without the protocol."""
        self._closed = False
        self._connection = MakaiConnection(channel)
        self.models = ModelsApi(self._connection)
        self.auth = AuthApi(self._connection, auth or AuthOptions(), on_login=self.models.forget)
        self.agent = AgentApi(self._connection, self.auth)
        self._calls: ModelCalls = (
            RemoteCalls(self._connection) if backend is None else DirectCalls(backend, self._connection.call_soon)
        )
        self.provider = ProviderApi(self._calls, self.auth, self.models)

    async def close(self) -> None:
        """End the connection, and a server that was started for it. What is pending fails; may be repeated."""
        self._closed = True
        await self._calls.close()
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"unclosed {self!r}: use `async with` or close()", ResourceWarning, source=self, stacklevel=2)
