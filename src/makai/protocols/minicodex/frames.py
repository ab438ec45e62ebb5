"""What a server says: every frame of MiniCodex, and those of makai.1. `schema/minicodex/` and the page's TypeScript
types are generated from these Structs. Frames only of makai.1 are in `MakaiFrame`, fields that only it has carry
`MAKAI`. Optional fields are UNSET when absent; `null` has its own meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from makai.core.confinement import Confinement, OfferedGrant
from makai.core.messages import StopReason
from makai.core.model import ReasoningEffort
from makai.core.session_events import (
    Decision,
    Delivery,
    FileDiff,
    FilePlace,
    GrantScope,
    PermissionMode,
    PlanEntry,
    SandboxLevel,
)
from makai.core.usage import Usage
from makai.protocols.minicodex.vocabulary import MAKAI, PastedImage, RunStatus, StrictPart, Time


class SessionStatePart(StrictPart, frozen=True, kw_only=True):
    session_id: str
    version: str
    capabilities: tuple[str, ...]
    last_event_id: int | None
    active_run_id: str | None
    run_counter: int


class ApprovalBrief(StrictPart, frozen=True, kw_only=True):
    call_id: str
    tool_key: str
    args: dict[str, Any]


class RunState(StrictPart, frozen=True, kw_only=True):
    run_id: str
    status: RunStatus
    started_at: Time
    finished_at: Time | None
    pending_approvals: tuple[ApprovalBrief, ...]
    last_event_id: int | None
    transcript_window: tuple[TranscriptItem, ...] | UnsetType = UNSET
    """Only in a snapshot that was asked for it: what this run has said so far."""


class BaseFrame(StrictPart, frozen=True, kw_only=True, tag_field="type"):
    """Base of every server frame."""

    session_id: str | UnsetType = UNSET
    run_id: str | UnsetType = UNSET
    ts: Time | UnsetType = UNSET
    req_id: str | UnsetType = UNSET


class EventBase(BaseFrame, frozen=True, kw_only=True):
    """Base of what is in the log: it has a number, and everyone sees the same one."""

    event_id: int


class ItemBase(BaseFrame, frozen=True, kw_only=True):
    """Base of what a transcript lists. Clients with makai.1 see number, time and run there too."""

    event_id: int | UnsetType = UNSET


class UserTextItem(ItemBase, frozen=True, kw_only=True, tag="user_text"):
    text: str
    input_id: Annotated[str | UnsetType, MAKAI] = UNSET
    client_msg_id: Annotated[str | UnsetType, MAKAI] = UNSET
    images: Annotated[tuple[PastedImage, ...] | UnsetType, MAKAI] = UNSET


class AssistantTextItem(ItemBase, frozen=True, kw_only=True, tag="assistant_text"):
    text: str
    content_index: Annotated[int | UnsetType, MAKAI] = UNSET
    whole: Annotated[bool | UnsetType, MAKAI] = UNSET
    """False in a transcript: still arriving, or broken off. `event_id` is the last delta it holds."""
    broken_off: Annotated[bool | UnsetType, MAKAI] = UNSET
    """True: its turn ended without the rest, and nothing will be added."""


class ReasoningItem(ItemBase, frozen=True, kw_only=True, tag="reasoning"):
    text: str
    content_index: Annotated[int | UnsetType, MAKAI] = UNSET
    whole: Annotated[bool | UnsetType, MAKAI] = UNSET
    broken_off: Annotated[bool | UnsetType, MAKAI] = UNSET


class ToolCallItem(ItemBase, frozen=True, kw_only=True, tag="tool_call"):
    name: str
    args: dict[str, Any]
    call_id: str
    title: Annotated[str | UnsetType, MAKAI] = UNSET
    kind: Annotated[str | UnsetType, MAKAI] = UNSET
    locations: Annotated[tuple[FilePlace, ...] | UnsetType, MAKAI] = UNSET
    arguments_error: Annotated[str | UnsetType, MAKAI] = UNSET
    """Why the model's arguments are no JSON object; `args.arguments_json` has what it wrote."""


