"""One session on one connection of the Agent Client Protocol: its prompts, its settings, and its view of the log.

One task follows the log and sends updates in its order, whichever client caused them. It pauses while a command of this
client is being carried out and until the answer to a prompt is written, so that an answer never comes after what
follows from it, nor before what led to it (ACP-PROMPT-001). Nothing here decides: commands go to the session, and what
the client sees is what the log says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import uuid4

from makai.aio.cancellation import wait_uncancelled
from makai.core import session_events as ev
from makai.core.content import SessionPart, own_words
from makai.core.errors import ChannelClosed, MakaiError, SessionRefused
from makai.harness.base import Settlement
from makai.harness.editor_calls import McpServerValues
from makai.protocols.acp.projection import UpdateProjection, joined, stop_reason_of
from makai.protocols.acp.prompts import prompt_content
from makai.protocols.acp.settings import ModelChoice, session_settings, settings_updates
from makai.protocols.acp.slash_commands import COMPACT, parsed_command
from makai.protocols.minicodex.pages import BROKEN_OFF, Window
from makai.server.acp_client_calls import ClientCalls
from makai.server.acp_commands import SessionCommands
from makai.server.acp_questions import SessionQuestions
from makai.server.acp_steering import SteeringInput
from makai.server.acp_undo import undo_answer
from makai.server.session_views import events_of
from makai.sessions import commands as cmd
from makai.sessions.live import ABORT_S
from makai.sessions.log.base import LoggedEvent
from makai.sessions.log.encoding import decoded
from makai.sessions.requests import GetState, ReadEvents, RunCommand
from makai.sessions.service import Follower, Sessions, ToolRegistration
from makai.sessions.state import SessionState
from makai.wire import json_rpc
from makai.wire.acp import sessions as wire
from makai.wire.acp.common import ContentBlock, TextBlock
from makai.wire.acp.connecting import PromptCapabilities
from makai.wire.acp.updates import (
    AgentMessageChunk,
    SessionNotification,
    SessionUpdate,
    ToolCallUpdate,
)
from makai.wire.json_rpc_errors import RpcError

if TYPE_CHECKING:
    from makai.server.acp_connection import AcpConnection

log = logging.getLogger(__name__)

PROMPT_CAPABILITIES: Final = PromptCapabilities(image=True, audio=True, embedded_context=True)
"""As `initialize` declares them. Whether a model takes them is for its provider to say."""
CANCEL_S: Final = 0.7
"""How long a cancelled run may take to settle before its prompt is answered all the same."""
Models: TypeAlias = Callable[[], Sequence[ModelChoice]]


class Turn:
    """A `session/prompt` that is not answered yet."""

    def __init__(self) -> None:
        self.input_id = str(uuid4())
        self.run_id: str | None = None
        """Known when the session has taken the prompt."""
        self.is_cancelled = False
        self.settled: asyncio.Future[Settlement | None] = asyncio.get_running_loop().create_future()
        """How its run ended; None when a cancelled run is not waited for any longer, or the session is gone."""
        self.answered = asyncio.Event()
        """Set when the answer is in the outbox."""

    def settle(self, settlement: Settlement | None) -> None:
        if not self.settled.done():
            self.settled.set_result(settlement)


class AcpSession:
    def __init__(self, session_id: str, connection: AcpConnection, sessions: Sessions, models: Models) -> None:
        self.session_id = session_id
        self._connection = connection
        self._sessions = sessions
        self._models = models
        capabilities = connection.client.client_capabilities
        shows_output = (capabilities.meta or {}).get("terminal_output") is True
        self._projection = UpdateProjection(capabilities, shows_terminal_output=shows_output)
        self._publishing = asyncio.Lock()
        self._settings = wire.SessionSettings()
        self._commands = SessionCommands(session_id, sessions, self._send)
        self._turn: Turn | None = None
        self._next: Turn | None = None
        """A prompt that waits for the answer to the cancelled one before it."""
        self._muted: str | None = None
        """A cancelled run whose prompt was answered before it had settled: nothing more is said about it."""
        self._settled = asyncio.Event()
        """Set when the muted run has settled."""
        self._calls: dict[str, ev.ToolCalled] = {}
        """Open calls by id."""
        self._questions = SessionQuestions(session_id, connection, sessions)
        self._steering = SteeringInput(session_id, sessions)
        self._follower: Follower | None = None
        self._client: ClientCalls | None = None
        self._executor: ToolRegistration | None = None
        self._is_closed = False

    def close(self) -> None:
        """Let go of the session; its runs continue. May be repeated."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._follower is not None:
            self._follower.close()
        if self._executor is not None:
            self._executor.unregister()
        if self._client is not None and not self._connection.is_ending:
            self._connection.tasks.start(self._client.close(), "acp-client-calls", may_finish=True)
        self._questions.close()
        if self._turn is not None:
            self._turn.settle(None)

    async def stop(self) -> None:
        """Cancel the running prompt, wait until it is answered, and let go."""
        if (turn := self._turn) is not None:
            self.cancel()
            await turn.answered.wait()
        self.close()

    @property
    def is_busy(self) -> bool:
        return self._turn is not None or self._next is not None

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def settings(self, state: SessionState) -> wire.SessionSettings:
        """What can be chosen, for the client to be sent now."""
        self._settings = session_settings(state, self._models())
        return self._settings

    async def config_options(self) -> tuple[wire.ConfigOption, ...]:
        return session_settings(await self.state(), self._models()).config_options or ()

    async def state(self) -> SessionState:
        return await self._sessions.dispatch(GetState(self.session_id))

    async def offer_client(self, values: Mapping[str, McpServerValues]) -> None:
        """Let the session use the client's files, terminals and the values of its MCP servers."""
        capabilities = self._connection.client.client_capabilities
        self._client = ClientCalls(self._connection.calls, self.session_id, capabilities, values)
        self._executor = await self._sessions.register_executor(self.session_id, self._client.execute)

    # Following the log

    async def replay(self, state: SessionState) -> list[SessionUpdate]:
        """Send everything up to `state` as updates. Whole texts are read without their deltas, except in turns that
        broke off or are open: their texts are nowhere else."""
        turn: list[LoggedEvent] = []
        after = 0
        while after < state.last_event_id:
            records = await self._sessions.dispatch(ReadEvents(self.session_id, after, deltas=False))
            if not records:
                break
            after = records[-1].event_id
            for logged in decoded([record for record in records if record.event_id <= state.last_event_id]):
                if _opens(logged, state) or turn:
                    turn.append(logged)
                else:
                    self._replay([logged])
                if turn and (is_whole := _closes(logged, state)) is not None:
                    self._replay(turn if is_whole else await self._with_deltas(turn[0], logged.event_id))
                    turn = []
            await self._connection.room()
        if turn:
            self._replay(await self._with_deltas(turn[0], state.last_event_id))
        return []

    async def _with_deltas(self, first: LoggedEvent, through: int) -> list[LoggedEvent]:
        window = Window(first.event_id - 1, through, deltas=True)
        return await events_of(self._sessions, self.session_id, window)

    def _replay(self, events: Sequence[LoggedEvent]) -> None:
        updates: list[SessionUpdate] = []
        for logged in events:
            if isinstance(logged, ev.Logged) and not _is_terminal(logged.event):  # terminals of then are gone
                self._note_call(logged)
                updates += self._projection.project(logged, replayed=True)
        self._send(joined(updates))

    async def catch_up(self, state: SessionState) -> list[SessionUpdate]:
        """Take in the open turn without sending it: the client has seen it. Returns what there is to say about calls
        that are still open, which this connection has to announce before it can say more."""
        run = state.active_run
        if run is None:
            return []
        self._projection.resume(state)
        firsts = [call.event_id for call in run.calls.values()] + ([run.turn_began] if run.turn_open else [])
        window = Window(max(min(firsts, default=state.last_event_id) - 1, 0), state.last_event_id, deltas=True)
        announced: list[SessionUpdate] = []
        for logged in await events_of(self._sessions, self.session_id, window):
            if isinstance(logged, ev.Logged):
                self._note_call(logged)
                updates = self._projection.project(logged, replayed=True)
                if getattr(logged.event, "call_id", None) in run.calls:
                    announced += updates
        return announced

    def start(self, state: SessionState, announced: Sequence[SessionUpdate] = ()) -> None:
        """Follow the log after `state`. Call it as the last step of a request: what is sent comes after its answer."""
        self._follower = self._sessions.follow(self.session_id, state.last_event_id)
        self._connection.tasks.start(self._follow(self._follower, state, announced), f"acp-follow-{self.session_id}")

    async def _follow(self, follower: Follower, state: SessionState, announced: Sequence[SessionUpdate]) -> None:
        try:
            await self._commands.find_custom()
            self._commands.announce(state)
            self._send([*settings_updates(self._settings, self.settings(state)), *announced])
            run = state.active_run
            for call in run.pending() if run is not None else ():
                if call.request is not None and run is not None:
                    self._questions.ask(call.request, self._calls.get(call.call_id), run.run_id)
            if servers := state.terms.mcp_servers:
                for awaited in (*((server.name,) for server in servers), None):  # one that hangs hides no other's
                    self._connection.tasks.start(self._commands.find_prompts(awaited), "acp-prompts")
            while records := await follower.next():
                async with self._publishing:
                    for logged in decoded(records):
                        if isinstance(logged, ev.Logged) and not self._is_closed:
                            await self._publish(logged)
                await self._connection.room()
        except ChannelClosed:
            self.close()
        except MakaiError as error:
            self._lose(error)
        except Exception:
            log.exception("following a session failed unexpectedly")
            self._lose(MakaiError("internal error"))

    def _lose(self, error: MakaiError) -> None:
        """The session was deleted, or cannot be followed any more."""
        turn = self._turn
        if turn is not None and not isinstance(error, SessionRefused):
            turn.settle(ev.RunFailed(code=error.code, message=error.message, hint=error.hint))
        self.close()

    async def _publish(self, logged: ev.Logged) -> None:
        event, run_id = logged.event, logged.run_id
        self._note_call(logged)
        self._steering.note(logged)
        updates = self._terminal(event) if _is_terminal(event) else self._projection.project(logged)
        is_muted = run_id is not None and run_id == self._muted
        if not is_muted:
            self._send(updates)
        if isinstance(event, ev.ToolUpdated) and event.terminal_id is not None and self._client is not None:
            self._client.on_shown(event.terminal_id)
        match event:
            case ev.ApprovalRequested() if not is_muted:
                self._questions.ask(event, self._calls.get(event.call_id), run_id or "")
            case ev.ApprovalDecided(call_id=call_id):
                self._questions.withdraw(call_id)
            case ev.ModeChanged() | ev.ModelChanged() | ev.HarnessChanged() | ev.TermsChanged() | ev.AgentSession():
                await self._announce_settings()
            case ev.RunFinished() | ev.RunFailed():
                await self._on_settled(event, run_id)
            case _:
                pass

    async def _on_settled(self, settlement: Settlement, run_id: str | None) -> None:
        self._calls.clear()
        if run_id == self._muted:
            self._muted = None
            self._settled.set()
        self._connection.tasks.start(self._commands.refresh(), "acp-commands")
        turn = self._turn
        if turn is not None and turn.run_id == run_id:
            turn.settle(settlement)
            await turn.answered.wait()

    def _terminal(self, event: ev.SessionEvent) -> list[SessionUpdate]:
        """A command runs in a terminal: shown when it is one of this client."""
        assert isinstance(event, ev.ToolUpdated)
        known = self._client.terminal_id(event.terminal_id or "") if self._client is not None else None
        return [] if known is None else self._projection.open_terminal(event.call_id, known)

    def _note_call(self, logged: ev.Logged) -> None:
        match logged.event:
            case ev.ToolCalled(call_id=call_id) as call:
                self._calls[call_id] = call
            case ev.ToolFinished(call_id=call_id):
                self._calls.pop(call_id, None)
            case _:
                pass

    def _send(self, updates: Sequence[SessionUpdate]) -> None:
        for update in updates:
            notification = SessionNotification(session_id=self.session_id, update=update)
            self._connection.calls.notify("session/update", notification)

    # Settings and commands

    async def change(self, command_for: Callable[[SessionState, Sequence[ModelChoice]], cmd.UserCommand]) -> None:
        """Carry out a change of settings. The other values that it implies are announced after the answer."""
        command = command_for(await self.state(), self._models())
        async with self._publishing:
            await self._dispatch(command)

    async def models_changed(self) -> None:
        if self._follower is not None and not self._is_closed:  # before, the answer that opens the session has them
            async with self._publishing:
                await self._announce_settings()

    async def _announce_settings(self) -> None:
        """Send what changed in the settings since they were last sent."""
        before, state = self._settings, await self.state()
        self._send(settings_updates(before, self.settings(state)))
        self._commands.announce(state)

    # Prompts

    async def prompt(self, blocks: Sequence[ContentBlock]) -> wire.PromptResponse:
        """Run a prompt to its end. Cancelling this cancels the prompt, which is still answered."""
        turn, former = Turn(), self._turn
        if self._next is not None or (former is not None and not former.is_cancelled):
            raise RpcError(json_rpc.INVALID_REQUEST, "A prompt is running in this session.", {"code": "BUSY"})
        if former is not None:
            self._next = turn
            try:
                await _until_free(former.answered)
            finally:
                self._next = None
            if turn.is_cancelled or self._is_closed:
                return wire.PromptResponse(stop_reason="cancelled")
        self._turn = turn
        try:
            return await self._carried_out(turn, blocks)
        finally:
            self._turn = None
            # The caller writes the answer before the event loop gets to this.
            asyncio.get_running_loop().call_soon(turn.answered.set)

    async def _carried_out(self, turn: Turn, blocks: Sequence[ContentBlock]) -> wire.PromptResponse:
        try:
            content = prompt_content(blocks, PROMPT_CAPABILITIES)
            if (told := await self._undo_answer(content)) is not None:
                self._send([AgentMessageChunk(content=TextBlock(text=told))])
                return wire.PromptResponse(stop_reason="end_turn")
            command = await self._command(turn, content)
            if self._muted is not None:
                await _until_free(self._settled)
            if turn.is_cancelled:
                return wire.PromptResponse(stop_reason="cancelled")
            self._projection.skip_input(turn.input_id)
            # Not cancelled in the middle: then it would not be known whether the prompt runs.
            await wait_uncancelled(asyncio.ensure_future(self._start_run(turn, command)))
            if turn.is_cancelled:
                self._abort(turn)
            return self._answer(await asyncio.shield(turn.settled))
        except asyncio.CancelledError:
            if self._connection.is_ending or turn.run_id is None:
                raise
            self._cancel(turn)  # by `$/cancel_request`
            return self._answer(await turn.settled)

    async def _start_run(self, turn: Turn, command: cmd.Send | cmd.Compact) -> None:
        async with self._publishing:
            turn.run_id = (await self._sessions.dispatch(RunCommand(self.session_id, command))).run_id

    async def _undo_answer(self, content: str | tuple[SessionPart, ...]) -> str | None:
        asked = parsed_command(own_words(content))  # what is attached means nothing to these commands
        return None if asked is None else await undo_answer(self._sessions, await self.state(), self.session_id, asked)

    async def _command(self, turn: Turn, content: str | tuple[SessionPart, ...]) -> cmd.Send | cmd.Compact:
        state = await self.state()
        asked = parsed_command(own_words(content))
        if asked is not None and asked.name == COMPACT and state.capabilities.compact:
            return cmd.Compact(now=0, input_id=turn.input_id, instructions=asked.argument)
        content = await self._commands.expanded(content, state)
        terms = ev.RunTerms(max_turns=self._connection.server.max_turns)
        # With a client_msg_id the prompt counts once, also when its owner dies and it has to be sent again.
        return cmd.Send(now=0, input_id=turn.input_id, content=content, client_msg_id=turn.input_id, terms=terms)

    def _answer(self, settlement: Settlement | None) -> wire.PromptResponse:
        if settlement is None:
            return wire.PromptResponse(stop_reason="cancelled")
        reason, spent = stop_reason_of(settlement), settlement.usage
        usage = None
        if self._connection.server.unstable:
            usage = wire.TurnUsage(
                total_tokens=spent.input + spent.output + spent.cache_read + spent.cache_write,
                input_tokens=spent.input,
                output_tokens=spent.output,
                thought_tokens=spent.reasoning or None,
                cached_read_tokens=spent.cache_read or None,
                cached_write_tokens=spent.cache_write or None,
            )
        return wire.PromptResponse(stop_reason=reason, usage=usage)

    def cancel(self) -> None:
        """Cancel the running prompt, if there is one; a later prompt is not affected (ACP-PROMPT-009)."""
        if (turn := self._next or self._turn) is not None:
            self._cancel(turn)
        elif (run_id := self._steering.run_id) is not None:
            self._connection.tasks.start(self._steering.abort(run_id, self._connection.decider), f"acp-cancel-{run_id}")

    def _cancel(self, turn: Turn) -> None:
        if not turn.is_cancelled:
            turn.is_cancelled = True
            if turn.run_id is not None:
                self._abort(turn)

    def _abort(self, turn: Turn) -> None:
        self._connection.tasks.start(self._aborted(turn), f"acp-cancel-{turn.run_id}")

    async def _aborted(self, turn: Turn) -> None:
        try:
            async with asyncio.timeout(CANCEL_S):
                await self._steering.abort(turn.run_id, self._connection.decider)
                await asyncio.shield(turn.settled)
        except TimeoutError:
            self._mute(turn)
        except MakaiError as error:
            log.warning("a prompt cannot be cancelled: %s", error)
            self._mute(turn)

    def _mute(self, turn: Turn) -> None:
        """Answer a cancelled prompt whose run needs longer to end: whatever it still does is not shown."""
        if turn.settled.done():
            return
        self._muted = turn.run_id
        self._settled.clear()
        for call_id in self._calls:
            self._questions.withdraw(call_id)
            self._send([ToolCallUpdate(tool_call_id=call_id, status="failed")])
        turn.settle(None)

    async def steer(self, blocks: Sequence[ContentBlock]) -> wire.SteeringResponse:
        """Give further input to the active run, or start one."""
        content = prompt_content(blocks, PROMPT_CAPABILITIES)
        input_id = str(uuid4())
        async with self._publishing:
            self._projection.skip_input(input_id)
            return await self._steering.send(input_id, content)

    async def _dispatch(self, command: cmd.UserCommand) -> None:
        await self._sessions.dispatch(RunCommand(self.session_id, command))


