"""The commands of the session engine, and the effects that it wants carried out in return. Every command brings its
time (`now`, Unix milliseconds) and the ids it needs, so that the engine has no I/O. A fork is a `Create` that names the
session whose history it continues."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from makai.core import session_events as ev
from makai.core.content import SessionPart
from makai.core.messages import Message
from makai.harness.base import Effect, ResumeRun, StartCompaction, StartRun


class Timed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of every command."""

    now: int


class Create(Timed, ev.HasPermissionMode, frozen=True, tag="create"):
    model_ref: str
    mode: ev.DecodedMode = "ask"
    harness: str = "native"
    capabilities: ev.HarnessCapabilities = ev.HarnessCapabilities()
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    title: str = ""
    forked_from: str | None = None
    forked_at: int | None = None
    terms: ev.SessionTerms = ev.SessionTerms()
    made_by: str = ""


class Send(Timed, frozen=True, tag="send"):
    """Input for the agent. Without `delivery` a session with an active run is busy. A repeated `client_msg_id` is
    accepted without any effect, at any later time."""

    input_id: str
    """Unique; the id of the run it starts is derived from it."""
    content: str | tuple[SessionPart, ...]
    client_msg_id: str | None = None
    delivery: ev.Delivery | None = None
    """"queue" starts a run of its own when the active one has settled; "steer" is read between two of its turns."""
    terms: ev.RunTerms = ev.RunTerms()
    """Of the run it starts; steering input has none."""
    history: tuple[Message, ...] = ()
    """Messages of an earlier conversation, which come before the input. They cannot wait for another run."""
    continues: bool = False
    """Answer the conversation as it is: there is no input, and `content` is empty."""


class WithdrawInput(Timed, frozen=True, tag="withdraw_input"):
    """Take back an input that waits, so that it never runs. Refused when an agent has read it, or may have."""

    input_id: str
    token: str = ""


class ApproveCall(Timed, frozen=True, tag="approve"):
    call_id: str
    by: str
    reason: str = ""
    scope: ev.GrantScope = "once"
    digest: str | None = None
    """When given, the approval counts only for arguments of this digest."""
    grant: str = ""
    """For a wider scope: the chosen one of the offered rules; by default `approval_requested.grant`."""
    option_id: str = ""
    """The chosen option of an external agent's question; by default the first that fits the scope."""
    token: str = ""
    """The token of the caller, for the log; so in the other commands."""


class DenyCall(Timed, frozen=True, tag="deny"):
    """Deny and continue: the agent gets the reason, and the run continues."""

    call_id: str
    by: str
    reason: str = ""
    scope: ev.GrantScope = "once"
    grant: str = ""
    option_id: str = ""
    token: str = ""


class Abort(Timed, frozen=True, tag="abort"):
    """Stop the active run, or refuse when `run_id` names another one."""

    run_id: str | None = None
    by: str = ""
    reason: str = ""
    token: str = ""


class SetMode(Timed, ev.HasPermissionMode, frozen=True, tag="set_mode"):
    mode: ev.DecodedMode
    agent_mode: str = ""
    """One of the agent's own modes; empty to leave it as it is."""
    token: str = ""


class SetModel(Timed, frozen=True, tag="set_model"):
    """Which model the next run uses; an active run keeps its own."""

    model_ref: str


class SetHarness(Timed, frozen=True, tag="set_harness"):
    """Which agent carries out the next runs. A client names the agent and, where that needs one, a model; the owner
    fills in the rest."""

    harness: str
    model_ref: str = ""
    capabilities: ev.HarnessCapabilities = ev.HarnessCapabilities()
    terms: ev.SessionTerms | None = None
    """The terms without what the new agent cannot take."""
    dropped: tuple[str, ...] = ()
    token: str = ""


class SetTitle(Timed, frozen=True, tag="set_title"):
    title: str


class SetTerms(Timed, frozen=True, tag="set_terms"):
    """What the next run works with: a client that comes back may declare other tools."""

    terms: ev.SessionTerms


class RestoreFiles(Timed, frozen=True, tag="restore_files"):
    """Undo file changes of the session, or redo what was undone: all of it or nothing. A client says which; the owner
    looks at the files and fills in the rest."""

    direction: ev.RestoreDirection = "undo"
    count: int = 1
    """How many messages with file changes, from the last one back."""
    to: int | None = None
    """The event of a message: everything since then, in place of `count`."""
    plan_id: str = ""
    """Of the preview that a person saw; refused when the plan is another one by now."""
    message: int = 0
    events: tuple[int, ...] = ()
    files: tuple[ev.RestoredFile, ...] = ()
    token: str = ""


class Compact(Timed, frozen=True, tag="compact"):
    """Replace the conversation so far by a summary; a run of its own."""

    input_id: str
    """Unique, as in `Send`."""
    instructions: str = ""


class Archive(Timed, frozen=True, tag="archive"):
    """Put the session out of the way of lists, or back into them; also while a run is active, and after its end. A new
    message brings it back."""

    archived: bool = True


class Close(Timed, frozen=True, tag="close"):
    """End the session for good; its log stays readable."""

    reason: str = ""


Setting: TypeAlias = SetMode | SetModel | SetHarness | SetTitle | SetTerms
UserCommand: TypeAlias = (
    Send | WithdrawInput | ApproveCall | DenyCall | Abort | Setting | Compact | Archive | Close | RestoreFiles
)
"""What a client may ask of a session. The owner sets `now`; a client's value is ignored."""


class Report(Timed, frozen=True, gc=False, tag="report"):
    """A fact an agent, a harness or a tool produced. What belongs to a run names it; late reports of a run that is over
    are dropped. The engine adds what follows from a fact (status changes, the end of open calls), so those are never
    reported. Steering input that the agent has read is reported as its `user_message`, of which only the `input_id` is
    looked at."""

    event: ev.SessionEvent
    run_id: str | None = None


class SettleRestore(Timed, frozen=True, tag="settle_restore"):
    """What became of the files of the open `files_restoring`."""

    files: tuple[ev.RestoredFile, ...]
    problem: str = ""


class TimePassed(Timed, frozen=True, tag="time_passed"):
    """Nothing happened; approvals may have run out (`SessionState.next_deadline` says when to ask)."""


class Recovered(Timed, frozen=True, tag="recovered"):
    """The server was restarted; sent once per session, before any other command."""

    can_resume: bool
    """Whether this session's harness can continue a run from the log."""


Command: TypeAlias = Create | UserCommand | Report | SettleRestore | TimePassed | Recovered


class CancelRun(Effect, frozen=True, tag="cancel_run"):
    """Stop everything of the run; report `run_finished` when all of it is gone, however that ended."""


class Steer(Effect, frozen=True, tag="steer"):
    """Give this input to the agent. It reports the `user_message` when it has read it."""

    input_id: str
    content: str | tuple[SessionPart, ...]


class ResolveApproval(Effect, frozen=True, tag="resolve_approval"):
    """The call's wait is over. The loop reports `tool_started` before it does what was approved."""

    decided: ev.ApprovalDecided


class RunTool(Effect, frozen=True, tag="run_tool"):
    """The start of the call is on disk: do it now, once."""

    call_id: str


AnyEffect: TypeAlias = StartRun | StartCompaction | ResumeRun | CancelRun | Steer | ResolveApproval | RunTool

CallStatus: TypeAlias = Literal["called", "pending", "approved", "denied", "started"]
"""Where an open call stands; a finished one is not open any more."""
