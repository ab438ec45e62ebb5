"""A login in the terminal: shows its events, asks its questions and reports how it ended.

What to show and ask comes from the runtime over the auth protocol; no login flow is implemented here (MK-AUTH-023).
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Final

import msgspec

from makai.cli.browser import open_page
from makai.cli.console import EXIT_FAILED, explain, harmless, note, say, say_json, tell
from makai.cli.line_reader import LineReader
from makai.client import types
from makai.client.connect import connect
from makai.core.errors import MakaiAuthError, MakaiError
from makai.core.visible_text import exact
from makai.server.backend import Backend

_ASKS_FOR_A_SECRET: Final = re.compile(r"\b(key|token|secret|password)\b", re.IGNORECASE)
"""The answer to a question with one of these words is not echoed."""


class LoginOutput:
    """Text for a user. `browser` says whether pages can be opened."""

    def __init__(self, lines: LineReader, *, browser: bool) -> None:
        self._lines = lines
        self._browser = browser

    def event(self, event: types.MakaiAuthEvent) -> None:
        """Show progress. `succeeded` and `failed` show the end."""
        if isinstance(event, types.AuthUrlEvent):
            self._page(event)
        elif isinstance(event, types.AuthProgressEvent):
            note(harmless(event.message, sys.stderr), dim=True)

    async def answer(self, prompt: types.AuthPromptEvent) -> str:
        hidden = _ASKS_FOR_A_SECRET.search(prompt.message) is not None
        try:
            # Asked when the echo is off: what is pasted the moment the question appears must not be shown.
            text = await self._lines.next(hidden=hidden, prompt=lambda: self._ask(prompt, hidden=hidden))
        finally:
            if hidden and sys.stdin.isatty():
                note("")  # the end of the line was not shown either
        if text is None:
            hint = "Run the command in a terminal, or give it one line per answer."
            raise MakaiError("The login has a question, and standard input ended without an answer.", hint=hint)
        return text

    def succeeded(self, provider_id: str, account: str | None) -> None:
        tell(f"Logged in to {provider_id}{f' as {account}' if account else ''}.")

    def failed(self, error: MakaiError) -> None:
        explain(error)

    def cancelled(self, provider_id: str) -> None:
        note("\nThe login was cancelled. Nothing was stored.")

    def _page(self, event: types.AuthUrlEvent) -> None:
        opened = self._browser and open_page(event.url)
        tell("Your browser opens this page:" if opened else "Open this page in a browser:")
        say(f"\n  {exact(event.url)}\n")
        if event.instructions:
            tell(exact(event.instructions))
        note("Waiting for you to finish there. Ctrl-C cancels.", dim=True)

    def _ask(self, prompt: types.AuthPromptEvent, *, hidden: bool) -> None:
        unseen = " (it is not shown)" if hidden and sys.stdin.isatty() else ""
        note(f"{exact(prompt.message)}{unseen} ", end="" if sys.stdin.isatty() else "\n")


class JsonLoginOutput(LoginOutput):
    """One line of JSON per event, for scripts; the last one is `success` or `error`. Answers are lines of input. Events
    are those of the SDK, with all their fields; `provider` repeats `provider_id` for clients of Makai's own binary."""

    def __init__(self, lines: LineReader, provider_id: str) -> None:
        super().__init__(lines, browser=False)
        self._provider_id = provider_id
        self._said_why = False

    def event(self, event: types.MakaiAuthEvent) -> None:
        self._said_why = isinstance(event, types.AuthErrorEvent)
        fields = {"type": event.type, "provider": event.provider_id, **msgspec.structs.asdict(event)}
        say_json({name: value for name, value in fields.items() if value is not None})

    def succeeded(self, provider_id: str, account: str | None) -> None:
        pass  # its event has said so

    def failed(self, error: MakaiError) -> None:
        if not self._said_why:
            self._say_error(str(error), error.code)

    def cancelled(self, provider_id: str) -> None:
        self._say_error("The login was cancelled.", "cancelled")

    def _say_error(self, message: str, code: str) -> None:
        ids = {"provider": self._provider_id, "provider_id": self._provider_id}
        say_json({"type": "error", **ids, "message": message, "code": code})

    def _ask(self, prompt: types.AuthPromptEvent, *, hidden: bool) -> None:
        pass  # its event has asked


async def log_in(backend: Backend, provider_id: str, account: str | None, screen: LoginOutput) -> int:
    """Log in over the auth protocol. Cancelling this (Ctrl-C) cancels the login."""
    handlers = types.AuthFlowHandlers(on_event=screen.event, on_prompt=screen.answer)
    try:
        async with connect(backend=backend) as client:
            await client.auth.login(provider_id, handlers, account=account)
    except MakaiAuthError as error:
        # A handler's own failure, such as the end of input, is wrapped by the client.
        screen.failed(error.__cause__ if isinstance(error.__cause__, MakaiError) else error)
        return EXIT_FAILED
    except asyncio.CancelledError:
        screen.cancelled(provider_id)
        raise
    screen.succeeded(provider_id, account)
    return 0
