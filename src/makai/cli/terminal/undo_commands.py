"""The slash commands /undo, /redo and /diff of a chat. A preview is shown first; one key, or the word "yes" after the
command, confirms it."""

from __future__ import annotations

from typing import Final

import msgspec

from makai.cli.terminal.chat_session import ChatSession, Confirmation
from makai.cli.terminal.styled_text import Line, Lines, Piece, Span, Style, line, note
from makai.core.approval_text import ExactLine
from makai.core.session_events import RestoreDirection
from makai.core.visible_text import shown
from makai.sessions.requests import GetSessionDiff, RunCommand
from makai.sessions.restore_text import NO_CHANGES, parsed_restore, plan_lines, restore_command, session_diff_lines

_STYLES: Final[dict[str, Style]] = {"added": "added", "removed": "removed", "file": "bold"}


async def undo(chat: ChatSession, argument: str) -> list[Piece]:
    return await _restore(chat, "undo", argument)


async def redo(chat: ChatSession, argument: str) -> list[Piece]:
    return await _restore(chat, "redo", argument)


async def diff(chat: ChatSession, argument: str) -> list[Piece]:
    found = await chat.sessions.dispatch(GetSessionDiff(chat.the_session()))
    if not found:
        return [note(NO_CHANGES, "")]
    return [Lines(lines=tuple(map(_diff_line, session_diff_lines(found))))]


async def _restore(chat: ChatSession, direction: RestoreDirection, argument: str) -> list[Piece]:
    wanted, is_sure = parsed_restore(direction, argument)
    wanted = msgspec.structs.replace(wanted, session_id=chat.the_session())
    plan = await chat.sessions.dispatch(wanted)
    pieces: list[Piece] = [note("\n".join(map(shown, plan_lines(plan))), "warn" if plan.is_refused else "")]

    async def confirmed() -> None:
        await chat.sessions.dispatch(RunCommand(wanted.session_id, restore_command(wanted, plan)))

    if is_sure and not plan.is_refused:
        await confirmed()
    elif not plan.is_refused:
        chat.confirmation = Confirmation(f"{direction.capitalize()} this?", confirmed)
    return pieces


def _diff_line(one: ExactLine) -> Line:
    return line(Span(f"{one.gutter} " if one.gutter else "", "dim"), Span(one.text, _STYLES.get(one.kind, "dim")))
