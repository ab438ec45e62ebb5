"""The rules for undo and redo of file changes, a part of the engine: when files may be restored, and how it is logged.

`files_restoring` is durable before the first file is changed, and `files_restored` follows with what became of each.
No run starts in between. A process that dies in between leaves the first alone: the next one looks at the files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from makai.core import session_events as ev
from makai.core.errors import SessionRefused
from makai.core.visible_text import one_line
from makai.sessions import commands as cmd
from makai.sessions.draft import Draft
from makai.sessions.state import SessionState, same_fields

MAX_NAMED: Final = 20
_DONE: Final = {"create": "made again", "change": "restored", "remove": "removed", "keep": "as it was"}


def check_not_restoring(state: SessionState) -> None:
    if state.restoring is not None:
        raise SessionRefused("BUSY", "Files of this session are being restored.", hint="Try again in a moment.")


def restore_files(draft: Draft, command: cmd.RestoreFiles | cmd.SettleRestore) -> None:
    state = draft.state
    if isinstance(command, cmd.SettleRestore):
        if (begun := state.restoring) is not None:
            _settle(draft, begun, command)
        return
    if state.closed:
        raise SessionRefused("SESSION_CLOSED", "The session is closed.", hint="Fork it to continue.")
    if state.active_run is not None:
        raise SessionRefused("BUSY", "A run is active.", hint="Wait for it, or abort it first.")
    check_not_restoring(state)
    draft.log(same_fields(command, ev.FilesRestoring))


def _settle(draft: Draft, begun: ev.FilesRestoring, command: cmd.SettleRestore) -> None:
    draft.log(
        ev.FilesRestored(
            direction=begun.direction,
            message=begun.message,
            events=begun.events,
            files=command.files,
            problem=command.problem,
            token=begun.token,
        )
    )
    is_whole = all(file.outcome == "restored" for file in command.files)
    code = "files_restored" if is_whole else "files_not_restored"
    message = restored_text(begun.direction, command.files, command.problem)
    draft.log(ev.Notice(level="info" if is_whole else "warning", code=code, message=message))


def restored_text(direction: ev.RestoreDirection, files: Sequence[ev.RestoredFile], problem: str = "") -> str:
    """What an undo or a redo did, for people and for the model."""
    done = [f"{one_line(file.path)} ({_DONE[file.kind]})" for file in files if file.outcome == "restored"]
    left = [one_line(file.path) for file in files if file.outcome == "unchanged"]
    lost = [one_line(file.path) for file in files if file.outcome not in ("restored", "unchanged")]
    verb = "Undid" if direction == "undo" else "Redid"
    words = [f"{verb} the changes of {_counted(done)}." if done else f"Nothing was {verb[:-2].lower()}one."]
    if problem:
        words.append(problem)
    if left and done:
        words.append(f"Not restored: {_counted(left)}.")
    if lost:
        words.append(f"Changed by something else: {_counted(lost)}.")
    return " ".join(words)


def _counted(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more files" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more
