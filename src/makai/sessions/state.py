"""What a session has to remember to decide the next command, and how its events change that. The conversation is not
part of it: `history` reads it from the log, so that an event costs the same in a session of a million. `evolve` refuses
no event of the log, rules are in `engine.decide`; an event of a newer version only takes its number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from itertools import chain, count, islice
from typing import Any, Final, TypeVar

import msgspec

from makai.core import session_events as ev
from makai.core.content import SessionPart
from makai.core.errors import LogConflict
from makai.core.messages import AssistantMessage
from makai.core.usage import Usage
from makai.sessions.commands import CallStatus
from makai.sessions.log.base import LoggedEvent

MAX_RESTORED: Final = 10
_RESTORED: Final = {
    ("undo", "create"): "exists again",
    ("undo", "change"): "has its earlier content",
    ("undo", "remove"): "does not exist any more",
    ("undo", "keep"): "is as it was",
    ("redo", "keep"): "is as it was",
    ("redo", "create"): "exists again",
    ("redo", "change"): "has your changes again",
    ("redo", "remove"): "does not exist any more",
}
StructT = TypeVar("StructT", bound=msgspec.Struct)


class Seen:
    """A set of texts that only grows, and of which every version stays valid. Versions share one dict from text to its
    place; a version knows how many places are its own. Adding to the newest version is one insertion; adding to an
    older one (its successor was never committed) copies first."""

    __slots__ = ("_places", "_size")

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        self._size = len(self._places)

    def __contains__(self, text: str) -> bool:
        place = self._places.get(text)
        return place is not None and place < self._size

    def __iter__(self) -> Iterator[str]:
        return islice(self._places, self._size)

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Seen):
            return NotImplemented
        return self._size == other._size and (self._places is other._places or all(text in other for text in self))

    __hash__ = None  # type: ignore[assignment]  # two equal sets may differ in order

    def __repr__(self) -> str:
        return f"Seen({list(self)!r})"

    def with_text(self, text: str) -> Seen:
        if text in self:
            return self
        newer = Seen.__new__(Seen)
        is_newest = len(self._places) == self._size
        newer._places = self._places if is_newest else {known: place for place, known in enumerate(self)}
        newer._places[text] = self._size
        newer._size = self._size + 1
        return newer


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Input that was taken and is not yet part of the conversation."""

    input_id: str
    content: str | tuple[SessionPart, ...]
    delivery: ev.Delivery
    client_msg_id: str | None = None
    terms: ev.RunTerms = ev.RunTerms()


class UnfinishedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call without a result so far."""

    call_id: str
    parent_call_id: str = ""
    event_id: int = 0
    """Of the `tool_call`."""
    name: str
    arguments_json: str
    status: CallStatus = "called"
    request: ev.ApprovalRequested | None = None
    """The question, while it is pending, and what was approved until it is done."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A rule a person set for the rest of the session while deciding a call."""

    rule: str
    allow: bool


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The newest run of a session, active or over."""

    run_id: str
    run_number: int
    model_ref: str
    purpose: ev.RunPurpose
    started_at: int
    terms: ev.RunTerms = ev.RunTerms()
    last_event_id: int
    """The last event that changed what is known here; deltas and progress do not."""
    status: ev.RunStatus = "starting"
    finished_at: int | None = None
    """When its status became "finished" or "error"."""
    settled: bool = False
    """`run_finished` or `run_failed` is in the log: there will be no more events of this run."""
    turn: int = 0
    turn_open: bool = False
    turn_began: int = 0
    """The event that opened the newest turn."""
    turn_has_calls: bool = False
    turn_failed: bool = False
    """The newest turn broke off: what it called for is not run."""
    calls: dict[str, UnfinishedCall] = {}
    """Open calls by id, in the order of the model."""
    has_tool_output: bool = False
    usage: Usage = Usage()
    resumes: int = 0
    """How often the run was resumed since it last ended a turn."""

    def pending(self) -> tuple[UnfinishedCall, ...]:
        return tuple(call for call in self.calls.values() if call.status == "pending")


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything `decide` needs. The state of a session that was never created is `SessionState()`."""

    last_event_id: int = 0
    last_ts: int = 0
    created_at: int = 0
    model_ref: str = ""
    mode: ev.DecodedMode = "ask"
    harness: str = "native"
    capabilities: ev.HarnessCapabilities = ev.HarnessCapabilities()
    agent: ev.AgentSession | None = None
    """The agent's own session, when it has one."""
    agent_cost_usd: float = 0.0
    """Of the runs in the agent's own session that are over."""
    agent_mode: str = ""
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    title: str = ""
    forked_from: str | None = None
    forked_at: int | None = None
    terms: ev.SessionTerms = ev.SessionTerms()
    made_by: str = ""
    archived: bool = False
    run_counter: int = 0
    run: Run | None = None
    waiting: tuple[Waiting, ...] = ()
    client_msg_ids: Seen = msgspec.field(default_factory=Seen)
    call_ids: Seen = msgspec.field(default_factory=Seen)
    grants: tuple[Grant, ...] = ()
    usage: Usage = Usage()
    """Of all runs that are over."""
    compacted_through: int = 0
    """The conversation begins with a summary of everything up to this event."""
    closed: bool = False
    restoring: ev.FilesRestoring | None = None
    """An undo or a redo whose outcome is not in the log yet."""
    restored: tuple[str, ...] = ()
    """What an agent that keeps its conversation itself has to know with the next message: files were restored."""

    @property
    def active_run(self) -> Run | None:
        """The run that has not settled, if any."""
        return self.run if self.run is not None and not self.run.settled else None

    def next_deadline(self) -> int | None:
        """When the first pending approval runs out, in Unix milliseconds."""
        pending = self.run.pending() if self.run is not None and self.run.calls and not self.run.settled else ()
        deadlines = [call.request.deadline_ms for call in pending if call.request]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def fresh_call_id(self, vendor_call_id: str, given: Set[str] = frozenset()) -> str:
        """The id for a call that its model named so: the same, unless this session had it already or gave it. Clients
        see the model's own id, but models do reuse ids such as "call_0"."""
        # Starting at the number of calls, so that a model that names every call the same costs nothing extra.
        numbered = (f"{vendor_call_id or 'call'}#{number}" for number in count(len(self.call_ids) + 1))
        wanted = chain([vendor_call_id] if vendor_call_id else [], numbered)
        return next(call_id for call_id in wanted if call_id not in self.call_ids and call_id not in given)


