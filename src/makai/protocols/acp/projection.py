"""Session events as `session/update`: live and in replay by the same code, so that both show the same.

Deltas are sent as they come, and a whole text sends only what its deltas have not: the chunks of a message concatenate
to its text with deltas and without (ACP-UPD-002). A replay should read the deltas too, for an answer that broke off may
have nothing else; `joined` makes one update of those that follow each other. Message ids follow from the log.

Only what the client declared is sent (`session.notices`, `session.compaction`). Modes and models are the work of
`settings`, questions that of `permissions`, and how a run ended is the answer to its prompt (`stop_reason_of`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final, assert_never

import msgspec

from makai.core import session_events as ev
from makai.core.content import SessionPart, Text, Thinking, ToolCall
from makai.core.messages import AssistantMessage, Message, StopReason, SystemMessage, ToolMessage, UserMessage
from makai.core.visible_text import one_line
from makai.protocols.acp.prompts import content_blocks
from makai.protocols.acp.tool_calls import TrackedCall
from makai.sessions.state import SessionState
from makai.wire import json_rpc
from makai.wire.acp import sessions, updates
from makai.wire.acp.common import TextBlock
from makai.wire.acp.connecting import AcpClientCapabilities, ClientSessionCapabilities
from makai.wire.json_rpc_errors import MAX_MESSAGE_LENGTH, RpcError

MAX_NOTICE_TITLE: Final = 200
COMPACTED: Final = "The conversation so far was replaced by a summary."
_NEEDS_LOGIN: Final = frozenset({"auth_required", "auth_expired", "auth_refresh_failed"})
_STOP_REASONS: Final[dict[StopReason, sessions.StopReason]] = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "tool_use": "end_turn",
    "max_tokens": "max_tokens",
    "max_turns": "max_turn_requests",
    "refusal": "refusal",
    "aborted": "cancelled",
}


class _Blocks:
    """What was sent of the text and thinking blocks of one turn, or of a whole run when its agent has no turns: then
    several blocks have the same index, one after the other."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._sent: dict[tuple[bool, int], list[str]] = {}
        self._ended: dict[tuple[bool, int], int] = {}
        """How many blocks of this index are whole."""

    def delta(self, is_thought: bool, index: int, text: str) -> list[updates.SessionUpdate]:
        self._sent.setdefault((is_thought, index), []).append(text)
        return self._chunk(is_thought, index, text)

    def whole(self, is_thought: bool, index: int, text: str) -> list[updates.SessionUpdate]:
        key = is_thought, index
        sent = "".join(self._sent.pop(key, ()))
        if sent and not text.startswith(sent):
            if sent.endswith(text):  # an earlier block broke off before this one began
                text = ""
            else:
                self._end(key)
        elif sent:
            text = text[len(sent) :]
        chunk = self._chunk(is_thought, index, text)
        self._end(key)
        return chunk

    def _end(self, key: tuple[bool, int]) -> None:
        self._ended[key] = self._ended.get(key, 0) + 1

    def _chunk(self, is_thought: bool, index: int, text: str) -> list[updates.SessionUpdate]:
        if not text:
            return []
        number = self._ended.get((is_thought, index), 0)
        message_id = f"{self._prefix}/{'thought' if is_thought else 'text'}-{index}{f'.{number}' if number else ''}"
        return [_said(is_thought, text, message_id)]


