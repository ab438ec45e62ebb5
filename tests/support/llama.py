"""One real llama.cpp server for a whole test session."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from makai.core.secret import Secret
from makai.providers.local.server import LlamaServer
from makai.providers.local.weights import SMOLLM2, installed


class LlamaEndpoint(msgspec.Struct, frozen=True):
    """Where the running server is. `base_url` ends in /v1."""

    base_url: str
    key: Secret
    model_id: str


def installed_weights() -> Path:
    """The real weights, or a skip that says how to get them."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("NO REAL MODEL: xllamacpp is not installed (pip install 'makai[local]')")
    home = Path(os.environ.get("MAKAI_TEST_MODELS") or Path.home() / ".makai")
    path = installed(home)
    if path is None:
        pytest.skip(f"NO REAL MODEL: no weights below {home}/models (makai models pull smollm2)")
    return path


@pytest.fixture(scope="session")
def llama_server() -> Iterator[LlamaEndpoint]:
    """A running SmolLM2; requests queue up, since it has one slot."""
    server = LlamaServer(installed_weights(), model_id=SMOLLM2.id)
    loop = asyncio.new_event_loop()
    # Linux ends the child with the thread that started it, so this thread must live as long as the session.
    thread = threading.Thread(target=loop.run_forever, name="llama-server", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(timeout=150)
        yield LlamaEndpoint(server.base_url, server.key, SMOLLM2.id)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(timeout=30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()