class TextContent(StrictPart, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str


class ImageContent(StrictPart, frozen=True, kw_only=True, tag_field="type", tag="image"):
    data: str
    mimeType: str


class CallToolResult(StrictPart, frozen=True, kw_only=True):
    """What a tool answered, as MCP spells it."""

    content: tuple[TextContent | ImageContent, ...]
    isError: bool
    structuredContent: dict[str, Any] | UnsetType = UNSET


class FunctionCallOutputItem(ItemBase, frozen=True, kw_only=True, tag="function_call_output"):
    call_id: str
    result: CallToolResult
    output: str
    """The same outcome as plain text."""
    is_error: Annotated[bool | UnsetType, MAKAI] = UNSET
    diffs: Annotated[tuple[FileDiff, ...] | UnsetType, MAKAI] = UNSET
    exit_code: Annotated[int | UnsetType, MAKAI] = UNSET
    omitted_bytes: Annotated[int | UnsetType, MAKAI] = UNSET
    interrupted: Annotated[bool | UnsetType, MAKAI] = UNSET


class UserTextFrame(UserTextItem, frozen=True, kw_only=True, tag="user_text"):
    event_id: int


class AssistantTextFrame(AssistantTextItem, frozen=True, kw_only=True, tag="assistant_text"):
    event_id: int


class ReasoningFrame(ReasoningItem, frozen=True, kw_only=True, tag="reasoning"):
    event_id: int


class ToolCallFrame(ToolCallItem, frozen=True, kw_only=True, tag="tool_call"):
    event_id: int


class FunctionCallOutputFrame(FunctionCallOutputItem, frozen=True, kw_only=True, tag="function_call_output"):
    event_id: int


class AssistantTextDeltaFrame(EventBase, frozen=True, kw_only=True, tag="assistant_text_delta"):
    """Words while they arrive; needs "streaming"."""

    text: str
    content_index: Annotated[int | UnsetType, MAKAI] = UNSET


class ReasoningDeltaFrame(EventBase, frozen=True, kw_only=True, tag="reasoning_delta"):
    text: str
    content_index: Annotated[int | UnsetType, MAKAI] = UNSET


class RunStatusEvent(EventBase, frozen=True, kw_only=True, tag="run_status"):
    run_state: RunState


class ApprovalPending(EventBase, frozen=True, kw_only=True, tag="approval_pending"):
    call_id: str
    tool_key: str
    args_json: str
    title: Annotated[str | UnsetType, MAKAI] = UNSET
    diffs: Annotated[tuple[FileDiff, ...] | UnsetType, MAKAI] = UNSET
    digest: Annotated[str | UnsetType, MAKAI] = UNSET
    deadline: Annotated[Time | UnsetType, MAKAI] = UNSET
    grant: Annotated[str | UnsetType, MAKAI] = UNSET
    """The rule a wider scope sets by default; empty: this call can only be decided once."""
    grants: Annotated[tuple[OfferedGrant, ...] | UnsetType, MAKAI] = UNSET
    """The rules that a wider scope may choose from, the narrowest first."""
    confinement: Annotated[Confinement | UnsetType, MAKAI] = UNSET
    """What the call is given beyond the session's sandbox when it is approved."""
    agent_wider: Annotated[str | UnsetType, MAKAI] = UNSET
    """What another agent calls its own wider permission, which the scope `session` gives; there is no rule then."""


class ApprovalDecision(EventBase, frozen=True, kw_only=True, tag="approval_decision"):
    call_id: str
    decision: Decision
    by: Annotated[str | UnsetType, MAKAI] = UNSET
    reason: Annotated[str | UnsetType, MAKAI] = UNSET
    scope: Annotated[GrantScope | UnsetType, MAKAI] = UNSET
    grant: Annotated[str | UnsetType, MAKAI] = UNSET
    token: Annotated[str | UnsetType, MAKAI] = UNSET
    """The token of the person who decided, as name/id; "local" in a terminal on the server's machine."""


class TurnDone(EventBase, frozen=True, kw_only=True, tag="turn_done"):
    stop_reason: Annotated[StopReason | UnsetType, MAKAI] = UNSET
    usage: Annotated[Usage | UnsetType, MAKAI] = UNSET


class ErrorFrame(BaseFrame, frozen=True, kw_only=True, tag="error"):
    """With `event_id`: a run failed. Without: a command was refused, and `req_id` says which."""

    code: str
    message: str
    details: dict[str, Any] | UnsetType = UNSET
    event_id: int | UnsetType = UNSET


class Welcome(BaseFrame, frozen=True, kw_only=True, tag="welcome"):
    v: str
    session_state: SessionStatePart


class Snapshot(BaseFrame, frozen=True, kw_only=True, tag="snapshot"):
    v: str
    session_state: SessionStatePart
    run_state: RunState | None
    transcript: tuple[TranscriptItem, ...]
    event_id: int
    """The last event that is contained: only greater ones follow."""
    before: Annotated[int | UnsetType | None, MAKAI] = UNSET
    """Where older items end, for /api/sessions/{id}/transcript; null when there are none."""


class Accepted(BaseFrame, frozen=True, kw_only=True, tag="accepted"):
    pass


class Heartbeat(BaseFrame, frozen=True, kw_only=True, tag="heartbeat"):
    interval_ms: int


class Backpressure(BaseFrame, frozen=True, kw_only=True, tag="backpressure"):
    state: Literal["drain", "ok"]


class WaitingInput(StrictPart, frozen=True, kw_only=True):
    """Words that were taken and wait for their turn."""

    input_id: str
    text: str
    delivery: Delivery
    client_msg_id: str | UnsetType = UNSET
    images: tuple[PastedImage, ...] | UnsetType = UNSET


class SessionDetails(BaseFrame, frozen=True, kw_only=True, tag="session_details"):
    """What the document's session_state has no room for; follows welcome or snapshot."""

    session_id: str
    title: str
    model_ref: str
    mode: PermissionMode
    sandbox: SandboxLevel
    harness: str
    created_at: Time
    closed: bool
    waiting: tuple[WaitingInput, ...]
    cwd: str | UnsetType = UNSET
    archived: bool | UnsetType = UNSET
    reasoning_effort: ReasoningEffort | UnsetType = UNSET
    """Absent: as the model does by itself."""
    forked_from: str | UnsetType = UNSET
    """The session from which this one was branched; it may have been deleted since."""
    usage: Usage | UnsetType = UNSET
    context_tokens: int | UnsetType = UNSET
    context_window: int | UnsetType = UNSET


class InputAcceptedFrame(EventBase, frozen=True, kw_only=True, tag="input_accepted"):
    input_id: str
    text: str
    delivery: Delivery
    client_msg_id: str | UnsetType = UNSET
    images: tuple[PastedImage, ...] | UnsetType = UNSET


class InputWithdrawnFrame(EventBase, frozen=True, kw_only=True, tag="input_withdrawn"):
    """A waiting message was taken back: it never runs."""

    input_id: str


class TitleChangedFrame(EventBase, frozen=True, kw_only=True, tag="title_changed"):
    title: str


class SessionArchivedFrame(EventBase, frozen=True, kw_only=True, tag="session_archived"):
    archived: bool


class ModelChangedFrame(EventBase, frozen=True, kw_only=True, tag="model_changed"):
    model_ref: str


class AgentChangedFrame(EventBase, frozen=True, kw_only=True, tag="agent_changed"):
    harness: str
    model_ref: str
    dropped: tuple[str, ...]
    """What the new agent does not take over, in words for people."""


class ModeChangedFrame(EventBase, frozen=True, kw_only=True, tag="mode_changed"):
    mode: PermissionMode


class TermsChangedFrame(EventBase, frozen=True, kw_only=True, tag="terms_changed"):
    sandbox: SandboxLevel
    reasoning_effort: ReasoningEffort | UnsetType = UNSET


class TurnStartedFrame(EventBase, frozen=True, kw_only=True, tag="turn_started"):
    turn: int
    model_ref: str


class TurnEndedFrame(EventBase, frozen=True, kw_only=True, tag="turn_ended"):
    turn: int
    stop_reason: StopReason
    usage: Usage


class ToolStartedFrame(EventBase, frozen=True, kw_only=True, tag="tool_started"):
    call_id: str


class ToolProgressFrame(EventBase, frozen=True, kw_only=True, tag="tool_progress"):
    call_id: str
    text: str


class Plan(EventBase, frozen=True, kw_only=True, tag="plan"):
    entries: tuple[PlanEntry, ...]


class UsageEvent(EventBase, frozen=True, kw_only=True, tag="usage"):
    total: Usage
    context_tokens: int | UnsetType = UNSET
    context_window: int | UnsetType = UNSET


class NoticeFrame(EventBase, frozen=True, kw_only=True, tag="notice"):
    level: Literal["info", "warning", "error"]
    code: str
    message: str
    notice_id: str | UnsetType = UNSET
    """It takes the place of the earlier notice of the same id."""
    wait_ms: int | UnsetType = UNSET
    """How long the run waits from `ts` on before the model is asked again."""


class CompactedFrame(EventBase, frozen=True, kw_only=True, tag="compacted"):
    summary: str
    through: int


class RunResumedFrame(EventBase, frozen=True, kw_only=True, tag="run_resumed"):
    pass


class RunEnded(EventBase, frozen=True, kw_only=True, tag="run_ended"):
    """A run is over for which the document sends no turn_done, because it had tool output."""

    stop_reason: StopReason
    usage: Usage


class SessionClosedFrame(EventBase, frozen=True, kw_only=True, tag="session_closed"):
    reason: str


DocumentItem: TypeAlias = UserTextItem | AssistantTextItem | ToolCallItem | FunctionCallOutputItem | ReasoningItem
MakaiItem: TypeAlias = (
    ApprovalPending
    | ApprovalDecision
    | ToolStartedFrame
    | ToolProgressFrame
    | Plan
    | NoticeFrame
    | CompactedFrame
    | ErrorFrame
)
"""What the transcript of a client with makai.1 lists besides. It has one `tool_progress` for each call that still runs,
with the end of what the call printed so far, and none for other calls."""
TranscriptItem: TypeAlias = DocumentItem | MakaiItem
_SettingFrame: TypeAlias = (
    InputAcceptedFrame
    | InputWithdrawnFrame
    | TitleChangedFrame
    | SessionArchivedFrame
    | ModelChangedFrame
    | AgentChangedFrame
    | ModeChangedFrame
    | TermsChangedFrame
)
_TurnFrame: TypeAlias = TurnStartedFrame | TurnEndedFrame | ToolStartedFrame | ToolProgressFrame | Plan | UsageEvent
_NoteFrame: TypeAlias = NoticeFrame | CompactedFrame | RunResumedFrame | RunEnded | SessionClosedFrame
MakaiFrame: TypeAlias = SessionDetails | InputAcceptedFrame | _SettingFrame | _TurnFrame | _NoteFrame
_ItemFrame: TypeAlias = UserTextFrame | AssistantTextFrame | ReasoningFrame | ToolCallFrame | FunctionCallOutputFrame
_DeltaFrame: TypeAlias = AssistantTextDeltaFrame | ReasoningDeltaFrame
EventFrame: TypeAlias = _ItemFrame | _DeltaFrame | RunStatusEvent | ApprovalPending | ApprovalDecision | TurnDone
_ConnectionFrame: TypeAlias = Welcome | Snapshot | Accepted | ErrorFrame | Heartbeat | Backpressure
ServerMessage: TypeAlias = _ConnectionFrame | EventFrame | MakaiFrame
