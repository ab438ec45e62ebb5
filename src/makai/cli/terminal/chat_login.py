"""`/login` in a chat: the login of `makai auth login`, on the terminal of the chat."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prompt_toolkit.application import get_app_or_none, in_terminal

from makai.cli.first_steps import carry_out, has_terminal
from makai.cli.terminal.chat_session import ChatSession
from makai.cli.terminal.styled_text import Piece, note
from makai.core.errors import InvalidRequest
from makai.providers.runtime import ModelRuntime


async def log_in_from_chat(chat: ChatSession, provider: str) -> list[Piece]:
    """The chat waits meanwhile; Ctrl-C ends the login and not the chat. Without a provider, offers them."""
    models = chat.models
    assert isinstance(models, ModelRuntime), "the chat of a command has the models of its process"
    known = [one.id for one in models.auth().list_providers()]
    if provider and provider not in known:
        raise InvalidRequest(f"there is no provider {provider!r}.", hint=f"There are: {', '.join(known)}.")
    if not has_terminal():
        raise InvalidRequest("a login needs a terminal.", hint=f"Run `makai auth login {provider or 'PROVIDER'}`.")
    async with in_terminal():
        login = asyncio.create_task(carry_out(models, "login", provider), name="makai-chat-login")
        with _interrupting(login):
            await asyncio.wait({login})
    if login.cancelled():
        return []
    if login.result() != 0:
        return [note("You are not logged in.", "warn")]
    return [note("Every makai process uses the login at once. /model PROVIDER/MODEL chooses its models.")]


@contextmanager
def _interrupting(task: asyncio.Task[Any]) -> Iterator[None]:
    """SIGINT cancels this task alone, and lines can be read from the terminal."""
    before, was_blocking = signal.getsignal(signal.SIGINT), os.get_blocking(0)
    os.set_blocking(0, True)  # the chat reads single keys
    loop, chat = asyncio.get_running_loop(), get_app_or_none()
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        yield
    finally:
        task.cancel()
        if chat is not None and chat.is_running:
            loop.add_signal_handler(signal.SIGINT, chat.key_processor.send_sigint)
        else:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)
        os.set_blocking(0, was_blocking)
