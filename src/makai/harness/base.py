"""The port between a session and the agent that runs for it.

A `SessionHarness` runs an agent: it reports facts and asks for decisions through the `RunPort` of a run, which the
session implements. The session layer knows a harness only by its id and its capabilities, and a harness knows nothing
of logs, clients or other sessions. This module has no I/O: the pure engine of sessions imports it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from makai.agent.host import AgentHost
from makai.core import session_events as ev
from makai.core.confinement import SESSION_SANDBOX, Confinement, OfferedGrant
from makai.core.content import Image, SessionPart, Text
from makai.core.errors import MakaiError
from makai.core.messages import Message
from makai.core.request import ToolDefinition
from makai.core.usage import Usage


class Effect(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of what the engine wants done, in order, after the events of the same decision are committed."""

    run_id: str


class StartRun(Effect, frozen=True, tag="start_run"):
    """Answer the newest input; the conversation is in the log."""

    input_id: str
    model_ref: str


class StartCompaction(Effect, frozen=True, tag="start_compaction"):
    """Summarise, without turns; report `compacted`, then `run_finished` with what it used."""

    instructions: str
    model_ref: str


class ResumeRun(Effect, frozen=True, tag="resume_run"):
    """Continue after a restart: settle the open calls of the run first, then take the next turn."""

    model_ref: str


RunStart: TypeAlias = StartRun | ResumeRun | StartCompaction
Settlement: TypeAlias = ev.RunFinished | ev.RunFailed


def run_failed(error: MakaiError, usage: Usage | None = None) -> ev.RunFailed:
    return ev.RunFailed(
        usage=usage or Usage(),
        code=error.code,
        message=error.message,
        hint=error.hint,
        provider_id=getattr(error, "provider_id", None),
        retry_after_ms=getattr(error, "retry_after_ms", None),
    )


class PlacedMessage(msgspec.Struct, frozen=True):
    """A message and the last event it is made of: compacting through that event replaces it and all before it."""

    event_id: int
    message: Message
    said: tuple[SessionPart, ...] | None = None
    """What a person said and attached, when that is more than text; `message` has it as words."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is asked to decide about a call. The decision binds to exactly the arguments of `call`."""

    call: ev.ToolCalled
    title: str = ""
    diffs: tuple[ev.FileDiff, ...] = ()
    grant: str = ""
    """The permission rule that a decision for the session, or for always, sets by default. Empty: only once."""
    grants: tuple[OfferedGrant, ...] = ()
    confinement: Confinement = SESSION_SANDBOX
    options: tuple[ev.ApprovalOption, ...] = ()
    """The answers that an external agent offers; the decision names the chosen one."""


