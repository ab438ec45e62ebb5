"""Questions of Codex as permission requests of ACP, and the answers that each option stands for. Pure.

Codex asks before commands and patches, for wider permissions, and before calls of MCP tools, which it words as a form.
Its own list of decisions leaves out some that it takes, so the same three are always offered: once, for the session,
and no. The answer to a question that is withdrawn ends the turn.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from makai.core.visible_text import exact_line, one_line
from makai.harness.codex.items import MAX_TITLE_LENGTH, CallShape, change_shape, command_shape, raw, shape_of
from makai.harness.codex.messages import (
    ApprovalRequest,
    ChangeKind,
    CodexItem,
    Elicitation,
    FileUpdate,
    OlderApproval,
)
from makai.wire import json_rpc
from makai.wire.acp import updates as wire
from makai.wire.acp.client_calls import PermissionOption
from makai.wire.json_rpc_errors import RpcError, decoded_params

OPTIONS: Final = (
    PermissionOption(option_id="once", name="Allow", kind="allow_once"),
    PermissionOption(option_id="session", name="Allow for this session", kind="allow_always"),
    PermissionOption(option_id="decline", name="Decline", kind="reject_once"),
)
_DECISIONS: Final[dict[str, Any]] = {
    "once": {"decision": "accept"},
    "session": {"decision": "acceptForSession"},
    "decline": {"decision": "decline"},
    "cancelled": {"decision": "cancel"},
}
_OLDER_DECISIONS: Final[dict[str, Any]] = {
    "once": {"decision": "approved"},
    "session": {"decision": "approved_for_session"},
    "decline": {"decision": {"denied": {"rejection": "The user declined this call."}}},
    "cancelled": {"decision": "abort"},
}
_MCP_ANSWERS: Final[dict[str, Any]] = {
    "once": {"action": "accept", "content": {}, "_meta": None},
    "session": {"action": "accept", "content": {}, "_meta": {"persist": "session"}},
    "decline": {"action": "decline", "content": None, "_meta": None},
    "cancelled": {"action": "cancel", "content": None, "_meta": None},
}
_REFUSED_FORM: Final[dict[str, Any]] = {"action": "decline", "content": None, "_meta": None}
_approval = msgspec.json.Decoder(ApprovalRequest)
_older = msgspec.json.Decoder(OlderApproval)
_elicitation = msgspec.json.Decoder(Elicitation)


class CodexQuestion(NamedTuple):
    """A question for a person."""

    thread_id: str
    call: wire.ToolCallFields
    answers: Mapping[str, Any]
    """The result for each option, and for "cancelled"."""
    is_own_call: bool
    """Whether no item of the turn reports what becomes of the call."""


class CodexRefusal(NamedTuple):
    """A request that is answered without asking."""

    result: Any
    notice: str


def question_of(
    method: str, params: msgspec.Raw | None, items: Mapping[str, CodexItem]
) -> CodexQuestion | CodexRefusal:
    """What a request of the server asks; `items` are the open items. `RpcError` for requests that makai does not
    answer, or cannot read."""
    match method:
        case "item/commandExecution/requestApproval":
            return _command(decoded_params(_approval, params), items)
        case "item/fileChange/requestApproval":
            return _change(decoded_params(_approval, params), items)
        case "item/permissions/requestApproval":
            return _permissions(decoded_params(_approval, params))
        case "execCommandApproval":
            asked = decoded_params(_older, params)
            shape = command_shape(shlex.join(asked.command), asked.cwd)
            return _older_question(asked, shape)
        case "applyPatchApproval":
            asked = decoded_params(_older, params)
            return _older_question(asked, _with_root(change_shape(_older_changes(asked)), asked.grant_root))
        case "mcpServer/elicitation/request":
            return _mcp(decoded_params(_elicitation, params), items)
        case _:
            raise RpcError(json_rpc.METHOD_NOT_FOUND, f"makai does not answer {method[:100]}.")


def _command(asked: ApprovalRequest, items: Mapping[str, CodexItem]) -> CodexQuestion:
    item = items.get(asked.item_id)
    command = asked.command or (item.command if item is not None else "")
    shape = command_shape(command, asked.cwd or (item.cwd if item is not None else ""))
    extra = {
        "network": asked.network_approval_context,
        "permissions": asked.additional_permissions,
        "input": True if asked.kind == "writeStdin" else None,
    }
    if given := {name: value for name, value in extra.items() if value is not None}:
        shape = shape._replace(raw_input=raw(msgspec.json.decode(shape.raw_input) | given))
    if host := (asked.network_approval_context or {}).get("host"):
        shape = shape._replace(title=exact_line(f"Connect to {host}: {shape.title}", MAX_TITLE_LENGTH))
    return _question(asked.thread_id, asked.approval_id or asked.item_id, shape, asked.reason, asked.approval_id)


def _change(asked: ApprovalRequest, items: Mapping[str, CodexItem]) -> CodexQuestion:
    item = items.get(asked.item_id)
    shape = shape_of(item) if item is not None and item.type == "fileChange" else change_shape(())
    return _question(asked.thread_id, asked.item_id, _with_root(shape, asked.grant_root), asked.reason, None)


def _permissions(asked: ApprovalRequest) -> CodexQuestion:
    wanted = asked.permissions or {}
    shape = CallShape("Use further permissions", "request_permissions", "other", raw({"permissions": wanted}))
    granted = {name: value for name, value in wanted.items() if value is not None}
    answers = {
        "once": {"permissions": granted, "scope": "turn"},
        "session": {"permissions": granted, "scope": "session"},
        "decline": {"permissions": {}, "scope": "turn"},
        "cancelled": {"permissions": {}, "scope": "turn"},
    }
    found = _question(asked.thread_id, f"permissions-{asked.item_id}", shape, asked.reason, "own")
    return found._replace(answers=answers)


def _mcp(asked: Elicitation, items: Mapping[str, CodexItem]) -> CodexQuestion | CodexRefusal:
    """Codex asks about a call of an MCP tool with a form that has no members. Other forms are the server's own."""
    meta = asked.meta or {}
    if meta.get("codex_approval_kind") != "mcp_tool_call":
        message = f"The MCP server {asked.server_name!r} asked for input, which was declined: {asked.message}"
        return CodexRefusal(_REFUSED_FORM, one_line(message, MAX_TITLE_LENGTH))
    given = meta.get("tool_params")
    for item in reversed(tuple(items.values())):
        is_this = item.type == "mcpToolCall" and item.server == asked.server_name
        if is_this and (given is None or msgspec.json.decode(item.arguments or b"null") in (given, None)):
            found = _question("", item.id, shape_of(item)._replace(kind="other"), None, None)
            return found._replace(answers=_MCP_ANSWERS)
    title = exact_line(asked.message or f"Use a tool of {asked.server_name}", MAX_TITLE_LENGTH)
    shape = CallShape(title, f"mcp__{asked.server_name}", "other", raw(given if isinstance(given, dict) else {}))
    return _question("", f"mcp-{asked.server_name}", shape, None, "own")._replace(answers=_MCP_ANSWERS)


