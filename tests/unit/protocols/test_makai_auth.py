from typing import Any

import jsonschema_rs
import pytest
from support.wire import JSON, Server, ask, code_of, envelope, new_id

from makai.catalog.models import AuthStatus
from makai.protocols.makai import auth as wire
from makai.protocols.makai.envelope import Scope
from makai.protocols.makai.server import ConnectionLimits
from tools.schema import makai_client_schema, makai_server_schema

FLOW: JSON = {"provider_id": "acme"}


def login(server: Server, **fields: Any) -> str:
    """A login that was started; its flow id. The ack is read."""
    start = envelope("auth_login_start", FLOW, **fields)
    (ack,) = server.say(start)
    assert (ack["type"], ack["sequence"]) == ("ack", 1)
    assert server.commands == [wire.StartLogin(flow_id=start["stream_id"], provider_id="acme", account=None)]
    return str(start["stream_id"])


def prompt(flow_id: str) -> wire.AuthEvent:
    return wire.AuthEvent(prompt=wire.AuthPrompt(flow_id=flow_id, prompt_id="p1", provider_id="acme", message="Code?"))


def answer(flow_id: str, sequence: int = 2, **fields: Any) -> JSON:
    payload = {"flow_id": flow_id, "prompt_id": "p1", "answer": "42"} | fields.pop("payload", {})
    return envelope("auth_prompt_response", payload, stream_id=flow_id, sequence=sequence, **fields)


def code(frame: JSON) -> str:
    return str(frame["payload"]["error_code"])


@pytest.fixture
def flow_id(server: Server) -> str:
    return login(server)


@pytest.mark.parametrize("following", [2, 3])
@pytest.mark.parametrize(
    "refused",
    [
        {"kind": "auth_prompt_response", "payload": {"prompt_id": "p1"}},
        {"kind": "auth_prompt_response", "payload": {"flow_id": new_id(), "prompt_id": "p1", "answer": "42"}},
        {"kind": "auth_login_start", "payload": FLOW},
        {"kind": "translate_request", "payload": {}},
    ],
    ids=range(4),
)
def test_a_refused_message_does_not_end_a_login_however_its_client_counts_on(
    server: Server, flow_id: str, refused: JSON, following: int
) -> None:
    server.connection.auth.event(flow_id, prompt(flow_id))
    server.heard()
    (nack,) = server.say(envelope(refused["kind"], refused["payload"], stream_id=flow_id, sequence=2))
    assert nack["type"] == "nack"

    (ack,) = server.say(answer(flow_id, following))

    assert (ack["type"], server.commands) == (
        "ack",
        [wire.AuthPromptResponse(flow_id=flow_id, prompt_id="p1", answer="42")],
    )
    assert code(server.say(answer(flow_id, following))[0]) == "duplicate_sequence"
    assert code(server.say(answer(flow_id, following + 2))[0]) == "sequence_gap"
    assert server.say(answer(flow_id, following + 1))[0]["type"] == "ack"


@pytest.mark.req("MK-AUTH-001", "MK-AUTH-002", "MK-ENV-004", "MK-ENV-012")
def test_a_provider_query_gets_ack_and_then_its_answer(server: Server) -> None:
    query = envelope("auth_providers_request")
    (ack,) = server.say(query)
    command = server.command(wire.ListProviders)
    server.connection.auth.providers(
        command.scope,
        (
            wire.AuthProviderInfo(id="a", name="A", auth_status=AuthStatus.AUTHENTICATED),
            wire.AuthProviderInfo(id="b", name="B", auth_status=AuthStatus.FAILED, last_error="denied"),
        ),
    )
    (response,) = server.heard()
    assert (ack["type"], ack["sequence"]) == ("ack", 1)
    assert (response["type"], response["sequence"], response["in_reply_to"]) == (
        "auth_providers_response",
        2,
        query["message_id"],
    )
    assert response["payload"] == {
        "providers": [
            {"id": "a", "name": "A", "auth_status": "authenticated"},
            {"id": "b", "name": "B", "auth_status": "failed", "last_error": "denied"},
        ]
    }
    assert not server.connection.busy


