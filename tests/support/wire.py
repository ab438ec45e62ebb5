"""Helpers for protocol tests: envelopes as plain dicts, written and read the way a stranger's client would."""

from __future__ import annotations

import time
import uuid
from typing import Any, TypeVar

import msgspec

from makai.core.messages import AssistantMessage
from makai.core.stream_events import StreamEvent
from makai.protocols.makai.commands import Command, OpenStream
from makai.protocols.makai.server import ConnectionLimits, ServerConnection

NOW_MS = 1_760_000_000_000
JSON = dict[str, Any]


def new_id() -> str:
    return str(uuid.uuid4())


def envelope(kind: str, payload: JSON | None = None, **fields: Any) -> JSON:
    """A valid envelope of a new stream; `fields` replace or add keys, None removes one."""
    value: JSON = {
        "type": kind,
        "stream_id": new_id(),
        "message_id": new_id(),
        "sequence": 1,
        "timestamp": NOW_MS,
        "version": 1,
        "payload": {} if payload is None else payload,
    }
    value.update(fields)
    return {key: item for key, item in value.items() if item is not None}


def ask(kind: str = "stream_request", **fields: Any) -> JSON:
    payload = {"model_ref": "scripted/scripted@echo", "context": {"messages": [{"role": "user", "content": "Hi"}]}}
    return {key: item for key, item in (envelope(kind, payload) | fields).items() if item is not None}


def encode(value: Any) -> bytes:
    return value if isinstance(value, bytes) else msgspec.json.encode(value)


def code_of(frames: list[JSON]) -> str:
    """The error code of the one nack that came back."""
    (nack,) = frames
    assert nack["type"] == "nack"
    return str(nack["payload"]["error_code"])


CommandT = TypeVar("CommandT")


class Server:
    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.connection = ServerConnection(limits, clock=lambda: NOW_MS)
        self.commands: list[Command] = []

    def say(self, value: Any, now: float | None = None) -> list[JSON]:
        self.commands = self.connection.receive(encode(value), time.monotonic() if now is None else now)
        return self.heard()

    def command(self, kind: type[CommandT]) -> CommandT:
        """The one command that the last frame led to."""
        (command,) = self.commands
        assert isinstance(command, kind)
        return command

    def heard(self) -> list[JSON]:
        return [msgspec.json.decode(frame) for frame in self.connection.take()]

    def open(self, request: JSON | None = None) -> str:
        """A stream that was accepted; its id. The ack is read."""
        assert self.say(request or ask()) == []
        stream_id = self.command(OpenStream).stream_id
        self.connection.accept(stream_id)
        assert [frame["type"] for frame in self.heard()] == ["ack"]
        return stream_id

    def play(self, stream_id: str, events: list[StreamEvent]) -> list[JSON]:
        """Feed events of an accepted stream; the frames they became."""
        for event in events:
            self.connection.event(stream_id, event)
        return self.heard()


EMPTY = AssistantMessage(content=(), provider="acme", api="x", model="m", timestamp=NOW_MS)
