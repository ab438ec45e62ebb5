"""Turns what an agent says in a run into facts of the session. Sans-IO.

Chunks become deltas, and a whole block when something else follows (ACP-CLIENT-004). An agent announces calls in many
ways: with or without its arguments, by a permission request, by an update of a call that it never announced. A call
that is announced without arguments is held back until more is known, because the arguments of a fact never change and
a question is about exactly them. Every call ends, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from makai.core import session_events as ev
from makai.core.content import SessionPart, Text, words_of
from makai.core.usage import Usage
from makai.harness.acp.content import part_of, raw_text
from makai.wire.acp import updates as wire
from makai.wire.acp.common import TextBlock

T = TypeVar("T")

MAX_BLOCK_LENGTH: Final = 1_000_000
"""A longer block is logged as several."""
_LEVELS: Final[dict[str, Literal["info", "warning", "error"]]] = {"warning": "warning", "error": "error"}

TURNS: Final = "makai.turns"
"""In `_meta` of the answer to a prompt: how many turns of the model it took, for drivers that know it."""
UNPRICED: Final = "makai.unpricedModel"
"""In `_meta` of a usage update: the model whose price a driver does not know, so that it cannot say the cost."""

ReportedStatus: TypeAlias = Literal["held", "called", "asked", "denied", "started"]


class ReportedCall:
    """A call that the agent reported and that has not ended."""

    def __init__(self, fields: wire.ToolCallFields) -> None:
        self.fields = fields
        self.call_id = ""
        self.status: ReportedStatus = "held"
        self.logged: ev.ToolCalled | None = None

    def update(self, fields: wire.ToolCallFields) -> None:
        """Replace the fields that are given (ACP-CLIENT-005)."""
        given = {
            name: value
            for name in ("title", "name", "kind", "status", "content", "locations", "raw_input", "raw_output", "meta")
            if (value := getattr(fields, name)) not in (None, msgspec.UNSET)
        }
        self.fields = msgspec.structs.replace(self.fields, **given)

    @property
    def has_ended(self) -> bool:
        return self.fields.status in ("completed", "failed")

    @property
    def says_more(self) -> bool:
        """Whether it is worth logging: what follows does not change the arguments any more."""
        raw = raw_text(self.fields.raw_input)
        return raw not in (None, "{}") or self.fields.status not in (None, "pending") or bool(self.fields.content)

    def diffs(self) -> tuple[ev.FileDiff, ...]:
        return tuple(
            ev.FileDiff(path=item.path, old_text=item.old_text, new_text=item.new_text)
            for item in self.fields.content or ()
            if isinstance(item, wire.DiffItem)
        )


class AskedCall(NamedTuple):
    """A question of the agent about a call, and the facts that come before it."""

    facts: list[ev.SessionEvent]
    call: ReportedCall
    logged: ev.ToolCalled


class FactMapper:
    """The facts of one run."""

    def __init__(
        self,
        call_id: Callable[[str], str],
        *,
        usage_before: Usage | None = None,
        cost_before: float = 0.0,
        terminal_text: Callable[[str], str] = lambda terminal_id: "",
    ) -> None:
        """`usage_before` is that of makai's session, `cost_before` what the agent's own had cost before this run.
        `terminal_text` is what a terminal that makai runs for the agent has shown so far."""
        self._fresh_call_id = call_id
        self._usage_before = usage_before or Usage()
        self._cost_before = cost_before
        self._terminal_text = terminal_text
        self._calls: dict[str, ReportedCall] = {}
        """Calls that have not ended, by the agent's id."""
        self._over: set[str] = set()
        self._block: tuple[type, str | None, str] | None = None
        self._words: list[str] = []
        self._length = 0
        self._index = 0
        self._summary: list[str] = []
        self.unpriced = ""
        """The model of the run whose price is not known, if there is one."""
        self.cost_usd: float | None = None
        """What the agent said last about the cost of its session."""

    def facts(self, update: wire.SessionUpdate) -> list[ev.SessionEvent]:
        match update:
            case wire.AgentMessageChunk() | wire.AgentThoughtChunk():
                return self._chunk(update)
            case wire.NewToolCall() | wire.ToolCallUpdate():
                return self._tool_call(update)
            case wire.PlanUpdate(entries=entries):
                plan = (msgspec.to_builtins(entry) for entry in entries)
                return [ev.PlanUpdated(entries=msgspec.convert(tuple(plan), tuple[ev.PlanEntry, ...]))]
            case wire.UsageUpdate(used=used, size=size):
                self.unpriced = str((update.meta or {}).get(UNPRICED, self.unpriced))
                self._note_cost(update.usd)
                total = self._usage_before + Usage(cost_usd=self.run_cost_usd)
                return [ev.UsageReported(total=total, context_tokens=used, context_window=size)]
            case wire.NoticeUpdate(severity=severity, title=title, description=description):
                message = f"{title}: {description}" if description else title
                return [ev.Notice(level=_LEVELS.get(severity, "info"), code="agent_notice", message=message)]
            case wire.CompactionSummaryChunk(content=content):
                self._summary.append(words_of((part_of(content),)))
                return []
            case wire.CompactionUpdate():
                return self._compaction(update)
            case _:
                return []  # what was sent, or about the session rather than the run

    def _note_cost(self, usd: float | None) -> None:
        """An agent that found its session again may count from nothing: its first report is then below what the
        session had cost, and later ones are not compared with that any more."""
        if usd is not None:
            self._cost_before = self._cost_before if usd >= self._cost_before else 0.0
            self.cost_usd = usd

    @property
    def run_cost_usd(self) -> float | None:
        """What the run has cost so far."""
        return None if self.cost_usd is None else self.cost_usd - self._cost_before

    def call_of(self, tool_call_id: str) -> ReportedCall | None:
        """A call that has not ended, by the agent's id."""
        return self._calls.get(tool_call_id)

    def question(self, fields: wire.ToolCallFields) -> AskedCall:
        """The call that the agent asks about. One that was asked about before, or whose logged arguments are not those
        that the agent asks about now, is logged as another call."""
        facts: list[ev.SessionEvent] = []
        call = self._calls.get(fields.tool_call_id)
        if call is not None and call.logged is not None:
            before = call.fields
            call.update(fields)
            if call.status != "called" or not _same_input(fields, call.logged):
                facts.append(self._finished(call, "The agent asks about this call once more.", is_error=False))
                call = ReportedCall(msgspec.structs.replace(call.fields, status=before.status))
        elif call is not None:
            call.update(fields)
        else:
            call = ReportedCall(fields)
        self._calls[fields.tool_call_id] = call
        if call.logged is None:
            facts += self._log(call)
        elif (updated := _updated(call.call_id, fields)) is not None:
            facts.append(updated)
        assert call.logged is not None
        return AskedCall(facts, call, call.logged)

    def decided(self, call: ReportedCall, approved: bool) -> list[ev.SessionEvent]:
        """A question was answered. What the agent said about the call meanwhile counts now."""
        if call.status != "asked" or self._calls.get(call.fields.tool_call_id) is not call:
            return []
        facts: list[ev.SessionEvent] = []
        call.status = "started" if approved else "denied"
        if approved:  # the agent runs it now, whether or not it says so
            facts.append(ev.ToolStarted(call_id=call.call_id))
        return [*facts, self._over_now(call)] if call.has_ended else facts

    def end(self) -> list[ev.SessionEvent]:
        """The end of the agent's answer: no block and no call stays open."""
        facts = self.end_block()
        for call in list(self._calls.values()):
            if self._calls.get(call.fields.tool_call_id) is not call or call.status == "asked":
                continue  # it ended with the call around it; one with an open question ends with the run
            if call.status == "held":
                facts += self._log(call)
            facts.append(self._finished(call, "The agent did not say how this call ended.", is_error=False))
        return facts

    def _chunk(self, update: wire.AgentMessageChunk | wire.AgentThoughtChunk) -> list[ev.SessionEvent]:
        content = update.content
        text = content.text if isinstance(content, TextBlock) else words_of((part_of(content),))
        if not text:
            return []
        block = (type(update), update.message_id, self._parent(update.meta))
        facts = self.end_block() if self._block != block or self._length > MAX_BLOCK_LENGTH else []
        if self._block is None:
            for call in self._calls.values():
                facts += self._log(call) if call.status == "held" else []
        self._block = block
        self._words.append(text)
        self._length += len(text)
        delta = ev.AssistantTextDelta if isinstance(update, wire.AgentMessageChunk) else ev.ReasoningDelta
        return [*facts, delta(content_index=self._index, delta=text, parent_call_id=block[2])]

    def end_block(self) -> list[ev.SessionEvent]:
        """The whole text of the open block: something else follows."""
        if self._block is None:
            return []
        kind, _, parent = self._block
        whole = ev.AssistantText if kind is wire.AgentMessageChunk else ev.Reasoning
        fact = whole(content_index=self._index, text="".join(self._words), parent_call_id=self._open_parent(parent))
        self._block, self._words, self._length = None, [], 0
        self._index += 1
        return [fact]

    def _tool_call(self, fields: wire.NewToolCall | wire.ToolCallUpdate) -> list[ev.SessionEvent]:
        call = self._calls.get(fields.tool_call_id)
        if call is None:
            if fields.tool_call_id in self._over and isinstance(fields, wire.ToolCallUpdate):
                return []  # a final status never changes
            call = self._calls[fields.tool_call_id] = ReportedCall(fields)
        else:
            call.update(fields)
        facts = self.end_block()
        if call.status == "held":
            facts += self._log(call) if call.says_more else []
        elif not call.has_ended and (updated := _updated(call.call_id, fields)) is not None:
            facts.append(updated)
        if call.status in ("held", "asked"):
            return facts
        facts += self._started(call)
        return [*facts, self._over_now(call)] if call.has_ended else facts

    def _started(self, call: ReportedCall) -> list[ev.SessionEvent]:
        """A denied call is never logged as started, whatever the agent does with it."""
        if call.status == "called" and call.fields.status in ("in_progress", "completed"):
            call.status = "started"
            return [ev.ToolStarted(call_id=call.call_id)]
        return []

    def _log(self, call: ReportedCall) -> list[ev.SessionEvent]:
        """Log a call that was held back or is new."""
        fields = call.fields
        facts = self.end_block()
        raw = raw_text(fields.raw_input)
        is_object = raw is not None and raw.startswith("{")
        parent = self._parent(fields.meta)  # while the call is held: one that names itself has none
        call.call_id = self._fresh_call_id(fields.tool_call_id)
        call.status = "called"
        call.logged = ev.ToolCalled(
            call_id=call.call_id,
            name=fields.name or _claude(fields.meta, "toolName") or fields.kind or "tool",
            arguments_json=raw if raw is not None and is_object else "{}",
            raw_input_json=None if is_object else raw,
            content_index=self._index,
            vendor_call_id=fields.tool_call_id,
            kind=fields.kind or "other",
            title=fields.title or "",
            locations=_places(fields.locations) or (),
            parent_call_id=parent,
        )
        self._index += 1
        self._over.discard(fields.tool_call_id)
        return [*facts, call.logged]

    def _over_now(self, call: ReportedCall) -> ev.ToolFinished:
        return self._finished(call, "", is_error=call.fields.status == "failed")

    def _finished(self, call: ReportedCall, why: str, *, is_error: bool) -> ev.ToolFinished:
        fields = call.fields
        self._forget(call)
        parts, raw = self._parts(fields.content), raw_text(fields.raw_output)
        details = raw if parts and raw is not None and not raw.startswith('"') else None
        if not parts and raw is not None:
            parts = (Text(text=msgspec.json.decode(raw, type=str) if raw.startswith('"') else raw),)
        if why and not call.has_ended:
            parts = (*parts, Text(text=why))
        return ev.ToolFinished(
            call_id=call.call_id, content=parts, is_error=is_error, diffs=call.diffs(), details_json=details
        )

    def _forget(self, call: ReportedCall) -> None:
        """A sub-agent ends with the call in which it runs, and so do its own calls."""
        self._calls.pop(call.fields.tool_call_id, None)
        self._over.add(call.fields.tool_call_id)
        for other in list(self._calls.values()):
            if other.logged is not None and other.logged.parent_call_id == call.call_id:
                self._forget(other)

    def _parts(self, content: tuple[wire.ToolCallContent, ...] | None) -> tuple[SessionPart, ...]:
        parts: list[SessionPart] = []
        for item in content or ():
            if isinstance(item, wire.ContentItem):
                parts.append(part_of(item.content))
            elif isinstance(item, wire.TerminalItem) and (text := self._terminal_text(item.terminal_id)):
                parts.append(Text(text=text))
        return tuple(parts)

    def _compaction(self, update: wire.CompactionUpdate) -> list[ev.SessionEvent]:
        if update.status == "in_progress":
            self._summary.clear()
            return []
        if update.status != "completed":
            why = f": {update.error}" if update.error else ""
            message = f"The agent could not summarise its conversation{why}."
            return [ev.Notice(level="warning", code="compaction_failed", message=message)]
        if update.summary:
            self._summary = [words_of((part_of(block),)) for block in update.summary]
        words = "".join(self._summary).strip()
        message = "The agent summarised its conversation" + (f":\n{words}" if words else ".")
        return [ev.Notice(level="info", code="compacted", message=message)]

    def _parent(self, meta: dict[str, Any] | None) -> str:
        """The open call in which a sub-agent says it, as Claude Code tells. A call's own id may be empty."""
        named = _claude(meta, "parentToolUseId")
        parent = self._calls.get(named) if named else None
        return parent.call_id if parent is not None and parent.status != "held" else ""

    def _open_parent(self, call_id: str) -> str:
        return call_id if any(call.call_id == call_id for call in self._calls.values()) else ""


