"""Decides calls by rules, grants and the mode of a session, and asks a person about what they leave open.

Every harness that runs makai's own tools uses it, so a call is judged alike whichever agent makes it.

A command is judged in the sandbox and, with an editor, in its terminal. It runs there when a person is asked, or has
allowed it there for the session. What runs unasked stays in the sandbox, and so does what a rule forbids without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

import msgspec

from makai.agent.host import Decide
from makai.core import session_events as ev
from makai.core.confinement import Confinement, terminal_text
from makai.harness.base import Question, RunPort
from makai.tools.base import CallDescription
from makai.tools.permissions.judge import Verdict
from makai.tools.permissions.judging import judge_call
from makai.tools.permissions.looking import LookingCalls
from makai.tools.permissions.rules import PermissionRules


class ApprovedTerminals(Protocol):
    """The terminals of an editor, for commands that a person approved to run there."""

    async def terminal_confinement(self) -> Confinement | None: ...
    def approve_terminal(self, call_id: str) -> None: ...


def decider(
    port: RunPort,
    rules: PermissionRules,
    looking: LookingCalls,
    own_tools: Collection[str] = (),
    *,
    ask: Callable[[Question], Awaitable[ev.ApprovalDecided]] | None = None,
    report: Callable[[ev.ApprovalDecided], Awaitable[None]] | None = None,
    editor: ApprovedTerminals | None = None,
) -> Decide:
    """`own_tools` are the names of tools that their client carries out. `ask` and `report` take the place of
    `port.decide` and `port.emit` where a call is logged only when there is something to ask or to report about it."""
    ask, report = ask or port.decide, report or port.emit

    async def decide(
        call: ev.ToolCalled, description: CallDescription, diffs: tuple[ev.FileDiff, ...]
    ) -> ev.ApprovalDecided:
        is_own = call.name in own_tools
        opened = description.confinement
        if rules.asks_every_command and description.kind == "execute" and not is_own:
            opened = Confinement(unsandboxed=True)
        if (asked := port.asked_confinement(call.call_id)) is not None and asked.terminal:
            opened = asked
        if (earlier := await port.earlier_decision(call, diffs, opened)) is not None:
            return await _approved_for(editor, earlier, opened)
        verdict, opened = await _judged(port, rules, call, description, opened, is_own, editor)
        if verdict.decision != "deny" and description.problem:
            # The caller does not run it, so there is nothing to ask.
            return ev.ApprovalDecided(call_id=call.call_id, decision="approve", by=verdict.by)
        if verdict.decision == "ask":
            question = Question(
                call=call,
                title=f"{description.title} [{terminal_text(opened)}]" if opened.terminal else description.title,
                diffs=diffs,
                grant=verdict.grant,
                grants=verdict.grants,
                confinement=opened,
            )
            return await _approved_for(editor, await ask(question), opened)
        if verdict.looks_at is not None:
            looking.add(call.call_id, verdict.looks_at)
        decided = ev.ApprovalDecided(
            call_id=call.call_id,
            decision="approve" if verdict.decision == "allow" else "deny_continue",
            by=verdict.by,
            reason=verdict.reason,
        )
        if verdict.decision == "deny" or verdict.by == "rule":
            await report(decided)
        return await _approved_for(editor, decided, opened)

    return decide


async def _judged(
    port: RunPort,
    rules: PermissionRules,
    call: ev.ToolCalled,
    description: CallDescription,
    opened: Confinement,
    is_own: bool,
    editor: ApprovedTerminals | None,
) -> tuple[Verdict, Confinement]:
    """The verdict, and what the call opens when it runs."""
    grants = await port.grants()
    mode = port.session.mode  # now: it may change during a run
    verdict = await judge_call(mode, rules, grants, call.name, description, is_clients_own=is_own)
    terminal = await editor.terminal_confinement() if editor and call.name == "shell" and not is_own else None
    if terminal is None:
        return verdict, opened
    unconfined = msgspec.structs.replace(description, confinement=terminal)
    there = await judge_call(mode, rules, grants, call.name, unconfined, is_clients_own=is_own)
    return (there, terminal) if verdict.decision == there.decision else (verdict, opened)


async def _approved_for(
    editor: ApprovedTerminals | None, decided: ev.ApprovalDecided, opened: Confinement
) -> ev.ApprovalDecided:
    """What was approved for a sandboxed terminal does not run in the terminal of another editor, which came since."""
    if editor is None or not opened.terminal or decided.decision != "approve":
        return decided
    if not opened.terminal_sandbox or await editor.terminal_confinement() == opened:
        editor.approve_terminal(decided.call_id)
    return decided
