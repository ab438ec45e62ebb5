"""Approvals as `session/request_permission`, and its answers as decisions.

The options follow from the logged question alone, so an answer is looked up in the same table that the question was
made from, by its id and never by its position. Everything that is not an offered option is a rejection (ACP-PERM-006).
An option says in its name which rule it sets. "Always" is this session unless the name says more; a call without the
sandbox is never remembered beyond it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Final

import msgspec

from makai.core import session_events as ev
from makai.core.approval_text import approval_text
from makai.core.confinement import opened_text
from makai.core.visible_text import exact_line
from makai.protocols.acp.tool_calls import diff_items, location_items, raw_json, tool_kind
from makai.sessions import commands as cmd
from makai.wire.acp.client_calls import (
    CancelledOutcome,
    PermissionKind,
    PermissionOption,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SelectedOutcome,
)
from makai.wire.acp.common import TextBlock
from makai.wire.acp.updates import ContentItem, ToolCallContent, ToolCallFields

MAX_NAME: Final = 200
MAX_TITLE: Final = 1_000
_BACKTICKS: Final = re.compile("`+")


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    """An option and what choosing it means."""

    option: PermissionOption
    scope: ev.GrantScope = "once"
    grant: str = ""
    agent_option_id: str = ""

    @property
    def is_allowed(self) -> bool:
        return self.option.kind.startswith("allow")


def permission_request(
    session_id: str, requested: ev.ApprovalRequested, call: ev.ToolCalled | None
) -> RequestPermissionRequest:
    """The question about a call that was announced under the same id (ACP-PERM-001)."""
    arguments = requested.arguments_json if call is None else call.raw_input_json or call.arguments_json
    return RequestPermissionRequest(
        session_id=session_id,
        tool_call=ToolCallFields(
            tool_call_id=requested.call_id,
            title=exact_line(requested.title or (call.title if call is not None else "") or requested.name, MAX_TITLE),
            kind=tool_kind("other" if call is None else call.kind),
            status="pending",
            content=tuple(_content(requested)),
            locations=location_items(call.locations) if call is not None and call.locations else None,
            raw_input=raw_json(arguments),
        ),
        options=tuple(choice.option for choice in _choices(requested)),
    )


def decision_for(
    answer: RequestPermissionResponse | None,
    requested: ev.ApprovalRequested,
    *,
    by: str,
    run_id: str | None = None,
) -> cmd.ApproveCall | cmd.DenyCall | cmd.Abort:
    """What an answer means; None stands for an error or an answer that cannot be read. With `run_id` a cancellation
    stops only that run, not one that began in the meantime."""
    outcome = None if answer is None else answer.outcome
    if isinstance(outcome, CancelledOutcome):
        return cmd.Abort(now=0, run_id=run_id, by=by, reason="cancelled in the editor")
    chosen = outcome.option_id if isinstance(outcome, SelectedOutcome) else None
    choice = next((choice for choice in _choices(requested) if choice.option.option_id == chosen), None)
    if choice is None:
        reason = "The client gave no usable answer."
        return cmd.DenyCall(now=0, call_id=requested.call_id, by=by, reason=reason)
    if choice.is_allowed:
        return cmd.ApproveCall(
            now=0,
            call_id=requested.call_id,
            by=by,
            scope=choice.scope,
            digest=requested.digest,
            grant=choice.grant,
            option_id=choice.agent_option_id,
        )
    return cmd.DenyCall(
        now=0,
        call_id=requested.call_id,
        by=by,
        scope=choice.scope,
        grant=choice.grant,
        option_id=choice.agent_option_id,
    )


def _choices(requested: ev.ApprovalRequested) -> tuple[_Choice, ...]:
    return tuple(_of_agent(requested) if requested.options else _of_makai(requested))


def _of_makai(requested: ev.ApprovalRequested) -> Iterator[_Choice]:
    """All four kinds, when a rule can cover later calls (ACP-PERM-002); else the two that decide this call only."""
    yield _choice("allow_once", "allow_once", "Allow once")
    rule, offered = requested.grant, {grant.rule: grant for grant in requested.grants}
    shown = exact_line(rule, MAX_NAME)
    if rule:
        yield _choice("allow_always", "allow_always", f"Always allow {shown} in this session", "session", rule)
        if (widest := next(reversed(offered), rule)) != rule:
            name = f"Always allow {exact_line(widest, MAX_NAME)} in this session"
            yield _choice("allow_always_wider", "allow_always", name, "session", widest)
        session_only = requested.confinement.unsandboxed or (rule in offered and offered[rule].session_only)
        if not session_only:
            name = f"Always allow {shown} in this folder, also in later sessions"
            yield _choice("allow_always_saved", "allow_always", name, "always", rule)
    yield _choice("reject_once", "reject_once", "Reject")
    if rule:
        yield _choice("reject_always", "reject_always", f"Always reject {shown} in this session", "session", rule)


def _of_agent(requested: ev.ApprovalRequested) -> Iterator[_Choice]:
    """The options of an external agent as it offers them, and a way to reject when it has none."""
    unique: dict[str, ev.ApprovalOption] = {}
    for option in requested.options:
        unique.setdefault(option.id, option)
    for option in unique.values():
        scope: ev.GrantScope = "session" if option.kind.endswith("always") else "once"
        name = exact_line(option.label or option.id, MAX_NAME)
        shown = PermissionOption(option_id=option.id, name=name, kind=option.kind)
        yield _Choice(option=shown, scope=scope, agent_option_id=option.id)
    if not any(option.kind.startswith("reject") for option in unique.values()):
        free = next(name for name in ("reject_once", "makai_reject", "makai_reject_once") if name not in unique)
        yield _choice(free, "reject_once", "Reject")


def _choice(option_id: str, kind: PermissionKind, name: str, scope: ev.GrantScope = "once", grant: str = "") -> _Choice:
    return _Choice(option=PermissionOption(option_id=option_id, name=name, kind=kind), scope=scope, grant=grant)


def _content(requested: ev.ApprovalRequested) -> Iterator[ToolCallContent]:
    """The changes, the exact command or arguments, and what is opened beyond the sandbox."""
    yield from diff_items(requested.diffs)
    text = approval_text(requested)
    blocks = takewhile(lambda block: block.kind != "file", text.blocks)  # changes follow; they are shown as such
    said = msgspec.structs.replace(text, blocks=tuple(block for block in blocks if block.kind != "opened"))
    lines = [line.text for line in said.excerpt()]
    if lines and not (requested.options and len(lines) == 1):
        yield _text(_fenced("\n".join(lines)))
    if opened := opened_text(requested.confinement):
        listed = "\n".join(f"- {exact_line(line)}" for line in opened)
        yield _text(f"Beyond the sandbox of this session:\n{listed}")


def _text(text: str) -> ToolCallContent:
    return ContentItem(content=TextBlock(text=text))


def _fenced(text: str) -> str:
    """Clients render Markdown: inside a fence a command is shown as it is, whatever backticks it has."""
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
