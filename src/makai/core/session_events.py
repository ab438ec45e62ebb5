"""Session events: what the log of a session holds. Everything else about a session is a view of it.

Events are facts that never change; a reader keeps and passes on one that it does not know. The log of older versions
stays readable: a new field has a default, and tags never change.
A *run* is one user input up to its settlement; a *turn* is one model call inside it. `call_id` is unique in a session;
the vendor's id is kept beside it. What a sub-agent does names the open call of its parent in `parent_call_id`.
"""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

import msgspec

from makai.core.confinement import SESSION_SANDBOX, Confinement, OfferedGrant
from makai.core.content import SessionPart
from makai.core.durations import duration
from makai.core.file_versions import FileVersions as FileVersions
from makai.core.file_versions import RestoredFile as RestoredFile
from makai.core.file_versions import RestoreDirection as RestoreDirection
from makai.core.messages import Message, StopReason
from makai.core.permission_modes import FORMER_MODES as FORMER_MODES
from makai.core.permission_modes import MODES as MODES
from makai.core.permission_modes import DecodedMode as DecodedMode
from makai.core.permission_modes import HasPermissionMode as HasPermissionMode
from makai.core.permission_modes import PermissionMode as PermissionMode
from makai.core.session_terms import SANDBOX_MEANINGS as SANDBOX_MEANINGS
from makai.core.session_terms import ClientCapabilities as ClientCapabilities
from makai.core.session_terms import HarnessCapabilities as HarnessCapabilities
from makai.core.session_terms import McpServer as McpServer
from makai.core.session_terms import RunTerms as RunTerms
from makai.core.session_terms import SandboxLevel as SandboxLevel
from makai.core.session_terms import SessionTerms as SessionTerms
from makai.core.usage import Usage

RunStatus: TypeAlias = Literal["starting", "running", "awaiting_approval", "aborting", "finished", "error"]
"""The statuses of the MiniCodex protocol; a session without a run is "idle"."""
Decision: TypeAlias = Literal["approve", "deny_continue", "deny_abort"]
GrantScope: TypeAlias = Literal["once", "session", "always"]
Delivery: TypeAlias = Literal["queue", "steer"]
RunPurpose: TypeAlias = Literal["input", "compaction"]


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of every session event."""


class NestedFact(Fact, frozen=True, kw_only=True):
    """Base of what an agent and its sub-agents say and do."""

    parent_call_id: str = ""
    """The open call in which a sub-agent says it; empty for the agent of the session."""


class SessionCreated(Fact, HasPermissionMode, frozen=True, tag="session_created"):
    model_ref: str
    """Empty when the agent needs no model of the catalog."""
    mode: DecodedMode = "ask"
    harness: str = "native"
    capabilities: HarnessCapabilities = HarnessCapabilities()
    """Of the harness when the session was created: later decisions follow them in every process."""
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    title: str = ""
    forked_from: str | None = None
    """The session whose history this one continues, up to `forked_at`."""
    forked_at: int | None = None
    terms: SessionTerms = SessionTerms()
    made_by: str = ""
    """"run" for a session that `makai run` began; empty for any other."""


class SessionArchived(Fact, frozen=True, tag="session_archived"):
    """The session is put out of the way of lists, or back into them. Nothing else about it changes."""

    archived: bool


class TitleChanged(Fact, frozen=True, tag="title_changed"):
    title: str


class ModelChanged(Fact, frozen=True, tag="model_changed"):
    model_ref: str


class HarnessChanged(Fact, frozen=True, tag="harness_changed"):
    """Another agent carries out the runs from here on. It has no memory of its own of what was said before."""

    harness: str
    model_ref: str = ""
    capabilities: HarnessCapabilities = HarnessCapabilities()
    dropped: tuple[str, ...] = ()
    """What the new agent does not take over, in words for people."""
    token: str = ""
    """The token of the caller, as in `mode_changed`."""


class ModeChanged(Fact, HasPermissionMode, frozen=True, tag="mode_changed"):
    mode: DecodedMode
    agent_mode: str = ""
    """A mode of the agent's own that was chosen, one of `agent_session.modes`; empty when it stays as it is."""
    token: str = ""
    """The token of the caller (`Caller.label`); "local" for a process of the same user."""


