"""The filter and resolve semantics of `models_request`."""

from __future__ import annotations

import json

import msgspec
import pytest

from makai.catalog.listing import DYNAMIC_MAX_AGE_MS, STATIC_MAX_AGE_MS, descriptor_of, list_models
from makai.catalog.model_ref import format_model_ref, parse_model_ref
from makai.catalog.models import AuthStatus, ModelDescriptor, ModelLifecycle, ModelRow, ModelSource, ModelsRequest
from makai.catalog.resolver import Resolver
from makai.core.errors import InvalidRequest, ModelNotFound
from makai.core.model import ModelCapability
from makai.core.usage import Price

NOW = 1_760_000_000_000


def model(
    provider: str,
    api: str,
    model_id: str,
    *,
    auth: AuthStatus = AuthStatus.AUTHENTICATED,
    lifecycle: ModelLifecycle = ModelLifecycle.STABLE,
    source: ModelSource = ModelSource.STATIC_FALLBACK,
) -> ModelDescriptor:
    return ModelDescriptor(
        model_ref=format_model_ref(provider, api, model_id),
        model_id=model_id,
        display_name=model_id.title(),
        provider_id=provider,
        api=api,
        auth_status=auth,
        lifecycle=lifecycle,
        capabilities=(ModelCapability.CHAT, ModelCapability.STREAMING),
        source=source,
    )


RESPONSES = model("openai", "openai-responses", "gpt-6")
CHAT = model("openai", "openai-completions", "gpt-6")
OLD = model("openai", "openai-responses", "gpt-5", lifecycle=ModelLifecycle.DEPRECATED)
LOCKED = model("groq", "openai-completions", "oss", auth=AuthStatus.LOGIN_REQUIRED)
EXPIRED = model("xai", "openai-completions", "grok", auth=AuthStatus.EXPIRED)
COLON = model("ollama", "ollama", "qwen2.5:7b")
EVERY = (RESPONSES, CHAT, OLD, LOCKED, EXPIRED, COLON)


def listed(request: ModelsRequest) -> tuple[ModelDescriptor, ...]:
    return list_models(request, EVERY, fetched_at_ms=NOW).models


@pytest.mark.req("MK-MODEL-008")
@pytest.mark.parametrize(
    ("request_", "models"),
    [
        (ModelsRequest(), (RESPONSES, CHAT, LOCKED, EXPIRED, COLON)),
        (ModelsRequest(provider_id="openai"), (RESPONSES, CHAT)),
        (ModelsRequest(api="openai-completions"), (CHAT, LOCKED, EXPIRED)),
        (ModelsRequest(provider_id="openai", api="openai-completions"), (CHAT,)),
        (ModelsRequest(provider_id="unknown"), ()),
        (ModelsRequest(api="nothing"), ()),
    ],
)
def test_provider_and_api_restrict_a_list(request_: ModelsRequest, models: tuple[ModelDescriptor, ...]) -> None:
    assert listed(request_) == models


@pytest.mark.req("MK-MODEL-002")
def test_an_empty_string_filter_is_an_absent_one() -> None:
    empty = msgspec.json.decode(b'{"provider_id": "", "api": "", "model_id": ""}', type=ModelsRequest)
    absent = msgspec.json.decode(b"{}", type=ModelsRequest)
    assert listed(empty) == listed(absent) == listed(ModelsRequest())


@pytest.mark.req("MK-MODEL-009")
def test_a_model_id_is_matched_exactly() -> None:
    assert listed(ModelsRequest(model_id="qwen2.5:7b")) == (COLON,)
    for inexact in ("qwen2.5", "2.5:7", "QWEN2.5:7B", "qwen2.5%3A7b", "qwen2.5:7b "):
        with pytest.raises(ModelNotFound):
            listed(ModelsRequest(model_id=inexact))


@pytest.mark.req("MK-MODEL-010")
def test_deprecated_models_come_only_when_asked_for() -> None:
    assert OLD not in listed(ModelsRequest())
    assert listed(ModelsRequest(include_deprecated=True)) == EVERY
    assert listed(ModelsRequest(model_id="gpt-5", include_deprecated=True)) == (OLD,)
    with pytest.raises(ModelNotFound, match="model not found: gpt-5 is deprecated"):
        listed(ModelsRequest(model_id="gpt-5"))


