"""One tool call as a client sees it: announced once, then updated until it is completed or failed.

A status only moves forward, and a final one is the last (ACP-UPD-005). An update carries only what changed, but its
`content` replaces all content before (ACP-UPD-004), so the pieces that make it up are kept here while the call is open.

The output of a command is shown in one of three ways: as text; in a terminal of the client that the command itself runs
in (`terminal/create`); or, where the client shows the output of commands that run elsewhere, in a terminal that is only
displayed (`_meta.terminal_info`, `terminal_output`, `terminal_exit`: an extension that Zed introduced).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, get_args

import msgspec

from makai.core import session_events as ev
from makai.core.content import SessionPart, words_of
from makai.core.sanitize import sanitize
from makai.protocols.acp.prompts import content_blocks
from makai.wire.acp.common import TextBlock
from makai.wire.acp.updates import (
    ContentItem,
    DiffItem,
    Location,
    NewToolCall,
    TerminalItem,
    ToolCallContent,
    ToolCallStatus,
    ToolCallUpdate,
    ToolKind,
)

MAX_PROGRESS: Final = 8_000
"""Characters of a running tool's output that are shown as text: every update repeats them. The result has all of it."""
_KINDS: Final[frozenset[str]] = frozenset(get_args(ToolKind))


def tool_kind(kind: str) -> str:
    """One of the protocol's kinds (ACP-UPD-006)."""
    return kind if kind in _KINDS else "other"


def diff_items(diffs: Iterable[ev.FileDiff]) -> tuple[DiffItem, ...]:
    return tuple(DiffItem(path=diff.path, old_text=diff.old_text, new_text=diff.new_text) for diff in diffs)


def location_items(places: Iterable[ev.FilePlace]) -> tuple[Location, ...]:
    return tuple(
        Location(path=place.path, line=place.line if place.line is None or place.line >= 0 else None)
        for place in places
    )


def raw_json(text: str | None) -> msgspec.Raw | msgspec.UnsetType:
    """JSON text on one line; UNSET when it is none, as what a model wrote may be, or null (ACP-INIT-009)."""
    if text is None or text.strip() == "null":
        return msgspec.UNSET
    try:
        return msgspec.Raw(msgspec.json.encode(sanitize(msgspec.json.decode(text))))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError, OverflowError):
        return msgspec.UNSET


