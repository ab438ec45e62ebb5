"""Messages of `codex app-server` that makai reads, as values.

Members that are not named here are ignored. Where the server's versions differ, a member has a default: a message that
still cannot be read is passed over and counted (`translator.Translator.drift`).
"""

from __future__ import annotations

from typing import Any

import msgspec


class CodexMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of everything here."""


class CommandAction(CodexMessage, frozen=True, kw_only=True):
    type: str
    path: str | None = None


class ChangeKind(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    """add, delete or update."""
    move_path: str | None = None


class FileUpdate(CodexMessage, frozen=True, kw_only=True):
    path: str
    kind: ChangeKind
    diff: str
    """The content of an added or deleted file, the hunks of a changed one."""


class ItemError(CodexMessage, frozen=True, kw_only=True):
    message: str = ""


class CodexItem(CodexMessage, frozen=True, kw_only=True):
    """An item of a turn. Which members it has follows from its type."""

    type: str
    id: str
    status: str = ""
    text: str = ""
    command: str = ""
    cwd: str = ""
    process_id: str | None = None
    command_actions: tuple[CommandAction, ...] = ()
    aggregated_output: str | None = None
    exit_code: int | None = None
    duration_ms: float | None = None
    changes: tuple[FileUpdate, ...] = ()
    server: str = ""
    namespace: str | None = None
    tool: str = ""
    arguments: msgspec.Raw = msgspec.Raw()
    read_only_hint: bool | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: ItemError | None = None
    content_items: tuple[dict[str, Any], ...] | None = None
    success: bool | None = None
    query: str = ""
    path: str = ""
    saved_path: str | None = None
    summary: tuple[str, ...] = ()
    content: msgspec.Raw = msgspec.Raw()
    prompt: str | None = None
    receiver_thread_ids: tuple[str, ...] = ()


class ItemNotification(CodexMessage, frozen=True, kw_only=True):
    thread_id: str
    item: CodexItem


class ItemTextDelta(CodexMessage, frozen=True, kw_only=True):
    thread_id: str
    item_id: str
    delta: str


class SummaryPart(CodexMessage, frozen=True, kw_only=True):
    thread_id: str
    item_id: str
    summary_index: int


class PatchUpdated(CodexMessage, frozen=True, kw_only=True):
    thread_id: str
    item_id: str
    changes: tuple[FileUpdate, ...]


class CodexPlanStep(CodexMessage, frozen=True, kw_only=True):
    step: str
    status: str


class PlanNotification(CodexMessage, frozen=True, kw_only=True):
    thread_id: str
    plan: tuple[CodexPlanStep, ...]


class TokenCounts(CodexMessage, frozen=True, kw_only=True):
    total_tokens: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0


class TokenUsage(CodexMessage, frozen=True, kw_only=True):
    total: TokenCounts
    last: TokenCounts
    model_context_window: int | None = None


class UsageUpdated(CodexMessage, frozen=True, kw_only=True):
    thread_id: str
    token_usage: TokenUsage


class TurnFailure(CodexMessage, frozen=True, kw_only=True):
    message: str = ""
    codex_error_info: str | dict[str, Any] | None = None
    additional_details: str | None = None


class ErrorNotification(CodexMessage, frozen=True, kw_only=True):
    error: TurnFailure
    will_retry: bool = False
    thread_id: str = ""


class CodexTurn(CodexMessage, frozen=True, kw_only=True):
    id: str
    status: str
    error: TurnFailure | None = None


class TurnNotification(CodexMessage, frozen=True, kw_only=True):
    thread_id: str
    turn: CodexTurn


class Warned(CodexMessage, frozen=True, kw_only=True):
    """warning, guardianWarning and configWarning."""

    message: str = ""
    summary: str = ""
    details: str | None = None


class NameUpdated(CodexMessage, frozen=True, kw_only=True):
    thread_id: str
    thread_name: str | None = None


class ModelRerouted(CodexMessage, frozen=True, kw_only=True):
    from_model: str
    to_model: str


class McpStartup(CodexMessage, frozen=True, kw_only=True):
    name: str
    status: str
    error: str | None = None


class RequestResolved(CodexMessage, frozen=True, kw_only=True):
    request_id: int | str


class ApprovalRequest(CodexMessage, frozen=True, kw_only=True):
    """item/commandExecution/requestApproval, item/fileChange/requestApproval and item/permissions/requestApproval."""

    thread_id: str
    item_id: str
    approval_id: str | None = None
    kind: str = "command"
    reason: str | None = None
    command: str | None = None
    cwd: str | None = None
    grant_root: str | None = None
    network_approval_context: dict[str, Any] | None = None
    additional_permissions: dict[str, Any] | None = None
    permissions: dict[str, Any] | None = None


class OlderApproval(CodexMessage, frozen=True, kw_only=True):
    """execCommandApproval and applyPatchApproval."""

    call_id: str
    conversation_id: str = ""
    approval_id: str | None = None
    command: tuple[str, ...] = ()
    cwd: str = ""
    file_changes: dict[str, dict[str, Any]] = {}
    reason: str | None = None
    grant_root: str | None = None


class Elicitation(CodexMessage, frozen=True, kw_only=True):
    server_name: str
    message: str = ""
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class StartedThread(CodexMessage, frozen=True, kw_only=True):
    id: str


class ThreadOpened(CodexMessage, frozen=True, kw_only=True):
    """The answer to thread/start and thread/resume."""

    thread: StartedThread
    model: str = ""


class TurnOpened(CodexMessage, frozen=True, kw_only=True):
    """The answer to turn/start."""

    turn: CodexTurn


class OfferedModel(CodexMessage, frozen=True, kw_only=True):
    id: str
    display_name: str = ""
    description: str | None = None
    hidden: bool = False


class ModelList(CodexMessage, frozen=True, kw_only=True):
    data: tuple[OfferedModel, ...] = ()


class AccountRead(CodexMessage, frozen=True, kw_only=True):
    account: dict[str, Any] | None = None
    requires_openai_auth: bool = False
