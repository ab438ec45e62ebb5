"""From a request to a binding: whole, or a typed error; never half an address."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import makai.harness.endpoints
from makai.core.errors import EndpointError, InvalidRequest
from makai.harness import (
    CompanyEndpoint,
    EndpointBinding,
    EndpointRequest,
    HostDesc,
    ModelEndpointManifest,
    ModelEndpointProvider,
    endpoint_manifest,
    endpoint_manifests,
    resolve,
)

AWS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
VERTEX = {"GOOGLE_APPLICATION_CREDENTIALS": "/key.json", "GOOGLE_CLOUD_PROJECT": "p"}
AZURE = {"AZURE_OPENAI_API_KEY": "k"}


def request(host: str, auth: str = "byok", /, env: dict[str, str] | None = None, **fields: Any) -> EndpointRequest:
    return EndpointRequest(model="m", host=host, auth=auth, env_provided=env or {}, **fields)  # type: ignore[arg-type]


def refused(company: str, wanted: EndpointRequest) -> EndpointError:
    with pytest.raises(EndpointError) as refusal:
        resolve(endpoint_manifest(company), wanted)
    return refusal.value


@pytest.mark.req("DM-ENDP-009")
def test_a_binding_has_everything_of_its_host() -> None:
    env = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "not asked for"}

    assert resolve(endpoint_manifest("anthropic"), request("direct", env=env)) == EndpointBinding(
        company="anthropic",
        model="m",
        base_url="https://api.anthropic.com",
        protocol="anthropic-messages",
        host="direct",
        auth="byok",
        cost_model="metered",
        brings_own_auth=False,
        env={"ANTHROPIC_API_KEY": "k"},
    )


@pytest.mark.req("DM-ENDP-009")
@pytest.mark.parametrize(
    ("company", "wanted", "url", "env"),
    [
        ("anthropic", request("oauth-cli", "host-session", env={"ANTHROPIC_API_KEY": "k"}), "", {}),
        (
            "anthropic",
            request("bedrock", env=AWS, region="eu-west-1"),
            "https://bedrock-runtime.eu-west-1.amazonaws.com",
            AWS | {"AWS_REGION": "eu-west-1"},
        ),
        (
            "bedrock",
            request("bedrock", env=AWS | {"AWS_REGION": "us-east-1"}),
            "https://bedrock-runtime.us-east-1.amazonaws.com",
            AWS | {"AWS_REGION": "us-east-1"},
        ),
        (
            "google",
            request("vertex", env=VERTEX, region="europe-west4"),
            "https://europe-west4-aiplatform.googleapis.com",
            VERTEX | {"GOOGLE_CLOUD_LOCATION": "europe-west4"},
        ),
        (
            "vertex",
            request("vertex", "metered", env=VERTEX, region="global"),
            "https://aiplatform.googleapis.com",
            VERTEX | {"GOOGLE_CLOUD_LOCATION": "global"},
        ),
        (
            "google",
            request("direct", env={"GOOGLE_API_KEY": "g"}),
            "https://generativelanguage.googleapis.com",
            {"GOOGLE_API_KEY": "g"},
        ),
        ("openai", request("azure", env=AZURE, resource="my-res"), "https://my-res.openai.azure.com/openai/v1", AZURE),
        (
            "azure",
            request("azure", env=AZURE | {"AZURE_OPENAI_ENDPOINT": "https://x.example/"}, resource="not-used"),
            "https://x.example/openai/v1",
            AZURE | {"AZURE_OPENAI_ENDPOINT": "https://x.example/"},
        ),
        (
            "azure",
            request("azure", env=AZURE | {"AZURE_OPENAI_ENDPOINT": "http://127.0.0.1:8111/v1"}),
            "http://127.0.0.1:8111/v1",
            AZURE | {"AZURE_OPENAI_ENDPOINT": "http://127.0.0.1:8111/v1"},
        ),
        (
            "openrouter",
            request("direct", "metered", env={"OPENROUTER_API_KEY": "o"}),
            "https://openrouter.ai/api/v1",
            {"OPENROUTER_API_KEY": "o"},
        ),
        ("local", request("local", "local"), "http://127.0.0.1:11434", {}),
        ("stub", request("local", "local"), "", {}),
    ],
)
def test_addresses_and_variables_are_those_of_the_host(
    company: str, wanted: EndpointRequest, url: str, env: dict[str, str]
) -> None:
    binding = resolve(endpoint_manifest(company), wanted)

    assert (binding.company, binding.base_url, binding.env) == (company, url, env)


def test_a_host_with_two_protocols_gives_the_usual_one_or_the_wanted_one() -> None:
    manifest = endpoint_manifest("openai")
    env = {"OPENAI_API_KEY": "k"}

    assert resolve(manifest, request("direct", env=env)).protocol == "openai-responses"
    assert resolve(manifest, request("direct", env=env, protocol="openai-chat")).protocol == "openai-chat"
    assert refused("openai", request("direct", env=env, protocol="ollama")).kind == "unknown_host"


@pytest.mark.req("DM-ENDP-009")
def test_a_host_that_the_manifest_does_not_offer_is_refused_by_name() -> None:
    error = refused("openai", request("bedrock", env=AWS))

    assert (error.kind, error.message) == ("unknown_host", "openai has no host 'bedrock'.")
    assert error.hint == "It has these hosts: oauth-cli, direct, azure."
    assert isinstance(error, InvalidRequest)


def test_an_unknown_company_is_refused_by_name() -> None:
    with pytest.raises(EndpointError, match="'acme'") as refusal:
        endpoint_manifest("acme")

    assert refusal.value.kind == "unknown_company"


@pytest.mark.parametrize(
    ("company", "wanted"),
    [
        ("anthropic", request("direct", "host-session", env={"ANTHROPIC_API_KEY": "k"})),
        ("anthropic", request("oauth-cli", "byok", env={"ANTHROPIC_API_KEY": "k"})),
        ("openai", request("direct", "shared", env={"OPENAI_API_KEY": "k"})),
        ("local", request("local", "metered")),
    ],
)
def test_a_login_that_the_host_does_not_offer_is_refused(company: str, wanted: EndpointRequest) -> None:
    error = refused(company, wanted)

    assert error.kind == "auth_not_offered"
    assert repr(wanted.auth) in error.message


@pytest.mark.parametrize(
    ("company", "wanted", "names"),
    [
        ("anthropic", request("direct"), "ANTHROPIC_API_KEY"),
        ("anthropic", request("direct", "metered", env={"ANTHROPIC_API_KEY": " \n"}), "ANTHROPIC_API_KEY"),
        ("openai", request("direct", env={"ANTHROPIC_API_KEY": "k"}), "OPENAI_API_KEY"),
        ("google", request("direct"), "GEMINI_API_KEY or GOOGLE_API_KEY"),
        ("bedrock", request("bedrock", env={"AWS_REGION": "x"}), "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"),
        ("anthropic", request("bedrock", env={"AWS_ACCESS_KEY_ID": "x"}), "AWS_SECRET_ACCESS_KEY"),
        (
            "vertex",
            request("vertex", env={"GOOGLE_APPLICATION_CREDENTIALS": "x"}),
            "GOOGLE_CLOUD_PROJECT or GOOGLE_VERTEX_PROJECT_ID",
        ),
        ("azure", request("azure", resource="r"), "AZURE_OPENAI_API_KEY"),
    ],
)
def test_a_missing_key_is_refused_with_the_name_of_its_variable(
    company: str, wanted: EndpointRequest, names: str
) -> None:
    error = refused(company, wanted)

    assert (error.kind, error.hint) == ("missing_key", f"Set {names}.")
    assert names in error.message


@pytest.mark.parametrize(
    ("company", "wanted", "name"),
    [
        ("anthropic", request("bedrock", env=AWS), "region"),
        ("google", request("vertex", env=VERTEX), "region"),
        ("openai", request("azure", env=AZURE), "resource"),
        ("azure", request("azure", env=AZURE, region="eu"), "resource"),
    ],
)
def test_a_missing_part_of_an_address_is_refused_by_its_name(company: str, wanted: EndpointRequest, name: str) -> None:
    error = refused(company, wanted)

    assert (error.kind, error.hint) == ("missing_value", f"Give the {name}.")


@pytest.mark.parametrize(
    "value",
    [
        *("evil.example/", "a.b", "x@evil.example", "x#", "x?", "x/../y", "{region}", "{resource}", "-x", "x-"),
        *(" ", "a b", "x\n", "x\\", "ü", "x" * 64, "%2f", "a:1"),
    ],
)
def test_a_part_of_an_address_cannot_lead_to_another_host(value: str) -> None:
    assert refused("anthropic", request("bedrock", env=AWS, region=value)).kind == "invalid_value"
    assert refused("anthropic", request("bedrock", env=AWS | {"AWS_REGION": value})).kind in (
        "invalid_value",
        "missing_value",
    )
    error = refused("openai", request("azure", env=AZURE, resource=value))
    assert (error.kind, error.message) == ("invalid_value", "The resource for openai on azure is not a name.")


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://x.example",
            "x.example",
            "ftp://x.example",
            "https://",
            "https://u:p@x.example",
            "https://x.example?k=v",
        ),
        *(
            "https://x.example/#f",
            "https://{resource}.example",
            "https://[::1",
            "https://x.example:port",
            "javascript:1",
        ),
    ],
)
def test_a_malformed_address_in_a_variable_is_refused_without_its_value(url: str) -> None:
    error = refused("azure", request("azure", env=AZURE | {"AZURE_OPENAI_ENDPOINT": url}))

    assert error.kind == "invalid_value"
    assert url not in str(error)


@given(
    company=st.sampled_from(sorted(endpoint_manifests())),
    index=st.integers(0, 4),
    region=st.text(max_size=12),
    resource=st.text(max_size=12),
    provided=st.booleans(),
)
def test_a_binding_is_whole_or_there_is_a_typed_error(
    company: str, index: int, region: str, resource: str, provided: bool
) -> None:
    manifest = endpoint_manifest(company)
    desc = manifest.hosts[index % len(manifest.hosts)]
    env = {name: "https://x.example" if name.endswith("ENDPOINT") else "v" for name in desc.env_keys if provided}
    wanted = request(desc.host, desc.auth_modes[0], env=env, region=region, resource=resource)
    try:
        binding = resolve(manifest, wanted)
    except EndpointError:
        return

    assert "{" not in binding.base_url
    assert set(binding.env) <= set(desc.env_keys)
    assert bool(binding.env) == desc.needs_api_key


@pytest.mark.req("DM-ENDP-009")
def test_the_environment_of_the_process_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from the process")
    imports = {
        alias.name if isinstance(node, ast.Import) else node.module
        for path in Path(makai.harness.endpoints.__path__[0]).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }

    assert refused("anthropic", request("direct")).kind == "missing_key"
    assert os.environ["ANTHROPIC_API_KEY"] == "from the process"
    assert "os" not in imports


def test_a_manifest_of_another_author_needs_all_of_its_variables() -> None:
    host = HostDesc(
        host="direct",
        protocol="openai-chat",
        auth_modes=("byok",),
        brings_own_auth=False,
        needs_api_key=True,
        cost_model="metered",
        base_url_tmpl="https://{port}.example",
        env_keys=("A", "B"),
    )
    manifest = ModelEndpointManifest(company="acme", human_label="Acme", speaks=("openai-chat",), hosts=(host,))
    with pytest.raises(EndpointError) as one:
        resolve(manifest, request("direct", env={"A": "1"}))
    with pytest.raises(EndpointError) as two:
        resolve(manifest, request("direct", env={"A": "1", "B": "2"}))

    assert (one.value.kind, one.value.hint) == ("missing_key", "Set B.")
    assert (two.value.kind, two.value.hint) == ("missing_value", "Give the port.")


@pytest.mark.req("DM-ENDP-009")
def test_a_company_offers_its_manifest_and_resolves_requests() -> None:
    local: ModelEndpointProvider = CompanyEndpoint("local")
    wanted = request("local", "local")

    assert local.manifest() == endpoint_manifest("local")
    assert local.resolve(wanted) == resolve(endpoint_manifest("local"), wanted)
    assert msgspec.structs.replace(wanted, model="n").env_provided == {}
