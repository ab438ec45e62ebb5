"""Names and JSON of manifests, requests and bindings."""

from __future__ import annotations

import json
from typing import get_args

import msgspec
import pytest

from makai.core.errors import ParseError
from makai.harness import (
    AuthMode,
    CostModel,
    EndpointBinding,
    EndpointRequest,
    HarnessCaps,
    HarnessManifest,
    HarnessName,
    HostDesc,
    ModelDesc,
    ModelEndpointManifest,
    ProviderName,
    ServingHost,
    Spec,
    StreamingTransport,
    TransportKind,
    WireProtocol,
    decode,
    encode,
)

CAPS_JSON = {
    "inject": True,
    "resume": False,
    "tools": True,
    "mcp": False,
    "allowedToolsList": True,
    "subagents": False,
    "reasoningEffort": True,
    "oneShot": False,
    "nativeJsonMode": True,
    "toolPermissionFormat": "claude",
    "streamingTransport": "sse",
    "drives": ["openai-chat"],
    "drivesHosts": ["direct"],
    "transport": "pty",
}
HOST_JSON = {
    "host": "direct",
    "protocol": "openai-chat",
    "authModes": ["byok"],
    "bringsOwnAuth": False,
    "needsApiKey": True,
    "costModel": "metered",
    "baseUrlTmpl": "https://api.example",
    "envKeys": ["EXAMPLE_API_KEY"],
}
MODEL_JSON = {
    "id": "m",
    "humanLabel": "M",
    "contextWindow": 1000,
    "supportsTools": True,
    "supportsJsonMode": False,
    "hosts": ["direct"],
}


@pytest.mark.req("DM-ENDP-001")
def test_the_wire_protocols_are_exactly_these() -> None:
    assert set(get_args(WireProtocol)) == {
        *("anthropic-messages", "openai-chat", "openai-responses", "gemini-generate"),
        *("ollama", "antigravity-oauth", "stub"),
    }


@pytest.mark.req("DM-ENDP-002", "DM-PROV-014")
def test_hosts_transports_harnesses_and_providers_are_exactly_these() -> None:
    assert set(get_args(ServingHost)) == {"direct", "bedrock", "vertex", "azure", "local", "oauth-cli"}
    assert set(get_args(TransportKind)) == {"cli-injection", "subprocess-jsonrpc", "pty", "direct-api"}
    assert set(get_args(HarnessName)) == {"claude-code", "codex", "opencode", "antigravity", "amp", "raw", "stub"}
    assert set(get_args(ProviderName)) == {
        *("claude", "codex", "stub", "spring-ai", "a2a", "amp", "gemini", "agy-cli", "ollama", "opencode", "jules"),
    }
    assert HarnessName is not ProviderName


@pytest.mark.req("DM-ENDP-003")
def test_there_are_five_auth_modes_and_an_api_key_is_none_of_them() -> None:
    assert set(get_args(AuthMode)) == {"byok", "metered", "shared", "host-session", "local"}
    assert set(get_args(CostModel)) == {"host-subscription", "metered", "local"}
    for mode in ("api-key", "api_key", "API-KEY"):
        with pytest.raises(ParseError, match="auth"):
            decode(json.dumps({"model": "m", "host": "direct", "auth": mode}), EndpointRequest)


@pytest.mark.req("DM-ENDP-004", "DM-ENDP-005")
def test_a_harness_manifest_has_the_names_of_the_contract() -> None:
    written = {
        "name": "raw",
        "humanLabel": "Raw",
        "family": "agent-runtime",
        "contractAbi": "harness/v2",
        "capabilities": CAPS_JSON,
    }
    caps = HarnessCaps(
        supports_message_injection=True,
        supports_tool_plugins=True,
        accepts_allowed_tools_list=True,
        supports_reasoning_effort=True,
        native_json_mode=True,
        tool_permission_format="claude",
        streaming_transport="sse",
        drives=("openai-chat",),
        drives_hosts=("direct",),
        transport="pty",
    )
    manifest = HarnessManifest(name="raw", human_label="Raw", caps=caps)

    assert json.loads(encode(manifest)) == written
    assert decode(json.dumps(written), HarnessManifest) == manifest
    assert json.loads(encode(HarnessCaps())).keys() == CAPS_JSON.keys()


