"""Notifications of `codex app-server` as updates of ACP and ends of turns, sans-IO.

Text is reported once: as it streams, and at the end of its item only what the stream left out. A call that Codex may
still ask about is pending until there is a sign that it runs. Calls that are open when their turn ends are closed:
Codex reports no end of a command that was interrupted. Threads of sub-agents are shown inside the call that started
them.

Nothing that a server sends raises. What this version does not know or cannot read is counted in `drift`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from makai.core.visible_text import one_line
from makai.harness.codex import items, messages
from makai.harness.drift import DriftCounter
from makai.wire.acp import updates as wire
from makai.wire.acp.common import TextBlock
from makai.wire.acp.sessions import StopReason, TurnUsage

MAX_SHOWN_OUTPUT: Final = 16_000
"""How much of a running command's output an update shows, from its end. The end of the call has all of it."""
_EVERY_DELTA_UP_TO: Final = 1_000
_MAX_WARNINGS: Final = 100
_MAX_CLOSED: Final = 1_000
_INTERRUPTED: Final = "The turn ended before this call."
_STILL_RUNNING: Final = "This call was still running when the turn ended."
_PASSED_OVER: Final = frozenset({
    "account/gatewayOAuth/changed", "account/login/completed", "account/rateLimits/updated", "account/updated",
    "app/list/updated", "autoApprovalReview/strictReviewRequired", "command/exec/outputDelta", "deprecationNotice",
    "externalAgentConfig/import/completed", "externalAgentConfig/import/progress", "fs/changed", "hook/completed",
    "hook/started", "item/autoApprovalReview/completed", "item/autoApprovalReview/started",
    "item/commandExecution/terminalInteraction", "item/fileChange/outputDelta", "item/mcpToolCall/progress",
    "item/plan/delta", "mcpServer/event/stream/notification", "mcpServer/oauthLogin/completed",
    "model/safetyBuffering/updated", "model/verification", "modelProvider/authRecoveryCompleted",
    "modelProvider/authRecoveryStarted", "process/exited", "process/outputDelta", "project/changed",
    "rawResponse/completed", "rawResponseItem/completed", "remoteControl/status/changed", "skills/changed",
    "thread/archived", "thread/attachment/updated", "thread/closed", "thread/compacted", "thread/deleted",
    "thread/environment/connected", "thread/environment/disconnected", "thread/goal/cleared", "thread/goal/updated",
    "thread/prediction/updated", "thread/project/updated", "thread/queue/changed", "thread/readState/changed",
    "thread/reverted", "thread/settings/updated", "thread/started", "thread/status/changed", "thread/unarchived",
    "turn/diff/updated", "turn/moderationMetadata",
})  # fmt: skip
"""Notifications that say nothing about a session of makai."""
_SILENT_ITEMS: Final = frozenset({
    "userMessage", "hookPrompt", "functionCallOutput", "subAgentActivity", "sleep", "enteredReviewMode",
    "exitedReviewMode",
})  # fmt: skip
_PLAN_STATUSES: Final[dict[str, Any]] = {"inProgress": "in_progress", "completed": "completed"}


class CodexTurnEnd(NamedTuple):
    """The end of the active turn, after everything else of it."""

    stop_reason: StopReason
    usage: TurnUsage | None
    failure: messages.TurnFailure | None
    model_calls: int = 0


class QuestionOver(NamedTuple):
    """The server no longer waits for the answer to its request."""

    request_id: int | str


Output: TypeAlias = wire.SessionUpdate | CodexTurnEnd | QuestionOver


class _OpenCall:
    def __init__(self, item: messages.CodexItem, thread_id: str) -> None:
        self.item = item
        self.thread_id = thread_id
        self.is_running = False
        self.output: list[str] = []
        self.length = 0
        self.next_shown = 0

    def text(self) -> str:
        text = "".join(self.output)
        return text if len(text) <= MAX_SHOWN_OUTPUT else f"…{text[-MAX_SHOWN_OUTPUT:]}"