class TermsChanged(Fact, frozen=True, tag="terms_changed"):
    terms: SessionTerms


class AgentOption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A mode, a model or a command that an agent offers."""

    id: str
    name: str = ""
    description: str = ""


class AgentSession(Fact, frozen=True, tag="agent_session"):
    """The agent's own session, as a whole; reported when it starts and again whenever something of it changes."""

    agent_session_id: str
    """By which the agent finds its session again after a restart."""
    agent: str = ""
    version: str = ""
    capabilities: tuple[str, ...] = ()
    """As the agent names them."""
    modes: tuple[AgentOption, ...] = ()
    mode: str = ""
    models: tuple[AgentOption, ...] = ()
    model: str = ""
    commands: tuple[AgentOption, ...] = ()


class SessionClosed(Fact, frozen=True, tag="session_closed"):
    reason: str = ""


class InputAccepted(Fact, frozen=True, tag="input_accepted"):
    """Input was taken; it becomes a `user_message` when a run reads it, unless it is withdrawn before that."""

    input_id: str
    content: str | tuple[SessionPart, ...]
    client_msg_id: str | None = None
    delivery: Delivery = "queue"
    terms: RunTerms = RunTerms()


class InputWithdrawn(Fact, frozen=True, tag="input_withdrawn"):
    """A user took back an input before a run read it: it never becomes a `user_message`."""

    input_id: str
    token: str = ""
    """The token of the caller, as in `mode_changed`."""


class UserInput(Fact, frozen=True, tag="user_message"):
    """The input is part of the conversation from here on."""

    input_id: str
    content: str | tuple[SessionPart, ...]
    client_msg_id: str | None = None


class HistoryMessage(Fact, frozen=True, tag="history_message"):
    """A message of an earlier conversation that a client brought along. The model sees it like what was said here."""

    message: Message


class RunStarted(Fact, frozen=True, tag="run_started"):
    run_number: int
    model_ref: str
    purpose: RunPurpose = "input"
    """A compaction that a user asked for is a run without words of its own: it can be aborted, and it is busy."""
    terms: RunTerms = RunTerms()
    input_id: str = ""
    """Of a run that answers the conversation as it is; that of any other run is in its `user_message`."""
    client_msg_id: str | None = None
    retried_run_id: str = ""
    """The failed run that this one asks again: words that broke off there are not part of the conversation."""
    without_turns: bool = False
    """The agent of the run reports no turns (`HarnessCapabilities.has_turns`)."""


class RunStatusChanged(Fact, frozen=True, tag="run_status"):
    status: RunStatus


class RunResumed(Fact, frozen=True, tag="run_resumed"):
    """The server ended during the run and came back; the run continues from the log."""


class RunAborted(Fact, frozen=True, tag="run_aborted"):
    """A user stopped the run. From here on it says nothing new: open calls are closed, then it settles."""

    by: str = ""
    reason: str = ""
    token: str = ""


class RunFinished(Fact, frozen=True, tag="run_finished"):
    """The run settled by itself, or was aborted by its user."""

    stop_reason: StopReason
    usage: Usage = Usage()
    turns: int = 0
    """Of an agent that has no turns in the log and says how many it took."""


class RunFailed(Fact, frozen=True, tag="run_failed"):
    """The run ended in an error: a code of `core.errors`, or "interrupted" after a crash of the server."""

    code: str
    message: str
    hint: str | None = None
    provider_id: str | None = None
    """Whose fault it was, or whose login is needed."""
    retry_after_ms: int | None = None
    usage: Usage = Usage()


class TurnStarted(NestedFact, frozen=True, tag="turn_started"):
    turn: int
    model_ref: str = ""
    """The model that is asked: signatures in the answer are valid for it only."""


class TurnEnded(NestedFact, frozen=True, tag="turn_ended"):
    turn: int
    stop_reason: StopReason
    usage: Usage = Usage()
    is_final: bool = False
    """The answer broke off, and the model is not asked again: what was said of it is the answer."""


