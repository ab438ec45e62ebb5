"""Opens the sessions of MAKAI_HOME for a command: owned by this process, or reached through the one that owns them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from makai.cli.console import note
from makai.core.config import Config
from makai.core.errors import HomeInUse, InvalidRequest, LogDamaged, StorageUnavailable, TransportError
from makai.core.home import home_directory
from makai.providers.logins import CONFIG_FILE, read_config
from makai.providers.runtime import ModelRuntime
from makai.server.cluster_opening import own_sessions
from makai.server.remote_sessions import RemoteSessions
from makai.server.session_router import SessionRouter
from makai.sessions.requests import FolderTrust, GetTrust
from makai.sessions.service import Sessions


@asynccontextmanager
async def open_sessions(
    *, models: ModelRuntime | None = None, on_takeover: Callable[[], None] | None = None
) -> AsyncIterator[Sessions]:
    """`models` answer while this process owns the sessions. Without them, the command only reads and changes what is
    stored: it gets a runtime of its own and works with a broken config.toml too.
    `on_takeover` is called when the owner ended and this process took over."""
    async with AsyncExitStack() as stack:
        config = None
        if models is None:
            config = usable_config(home_directory(os.environ))
            models = await stack.enter_async_context(ModelRuntime(config=config))
        runtime, home = models, models.home

        async def own() -> Sessions:
            return await own_sessions(home, runtime, config=config)

        try:
            sessions = await SessionRouter.open(home, own, on_takeover=on_takeover, environ=runtime.environ)
            stack.push_async_callback(sessions.close)
            yield sessions
        except StorageUnavailable as error:
            raise in_words(error, home) from None


async def trust_of(folder: str) -> FolderTrust:
    """Whether the project files of a folder are trusted, for the check of MCP servers."""
    async with open_sessions() as sessions:
        return await sessions.dispatch(GetTrust(folder))


@asynccontextmanager
async def running_owner(home: Path) -> AsyncIterator[Sessions | None]:
    """The sessions of the process that owns them now; None when there is none. Never owns them itself."""
    try:
        sessions = await RemoteSessions.connect(home)
    except TransportError:
        yield None
        return
    try:
        yield sessions
    finally:
        await sessions.close()


def usable_config(home: Path) -> Config:
    """The user's settings, or the defaults and a warning when the file is broken."""
    try:
        return read_config(home / CONFIG_FILE)
    except InvalidRequest as error:
        note(f"makai: {error.message}", fg="yellow")
        if error.hint:
            note(f"       {error.hint}")
        return Config()


def is_ours(sessions: Sessions) -> bool:
    """Whether runs happen in this process, with its models and keys."""
    return sessions.is_owner if isinstance(sessions, SessionRouter) else True


def in_words(error: StorageUnavailable, home: Path) -> StorageUnavailable:
    """Adds the next step to a storage error."""
    text = error.message.lower()
    if isinstance(error, HomeInUse):
        end_it = f"Stop it (kill {error.pid})" if error.pid else "Stop it"
        error.hint = f"{end_it} and try again. `makai sessions repair --check` works while it runs."
    elif isinstance(error, LogDamaged) or "malformed" in text or "not a database" in text:
        error.hint = "Run `makai sessions repair`: it keeps a copy and makes the sessions readable again."
    elif "readonly" in text or "read-only" in text or "unable to open" in text or "cannot be locked" in text:
        elsewhere = "set MAKAI_HOME to a writable folder. `makai run --no-session` needs none."
        error.hint = f"Make {home} writable, or {elsewhere}"
    return error
