"""Judges a call; a shell command is read in a process of its own, and what that process does not survive is asked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

import msgspec

from makai.aio.child_process import ChildProcess
from makai.core.session_events import PermissionMode
from makai.tools.base import CallDescription
from makai.tools.launching import JUDGE, launcher
from makai.tools.permissions.judge import PLAN_REASON, Verdict, judge
from makai.tools.permissions.rules import PermissionRules, parse_rule

MAX_COMMAND: Final = 1024 * 1024
DEADLINE_S: Final = 5.0
"""The limit is the worker's processor time; this one is for a machine that gives it none."""
UNREADABLE_REASON: Final = "This command is too long or too complicated to be read."


class JudgeRequest(msgspec.Struct, frozen=True, kw_only=True):
    mode: PermissionMode
    rules: PermissionRules
    grants: tuple[tuple[str, bool], ...]
    tool_name: str
    description: CallDescription


async def judge_call(
    mode: PermissionMode,
    rules: PermissionRules,
    grants: Sequence[tuple[str, bool]],
    tool_name: str,
    description: CallDescription,
    *,
    is_clients_own: bool,
) -> Verdict:
    """`permissions.judge` within bounds of time and memory, whatever a model wrote."""
    if description.kind != "execute" or is_clients_own:
        return judge(mode, rules, grants, tool_name, description, is_clients_own=is_clients_own)
    for text, _ in grants:
        parse_rule(text)  # one that cannot be read is an error of its own, not of the command
    if len(description.subject) <= MAX_COMMAND:
        # The title is for people, and as long as the command.
        bare = msgspec.structs.replace(description, title="")
        request = JudgeRequest(mode=mode, rules=rules, grants=tuple(grants), tool_name=tool_name, description=bare)
        verdict = await _judged_apart(request)
        if verdict is not None:
            return verdict
    if mode == "plan":
        return Verdict(decision="deny", by="mode", reason=PLAN_REASON)
    return Verdict(decision="ask", by="mode", reason=UNREADABLE_REASON)


async def _judged_apart(request: JudgeRequest) -> Verdict | None:
    """None when the worker did not come to an end."""
    try:
        argv = [JUDGE, msgspec.json.encode(request).decode()]
    except UnicodeEncodeError:  # half of a surrogate pair
        return None
    worker = await ChildProcess.start(argv, env={}, cwd="/", launcher=launcher(), takes_input=False)
    heard = b""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while chunk := await worker.read():
                heard += chunk
            return msgspec.json.decode(heard, type=Verdict) if await worker.wait() == os.EX_OK else None
    except TimeoutError:
        return None
    finally:
        await worker.stop()
