"""A client's view of `session/update`: every update is held to the schema and applied as the protocol wants it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from makai.core import session_events as ev
from makai.protocols.acp.projection import UpdateProjection
from makai.wire.acp.common import Empty
from makai.wire.acp.connecting import AcpClientCapabilities, ClientSessionCapabilities
from makai.wire.acp.updates import SessionNotification, SessionUpdate
from support.acp_schema import FrameChecker

PLAIN = AcpClientCapabilities()
MODERN = AcpClientCapabilities(session=ClientSessionCapabilities(notices=Empty(), compaction=Empty()))
NOW_MS = 1_700_000_000_000
ORDER = ("pending", "in_progress", "completed", "failed")


def wire(update: SessionUpdate) -> dict[str, Any]:
    """The update as the client receives it; fails when the schema does not allow it."""
    params = SessionNotification(session_id="session", update=update)
    line = msgspec.json.encode({"jsonrpc": "2.0", "method": "session/update", "params": params})
    received: dict[str, Any] = FrameChecker("agent").sent(line)["params"]["update"]
    return received


def logged(*events: ev.SessionEvent, run_id: str = "run", first: int = 1) -> list[ev.Logged]:
    return [
        ev.Logged(event_id=number, ts=NOW_MS + number, event=event, run_id=run_id)
        for number, event in enumerate(events, first)
    ]


def projected(*events: ev.SessionEvent, client: AcpClientCapabilities = PLAIN, **options: bool) -> list[dict[str, Any]]:
    projection = UpdateProjection(client, **options)
    return [wire(update) for each in logged(*events) for update in projection.project(each)]


class Transcript:
    """What a person sees after a sequence of updates."""

    def __init__(self, updates: Iterable[SessionUpdate] = ()) -> None:
        self.texts: dict[tuple[str, str], str] = {}
        """Text by kind of chunk and message id, in the order of their beginnings."""
        self.calls: dict[str, dict[str, Any]] = {}
        self.plan: list[Any] = []
        self.title: str | None = None
        for update in updates:
            self.take(update)

    def take(self, update: SessionUpdate) -> None:
        fields = wire(update)
        match fields.pop("sessionUpdate"):
            case "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" as kind:
                key = kind, fields["messageId"]
                self.texts[key] = self.texts.get(key, "") + fields["content"].get("text", "")
            case "tool_call":
                assert fields["toolCallId"] not in self.calls
                self.calls[fields["toolCallId"]] = fields
            case "tool_call_update":
                self._update_call(fields)
            case "plan":
                self.plan = fields["entries"]
            case "session_info_update":
                self.title = fields.get("title", self.title)
            case _:
                pass

    def _update_call(self, fields: dict[str, Any]) -> None:
        call = self.calls[fields["toolCallId"]]
        before, after = call["status"], fields.get("status", call["status"])
        assert before not in ("completed", "failed"), "a final status is the last"
        assert ORDER.index(before) <= ORDER.index(after)
        call.update(fields)

    def said(self, kind: str) -> str:
        return "".join(text for (own, _), text in self.texts.items() if own == kind)

    def statuses(self) -> dict[str, str]:
        return {call_id: call["status"] for call_id, call in self.calls.items()}
