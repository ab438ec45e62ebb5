"""The slash commands /undo, /redo and /diff of a prompt in an editor. The answer is text for this client alone; what
was done is a notice of the session, which every client shows."""

from __future__ import annotations

from typing import Final

import msgspec

from makai.core.session_events import RestoreDirection
from makai.core.visible_text import shown
from makai.protocols.acp.slash_commands import DIFF, REDO, UNDO, PromptCommand, is_agents_own
from makai.sessions.requests import GetSessionDiff, RunCommand
from makai.sessions.restore_text import NO_CHANGES, parsed_restore, plan_lines, restore_command, session_diff_lines
from makai.sessions.service import Sessions
from makai.sessions.state import SessionState

_DIRECTIONS: Final[dict[str, RestoreDirection]] = {UNDO: "undo", REDO: "redo"}


async def undo_answer(sessions: Sessions, state: SessionState, session_id: str, command: PromptCommand) -> str | None:
    """Carry out one of these commands; None for any other, and for one that an external agent has itself. Files are
    restored after `/undo yes` only."""
    if is_agents_own(command.name, state.agent):
        return None
    if command.name == DIFF:
        lines = session_diff_lines(await sessions.dispatch(GetSessionDiff(session_id)))
        text = "\n".join(f"{line.gutter} {line.text}".rstrip() for line in lines)
        return f"```diff\n{shown(text)}\n```" if lines else NO_CHANGES
    direction = _DIRECTIONS.get(command.name)
    if direction is None:
        return None
    wanted, is_sure = parsed_restore(direction, command.argument)
    wanted = msgspec.structs.replace(wanted, session_id=session_id)
    plan = await sessions.dispatch(wanted)
    lines_of_plan = list(map(shown, plan_lines(plan)))
    if is_sure and not plan.is_refused:
        await sessions.dispatch(RunCommand(session_id, restore_command(wanted, plan)))
    elif not plan.is_refused:
        confirm = f"/{direction} {command.argument} yes".replace("  ", " ")
        lines_of_plan.append(f"Nothing is changed yet. Confirm it with `{confirm}`.")
    return "\n".join(lines_of_plan)
