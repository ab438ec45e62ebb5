"""Decides calls by rules, grants and the mode of a session, and asks a person about what they leave open.

Every harness that runs makai's own tools uses it, so a call is judged alike whichever agent makes it.

A command is judged in the sandbox and, with an editor, in its terminal. It runs there when a person is asked, or has
allowed it there for the session. What runs unasked stays in the sandbox, and so does what a rule forbids without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final, Protocol

import msgspec

from makai.agent.host import Decide
from makai.core import session_events as ev
from makai.core.confinement import EDITOR_TERMINAL, Confinement
from makai.harness.base import Question, RunPort
from makai.tools.base import CallDescription
from makai.tools.permissions.judge import Verdict
from makai.tools.permissions.judging import judge_call
from makai.tools.permissions.looking import LookingCalls
from makai.tools.permissions.rules import PermissionRules

IN_TERMINAL: Final = "in a terminal of your editor, without the sandbox"


class ApprovedTerminals(Protocol):
    """The terminals of an editor, for commands that a person approved to run there."""

    async def offers_terminals(self) -> bool: ...
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
        if port.asked_confinement(call.call_id) == EDITOR_TERMINAL:
            opened = EDITOR_TERMINAL
        if (earlier := await port.earlier_decision(call, diffs, opened)) is not None:
            return _approved_for(editor, earlier, opened)
        verdict, opened = await _judged(port, rules, call, description, opened, is_own, editor)
        if verdict.decision != "deny" and description.problem:
            # The caller does not run it, so there is nothing to ask.
            return ev.ApprovalDecided(call_id=call.call_id, decision="approve", by=verdict.by)
        if verdict.decision == "ask":
            question = Question(
                call=call,
                title=f"{description.title} [{IN_TERMINAL}]" if opened.terminal else description.title,
                diffs=diffs,
                grant=verdict.grant,
                grants=verdict.grants,
                confinement=opened,
            )
            return _approved_for(editor, await ask(question), opened)
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
        return _approved_for(editor, decided, opened)

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
    if editor is None or call.name != "shell" or is_own or not await editor.offers_terminals():
        return verdict, opened
    unconfined = msgspec.structs.replace(description, confinement=EDITOR_TERMINAL)
    there = await judge_call(mode, rules, grants, call.name, unconfined, is_clients_own=is_own)
    return (there, EDITOR_TERMINAL) if verdict.decision == there.decision else (verdict, opened)


def _approved_for(
    editor: ApprovedTerminals | None, decided: ev.ApprovalDecided, opened: Confinement
) -> ev.ApprovalDecided:
    if editor is not None and opened.terminal and decided.decision == "approve":
        editor.approve_terminal(decided.call_id)
    return decided
