"""Turns the lines of Claude Code into updates of ACP and a few signals about its turns. Sans-IO.

Text arrives twice: as deltas (`stream_event`) and as a whole block (`assistant`). A block that was streamed is not
reported again. Lines of kinds that this version does not know are passed over and counted.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, TypeAlias

import msgspec

from makai.core.errors import ParseError
from makai.core.usage import token_count
from makai.core.visible_text import one_line
from makai.harness.acp.updates_to_facts import UNPRICED
from makai.harness.claude_code import output_lines as out
from makai.harness.claude_code.running_cost import RowOf, RunningCost
from makai.harness.claude_code.tool_views import PLAN_TOOL, OldText, plan_of, result_content, tool_view
from makai.harness.claude_code.turn_results import (
    ClaudeTurnResult,
    amount,
    context_window,
    cost_since_last,
    turn_result,
)
from makai.harness.drift import DriftCounter
from makai.wire import strict_json
from makai.wire.acp import updates
from makai.wire.acp.common import TextBlock

_LOCAL_OUTPUT: Final = ("<local-command-stdout>", "</local-command-stdout>")
MAX_NOTICE_LENGTH: Final = 500


class ClaudeTurnStarted(msgspec.Struct, frozen=True):
    session_id: str


class StateChanged(msgspec.Struct, frozen=True):
    """What the program says it does: running, requires_action or idle."""

    state: str


class AgentsChanged(msgspec.Struct, frozen=True):
    """How many sub-agents work in the background: the program takes another turn when they have ended."""

    number: int


class PermissionAsked(msgspec.Struct, frozen=True, kw_only=True):
    request_id: str
    tool_name: str
    tool_call: updates.ToolCallFields
    raw_input: msgspec.Raw
    suggestions: tuple[dict[str, Any], ...] = ()


class PermissionWithdrawn(msgspec.Struct, frozen=True):
    request_id: str


class HostAsked(msgspec.Struct, frozen=True):
    """Another control request; the program waits for an answer."""

    request_id: str
    subtype: str


class InputState(msgspec.Struct, frozen=True):
    """What became of a user line: queued, started or completed."""

    uuid: str
    state: str


Signal: TypeAlias = (
    updates.SessionUpdate | ClaudeTurnStarted | StateChanged | AgentsChanged | ClaudeTurnResult | PermissionAsked
    | PermissionWithdrawn | HostAsked | InputState | out.ControlAnswer
)  # fmt: skip


class _Stream:
    """The message that the model, or a sub-agent, is writing: the blocks that were shown and not yet seen whole."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.blocks: deque[tuple[str, list[str]]] = deque()