@pytest.mark.req("MK-AUTH-003", "MK-AUTH-004", "MK-AUTH-005", "MK-AUTH-006", "MK-AUTH-007", "MK-AUTH-012")
def test_a_login_says_exactly_this(server: Server, flow_id: str) -> None:
    whose = {"flow_id": flow_id, "provider_id": "acme"}
    auth = server.connection.auth
    auth.event(flow_id, wire.AuthEvent(progress=wire.AuthProgress(**whose, message="Connecting")))
    auth.event(flow_id, wire.AuthEvent(auth_url=wire.AuthUrl(**whose, url="https://x/", instructions="Open it")))
    auth.event(flow_id, prompt(flow_id))
    frames = server.heard() + server.say(answer(flow_id))
    assert server.commands == [wire.AuthPromptResponse(flow_id=flow_id, prompt_id="p1", answer="42")]
    auth.event(flow_id, wire.AuthEvent(success=wire.AuthSuccess(**whose)))
    auth.result(flow_id, "success")
    frames += server.heard()
    assert [frame["sequence"] for frame in frames] == [2, 3, 4, 5, 6, 7]
    assert {frame["stream_id"] for frame in frames} == {flow_id}
    assert [(frame["type"], frame["payload"]) for frame in frames if frame["type"] != "ack"] == [
        ("auth_event", {"progress": whose | {"message": "Connecting"}}),
        ("auth_event", {"auth_url": whose | {"url": "https://x/", "instructions": "Open it"}}),
        ("auth_event", {"prompt": whose | {"prompt_id": "p1", "message": "Code?", "allow_empty": False}}),
        ("auth_event", {"success": whose}),
        ("auth_login_result", whose | {"status": "success"}),
    ]
    assert not server.connection.busy


@pytest.mark.req("MK-AUTH-004", "MK-AUTH-005")
def test_an_event_carries_its_optional_fields_only_when_they_are_set(server: Server, flow_id: str) -> None:
    whose = {"flow_id": flow_id, "provider_id": "acme"}
    asked = {**whose, "prompt_id": "p1", "message": "Code?"}
    for event in (
        wire.AuthEvent(auth_url=wire.AuthUrl(**whose, url="https://x/")),
        wire.AuthEvent(prompt=wire.AuthPrompt(**asked, allow_empty=True)),
        wire.AuthEvent(error=wire.AuthFailure(**whose, message="No.")),
        wire.AuthEvent(error=wire.AuthFailure(**whose, message="No.", code="denied")),
    ):
        server.connection.auth.event(flow_id, event)
    assert [frame["payload"] for frame in server.heard()] == [
        {"auth_url": whose | {"url": "https://x/"}},
        {"prompt": asked | {"allow_empty": True}},
        {"error": whose | {"message": "No."}},
        {"error": whose | {"message": "No.", "code": "denied"}},
    ]


@pytest.mark.req("MK-AUTH-010")
def test_an_answer_for_another_flow_is_refused_and_one_for_another_prompt_is_passed_on_to_be_ignored(
    server: Server, flow_id: str
) -> None:
    server.connection.auth.event(flow_id, prompt(flow_id))
    server.heard()
    (nack,) = server.say(answer(flow_id, payload={"flow_id": new_id()}))
    assert (code(nack), server.commands) == ("invalid_request", [])
    (ack,) = server.say(answer(flow_id, 2, payload={"prompt_id": "p9"}))
    assert ack["type"] == "ack"
    assert server.commands == [wire.AuthPromptResponse(flow_id=flow_id, prompt_id="p9", answer="42")]


