"""Every payload of the agent side of the protocol, as types. The session's id is in the envelope. Agent events have
"only their specified fields" (MK-AGENT-004); what makai adds (the run, the cursor) stands beside them in `agent_event`.
The only JSON inside strings is in fields named `*_json`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from makai.core.confinement import SESSION_SANDBOX, Confinement, OfferedGrant
from makai.core.content import ContentPart, Text
from makai.core.messages import StopReason
from makai.core.request import RequestOptions, ToolDefinition
from makai.core.session_events import DecodedMode, GrantScope, HasPermissionMode, RestoreDirection, SandboxLevel
from makai.core.usage import Usage
from makai.protocols.makai.payloads import ChatMessage, Payload

AtLeastOne: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
MoreThanNothing: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
Cursor: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
SessionStanding: TypeAlias = Literal[
    "idle", "running", "waiting_for_tool", "waiting_for_permission", "stopping", "closed"
]


class AgentOptions(RequestOptions, frozen=True, kw_only=True):
    """How a run asks its model, how far it may go and what it may do."""

    max_turns: AtLeastOne | None = None
    max_output_tokens: AtLeastOne | None = None
    max_usd: MoreThanNothing | None = None
    allow_unknown_price: bool = False
    max_seconds: MoreThanNothing | None = None
    allow: tuple[str, ...] = ()
    """Permission rules for the run, such as `Bash(git log:*)`."""
    deny: tuple[str, ...] = ()


class AgentStart(Payload, HasPermissionMode, frozen=True, kw_only=True):
    """Begin a session, or attach to one with `resume`."""

    model_ref: str | None = None
    agent: str | None = None
    """For a new session, another agent than makai's own: its name, such as "gemini", or "acp:" and a command line. Then
    `model_ref` is one of that agent's models, or absent."""
    system_prompt: str | None = None
    tools: tuple[ToolDefinition, ...] | None = None
    """Carried out by this client. Given with `resume` they replace those of the session."""
    tool_servers: tuple[str, ...] | None = None
    """Ids of tool servers whose tools the agent may use, registered now or later. Given with `resume` they replace
    those of the session."""
    builtin_tools: bool = False
    cwd: str | None = None
    mode: DecodedMode | None = None
    sandbox: SandboxLevel | None = None
    title: str | None = None
    approval_s: MoreThanNothing | None = None
    """How long a question may wait for a person."""
    options: AgentOptions = AgentOptions()
    """For the runs that this connection starts, unless a message brings its own."""
    resume: bool = False
    after_event_id: Cursor | None = None


class AgentMessage(Payload, frozen=True, kw_only=True):
    """Words for the agent; what follows the last assistant message counts."""

    messages: tuple[ChatMessage, ...]
    model_ref: str | None = None
    options: AgentOptions | None = None


class AgentStop(Payload, frozen=True, kw_only=True):
    """Stop the active run and let go of the session; with `detach` only the latter."""

    reason: str | None = None
    detach: bool = False


class AgentStatus(Payload, frozen=True):
    pass


class ToolList(Payload, frozen=True):
    prefix: str = ""


class AgentRestore(Payload, frozen=True, kw_only=True):
    """Undo file changes of the session's tools, or redo what was undone: all of it or nothing."""

    direction: RestoreDirection = "undo"
    count: AtLeastOne = 1
    """How many messages with file changes, from the last one back."""
    to: AtLeastOne | None = None
    """The event of a message: everything since then, in place of `count`."""
    paths: tuple[str, ...] = ()
    """Only these files, absolute or below the session's folder; the others stay as they are. Empty: all of them."""
    plan_id: str = ""
    """Of a preview: nothing is done when the plan is another one by now."""
    preview: bool = False
    """Only say what would be done."""


class AgentDiff(Payload, frozen=True):
    pass


class ToolResultMessage(Payload, frozen=True, kw_only=True):
    tool_call_id: str
    content: str | tuple[Text, ...]
    is_error: bool = False
    details_json: str | None = None