@pytest.mark.req("MK-MODEL-010")
def test_only_login_required_models_go_when_not_wanted() -> None:
    assert LOCKED in listed(ModelsRequest())
    assert listed(ModelsRequest(include_login_required=False)) == (RESPONSES, CHAT, EXPIRED, COLON)


@pytest.mark.req("MK-MODEL-011")
def test_a_model_id_with_several_matches_needs_an_api() -> None:
    with pytest.raises(InvalidRequest) as caught:
        listed(ModelsRequest(provider_id="openai", model_id="gpt-6"))
    assert caught.value.code == "invalid_request"
    assert not isinstance(caught.value, ModelNotFound)
    assert CHAT.model_ref in caught.value.message
    assert listed(ModelsRequest(provider_id="openai", api="openai-completions", model_id="gpt-6")) == (CHAT,)


@pytest.mark.req("MK-MODEL-012")
@pytest.mark.parametrize(
    "request_",
    [
        ModelsRequest(model_id="none"),
        ModelsRequest(provider_id="xai", model_id="gpt-6"),
        ModelsRequest(model_id="oss", include_login_required=False),
    ],
)
def test_a_model_id_without_a_match_is_not_found(request_: ModelsRequest) -> None:
    with pytest.raises(ModelNotFound, match="model not found") as caught:
        listed(request_)
    assert caught.value.code == "invalid_request"


@pytest.mark.req("MK-MODEL-017")
def test_static_answers_may_be_kept_longer_than_fetched_ones() -> None:
    fetched = model("ollama", "ollama", "new", source=ModelSource.DYNAMIC)
    static = list_models(ModelsRequest(), (COLON,), fetched_at_ms=NOW)
    mixed = list_models(ModelsRequest(), (COLON, fetched), fetched_at_ms=NOW)
    assert (static.models, static.fetched_at_ms, static.cache_max_age_ms) == ((COLON,), NOW, STATIC_MAX_AGE_MS)
    assert (mixed.models, mixed.fetched_at_ms, mixed.cache_max_age_ms) == ((COLON, fetched), NOW, DYNAMIC_MAX_AGE_MS)
    assert (STATIC_MAX_AGE_MS, DYNAMIC_MAX_AGE_MS) == (3_600_000, 300_000)


@pytest.mark.req("MK-MODEL-028")
def test_several_hundred_models_come_in_one_answer_without_a_cursor() -> None:
    many = [model("openrouter", "openai-completions", f"m/{number}") for number in range(700)]
    response = list_models(ModelsRequest(), many, fetched_at_ms=NOW)
    wire = json.loads(msgspec.json.encode(response))
    assert sorted(wire) == ["cache_max_age_ms", "fetched_at_ms", "models"]
    assert [entry["model_id"] for entry in wire["models"]] == [f"m/{number}" for number in range(700)]


@pytest.mark.req("MK-MODEL-004", "MK-MODEL-006")
def test_a_descriptor_has_what_is_always_known_and_of_the_rest_only_what_is_known() -> None:
    assert json.loads(msgspec.json.encode(COLON)) == {
        "model_ref": "ollama/ollama@qwen2.5%3A7b",
        "model_id": "qwen2.5:7b",
        "display_name": "Qwen2.5:7B",
        "provider_id": "ollama",
        "api": "ollama",
        "auth_status": "authenticated",
        "lifecycle": "stable",
        "capabilities": ["chat", "streaming"],
        "source": "static_fallback",
    }


