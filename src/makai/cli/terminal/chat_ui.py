"""The user interface of an interactive chat.

It decides what the status area at the bottom shows and what a key means at the moment; sessions are reached through
`ChatSession` only.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prompt_toolkit.key_binding import KeyBindings

from makai.auth.store import unix_milliseconds
from makai.cli.approval_keys import DENY_KEY, GRANT_KEYS, REASON_KEY, VIEW_KEY, Widths, offered_keys
from makai.cli.console import EXIT_INTERRUPTED, hint_of
from makai.cli.terminal.approval_focus import ALONE_S, ApprovalFocus
from makai.cli.terminal.chat_input import ChatInput
from makai.cli.terminal.chat_session import ChatSession, Confirmation
from makai.cli.terminal.composer import TypedMessage
from makai.cli.terminal.key_bindings import bind
from makai.cli.terminal.markdown_blocks import newest_lines
from makai.cli.terminal.markdown_text import load as load_markdown
from makai.cli.terminal.notification import Notifier
from makai.cli.terminal.renderer import Renderer
from makai.cli.terminal.screen import Screen
from makai.cli.terminal.status_area import FRAME_MS, activity, approval_keys, progress
from makai.cli.terminal.status_line import StatusLine
from makai.cli.terminal.styled_text import Line, Lines, Piece, Span, line, note
from makai.core.config import NotifyKind
from makai.core.errors import MakaiError
from makai.core.session_events import ApprovalRequested
from makai.core.visible_text import one_line, shown
from makai.providers.http import load as load_http

TWICE_S: Final = 2.0
"""Two Ctrl+C within this time leave, and two Esc go back to an earlier message."""
MAX_PENDING: Final = 64


class ChatUI:
    """An interactive chat. Pass its `show` to a `ChatSession`, then call `run` with that."""

    def __init__(
        self,
        renderer: Renderer,
        *,
        history: Path,
        folder: str,
        colour: bool,
        notify: NotifyKind = "bell",
        status_line: StatusLine,
    ) -> None:
        self._renderer = renderer
        self._notifier = Notifier(notify)
        self._status_line = status_line
        keys = KeyBindings()
        self._screen = Screen(
            self._region,
            self._footer,
            self._prompt,
            keys,
            history=history,
            folder=folder,
            colour=colour,
            on_typed=self._typed,
            on_focus=self._notifier.focus,
        )
        self.input = ChatInput(self._screen, self.show, self._do, lambda: self.chat)
        bind(keys, self)
        self._focus = ApprovalFocus()
        self._chosen: tuple[str, Widths] = "", Widths(())
        """The call whose question is in front, when the user chose another rule for it."""
        self._work: asyncio.Queue[Callable[[], Awaitable[object]]] = asyncio.Queue(MAX_PENDING)
        self._interrupted_at = -TWICE_S
        self._escaped_at = -TWICE_S
        self._chat: ChatSession | None = None

    @property
    def chat(self) -> ChatSession:
        assert self._chat is not None
        return self._chat

    def show(self, pieces: Sequence[Piece]) -> None:
        if self._chat is not None:
            self._update_focus()
        self._screen.print(self._renderer.pieces(pieces, self._screen.width))
        if self._chat is not None:
            self._notify()

    def _notify(self) -> None:
        """Call the user back when the session needs an answer or a long run has ended."""
        asked = self._asked()
        call = self._notifier.update(
            is_running=self.chat.is_running,
            question=None if asked is None else asked.call_id,
            about="" if asked is None else one_line(asked.title or asked.name),
            now=time.monotonic(),
        )
        if call:
            self._screen.notify(call)

    def _typed(self) -> None:
        self._notifier.touched(time.monotonic())
        self._focus.typed(time.monotonic())
        self.input.composer.typed()

    def _footer(self, width: int) -> str:
        return self._renderer.fitted([self._status_line.line(self.chat.view, self.chat.session_id)], width)[0]

    async def run(self, chat: ChatSession, first: str = "") -> int:
        """Run until the user leaves; returns the exit code. `first` is sent before anything is typed."""
        self._chat = chat
        if first:
            self.input.submit(TypedMessage(text=first), is_typed=False)
        with log_messages_shown(lambda lines: self.show([lines])):
            async with asyncio.TaskGroup() as group:
                work = (self._follow(), self._carry_out(), self._tick(), self.input.serve())
                tasks = [group.create_task(each) for each in (*work, asyncio.to_thread(_load_for_answers))]
                try:
                    return await self._screen.run()
                finally:
                    for task in tasks:
                        task.cancel()

    async def _follow(self) -> None:
        while True:
            try:
                await self.chat.follow()
            except MakaiError as error:  # the session was deleted
                self._explain(error)
                self.chat.start_over()

    async def _carry_out(self) -> None:
        while True:
            work = await self._work.get()
            try:
                await work()
            except MakaiError as error:
                self._explain(error)

    async def _tick(self) -> None:
        """Redraw the status area while a run is active."""
        was_moving = False
        while True:
            await asyncio.sleep(FRAME_MS / 1000)
            is_moving = self.chat.is_running
            if is_moving or was_moving:
                self._update_focus()
                self._screen.refresh()
            was_moving = is_moving

    def _do(self, work: Callable[[], Awaitable[object]]) -> None:
        if self._work.full():
            self._screen.bell()
        else:
            self._work.put_nowait(work)

    def _explain(self, error: MakaiError) -> None:
        hint = hint_of(error)
        self.show([note(shown(f"✗ {error.message}"), "bad"), *([note(shown(f"  {hint}"), "")] if hint else [])])

    def _update_focus(self) -> bool:
        """Whether another approval came to the front."""
        empty = self.input.composer.is_empty
        return self._focus.update(self.chat.view.questions, time.monotonic(), line_is_empty=empty)

    def submit(self, draft: TypedMessage) -> None:
        call_id = self._focus.reason_for
        if call_id is not None:
            self._focus.reason_for = None
            self._focus.answered()
            self._do(lambda: self.chat.deny(call_id, draft.text))
            return
        self._focus.sent(time.monotonic())
        self.input.submit(draft)

    def steer(self, draft: TypedMessage) -> None:
        self._focus.sent(time.monotonic())
        self.input.submit(draft, "steer")

    def may_take_back(self) -> bool:
        """Whether Up edits a queued message of this terminal, and not an earlier one."""
        is_free = self.input.composer.is_empty and self._focus.reason_for is None and self.chat.confirmation is None
        return is_free and self.chat.own_waiting is not None

    def stop(self) -> None:
        """Esc: the innermost of what can be closed or stopped."""
        if self.input.composer.dismiss():
            return
        if (confirmation := self.chat.confirmation) is not None:
            self._confirm(confirmation, "")
        elif self._focus.reason_for is not None:
            self._focus.reason_for = None
            self._screen.buffer.reset()
        elif self.input.composer.is_taken_back:
            self.input.composer.clear()
            self.show([note("The message was dropped.")])
        elif self.input.stop_shell():
            pass
        elif self.chat.is_running:
            self._do(self.chat.abort)
        elif not self._screen.buffer.text:
            self._escape_idle()

    def _escape_idle(self) -> None:
        now = time.monotonic()
        if now - self._escaped_at < TWICE_S:
            self.input.go_back()
        self._escaped_at = now

    def interrupt(self, line_was_empty: bool) -> None:
        """Ctrl+C: answers an open question with no, then stops the user's command, then the agent; twice leaves."""
        self._focus.reason_for = None
        if (confirmation := self.chat.confirmation) is not None:
            self._confirm(confirmation, "")
            return
        if not line_was_empty or self.input.stop_shell():
            return
        now = time.monotonic()
        if now - self._interrupted_at < TWICE_S:
            self._screen.leave(EXIT_INTERRUPTED)
            return
        self._interrupted_at = now
        if self.chat.is_running:
            self._do(self.chat.abort)
        self.show([note("(press Ctrl+C again, or Ctrl+D, to leave)")])

    def leave(self) -> None:
        self._screen.leave(0)

    def next_mode(self) -> None:
        self._do(self.chat.next_mode)

    def unfold(self) -> None:
        folded = self.chat.view.folded
        self.show([folded] if folded is not None else [note("Nothing was shortened.")])

    def suspend(self) -> None:
        self._screen.suspend()

    def redraw(self) -> None:
        self._screen.redraw()

    def move_focus(self) -> None:
        if self._focus.call_id is not None:
            self._focus.toggle()
            self._screen.refresh()

    def takes_answers(self) -> bool:
        return self._focus.takes_keys(time.monotonic()) or self.chat.confirmation is not None

    def _confirm(self, confirmation: Confirmation, key: str) -> None:
        """Any key but y leaves everything as it is; a character is then the first of the next message."""
        self.chat.confirmation = None
        if key in ("y", "Y"):
            self._do(confirmation.action)
            return
        self.show([note("Nothing was changed.")])
        if key.isprintable() and len(key) == 1 and key not in ("n", "N"):
            self._screen.buffer.insert_text(key)

    def answer(self, key: str) -> None:
        if (confirmation := self.chat.confirmation) is not None:
            self._confirm(confirmation, key)
            return
        asked = self._asked()
        offered = "" if asked is None else offered_keys(self._widths(asked), is_long=self._is_long(asked))
        typed = self._focus.pressed(key, offered, time.monotonic())
        if typed:
            self._screen.buffer.insert_text(typed)
        else:
            asyncio.get_running_loop().call_later(ALONE_S, self._answered)

    def _answered(self) -> None:
        key = self._focus.settled()
        asked = self._asked()
        if key is None or asked is None:
            return
        if key in GRANT_KEYS:
            self._focus.answered()
            rule = self._widths(asked).rule
            self._do(lambda: self.chat.allow(asked, GRANT_KEYS[key], rule))
        elif key.isdecimal():
            self._chosen = asked.call_id, self._widths(asked).choose(int(key))
            self._screen.refresh()
        elif key == DENY_KEY:
            self._focus.answered()
            self._do(lambda: self.chat.deny(asked.call_id))
        elif key == REASON_KEY:
            self._focus.reason_for = asked.call_id
            self._screen.refresh()
        elif key == VIEW_KEY and (whole := self.chat.view.unfolded_questions.get(asked.call_id)) is not None:
            self.show([whole()])

    def _asked(self) -> ApprovalRequested | None:
        """The question in front."""
        return self.chat.view.questions.get(self._focus.call_id or "")

    def _widths(self, asked: ApprovalRequested) -> Widths:
        """As the user chose among them for this question."""
        return self._chosen[1] if self._chosen[0] == asked.call_id else Widths.of(asked)

    def _is_long(self, asked: ApprovalRequested) -> bool:
        return asked.call_id in self.chat.view.unfolded_questions

    def _region(self, width: int, rows: int) -> str:
        view, now = self.chat.view, unix_milliseconds()
        waiting = self.chat.own_waiting if self.may_take_back() else None
        doing = activity(view, now, editable=None if waiting is None else waiting.input_id)
        question = self._question(width)
        asked = self._renderer.wrapped(question, width)
        status = [
            *self._renderer.fitted(progress(view, now), width),
            *self._renderer.wrapped(doing, width),
            *(asked if len(asked) <= rows else self._renderer.fitted(question, width)),
            *self._renderer.fitted(self.input.lines(max(3, rows - 6)), width),
        ]
        below = status[-rows:]
        words = self._words(width, rows - len(below) - 2) if view.text.strip() else []
        return "\n".join([*(["", *words] if words else []), "", *below])

    def _words(self, width: int, rows: int) -> list[str]:
        """The end of the text that is being written."""
        if rows < 1:
            return []
        text = newest_lines(shown(self.chat.view.text), rows)
        return self._renderer.markdown(text, width).split("\n")[-rows:]

    def _question(self, width: int) -> list[Line]:
        if (confirmation := self.chat.confirmation) is not None:
            keys = (Span("y", "key"), Span(" yes, "), Span("any other key", "key"), Span(" no"))
            return [line(Span(f"  {confirmation.question}  ", "warn"), *keys)]
        asked = self._asked()
        if asked is None:
            return []
        if self._focus.reason_for is not None:
            return [line(Span("  Type a reason for the agent. Enter denies, Esc goes back.", "warn"))]
        return approval_keys(
            asked,
            self._widths(asked),
            len(self.chat.view.questions),
            unix_milliseconds(),
            width,
            ready=self._focus.is_ready(time.monotonic()),
            focused=self._focus.focused,
            is_long=self._is_long(asked),
        )

    def _prompt(self) -> str:
        mode = "why? " if self._focus.reason_for is not None else self.input.composer.prompt or "> "
        style = line(Span(mode, "user"))
        return self._renderer.fitted([style], 10)[0]


def _load_for_answers() -> None:
    """Import what only answers need while the user types."""
    load_http()
    load_markdown()


class _LogHandler(logging.Handler):
    def __init__(self, show: Callable[[Lines], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        self._loop.call_soon_threadsafe(self._show, note(shown(self.format(record))))


@contextmanager
def log_messages_shown(show: Callable[[Lines], None]) -> Iterator[None]:
    """Show log warnings and errors with `show` instead of on stderr, where they would garble the screen."""
    handler = _LogHandler(show)
    logger = logging.getLogger()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
