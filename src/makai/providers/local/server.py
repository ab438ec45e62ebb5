"""The model on this machine: a llama.cpp server as a child of this process, and the provider that uses it. The child
listens on loopback with a random key, because any local user and any web page can reach a loopback port. llama.cpp is
never imported here: a crash in native code ends the child, not this process."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TypeAlias

import msgspec

from makai.aio.child_process import ChildProcess
from makai.core.errors import MakaiError, NotSupported, ProviderError, TransportError
from makai.core.module_path import module_path
from makai.core.programs import trusted_environment
from makai.core.secret import Secret
from makai.core.stream_events import StreamEvent
from makai.providers.base import Provider, ProviderRequest
from makai.providers.local.weights import find_model, installed

OnStartup: TypeAlias = Callable[[str], None]

_CHILD = Path(__file__).with_name("child.py")
_STOP_GRACE_S = 2.0
_CRASH_LOOP_S = 60.0
"""A server that dies again this soon after a restart will not get better by a third try."""
_MAX_READY_BYTES = 8192
_TAIL_LINES = 6
_ENV_NAMES = ["HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "SYSTEMROOT", "TMPDIR", "VIRTUAL_ENV"]
"""All the child gets to see of our environment: no credentials, no tokens."""


def _environment() -> dict[str, str]:
    known = {name: os.environ[name] for name in _ENV_NAMES if name in os.environ}
    return trusted_environment(known, [os.getcwd()]) | {"PYTHONPATH": module_path()}


class _Ready(msgspec.Struct):
    ready: bool
    port: int


class LlamaServer:
    """One model, one child, started on demand. All methods belong to the event loop that called `start` first."""

    def __init__(
        self,
        model_path: Path,
        *,
        model_id: str,
        context_window: int = 4096,
        threads: int | None = None,
        start_deadline_s: float = 120.0,
        on_startup: OnStartup | None = None,
    ) -> None:
        self._model_path = model_path
        self._model_id = model_id
        self._context_window = context_window
        self._threads = threads
        self._start_deadline_s = start_deadline_s
        self._on_startup = on_startup
        self._lock = asyncio.Lock()
        self._child: _Child | None = None
        self._restarted_at: float | None = None
        self._stopped = False

    @property
    def base_url(self) -> str:
        """Where the OpenAI-shaped API is, ending in /v1."""
        return f"http://127.0.0.1:{self._running().port}/v1"

    @property
    def key(self) -> Secret:
        """What the server wants as its bearer token. Another one after every start."""
        return self._running().key

    @property
    def pid(self) -> int:
        return self._running().process.pid

    async def start(self) -> None:
        """Make sure the server answers. Callers who come together share one child."""
        async with self._lock:
            if self._stopped:
                raise MakaiError("The local model server was stopped.")
            if self._child is not None:
                if not self._child.process.has_ended:
                    return
                await self._bury(self._child)
            if self._on_startup is not None:
                self._on_startup("loading the local model…")
            self._child = await self._spawn()

    async def stop(self) -> None:
        """End the child and everything it started. Safe to call twice; the server cannot be started again."""
        async with self._lock:
            self._stopped = True
            child, self._child = self._child, None
            if child is not None:
                await child.end()

    async def __aenter__(self) -> LlamaServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _running(self) -> _Child:
        if self._child is None:
            raise MakaiError("The local model server is not running.", hint="Call `start` first.")
        return self._child

    async def _bury(self, dead: _Child) -> None:
        """Forget a child that died by itself; raises when that has happened too often."""
        self._child = None
        await dead.end()
        now = time.monotonic()
        if self._restarted_at is not None and now - self._restarted_at < _CRASH_LOOP_S:
            raise _failure(f"The local model server keeps dying (exit code {dead.process.exit_code})", dead.tail)
        self._restarted_at = now

    async def _spawn(self) -> _Child:
        if importlib.util.find_spec("xllamacpp") is None:
            raise NotSupported(
                "The local model needs xllamacpp, which is not installed.", hint="Run `pip install 'makai[local]'`."
            )
        key = Secret(secrets.token_urlsafe(32))
        process = await ChildProcess.start(
            (
                *(sys.executable, "-P", str(_CHILD)),
                *("--model", str(self._model_path), "--alias", self._model_id),
                *("--context", str(self._context_window), *_thread_arguments(self._threads)),
            ),
            env=_environment(),
        )
        child = _Child(process, key)
        try:
            async with asyncio.timeout(self._start_deadline_s):
                await child.wait_until_ready()
        except TimeoutError:
            await child.end()
            raise _failure(f"The local model did not load within {self._start_deadline_s:.0f} s", child.tail) from None
        except msgspec.MsgspecError:
            await child.end()
            raise _failure(f"The local model {self._model_path.name} did not load", child.tail) from None
        except BaseException:
            await child.end()
            raise
        return child


class _Child:
    """The process, its key and its port."""

    def __init__(self, process: ChildProcess, key: Secret) -> None:
        self.process = process
        self.key = key
        self.port = 0

    @property
    def tail(self) -> str:
        return "\n".join(f"  {line}" for line in self.process.stderr_tail.splitlines()[-_TAIL_LINES:])

    async def wait_until_ready(self) -> None:
        """Hand over the key and wait for the ready line; a MsgspecError means the child died instead."""
        with contextlib.suppress(TransportError):
            await self.process.write(self.key.reveal().encode() + b"\n")
        async for line in self.process.lines(_MAX_READY_BYTES):
            self.port = msgspec.json.decode(line if isinstance(line, bytes) else b"", type=_Ready).port
            return
        raise msgspec.DecodeError("it ended without a ready line")

    async def end(self) -> None:
        await self.process.stop(grace_s=_STOP_GRACE_S, term_grace_s=_STOP_GRACE_S)


def _thread_arguments(threads: int | None) -> tuple[str, ...]:
    """All cores but one to write, all to read. Measured on two cores that others use too: writing runs at 58 tokens/s
    with one thread and at 34 with two, which wait for each other; reading a prompt runs at 98 tokens/s with one and at
    147 to 184 with two."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    writing = threads or max(1, cores - 1)
    reading = threads or cores
    return ("--threads", str(writing), "--batch-threads", str(reading))


def _failure(what: str, tail: str) -> ProviderError:
    log = f" Its log ends with:\n{tail}" if tail else " It said nothing."
    return ProviderError(
        f"{what}.{log}",
        provider_id="local",
        hint="\nIf the weights are damaged, run `makai models pull smollm2` again.",
    )


class LocalProvider:
    """The ordinary chat adapter, pointed at a llama.cpp server that starts with the first request. One per runtime;
    `close` ends the servers."""

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
                    hint=f"Run `makai models pull {weights.name}` ({weights.download_text}), "
                    "or set a provider key such as ANTHROPIC_API_KEY.",
                )
            self._servers[model_id] = LlamaServer(
                path, model_id=model_id, context_window=weights.context_window, on_startup=self._on_startup
            )
        return self._servers[model_id]