class Translator:
    """The state of one thread and its sub-agents."""

    def __init__(self) -> None:
        self.thread_id = ""
        self.turn_id: str | None = None
        """The turn that is active, once Codex has named it."""
        self.is_active = False
        self.drift = DriftCounter()
        """What was passed over: notifications and items of other versions."""
        self._calls: dict[str, _OpenCall] = {}
        self._asked: set[str] = set()
        self._over: set[str] = set()
        """Calls that were closed here, although Codex has not reported their end."""
        self._said: dict[str, list[str]] = {}
        """Text that was reported, by item."""
        self._parents: dict[str, str] = {}
        """The call that started a sub-agent, by the sub-agent's thread."""
        self._model_calls = 0
        """Of the session's own thread in this turn. Codex tells the usage after each one."""
        self._totals: dict[str, messages.TokenCounts] = {}
        self._bases: dict[str, messages.TokenCounts] = {}
        self._error: messages.TurnFailure | None = None
        self._has_output = False
        self._warnings: set[str] = set()

    @property
    def open_items(self) -> dict[str, messages.CodexItem]:
        return {call_id: call.item for call_id, call in self._calls.items()}

    def begin(self) -> None:
        """A turn is about to be started."""
        self.is_active, self.turn_id = True, None
        self._error, self._has_output = None, False
        self._bases = dict(self._totals)
        self._model_calls = 0

    def asks_about(self, call_id: str) -> None:
        """A question about this call is open: it does not run before the answer."""
        self._asked.add(call_id)

    def parent_meta(self, thread_id: str) -> dict[str, Any] | None:
        """How an update says that it belongs to a sub-agent: as Claude Code's adapter does, which makai reads."""
        parent = self._parents.get(thread_id) if thread_id != self.thread_id else None
        return {"claudeCode": {"parentToolUseId": parent}} if parent is not None else None

    def on_notification(self, method: str, params: msgspec.Raw | None) -> list[Output]:
        known = _HANDLERS.get(method)
        if known is None:
            if not is_known(method):
                self.drift.note(method)
            return []
        decoder, handle = known
        try:
            value = decoder.decode(b"{}" if params is None else params)
        except msgspec.DecodeError:
            self.drift.note(method)
            return []
        outputs: list[Output] = handle(self, value)
        return outputs

    def end(self, stop_reason: StopReason = "end_turn", failure: messages.TurnFailure | None = None) -> list[Output]:
        """Close everything that is open and end the turn; nothing when none is active."""
        if not self.is_active:
            return []
        is_over = stop_reason == "end_turn" and failure is None
        closed: list[Output] = [self._closed(call_id, is_over=is_over) for call_id in list(self._calls)]
        usage = self._usage()
        self.is_active, self.turn_id = False, None
        self._said.clear()
        self._asked.clear()
        self._parents.clear()
        return [*closed, CodexTurnEnd(stop_reason, usage, failure, self._model_calls)]

    def _is_heard(self, thread_id: str) -> bool:
        """Whether text of this thread is shown: of the session's own thread, and of sub-agents in an open call."""
        return thread_id == self.thread_id or thread_id in self._parents

    def _on_text(self, delta: messages.ItemTextDelta) -> list[Output]:
        if not delta.delta or not self._is_heard(delta.thread_id):
            return []
        self._said.setdefault(delta.item_id, []).append(delta.delta)
        self._has_output = True
        return [self._message(wire.AgentMessageChunk, delta.thread_id, delta.item_id, delta.delta)]

    def _on_thought(self, delta: messages.ItemTextDelta) -> list[Output]:
        if not delta.delta or not self._is_heard(delta.thread_id):
            return []
        self._said.setdefault(delta.item_id, []).append(delta.delta)
        return [self._message(wire.AgentThoughtChunk, delta.thread_id, delta.item_id, delta.delta)]

    def _on_summary_part(self, part: messages.SummaryPart) -> list[Output]:
        said = self._said.get(part.item_id)
        if not said or part.summary_index == 0 or said[-1] == "\n\n":
            return []
        return self._on_thought(messages.ItemTextDelta(thread_id=part.thread_id, item_id=part.item_id, delta="\n\n"))

    def _message(
        self, kind: type[wire.AgentMessageChunk | wire.AgentThoughtChunk], thread_id: str, item_id: str, text: str
    ) -> wire.SessionUpdate:
        meta = self.parent_meta(thread_id)
        return kind(content=TextBlock(text=text), message_id=item_id, meta=meta)

    def _rest(
        self, kind: type[wire.AgentMessageChunk | wire.AgentThoughtChunk], thread_id: str, item_id: str, whole: str
    ) -> list[Output]:
        """What the stream of an item left out."""
        said = "".join(self._said.pop(item_id, ()))
        rest = whole[len(said) :] if whole.startswith(said) else ""
        if not rest or not self._is_heard(thread_id):
            return []
        self._has_output = True
        return [self._message(kind, thread_id, item_id, rest)]

    def _on_item_started(self, started: messages.ItemNotification) -> list[Output]:
        item, thread_id = started.item, started.thread_id
        if item.type == "contextCompaction" and thread_id == self.thread_id:
            return [wire.CompactionUpdate(compaction_id=item.id, status="in_progress")]
        if item.type not in items.CALLS:
            return []
        is_new = item.id not in self._calls
        call = self._calls[item.id] = _OpenCall(item, thread_id)
        call.is_running = item.process_id is not None or item.type in ("webSearch", "collabAgentToolCall")
        self._has_output = True
        if not is_new or item.id in self._asked:
            return []  # the question has said all of it
        shape = items.shape_of(item)
        return [
            wire.NewToolCall(
                tool_call_id=item.id,
                title=shape.title,
                name=shape.name,
                kind=shape.kind,
                status="in_progress" if call.is_running else "pending",
                content=shape.content,
                locations=shape.locations or None,
                raw_input=shape.raw_input,
                meta=self.parent_meta(thread_id),
            )
        ]

    def _on_item_completed(self, completed: messages.ItemNotification) -> list[Output]:
        item, thread_id = completed.item, completed.thread_id
        match item.type:
            case "agentMessage" | "plan":
                return self._rest(wire.AgentMessageChunk, thread_id, item.id, item.text)
            case "reasoning":
                return self._rest(wire.AgentThoughtChunk, thread_id, item.id, items.reasoning_of(item))
            case "contextCompaction" if thread_id == self.thread_id:
                return [wire.CompactionUpdate(compaction_id=item.id, status="completed")]
        if item.type not in items.CALLS:
            if item.type not in _SILENT_ITEMS and item.type != "contextCompaction":
                self.drift.note(f"item {item.type}")
            return []
        if item.id in self._over:
            self._over.discard(item.id)
            return []
        begun = [] if item.id in self._calls else self._on_item_started(completed)
        if item.type == "collabAgentToolCall" and item.tool == "spawnAgent" and item.status == "completed":
            for child in item.receiver_thread_ids:
                self._parents[child] = item.id
            if item.receiver_thread_ids:
                return begun  # the call ends with the sub-agent's turn
        call = self._calls.pop(item.id)
        if item.status != "declined" and not call.is_running and item.id not in self._asked:
            begun.append(wire.ToolCallUpdate(tool_call_id=item.id, status="in_progress"))
        self._asked.discard(item.id)
        return [*begun, items.result_of(item)]

    def _on_output(self, delta: messages.ItemTextDelta) -> list[Output]:
        call = self._calls.get(delta.item_id)
        if call is None:
            return []
        call.output.append(delta.delta)
        call.length += len(delta.delta)
        if call.length < call.next_shown:
            return []
        # Each update has the output so far, so that the distance between two of them grows with it.
        call.next_shown = 0 if call.length < _EVERY_DELTA_UP_TO else call.length + call.length // 4
        call.is_running = True
        content = items.text_content(call.text())
        return [wire.ToolCallUpdate(tool_call_id=delta.item_id, status="in_progress", content=content)]

    def _on_patch(self, patch: messages.PatchUpdated) -> list[Output]:
        call = self._calls.get(patch.item_id)
        if call is None or call.item.type != "fileChange" or patch.item_id in self._asked:
            return []
        call.item = msgspec.structs.replace(call.item, changes=patch.changes)
        shape = items.change_shape(patch.changes)
        return [
            wire.ToolCallUpdate(
                tool_call_id=patch.item_id,
                title=shape.title,
                kind=shape.kind,
                content=shape.content,
                locations=shape.locations,
                raw_input=shape.raw_input,
            )
        ]

    def _on_plan(self, updated: messages.PlanNotification) -> list[Output]:
        if updated.thread_id != self.thread_id:
            return []
        entries = (
            wire.PlanItem(content=step.step, priority="medium", status=_PLAN_STATUSES.get(step.status, "pending"))
            for step in updated.plan
        )
        return [wire.PlanUpdate(entries=tuple(entries))]

    def _on_usage(self, updated: messages.UsageUpdated) -> list[Output]:
        usage, thread_id = updated.token_usage, updated.thread_id
        if thread_id not in self._totals and thread_id not in self._bases:
            # The first that is heard of a thread: what came before its newest call belongs to earlier turns.
            self._bases[thread_id] = _minus(usage.total, usage.last)
        if thread_id == self.thread_id and self._totals.get(thread_id) != usage.total:  # it may be told twice
            self._model_calls += 1
        self._totals[thread_id] = usage.total
        if thread_id != self.thread_id or not usage.model_context_window:
            return []
        return [wire.UsageUpdate(used=usage.last.total_tokens, size=usage.model_context_window)]

    def _usage(self) -> TurnUsage | None:
        """What the turn used, with its sub-agents."""
        used = [_minus(total, self._bases.get(thread, _NOTHING)) for thread, total in self._totals.items()]
        if not any(each.total_tokens for each in used):
            return None
        cached = sum(each.cached_input_tokens for each in used)
        written = sum(each.cache_write_input_tokens for each in used)
        return TurnUsage(
            total_tokens=sum(each.total_tokens for each in used),
            input_tokens=max(sum(each.input_tokens for each in used) - cached - written, 0),
            output_tokens=sum(each.output_tokens for each in used),
            thought_tokens=sum(each.reasoning_output_tokens for each in used) or None,
            cached_read_tokens=cached or None,
            cached_write_tokens=written or None,
        )

    def _on_error(self, said: messages.ErrorNotification) -> list[Output]:
        if said.will_retry:
            return [_notice("warning", f"Codex tries again: {failure_text(said.error)}")]
        if said.thread_id in ("", self.thread_id):
            self._error = said.error
        return []

    def _on_turn_started(self, started: messages.TurnNotification) -> list[Output]:
        if started.thread_id == self.thread_id and self.is_active and self.turn_id is None:
            self.turn_id = started.turn.id
        return []

    def _on_turn_completed(self, completed: messages.TurnNotification) -> list[Output]:
        turn = completed.turn
        if completed.thread_id != self.thread_id:
            return self._sub_agent_ended(completed.thread_id, turn)
        if not self.is_active or self.turn_id not in (None, turn.id) or turn.status == "inProgress":
            return []
        match turn.status:
            case "interrupted" if turn.error is None:
                return self.end("cancelled")
            case "completed" if turn.error is None:
                if self._error is None:
                    return self.end()
                if not self._has_output:
                    return self.end(failure=self._error)
                return [_notice("error", failure_text(self._error)), *self.end()]
            case _:
                failure = turn.error or self._error or messages.TurnFailure(message=f"The turn ended as {turn.status}.")
                return self.end(failure=failure)

    def _sub_agent_ended(self, thread_id: str, turn: messages.CodexTurn) -> list[Output]:
        parent = self._parents.pop(thread_id, None)
        if parent is None or parent not in self._calls or parent in self._parents.values():
            return []
        inner = [call_id for call_id, call in self._calls.items() if call.thread_id == thread_id]
        closed: list[Output] = [self._closed(call_id, is_over=turn.status == "completed") for call_id in inner]
        del self._calls[parent]
        words = "" if turn.status == "completed" else failure_text(turn.error) if turn.error else turn.status
        status = "failed" if words else "completed"
        return [
            *closed, wire.ToolCallUpdate(tool_call_id=parent, status=status, content=items.text_content(words) or None),
        ]  # fmt: skip

    def _closed(self, call_id: str, *, is_over: bool) -> wire.SessionUpdate:
        """Close a call that Codex left open. Its end may still be reported, when its process ends."""
        call = self._calls.pop(call_id)
        if len(self._over) < _MAX_CLOSED:
            self._over.add(call_id)
        why = items.text_content(_STILL_RUNNING if is_over else _INTERRUPTED)
        content = (*items.text_content(call.text()), *why)
        return wire.ToolCallUpdate(tool_call_id=call_id, status="completed" if is_over else "failed", content=content)

    def _on_warning(self, said: messages.Warned) -> list[Output]:
        """Codex repeats its warnings in every turn."""
        text = one_line(" ".join(filter(None, (said.message or said.summary, said.details))), 1_000)
        if not text or text in self._warnings or len(self._warnings) >= _MAX_WARNINGS:
            return []
        self._warnings.add(text)
        return [_notice("warning", text)]

    def _on_name(self, updated: messages.NameUpdated) -> list[Output]:
        if updated.thread_id != self.thread_id or not updated.thread_name:
            return []
        return [wire.SessionInfoUpdate(title=updated.thread_name)]

    def _on_rerouted(self, rerouted: messages.ModelRerouted) -> list[Output]:
        return [_notice("warning", f"Codex uses {rerouted.to_model} instead of {rerouted.from_model}.")]

    def _on_mcp_startup(self, said: messages.McpStartup) -> list[Output]:
        if said.status != "failed":
            return []
        return self._on_warning(
            messages.Warned(message=f"The MCP server {said.name!r} did not start.", details=said.error)
        )

    def _on_resolved(self, resolved: messages.RequestResolved) -> list[Output]:
        return [QuestionOver(resolved.request_id)]


