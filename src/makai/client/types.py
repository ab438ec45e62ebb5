"""The types of the SDK. Union members have a `type`, so that `event.type == "text_delta"` and `match` both tell them
apart. Fields that makai adds to the specified ones come last and have defaults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from makai.catalog.models import AuthStatus, ModelDescriptor, ModelsRequest, ModelsResponse
from makai.core.content import Audio, Image, Text, Thinking, ToolCall, ToolResult
from makai.core.errors import InvalidRequest
from makai.core.request import RequestOptions, ToolDefinition, ToolPermission
from makai.core.session_events import GrantScope, PermissionMode, SandboxLevel
from makai.core.usage import Usage
from makai.protocols.makai.agent_payloads import AgentRestoreResult as AgentRestoreResult
from makai.protocols.makai.agent_payloads import FileChange as FileChange
from makai.protocols.makai.agent_payloads import FileRestore as FileRestore
from makai.protocols.makai.agent_payloads import PermissionRequest as PermissionRequest
from makai.protocols.makai.payloads import ChatMessage

if TYPE_CHECKING:
    from makai.client.rendering import RenderedAnswer

    # With the default, which Python knows from 3.13 on, `AgentRunResponse` alone stays a whole type.
    OutputT = TypeVar("OutputT", default=Any)
else:
    OutputT = TypeVar("OutputT")

AuthRetryPolicy: TypeAlias = Literal["manual", "auto_once"]
NO_PARAMETERS: Final = '{"type":"object"}'

# What makai calls otherwise inside.
TextContentPart: TypeAlias = Text
ThinkingContentPart: TypeAlias = Thinking
ImageContentPart: TypeAlias = Image
AudioContentPart: TypeAlias = Audio
ToolCallContentPart: TypeAlias = ToolCall
ToolResultContentPart: TypeAlias = ToolResult
UsageSummary: TypeAlias = Usage
ListModelsRequest: TypeAlias = ModelsRequest
ListModelsResponse: TypeAlias = ModelsResponse


class Shape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every shape."""


class ProviderAuthInfo(Shape, frozen=True, kw_only=True):
    """Whether one provider can be used. Never holds token material."""

    id: str
    name: str
    auth_status: AuthStatus
    last_error: str | None = None


class AuthFlowEvent(Shape, frozen=True, kw_only=True):
    """What every event of a login names."""

    flow_id: str
    provider_id: str


class AuthUrlEvent(AuthFlowEvent, frozen=True, kw_only=True, tag_field="type", tag="auth_url"):
    """A page the user has to open."""

    type: ClassVar[Literal["auth_url"]] = "auth_url"
    url: str
    instructions: str | None = None


class AuthPromptEvent(AuthFlowEvent, frozen=True, kw_only=True, tag_field="type", tag="prompt"):
    """A question the user has to answer."""

    type: ClassVar[Literal["prompt"]] = "prompt"
    prompt_id: str
    message: str
    allow_empty: bool = False


class AuthProgressEvent(AuthFlowEvent, frozen=True, kw_only=True, tag_field="type", tag="progress"):
    type: ClassVar[Literal["progress"]] = "progress"
    message: str


class AuthSuccessEvent(AuthFlowEvent, frozen=True, kw_only=True, tag_field="type", tag="success"):
    type: ClassVar[Literal["success"]] = "success"


class AuthErrorEvent(AuthFlowEvent, frozen=True, kw_only=True, tag_field="type", tag="error"):
    type: ClassVar[Literal["error"]] = "error"
    message: str
    code: str | None = None


MakaiAuthEvent: TypeAlias = AuthUrlEvent | AuthPromptEvent | AuthProgressEvent | AuthSuccessEvent | AuthErrorEvent


class AuthFlowHandlers(Shape, frozen=True, kw_only=True):
    """How a login talks to its user. Both may be plain or async functions."""

    on_event: Callable[[MakaiAuthEvent], Any] | None = None
    """Gets every event, prompts included."""
    on_prompt: Callable[[AuthPromptEvent], str | Awaitable[str]] | None = None
    """Answers a prompt."""


class AuthOptions(Shape, frozen=True, kw_only=True):
    """What holds for every request of a client, unless the request says otherwise."""

    auth_retry_policy: AuthRetryPolicy = "manual"
    handlers: AuthFlowHandlers = AuthFlowHandlers()