@pytest.mark.req("MK-AUTH-011", "MK-AUTH-014", "MK-ENV-012")
def test_a_cancel_is_acked_and_the_flow_ends_once(server: Server, flow_id: str) -> None:
    cancel = envelope("auth_cancel", {"flow_id": flow_id}, stream_id=flow_id, sequence=2)
    (ack,) = server.say(cancel)
    assert (ack["type"], server.commands) == ("ack", [wire.AuthCancel(flow_id)])
    failure = wire.AuthFailure(flow_id=flow_id, provider_id="acme", message="cancelled", code="cancelled")
    server.connection.auth.event(flow_id, wire.AuthEvent(error=failure))
    server.connection.auth.result(flow_id, "cancelled")
    error, result = server.heard()
    assert error["payload"]["error"]["code"] == "cancelled"
    assert result["payload"]["status"] == "cancelled"
    for late in (cancel, cancel | {"sequence": 3}, answer(flow_id, 7)):
        (ack,) = server.say(late)
        assert (ack["type"], server.commands) == ("ack", [])
    server.connection.auth.result(flow_id, "failed")
    server.connection.auth.event(flow_id, prompt(flow_id))
    assert server.heard() == []


@pytest.mark.req("MK-AUTH-008")
def test_a_query_during_a_login_does_not_disturb_its_numbering(server: Server, flow_id: str) -> None:
    query = envelope("auth_providers_request")
    server.say(query)
    server.connection.auth.providers(Scope("stream_id", query["stream_id"]), ())
    assert [frame["sequence"] for frame in server.heard()] == [2]
    (ack,) = server.say(answer(flow_id))
    assert ack["sequence"] == 2


def test_several_logins_run_at_once_up_to_a_limit() -> None:
    server = Server(ConnectionLimits(logins=2))
    first, second = login(server), login(server)
    assert code_of(server.say(envelope("auth_login_start", FLOW))) == "rate_limited"
    server.connection.auth.result(first, "failed")
    server.heard()
    login(server)
    (nack,) = server.say(envelope("auth_login_start", FLOW, stream_id=second, sequence=2))
    assert code(nack) == "stream_already_exists"


BAD: list[tuple[str, JSON]] = [
    ("auth_login_start", {}),
    ("auth_login_start", {"provider_id": 7}),
    ("auth_prompt_response", {"flow_id": new_id()}),
    ("auth_cancel", {}),
]


@pytest.mark.parametrize(("kind", "payload"), BAD)
def test_a_malformed_auth_request_is_nacked(server: Server, kind: str, payload: JSON) -> None:
    (nack,) = server.say(envelope(kind, payload))
    assert (code(nack), server.commands) == ("invalid_request", [])


def test_a_login_in_a_session_scope_is_refused() -> None:
    ids: dict[str, Any] = {"stream_id": None, "session_id": new_id()}
    assert code_of(Server().say(envelope("auth_login_start", FLOW, **ids))) == "invalid_request"


def test_sequences_hold_inside_a_running_login(server: Server, flow_id: str) -> None:
    for sequence, fault in ((0, "invalid_sequence"), (1, "duplicate_sequence"), (5, "sequence_gap")):
        assert code_of(server.say(answer(flow_id, sequence))) == fault


@pytest.mark.req("MK-ENV-008")
def test_every_auth_frame_fits_the_schema(server: Server) -> None:
    client = jsonschema_rs.validator_for(makai_client_schema())
    told = jsonschema_rs.validator_for(makai_server_schema())
    start = envelope("auth_login_start", FLOW | {"account": "work"})
    client.validate(start)
    frames = server.say(start)
    flow_id = start["stream_id"]
    client.validate(answer(flow_id))
    client.validate(envelope("auth_cancel", {"flow_id": flow_id}))
    client.validate(envelope("auth_providers_request"))
    server.connection.auth.event(flow_id, prompt(flow_id))
    server.connection.auth.result(flow_id, "failed")
    for frame in frames + server.heard():
        told.validate(frame)
    assert not client.is_valid(ask(payload={}))