def same_fields(source: msgspec.Struct, kind: type[StructT]) -> StructT:
    """A `kind` with the values that `source` has under the same names."""
    return kind(**{name: getattr(source, name) for name in kind.__struct_fields__})


_evolved = msgspec.structs.replace


def evolve(state: SessionState, logged: LoggedEvent) -> SessionState:
    """The state after one more event. Readers may leave out deltas: they change nothing here."""
    if logged.event_id <= state.last_event_id:
        raise LogConflict(
            f"event {logged.event_id} cannot follow event {state.last_event_id}",
            expected=logged.event_id - 1,
            last=state.last_event_id,
        )
    run = state.run
    if isinstance(logged, ev.Logged):
        kind = type(logged.event)
        if (step := _STEPS.get(kind)) is not None:
            state = step(state, logged.event, logged)
            run = state.run
        if (run_step := _RUN_STEPS.get(kind)) is not None and run is not None and run.run_id == logged.run_id:
            run = _evolved(run_step(run, logged.event, logged), last_event_id=logged.event_id)
    return _evolved(state, run=run, last_event_id=logged.event_id, last_ts=logged.ts)


def fold(events: Iterable[LoggedEvent], state: SessionState | None = None) -> SessionState:
    """The state a log describes, or the one it leads to from an earlier state."""
    current = SessionState() if state is None else state
    for logged in events:
        current = evolve(current, logged)
    return current


def _on_created(state: SessionState, event: ev.SessionCreated, logged: ev.Logged) -> SessionState:
    return _evolved(state, created_at=logged.ts, **msgspec.structs.asdict(event))


def _on_input(state: SessionState, event: ev.InputAccepted, logged: ev.Logged) -> SessionState:
    waiting = (*state.waiting, same_fields(event, Waiting))
    return _evolved(state, waiting=waiting, client_msg_ids=_with(state.client_msg_ids, event.client_msg_id))


def _on_user_message(state: SessionState, event: ev.UserInput, logged: ev.Logged) -> SessionState:
    waiting = tuple(other for other in state.waiting if other.input_id != event.input_id)
    return _evolved(state, waiting=waiting, client_msg_ids=_with(state.client_msg_ids, event.client_msg_id))


def _on_withdrawn(state: SessionState, event: ev.InputWithdrawn, logged: ev.Logged) -> SessionState:
    return _evolved(state, waiting=tuple(other for other in state.waiting if other.input_id != event.input_id))