def _older_question(asked: OlderApproval, shape: CallShape) -> CodexQuestion:
    call_id = asked.approval_id or asked.call_id
    found = _question(asked.conversation_id, call_id, shape, asked.reason, asked.approval_id)
    return found._replace(answers=_OLDER_DECISIONS)


def _older_changes(asked: OlderApproval) -> tuple[FileUpdate, ...]:
    return tuple(
        FileUpdate(
            path=path,
            kind=ChangeKind(type=str(change.get("type")), move_path=change.get("move_path")),
            diff=str(change.get("content") or change.get("unified_diff") or ""),
        )
        for path, change in asked.file_changes.items()
    )


def _with_root(shape: CallShape, root: str | None) -> CallShape:
    """A patch for which Codex also wants to write below `root` from now on."""
    if root is None:
        return shape
    given = msgspec.json.decode(shape.raw_input) | {"grantRoot": root}
    return shape._replace(
        title=exact_line(f"{shape.title}, and write below {root}", MAX_TITLE_LENGTH),
        kind="other",
        raw_input=raw(given),
        locations=(*shape.locations, wire.Location(path=root)),
    )


def _question(
    thread_id: str, call_id: str, shape: CallShape, reason: str | None, own_call: str | None
) -> CodexQuestion:
    title = exact_line(f"{shape.title} ({reason})", 2 * MAX_TITLE_LENGTH) if reason else shape.title
    call = wire.ToolCallFields(
        tool_call_id=call_id,
        title=title,
        name=shape.name,
        # Codex guesses what a command does. For a question, every command counts as one that changes something.
        kind="execute" if shape.name == "shell" else shape.kind,
        status="pending",
        content=shape.content,
        locations=shape.locations,
        raw_input=shape.raw_input,
    )
    return CodexQuestion(thread_id, call, _DECISIONS, own_call is not None)
