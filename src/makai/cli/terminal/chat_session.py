"""One terminal as a client of one session at a time: sends commands to it, and passes its transcript to `show`.

Other clients may send, decide and stop in the same session; what they do arrives through the log, as everything else.
A session is created with the first message, so a chat in which nothing was said leaves none behind.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias
from uuid import uuid4

import msgspec

from makai.agent.custom_commands import CustomCommand, find_commands
from makai.catalog.model_ref import ref_of
from makai.cli.terminal.styled_text import Piece, note
from makai.cli.terminal.transcript_view import TranscriptView
from makai.core import session_events as ev
from makai.core.content import Image, SessionPart, Text, own_words
from makai.core.errors import InvalidRequest, MakaiError, SessionRefused
from makai.core.home import home_directory
from makai.core.model import Model
from makai.core.session_files import FoundPaths
from makai.core.visible_text import one_line
from makai.harness.registry import NATIVE, harness_id_of
from makai.sessions import commands as cmd
from makai.sessions.history import History
from makai.sessions.log.base import LoggedEvent
from makai.sessions.log.encoding import decoded
from makai.sessions.project_aliases import expanded_alias
from makai.sessions.requests import (
    CreateSession,
    FindFiles,
    ForkSession,
    GetState,
    HasFolder,
    IsTrusted,
    ReadEvents,
    ReadMentioned,
    RunCommand,
)
from makai.sessions.service import Follower, Sessions
from makai.sessions.state import SessionState, Waiting
from makai.tools.attachments import AttachedContent, attach, pictures_in
from makai.tools.file_mentions import mentions

FIRST_WINDOW: Final = 500
"""Events from the end of a session that are looked at when it is opened."""
MAX_WINDOW: Final = 16_000
RETRY_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
CYCLED: Final[tuple[ev.PermissionMode, ...]] = ("ask", "accept_edits", "plan")
"""The modes that Shift+Tab cycles through; `never_ask` must be typed."""

Show: TypeAlias = Callable[[Sequence[Piece]], None]


class ModelResolver(Protocol):
    """Resolves a model name to a `Model`."""

    def resolve(self, model: str | None) -> Model: ...


class Confirmation(msgspec.Struct, frozen=True):
    """Something that is done when the user presses y."""

    question: str
    action: Callable[[], Awaitable[None]]


class ChatSession:
    def __init__(
        self,
        sessions: Sessions,
        models: ModelResolver,
        wanted: CreateSession,
        show: Show,
        *,
        me: str,
        finished_length: Callable[[str], int],
        run_terms: ev.RunTerms,
        labels: tuple[str, ...] = (),
    ) -> None:
        """`labels` say which folders of a cluster this machine has; empty where there is no cluster."""
        self.sessions = sessions
        self.models = models
        self.session_id: str | None = None
        self.confirmation: Confirmation | None = None
        """Waits for a key; the user interface takes it away."""
        self.copied = ""
        """Text for the clipboard; the user interface takes it away."""
        self.seen_project_files: dict[str, str] = {}
        """Digests of the project files that `/trust` showed last."""
        self.commands: dict[str, CustomCommand] = {}
        """The user's own slash commands."""
        self.has_folder = True
        """Whether the session's folder is on this machine. Where it is not, its files are asked for."""
        self._wanted = wanted
        self._show = show
        self._me = me
        self._finished_length = finished_length
        self._run_terms = run_terms
        self._labels = labels
        self._sent: set[str] = set()
        """Input ids of everything that was sent here, in whichever session."""
        self._begun = asyncio.Event()
        self._follower: Follower | None = None
        self.view = self._new_view(_state_of(wanted))

    @property
    def cwd(self) -> str | None:
        return self.view.state.cwd

    @property
    def folders(self) -> tuple[str, ...]:
        """The folder of the session, then others that its tools may touch."""
        state = self.view.state
        return tuple(dict.fromkeys(([state.cwd] if state.cwd is not None else []) + list(state.roots)))

    @property
    def is_busy(self) -> bool:
        return self.is_running or bool(self.view.state.waiting)

    @property
    def is_running(self) -> bool:
        return self.view.state.active_run is not None

    async def open(self, session_id: str) -> None:
        """Switch to an existing session and show the end of its conversation."""
        state = await self.sessions.dispatch(GetState(session_id))
        view = self._new_view(state)
        events, is_whole = await self._newest_events(session_id, state.last_event_id)
        pieces = view.take_all(events)
        if self._labels:
            self.has_folder = await self.sessions.dispatch(HasFolder(session_id, self._labels))
        self._switch(session_id, view)
        title = f" ({one_line(state.title)})" if state.title else ""
        head = [note(f"Session {session_id}{title}")]
        if not is_whole:
            head.append(note(f"Earlier messages are not shown here; `makai sessions show {session_id}` has them."))
        if not self.has_folder:
            head.append(note(f"Its folder {one_line(state.cwd or '')} is on another machine."))
        self._show([*head, *pieces])

    async def fork(self) -> str:
        session_id = await self.sessions.dispatch(ForkSession(origin=self.the_session()))
        view = self._new_view(SessionState())
        view.opened_at = (await self.sessions.dispatch(GetState(session_id))).last_event_id
        self._switch(session_id, view)
        return session_id

    def start_over(self) -> None:
        """The next message begins another session with the same model and mode."""
        state = self.view.state
        self._wanted = msgspec.structs.replace(
            self._wanted,
            harness=state.harness,
            model_ref=state.model_ref,
            mode=state.mode,
            cwd=state.cwd if self.has_folder else self._wanted.cwd,
            terms=state.terms,
            title="",
            session_id=None,
        )
        self.has_folder = True
        self._switch(None, self._new_view(_state_of(self._wanted)))

    def _switch(self, session_id: str | None, view: TranscriptView) -> None:
        self.session_id, self.view = session_id, view
        self._begun.clear() if session_id is None else self._begun.set()
        if self._follower is not None:
            self._follower.close()

    def _new_view(self, state: SessionState) -> TranscriptView:
        return TranscriptView(self._me, self._finished_length, state, self._sent)

    async def _newest_events(self, session_id: str, last: int) -> tuple[list[LoggedEvent], bool]:
        """Events from a user message up to `last`, and whether these are all events."""
        window = FIRST_WINDOW
        while True:
            events = await self._events(session_id, max(0, last - window), last)
            if window >= last:
                return events, True
            begins = next((index for index, logged in enumerate(events) if _is_user_message(logged)), None)
            if begins is not None or window >= MAX_WINDOW:
                return events[begins or 0 :], False
            window *= 4

    async def _events(self, session_id: str, after: int, last: int, *, deltas: bool = True) -> list[LoggedEvent]:
        events: list[LoggedEvent] = []
        while after < last and (page := await self.sessions.dispatch(ReadEvents(session_id, after, deltas=deltas))):
            events += [logged for logged in decoded(page) if logged.event_id <= last]
            after = page[-1].event_id
        return events

    async def begun(self) -> str:
        """The id of the session, which begins now if it has not yet."""
        if self.session_id is None:
            session_id = await self.sessions.dispatch(self._wanted)
            self._switch(session_id, self.view)
        return self.the_session()

    async def branch(self, at: int) -> None:
        """Continue in a copy of the session that ends with the event `at`."""
        await self.open(await self.sessions.dispatch(ForkSession(origin=self.the_session(), at=at)))

    async def own_messages(self) -> list[tuple[int, str]]:
        """The messages that began a run, the oldest first: the event before the run, and the text."""
        if self.session_id is None:
            return []
        last = self.view.state.last_event_id
        found: list[tuple[int, str]] = []
        before = 0
        for logged in await self._events(self.session_id, max(0, last - MAX_WINDOW), last, deltas=False):
            match logged:
                case ev.Logged(event=ev.RunStarted()):
                    before = logged.event_id - 1
                case ev.Logged(event=ev.UserInput(content=content)) if before:
                    found.append((before, own_words(content)))
                    before = 0
        return found

    async def conversation(self) -> History:
        """What the model is sent of the conversation, folded from the log."""
        state = self.view.state
        history = History(has_turns=state.capabilities.has_turns)
        if self.session_id is not None:
            events = await self._events(self.session_id, state.compacted_through, state.last_event_id, deltas=False)
            for logged in events:
                history.apply(logged)
        return history

    async def load_commands(self) -> list[str]:
        """Read the user's own slash commands, those of the project when its folder is trusted. Returns why others could
        not be read."""
        folder = self.cwd if self.has_folder else None
        trusted = folder is not None and await self.sessions.dispatch(IsTrusted(folder))
        home = home_directory(os.environ)
        problems: list[str] = []
        self.commands = await asyncio.to_thread(find_commands, home, folder, trusted=trusted, problem=problems.append)
        return problems

    async def attached(self, text: str, pictures: Mapping[str, Image]) -> AttachedContent:
        """The message with the files that it names and the pictures whose placeholders are in it. Files are read on the
        machine that has the session's folder."""
        if self.has_folder or not mentions(text):
            return await asyncio.to_thread(attach, text, self.folders, pictures)
        found = await self.sessions.dispatch(ReadMentioned(self.the_session(), text))
        content: tuple[SessionPart, ...] = (
            Text(text=text),
            *pictures_in(text, pictures),
            *found.images,
            *found.files,
        )
        return AttachedContent(content=content, notices=found.notices)

    async def find_files(self, query: str) -> FoundPaths:
        """Files of a folder that is on another machine."""
        try:
            return await self.sessions.dispatch(FindFiles(self.the_session(), query))
        except MakaiError:
            return FoundPaths()  # sending the message says why

    async def send(self, content: str | tuple[SessionPart, ...], delivery: ev.Delivery = "queue") -> int:
        """Send a message. While a run is active it is queued, or steers the run. Returns the id of an event by which
        the session has accepted it."""
        await self.begun()
        input_id = str(uuid4())
        self._sent.add(input_id)
        send = cmd.Send(
            now=0, input_id=input_id, client_msg_id=input_id, content=content, delivery=delivery, terms=self._run_terms
        )
        return await self._ask(send)

    @property
    def own_waiting(self) -> Waiting | None:
        """The newest message of this terminal that waits."""
        return self._newest_own(self.view.state)

    def _newest_own(self, state: SessionState) -> Waiting | None:
        return next((message for message in reversed(state.waiting) if message.input_id in self._sent), None)

    async def take_back(self) -> Waiting | None:
        """Withdraw the newest message of this terminal that waits; None when none does. Those of other clients are not
        taken away from them."""
        newest = self._newest_own(await self.sessions.dispatch(GetState(self.the_session())))
        if newest is not None:
            await self._ask(cmd.WithdrawInput(now=0, input_id=newest.input_id))
        return newest

    async def abort(self) -> None:
        run = self.view.state.active_run
        if run is None:
            return
        try:
            await self._ask(cmd.Abort(now=0, run_id=run.run_id, by=self._me))
        except SessionRefused as refusal:
            if refusal.code not in ("NOT_RUNNING", "STALE_RUN_ID"):
                raise

    async def allow(self, asked: ev.ApprovalRequested, scope: ev.GrantScope, rule: str) -> None:
        """Approve exactly the call that was shown; a wider scope saves `rule`."""
        call_id, grant = asked.call_id, "" if scope == "once" else rule
        await self._decide(
            cmd.ApproveCall(now=0, call_id=call_id, by=self._me, scope=scope, digest=asked.digest, grant=grant)
        )

    async def deny(self, call_id: str, reason: str = "") -> None:
        """Deny; the model reads the reason and the run continues."""
        await self._decide(cmd.DenyCall(now=0, call_id=call_id, by=self._me, reason=reason))

    async def _decide(self, command: cmd.ApproveCall | cmd.DenyCall) -> None:
        try:
            await self._ask(command)
        except SessionRefused as refusal:
            if refusal.code not in ("APPROVAL_CONFLICT", "UNKNOWN_CALL_ID"):
                raise
            self._show([note("Someone else was faster: that question is answered already.", "warn")])

    async def compact(self, instructions: str) -> None:
        self.the_session()
        await self._ask(cmd.Compact(now=0, input_id=str(uuid4()), instructions=instructions))

    async def set_mode(self, mode: str) -> None:
        mode = ev.FORMER_MODES.get(mode, mode)
        if mode not in ev.MODES:
            raise InvalidRequest(f"there is no mode {mode!r}.", hint=f"The modes are {', '.join(ev.MODES)}.")
        if self.session_id is not None:
            await self._ask(cmd.SetMode(now=0, mode=mode))
        elif mode != self._wanted.mode:
            self._want(msgspec.structs.replace(self._wanted, mode=mode))
            self._show([note(f"The permission mode is now {mode}.")])

    async def set_sandbox(self, level: str) -> None:
        if level not in ev.SANDBOX_MEANINGS:
            raise InvalidRequest(
                f"there is no sandbox {level!r}.", hint=f"The sandboxes are {', '.join(ev.SANDBOX_MEANINGS)}."
            )
        terms = msgspec.structs.replace(self.view.state.terms, sandbox=level)
        if self.session_id is not None:
            await self._ask(cmd.SetTerms(now=0, terms=terms))
        else:
            self._want(msgspec.structs.replace(self._wanted, terms=terms))
        told = f"The sandbox is now {level}: {ev.SANDBOX_MEANINGS[level]}."
        self._show([note(told, "warn" if level == "full-access" else "dim")])

    async def next_mode(self) -> None:
        place = CYCLED.index(self.view.state.mode) + 1 if self.view.state.mode in CYCLED else 0
        await self.set_mode(CYCLED[place % len(CYCLED)])

    async def set_model(self, name: str) -> None:
        ref = name if self.view.state.harness != "native" else await self._model_ref(name)
        if self.session_id is not None:
            await self._ask(cmd.SetModel(now=0, model_ref=ref))
        elif ref != self._wanted.model_ref:
            self._want(msgspec.structs.replace(self._wanted, model_ref=ref))
            self._show([note(f"The model is now {ref}.")])

    async def _model_ref(self, name: str) -> str:
        """The ref of a model. Aliases are those of the session's folder, which may be another one than the chat's."""
        return ref_of(self.models.resolve(await expanded_alias(self.sessions, self.view.state.cwd, name)))

    def context_window(self) -> int | None:
        """Of the session's model by its description; None when that says nothing, or another agent answers."""
        state = self.view.state
        if state.harness != NATIVE or not state.model_ref:
            return None
        try:
            return self.models.resolve(state.model_ref).context_window
        except MakaiError:
            return None

    async def set_agent(self, words: str) -> None:
        """Hand the session to another agent: its name, and a model where it needs one."""
        name, _, model = words.partition(" ")
        harness, ref = harness_id_of(name), model.strip()
        if harness == NATIVE and ref:
            ref = await self._model_ref(ref)
        if self.session_id is not None:
            await self._ask(cmd.SetHarness(now=0, harness=harness, model_ref=ref))
        else:
            self._want(msgspec.structs.replace(self._wanted, harness=harness, model_ref=ref))
            self._show([note(f"The agent is now {one_line(harness)}.")])

    async def set_budget(self, amount: str) -> None:
        """Limit what the session may cost; "none" takes the limit away."""
        try:
            limit = None if amount == "none" else float(amount.removeprefix("$"))
        except ValueError:
            limit = -1.0
        if limit is not None and not 0 < limit < float("inf"):
            raise InvalidRequest(
                f"{one_line(amount)} is no amount of US dollars.", hint="Try /budget 5 or /budget none."
            )
        terms = msgspec.structs.replace(self.view.state.terms, max_usd=limit)
        if self.session_id is not None:
            await self._ask(cmd.SetTerms(now=0, terms=terms))
        else:
            self._want(msgspec.structs.replace(self._wanted, terms=terms))
        told = "The session has no limit of money." if limit is None else f"The session may cost {limit:g} USD in all."
        self._show([note(told)])

    async def set_title(self, title: str) -> None:
        if self.session_id is not None:
            await self._ask(cmd.SetTitle(now=0, title=title))
            return
        self._want(msgspec.structs.replace(self._wanted, title=title))
        self._show([note(f"The title is now: {title}")])

    def begin_with(self, wanted: CreateSession) -> None:
        """Change what the first message begins."""
        assert self.session_id is None
        self._want(wanted)

    def _want(self, wanted: CreateSession) -> None:
        self._wanted = wanted
        self.view = self._new_view(_state_of(wanted))

    def the_session(self) -> str:
        if self.session_id is None:
            raise InvalidRequest("there is no conversation yet.", hint="Say something first.")
        return self.session_id

    async def _ask(self, command: cmd.UserCommand) -> int:
        return (await self.sessions.dispatch(RunCommand(self.the_session(), command))).last

    async def follow(self) -> None:
        """Show the events of the session, and of the next one after a switch, until cancelled or deleted."""
        failures = 0
        while True:
            await self._begun.wait()
            try:
                await self._follow_one(note("Connected again.") if failures else None)
                failures = 0
            except SessionRefused:
                raise  # it was deleted
            except (MakaiError, OSError) as error:
                if failures == 0:
                    self._show([note(f"The connection to the session is lost ({one_line(str(error))}).", "warn")])
                await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
                failures += 1

    async def _follow_one(self, once: Piece | None) -> None:
        """Follow until a switch. `once` is shown with the first events."""
        session_id, view = self.session_id, self.view
        if session_id is None:
            return
        follower = self._follower = self.sessions.follow(session_id, view.state.last_event_id)
        try:
            while records := await follower.next():
                if self.view is view:
                    self._show([*([once] if once is not None else []), *view.take_all(decoded(records))])
                once = None
        finally:
            follower.close()


def _state_of(wanted: CreateSession) -> SessionState:
    """The state of a session that does not exist yet."""
    return SessionState(
        model_ref=wanted.model_ref,
        harness=wanted.harness,
        mode=wanted.mode,
        cwd=wanted.cwd,
        title=wanted.title,
        terms=wanted.terms,
    )


def _is_user_message(logged: LoggedEvent) -> bool:
    return isinstance(logged, ev.Logged) and isinstance(logged.event, ev.UserInput)