def _updated(call_id: str, fields: wire.ToolCallFields) -> ev.ToolUpdated | None:
    """What a call's update says; None when that is nothing for people."""
    content = fields.content
    blocks = [item.content for item in content or () if isinstance(item, wire.ContentItem)]
    updated = ev.ToolUpdated(
        call_id=call_id,
        title=fields.title,
        kind=fields.kind,
        status=_STATUSES.get(fields.status or ""),
        locations=_places(fields.locations),
        content=None if content is None else tuple(map(part_of, blocks)),
        diffs=None if content is None else ReportedCall(fields).diffs(),
        raw_output_json=raw_text(fields.raw_output),
    )
    return None if updated == ev.ToolUpdated(call_id=call_id) else updated


_STATUSES: Final[dict[str, Literal["pending", "in_progress", "completed", "failed"]]] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
    "failed": "failed",
}


def _places(locations: tuple[wire.Location, ...] | None) -> tuple[ev.FilePlace, ...] | None:
    return None if locations is None else tuple(ev.FilePlace(place.path, place.line) for place in locations)


def _same_input(fields: wire.ToolCallFields, logged: ev.ToolCalled) -> bool:
    asked = raw_text(fields.raw_input)
    known = logged.raw_input_json or logged.arguments_json
    return asked is None or msgspec.json.decode(asked) == msgspec.json.decode(known)


def _claude(meta: dict[str, Any] | None, name: str) -> str:
    """What Claude Code's adapter says beyond the protocol; `_meta` never replaces a parameter (ACP-EXT-003)."""
    said = (meta or {}).get("claudeCode")
    value = said.get(name) if isinstance(said, dict) else None
    return value if isinstance(value, str) else ""
