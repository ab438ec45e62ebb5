"""A chat without a terminal that can be redrawn: lines in, lines out.

A script that pipes its lines in is answered line by line, and approvals are denied at once. A terminal that cannot be
redrawn (TERM=dumb) is asked with a line.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Final, assert_never

from makai.cli.approval_keys import Widths, answer_in, discard_typed_ahead, key_lines, key_text, next_answer
from makai.cli.console import EXIT_FAILED, exit_code, explain, harmless, note, say, tell
from makai.cli.line_reader import LineReader
from makai.cli.terminal import slash_commands as slash
from makai.cli.terminal.chat_session import ChatSession
from makai.cli.terminal.styled_text import Lines, Piece, plain
from makai.core.errors import InvalidRequest, MakaiError, error_from_code
from makai.core.session_events import ApprovalRequested
from makai.core.visible_text import shown
from makai.sessions.requests import GetState

STOP_S: Final = 5.0
NO_TERMINAL: Final = "this needs an approval, and standard input is not a terminal to ask on"


class PlainChat:
    """Pass its `show` to a `ChatSession`, then call `run` with that."""

    def __init__(self) -> None:
        self._lines = LineReader()
        self._asks = sys.stdin.isatty()
        self._news = asyncio.Event()
        self._echoed = ""
        """The message that was typed into a terminal and is not part of the transcript yet."""
        self._code = 0
        self._deleted: MakaiError | None = None

    def show(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if self._echoed and plain([piece]) == f"\n> {shown(self._echoed)}\n":
                self._echoed = ""  # the terminal shows what is typed
            elif isinstance(piece, Lines) and piece.error:
                note(plain([piece]).strip("\n"))
            else:
                say(plain([piece]), end="")
        self._news.set()

    async def run(self, chat: ChatSession, first: str = "") -> int:
        """Run until the input ends; returns the exit code. `first` comes before the first line."""
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow(chat))
            try:
                return await self._answer_lines(chat, first)
            except asyncio.CancelledError:  # Ctrl+C
                async with asyncio.timeout(STOP_S):
                    await chat.abort()
                raise
            finally:
                following.cancel()

    async def _follow(self, chat: ChatSession) -> None:
        try:
            await chat.follow()
        except MakaiError as error:
            self._deleted = error
            self._news.set()

    async def _answer_lines(self, chat: ChatSession, first: str) -> int:
        while True:
            if self._asks and not first:
                say("> ", end="")
            try:
                is_typed = not first
                text, first = first or await self._lines.next(), ""
                if text is None:
                    return self._code
                self._echoed = text.strip() if is_typed and self._asks else ""
                if text.strip() and not await self._take(chat, text.strip()):
                    return self._code
            except MakaiError as error:
                explain(error)
                if not isinstance(error, InvalidRequest):
                    self._code = exit_code(error)

    async def _take(self, chat: ChatSession, text: str) -> bool:
        """Send a message or carry out a command; False means leave."""
        command = slash.parse(text)
        if command is None:
            await self._settled(chat, await chat.send(text))
            return True
        name, argument = command
        if name == "quit":
            return False
        if not name:
            tell(harmless(slash.unknown(text), sys.stdout))
            return True
        self.show(await slash.carry_out(chat, name, argument))
        if chat.copied:  # there is no clipboard, but what it would hold can be read here
            say(harmless(chat.copied, sys.stdout))
            chat.copied = ""
        await self._confirm(chat)
        if chat.session_id is not None:
            await self._settled(chat, (await chat.sessions.dispatch(GetState(chat.session_id))).last_event_id)
        return True

    async def _confirm(self, chat: ChatSession) -> None:
        """Ask with a line; a script says so with its command."""
        confirmation, chat.confirmation = chat.confirmation, None
        if confirmation is None:
            return
        if self._asks:
            tell(f"{confirmation.question} [y/N] ", end="")
            if (await self._lines.next() or "").strip().lower() in ("y", "yes"):
                await confirmation.action()
                return
        tell("Nothing was changed. Add the word yes to the command to confirm it.")

    async def _settled(self, chat: ChatSession, at_least: int) -> None:
        """Wait until everything up to an event is shown and no run is active."""
        while chat.view.state.last_event_id < at_least or chat.is_busy:
            if self._deleted is not None:
                raise self._deleted
            if chat.view.questions:
                await self._decide(chat, next(iter(chat.view.questions.values())))
            else:
                await self._next_news()
        failed = chat.view.failure
        self._code = 0 if failed is None else exit_code(error_from_code(failed.code, failed.message)) or EXIT_FAILED

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def _decide(self, chat: ChatSession, asked: ApprovalRequested) -> None:
        if self._asks:
            await self._ask(chat, asked)
        else:
            await chat.deny(asked.call_id, NO_TERMINAL)
        while asked.call_id in chat.view.questions and self._deleted is None:
            await self._next_news()

    async def _ask(self, chat: ChatSession, asked: ApprovalRequested) -> None:
        """A line that is none of the keys denies, and is the reason."""
        whole = chat.view.unfolded_questions.get(asked.call_id)
        widths = Widths.of(asked)
        await self._show_keys(widths, is_long=whole is not None)
        while True:
            line = await next_answer(
                self._lines, lambda: tell("Your answer, or a reason to deny, then Enter: ", end="")
            )
            answer = answer_in(line, widths, is_long=whole is not None)
            if isinstance(answer, int):
                widths = widths.choose(answer)
                await self._show_keys(widths, is_long=whole is not None)
            elif answer != "view" or whole is None:
                break
            else:
                self.show([whole()])
        match answer:
            case "once" | "session" | "always":
                await chat.allow(asked, answer, widths.rule)
            case "stop":
                await chat.abort()
            case "deny" | "view" | None:
                await chat.deny(asked.call_id, "" if answer == "deny" else line.strip())
            case _:
                assert_never(answer)

    async def _show_keys(self, widths: Widths, *, is_long: bool) -> None:
        for keys in key_lines(widths, is_long=is_long):
            tell(f"  {key_text(keys)}")
        await discard_typed_ahead(self._lines)
