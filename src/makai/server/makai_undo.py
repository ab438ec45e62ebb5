"""Undo, redo and the file changes of a session, for clients of the Makai protocol."""

from __future__ import annotations

import msgspec

from makai.protocols.makai import agent_payloads as wire
from makai.sessions.requests import GetSessionDiff, PreviewRestore, RunCommand
from makai.sessions.restore_text import restore_command
from makai.sessions.service import Sessions


async def file_answer(
    sessions: Sessions, session_id: str, wanted: wire.FileRequest
) -> wire.AgentRestoreResult | wire.AgentDiffResult:
    """Carry it out. Raises `SessionRefused` when there is nothing to restore, a file was changed since, or the plan is
    not the one that the client names."""
    if isinstance(wanted, wire.AgentDiff):
        diffs = await sessions.dispatch(GetSessionDiff(session_id))
        return wire.AgentDiffResult(msgspec.convert(diffs, tuple[wire.FileChange, ...], from_attributes=True))
    preview = PreviewRestore(session_id, wanted.direction, wanted.count, wanted.to, wanted.paths)
    plan = await sessions.dispatch(preview)
    if not wanted.preview:
        command = restore_command(preview, plan)
        if wanted.plan_id:
            command = msgspec.structs.replace(command, plan_id=wanted.plan_id)
        await sessions.dispatch(RunCommand(session_id, command))
    return wire.AgentRestoreResult(
        restored=not wanted.preview,
        direction=plan.direction,
        message=plan.message,
        text=plan.text,
        files=msgspec.convert(plan.files, tuple[wire.FileRestore, ...], from_attributes=True),
        notes=plan.notes,
        plan_id=plan.plan_id,
    )
