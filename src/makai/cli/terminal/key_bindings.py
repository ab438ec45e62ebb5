"""Which key does what in an interactive chat. What an action does is the business of `ChatUI`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application.current import get_app
from prompt_toolkit.filters import Condition, Filter, is_searching
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from makai.cli.terminal.chat_ui import ChatUI

for _shift_enter in ("\x1b[13;2u", "\x1b[27;2;13~"):
    ANSI_SEQUENCES[_shift_enter] = Keys.ControlJ


def bind(keys: KeyBindings, actions: ChatUI) -> None:
    """Add the keys of a chat, in addition to those of the line editor."""
    answering = Condition(actions.takes_answers)
    typing = ~answering & ~is_searching
    composer = actions.input.composer
    picking = Condition(lambda: composer.is_picking)

    @keys.add(Keys.Any, filter=answering)
    def _(event: KeyPressEvent) -> None:
        actions.answer(event.data)

    @keys.add("enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.char_before_cursor == "\\" and not composer.is_picking:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        elif not composer.enter() and (draft := composer.take()) is not None:
            actions.submit(draft)

    for sequence in (("c-j",), ("escape", "enter")):

        @keys.add(*sequence, filter=typing)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

    @keys.add("tab", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        if not composer.complete():
            actions.move_focus()

    @keys.add("c-s", filter=typing & ~picking)
    def _(event: KeyPressEvent) -> None:
        if (draft := composer.take()) is not None:
            actions.steer(draft)

    @keys.add(Keys.BracketedPaste, filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        actions.input.paste(event.data)

    @keys.add("c-c")
    @keys.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        buffer = event.app.current_buffer
        was_empty = not buffer.text and not composer.is_picking
        composer.dismiss()
        buffer.reset() if is_searching() else composer.clear()
        actions.interrupt(was_empty)

    _bind_actions(keys, actions, typing, picking)


def _bind_actions(keys: KeyBindings, actions: ChatUI, typing: Filter, picking: Filter) -> None:
    """The keys that need nothing but to be pressed."""
    composer = actions.input.composer
    choosing = Condition(lambda: composer.is_choosing)
    empty = Condition(lambda: not get_app().current_buffer.text)
    _add(keys, "c-d", actions.leave, empty & ~is_searching & ~picking)
    _add(keys, "escape", actions.stop, ~is_searching)
    _add(keys, "s-tab", actions.next_mode)
    _add(keys, "c-o", actions.unfold)
    _add(keys, "c-z", actions.suspend)
    _add(keys, "c-l", actions.redraw)
    _add(keys, "c-g", actions.input.edit, typing & ~picking)
    _add(keys, "c-v", actions.input.paste_picture, typing & ~picking)
    _add(keys, "c-p", lambda: actions.input.pick("model"), typing & empty & ~picking)
    for key, steps in (("up", -1), ("down", 1), ("c-p", -1), ("c-n", 1)):
        _add(keys, key, partial(composer.move, steps), typing & choosing)
    queued = Condition(actions.may_take_back)
    _add(keys, "up", actions.input.take_back, ~is_searching & ~choosing & queued)  # also while a question is open
    _add(keys, "up", partial(composer.recall, -1), typing & ~choosing & ~queued)
    _add(keys, "down", partial(composer.recall, 1), typing & ~choosing)


def _add(keys: KeyBindings, key: str, action: Callable[[], None], when: Any = True) -> None:
    @keys.add(key, filter=when)
    def _(event: KeyPressEvent) -> None:
        action()
