"""The line that a user types in: the menu that goes with its text, the picker that may be open, and what stands behind
its placeholders. It knows no session; `ChatUI` gives it the commands and the files, and sends what it yields.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from makai.cli.terminal.menu import MAX_ROWS, Choice, ChoiceMenu, Picker
from makai.cli.terminal.styled_text import Line, Span, line
from makai.core.content import Image
from makai.core.session_files import FoundPaths
from makai.tools.attachments import PICTURE, dragged_picture, placeholder
from makai.tools.file_errors import printable
from makai.tools.file_index import FileIndex
from makai.tools.file_mentions import mention, path_being_typed

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer

FOLDED_LINES: Final = 10
FOLDED_CHARACTERS: Final = 2_000
"""Pasted text of more lines or characters is shown as a placeholder."""
MAX_COMMAND_ROWS: Final = 40
AGAIN_S: Final = 0.5
"""How soon the files are looked up again while their folder is being walked."""
SHELL_HINT: Final = "Enter runs this command as you, outside of the sandbox; the agent reads its output."


class TypedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be sent."""

    text: str
    """With what was pasted."""
    pictures: dict[str, Image] = {}
    """By their placeholders in the text."""
    was_queued: bool = False
    """It was a message already, whatever its text begins with: another client may have written it."""