class AssistantTextDelta(NestedFact, frozen=True, gc=False, tag="text_delta"):
    """Words while they arrive, as many as one commit held. Live display only: `assistant_text` has all of them."""

    content_index: int
    delta: str


class ReasoningDelta(NestedFact, frozen=True, gc=False, tag="thinking_delta"):
    content_index: int
    delta: str


Delta: TypeAlias = AssistantTextDelta | ReasoningDelta
"""A name for `isinstance` also: `A | B` in a function builds a new type with every call."""


class AssistantText(NestedFact, frozen=True, tag="assistant_text"):
    """A whole text block."""

    content_index: int
    text: str
    signature: str | None = None
    broken_off: bool = False
    """The run was aborted or failed in the middle of the block: this is what was said of it. Older logs have only the
    deltas."""


class Reasoning(NestedFact, frozen=True, tag="reasoning"):
    """A whole thinking block."""

    content_index: int
    text: str
    signature: str | None = None
    redacted: bool = False
    broken_off: bool = False
    """As in `AssistantText`."""


class FilePlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in a file that a call touches."""

    path: str
    line: int | None = None


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What a call changes in a file; `old_text` is None for a new one."""

    path: str
    old_text: str | None
    new_text: str


class ToolCalled(NestedFact, frozen=True, tag="tool_call"):
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
    raw_input_json: str | None = None
    """What an external agent gives as input of the call, when that differs from `arguments_json`."""


class ApprovalOption(msgspec.Struct, frozen=True, kw_only=True):
    """One of the answers that an external agent offers."""

    id: str
    label: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class ApprovalRequested(Fact, frozen=True, tag="approval_requested"):
    """A person has to decide. `digest` binds the decision to exactly these arguments and this confinement."""

    call_id: str
    name: str
    arguments_json: str
    digest: str
    title: str = ""
    diffs: tuple[FileDiff, ...] = ()
    deadline_ms: int | None = None
    """Unix milliseconds; a call without a decision by then is denied."""
    grant: str = ""
    """The rule that a decision for more than once sets by default, such as `Bash(git log:*)`; empty: only once."""
    options: tuple[ApprovalOption, ...] = ()
    """Empty when the question is not an external agent's."""
    confinement: Confinement = SESSION_SANDBOX
    """What the call is given beyond the session's sandbox when it is approved."""
    grants: tuple[OfferedGrant, ...] = ()
    """The rules that a decision may choose from, the narrowest first; `grant` is one of them."""


class ApprovalDecided(Fact, frozen=True, tag="approval_decided"):
    call_id: str
    decision: Decision
    by: str = ""
    """Who: a client's name, "rule", "mode", "deadline", "abort" or "run_ended"."""
    reason: str = ""
    scope: GrantScope = "once"
    grant: str = ""
    """The rule that was set, when the scope is wider than this one call."""
    option_id: str = ""
    """The chosen one of the options that the agent offered."""
    token: str = ""
    """The token with which a person decided, as in `mode_changed`; empty when no person did."""


class ToolStarted(Fact, frozen=True, tag="tool_started"):
    """From here on the tool may have had an effect: it is never run a second time."""

    call_id: str


class ToolProgress(Fact, frozen=True, tag="tool_progress"):
    call_id: str
    text: str


class ToolUpdated(Fact, frozen=True, tag="tool_updated"):
    """What is new about a call while it is open. A field of None leaves what was said before."""

    call_id: str
    title: str | None = None
    kind: str | None = None
    status: Literal["pending", "in_progress", "completed", "failed"] | None = None
    locations: tuple[FilePlace, ...] | None = None
    content: tuple[SessionPart, ...] | None = None
    diffs: tuple[FileDiff, ...] | None = None
    raw_output_json: str | None = None
    terminal_id: str | None = None
    """The terminal of a client in which the command runs; only the connection that made it can show it."""


