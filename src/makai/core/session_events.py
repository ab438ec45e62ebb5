"""Session events: what the log of a session holds. Everything else about a session is a view of it (DESIGN §4).

In: what users, agents and tools did. Out: frozen Structs tagged by `type`, and `Logged`, one of them with its number.
No protocol, store or clock is known here. Events are facts: they are never changed, and a reader that does not know
one keeps it and passes it on.

Words: a *run* is one user input up to its settlement; a *turn* is one model call inside it. `call_id` is ours and
unique in a session; the vendor's id is kept beside it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from makai.core.content import Image, Text, UserPart
from makai.core.messages import StopReason
from makai.core.request import StreamOptions, ToolDefinition
from makai.core.usage import Usage

PermissionMode: TypeAlias = Literal["ask", "accept_edits", "plan", "full_access"]
RunStatus: TypeAlias = Literal["starting", "running", "awaiting_approval", "aborting", "finished", "error"]
"""Document 002's statuses; a session without a run is "idle"."""
Decision: TypeAlias = Literal["approve", "deny_continue", "deny_abort"]
GrantScope: TypeAlias = Literal["once", "session", "always"]
Delivery: TypeAlias = Literal["queue", "steer"]
RunPurpose: TypeAlias = Literal["input", "compaction"]


SandboxLevel: TypeAlias = Literal["read-only", "workspace-write", "full-access"]


class SessionTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session works with, for all its runs and whichever process runs them."""

    system: str | None = None
    """Instructions instead of our own."""
    builtin_tools: bool = False
    """Files, shell, search, fetch, plan and MCP, beneath the session's roots."""
    tools: tuple[ToolDefinition, ...] = ()
    """Tools that a client declared and carries out itself."""
    sandbox: SandboxLevel = "workspace-write"
    approval_s: float | None = None
    """How long a question may wait for a person; None: for as long as the session's host says."""


class RunTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits and wishes that came with one input. A limit of None is no limit."""

    options: StreamOptions = StreamOptions()
    max_turns: int | None = None
    max_output_tokens: int | None = None
    max_usd: float | None = None
    max_seconds: float | None = None
    allow: tuple[str, ...] = ()
    """Permission rules that count for this run only."""
    deny: tuple[str, ...] = ()


class HarnessCapabilities(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent of a session can do. The defaults are those of the native loop."""

    resume: bool = True
    """Continue a run after a restart of the server."""
    steer: bool = True
    """Read further input during a run."""
    compact: bool = True


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of every session event."""


# ---------------------------------------------------------------- the session


class SessionCreated(Fact, frozen=True, tag="session_created"):
    model_ref: str
    mode: PermissionMode = "ask"
    harness: str = "native"
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    title: str = ""
    forked_from: str | None = None
    """The session whose history this one continues, up to `forked_at`."""
    forked_at: int | None = None
    terms: SessionTerms = SessionTerms()


class TitleChanged(Fact, frozen=True, tag="title_changed"):
    title: str


class ModelChanged(Fact, frozen=True, tag="model_changed"):
    model_ref: str


class ModeChanged(Fact, frozen=True, tag="mode_changed"):
    mode: PermissionMode


class TermsChanged(Fact, frozen=True, tag="terms_changed"):
    terms: SessionTerms


class SessionClosed(Fact, frozen=True, tag="session_closed"):
    reason: str = ""


# ---------------------------------------------------------------- input


class InputAccepted(Fact, frozen=True, tag="input_accepted"):
    """A user's words were taken; they become a `user_message` when their turn comes."""

    input_id: str
    content: str | tuple[UserPart, ...]
    client_msg_id: str | None = None
    delivery: Delivery = "queue"
    terms: RunTerms = RunTerms()


class UserMessage(Fact, frozen=True, tag="user_message"):
    """The words are part of the conversation from here on."""

    input_id: str
    content: str | tuple[UserPart, ...]
    client_msg_id: str | None = None


# ---------------------------------------------------------------- the run


class RunStarted(Fact, frozen=True, tag="run_started"):
    run_number: int
    model_ref: str
    purpose: RunPurpose = "input"
    """A compaction that a user asked for is a run without words of its own: it can be aborted, and it is busy."""
    terms: RunTerms = RunTerms()


class RunStatusChanged(Fact, frozen=True, tag="run_status"):
    status: RunStatus


class RunResumed(Fact, frozen=True, tag="run_resumed"):
    """The server died during the run and came back; the run goes on from what the log says."""


class RunAborted(Fact, frozen=True, tag="run_aborted"):
    """Someone stopped the run. From here on it says nothing new: open calls are closed, then it settles."""

    by: str = ""
    reason: str = ""


class RunFinished(Fact, frozen=True, tag="run_finished"):
    """The run settled by itself, or was aborted by its user."""

    stop_reason: StopReason
    usage: Usage = Usage()


class RunFailed(Fact, frozen=True, tag="run_failed"):
    """The run ended in an error: a code of `core.errors`, or "interrupted" after a crash of the server."""

    code: str
    message: str
    hint: str | None = None
    provider_id: str | None = None
    """Whose fault it was, or whose login is needed."""
    retry_after_ms: int | None = None
    usage: Usage = Usage()


