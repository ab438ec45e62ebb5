"""A secret in the variables of a binding or a request is found in no JSON and in no text (DM-ENDP-010)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from makai.core.errors import InvalidRequest
from makai.harness import (
    EndpointBinding,
    EndpointRequest,
    MCPServerConfig,
    OneShotRequest,
    ResultEvent,
    Spec,
    ToolUseEvent,
    decode,
    encode,
    encode_event,
    endpoint_manifest,
    resolve,
)

CANARY = "sk-canary-0123456789"
REQUEST = EndpointRequest(model="m", host="direct", auth="byok", env_provided={"ANTHROPIC_API_KEY": CANARY})
BINDING = resolve(endpoint_manifest("anthropic"), REQUEST)
SPEC = Spec(prompt="p", endpoint=BINDING)
ONE_SHOT = OneShotRequest(endpoint=BINDING)
VALUES = [REQUEST, BINDING, SPEC, ONE_SHOT]
ENCODERS: list[Callable[[Any], Any]] = [msgspec.json.encode, msgspec.msgpack.encode, msgspec.to_builtins]


@pytest.mark.req("DM-ENDP-010")
def test_the_binding_has_the_secret_for_the_harness() -> None:
    assert BINDING.env == {"ANTHROPIC_API_KEY": CANARY}
    assert BINDING.env["ANTHROPIC_API_KEY"] == CANARY


@pytest.mark.req("DM-ENDP-010")
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_no_json_has_the_secret_and_the_rest_comes_back(value: Any) -> None:
    text = encode(value)

    assert CANARY.encode() not in text
    assert b"ANTHROPIC_API_KEY" not in text
    assert decode(text, type(value)) == value.public()


@pytest.mark.req("DM-ENDP-010")
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda encoder: f"{encoder.__module__}.{encoder.__name__}")
def test_another_encoder_raises_instead_of_writing_the_secret(value: Any, encoder: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError) as refusal:
        encoder(value)

    assert CANARY not in str(refusal.value)


@pytest.mark.req("DM-ENDP-010")
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_no_text_of_a_value_has_the_secret(value: Any) -> None:
    shown = [repr(value), str(value), f"{value}", repr(copy.copy(value)), repr([value])]
    shown += [repr(msgspec.structs.asdict(value)), repr(msgspec.structs.replace(value))]

    assert [text for text in shown if CANARY in text] == []
    assert "ANTHROPIC_API_KEY" in repr(value)


@pytest.mark.req("DM-ENDP-010")
def test_variables_in_json_are_not_read_into_a_binding_or_a_request() -> None:
    written = {"company": "anthropic", "env": {"ANTHROPIC_API_KEY": CANARY}}
    request = {"model": "m", "host": "direct", "auth": "byok", "envProvided": {"ANTHROPIC_API_KEY": CANARY}}

    assert decode(json.dumps(written), EndpointBinding).env == {}
    assert decode(json.dumps(request), EndpointRequest).env_provided == {}
    inside = decode(json.dumps({"prompt": "p", "endpoint": written}), Spec).endpoint
    assert inside is not None
    assert inside.env == {}


@pytest.mark.req("DM-ENDP-010")
def test_an_event_cannot_carry_a_binding_with_a_secret() -> None:
    for event in (ResultEvent(success=True, raw=BINDING), ToolUseEvent(tool_name="x", input={"endpoint": BINDING})):
        with pytest.raises(InvalidRequest) as refusal:
            encode_event(event)
        assert CANARY not in str(refusal.value)


def test_values_of_variables_and_headers_are_not_shown_by_a_spec() -> None:
    server = MCPServerConfig(name="a", type="http", env={"K": CANARY}, headers={"Authorization": CANARY})
    spec = Spec(prompt="p", env={"TOKEN": CANARY}, mcp_servers=(server,))

    assert CANARY not in repr(spec)
    assert json.loads(encode(spec))["env"] == {"TOKEN": CANARY}


@pytest.mark.req("DM-ENDP-010")
def test_an_error_about_a_request_does_not_have_the_secret() -> None:
    request = EndpointRequest(
        model="m",
        host="azure",
        auth="byok",
        env_provided={"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": CANARY},
    )
    with pytest.raises(InvalidRequest) as refusal:
        resolve(endpoint_manifest("openai"), request)

    assert CANARY not in str(refusal.value)