class ToolRequest(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    run_id: str
    call_id: str
    name: str
    arguments: Mapping[str, Any]
    server_id: str = ""
    """The tool server whose tool `name` is; empty for tools of the session's client."""


class ToolServerOffer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a program registers under a name for every session whose terms name it."""

    server_id: str
    tools: tuple[ToolDefinition, ...]
    timeout_s: float
    """How long the start of a call, and then its answer, may take."""
    token: str = ""
    """The token that registers; empty for processes of the user and the server's own token."""
    is_shared: bool = True
    """Whether sessions of other callers may use it; not when a token registers that may only prompt."""


class ToolAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    content: tuple[Text | Image, ...]
    is_error: bool = False
    details_json: str | None = None


Execute: TypeAlias = Callable[[ToolRequest], Awaitable[ToolAnswer]]
"""Executes one call. It is cancelled when the run no longer wants the answer."""
Report: TypeAlias = Callable[[str], None]
"""Takes output of a call as it arrives, for the people who watch."""
ExecuteServed: TypeAlias = Callable[[ToolRequest, Report], Awaitable[ToolAnswer]]
"""Executes one call of a tool server. Raises `ToolTimeout`."""


class SessionContext(Protocol):
    """What a harness may know of its session. Always the committed state: modes and terms change during a run."""

    @property
    def model_ref(self) -> str: ...
    @property
    def mode(self) -> ev.PermissionMode: ...
    @property
    def agent(self) -> ev.AgentSession | None:
        """What the harness reported last about the agent's own session, also before a restart."""

    @property
    def agent_cost_usd(self) -> float:
        """Of the runs before this one in the agent's own session; other agents may have cost more."""

    @property
    def agent_mode(self) -> str:
        """The mode of the agent's own that was chosen last."""

    @property
    def cwd(self) -> str | None: ...
    @property
    def roots(self) -> tuple[str, ...]: ...
    @property
    def title(self) -> str: ...
    @property
    def terms(self) -> ev.SessionTerms: ...
    @property
    def usage(self) -> Usage:
        """Of all runs before this one."""

    @property
    def restored(self) -> tuple[str, ...]:
        """What the agent has to know of files that a user restored since the last run."""


class RunContext(Protocol):
    """What a harness may know of its run."""

    @property
    def run_number(self) -> int: ...
    @property
    def model_ref(self) -> str: ...
    @property
    def terms(self) -> ev.RunTerms: ...
    @property
    def turn(self) -> int:
        """The number of the newest turn, 0 before the first."""

    @property
    def usage(self) -> Usage:
        """Of the turns that ended."""


class RunPort(AgentHost, Protocol):
    """One run as its harness sees it."""

    @property
    def session_id(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def session(self) -> SessionContext: ...
    @property
    def run(self) -> RunContext: ...
    @property
    def environ(self) -> Mapping[str, str]:
        """Variables of the caller that started the run: they win over those of this process. Never put them into a fact
        or a message."""

    @property
    def is_aborted(self) -> bool:
        """A user stopped the run. A cancellation without it means that this process lets go of the session."""

    def check_storable(self, event: ev.SessionEvent) -> None:
        """Raise `InvalidRequest` when the log cannot hold this fact, so that a harness can report less instead."""

    async def decide(self, question: Question) -> ev.ApprovalDecided:
        """Ask a person and wait for the decision. A cancelled wait withdraws the question."""

    async def earlier_decision(
        self,
        call: ev.ToolCalled,
        diffs: tuple[ev.FileDiff, ...] = (),
        confinement: Confinement = SESSION_SANDBOX,
    ) -> ev.ApprovalDecided | None:
        """What was decided, or is still being asked, about a call since before the run was resumed. None for a call
        without a question. Denied when the call would no longer make the changes (`diffs`) that the question showed, or
        would open something else than it showed."""

    def asked_confinement(self, call_id: str) -> Confinement | None:
        """What the question about a call showed, when there was one before the run was resumed."""

    async def grants(self) -> Sequence[tuple[str, bool]]:
        """The rules that people set while deciding calls, for this session or its folder: text, and allow or deny."""

    async def until_steered(self) -> None:
        """Return when `steering` has input, for agents that can read it at any time."""

    def elapsed_s(self) -> float:
        """How long the run has taken so far, restarts included."""

    async def input(self, input_id: str) -> ev.UserInput:
        """What the user said to start the run, with the parts that models get as text only."""

    async def conversation(self) -> Sequence[PlacedMessage]:
        """The conversation so far, beginning with the newest summary."""

    async def open_calls(self) -> tuple[ev.ToolCalled, ...]:
        """The calls of a resumed run that have no result yet, in order."""

    def execute(self, request: ToolRequest) -> Awaitable[ToolAnswer | None]:
        """Have the client that declared a tool execute it; None when no such client is connected."""


@runtime_checkable
class InputHarness(Protocol):
    """A harness that knows which content its models take."""

    def check_input(self, model_ref: str, content: str | tuple[SessionPart, ...]) -> None:
        """Raise `InvalidRequest` for a message that the model is known not to take."""


@runtime_checkable
class SelectiveHarness(Protocol):
    """A harness whose agent has instructions and tools of its own, and takes some of a session's settings."""

    def not_taken(self, terms: ev.SessionTerms) -> Sequence[str]:
        """The settings of a session that its agent does not take, `max_usd` among them when it cannot be kept."""


class SessionHarness(Protocol):
    """Runs agents of one kind."""

    @property
    def id(self) -> str: ...
    @property
    def capabilities(self) -> ev.HarnessCapabilities: ...

    def check(self, cwd: str | None, roots: tuple[str, ...], terms: ev.SessionTerms) -> None:
        """Raise `InvalidRequest` when a session cannot work like this: better at its creation than in its first run."""

    async def run(self, port: RunPort, start: RunStart) -> Settlement:
        """Run to the end and say how it ended. Cancelled: stop everything of the run, then raise `CancelledError`, or
        say what an aborted run used."""

    async def forget(self, session_id: str) -> None:
        """Free what the harness keeps for a session between runs: the session is deleted."""
