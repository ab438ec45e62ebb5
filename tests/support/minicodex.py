"""A session with MiniCodex clients and no server: the engine decides, a view projects, connections speak."""

from __future__ import annotations

from itertools import count
from typing import Any

import jsonschema_rs
import msgspec

from makai.core.errors import SessionRefused
from makai.core.session_events import Logged
from makai.protocols.minicodex.commands import Ask, Open, Request, TakeSnapshot
from makai.protocols.minicodex.pages import RunLookup, TranscriptReader, Window
from makai.protocols.minicodex.server import DEFAULT_LIMITS, Limits, MinicodexConnection
from makai.protocols.minicodex.view import SessionView, transcript_reader
from makai.sessions.requests import Receipt
from makai.sessions.state import fold
from support.session_trials import Trial
from tools.schema import minicodex_client_schema, minicodex_server_schema

JSON = dict[str, Any]
SESSION = "s-1"
BOTH = ("streaming", "makai.1")


def as_the_document(schema: JSON) -> JSON:
    """A schema without everything that needs a capability, as the schema itself says."""
    gone = {name for name, part in schema["$defs"].items() if "x-capability" in part}
    kept: JSON = msgspec.json.decode(msgspec.json.encode(schema))
    for name in gone:
        del kept["$defs"][name]
    for part in kept["$defs"].values():
        for field in [name for name, kind in part["properties"].items() if "x-capability" in kind]:
            del part["properties"][field]
    refs = [f"#/$defs/{name}" for name in gone]
    document: JSON = _without(kept, refs)
    return document


def _without(value: Any, refs: list[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(inner, refs) for key, inner in value.items() if inner not in refs}
    if isinstance(value, list):
        return [_without(inner, refs) for inner in value if not (isinstance(inner, dict) and inner.get("$ref") in refs)]
    return value


ANY_COMMAND = jsonschema_rs.validator_for(minicodex_client_schema())
ANY_FRAME = jsonschema_rs.validator_for(minicodex_server_schema())
DOCUMENT_FRAME = jsonschema_rs.validator_for(as_the_document(minicodex_server_schema()))


class Room:
    def __init__(self, trial: Trial | None = None, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.trial = Trial().create() if trial is None else trial
        self.limits = limits
        self.view = self.opened_view()
        self.ids = count(1)

    def opened_view(self) -> SessionView:
        """The view of someone who has only the log."""
        state = fold(self.trial.log)
        return SessionView(SESSION, state, self.read(transcript_reader(state)))

    def read(self, reader: TranscriptReader) -> TranscriptReader:
        while (window := reader.window) is not None:
            reader.take(self.events(window))
        for window in reader.broken_turns():
            reader.mend(window, self.events(window))
        return reader

    def events(self, window: Window) -> list[Logged]:
        found = self.trial.log[window.after : window.through]
        return [logged for logged in found if window.deltas or logged.event.__struct_config__.tag not in DELTA_TAGS]

    def publish(self) -> None:
        for logged in self.trial.log[self.view.last_event_id :]:
            self.view.take(logged)

    def restart(self) -> None:
        """The server ends and comes back: clients and views are gone."""
        self.trial.restart()
        self.view = self.opened_view()

    def connect(self, *capabilities: str, session_id: str | None = SESSION) -> Client:
        return Client(self, capabilities, session_id)

    def with_view(self, view: SessionView) -> Room:
        other = Room(self.trial, limits=self.limits)
        other.view = view
        return other

    def asked(self, client: Client, *call_ids: str) -> list[JSON]:
        """The client says go, and these calls wait for a decision; what it heard of them."""
        client.say("send", text="go")
        self.trial.call(*call_ids, ask=True)
        return client.hear()

    def client(self, *capabilities: str) -> Client:
        """A client that said hello and has its snapshot."""
        client = self.connect(*capabilities)
        client.hello()
        return client


DELTA_TAGS = ("text_delta", "thinking_delta")


class Client:
    def __init__(self, room: Room, capabilities: tuple[str, ...], session_id: str | None) -> None:
        self.room = room
        self.names = capabilities
        ids: JSON = {"session_id": session_id, "new_id": lambda: f"input-{next(room.ids)}"}
        self.connection = MinicodexConnection(**ids, client_name="web", limits=room.limits)

    def say(self, kind: str, **fields: Any) -> list[JSON]:
        """Send a command and hear everything there is to hear."""
        return self.say_raw(msgspec.json.encode({"type": kind, **fields}))

    def say_raw(self, data: str | bytes) -> list[JSON]:
        for request in self.connection.receive(data):
            self.carry_out(request)
        return self.hear()

    def carry_out(self, request: Request) -> None:
        room = self.room
        match request:
            case Open():
                if request.session_id not in (None, SESSION):
                    self.connection.refused(request, SessionRefused("UNKNOWN_SESSION", "There is no such session."))
                    return
                room.publish()
                self.connection.opened(request, room.view)
            case Ask():
                self.ask(request)
            case TakeSnapshot():
                room.publish()
                assert room.view.last_event_id >= request.at_least
                self.connection.show(request)

    def ask(self, request: Ask) -> None:
        trial = self.room.trial
        try:
            trial.do(msgspec.structs.replace(request.command, now=trial.now))
        except SessionRefused as refused:
            self.connection.refused(request, refused)
            return
        self.room.publish()  # the events may well be quicker than the answer
        assert self.connection.take() == []
        self.connection.answered(request, Receipt(last=trial.state.last_event_id))

    def hello(self) -> list[JSON]:
        return self.say("hello", v="1.0.0", client_capabilities=list(self.names))

    def hear(self) -> list[JSON]:
        """Everything there is to hear, checked against the schema of what this client may see."""
        self.room.publish()
        heard: list[JSON] = []
        while True:
            if self.connection.is_behind:
                self.read_log()
            frames = self.connection.take()
            if not frames and not self.connection.is_behind:
                break
            heard += [msgspec.json.decode(frame) for frame in frames]
        for frame in heard:
            check(frame, self.names)
        return heard

    def read_log(self) -> None:
        lookup = self.connection.lookup()
        if lookup is not None:
            find(self.room, lookup)
            self.connection.begin_replay(lookup)
        cursor = self.connection.cursor or 0
        self.connection.replay(self.room.trial.log[cursor : cursor + 7])


def find(room: Room, lookup: RunLookup) -> None:
    while (window := lookup.window) is not None:
        lookup.take(room.events(window))


def check(frame: JSON, capabilities: tuple[str, ...]) -> None:
    """The frame is one that a client of these capabilities may see."""
    ANY_FRAME.validate(frame)
    is_delta = frame["type"] in ("assistant_text_delta", "reasoning_delta")
    assert not is_delta or "streaming" in capabilities
    if "makai.1" not in capabilities:
        assert "content_index" not in frame
        if not is_delta:
            DOCUMENT_FRAME.validate(frame)


def types(frames: list[JSON]) -> list[str]:
    return [
        f"run_status {frame['run_state']['status']}" if frame["type"] == "run_status" else frame["type"]
        for frame in frames
    ]


def events_of(frames: list[JSON]) -> list[JSON]:
    return [frame for frame in frames if "event_id" in frame and frame["type"] != "snapshot"]


def of(frames: list[JSON], kind: str) -> JSON:
    (found,) = [frame for frame in frames if frame["type"] == kind]
    return found
