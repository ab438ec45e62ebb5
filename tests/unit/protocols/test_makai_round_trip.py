"""Every payload of every protocol, with all its fields set to awkward values, survives the wire in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from support.wire import new_id

from makai.protocols.makai import agent_payloads, auth, payloads
from makai.protocols.makai.client import ClientConnection
from makai.protocols.makai.envelope import SCOPE_KINDS, Envelope, Scope, ScopeKind, read_envelope
from makai.protocols.makai.framing import EnvelopeSender

TEXT = 'é☂😀 "quoted" \\ back\nnew line\r\u2028\t'
FRAME_BYTES = 10**6
CLIENT: Mapping[str, type] = {
    **payloads.CLIENT_PAYLOADS,
    **auth.AUTH_CLIENT_PAYLOADS,
    **agent_payloads.AGENT_CLIENT_PAYLOADS,
}
SERVER: Mapping[str, tuple[type, ...]] = {
    **payloads.SERVER_PAYLOADS,
    **auth.AUTH_SERVER_PAYLOADS,
    **agent_payloads.AGENT_SERVER_PAYLOADS,
}
in_every_scope = pytest.mark.parametrize("scope_kind", SCOPE_KINDS)


def filled(kind: inspect.Type) -> Any:
    """A value of the type with everything set: the last of several alternatives, one item in each collection."""
    match kind:
        case inspect.StrType() | inspect.AnyType():
            return TEXT
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return 7
        case inspect.LiteralType(values=values):
            return values[-1]
        case inspect.EnumType(cls=cls):
            return list(cls)[-1]
        case inspect.VarTupleType(item_type=item):
            return (filled(item),)
        case inspect.ListType(item_type=item):
            return [filled(item)]
        case inspect.DictType(value_type=value):
            return {TEXT: filled(value)}
        case inspect.UnionType(types=types):
            return filled([each for each in types if not isinstance(each, inspect.NoneType)][-1])
        case inspect.StructType(cls=cls, fields=fields):
            return cls(**{field.name: filled(field.type) for field in fields})
    raise AssertionError(f"no example of {kind}")


def value_of(payload_type: type) -> Any:
    return filled(inspect.type_info(payload_type))


@pytest.mark.req("MK-ENV-008")
@in_every_scope
@pytest.mark.parametrize("kind", CLIENT)
def test_what_a_client_sends_is_read_as_it_was_meant(kind: str, scope_kind: ScopeKind) -> None:
    value = value_of(CLIENT[kind])
    client = ClientConnection(clock=lambda: 5)
    scope = client.begin(scope_kind, new_id())
    message_id = client.send(scope, kind, value, "proxy")
    (frame,) = client.take()
    read = read_envelope(frame, FRAME_BYTES)
    assert isinstance(read, Envelope)
    assert msgspec.convert(read.payload, CLIENT[kind]) == value
    assert msgspec.structs.replace(read, payload=None) == Envelope(
        type=kind,
        stream_id=scope.id if scope_kind == "stream_id" else None,
        session_id=scope.id if scope_kind == "session_id" else None,
        server_id=scope.id if scope_kind == "server_id" else None,
        message_id=message_id,
        sequence=1,
        timestamp=5,
        version=1,
        encoding="proxy",
        payload=None,
    )


@pytest.mark.req("MK-ENV-008")
@in_every_scope
@pytest.mark.parametrize(("kind", "payload_type"), [(kind, each) for kind, types in SERVER.items() for each in types])
def test_what_a_server_sends_is_read_as_it_was_meant(kind: str, payload_type: type, scope_kind: ScopeKind) -> None:
    value, scope, request_id = value_of(payload_type), Scope(scope_kind, new_id()), new_id()
    sender = EnvelopeSender(FRAME_BYTES)
    sender.send(scope, kind, value, in_reply_to=request_id)
    (frame,) = sender.take()
    reply = ClientConnection().receive(frame, 0.0)
    assert reply is not None
    assert (reply.type, reply.scope, reply.in_reply_to) == (kind, scope, request_id)
    assert msgspec.json.decode(reply.payload, type=payload_type) == value