class PermissionResponse(Payload, frozen=True, kw_only=True):
    tool_call_id: str
    decision: Literal["approve", "deny"]
    scope: GrantScope = "once"
    reason: str = ""
    digest: str | None = None
    """When given, an approval counts only for the arguments that had this digest."""
    grant: str = ""
    """For a wider scope: the chosen one of `permission_request.grants`; by default its `grant`."""


FileRequest: TypeAlias = AgentRestore | AgentDiff
AgentRequest: TypeAlias = (
    AgentStart | AgentMessage | AgentStop | AgentStatus | ToolList | PermissionResponse | FileRequest
)
"""What a session is asked. A tool's result is none: the call that waits for it is known to the connection."""


class UsageSummary(Payload, frozen=True, kw_only=True):
    """The four counts that the protocol names."""

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0


class RunStart(Payload, frozen=True, tag_field="type", tag="agent_start"):
    session_id: str


class RunEnd(Payload, frozen=True, kw_only=True, tag_field="type", tag="agent_end"):
    stop_reason: StopReason
    usage: UsageSummary


class RunError(Payload, frozen=True, kw_only=True, tag_field="type", tag="error"):
    message: str
    code: str


class TurnStart(Payload, frozen=True, tag_field="type", tag="turn_start"):
    pass


class TurnEnd(Payload, frozen=True, tag_field="type", tag="turn_end"):
    stop_reason: StopReason


class MessageStart(Payload, frozen=True, kw_only=True, tag_field="type", tag="message_start"):
    provider_id: str | None = None
    api: str | None = None
    model_id: str | None = None


class MessageEnd(Payload, frozen=True, kw_only=True, tag_field="type", tag="message_end"):
    usage: UsageSummary
    stop_reason: StopReason


class TextPiece(Payload, frozen=True, tag_field="type", tag="text_delta"):
    delta: str


class ThinkingPiece(Payload, frozen=True, tag_field="type", tag="thinking_delta"):
    delta: str


class CalledTool(Payload, frozen=True, kw_only=True, tag_field="type", tag="tool_call"):
    name: str
    arguments_json: str
    tool_call_id: str


class ExecutionStart(Payload, frozen=True, kw_only=True, tag_field="type", tag="tool_execution_start"):
    tool_call_id: str
    tool_name: str


class ExecutionEnd(Payload, frozen=True, kw_only=True, tag_field="type", tag="tool_execution_end"):
    tool_call_id: str
    is_error: bool = False


_TurnEvent: TypeAlias = TurnStart | TurnEnd | MessageStart | MessageEnd | TextPiece | ThinkingPiece | CalledTool
AgentEvent: TypeAlias = RunStart | RunEnd | RunError | _TurnEvent | ExecutionStart | ExecutionEnd


