"""The terminal: a transcript that scrolls, a status area below it that is redrawn, and a line to type in.

It uses neither an alternate screen nor cursor reports, so it works over slow lines and inside tmux, and the transcript
stays in the scrollback. Every frame is one write, marked as one synchronised update, so that nothing flickers.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, merge_key_bindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import Dimension, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth
from prompt_toolkit.widgets import SearchToolbar

from makai.cli.early_prompt import EARLY_PROMPT
from makai.cli.terminal.notification import FOCUS_REPORTS, REPORT_FOCUS, REPORT_NO_FOCUS
from makai.cli.terminal.steady_width import SteadyWidth, is_unsteady, steady
from makai.core.programs import editor_command

FRAMES_PER_S: Final = 15
MAX_INPUT_ROWS: Final = 10
ESCAPE_S: Final = 0.05
"""How long a lone Esc may be the beginning of another key."""
_BEGIN_FRAME: Final = "\x1b[?2026h"
_END_FRAME: Final = "\x1b[?2026l"
_MAX_HISTORY_BYTES: Final = 1_000_000
for _report, _key in zip(FOCUS_REPORTS, (Keys.F23, Keys.F24), strict=True):
    ANSI_SEQUENCES[_report] = _key  # no keyboard has these keys, and the parser knows no focus


class _SteadyOutput(Vt100_Output):
    """Writes a whole frame at once."""

    _holding = False

    @contextmanager
    def one_frame(self) -> Iterator[None]:
        self.hold()
        try:
            yield
        finally:
            self.release()

    def hold(self) -> None:
        if not self._holding:
            self._holding = True
            self.write_raw(_BEGIN_FRAME)

    def release(self) -> None:
        if self._holding:
            self._holding = False
            self.write_raw(_END_FRAME)
            super().flush()

    def flush(self) -> None:
        if not self._holding:
            super().flush()

    def erase_down(self) -> None:
        """Erase from the beginning of a row on. What is erased from the top left corner on, tmux would keep in its
        scrollback, once for every frame of a status area that fills the screen."""
        self.write_raw("\x1b[K\x1b[C\x1b[J\r")


def added_rows(widths: Sequence[int], cursor: int, columns: int) -> int:
    """How many rows a terminal with now `columns` columns has added above the cursor by breaking rows that were drawn
    when it was wider. `widths` are those of the rows up to the one with the cursor, which was in column `cursor`."""
    added = [max(0, width - 1) // columns for width in widths]
    return sum(added[:-1]) + min(cursor // columns, added[-1])


def breaks_rows(environ: Mapping[str, str]) -> bool:
    """Whether the terminal breaks rows that are wider than it has become. Most do; these cut them off."""
    if "TMUX" in environ:
        return True
    return not ("XTERM_VERSION" in environ or "STY" in environ or environ.get("TERM") == "linux")


class _ResizableApplication(Application[int]):
    """Erases what it has drawn also after the terminal became narrower."""

    def erase(self) -> None:
        self.output.write_raw("\r")
        drawn = self.renderer.last_rendered_screen
        if drawn is not None and breaks_rows(os.environ):
            cursor = drawn.get_cursor_position(self.layout.current_window)
            rows = (drawn.data_buffer[number].items() for number in range(cursor.y + 1))
            widths = [max((at + cell.width for at, cell in row if cell.char.strip()), default=0) for row in rows]
            self.output.cursor_up(added_rows(widths, cursor.x, self.output.get_size().columns))
        self.renderer.erase()

    def _on_resize(self) -> None:
        self.erase()
        super()._on_resize()


class Screen:
    def __init__(
        self,
        region: Callable[[int, int], str],
        footer: Callable[[int], str],
        prompt: Callable[[], str],
        keys: KeyBindings,
        *,
        history: Path,
        folder: str,
        colour: bool,
        on_typed: Callable[[], None],
        on_focus: Callable[[bool], None],
    ) -> None:
        self._region = region
        self._footer = footer
        self._prompt = prompt
        self._output = _SteadyOutput(sys.stdout, _size, term=None, enable_cpr=False)
        self.buffer = Buffer(multiline=True, history=_history(history, folder), on_text_changed=lambda _: on_typed())
        self._app = _ResizableApplication(
            layout=self._layout(),
            key_bindings=merge_key_bindings([keys, _focus_reports(on_focus)]),
            output=self._output,
            style=Style([]),
            include_default_pygments_style=False,
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
            min_redraw_interval=1 / FRAMES_PER_S,
            erase_when_done=True,
            before_render=lambda _: self._begin_frame(),
            after_render=lambda _: self._output.release(),
        )
        self._above = ""
        """The rows above the typed line."""
        self._is_unsteady = False
        """Whether the last frame had characters whose columns are uncertain."""
        self._held: list[str] | None = None
        """What was printed while another program has the terminal."""
        self._app.ttimeoutlen = ESCAPE_S
        self._app.timeoutlen = ESCAPE_S

    @property
    def width(self) -> int:
        return self._output.get_size().columns

    async def run(self) -> int:
        """Run until `leave`; returns its code."""
        self._take_early_keys()
        self.notify(REPORT_FOCUS)
        try:
            return await self._app.run_async()
        finally:
            self._output.release()
            self.notify(REPORT_NO_FOCUS)
            EARLY_PROMPT.close()

    def _take_early_keys(self) -> None:
        """The keys that were typed while the chat was loaded are the first ones of the application."""
        keys, typed = self._app.input, EARLY_PROMPT.taken()
        if typed and isinstance(keys, Vt100Input):
            keys.vt100_parser.feed(typed.decode(keys.stdin.encoding, "surrogateescape"))
            store_typeahead(keys, keys.read_keys())

    def leave(self, code: int) -> None:
        if self._app.is_running:
            self._app.exit(result=code)

    def print(self, text: str) -> None:
        if self._held is not None:
            self._held.append(text)
            return
        if not text:
            self.refresh()
            return
        with self._output.one_frame():
            if self._app.is_running:
                self._app.erase()
            self._output.write_raw(text.replace("\n", "\r\n"))
            if self._app.is_running:
                with set_app(self._app):
                    self._app.render_counter += 1
                    self._app.renderer.render(self._app, self._app.layout)

    def refresh(self) -> None:
        if self._app.is_running:
            self._app.invalidate()

    def redraw(self) -> None:
        """Clear the terminal and draw the status area again."""
        self._app.renderer.clear()

    async def edit(self, text: str, session_folder: str) -> str:
        """The text after the user changed it in an editor, which has the terminal meanwhile. Raises `OSError` when the
        editor cannot be started or fails, `ValueError` when its command cannot be read."""
        command = editor_command(os.environ, [session_folder])
        with tempfile.TemporaryDirectory(prefix="makai-") as folder:
            path = Path(folder) / "message.md"
            path.write_text(text, encoding="utf-8")
            self._held = []
            try:
                async with in_terminal():
                    # The editor is the user's own program at the user's terminal, and ends when the user ends it.
                    editor = await asyncio.create_subprocess_exec(*command, str(path))
                    code = await editor.wait()
            finally:
                held, self._held = self._held, None
                self.print("".join(held))
            if code != 0:
                raise OSError(f"it ended with exit code {code}")
            return path.read_text(encoding="utf-8").rstrip("\n")

    def bell(self) -> None:
        self._output.bell()

    def notify(self, sequence: str) -> None:
        """Write a sequence that changes nothing on the screen."""
        self._output.write_raw(sequence)
        self._output.flush()

    def suspend(self) -> None:
        self._app.suspend_to_background()

    def _begin_frame(self) -> None:
        """A status area that shrank leaves no empty lines behind. One whose columns are uncertain is drawn whole."""
        self._output.hold()
        size = self._output.get_size()
        height = self._app.layout.container.preferred_height(size.columns, size.rows).preferred
        was_unsteady, self._is_unsteady = self._is_unsteady, is_unsteady(self._above + self.buffer.text)
        before = self._app.renderer.last_rendered_screen
        if before is not None and (was_unsteady or self._is_unsteady or height < before.height):
            self._app.erase()

    def _layout(self) -> Layout:
        search = SearchToolbar()
        line = BufferControl(
            buffer=self.buffer,
            input_processors=[SteadyWidth()],
            search_buffer_control=search.control,
            preview_search=True,
        )
        typed = Window(
            line,
            wrap_lines=True,
            dont_extend_height=True,
            height=Dimension(min=1, max=MAX_INPUT_ROWS),
            get_line_prefix=lambda line, wrap: ANSI(self._prompt()) if line == wrap == 0 else "  ",
        )
        region = Window(FormattedTextControl(self._drawn_region), dont_extend_height=True, wrap_lines=False)
        foot = Window(
            FormattedTextControl(lambda: ANSI(steady(self._footer(self.width)))), height=1, dont_extend_height=True
        )
        return Layout(HSplit([region, typed, search, foot]), focused_element=typed)

    def _drawn_region(self) -> ANSI:
        size = self._output.get_size()
        rows = max(3, size.rows - self._typed_rows(size.columns) - 2)
        self._above = steady(self._region(size.columns, rows))
        return ANSI(self._above)

    def _typed_rows(self, columns: int) -> int:
        room = max(1, columns - 2)
        rows = sum(max(1, math.ceil(get_cwidth(each) / room)) for each in steady(self.buffer.text).split("\n"))
        return min(rows, MAX_INPUT_ROWS)


def _focus_reports(on_focus: Callable[[bool], None]) -> KeyBindings:
    keys = KeyBindings()
    for key, has_focus in ((Keys.F23, True), (Keys.F24, False)):
        keys.add(key)(lambda event, has_focus=has_focus: on_focus(has_focus))
    return keys


def _size() -> Size:
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        columns, rows = 80, 24
    return Size(rows=rows or 24, columns=columns or 80)


class FolderHistory(FileHistory):
    """Earlier input of one folder, out of a file for all of them. An entry names its folder in its comment; those of
    earlier versions name none and belong to all."""

    def __init__(self, path: Path, folder: str) -> None:
        super().__init__(str(path))
        self._folder = folder.replace("\n", " ")

    def load_history_strings(self) -> Iterable[str]:
        """The newest first."""
        found: list[str] = []
        text = Path(os.fsdecode(self.filename)).read_text(encoding="utf-8", errors="replace")
        for entry in text.split("\n# "):
            comment, _, rest = entry.partition("\n")
            folder = comment.partition(" in ")[2]
            typed = [each.removeprefix("+") for each in rest.split("\n") if each.startswith("+")]
            if typed and folder in ("", self._folder):
                found.append("\n".join(typed))
        return reversed(found)

    def store_string(self, string: str) -> None:
        typed = "".join(f"+{each}\n" for each in string.split("\n"))
        with open(self.filename, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"\n# {datetime.now().isoformat(sep=' ')} in {self._folder}\n{typed}")


def _history(path: Path, folder: str) -> FileHistory:
    """Earlier input, in a file for its owner only that stays below a maximum size."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600, exist_ok=True)
    path.chmod(0o600)
    if path.stat().st_size > _MAX_HISTORY_BYTES:
        newest = path.read_bytes()[-_MAX_HISTORY_BYTES // 2 :]
        # Entries begin with "# time" after an empty line; half of one would be read as another.
        path.write_bytes(newest[max(0, newest.find(b"\n\n# ")) :])
    return FolderHistory(path, folder)
