"""The lines that Claude Code writes with `--output-format stream-json`, as types. Amp writes the same ones.

The program is updated every day, so a line is read as far as makai needs it: members that only matter to people are
`Any`, unknown members are ignored, and the kinds of content blocks are open. The order of members is not fixed.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

_UNSET: Final = msgspec.UNSET


class ClaudeBlock(msgspec.Struct, frozen=True):
    """A content block of any kind: text, thinking, tool_use, tool_result, image."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw | msgspec.UnsetType = _UNSET
    tool_use_id: str = ""
    content: Any = None
    is_error: bool | None = None
    source: Any = None


class ClaudeMessage(msgspec.Struct, frozen=True):
    id: str = ""
    model: Any = None
    content: str | tuple[ClaudeBlock, ...] = ()
    usage: Any = None


class _Line(msgspec.Struct, frozen=True, tag_field="type"):
    pass


class AssistantLine(_Line, frozen=True, tag="assistant"):
    """One content block of a message; further ones follow with the same id."""

    message: ClaudeMessage
    parent_tool_use_id: str | None = None
    is_api_error_message: bool = False
    error: Any = None


class UserLine(_Line, frozen=True, tag="user"):
    """Results of tools, and what was sent to the program."""

    message: ClaudeMessage
    parent_tool_use_id: str | None = None
    tool_use_result: Any = None


class StreamedDelta(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    thinking: str = ""


class StreamedMessage(msgspec.Struct, frozen=True):
    id: str = ""
    model: Any = None
    usage: Any = None


class StreamedBlock(msgspec.Struct, frozen=True):
    type: str = ""


class StreamedEvent(msgspec.Struct, frozen=True):
    """A server-sent event of the model, as far as it shows text or what it used."""

    type: str
    message: StreamedMessage | None = None
    content_block: StreamedBlock | None = None
    delta: StreamedDelta | None = None
    usage: Any = None


class StreamEventLine(_Line, frozen=True, tag="stream_event"):
    event: StreamedEvent
    parent_tool_use_id: str | None = None


class SystemLine(_Line, frozen=True, tag="system"):
    subtype: str = ""
    session_id: str = ""
    state: str = ""
    status: str | None = None
    permission_mode: str | None = msgspec.field(default=None, name="permissionMode")
    mcp_servers: Any = None
    attempt: Any = None
    max_retries: Any = None
    error_status: Any = None
    error: Any = None
    content: Any = None
    task_type: Any = None
    tool_use_id: str | None = None
    is_backgrounded: Any = None
    tasks: Any = None
    summary: Any = None


class ResultLine(_Line, frozen=True, tag="result"):
    """The end of a turn. Nothing here may fail to be read: a lost result is a turn that does not end."""

    subtype: Any = ""
    is_error: Any = False
    result: Any = None
    error: Any = None
    errors: Any = None
    stop_reason: Any = None
    terminal_reason: Any = None
    api_error_status: Any = None
    session_id: Any = ""
    usage: Any = None
    num_turns: Any = None
    model_usage: Any = msgspec.field(default=None, name="modelUsage")
    since_last: Any = msgspec.field(default=None, name="model_usage_since_last_result")
    total_cost_usd: Any = None
    structured_output: Any = None
    """The value of a prompt with a schema. The model gives it to a tool, so that no text has it."""


class ControlRequest(msgspec.Struct, frozen=True):
    subtype: str
    tool_name: str = ""
    tool_use_id: str = ""
    input: msgspec.Raw | msgspec.UnsetType = _UNSET
    permission_suggestions: Any = None
    decision_reason: Any = None


class ControlRequestLine(_Line, frozen=True, tag="control_request"):
    request_id: str
    request: ControlRequest


class ControlAnswer(msgspec.Struct, frozen=True):
    """The answer to a control request of makai."""

    request_id: str
    subtype: str = ""
    response: Any = None
    error: str = ""


class ControlResponseLine(_Line, frozen=True, tag="control_response"):
    response: ControlAnswer


class ControlCancelLine(_Line, frozen=True, tag="control_cancel_request"):
    request_id: str


class CommandLifecycleLine(_Line, frozen=True, tag="command_lifecycle"):
    """What became of a user line, by the `uuid` that it was sent with."""

    command_uuid: str
    state: str = ""


class ToolProgressLine(_Line, frozen=True, tag="tool_progress"):
    tool_use_id: str
    parent_tool_use_id: str | None = None


class RateLimitLine(_Line, frozen=True, tag="rate_limit_event"):
    rate_limit_info: Any = None


ClaudeLine: TypeAlias = (
    AssistantLine | UserLine | StreamEventLine | SystemLine | ResultLine | ControlRequestLine | ControlResponseLine
    | ControlCancelLine | CommandLifecycleLine | ToolProgressLine | RateLimitLine
)  # fmt: skip


class LineKind(msgspec.Struct, frozen=True):
    """What a line that cannot be read calls itself."""

    type: str
    subtype: Any = None

    def __str__(self) -> str:
        return f"{self.type}/{self.subtype}" if isinstance(self.subtype, str) else self.type


line_decoder: Final[msgspec.json.Decoder[ClaudeLine]] = msgspec.json.Decoder(ClaudeLine)
kind_decoder: Final = msgspec.json.Decoder(LineKind)
QUIET_TYPES: Final = frozenset({"keep_alive", "tool_use_summary", "prompt_suggestion", "auth_status"})
"""Known lines that say nothing for a session."""
QUIET_SUBTYPES: Final = frozenset({
    "permission_denied", "thinking_tokens", "hook_started", "hook_progress", "hook_response", "task_progress",
    "task_updated", "files_persisted", "elicitation_complete",
    "post_turn_summary", "commands_changed", "informational",
})  # fmt: skip
