"""The terminal: a transcript that scrolls, a status area below it that is redrawn, and a line to type in.

It uses neither an alternate screen nor cursor reports, so it works over slow lines and inside tmux, and the transcript
stays in the scrollback. Every frame is one write, marked as one synchronised update, so that nothing flickers.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import Dimension, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

FRAMES_PER_S: Final = 15
MAX_INPUT_ROWS: Final = 10
ESCAPE_S: Final = 0.05
"""How long a lone Esc may be the beginning of another key."""
_BEGIN_FRAME: Final = "\x1b[?2026h"
_END_FRAME: Final = "\x1b[?2026l"
_MAX_HISTORY_BYTES: Final = 1_000_000


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


class Screen:
    def __init__(
        self,
        region: Callable[[int, int], str],
        footer: Callable[[int], str],
        prompt: Callable[[], str],
        keys: KeyBindings,
        *,
        history: Path,
        colour: bool,
        on_typed: Callable[[], None],
    ) -> None:
        self._region = region
        self._footer = footer
        self._prompt = prompt
        self._output = _SteadyOutput(sys.stdout, _size, term=None, enable_cpr=False)
        self.buffer = Buffer(multiline=True, history=_history(history), on_text_changed=lambda _: on_typed())
        self._app: Application[int] = Application(
            layout=self._layout(),
            key_bindings=keys,
            output=self._output,
            style=Style([]),
            include_default_pygments_style=False,
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
            min_redraw_interval=1 / FRAMES_PER_S,
            erase_when_done=True,
            before_render=lambda _: self._begin_frame(),
            after_render=lambda _: self._output.release(),
        )
        self._app.ttimeoutlen = ESCAPE_S
        self._app.timeoutlen = ESCAPE_S

    @property
    def width(self) -> int:
        return self._output.get_size().columns

    async def run(self) -> int:
        """Run until `leave`; returns its code."""
        try:
            return await self._app.run_async()
        finally:
            self._output.release()

    def leave(self, code: int) -> None:
        if self._app.is_running:
            self._app.exit(result=code)

    def print(self, text: str) -> None:
        if not text:
            self.refresh()
            return
        with self._output.one_frame():
            if self._app.is_running:
                self._app.renderer.erase()
            self._output.write_raw(text.replace("\n", "\r\n"))
            if self._app.is_running:
                with set_app(self._app):
                    self._app.render_counter += 1
                    self._app.renderer.render(self._app, self._app.layout)

    def refresh(self) -> None:
        if self._app.is_running:
            self._app.invalidate()

    def bell(self) -> None:
        self._output.bell()

    def suspend(self) -> None:
        self._app.suspend_to_background()

    def _begin_frame(self) -> None:
        """A status area that shrank leaves no empty lines behind."""
        self._output.hold()
        before = self._app.renderer.last_rendered_screen
        if before is None:
            return
        size = self._output.get_size()
        if self._app.layout.container.preferred_height(size.columns, size.rows).preferred < before.height:
            self._app.renderer.erase()

    def _layout(self) -> Layout:
        search = SearchToolbar()
        line = BufferControl(buffer=self.buffer, search_buffer_control=search.control, preview_search=True)
        typed = Window(
            line,
            wrap_lines=True,
            dont_extend_height=True,
            height=Dimension(min=1, max=MAX_INPUT_ROWS),
            get_line_prefix=lambda line, wrap: ANSI(self._prompt()) if line == wrap == 0 else "  ",
        )
        region = Window(FormattedTextControl(self._drawn_region), dont_extend_height=True, wrap_lines=False)
        foot = Window(FormattedTextControl(lambda: ANSI(self._footer(self.width))), height=1, dont_extend_height=True)
        return Layout(HSplit([region, typed, search, foot]), focused_element=typed)

    def _drawn_region(self) -> ANSI:
        size = self._output.get_size()
        return ANSI(self._region(size.columns, max(3, size.rows - self._typed_rows(size.columns) - 2)))

    def _typed_rows(self, columns: int) -> int:
        room = max(1, columns - 2)
        rows = sum(max(1, math.ceil(len(each) / room)) for each in self.buffer.text.split("\n"))
        return min(rows, MAX_INPUT_ROWS)


def _size() -> Size:
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        columns, rows = 80, 24
    return Size(rows=rows or 24, columns=columns or 80)


def _history(path: Path) -> FileHistory:
    """Earlier input, in a file for its owner only that stays below a maximum size."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600, exist_ok=True)
    path.chmod(0o600)
    if path.stat().st_size > _MAX_HISTORY_BYTES:
        newest = path.read_bytes()[-_MAX_HISTORY_BYTES // 2 :]
        # Entries begin with "# time" after an empty line; half of one would be read as another.
        path.write_bytes(newest[max(0, newest.find(b"\n\n# ")) :])
    return FileHistory(str(path))
