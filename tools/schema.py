"""Writes `schema/`: JSON Schema of the core events and of every message of every protocol.

In: the Structs of `makai.core` and the payload tables of `makai.protocols`. Out: files that are checked in, so that a
change of the wire shows up in review, and compared with the types by `tests/house/test_schema.py`. Nothing here
describes a payload's field; the types do.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast, get_args

import msgspec

from makai.core.config import Config
from makai.core.messages import Message
from makai.core.stream_events import StreamEvent
from makai.core.tool_server_ids import SERVER_ID_PATTERN
from makai.protocols.makai.agent_payloads import AGENT_CLIENT_PAYLOADS, AGENT_SERVER_PAYLOADS
from makai.protocols.makai.auth import AUTH_CLIENT_PAYLOADS, AUTH_SERVER_PAYLOADS
from makai.protocols.makai.envelope import MAX_SESSION_ID_LENGTH, SCOPE_KINDS, Fragment, HostError, Ready
from makai.protocols.makai.framing import FragmentData
from makai.protocols.makai.payloads import CLIENT_PAYLOADS, SERVER_PAYLOADS
from makai.protocols.makai.tool_payloads import TOOL_CLIENT_PAYLOADS, TOOL_SERVER_PAYLOADS
from makai.protocols.minicodex.commands import MAKAI_COMMANDS, ClientMessage
from makai.protocols.minicodex.frames import AssistantTextDeltaFrame, MakaiFrame, ReasoningDeltaFrame, ServerMessage
from makai.protocols.minicodex.vocabulary import MAKAI_1, STREAMING, published_name

ROOT = Path(__file__).resolve().parent.parent
SCHEMA_DIRECTORY = ROOT / "schema"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
REF = "#/$defs/{name}"

JSON = dict[str, Any]


def events_schema() -> JSON:
    """One JSON Schema document; `$defs/StreamEvent` and `$defs/Message` are its entry points."""
    (stream_event, message), components = msgspec.json.schema_components([StreamEvent, Message], ref_template=REF)
    return {
        "$schema": DIALECT,
        "title": "makai messages and stream events",
        "$ref": "#/$defs/StreamEvent",
        "$defs": {"StreamEvent": stream_event, "Message": message, **dict(sorted(components.items()))},
    }


def config_schema() -> JSON:
    """What may be written in config.toml, for editors that complete TOML by schema."""
    (config,), components = msgspec.json.schema_components([Config], ref_template=REF)
    return {"$schema": DIALECT, "title": "makai config.toml", **config, "$defs": dict(sorted(components.items()))}


def makai_client_schema() -> JSON:
    """Every frame a client may send: one `$defs` entry per envelope type."""
    known = CLIENT_PAYLOADS | AUTH_CLIENT_PAYLOADS | AGENT_CLIENT_PAYLOADS | TOOL_CLIENT_PAYLOADS
    payloads = {kind: (payload,) for kind, payload in known.items()}
    return _envelopes("Makai protocol: client to server", payloads, ())


def makai_server_schema() -> JSON:
    """Every frame a server may send."""
    payloads = SERVER_PAYLOADS | AUTH_SERVER_PAYLOADS | AGENT_SERVER_PAYLOADS | TOOL_SERVER_PAYLOADS
    return _envelopes("Makai protocol: server to client", payloads, (Ready, HostError))


def _envelopes(
    title: str,
    payloads: Mapping[str, tuple[type[msgspec.Struct], ...]],
    host_frames: tuple[type[msgspec.Struct], ...],
) -> JSON:
    types: list[Any] = [payload for group in payloads.values() for payload in group]
    types += [Fragment, FragmentData, *host_frames]
    _, components = msgspec.json.schema_components(types, ref_template=REF)
    envelopes = {f"{kind}_envelope": _envelope(kind, group) for kind, group in payloads.items()}
    frames = [*envelopes, *(frame.__name__ for frame in host_frames)]
    return {
        "$schema": DIALECT,
        "title": title,
        "oneOf": [{"$ref": REF.format(name=name)} for name in frames],
        "$defs": {**envelopes, **dict(sorted(components.items()))},
    }


def _envelope(kind: str, payloads: tuple[type[msgspec.Struct], ...]) -> JSON:
    """An envelope of one type: its payload, or a piece of it when it is a fragment."""
    uuid = {"type": "string", "format": "uuid"}
    alternatives = [{"$ref": REF.format(name=payload.__name__)} for payload in payloads]
    whole = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
    return {
        "type": "object",
        "properties": {
            "type": {"const": kind},
            **dict.fromkeys(SCOPE_KINDS, uuid),
            "session_id": {"type": "string", "minLength": 1, "maxLength": MAX_SESSION_ID_LENGTH},
            "server_id": {"type": "string", "pattern": f"^{SERVER_ID_PATTERN}$"},
            "message_id": uuid,
            "sequence": {"type": "integer", "minimum": 0},
            "timestamp": {"type": "integer", "minimum": 0},
            "version": {"const": 1},
            "in_reply_to": uuid,
            "encoding": {"const": "proxy"},
            "fragment": {"$ref": "#/$defs/Fragment"},
            "payload": {"type": "object"},
        },
        "required": ["type", "message_id", "sequence", "timestamp", "version", "payload"],
        "oneOf": [{"required": [kind]} for kind in SCOPE_KINDS],
        "if": {"required": ["fragment"]},
        "then": {"properties": {"payload": {"$ref": "#/$defs/FragmentData"}}},
        "else": {"properties": {"payload": whole}},
    }


def minicodex_client_schema() -> JSON:
    """Every command. `x-capability` marks commands and fields that a client has to name the capability for."""
    return _frames("MiniCodex protocol 1.0.0: client to server", ClientMessage, dict.fromkeys(MAKAI_COMMANDS, MAKAI_1))


def minicodex_server_schema() -> JSON:
    """Every server frame. `x-capability` marks frames and fields that only clients see that named the capability."""
    needed = dict.fromkeys(get_args(MakaiFrame), MAKAI_1) | dict.fromkeys(
        (AssistantTextDeltaFrame, ReasoningDeltaFrame), STREAMING
    )
    return _frames("MiniCodex protocol 1.0.0: server to client", ServerMessage, needed)


def _frames(title: str, union: Any, needed: Mapping[type, str]) -> JSON:
    """Flat frames, told apart by `type`."""
    (frame,), components = msgspec.json.schema_components([union], ref_template=REF)
    for kind, capability in needed.items():
        components[kind.__name__] = {"x-capability": capability, **components[kind.__name__]}
    schema = {
        "$schema": DIALECT,
        "title": title,
        "oneOf": frame["anyOf"],
        "discriminator": frame["discriminator"],
        "$defs": {name: components[name] for name in sorted(components, key=published_name)},
    }
    named = "|".join(components)
    text = re.sub(rf'(?<=["/])({named})(?=")', lambda found: published_name(found[0]), json.dumps(schema))
    return cast(JSON, json.loads(text))


SCHEMAS = {
    "config.json": config_schema,
    "events.json": events_schema,
    "makai/client.json": makai_client_schema,
    "makai/server.json": makai_server_schema,
    "minicodex/client.json": minicodex_client_schema,
    "minicodex/server.json": minicodex_server_schema,
}
"""File below `schema/` -> what makes it."""


def render(schema: JSON) -> str:
    """The file's text."""
    return json.dumps(_undented(schema), indent=2, ensure_ascii=False) + "\n"


def _undented(schema: Any) -> Any:
    """With descriptions that are the same for every Python: from 3.13 on, a docstring has no indentation."""
    if isinstance(schema, list):
        return [_undented(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: inspect.cleandoc(value) if key == "description" and isinstance(value, str) else _undented(value)
        for key, value in schema.items()
    }


def main() -> None:
    """Write every file."""
    for name, make in SCHEMAS.items():
        path = SCHEMA_DIRECTORY / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(make()), encoding="utf-8")
        print(f"wrote schema/{name}")


if __name__ == "__main__":
    main()