class TrackedCall:
    """An announced call that has no final status yet."""

    def __init__(self, call: ev.ToolCalled, *, call_id: str = "", in_terminal: bool = False) -> None:
        """`call_id` is the id that the client sees, when that is another one. With `in_terminal` the output of a
        command is shown in a terminal that is only displayed."""
        self._id = call_id or call.call_id
        self._call = call
        self._status: ToolCallStatus = "pending"
        self._parts: tuple[SessionPart, ...] = ()
        self._diffs: tuple[ev.FileDiff, ...] = ()
        self._progress = ""
        self._has_raw_output = False
        self._is_displayed = in_terminal and call.kind == "execute"
        """Whether the content is a terminal that is only displayed."""
        self._has_output = False
        self._client_terminal = ""

    def announcement(self) -> NewToolCall:
        call = self._call
        meta: dict[str, Any] = {}
        if call.parent_call_id:
            meta["makai"] = {"parentToolCallId": call.parent_call_id}
        if self._is_displayed:
            folder = {"cwd": call.locations[0].path} if call.locations else {}
            meta["terminal_info"] = {"terminal_id": self._id, **folder}
        return NewToolCall(
            tool_call_id=self._id,
            title=call.title or call.name or "Tool call",
            name=call.name or None,
            kind=tool_kind(call.kind),
            status="pending",
            content=self._content() or None,
            locations=location_items(call.locations) or None,
            raw_input=raw_json(call.raw_input_json or call.arguments_json),
            meta=meta or None,
        )

    def started(self) -> list[ToolCallUpdate]:
        return [] if (status := self._forward()) is None else [self._update(**self._begun(status))]

    def progressed(self, text: str) -> list[ToolCallUpdate]:
        status = self._forward()
        if self._client_terminal or not text:
            return [] if status is None else [self._update(**self._begun(status))]
        if self._is_displayed:
            return [self._update(**self._begun(status), meta=self._output(text))]
        self._progress = (self._progress + text)[-MAX_PROGRESS:]
        return [self._update(status=status, content=self._content())]

    def updated(self, event: ev.ToolUpdated) -> list[ToolCallUpdate]:
        """What an external agent says. Its final status waits for `finished`, which has the result."""
        fields: dict[str, Any] = {"title": event.title or None, "kind": tool_kind(event.kind) if event.kind else None}
        if event.status is not None and event.status != "pending":
            fields |= self._begun(self._forward())
        if event.locations is not None:
            fields["locations"] = location_items(event.locations)
        if event.content is not None:
            self._parts, self._progress, self._is_displayed = event.content, "", False
        if event.diffs is not None:
            self._diffs = event.diffs
        if event.content is not None or event.diffs is not None:
            fields["content"] = self._content()
        if (raw := raw_json(event.raw_output_json)) is not msgspec.UNSET:
            fields["raw_output"], self._has_raw_output = raw, True
        said = any(value is not None for value in fields.values())
        return [self._update(**fields)] if said else []

    def opened_terminal(self, terminal_id: str) -> list[ToolCallUpdate]:
        """The command runs in this terminal of the client, which shows its output (ACP-TERM-009)."""
        self._client_terminal, self._is_displayed = terminal_id, False
        return [self._update(status=self._forward(), content=self._content())]

    def finished(self, event: ev.ToolFinished) -> list[ToolCallUpdate]:
        """The last update of the call."""
        has_run = self._status == "in_progress"
        self._status = "failed" if event.is_error else "completed"
        self._diffs = event.diffs or self._diffs
        meta: dict[str, Any] = {}
        if self._is_displayed:
            if not has_run:
                self._is_displayed = False  # what was refused has no output, but a reason
            elif event.interrupted or not self._has_output:
                meta = self._output(words_of(event.content))
            code = event.exit_code if event.exit_code is not None and event.exit_code >= 0 else None
            meta["terminal_exit"] = {"terminal_id": self._id, "exit_code": code, "signal": None}
        self._parts, self._progress = event.content or self._parts, ""
        return [
            self._update(
                status=self._status,
                content=self._content() or None,
                raw_output=msgspec.UNSET if self._has_raw_output else _raw_output(event),
                meta=meta or None,
            )
        ]

    def abandoned(self) -> list[ToolCallUpdate]:
        """The run is over and the log has no end of the call."""
        return self.finished(ev.ToolFinished(call_id=self._id, content=(), is_error=True, interrupted=True))

    def _forward(self) -> ToolCallStatus | None:
        """The status when it becomes "in_progress" now."""
        if self._status != "pending":
            return None
        self._status = "in_progress"
        return self._status

    def _begun(self, status: ToolCallStatus | None) -> dict[str, Any]:
        """The fields of an update with this status. When the command begins, they have the displayed terminal again:
        the content of a question has replaced it."""
        return {"status": status, "content": self._content() if status is not None and self._is_displayed else None}

    def _content(self) -> tuple[ToolCallContent, ...]:
        diffs = diff_items(self._diffs)
        if terminal_id := self._client_terminal or (self._id if self._is_displayed else ""):
            return (TerminalItem(terminal_id=terminal_id), *diffs)
        blocks = content_blocks(self._parts)
        if self._progress:
            blocks.append(TextBlock(text=self._progress))
        return (*(ContentItem(content=block) for block in blocks), *diffs)

    def _output(self, text: str) -> dict[str, Any]:
        self._has_output = True
        return {"terminal_output": {"terminal_id": self._id, "data": text}}

    def _update(self, **fields: Any) -> ToolCallUpdate:
        return ToolCallUpdate(tool_call_id=self._id, **fields)


def _raw_output(event: ev.ToolFinished) -> msgspec.Raw | msgspec.UnsetType:
    """What the tool says for clients, else its text, with the exit code of a command."""
    if (details := raw_json(event.details_json)) is not msgspec.UNSET:
        return details
    if not event.content:
        return msgspec.UNSET
    code = {} if event.exit_code is None else {"exitCode": event.exit_code}
    return msgspec.Raw(msgspec.json.encode({"output": words_of(event.content), **code}))