class UpdateProjection:
    def __init__(self, client: AcpClientCapabilities, *, shows_terminal_output: bool = False) -> None:
        """`shows_terminal_output`: the client declares `_meta.terminal_output`, so each command has a terminal that is
        only displayed, until it runs in one of the client's own (`open_terminal`)."""
        declared = client.session or ClientSessionCapabilities()
        self._takes_notices = declared.notices is not None
        self._waits: set[str] = set()
        """The waits (`notice_id`) that a client without notices was shown."""
        self._takes_compactions = declared.compaction is not None
        self._in_terminal = shows_terminal_output
        self._run_id = ""
        self._turn = 0
        self._blocks = _Blocks("")
        self._calls: dict[str, TrackedCall] = {}
        """Announced calls without a final status, by the id in the log."""
        self._terminals: dict[str, str] = {}
        """Terminals of the client for calls that were not announced yet."""
        self._history_calls: set[str] = set()
        self._compacting = ""
        self._own_inputs: set[str] = set()

    def skip_input(self, client_msg_id: str) -> None:
        """The client shows this prompt itself: its `user_message` is not echoed."""
        self._own_inputs.add(client_msg_id)

    def resume(self, state: SessionState) -> list[updates.SessionUpdate]:
        """Begin behind a state of the session instead of at the start of its log. Open calls are announced, because the
        client may have missed that."""
        run = state.active_run
        if run is None:
            return []
        self._begin(run.run_id, run.turn)
        self._compacting = run.run_id if run.purpose == "compaction" else ""
        announced: list[updates.SessionUpdate] = []
        for call in run.calls.values():
            title = call.request.title if call.request is not None else ""
            announced += self._announced(
                ev.ToolCalled(
                    call_id=call.call_id,
                    name=call.name,
                    arguments_json=call.arguments_json,
                    title=title,
                    parent_call_id=call.parent_call_id,
                )
            )
            if call.status == "started":
                announced += self._calls[call.call_id].started()
        return announced

    def open_terminal(self, call_id: str, terminal_id: str) -> list[updates.SessionUpdate]:
        """The command of a call runs in this terminal of the client. The log may be behind the command: then the
        terminal is shown as soon as the call is announced."""
        if (call := self._calls.get(call_id)) is not None:
            return [*call.opened_terminal(terminal_id)]
        self._terminals[call_id] = terminal_id
        return []

    def project(self, logged: ev.Logged, *, replayed: bool = False) -> list[updates.SessionUpdate]:
        """The updates of the next event. Notices are news, so a replay has none."""
        event = logged.event
        match event:
            case ev.AssistantTextDelta() | ev.ReasoningDelta():
                if event.parent_call_id:
                    return []  # of a sub-agent only whole texts are shown
                is_thought = isinstance(event, ev.ReasoningDelta)
                return self._blocks_of(logged).delta(is_thought, event.content_index, event.delta)
            case ev.AssistantText() | ev.Reasoning():
                return self._whole(logged, event)
            case ev.ToolCalled():
                return self._announced(event)
            case ev.ToolStarted() | ev.ToolProgress() | ev.ToolUpdated() | ev.ToolFinished():
                return self._of_call(event)
            case ev.UserInput() | ev.HistoryMessage():
                return self._message(logged.event_id, event)
            case ev.RunStarted() | ev.TurnStarted() | ev.RunFinished() | ev.RunFailed() | ev.Compacted():
                return self._of_run(logged, event)
            case ev.Notice():
                return self._notice(logged.event_id, event, replayed=replayed)
            case ev.PlanUpdated(entries=entries):
                items = (updates.PlanItem(content=e.content, priority=e.priority, status=e.status) for e in entries)
                return [updates.PlanUpdate(entries=tuple(items))]
            case ev.UsageReported():
                return _usage(event)
            case ev.TitleChanged(title=title):
                return [updates.SessionInfoUpdate(title=title or None, updated_at=_iso(logged.ts))]
            case ev.SessionCreated(title=title):
                return [updates.SessionInfoUpdate(title=title)] if title else []
            case (
                # Sent by `settings`, `slash_commands` and `permissions`.
                ev.ModelChanged() | ev.ModeChanged() | ev.AgentSession() | ev.ApprovalRequested() | ev.ApprovalDecided()
                | ev.HarnessChanged()
                # The answer to the prompt says how the run ended.
                | ev.RunStatusChanged() | ev.RunResumed() | ev.RunAborted() | ev.TurnEnded()
                # Input is shown when it is read; the rest is nothing that a conversation shows.
                | ev.InputAccepted() | ev.InputWithdrawn() | ev.TermsChanged() | ev.SessionClosed()
                | ev.SessionArchived()
                # A notice says it.
                | ev.FilesRestoring() | ev.FilesRestored()
            ):  # fmt: skip
                return []
            case _:
                assert_never(event)

    def _begin(self, run_id: str, turn: int) -> None:
        self._run_id, self._turn = run_id, turn
        self._blocks = _Blocks(f"{run_id}/{turn}")

    def _blocks_of(self, logged: ev.Logged) -> _Blocks:
        if logged.run_id != self._run_id:
            self._begin(logged.run_id or "", 0)
        return self._blocks

    def _whole(self, logged: ev.Logged, event: ev.AssistantText | ev.Reasoning) -> list[updates.SessionUpdate]:
        is_thought = isinstance(event, ev.Reasoning)
        if not event.parent_call_id:
            return self._blocks_of(logged).whole(is_thought, event.content_index, event.text)
        # The words of a sub-agent are no part of the answer: they are shown in the call that it works for.
        parent = self._calls.get(event.parent_call_id)
        return [*parent.progressed(f"{event.text}\n")] if parent is not None and event.text and not is_thought else []

    def _announced(self, event: ev.ToolCalled, shown_id: str = "") -> list[updates.SessionUpdate]:
        call = TrackedCall(event, call_id=shown_id, in_terminal=self._in_terminal)
        self._calls[event.call_id] = call
        announced: list[updates.SessionUpdate] = [call.announcement()]
        if (terminal_id := self._terminals.pop(event.call_id, "")) != "":
            announced += call.opened_terminal(terminal_id)
        return announced

    def _of_call(
        self, event: ev.ToolStarted | ev.ToolProgress | ev.ToolUpdated | ev.ToolFinished
    ) -> list[updates.SessionUpdate]:
        call = self._calls.get(event.call_id)
        if call is None:
            return []  # an update names an announced call (ACP-UPD-004)
        match event:
            case ev.ToolStarted():
                return [*call.started()]
            case ev.ToolProgress(text=text):
                return [*call.progressed(text)]
            case ev.ToolUpdated():
                return [*call.updated(event)]
            case ev.ToolFinished():
                del self._calls[event.call_id]
                return [*call.finished(event)]
            case _:
                assert_never(event)

    def _message(self, event_id: int, event: ev.UserInput | ev.HistoryMessage) -> list[updates.SessionUpdate]:
        if isinstance(event, ev.HistoryMessage):
            return self._history(event_id, event.message)
        if event.client_msg_id is not None and event.client_msg_id in self._own_inputs:
            self._own_inputs.discard(event.client_msg_id)
            return []
        return _user_chunks(event.content, f"user/{event.input_id}")

    def _history(self, event_id: int, message: Message) -> list[updates.SessionUpdate]:
        said: list[updates.SessionUpdate] = []
        match message:
            case SystemMessage():
                pass
            case UserMessage(content=content):
                said += _user_chunks(content, f"history/{event_id}")
            case AssistantMessage(content=parts):
                for index, part in enumerate(parts):
                    message_id = f"history/{event_id}/{index}"
                    match part:
                        case Text(text=text):
                            said += [_said(False, text, message_id)] if text else []
                        case Thinking(thinking=text):
                            said += [_said(True, text, message_id)] if text else []
                        case ToolCall():
                            said += self._history_call(part, event_id)
                        case _:
                            assert_never(part)
            case ToolMessage(result=result):
                content = (Text(text=result.content),) if isinstance(result.content, str) else result.content
                ended = ev.ToolFinished(call_id=result.tool_call_id, content=content, is_error=result.is_error)
                said += self._of_call(ended)
            case _:
                assert_never(message)
        return said

    def _history_call(self, part: ToolCall, event_id: int) -> list[updates.SessionUpdate]:
        """Calls of an earlier conversation may share an id; the client sees each under its own."""
        shown_id = (
            part.tool_call_id if part.tool_call_id not in self._history_calls else f"{part.tool_call_id}#{event_id}"
        )
        replaced = self._calls.pop(part.tool_call_id, None)
        self._history_calls.add(part.tool_call_id)
        called = ev.ToolCalled(call_id=part.tool_call_id, name=part.name, arguments_json=part.arguments_json)
        return [*(replaced.abandoned() if replaced is not None else ()), *self._announced(called, shown_id)]

    def _of_run(
        self, logged: ev.Logged, event: ev.RunStarted | ev.TurnStarted | ev.RunFinished | ev.RunFailed | ev.Compacted
    ) -> list[updates.SessionUpdate]:
        run_id = logged.run_id or ""
        match event:
            case ev.TurnStarted(turn=turn):
                if not event.parent_call_id:
                    self._begin(run_id, turn)
                return []
            case ev.RunStarted(purpose=purpose):
                self._begin(run_id, 0)
                self._compacting = run_id if purpose == "compaction" else ""
                return self._compaction(run_id, "in_progress") if self._compacting else []
            case ev.Compacted(summary=summary):
                asked_for, self._compacting = self._compacting == run_id, ""
                if not self._takes_compactions:
                    said = _said(False, COMPACTED, f"compacted/{logged.event_id}")
                    return [said] if asked_for else []
                compaction_id = run_id if asked_for else f"{run_id}/{logged.event_id}"
                return self._compaction(compaction_id, "completed", summary=(TextBlock(text=summary),))
            case ev.RunFinished() | ev.RunFailed():
                return [*self._closed(), *self._compaction_ended(event)]
            case _:
                assert_never(event)

    def _closed(self) -> list[updates.SessionUpdate]:
        """Every announced call reaches a final status (ACP-UPD-005); the log usually has it before the run settles."""
        calls, self._calls = self._calls, {}
        self._terminals.clear()
        return [update for call in calls.values() for update in call.abandoned()]

    def _compaction_ended(self, event: ev.RunFinished | ev.RunFailed) -> list[updates.SessionUpdate]:
        compaction_id, self._compacting = self._compacting, ""
        if not compaction_id:
            return []
        if isinstance(event, ev.RunFailed):
            return self._compaction(compaction_id, "failed", error=event.message)
        return self._compaction(compaction_id, "cancelled" if event.stop_reason == "aborted" else "completed")

    def _compaction(
        self, compaction_id: str, status: updates.CompactionStatus, **fields: Any
    ) -> list[updates.SessionUpdate]:
        if not self._takes_compactions:
            return []
        return [updates.CompactionUpdate(compaction_id=compaction_id, status=status, **fields)]

    def _notice(self, event_id: int, event: ev.Notice, *, replayed: bool) -> list[updates.SessionUpdate]:
        """A client without notices is shown warnings and errors as a thought: visible, and no part of the answer."""
        message = event.waiting_text() or event.code
        if self._takes_notices:
            title = one_line(message, MAX_NOTICE_TITLE) or event.code or "Notice"
            description = message if title != message else None
            return (
                [] if replayed else [updates.NoticeUpdate(severity=event.level, title=title, description=description)]
            )
        waits = (event.wait_ms or 0) >= ev.LONG_WAIT_MS and not replayed and event.notice_id not in self._waits
        if waits:  # once: an update cannot take the place of an earlier one
            self._waits.add(event.notice_id)
        if event.level == "info" and not waits:
            return []
        return [_said(True, f"{event.level.capitalize()}: {message}\n", f"notice/{event_id}")]