async def _until_free(ended: asyncio.Event) -> None:
    """Wait for the end of a cancelled prompt or its run, which is not part of the prompt behind it."""
    try:
        async with asyncio.timeout(2 * ABORT_S):
            await ended.wait()
    except TimeoutError:
        message = "The prompt that you cancelled has not ended yet."
        raise RpcError(json_rpc.INVALID_REQUEST, message, {"code": "BUSY"}) from None


def _is_terminal(event: ev.SessionEvent) -> bool:
    return isinstance(event, ev.ToolUpdated) and event.terminal_id is not None


def _opens(logged: LoggedEvent, state: SessionState) -> bool:
    """Whether texts begin with this event whose whole may never have been logged."""
    if not isinstance(logged, ev.Logged):
        return False
    if state.capabilities.has_turns:
        return isinstance(logged.event, ev.TurnStarted) and not logged.event.parent_call_id
    return isinstance(logged.event, ev.RunStarted)


def _closes(logged: LoggedEvent, state: SessionState) -> bool | None:
    """Whether all texts are whole that ended with this event; None when they have not ended."""
    match logged.event if isinstance(logged, ev.Logged) else None:
        case ev.TurnEnded(stop_reason=reason, parent_call_id="") if state.capabilities.has_turns:
            return reason not in BROKEN_OFF
        case ev.RunFinished(stop_reason=reason):
            return not state.capabilities.has_turns and reason not in BROKEN_OFF
        case ev.RunFailed():
            return False
        case _:
            return None