class AgentStarted(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    model_ref: str
    event_id: int
    """The cursor: what is above it in the log follows."""
    resumed: bool


class AgentEventMessage(Payload, frozen=True, kw_only=True):
    event: AgentEvent
    run_id: str
    event_id: int | None = None
    """On the last event of each log entry, so that every one a client sees is a good `after_event_id`."""


class AssistantAnswer(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: tuple[ContentPart, ...]


class AgentResult(Payload, frozen=True, kw_only=True):
    """The completion."""

    message: AssistantAnswer
    usage: Usage
    provider_id: str
    api: str
    model_id: str
    stop_reason: StopReason
    run_id: str
    warnings: tuple[str, ...] = ()
    """An addition: what the user should know about this run, such as which options the vendor does not take."""


class AgentError(Payload, frozen=True, kw_only=True):
    code: str
    message: str
    provider_id: str | None = None
    retry_after_ms: int | None = None
    hint: str | None = None
    usage: Usage | None = None
    run_id: str | None = None
    warnings: tuple[str, ...] = ()
    """As in `AgentResult`."""


class AgentStopped(Payload, frozen=True, kw_only=True):
    session_id: str
    reason: str | None = None


class SessionInfo(Payload, HasPermissionMode, frozen=True, kw_only=True):
    session_id: str
    status: SessionStanding
    model_ref: str
    mode: DecodedMode
    event_id: int
    created_at: int
    updated_at: int
    usage: Usage
    pending_permissions: tuple[str, ...]
    title: str = ""
    cwd: str | None = None
    run_id: str | None = None
    sandbox: SandboxLevel | None = None
    """None from a server that does not say."""
    log_id: str | None = None
    """Its id on every other interface, where that is not `session_id`."""


class ToolListResponse(Payload, frozen=True):
    tools: tuple[ToolDefinition, ...]


class ToolExecute(Payload, frozen=True, kw_only=True):
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    run_id: str


class FileChange(Payload, frozen=True, kw_only=True):
    """What the call would change; a new file has no `old_text`."""

    path: str
    new_text: str
    old_text: str | None = None


class FileRestore(Payload, frozen=True, kw_only=True):
    """What becomes of one file."""

    path: str
    kind: Literal["create", "change", "remove", "keep"]
    added: int = 0
    """Lines."""
    removed: int = 0
    refusal: str = ""
    """Why it cannot be restored; then nothing is."""


class AgentRestoreResult(Payload, frozen=True, kw_only=True):
    """What was undone or redone, or with `restored` false what would be."""

    restored: bool
    direction: RestoreDirection
    message: int
    """The event of the message whose changes, and those after it, are undone."""
    text: str
    """The beginning of the message."""
    files: tuple[FileRestore, ...]
    notes: tuple[str, ...] = ()
    """What is not undone, such as the changes of commands."""
    plan_id: str = ""
    """Given with a later request, exactly this is done."""

    @property
    def is_refused(self) -> bool:
        return any(file.refusal for file in self.files)


class AgentDiffResult(Payload, frozen=True):
    """The files that tools of the session changed, each from before its first change to after its last. What was undone
    does not count; an empty `new_text` may be a removed file."""

    files: tuple[FileChange, ...]


class PermissionRequest(Payload, frozen=True, kw_only=True):
    tool_call_id: str
    tool_name: str
    arguments: dict[str, Any]
    digest: str
    run_id: str
    title: str = ""
    diffs: tuple[FileChange, ...] = ()
    deadline_ms: int | None = None
    grant: str = ""
    """The rule that a decision for the session or for always sets by default; without it a decision counts once."""
    grants: tuple[OfferedGrant, ...] = ()
    """The rules that such a decision may choose from, the narrowest first."""
    confinement: Confinement = SESSION_SANDBOX
    """What the call is given beyond the session's sandbox when it is approved."""


class PermissionSettled(Payload, frozen=True, kw_only=True):
    """Decided: by this client, another one, a deadline or the end of the run."""

    tool_call_id: str
    decision: Literal["approve", "deny", "abort"]
    by: str
    reason: str = ""


SessionAnswer: TypeAlias = SessionInfo | ToolListResponse | AgentRestoreResult | AgentDiffResult
"""What a session is asked for without attaching to it."""

AGENT_CLIENT_PAYLOADS: dict[str, type[msgspec.Struct]] = {
    "agent_start": AgentStart,
    "agent_message": AgentMessage,
    "agent_stop": AgentStop,
    "agent_status": AgentStatus,
    "tool_list": ToolList,
    "agent_restore": AgentRestore,
    "agent_diff": AgentDiff,
    "tool_result": ToolResultMessage,
    "permission_response": PermissionResponse,
}

AGENT_SERVER_PAYLOADS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "agent_started": (AgentStarted,),
    "agent_event": (AgentEventMessage,),
    "agent_result": (AgentResult,),
    "agent_error": (AgentError,),
    "agent_stopped": (AgentStopped,),
    "session_info": (SessionInfo,),
    "tool_list_response": (ToolListResponse,),
    "restore_result": (AgentRestoreResult,),
    "diff_result": (AgentDiffResult,),
    "tool_execute": (ToolExecute,),
    "permission_request": (PermissionRequest,),
    "permission_settled": (PermissionSettled,),
}