class LoginResult(Shape, frozen=True, kw_only=True):
    """A login that worked; every other one raises."""

    status: Literal["success"] = "success"


class ResolveModelRequest(Shape, frozen=True, kw_only=True):
    """One model, named exactly."""

    provider_id: str
    model_id: str
    api: str | None = None


class ResolveModelResponse(Shape, frozen=True, kw_only=True):
    model: ModelDescriptor


class RunOptions(RequestOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to answer. `auth_retry_policy` stays in the client; the others travel."""

    auth_retry_policy: AuthRetryPolicy | None = None


class ProviderCompleteRequest(Shape, frozen=True, kw_only=True):
    """One model call."""

    model_ref: str
    """As `models.list` gave it: opaque, never taken apart here."""
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolDefinition, ...] = ()
    options: RunOptions = RunOptions()


class CompletionResponse(Shape, frozen=True, kw_only=True):
    """A whole answer. `message` also says who made it: appended to `messages` it keeps the vendor's signatures."""

    message: ChatMessage
    usage: Usage | None = None
    provider_id: str = ""
    api: str = ""
    model_id: str = ""
    stop_reason: str | None = None
    """end_turn, max_tokens, tool_use, stop_sequence, max_turns, or whatever a later server says."""
    warnings: tuple[str, ...] = ()
    """What you should know about this answer, such as which options the vendor does not take."""

    @property
    def text(self) -> str:
        """What the model said to the reader, without thinking and tool calls."""
        content = self.message.content
        if isinstance(content, str):
            return content
        return "".join(part.text for part in content if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools the model wants to run, in order."""
        return tuple(part for part in self.message.content if isinstance(part, ToolCall))

    def _repr_html_(self) -> str:
        return self._rendered().html()

    def _repr_markdown_(self) -> str:
        return self._rendered().markdown()

    def _rendered(self) -> RenderedAnswer:
        from makai.client.rendering import RenderedAnswer

        output = getattr(self, "output", None)
        return RenderedAnswer(self.text, output, self.tool_calls, self.model_id, self.usage)


class MessageStartEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="message_start"):
    """The model was asked. Says which one where the server has told."""

    type: ClassVar[Literal["message_start"]] = "message_start"
    provider_id: str | None = None
    api: str | None = None
    model_id: str | None = None


class TextDeltaEvent(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="text_delta"):
    type: ClassVar[Literal["text_delta"]] = "text_delta"
    delta: str


class ThinkingDeltaEvent(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="thinking_delta"):
    type: ClassVar[Literal["thinking_delta"]] = "thinking_delta"
    delta: str


class ToolCallEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="tool_call"):
    """A whole tool call: arguments are never handed out in pieces."""

    type: ClassVar[Literal["tool_call"]] = "tool_call"
    name: str
    arguments_json: str
    tool_call_id: str


class MessageEndEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="message_end"):
    """The last event of an answer that is complete."""

    type: ClassVar[Literal["message_end"]] = "message_end"
    usage: Usage | None = None
    stop_reason: str | None = None


class ErrorEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """The last event of an answer that broke off after the server had accepted the request."""

    type: ClassVar[Literal["error"]] = "error"
    message: str
    code: str | None = None
    provider_id: str | None = None
    retry_after_ms: int | None = None
    hint: str | None = None


ProviderStreamEvent: TypeAlias = (
    MessageStartEvent | TextDeltaEvent | ThinkingDeltaEvent | ToolCallEvent | MessageEndEvent | ErrorEvent
)


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
    permission: ToolPermission = "allow"
    """"ask": a person decides each call that no rule allows."""
    read_only: bool = False
    """It changes nothing."""

    def __post_init__(self) -> None:
        if self.parameters_schema_json is not None and self.schema is not None:
            raise InvalidRequest(f"tool {self.name!r}: give parameters_schema_json or schema, not both")

    @property
    def definition(self) -> ToolDefinition:
        """What the model gets to know about the tool."""
        text = self.parameters_schema_json
        if text is None:
            text = NO_PARAMETERS if self.schema is None else msgspec.json.encode(self.schema).decode()
        return ToolDefinition(
            name=self.name,
            description=self.description,
            parameters_schema_json=text,
            permission=self.permission,
            read_only=self.read_only,
        )


class Allow(Shape, frozen=True, kw_only=True):
    """The call may run: once, or with `scope` also all others that `PermissionRequest.grant` covers, or `grant`."""

    scope: GrantScope = "once"
    grant: str = ""
    """One of the rules in `PermissionRequest.grants`."""


class Deny(Shape, frozen=True, kw_only=True):
    """The call may not run; the model learns why and continues."""

    reason: str = ""


PermissionDecision: TypeAlias = Allow | Deny
PermissionHandler: TypeAlias = Callable[
    [PermissionRequest], PermissionDecision | Awaitable[PermissionDecision | None] | None
]
"""Decides whether a call may run. None leaves the decision to others until the deadline. What it raises is a denial.
Plain functions run in a worker thread, so that `input()` in one does not stop the connection."""


class AgentRunOptions(RunOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run asks its model, how far it may go and what it may do. `session_id` names the session to continue; one
    that does not exist yet is begun under that id (a UUID)."""

    max_turns: int | None = None
    max_output_tokens: int | None = None
    max_usd: float | None = None
    """Refused for a model whose price is unknown, unless `allow_unknown_price`."""
    allow_unknown_price: bool = False
    max_seconds: float | None = None
    allow: tuple[str, ...] = ()
    """Permission rules for this run, such as `Bash(git log:*)`."""
    deny: tuple[str, ...] = ()


class AgentRunRequest(Shape, frozen=True, kw_only=True):
    """One agent run. Everything below `options` describes the session, whose first run sets it."""

    messages: tuple[ChatMessage, ...]
    """What follows the last assistant message is said to the agent; the session remembers the rest itself."""
    model_ref: str = ""
    """As `models.list` gave it: opaque, never taken apart here. With `agent`, one of that agent's models, or empty."""
    agent: str | None = None
    """Another agent than makai's own, such as "gemini", or "acp:" and a command line."""
    tools: tuple[AgentTool, ...] | None = None
    """None leaves an existing session its tools; the client that declared those carries them out."""
    options: AgentRunOptions = AgentRunOptions()
    tool_servers: tuple[str, ...] | None = None
    """Ids of programs that serve tools (`client.tools.serve`), registered now or later. None leaves an existing session
    those it has."""
    system_prompt: str | None = None
    """Instead of makai's own instructions. A system message at the head of `messages` means the same."""
    builtin_tools: bool = False
    """Files, shell, search, fetch, plan and MCP, carried out by the server beneath `cwd`."""
    cwd: str | None = None
    mode: PermissionMode | None = None
    """ask (default), accept_edits, plan or never_ask."""
    sandbox: SandboxLevel | None = None
    title: str | None = None
    approval_s: float | None = None
    """How long a permission request may wait for an answer."""
    on_permission_request: PermissionHandler | None = None
    """Without it the decision is left to other clients of the session, until the deadline."""
    output: Any = None
    """What the answer must be: a dataclass, msgspec Struct, TypedDict, pydantic model, other type of JSON values, or a
    JSON Schema. `AgentRunResponse.output` is then a value of it; an answer that is none fails as `invalid_output`."""
    output_repairs: int = 1
    """How often an answer that does not follow `output` is asked for again, within the limits in `options`."""


class AgentRunResponse(CompletionResponse, Generic[OutputT], frozen=True, kw_only=True):
    """The newest answer of a run, with the usage of all its turns."""

    session_id: str = ""
    """What to continue: `options={"session_id": response.session_id}`."""
    run_id: str = ""
    output: OutputT = None  # type: ignore[assignment]  # of a run that asked for none
    """The answer as a value of the type that was given as `output`."""


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
    log_id: str | None = None
    """Its id for REST, `/ws` and `makai sessions`, where that is not `session_id`: of a session you named yourself."""


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


_RunEvent: TypeAlias = AgentStartEvent | AgentEndEvent | TurnStartEvent | TurnEndEvent
AgentStreamEvent: TypeAlias = ProviderStreamEvent | _RunEvent | ToolExecutionStartEvent | ToolExecutionEndEvent
