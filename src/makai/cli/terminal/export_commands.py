"""The slash commands that take something out of the session: /export writes a file, /copy fills the clipboard."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Final

from makai.cli.session_export import exported, read_records, write
from makai.cli.terminal.chat_session import ChatSession
from makai.cli.terminal.styled_text import Piece, note
from makai.core.errors import InvalidRequest
from makai.core.messages import AssistantMessage
from makai.core.visible_text import one_line

MAX_COPIED_BYTES: Final = 74_994
"""What xterm and tmux take at once; others take more."""


async def export(chat: ChatSession, argument: str) -> list[Piece]:
    """Write the session as Markdown, or as JSON lines when the name of the file says so."""
    session_id = chat.the_session()
    path = _free_path(chat.cwd or os.getcwd(), argument or f"makai-{session_id[:8]}.md")
    found = await read_records(chat.sessions, session_id)
    await asyncio.to_thread(write, exported(found, path.suffix[1:]), path)
    return [note(f"Wrote {len(found.records):,} events to {one_line(str(path))}.", "")]


def _free_path(folder: str, name: str) -> Path:
    path = Path(folder) / Path(name).expanduser()
    if path.suffix not in (".md", ".jsonl"):
        raise InvalidRequest(f"{one_line(path.name)} says no format.", hint="End its name with .md or .jsonl.")
    if path.exists():
        raise InvalidRequest(f"{one_line(str(path))} exists already.", hint="Name another file: /export FILE.")
    return path


async def copy(chat: ChatSession, argument: str) -> list[Piece]:
    """Hand the last answer to the user interface, which knows the clipboard."""
    history = await chat.conversation()
    answers = [message.text() for message in history.messages() if isinstance(message, AssistantMessage)]
    text = next((text for text in reversed(answers) if text.strip()), "")
    if not text:
        raise InvalidRequest("there is no answer to copy yet.")
    if len(text.encode()) > MAX_COPIED_BYTES:
        raise InvalidRequest("the answer is too long for the clipboard of a terminal.", hint="Use /export.")
    chat.copied = text
    return []


def clipboard_sequence(text: str) -> str:
    """The control sequence by which a terminal fills the clipboard, also over ssh (OSC 52)."""
    return f"\x1b]52;c;{base64.b64encode(text.encode()).decode('ascii')}\x07"