def joined(said: Iterable[updates.SessionUpdate]) -> list[updates.SessionUpdate]:
    """The same with fewer updates: text chunks of one message that follow each other become one, and so do updates of
    one call."""
    result: list[updates.SessionUpdate] = []
    for _, following in groupby(said, _joint):
        group = list(following)
        last = group[-1]
        match last:
            case updates.AgentMessageChunk() | updates.AgentThoughtChunk() if len(group) > 1:
                blocks = (each.content for each in group if isinstance(each, type(last)))
                text = "".join(block.text for block in blocks if isinstance(block, TextBlock))
                result.append(msgspec.structs.replace(last, content=TextBlock(text=text)))
            case updates.ToolCallUpdate() if len(group) > 1:
                result.append(updates.ToolCallUpdate(**{name: value for each in group for name, value in _told(each)}))
            case _:
                result.append(last)
    return result


def _joint(update: updates.SessionUpdate) -> object:
    """Equal for neighbours that can become one update."""
    match update:
        case updates.AgentMessageChunk(content=TextBlock()) | updates.AgentThoughtChunk(content=TextBlock()):
            return type(update), update.message_id
        case updates.ToolCallUpdate(meta=None, tool_call_id=call_id):
            return updates.ToolCallUpdate, call_id
        case _:
            return object()


