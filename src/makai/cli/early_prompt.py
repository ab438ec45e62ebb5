"""The prompt of a chat while everything else is still being loaded.

It is drawn before any other module is imported, so importing this one must stay cheap. From `show` to `close` the
terminal echoes nothing itself: what is typed is drawn here as far as it fits on the line, and kept for the chat, whose
first keys it becomes. So no key is lost and none appears twice. When the chat cannot start, the text is printed, to
be copied. Ctrl-C still interrupts the process. SIGTERM and SIGHUP end it with a restored terminal, here until the event
loop takes them over (`console.run_async`).
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # type checkers take it for true, and `typing` need not be loaded
if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Thread
    from types import TracebackType
    from typing import Any

MARK = "> "
MAX_TYPED = 1_000_000
"""What is typed or pasted beyond this many bytes waits in the terminal."""
STOP_S = 1.0
NOT_SENT = "makai: the chat did not start, so this was not sent:"
_ERASE = "\r\x1b[J"
_PASTES_ARE_MARKED, _PASTES_ARE_NOT_MARKED = "\x1b[?2004h", "\x1b[?2004l"
"""Without the marks, each line of a pasted text would be sent as a message."""


def can_redraw(source: int = 0, target: int = 1) -> bool:
    """Whether these are a terminal on which a line can be drawn again."""
    return os.isatty(source) and os.isatty(target) and os.environ.get("TERM", "dumb") != "dumb"


class EarlyPrompt:
    """Reads the terminal `source` in a thread and draws on `target`. Before `show`, all other methods do nothing."""

    def __init__(self, source: int = 0, target: int = 1) -> None:
        self._source = source
        self._target = target
        self._before: list[Any] | None = None
        """The settings of the terminal that `close` restores; None while it has them."""
        self._typed = b""
        self._is_drawn = False
        self._reader: Thread | None = None
        """None also at first, when a signal may end the process already."""
        self._stop = -1

    def __enter__(self) -> EarlyPrompt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if kind is None or issubclass(kind, Exception):  # neither Ctrl-C nor a signal
            self.print_unsent()

    def show(self) -> None:
        """Draw the prompt, unless this was done already, or cannot be."""
        if self._before is not None or not can_redraw(self._source, self._target):
            return
        self._take_signals()
        self._silence()
        self._is_drawn = True
        self._draw()
        from threading import Thread  # after the prompt is visible

        stopped, self._stop = os.pipe()
        reader = Thread(target=self._read, args=(stopped,), name="makai-early-prompt", daemon=True)
        reader.start()
        self._reader = reader

    def hide(self) -> None:
        """Erase the prompt, so that something else can be printed in its place. What is typed from now on waits in the
        terminal."""
        reader, self._reader = self._reader, None
        if reader is not None:
            os.close(self._stop)
            reader.join(STOP_S)
        if self._is_drawn:
            self._is_drawn = False
            self._write(_ERASE)

    def taken(self) -> bytes:
        """What was typed, once. A single Esc at its end is left out: it could be taken for the beginning of a key."""
        self.hide()
        typed, self._typed = self._typed, b""
        return typed.removesuffix(b"\x1b")

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Give the terminal back for a question. What was typed before belongs to the chat and does not answer it."""
        if self._before is None:
            yield
            return
        self.hide()
        self._typed += self._pending()
        self._restore()
        yield
        self._silence()

    def close(self) -> None:
        """Erase the prompt and restore the terminal."""
        self.hide()
        if self._before is not None:
            self._restore()
            self._release_signals()

    def print_unsent(self) -> None:
        """Print what was typed and not taken, on a terminal that is restored."""
        if text := typed_text(self.taken()):
            self._write(f"{NOT_SENT}\n{text}\n")

    def _take_signals(self) -> None:
        """Let signals that would end the process at once raise SystemExit, whose way out passes `close`."""
        import signal

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # ignored under `nohup`
                signal.signal(number, _end)

    def _release_signals(self) -> None:
        import signal

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is _end:
                signal.signal(number, signal.SIG_DFL)

    def _silence(self) -> None:
        import termios

        self._before = termios.tcgetattr(self._source)
        quiet = termios.tcgetattr(self._source)
        quiet[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON | termios.IXOFF)
        quiet[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        quiet[6][termios.VMIN], quiet[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._source, termios.TCSANOW, quiet)
        # Until now the terminal made a line feed of the Enter key.
        self._typed += self._pending().replace(b"\n", b"\r")
        self._write(_PASTES_ARE_MARKED)

    def _restore(self) -> None:
        before, self._before = self._before, None
        if before is None:
            return
        import termios

        self._write(_PASTES_ARE_NOT_MARKED)
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(self._source, termios.TCSADRAIN, before)

    def _pending(self) -> bytes:
        """Take what was typed, without waiting."""
        from select import select

        return os.read(self._source, MAX_TYPED) if select([self._source], [], [], 0)[0] else b""

    def _read(self, stopped: int) -> None:
        from select import select

        with suppress(OSError):  # the terminal is gone, which the chat finds out by itself
            while len(self._typed) < MAX_TYPED and stopped not in select([self._source, stopped], [], [])[0]:
                if not (data := os.read(self._source, 4096)):
                    break
                self._typed += data
                self._draw()
        os.close(stopped)

    def _draw(self) -> None:
        mark = MARK if os.environ.get("NO_COLOR") else f"\x1b[1;36m{MARK}\x1b[0m"
        self._write(f"{_ERASE}{mark}{visible(self._typed, self._columns() - len(MARK) - 1)}")

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._target).columns or 80
        except OSError:
            return 80

    def _write(self, text: str) -> None:
        with suppress(OSError):
            os.write(self._target, text.encode())


def _end(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def visible(typed: bytes, room: int) -> str:
    """The end of the text on the line, up to the first key that is neither a character nor Backspace: the chat shows
    what that key does."""
    text = ""
    for character in typed[:4096].decode(errors="ignore"):
        if character in "\b\x7f":
            text = text[:-1]
        elif character.isprintable():
            text += character
        else:
            break
    room = room if text.isascii() else room // 2  # other characters may be two columns wide
    return text[-room:] if room > 0 else ""


def typed_text(typed: bytes) -> str:
    """The lines that these keys have written. Keys that move or do something else are left out."""
    if not typed:
        return ""
    import re  # only a start that failed needs it

    text = ""
    for character in re.sub(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|O.|.)", "", typed.decode(errors="ignore"), flags=re.DOTALL):
        if character in "\b\x7f":
            text = text[:-1]
        elif character in "\r\n":
            text += "\n"
        elif character == "\t" or character.isprintable() or character in _JOINERS:
            text += character
    return text.strip()


_JOINERS = "\u200c\u200d"
"""Invisible parts of words and of emoji."""
EARLY_PROMPT = EarlyPrompt()
"""That of this process, on its own terminal."""
