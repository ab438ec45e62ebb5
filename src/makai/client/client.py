"""The client: one connection and the four things that can be done with it (document 000 §3).

In: a channel. Out: `.auth .models .agent .provider .close()`. It must not know how the channel came to be.
"""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Self

from makai.client.agent import AgentApi
from makai.client.auth import AuthApi
from makai.client.connection import MakaiConnection
from makai.client.models import ModelsApi
from makai.client.provider import ProviderApi
from makai.client.types import AuthOptions
from makai.transports.channel import Channel


class MakaiClient:
    """A connected client. Use it as `async with`, or `close` it; any number of requests may run at once."""

    def __init__(self, channel: Channel, auth: AuthOptions | None = None) -> None:
        self._closed = False
        self._connection = MakaiConnection(channel)
        self.models = ModelsApi(self._connection)
        self.auth = AuthApi(self._connection, auth or AuthOptions(), on_login=self.models.forget)
        self.agent = AgentApi(self._connection, self.auth)
        self.provider = ProviderApi(self._connection, self.auth, self.models)

    async def close(self) -> None:
        """End the connection, and a server that was started for it. What is pending fails; may be repeated."""
        self._closed = True
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"unclosed {self!r}: use `async with` or close()", ResourceWarning, source=self, stacklevel=2)
