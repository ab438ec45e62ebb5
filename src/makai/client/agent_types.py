"""The types of `client.agent`: what makai adds to run tools and to ask people comes last and has defaults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from makai.client.types import CompletionResponse, ProviderStreamEvent, RunOptions, Shape
from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.request import ToolDefinition
from makai.core.session_events import GrantScope, PermissionMode, SandboxLevel
from makai.core.usage import Usage
from makai.protocols.makai.agent_payloads import PermissionRequest as PermissionRequest
from makai.protocols.makai.payloads import ChatMessage

NO_PARAMETERS: Final = '{"type":"object"}'

# ---------------------------------------------------------------- tools


class AgentToolResult(Shape, frozen=True, kw_only=True):
    """What a tool answers, where a plain value does not say enough."""

    content: str | tuple[Text, ...]
    is_error: bool = False
    """The model learns that the tool failed; the run continues."""
    details_json: str | None = None


ExecuteTool: TypeAlias = Callable[[dict[str, Any]], Any]
"""Gets the arguments the model wrote, and answers: text, an `AgentToolResult`, text parts, or any other value, which is
sent as JSON. The model gets what it raises as an error. Async functions are awaited, and cancelled when the run
no longer wants their answer; plain functions run in a worker thread."""


class AgentTool(Shape, frozen=True, kw_only=True):
    """A tool that this client offers to the model and carries out itself."""

    name: str
    description: str = ""
    parameters_schema_json: str | None = None
    """The JSON Schema of the arguments as text; or give it as `schema`. Without either the tool takes none."""
    schema: Mapping[str, Any] | None = None
    execute: ExecuteTool | None = None

    def __post_init__(self) -> None:
        if self.parameters_schema_json is not None and self.schema is not None:
            raise InvalidRequest(f"tool {self.name!r}: give parameters_schema_json or schema, not both")

    @property
    def definition(self) -> ToolDefinition:
        """What the model gets to know about the tool."""
        text = self.parameters_schema_json
        if text is None:
            text = NO_PARAMETERS if self.schema is None else msgspec.json.encode(self.schema).decode()
        return ToolDefinition(name=self.name, description=self.description, parameters_schema_json=text)


# ---------------------------------------------------------------- permissions


class Allow(Shape, frozen=True, kw_only=True):
    """The call may run: once, or with `scope` also all others that `PermissionRequest.grant` covers."""

    scope: GrantScope = "once"


class Deny(Shape, frozen=True, kw_only=True):
    """The call may not run; the model learns why and continues."""

    reason: str = ""


PermissionDecision: TypeAlias = Allow | Deny
PermissionHandler: TypeAlias = Callable[
    [PermissionRequest], PermissionDecision | Awaitable[PermissionDecision | None] | None
]
"""Decides whether a call may run. None leaves the decision to others until the deadline. What it raises is a denial.
Plain functions run in a worker thread, so that `input()` in one does not stop the connection."""


# ---------------------------------------------------------------- requests and answers


class AgentRunOptions(RunOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run asks its model, how far it may go and what it may do. `session_id` names the session to continue; one
    that does not exist yet is begun under that id (a UUID)."""

    max_turns: int | None = None
    max_output_tokens: int | None = None
    max_usd: float | None = None
    max_seconds: float | None = None
    allow: tuple[str, ...] = ()
    """Permission rules for this run, such as `Bash(git log:*)`."""
    deny: tuple[str, ...] = ()


class AgentRunRequest(Shape, frozen=True, kw_only=True):
    """One agent run. Everything below `options` describes the session, whose first run sets it."""

    model_ref: str
    """As `models.list` gave it: opaque, never taken apart here."""
    messages: tuple[ChatMessage, ...]
    """What follows the last assistant message is said to the agent; the session remembers the rest itself."""
    tools: tuple[AgentTool, ...] | None = None
    """None leaves an existing session its tools; the client that declared those carries them out."""
    options: AgentRunOptions = AgentRunOptions()
    system_prompt: str | None = None
    """Instead of makai's own instructions. A system message at the head of `messages` means the same."""
    builtin_tools: bool = False
    """Files, shell, search, fetch, plan and MCP, carried out by the server beneath `cwd`."""
    cwd: str | None = None
    mode: PermissionMode | None = None
    """ask (default), accept_edits, plan or full_access."""
    sandbox: SandboxLevel | None = None
    title: str | None = None
    approval_s: float | None = None
    """How long a permission request may wait for an answer."""
    on_permission_request: PermissionHandler | None = None
    """Without it the decision is left to other clients of the session, until the deadline."""


class AgentRunResponse(CompletionResponse, frozen=True, kw_only=True):
    """The newest answer of a run, with the usage of all its turns."""

    session_id: str = ""
    """What to continue: `options={"session_id": response.session_id}`."""
    run_id: str = ""


class AgentSessionInfo(Shape, frozen=True, kw_only=True):
    """How a session is."""

    session_id: str
    status: str
    """idle, running, waiting_for_tool, waiting_for_permission, stopping or closed."""
    model_ref: str
    mode: str
    event_id: int
    """The newest event; `attach(..., after_event_id=event_id)` follows what comes after it."""
    created_at: int
    updated_at: int
    usage: Usage
    pending_permissions: tuple[str, ...] = ()
    title: str = ""
    cwd: str | None = None
    run_id: str | None = None


# ---------------------------------------------------------------- stream events


class AgentStartEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="agent_start"):
    """The first event of a run."""

    type: ClassVar[Literal["agent_start"]] = "agent_start"
    session_id: str | None = None


class AgentEndEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="agent_end"):
    """The last event of a run that succeeded. `usage` is the sum of all its turns."""

    type: ClassVar[Literal["agent_end"]] = "agent_end"
    stop_reason: str | None = None
    usage: Usage | None = None


class TurnStartEvent(Shape, frozen=True, tag_field="type", tag="turn_start"):
    type: ClassVar[Literal["turn_start"]] = "turn_start"


class TurnEndEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="turn_end"):
    """A turn is over; the run is not, until `agent_end` or `error`."""

    type: ClassVar[Literal["turn_end"]] = "turn_end"
    stop_reason: str | None = None


class ToolExecutionStartEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="tool_execution_start"):
    type: ClassVar[Literal["tool_execution_start"]] = "tool_execution_start"
    tool_call_id: str
    tool_name: str


class ToolExecutionEndEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="tool_execution_end"):
    type: ClassVar[Literal["tool_execution_end"]] = "tool_execution_end"
    tool_call_id: str
    is_error: bool = False


AgentStreamEvent: TypeAlias = (
    ProviderStreamEvent
    | AgentStartEvent
    | AgentEndEvent
    | TurnStartEvent
    | TurnEndEvent
    | ToolExecutionStartEvent
    | ToolExecutionEndEvent
)