def failure_text(failure: messages.TurnFailure) -> str:
    details = failure.additional_details
    message = failure.message or error_name(failure) or "Codex gave no reason."
    return f"{message} {details}" if details else message


def error_name(failure: messages.TurnFailure) -> str:
    """The name of the kind of error, such as `usageLimitExceeded`; "" when it has none."""
    info = failure.codex_error_info
    return next(iter(info), "") if isinstance(info, dict) else info or ""


def needs_login(failure: messages.TurnFailure) -> bool:
    info = failure.codex_error_info
    members = info.values() if isinstance(info, dict) else ()
    statuses = (each.get("httpStatusCode") for each in members if isinstance(each, dict))
    return info == "unauthorized" or 401 in statuses


def _notice(severity: str, text: str) -> wire.NoticeUpdate:
    return wire.NoticeUpdate(severity=severity, title=text)


_NOTHING: Final = messages.TokenCounts()


def _minus(total: messages.TokenCounts, base: messages.TokenCounts) -> messages.TokenCounts:
    counts = {name: max(getattr(total, name) - getattr(base, name), 0) for name in total.__struct_fields__}
    return messages.TokenCounts(**counts)


def _handler(kind: Any, handle: Callable[[Translator, Any], list[Output]]) -> tuple[msgspec.json.Decoder[Any], Any]:
    return msgspec.json.Decoder(kind), handle