def _told(update: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    fields = ((name, getattr(update, name)) for name in update.__struct_fields__)
    return ((name, value) for name, value in fields if value is not None and value is not msgspec.UNSET)


def stop_reason_of(settlement: ev.RunFinished | ev.RunFailed | ev.RunAborted) -> sessions.StopReason:
    """How a prompt is answered (ACP-PROMPT-006). A run that failed is an `RpcError` with a message of one line
    (ACP-PROMPT-011); when a login is needed, its code is -32000."""
    if isinstance(settlement, ev.RunAborted):
        return "cancelled"
    if isinstance(settlement, ev.RunFinished):
        reason = _STOP_REASONS.get(settlement.stop_reason)
        if reason is None:
            raise RpcError(json_rpc.INTERNAL_ERROR, "The run ended in an error.")
        return reason
    if settlement.code == "aborted":
        return "cancelled"
    code = json_rpc.AUTH_REQUIRED if settlement.code in _NEEDS_LOGIN else json_rpc.INTERNAL_ERROR
    message = " ".join(filter(None, (settlement.message, settlement.hint))) or f"The run failed: {settlement.code}."
    data = {"code": settlement.code, "providerId": settlement.provider_id, "retryAfterMs": settlement.retry_after_ms}
    told = {name: value for name, value in data.items() if value is not None}
    raise RpcError(code, one_line(message, MAX_MESSAGE_LENGTH), told)


def _said(is_thought: bool, text: str, message_id: str) -> updates.SessionUpdate:
    kind = updates.AgentThoughtChunk if is_thought else updates.AgentMessageChunk
    return kind(content=TextBlock(text=text), message_id=message_id)


def _user_chunks(content: str | Iterable[SessionPart], message_id: str) -> list[updates.SessionUpdate]:
    return [updates.UserMessageChunk(content=block, message_id=message_id) for block in content_blocks(content)]


def _usage(event: ev.UsageReported) -> list[updates.SessionUpdate]:
    if event.context_window is None or event.context_tokens is None:
        return []
    price = event.total.cost_usd
    cost = None if price is None else updates.Cost(amount=price, currency="USD")
    return [updates.UsageUpdate(used=max(0, event.context_tokens), size=max(0, event.context_window), cost=cost)]


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