class TurnStarted(Fact, frozen=True, tag="turn_started"):
    turn: int
    model_ref: str = ""
    """Who is asked: signatures in the answer are good for this model only."""


class TurnEnded(Fact, frozen=True, tag="turn_ended"):
    turn: int
    stop_reason: StopReason
    usage: Usage = Usage()


# ---------------------------------------------------------------- what the model says


class AssistantTextDelta(Fact, frozen=True, tag="text_delta"):
    """Words while they arrive, as many as one commit held. Live display only: `assistant_text` has all of them."""

    content_index: int
    delta: str


class ReasoningDelta(Fact, frozen=True, tag="thinking_delta"):
    content_index: int
    delta: str


class AssistantText(Fact, frozen=True, tag="assistant_text"):
    """A whole text block."""

    content_index: int
    text: str
    signature: str | None = None


class Reasoning(Fact, frozen=True, tag="reasoning"):
    """A whole thinking block."""

    content_index: int
    text: str
    signature: str | None = None
    redacted: bool = False


# ---------------------------------------------------------------- tools and approvals


class FilePlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in a file that a call touches."""

    path: str
    line: int | None = None


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What a call changes in a file; `old_text` is None for a new one."""

    path: str
    old_text: str | None
    new_text: str


class ToolCalled(Fact, frozen=True, tag="tool_call"):
    """The model wants a tool to run."""

    call_id: str
    name: str
    arguments_json: str
    content_index: int = 0
    vendor_call_id: str = ""
    signature: str | None = None
    arguments_error: str | None = None
    kind: str = "other"
    title: str = ""
    locations: tuple[FilePlace, ...] = ()


class ApprovalRequested(Fact, frozen=True, tag="approval_requested"):
    """A person has to decide. `digest` binds the decision to exactly these arguments."""

    call_id: str
    name: str
    arguments_json: str
    digest: str
    title: str = ""
    diffs: tuple[FileDiff, ...] = ()
    deadline_ms: int | None = None
    """Unix milliseconds; a call nobody decided by then is denied."""
    grant: str = ""
    """The rule a decision for the session, or for always, would set, such as `Bash(git log:*)`. Empty: only once."""


class ApprovalDecided(Fact, frozen=True, tag="approval_decided"):
    call_id: str
    decision: Decision
    by: str = ""
    """Who: a client's name, "rule", "mode", "deadline", "abort" or "run_ended"."""
    reason: str = ""
    scope: GrantScope = "once"
    grant: str = ""
    """The rule that was set, when the scope is wider than this one call."""


class ToolStarted(Fact, frozen=True, tag="tool_started"):
    """From here on the tool may have had an effect: it is never run a second time."""

    call_id: str


class ToolProgress(Fact, frozen=True, tag="tool_progress"):
    call_id: str
    text: str


class ToolFinished(Fact, frozen=True, tag="tool_finished"):
    call_id: str
    content: tuple[Text | Image, ...]
    is_error: bool = False
    diffs: tuple[FileDiff, ...] = ()
    exit_code: int | None = None
    omitted_bytes: int = 0
    spill_path: str | None = None
    details_json: str | None = None
    """What a client's tool says for clients, beside what it tells the model."""
    interrupted: bool = False
    """The server died or the run was aborted while it ran; what it did is unknown."""


# ---------------------------------------------------------------- what else there is to know


class PlanEntry(msgspec.Struct, frozen=True, kw_only=True):
    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"
    priority: Literal["high", "medium", "low"] = "medium"


class PlanUpdated(Fact, frozen=True, tag="plan"):
    entries: tuple[PlanEntry, ...]


class UsageReported(Fact, frozen=True, tag="usage"):
    """What the session has consumed so far, and how full the context is."""

    total: Usage
    context_tokens: int | None = None
    context_window: int | None = None


class Notice(Fact, frozen=True, tag="notice"):
    """Something the user should know that no one said: waiting for a rate limit, a stalled provider, a retry."""

    level: Literal["info", "warning", "error"]
    code: str
    message: str


class Compacted(Fact, frozen=True, tag="compacted"):
    """Everything up to `through` is represented by this summary when the model is asked again."""

    summary: str
    through: int


SessionEvent: TypeAlias = (
    SessionCreated
    | TitleChanged
    | ModelChanged
    | ModeChanged
    | TermsChanged
    | SessionClosed
    | InputAccepted
    | UserMessage
    | RunStarted
    | RunStatusChanged
    | RunResumed
    | RunAborted
    | RunFinished
    | RunFailed
    | TurnStarted
    | TurnEnded
    | AssistantTextDelta
    | ReasoningDelta
    | AssistantText
    | Reasoning
    | ToolCalled
    | ApprovalRequested
    | ApprovalDecided
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | PlanUpdated
    | UsageReported
    | Notice
    | Compacted
)


class Logged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event with its place in the log of its session."""

    event_id: int
    """Strictly increasing per session, from 1, without gaps."""
    ts: int
    """Unix milliseconds; never decreasing within a session, whatever the clock does."""
    event: SessionEvent
    run_id: str | None = None