@pytest.mark.req("DM-ENDP-005")
def test_a_streaming_transport_is_one_of_four() -> None:
    assert set(get_args(StreamingTransport)) == {"sse", "ndjson", "websocket", "none"}
    with pytest.raises(ParseError):
        decode('{"streamingTransport":"carrier-pigeon"}', HarnessCaps)


@pytest.mark.req("DM-ENDP-007", "DM-ENDP-008")
def test_an_endpoint_manifest_has_the_names_of_the_contract() -> None:
    written = {
        "company": "example",
        "humanLabel": "Example",
        "family": "model-endpoint",
        "contractAbi": "model-endpoint/v1",
        "speaks": ["openai-chat"],
        "hosts": [HOST_JSON],
        "models": [MODEL_JSON],
    }
    manifest = ModelEndpointManifest(
        company="example",
        human_label="Example",
        speaks=("openai-chat",),
        hosts=(
            HostDesc(
                host="direct",
                protocol="openai-chat",
                auth_modes=("byok",),
                brings_own_auth=False,
                needs_api_key=True,
                cost_model="metered",
                base_url_tmpl="https://api.example",
                env_keys=("EXAMPLE_API_KEY",),
            ),
        ),
        models=(
            ModelDesc(
                id="m",
                human_label="M",
                context_window=1000,
                supports_tools=True,
                supports_json_mode=False,
                hosts=("direct",),
            ),
        ),
    )

    assert json.loads(encode(manifest)) == written
    assert decode(json.dumps(written), ModelEndpointManifest) == manifest


@pytest.mark.parametrize("family", ["agent-runtime", "sandbox", ""])
def test_a_manifest_of_another_family_is_refused(family: str) -> None:
    text = json.dumps({"company": "x", "humanLabel": "X", "family": family, "speaks": [], "hosts": []})

    with pytest.raises(ParseError, match="family"):
        decode(text, ModelEndpointManifest)


@pytest.mark.req("DM-ENDP-009")
def test_a_request_writes_what_is_set_beside_model_host_and_auth() -> None:
    plain = EndpointRequest(model="m", host="bedrock", auth="byok")

    assert json.loads(encode(plain)) == {"model": "m", "host": "bedrock", "auth": "byok"}
    placed = msgspec.structs.replace(plain, region="eu-west-1", resource="r", protocol="openai-chat")
    assert json.loads(encode(placed)) == {
        **{"model": "m", "host": "bedrock", "auth": "byok"},
        **{"protocol": "openai-chat", "region": "eu-west-1", "resource": "r"},
    }
    assert decode(encode(placed), EndpointRequest) == placed


@pytest.mark.req("DM-ENDP-011")
@pytest.mark.parametrize(
    "binding",
    [
        EndpointBinding(company="openai"),
        EndpointBinding(model="m"),
        EndpointBinding(base_url="https://x.example"),
        EndpointBinding(protocol="stub"),
        EndpointBinding(host="local"),
        EndpointBinding(auth="local"),
        EndpointBinding(cost_model="local"),
        EndpointBinding(brings_own_auth=True),
        EndpointBinding(env={"A": "b"}),
    ],
)
def test_only_an_unset_binding_is_zero(binding: EndpointBinding) -> None:
    assert EndpointBinding().is_zero
    assert not binding.is_zero


@pytest.mark.req("DM-ENDP-011")
def test_a_binding_on_a_spec_counts_as_set_even_when_it_is_zero() -> None:
    spec = Spec(prompt="", endpoint=EndpointBinding())

    assert spec.endpoint is not None
    assert spec.endpoint.is_zero