class ClaudeTranslator:
    """The lines of one process, in order."""

    def __init__(
        self,
        old_text: OldText = lambda path: None,
        row_of: RowOf | None = None,
        drift: DriftCounter | None = None,
    ) -> None:
        """`row_of` finds the price of a model, for what a turn costs before it has ended; None estimates nothing."""
        self._old_text = old_text
        self._running = None if row_of is None else RunningCost(row_of)
        self.drift = DriftCounter() if drift is None else drift
        self.cost_usd = 0.0
        """Of this process. A resumed session's earlier cost is not in it."""
        self._total_usd = 0.0
        self._context_tokens = 0
        self._mode = ""
        self._streams: dict[str | None, _Stream] = {}
        """By the call in which a sub-agent runs, None for the agent itself."""
        self._diffs: dict[str, tuple[updates.DiffItem, ...]] = {}
        """Changes of open calls, by their ids."""
        self._hidden: set[str] = set()
        """Calls that are shown as something else."""
        self._background: set[str] = set()
        """Calls whose sub-agents work on after the program has reported a result."""
        self._failed_servers: set[str] = set()

    def feed(self, data: bytes) -> list[Signal] | None:
        """What a line says; None when it is not a message."""
        try:
            line = strict_json.decode_with(out.line_decoder, data)
        except ParseError:
            return self._unknown(data)
        match line:
            case out.StreamEventLine():
                return self._streamed(line)
            case out.AssistantLine():
                return self._assistant(line)
            case out.UserLine():
                return self._user(line)
            case out.SystemLine():
                return self._system(line)
            case out.ResultLine():
                return self._result(line)
            case out.ControlRequestLine():
                return [self._asked(line)]
            case out.ControlResponseLine(response=answer):
                return [answer]
            case out.ControlCancelLine(request_id=request_id):
                return [PermissionWithdrawn(request_id)]
            case out.CommandLifecycleLine(command_uuid=uuid, state=state):
                return [InputState(uuid, state)]
            case out.ToolProgressLine(tool_use_id=call_id):
                return (
                    [updates.ToolCallUpdate(tool_call_id=call_id, status="in_progress")]
                    if call_id in self._diffs
                    else []
                )
            case out.RateLimitLine(rate_limit_info=info):
                return _rate_limit(info)

    def _unknown(self, data: bytes) -> list[Signal] | None:
        try:
            kind = strict_json.decode_with(out.kind_decoder, data)
        except ParseError:
            return None
        if kind.type not in out.QUIET_TYPES:
            self.drift.note(str(kind))
        return []

    def _streamed(self, line: out.StreamEventLine) -> list[Signal]:
        event, parent = line.event, line.parent_tool_use_id
        match event.type:
            case "content_block_delta" if event.delta is not None:
                text = event.delta.text or event.delta.thinking
                stream = self._streams.get(parent)
                if not text or stream is None or not stream.blocks:
                    return []
                kind, shown = stream.blocks[-1]
                shown.append(text)
                return [_chunk(kind, text, stream.message_id, parent)]
            case "content_block_start" if event.content_block is not None:
                stream = self._streams.setdefault(parent, _Stream(""))
                stream.blocks.append((event.content_block.type, []))
            case "message_start":
                message = event.message or out.StreamedMessage()
                self._streams[parent] = _Stream(message.id)
                return self._spent(message.id, message.model, message.usage)
            case "message_delta":
                stream = self._streams.get(parent)
                return [] if stream is None else self._spent(stream.message_id, None, event.usage)
            case _:
                pass
        return []

    def _assistant(self, line: out.AssistantLine) -> list[Signal]:
        message, parent = line.message, line.parent_tool_use_id
        if line.is_api_error_message or line.error:
            return []  # the result says it once more, as a failure
        if parent is None and isinstance(message.usage, dict):
            self._context_tokens = sum(
                token_count(message.usage, name)
                for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
            )
        signals: list[Signal] = []
        if parent is not None:  # what sub-agents say is not streamed
            signals += self._spent(message.id, message.model, message.usage)
        if isinstance(message.content, str):
            chunk = [_chunk("text", message.content, message.id, parent)] if message.content else []
            return [*signals, *chunk]
        for block in message.content:
            match block.type:
                case "text" | "thinking":
                    whole_text = block.text or block.thinking
                    if rest := self._not_shown(block.type, whole_text, message.id, parent):
                        signals.append(_chunk(block.type, rest, message.id, parent))
                case "tool_use" | "server_tool_use" | "mcp_tool_use":
                    signals += self._called(block, parent)
                case "redacted_thinking":
                    pass
                case other:
                    self.drift.note(f"assistant block {other}")
        return signals

    def _not_shown(self, kind: str, text: str, message_id: str, parent: str | None) -> str:
        """What of a whole block was not streamed."""
        stream = self._streams.get(parent)
        if stream is None or stream.message_id != message_id:
            return text
        while stream.blocks:
            streamed, pieces = stream.blocks.popleft()
            if streamed == kind:
                shown = "".join(pieces)
                return text[len(shown) :] if text.startswith(shown) else ""
        return text

    def _called(self, block: out.ClaudeBlock, parent: str | None) -> list[Signal]:
        if block.name == PLAN_TOOL and (plan := plan_of(block.input)) is not None:
            self._hidden.add(block.id)
            return [plan]
        view = tool_view(block.name, block.input, self._old_text)
        self._diffs[block.id] = view.diffs
        return [
            updates.NewToolCall(
                tool_call_id=block.id,
                title=view.title,
                name=block.name,
                kind=view.kind,
                status="pending",
                content=view.diffs or None,
                locations=view.locations or None,
                raw_input=block.input,
                meta=_meta(parent, block.name),
            )
        ]

    def _user(self, line: out.UserLine) -> list[Signal]:
        content = line.message.content
        if isinstance(content, str):
            start, end = _LOCAL_OUTPUT
            said = content.removeprefix(start).removesuffix(end).strip() if content.startswith(start) else ""
            return [_chunk("text", said, "", line.parent_tool_use_id)] if said else []
        signals: list[Signal] = []
        for block in content:
            if block.type != "tool_result" or block.tool_use_id in self._hidden:
                continue  # what was sent, or a call that is shown otherwise
            if block.tool_use_id in self._background:
                signals.append(updates.ToolCallUpdate(tool_call_id=block.tool_use_id, status="in_progress"))
                continue
            diffs = self._diffs.pop(block.tool_use_id, ())
            items = (*(() if block.is_error else diffs), *result_content(block.content))
            signals.append(
                updates.ToolCallUpdate(
                    tool_call_id=block.tool_use_id,
                    status="failed" if block.is_error else "completed",
                    content=items,
                    raw_output=_raw(line.tool_use_result) if len(content) == 1 else msgspec.UNSET,
                    meta=_meta(line.parent_tool_use_id),
                )
            )
        return signals

    def _system(self, line: out.SystemLine) -> list[Signal]:
        match line.subtype:
            case "init":
                return [
                    ClaudeTurnStarted(line.session_id),
                    *self._moded(line.permission_mode),
                    *self._servers(line.mcp_servers),
                ]
            case "session_state_changed":
                return [StateChanged(line.state)]
            case "status":
                doing: list[Signal] = []
                if line.status == "compacting":
                    doing.append(updates.CompactionUpdate(compaction_id="compaction", status="in_progress"))
                return doing + self._moded(line.permission_mode)
            case "compact_boundary":
                return [updates.CompactionUpdate(compaction_id="compaction", status="completed")]
            case "api_retry":
                what = f"{line.error or 'no answer'}" + (f" ({line.error_status})" if line.error_status else "")
                title = f"The model did not answer: {what}. Attempt {line.attempt} of {line.max_retries} follows"
                return [notice("warning", title)]
            case "background_tasks_changed":
                tasks = line.tasks if isinstance(line.tasks, list) else []
                agents = [one for one in tasks if isinstance(one, dict) and "agent" in str(one.get("task_type"))]
                return [AgentsChanged(len(agents))]
            case "task_started" | "task_notification":
                return self._task(line)
            case "local_command_output" if isinstance(line.content, str):
                return [_chunk("text", line.content, "", None)]
            case subtype:
                if subtype not in out.QUIET_SUBTYPES:
                    self.drift.note(f"system/{subtype}")
                return []

    def _task(self, line: out.SystemLine) -> list[Signal]:
        """A sub-agent in the background: its call stays open until it has ended, so that what it says has a parent."""
        call_id = line.tool_use_id or ""
        if line.subtype == "task_started":
            if call_id and line.is_backgrounded is True and "agent" in str(line.task_type):
                self._background.add(call_id)
            return []
        if call_id not in self._background:
            return []
        self._background.discard(call_id)
        status = "completed" if line.status == "completed" else "failed"
        content = result_content(line.summary)
        return [updates.ToolCallUpdate(tool_call_id=call_id, status=status, content=content)]

    def _moded(self, mode: str | None) -> list[Signal]:
        if not mode or mode == self._mode:
            return []
        self._mode = mode
        return [updates.CurrentModeUpdate(current_mode_id=mode)]

    def _servers(self, servers: Any) -> list[Signal]:
        """Say once which MCP servers do not work."""
        found: list[Signal] = []
        for server in servers if isinstance(servers, list) else ():
            name, status = (server.get("name"), server.get("status")) if isinstance(server, dict) else (None, None)
            if isinstance(name, str) and status in ("failed", "needs-auth") and name not in self._failed_servers:
                self._failed_servers.add(name)
                why = "needs a login" if status == "needs-auth" else "did not start"
                found.append(notice("warning", f"The MCP server {name!r} {why}"))
        return found

    def _asked(self, line: out.ControlRequestLine) -> Signal:
        asked = line.request
        if asked.subtype != "can_use_tool":
            return HostAsked(line.request_id, asked.subtype)
        raw = msgspec.Raw(b"{}") if isinstance(asked.input, msgspec.UnsetType) else asked.input
        view = tool_view(asked.tool_name, raw, self._old_text)
        suggestions = asked.permission_suggestions if isinstance(asked.permission_suggestions, list) else []
        return PermissionAsked(
            request_id=line.request_id,
            tool_name=asked.tool_name,
            tool_call=updates.ToolCallFields(
                tool_call_id=asked.tool_use_id or line.request_id,
                title=view.title,
                name=asked.tool_name,
                kind=view.kind,
                content=view.diffs or None,
                locations=view.locations or None,
                raw_input=raw,
            ),
            raw_input=raw,
            suggestions=tuple(one for one in suggestions if isinstance(one, dict)),
        )

    def _spent(self, message_id: str, model: Any, usage: Any) -> list[Signal]:
        """What the turn has cost by now, when that has changed."""
        if (running := self._running) is None:
            return []
        before = (running.usd, running.unpriced)
        running.note(message_id, model if isinstance(model, str) else "", usage)
        if (running.usd, running.unpriced) == before:
            return []
        cost = updates.Cost(amount=self.cost_usd + running.usd, currency="USD") if running.usd else None
        meta = {UNPRICED: running.unpriced} if running.unpriced else None
        return [updates.UsageUpdate(used=self._context_tokens, size=running.context_window, cost=cost, meta=meta)]

    def _result(self, line: out.ResultLine) -> list[Signal]:
        if self._running is not None:
            self._running.clear()
        self._streams.clear()
        self._diffs.clear()
        self._hidden.clear()
        total, since = amount(line.total_cost_usd), cost_since_last(line)
        self.cost_usd += max(total - self._total_usd, 0.0) if since is None else since
        self._total_usd = total
        signals: list[Signal] = []
        if line.structured_output is not None:
            signals.append(_chunk("text", msgspec.json.encode(line.structured_output).decode(), "", None))
        if self._context_tokens or self.cost_usd:
            cost = updates.Cost(amount=self.cost_usd, currency="USD")
            signals.append(updates.UsageUpdate(used=self._context_tokens, size=context_window(line), cost=cost))
        return [*signals, turn_result(line)]