def _on_run_started(state: SessionState, event: ev.RunStarted, logged: ev.Logged) -> SessionState:
    run = Run(
        run_id=logged.run_id or "",
        run_number=event.run_number,
        model_ref=event.model_ref,
        purpose=event.purpose,
        terms=event.terms,
        started_at=logged.ts,
        last_event_id=logged.event_id,
    )
    ids = _with(state.client_msg_ids, event.client_msg_id)
    return _evolved(state, run=run, run_counter=event.run_number, client_msg_ids=ids)


def _on_history(state: SessionState, event: ev.HistoryMessage, logged: ev.Logged) -> SessionState:
    """A call of this session never gets the id of one that the client brought along."""
    call_ids = state.call_ids
    if isinstance(event.message, AssistantMessage):
        for call in event.message.tool_calls():
            call_ids = call_ids.with_text(call.tool_call_id)
    return _evolved(state, call_ids=call_ids)


def _on_granted(state: SessionState, event: ev.ApprovalDecided, logged: ev.Logged) -> SessionState:
    if not event.grant or event.scope == "once":
        return state
    # One for always is kept by the log, where it can be revoked; here it only replaces an earlier one.
    grants = tuple(other for other in state.grants if other.rule != event.grant)
    if event.scope == "session":
        grants = (*grants, Grant(rule=event.grant, allow=event.decision == "approve"))
    return _evolved(state, grants=grants)


def _on_restored(state: SessionState, event: ev.FilesRestored, logged: ev.Logged) -> SessionState:
    is_told = any(file.outcome == "restored" for file in event.files)
    restored = (*state.restored, note_for_model(event))[-MAX_RESTORED:] if is_told else state.restored
    return _evolved(state, restoring=None, restored=restored)


def note_for_model(event: ev.FilesRestored) -> str:
    """What the agent has to know of an undo or a redo."""
    files = ", ".join(
        f"{file.path} ({_RESTORED[event.direction, file.kind]})" for file in event.files if file.outcome == "restored"
    )
    which = "undid file changes that you made" if event.direction == "undo" else "brought back changes of files"
    return f"[The user {which}: {files}. Read these files again before you rely on what is in them.]"


def _with(seen: Seen, text: str | None) -> Seen:
    return seen if text is None else seen.with_text(text)


def _on_settled(run: Run, event: ev.RunFinished | ev.RunFailed, logged: ev.Logged) -> Run:
    return _evolved(run, settled=True, turn_open=False, calls={}, usage=event.usage)


def _on_call_opened(run: Run, event: ev.ToolCalled, logged: ev.Logged) -> Run:
    call = UnfinishedCall(
        call_id=event.call_id,
        parent_call_id=event.parent_call_id,
        event_id=logged.event_id,
        name=event.name,
        arguments_json=event.arguments_json,
    )
    has_calls = run.turn_has_calls or not event.parent_call_id
    return _evolved(run, calls={**run.calls, event.call_id: call}, turn_has_calls=has_calls)


def _on_call_decided(run: Run, event: ev.ApprovalDecided, logged: ev.Logged) -> Run:
    call = run.calls.get(event.call_id)
    approved = call.request if call is not None and event.decision == "approve" else None
    return _with_call(run, event.call_id, "approved" if event.decision == "approve" else "denied", approved)


def _on_status(run: Run, event: ev.RunStatusChanged, logged: ev.Logged) -> Run:
    is_over = event.status in ("finished", "error")
    return _evolved(run, status=event.status, finished_at=logged.ts if is_over else run.finished_at)


def _on_turn_started(run: Run, event: ev.TurnStarted, logged: ev.Logged) -> Run:
    if event.parent_call_id:
        return run
    began = logged.event_id
    return _evolved(run, turn=event.turn, turn_open=True, turn_began=began, turn_has_calls=False, turn_failed=False)


def _on_turn_ended(run: Run, event: ev.TurnEnded, logged: ev.Logged) -> Run:
    if event.parent_call_id:
        return _evolved(run, usage=run.usage + event.usage)
    # A turn that the restart itself ended is no progress.
    resumes = run.resumes if event.stop_reason in ("error", "aborted") else 0
    failed = event.stop_reason == "error"
    return _evolved(run, turn_open=False, turn_failed=failed, usage=run.usage + event.usage, resumes=resumes)


def _on_agent_session(state: SessionState, event: ev.AgentSession, logged: ev.Logged) -> SessionState:
    is_same = state.agent is not None and state.agent.agent_session_id == event.agent_session_id
    cost = state.agent_cost_usd if is_same else 0.0
    return _evolved(state, agent=event, agent_cost_usd=cost, agent_mode=event.mode or state.agent_mode)


