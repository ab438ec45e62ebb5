"""Which key does what in an interactive chat. What an action does is the business of `ChatUI`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application.current import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from makai.cli.terminal.slash_commands import completions

if TYPE_CHECKING:
    from makai.cli.terminal.chat_ui import ChatUI

for _shift_enter in ("\x1b[13;2u", "\x1b[27;2;13~"):
    ANSI_SEQUENCES[_shift_enter] = Keys.ControlJ


def bindings(actions: ChatUI) -> KeyBindings:
    """The keys of a chat, in addition to those of the line editor."""
    keys = KeyBindings()
    answering = Condition(actions.takes_answers)
    typing = ~answering & ~is_searching

    @keys.add(Keys.Any, filter=answering)
    def _(event: KeyPressEvent) -> None:
        actions.answer(event.data)

    @keys.add("enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            _take(buffer, actions.submit)

    for sequence in (("c-j",), ("escape", "enter")):

        @keys.add(*sequence, filter=typing)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

    @keys.add("tab", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        found = completions(buffer.text)
        if len(found) == 1:
            buffer.text = f"/{found[0].name} "
            buffer.cursor_position = len(buffer.text)
        else:
            actions.move_focus()

    @keys.add("c-s", filter=typing)
    def _(event: KeyPressEvent) -> None:
        _take(event.current_buffer, actions.steer)

    @keys.add("c-c")
    @keys.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        buffer = event.app.current_buffer
        was_empty = not buffer.text
        buffer.reset()
        actions.interrupt(was_empty)

    _add(keys, "c-d", actions.leave, Condition(lambda: not get_app().current_buffer.text) & ~is_searching)
    _add(keys, "escape", actions.stop, ~is_searching)
    _add(keys, "s-tab", actions.next_mode)
    _add(keys, "c-o", actions.unfold)
    _add(keys, "c-z", actions.suspend)
    return keys


def _add(keys: KeyBindings, key: str, action: Callable[[], None], when: Any = True) -> None:
    @keys.add(key, filter=when)
    def _(event: KeyPressEvent) -> None:
        action()


def _take(buffer: Buffer, action: Callable[[str], None]) -> None:
    """Take the text out of the line and remember it."""
    text = buffer.text.strip()
    if text:
        buffer.reset(append_to_history=True)
        action(text)