class Composer:
    def __init__(
        self, buffer: Buffer, commands: Callable[[str], Sequence[Choice]], refresh: Callable[[], None]
    ) -> None:
        """`commands` are those that a text which begins with a slash may mean."""
        self._buffer = buffer
        self._commands = commands
        self._refresh = refresh
        self._picker: Picker | None = None
        self._on_chosen: Callable[[str], None] = lambda value: None
        self._menu = ChoiceMenu()
        self._dismissed: str | None = None
        """The text whose menu the user closed."""
        self._pasted: dict[str, str] = {}
        self._pictures: dict[str, Image] = {}
        self._is_taken_back = False
        self._files: FileIndex | None = None
        self._found: tuple[str, FoundPaths] | None = None
        self._asked = asyncio.Event()

    @property
    def is_picking(self) -> bool:
        return self._picker is not None

    @property
    def is_choosing(self) -> bool:
        """Whether arrow keys, Tab and Esc belong to a menu or a picker."""
        return self._picker is not None or bool(self._shown_menu().choices)

    @property
    def is_empty(self) -> bool:
        return not self._buffer.text and self._picker is None

    @property
    def is_taken_back(self) -> bool:
        """Whether the text was in the queue of the session, and is not any more."""
        return self._is_taken_back and bool(self._buffer.text)

    @property
    def prompt(self) -> str:
        return "filter: " if self._picker is not None else ""

    def typed(self) -> None:
        """The text has changed."""
        self._is_taken_back = self.is_taken_back
        if self._picker is not None:
            self._picker.filter(self._buffer.text)
        elif self._query() is not None:
            self._asked.set()
        else:
            self._found = None

    async def follow_files(
        self, folder: Callable[[], str | None], elsewhere: Callable[[str], Awaitable[FoundPaths | None]]
    ) -> None:
        """Look up the files for what is typed after an `@`, until cancelled: by `elsewhere`, or in the folder when that
        finds None."""
        try:
            while True:
                await self._asked.wait()
                self._asked.clear()
                query, here = self._query(), folder()
                if query is not None and here is not None:
                    self._set_found(query, await elsewhere(query) or await self._find(query, here))
        finally:
            if self._files is not None:
                self._files.close()

    async def _find(self, query: str, folder: str) -> FoundPaths:
        if self._files is None or self._files.folder != folder:
            if self._files is not None:
                self._files.close()
            self._files = FileIndex(folder)
        return await self._files.find(query)

    def _set_found(self, query: str, found: FoundPaths) -> None:
        if self._query() == query:
            self._found = query, found
            self._refresh()
            if not found.is_complete:
                asyncio.get_running_loop().call_later(AGAIN_S, self._asked.set)

    def _query(self) -> str | None:
        typed = path_being_typed(self._buffer.document.text_before_cursor)
        return None if typed is None or self._picker is not None else typed[0]

    def _shown_menu(self) -> ChoiceMenu:
        """The menu of the text, which is made again when the text has changed."""
        text = self._buffer.text
        if text == self._dismissed:
            return ChoiceMenu()
        if text.startswith("/"):
            self._menu.hint, self._menu.max_rows = "", MAX_COMMAND_ROWS
            self._menu.offer(self._commands(text))
        elif self._found is not None and self._query() is not None:
            _, found = self._found
            self._menu.hint = "" if found.is_complete else "still reading the folder …"
            self._menu.max_rows = MAX_ROWS
            self._menu.offer([Choice(value=path, label=printable(path)) for path in found.paths])
        else:
            self._menu.hint = SHELL_HINT if text.startswith("!") else ""
            self._menu.offer(())
        return self._menu

    def lines(self, rows: int) -> list[Line]:
        drawn = self._picker.lines(rows) if self._picker is not None else self._shown_menu().lines(rows)
        placeholders = [each for each in (*self._pasted, *self._pictures) if each in self._buffer.text]
        return drawn or ([line(Span("  sent whole: " + " ".join(placeholders), "dim"))] if placeholders else [])

    def pick(self, picker: Picker, on_chosen: Callable[[str], None]) -> None:
        """Open a picker. What was typed while its choices were looked up filters them."""
        self._picker, self._on_chosen = picker, on_chosen
        if self._buffer.text:
            picker.filter(self._buffer.text)
        self._refresh()

    def move(self, steps: int) -> None:
        (self._picker.menu if self._picker is not None else self._shown_menu()).move(steps)
        self._refresh()

    def recall(self, steps: int) -> None:
        """Go through the lines of the text, then through earlier messages, whose menus stay closed."""
        before = self._buffer.text
        self._buffer.auto_up() if steps < 0 else self._buffer.auto_down()
        if self._buffer.text != before:
            self._dismissed = self._buffer.text

    def dismiss(self) -> bool:
        """Close the picker or the menu; False when there is none."""
        if self._picker is not None:
            self._close_picker()
            return True
        if not self._shown_menu().choices:
            return False
        self._dismissed = self._buffer.text
        self._refresh()
        return True

    def _close_picker(self) -> None:
        self._picker = None
        self._buffer.reset()
        self._refresh()

    def enter(self) -> bool:
        """Whether Enter belongs to a picker or a menu, and sends nothing."""
        if self._picker is not None:
            chosen = self._picker.menu.marked
            if chosen is not None:
                self._close_picker()
                self._on_chosen(chosen.value)
            return True
        menu, text = self._shown_menu(), self._buffer.text
        if (marked := menu.marked) is None:
            return False
        if not text.startswith("/"):
            return self._query() != marked.value and self.complete(descend=False)
        if text[1:] in {choice.value for choice in menu.choices} and not menu.was_moved:
            return False
        needs_argument = marked.label != f"/{marked.value}" and "[" not in marked.label
        self._set_text(f"/{marked.value}{' ' if needs_argument else ''}")
        return needs_argument

    def complete(self, *, descend: bool = True) -> bool:
        """Put the marked choice into the text. `descend` leaves a folder open for more."""
        marked = self._shown_menu().marked
        if self._picker is not None or marked is None:
            return self._picker is not None
        if self._buffer.text.startswith("/"):
            self._set_text(f"/{marked.value} ")
            return True
        typed = path_being_typed(self._buffer.document.text_before_cursor)
        assert typed is not None
        written = mention(marked.value)
        is_open = descend and marked.value.endswith("/")
        self._buffer.delete_before_cursor(typed[1])
        self._buffer.insert_text(written.removesuffix('"') if is_open else f"{written} ")
        return True

    def paste(self, text: str, folder: str | None) -> None:
        """Insert what was pasted: the path of a picture as a mention, a long text as a placeholder."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if self._picker is None and folder is not None and (picture := dragged_picture(text, folder)) is not None:
            self._buffer.insert_text(f"{mention(picture)} ")
            return
        count = text.count("\n") + (not text.endswith("\n"))
        if self._picker is None and (count > FOLDED_LINES or len(text) > FOLDED_CHARACTERS):
            size = f"{count} lines" if count > 1 else f"{len(text):,} characters"
            folded = placeholder(f"pasted {size}", self._pasted)
            self._pasted[folded] = text
            text = folded
        self._buffer.insert_text(text)

    def add_picture(self, picture: Image) -> None:
        shown = placeholder(PICTURE, self._pictures)
        self._pictures[shown] = picture
        self._buffer.insert_text(f"{shown} ")

    def take(self) -> TypedMessage | None:
        """The message, taken out of the line and put into the history; None when there is nothing."""
        typed = self._buffer.text.strip()
        if not typed:
            return None
        # A terminal may send bytes that its locale has no character for; as UTF-8 they may be one.
        text = self.expanded(typed).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        pictures = {shown: picture for shown, picture in self._pictures.items() if shown in text}
        draft = TypedMessage(text=text, pictures=pictures, was_queued=self.is_taken_back)
        self._buffer.history.append_string(text)
        self.clear()
        return draft

    def expanded(self, text: str) -> str:
        for folded, pasted in self._pasted.items():
            text = text.replace(folded, pasted)
        return text

    def clear(self) -> None:
        """Drop the text and what stands behind its placeholders."""
        self._buffer.reset()
        self._pasted.clear()
        self._pictures.clear()
        self._is_taken_back = False

    def restore(self, draft: TypedMessage) -> None:
        """Put a message back that was not sent, unless the user has begun another one."""
        if not self._buffer.text:
            self._pictures |= draft.pictures
            self._set_text(draft.text)
            self._is_taken_back = draft.was_queued

    def take_back(self, draft: TypedMessage) -> None:
        """Put a queued message into the line to be edited, before what was typed meanwhile."""
        typed = self._buffer.text
        self._pictures |= draft.pictures
        self._set_text(f"{draft.text}\n{typed}" if typed else draft.text)
        self._is_taken_back, self._dismissed = True, self._buffer.text

    def edited(self, text: str) -> None:
        """Take the text that an editor made of the expanded one."""
        self._pasted.clear()
        self._set_text(text)

    def _set_text(self, text: str) -> None:
        self._buffer.text = text
        self._buffer.cursor_position = len(text)