class ToolFinished(Fact, frozen=True, tag="tool_finished"):
    call_id: str
    content: tuple[SessionPart, ...]
    is_error: bool = False
    diffs: tuple[FileDiff, ...] = ()
    exit_code: int | None = None
    omitted_bytes: int = 0
    spill_path: str | None = None
    details_json: str | None = None
    """What a client's tool says for clients, beside what it tells the model."""
    interrupted: bool = False
    """The server ended or the run was aborted during the call; what it did is unknown."""
    only_looked: bool = False
    """The command ran where it could write nothing but temporary files."""
    file_versions: tuple[FileVersions, ...] = ()
    """One for each of `diffs`, in their order; empty when the agent's own tools made the change, and in older logs."""


class PlanEntry(msgspec.Struct, frozen=True, kw_only=True):
    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"
    priority: Literal["high", "medium", "low"] = "medium"


class PlanUpdated(Fact, frozen=True, tag="plan"):
    entries: tuple[PlanEntry, ...]


class FilesRestoring(Fact, frozen=True, tag="files_restoring"):
    """A user wants file changes of the session undone or redone. From here on files may be changed; `files_restored`
    says what became of it."""

    direction: RestoreDirection
    message: int
    """The event of the message before which the files are, or after which they are again."""
    events: tuple[int, ...]
    """The `tool_finished` events whose changes are undone or redone."""
    files: tuple[RestoredFile, ...]
    token: str = ""


class FilesRestored(Fact, frozen=True, tag="files_restored"):
    """The files of the last `files_restoring` as they are now. Changes of a restored file count as undone or redone."""

    direction: RestoreDirection
    message: int
    events: tuple[int, ...]
    files: tuple[RestoredFile, ...]
    problem: str = ""
    """Why not all of them were restored."""
    token: str = ""


class UsageReported(Fact, frozen=True, tag="usage"):
    """What the session has consumed so far, and how full the context is."""

    total: Usage
    context_tokens: int | None = None
    context_window: int | None = None


LONG_WAIT_MS: Final = 5_000
"""Where a wait cannot be counted down, a shorter one is not worth a line."""


class Notice(Fact, frozen=True, tag="notice"):
    """Something the user should know: waiting for a rate limit, a stalled provider, a retry."""

    level: Literal["info", "warning", "error"]
    code: str
    message: str
    notice_id: str = ""
    """A notice that changes: views show it in the place of the earlier notice of the same id."""
    wait_ms: int | None = None
    """How long the run waits from the time of this event, for a countdown. The next notice of the id ends it, or the
    end of the run does."""

    def waiting_text(self, left_s: float | None = None, *, stops: str = "") -> str:
        """The message with the time that is left, by default all of it, and with what stops the wait; the message alone
        where nothing is waited for."""
        if self.wait_ms is None:
            return self.message
        left = duration(math.ceil(self.wait_ms / 1000 if left_s is None else left_s))
        return f"Waiting {left}{f', {stops}' if stops else ''}: {self.message}"


class Compacted(Fact, frozen=True, tag="compacted"):
    """Everything up to `through` is represented by this summary when the model is asked again."""

    summary: str
    through: int


SessionEvent: TypeAlias = (
    SessionCreated | TitleChanged | ModelChanged | HarnessChanged | ModeChanged | TermsChanged | AgentSession
    | SessionClosed | SessionArchived
    | InputAccepted | InputWithdrawn | UserInput | HistoryMessage
    | RunStarted | RunStatusChanged | RunResumed | RunAborted | RunFinished | RunFailed
    | TurnStarted | TurnEnded | AssistantTextDelta | ReasoningDelta | AssistantText | Reasoning
    | ToolCalled | ApprovalRequested | ApprovalDecided | ToolStarted | ToolProgress | ToolUpdated | ToolFinished
    | PlanUpdated | UsageReported | Notice | Compacted | FilesRestoring | FilesRestored
)  # fmt: skip


def is_of_sub_agent(event: SessionEvent) -> bool:
    """Whether a sub-agent says it. Views of one conversation leave it out; the calls of sub-agents they show."""
    return isinstance(event, NestedFact) and event.parent_call_id != "" and not isinstance(event, ToolCalled)


class Logged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An event with its place in the log of its session."""

    event_id: int
    """Strictly increasing per session, from 1, without gaps."""
    ts: int
    """Unix milliseconds; never decreasing within a session, whatever the clock does."""
    event: SessionEvent
    run_id: str | None = None