@pytest.mark.req("MK-MODEL-004", "MK-MODEL-007", "MK-MODEL-021")
def test_a_row_becomes_a_descriptor_with_its_id_untouched() -> None:
    row = ModelRow(
        provider="ollama",
        id="hf.co/Some Org/modèle:q4@x",
        name="Some model",
        context_window=4096,
        max_output_tokens=512,
        reasoning_default="low",
        price=Price(input=0.5, output=2),
        lifecycle=ModelLifecycle.PREVIEW,
    )
    descriptor = descriptor_of(row, "ollama", AuthStatus.UNKNOWN, ModelSource.DYNAMIC, base_url="http://box:11434")
    assert descriptor == ModelDescriptor(
        model_ref="ollama/ollama@hf.co%2FSome%20Org%2Fmod%C3%A8le%3Aq4%40x",
        model_id="hf.co/Some Org/modèle:q4@x",
        display_name="Some model",
        provider_id="ollama",
        api="ollama",
        auth_status=AuthStatus.UNKNOWN,
        lifecycle=ModelLifecycle.PREVIEW,
        capabilities=(ModelCapability.CHAT, ModelCapability.STREAMING),
        source=ModelSource.DYNAMIC,
        base_url="http://box:11434",
        context_window=4096,
        max_output_tokens=512,
        reasoning_default="low",
        metadata={"price_input_usd_per_mtok": "0.5", "price_output_usd_per_mtok": "2"},
    )
    assert msgspec.json.decode(msgspec.json.encode(descriptor), type=ModelDescriptor) == descriptor


@pytest.mark.req("MK-MODEL-007")
def test_metadata_takes_string_values_only() -> None:
    wire = json.loads(msgspec.json.encode(COLON))
    for metadata in ({"a": 1}, ["a"], {"a": None}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wire | {"metadata": metadata}, ModelDescriptor)


@pytest.mark.req("MK-MODEL-006")
def test_capabilities_are_strings_on_the_wire_and_enum_members_inside() -> None:
    names = ["chat", "streaming", "tools", "vision", "reasoning", "prompt_cache", "audio_input", "audio_output"]
    wire = json.loads(msgspec.json.encode(COLON)) | {"capabilities": names}
    decoded = msgspec.convert(wire, ModelDescriptor)
    assert decoded.capabilities == tuple(ModelCapability)
    assert all(isinstance(capability, ModelCapability) for capability in decoded.capabilities)
    assert json.loads(msgspec.json.encode(decoded))["capabilities"] == names


@pytest.mark.req("MK-MODEL-005")
@pytest.mark.parametrize(
    ("field", "allowed"),
    [
        ("lifecycle", {"stable", "preview", "deprecated"}),
        ("source", {"dynamic", "static_fallback"}),
        ("reasoning_default", {"off", "minimal", "low", "medium", "high", "xhigh"}),
        (
            "auth_status",
            {"authenticated", "login_required", "expired", "refreshing", "login_in_progress", "failed", "unknown"},
        ),
    ],
)
def test_closed_words_are_closed(field: str, allowed: set[str]) -> None:
    wire = json.loads(msgspec.json.encode(COLON))
    for word in allowed:
        assert getattr(msgspec.convert(wire | {field: word}, ModelDescriptor), field) == word
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wire | {field: "other"}, ModelDescriptor)


@pytest.mark.parametrize("payload", ['{"api": 1}', '{"model_id": null}', '{"include_deprecated": "yes"}', "[]"])
def test_a_wrongly_typed_filter_does_not_decode(payload: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(payload, type=ModelsRequest)


@pytest.mark.req("MK-MODEL-015")
def test_one_broken_provider_does_not_fail_the_listing() -> None:
    resolver = Resolver({"OPENAI_API_KEY": "k", "GROQ_API_KEY": "k", "GROQ_BASE_URL": "nonsense"})
    models = list_models(ModelsRequest(), resolver.descriptors(), fetched_at_ms=NOW).models
    statuses = {entry.provider_id: entry.auth_status for entry in models}
    assert (statuses["openai"], statuses["anthropic"]) == (AuthStatus.AUTHENTICATED, AuthStatus.LOGIN_REQUIRED)
    assert (statuses["groq"], statuses["ollama"]) == (AuthStatus.FAILED, AuthStatus.AUTHENTICATED)


@pytest.mark.req("MK-MODEL-021")
def test_every_listed_ref_resolves_to_the_model_it_was_issued_for() -> None:
    resolver = Resolver({})
    for entry in resolver.descriptors():
        resolved = resolver.resolve(entry.model_ref)
        assert (resolved.provider, resolved.api, resolved.id) == (entry.provider_id, entry.api, entry.model_id)
        assert parse_model_ref(entry.model_ref).model_id == entry.model_id
        assert (resolved.capabilities, resolved.base_url) == (entry.capabilities, entry.base_url)