_HANDLERS: Final[dict[str, tuple[msgspec.json.Decoder[Any], Callable[[Translator, Any], list[Output]]]]] = {
    "configWarning": _handler(messages.Warned, Translator._on_warning),
    "error": _handler(messages.ErrorNotification, Translator._on_error),
    "guardianWarning": _handler(messages.Warned, Translator._on_warning),
    "item/agentMessage/delta": _handler(messages.ItemTextDelta, Translator._on_text),
    "item/commandExecution/outputDelta": _handler(messages.ItemTextDelta, Translator._on_output),
    "item/completed": _handler(messages.ItemNotification, Translator._on_item_completed),
    "item/fileChange/patchUpdated": _handler(messages.PatchUpdated, Translator._on_patch),
    "item/reasoning/summaryPartAdded": _handler(messages.SummaryPart, Translator._on_summary_part),
    "item/reasoning/summaryTextDelta": _handler(messages.ItemTextDelta, Translator._on_thought),
    "item/reasoning/textDelta": _handler(messages.ItemTextDelta, Translator._on_thought),
    "item/started": _handler(messages.ItemNotification, Translator._on_item_started),
    "mcpServer/startupStatus/updated": _handler(messages.McpStartup, Translator._on_mcp_startup),
    "model/rerouted": _handler(messages.ModelRerouted, Translator._on_rerouted),
    "serverRequest/resolved": _handler(messages.RequestResolved, Translator._on_resolved),
    "thread/name/updated": _handler(messages.NameUpdated, Translator._on_name),
    "thread/tokenUsage/updated": _handler(messages.UsageUpdated, Translator._on_usage),
    "turn/completed": _handler(messages.TurnNotification, Translator._on_turn_completed),
    "turn/plan/updated": _handler(messages.PlanNotification, Translator._on_plan),
    "turn/started": _handler(messages.TurnNotification, Translator._on_turn_started),
    "warning": _handler(messages.Warned, Translator._on_warning),
}


def is_known(method: str) -> bool:
    """Whether a notification is translated, or passed over on purpose."""
    return method in _HANDLERS or method in _PASSED_OVER