def _with_usage(state: SessionState, usage: Usage) -> SessionState:
    cost = state.agent_cost_usd + (usage.cost_usd or 0.0)
    return _evolved(state, usage=state.usage + usage, agent_cost_usd=cost)


def _on_usage(state: SessionState, event: ev.UsageReported, logged: ev.Logged) -> SessionState:
    """Of a run without turns it is known only by this what it cost, should it not come to its end."""
    run, cost = state.run, event.total.cost_usd
    if state.capabilities.has_turns or run is None or run.settled or run.run_id != logged.run_id or cost is None:
        return state
    cost = max(cost - (state.usage.cost_usd or 0.0), 0.0)
    return _evolved(state, run=_evolved(run, usage=_evolved(run.usage, cost_usd=cost)))


def _on_finished(run: Run, event: ev.ToolFinished, logged: ev.Logged) -> Run:
    calls = {call_id: call for call_id, call in run.calls.items() if call_id != event.call_id}
    return _evolved(run, calls=calls, has_tool_output=True)


def _with_call(run: Run, call_id: str, status: CallStatus, request: ev.ApprovalRequested | None = None) -> Run:
    call = run.calls.get(call_id)
    if call is None:
        return run
    return _evolved(run, calls={**run.calls, call_id: _evolved(call, status=status, request=request)})


_RUN_STEPS: dict[type, Callable[[Run, Any, ev.Logged], Run]] = {
    ev.RunStatusChanged: _on_status,
    ev.RunResumed: lambda run, event, logged: _evolved(run, resumes=run.resumes + 1),
    ev.TurnStarted: _on_turn_started,
    ev.TurnEnded: _on_turn_ended,
    ev.ApprovalRequested: lambda run, event, logged: _with_call(run, event.call_id, "pending", event),
    ev.ToolStarted: lambda run, event, logged: _with_call(run, event.call_id, "started"),
    ev.ToolCalled: _on_call_opened,
    ev.ApprovalDecided: _on_call_decided,
    ev.ToolFinished: _on_finished,
    ev.RunFinished: _on_settled,
    ev.RunFailed: _on_settled,
}
"""Steps of the newest run, when the event is its own; they follow those of the session."""
_STEPS: dict[type, Callable[[SessionState, Any, ev.Logged], SessionState]] = {
    ev.SessionCreated: _on_created,
    ev.TitleChanged: lambda state, event, logged: _evolved(state, title=event.title),
    ev.ModelChanged: lambda state, event, logged: _evolved(state, model_ref=event.model_ref),
    ev.HarnessChanged: lambda state, event, logged: _evolved(
        state,
        harness=event.harness,
        model_ref=event.model_ref,
        capabilities=event.capabilities,
        agent=None,
        agent_cost_usd=0.0,
        agent_mode="",
    ),
    ev.ModeChanged: lambda state, event, logged: _evolved(
        state, mode=event.mode, agent_mode=event.agent_mode or state.agent_mode
    ),
    ev.AgentSession: _on_agent_session,
    ev.TermsChanged: lambda state, event, logged: _evolved(state, terms=event.terms),
    ev.SessionClosed: lambda state, event, logged: _evolved(state, closed=True),
    ev.SessionArchived: lambda state, event, logged: _evolved(state, archived=event.archived),
    ev.InputAccepted: _on_input,
    ev.InputWithdrawn: _on_withdrawn,
    ev.UserInput: _on_user_message,
    ev.HistoryMessage: _on_history,
    ev.RunStarted: _on_run_started,
    ev.RunFinished: lambda state, event, logged: _evolved(_with_usage(state, event.usage), restored=()),
    ev.RunFailed: lambda state, event, logged: _with_usage(state, event.usage),
    ev.ToolCalled: lambda state, event, logged: _evolved(state, call_ids=state.call_ids.with_text(event.call_id)),
    ev.ApprovalDecided: _on_granted,
    ev.UsageReported: _on_usage,
    ev.FilesRestoring: lambda state, event, logged: _evolved(state, restoring=event),
    ev.FilesRestored: _on_restored,
    ev.Compacted: lambda state, event, logged: _evolved(state, compacted_through=event.through),
}


def packed(state: SessionState) -> bytes:
    """The state as bytes, for a store that opens long sessions without reading all of them."""
    return msgspec.msgpack.encode(state, enc_hook=list)


def unpacked(data: bytes) -> SessionState:
    """The inverse of `packed`, for the same version of makai; raises `msgspec.ValidationError` for anything else."""
    return msgspec.msgpack.decode(data, type=SessionState, dec_hook=lambda kind, texts: kind(texts))