def notice(severity: str, title: str) -> updates.NoticeUpdate:
    return updates.NoticeUpdate(severity=severity, title=one_line(title, MAX_NOTICE_LENGTH))


def _chunk(kind: str, text: str, message_id: str, parent: str | None) -> updates.SessionUpdate:
    chunk = updates.AgentThoughtChunk if kind == "thinking" else updates.AgentMessageChunk
    return chunk(content=TextBlock(text=text), message_id=message_id or None, meta=_meta(parent))


def _meta(parent: str | None, name: str = "") -> dict[str, Any] | None:
    """The call around it, as the mapper of facts reads it."""
    if parent is None and not name:
        return None
    said = {"parentToolUseId": parent} if parent is not None else {}
    return {"claudeCode": said | ({"toolName": name} if name else {})}


def _raw(value: Any) -> msgspec.Raw | msgspec.UnsetType:
    return msgspec.Raw(msgspec.json.encode(value)) if isinstance(value, dict | list) else msgspec.UNSET


def _rate_limit(info: Any) -> list[Signal]:
    status = info.get("status") if isinstance(info, dict) else None
    if status == "rejected":
        return [notice("warning", "Your limit for this model is reached")]
    return [notice("info", "Your limit for this model is nearly reached")] if status == "allowed_warning" else []
