"""Every way to name a model, and every way to get it wrong."""

from __future__ import annotations

import pytest

from makai.catalog.models import AuthStatus, ModelRow
from makai.catalog.resolver import Resolver
from makai.catalog.vendor_table import builtin_vendors
from makai.catalog.vendors import ASSUMED_CAPABILITIES
from makai.core.errors import AuthRequired, InvalidRequest, ModelNotFound, ModelRefError, ModelRetired
from makai.core.model import ChatQuirks, Model, ModelCapability
from makai.core.usage import Price


@pytest.fixture
def resolver() -> Resolver:
    return Resolver({})


def named(model: Model) -> tuple[str, str, str]:
    return model.provider, model.api, model.id


@pytest.mark.parametrize(
    ("text", "triple"),
    [
        ("anthropic/anthropic-messages@claude-opus-5-5", ("anthropic", "anthropic-messages", "claude-opus-5-5")),
        ("anthropic/claude-opus-5-5", ("anthropic", "anthropic-messages", "claude-opus-5-5")),
        ("claude-opus-5-5", ("anthropic", "anthropic-messages", "claude-opus-5-5")),
        ("claude/claude-opus-5-5", ("anthropic", "anthropic-messages", "claude-opus-5-5")),
        ("openai/gpt-6.1-sol", ("openai", "openai-responses", "gpt-6.1-sol")),
        ("openai/openai-completions@gpt-6.1-sol", ("openai", "openai-completions", "gpt-6.1-sol")),
        ("ollama/ollama@qwen2.5%3A7b", ("ollama", "ollama", "qwen2.5:7b")),
        ("ollama/qwen2.5:7b", ("ollama", "ollama", "qwen2.5:7b")),
        ("qwen2.5:7b", ("ollama", "ollama", "qwen2.5:7b")),
        ("groq/openai/gpt-oss-120b", ("groq", "openai-completions", "openai/gpt-oss-120b")),
        ("openrouter/meta-llama/llama-3.3-70b", ("openrouter", "openai-completions", "meta-llama/llama-3.3-70b")),
        ("openrouter/openrouter/auto", ("openrouter", "openai-completions", "openrouter/auto")),
        ("zai-org/GLM-5.3", ("together", "openai-completions", "zai-org/GLM-5.3")),
        ("anthropic/claude-haiku-4-5@20251001", ("anthropic", "anthropic-messages", "claude-haiku-4-5@20251001")),
        ("local/smollm2", ("local", "openai-completions", "smollm2-135m")),
    ],
)
def test_a_model_can_be_named_by_ref_by_provider_and_id_or_by_a_unique_id(
    resolver: Resolver, text: str, triple: tuple[str, str, str]
) -> None:
    assert named(resolver.resolve(text)) == triple


def test_a_known_model_comes_with_its_facts(resolver: Resolver) -> None:
    assert resolver.resolve("anthropic/claude-opus-5-5") == Model(
        id="claude-opus-5-5",
        api="anthropic-messages",
        provider="anthropic",
        base_url="https://api.anthropic.com",
        name="Claude Opus 5.5",
        capabilities=(*ASSUMED_CAPABILITIES, ModelCapability.PROMPT_CACHE),
        context_window=1_000_000,
        max_output_tokens=128_000,
        reasoning_default="medium",
        price=Price(input=4, output=20, cache_read=0.2, cache_write=5),
        quirks=ChatQuirks(reasoning_efforts=("low", "medium", "high", "xhigh", "max")),
    )


def test_an_unknown_model_of_a_known_vendor_gets_the_vendors_defaults(resolver: Resolver) -> None:
    assert resolver.resolve("mistral/brand-new") == Model(
        id="brand-new",
        api="openai-completions",
        provider="mistral",
        base_url="https://api.mistral.ai/v1",
        name="brand-new",
        capabilities=ASSUMED_CAPABILITIES,
        quirks=builtin_vendors()["mistral"].quirks,
    )


def test_a_dated_snapshot_has_the_facts_of_its_model_and_its_own_id(resolver: Resolver) -> None:
    snapshot = resolver.resolve("anthropic/claude-haiku-4-5-20251001")
    assert (snapshot.id, snapshot.name) == ("claude-haiku-4-5-20251001", "Claude Haiku 4.5")
    assert snapshot.context_window == 200_000


@pytest.mark.req("MK-MODEL-023")
@pytest.mark.parametrize(
    ("alias", "ref"),
    [
        ("deepseek/openai-completions@deepseek-v4-flash", "deepseek/openai-completions@deepseek-flash"),
        ("deepseek/deepseek-v4-flash", "deepseek/openai-completions@deepseek-flash"),
        ("gemini/google-generative-ai@gemini-3.8-flash", "google/google-generative-ai@gemini-3.8-flash"),
    ],
)
def test_a_legacy_alias_is_remapped_to_the_canonical_ref(resolver: Resolver, alias: str, ref: str) -> None:
    assert resolver.resolve(alias) == resolver.resolve(ref)


@pytest.mark.parametrize(
    ("text", "successor"),
    [
        ("openai/openai-completions@gpt-3.5-turbo", "openai/openai-responses@gpt-5.6-terra"),
        ("groq/llama-3.3-70b-versatile", "groq/openai-completions@openai%2Fgpt-oss-120b"),
        ("claude-3-opus-20240229", "anthropic/anthropic-messages@claude-opus-5-5"),
    ],
)
def test_a_retired_model_names_its_successor(resolver: Resolver, text: str, successor: str) -> None:
    with pytest.raises(ModelRetired) as caught:
        resolver.resolve(text)
    assert caught.value.code == "model_not_found"
    assert "model not found" in caught.value.message
    assert successor in caught.value.message
    assert resolver.resolve(successor).base_url


@pytest.mark.req("MK-PROV-002")
def test_an_unknown_provider_names_the_known_ones_and_what_was_meant(resolver: Resolver) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolver.resolve("antropic/claude-opus-5-5")
    assert "model not found" in str(caught.value)
    assert "Did you mean anthropic?" in str(caught.value)
    assert "openrouter" in str(caught.value)


def test_a_mistyped_model_id_gets_suggestions(resolver: Resolver) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolver.resolve("claude-opus-5.5")
    assert "Did you mean claude-opus-5-5" in str(caught.value)


@pytest.mark.req("MK-PROV-002")
@pytest.mark.parametrize("text", ["", "no-such-model", "local/llama", "scripted/story", "openai/", "/gpt", "a/b@c"])
def test_a_name_of_nothing_is_not_found(resolver: Resolver, text: str) -> None:
    with pytest.raises(ModelNotFound, match="model not found"):
        resolver.resolve(text)


@pytest.mark.parametrize("text", ["x" * 1_000_000, "y" * 1_000_000 + "/z", "local/" + "z" * 500])
def test_an_absurdly_long_name_is_refused_briefly(resolver: Resolver, text: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        resolver.resolve(text)
    assert len(str(caught.value)) < 600


def test_a_model_id_of_several_providers_must_be_qualified() -> None:
    rows = [ModelRow(provider=provider, id="twin", name="Twin") for provider in ("groq", "together")]
    with pytest.raises(InvalidRequest) as caught:
        Resolver({}, rows=rows).resolve("twin")
    assert "groq/twin, together/twin" in str(caught.value)


def test_a_vendor_is_not_asked_in_an_api_it_does_not_speak(resolver: Resolver) -> None:
    with pytest.raises(InvalidRequest, match="anthropic does not speak 'openai-responses'"):
        resolver.resolve("anthropic/openai-responses@claude-opus-5-5")


def test_a_malformed_ref_is_refused(resolver: Resolver) -> None:
    with pytest.raises(ModelRefError):
        resolver.resolve("openai/openai-responses@gpt 6")


def test_rows_of_the_runtime_are_found_and_win() -> None:
    rows = [
        ModelRow(provider="scripted", id="story", name="A story"),
        ModelRow(provider="openai", id="gpt-6.1-sol", name="Newer facts", context_window=5),
    ]
    resolver = Resolver({}, rows=rows)
    story = Model(id="story", api="scripted", provider="scripted", base_url="", name="A story")
    assert resolver.resolve("scripted/story") == story
    assert resolver.resolve("gpt-6.1-sol").context_window == 5
    names = [model.display_name for model in resolver.descriptors() if model.model_id == "gpt-6.1-sol"]
    assert names == ["Newer facts"]


def test_base_urls_of_environment_and_runtime_are_applied() -> None:
    environ = {"OPENAI_BASE_URL": "http://localhost:1/v1", "OLLAMA_HOST": "box"}
    resolver = Resolver(environ, base_urls={"local": "http://127.0.0.1:2/v1"})
    urls = [resolver.resolve(name).base_url for name in ("openai/gpt-6.1-sol", "ollama/x", "local/smollm2")]
    assert urls == ["http://localhost:1/v1", "http://box:11434", "http://127.0.0.1:2/v1"]


def test_azure_needs_an_endpoint() -> None:
    with pytest.raises(InvalidRequest, match="AZURE_OPENAI_ENDPOINT"):
        Resolver({}).resolve("azure/my-deployment")
    environ = {"AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com/", "OPENAI_API_VERSION": "preview"}
    model = Resolver(environ).resolve("azure/my-deployment")
    assert (model.base_url, model.options) == ("https://me.openai.azure.com", {"api_version": "preview"})


def test_a_callers_bare_object_is_filled_in(resolver: Resolver) -> None:
    bare = Model(id="claude-opus-5-5", api="anthropic-messages", provider="anthropic", base_url="")
    assert resolver.resolve_object(bare) == resolver.resolve("claude-opus-5-5")


def test_what_a_callers_object_states_is_kept(resolver: Resolver) -> None:
    stated = Model(
        id="gpt-6.1-sol",
        api="openai-completions",
        provider="openai",
        base_url="https://proxy.example/v1",
        name="Mine",
        capabilities=(ModelCapability.CHAT,),
        context_window=1,
        max_output_tokens=2,
        reasoning_default="low",
        price=Price(input=1, output=1),
        quirks=ChatQuirks(store=False, tool_id_length=7),
        options={"x": "y"},
    )
    assert resolver.resolve_object(stated) == stated


def test_a_callers_own_server_needs_no_vendor_but_an_address(resolver: Resolver) -> None:
    own = Model(id="m", api="openai-completions", provider="my-server", base_url="http://10.0.0.1:8000/v1")
    assert resolver.resolve_object(own) == own
    assert resolver.credential_for(own) is None
    with pytest.raises(ModelNotFound):
        resolver.resolve_object(Model(id="m", api="openai-completions", provider="my-server", base_url=""))
    with pytest.raises(InvalidRequest):
        resolver.resolve_object(Model(id="m", api="ollama", provider="anthropic", base_url=""))
    with pytest.raises(InvalidRequest):
        resolver.resolve_object(Model(id="m", api="x", provider="y", base_url="https://a@b/"))
    with pytest.raises(ModelRetired):
        resolver.resolve_object(Model(id="o1", api="openai-responses", provider="openai", base_url=""))


def test_a_callers_base_url_gets_no_key_but_the_users_does() -> None:
    key = {"OPENAI_API_KEY": "sk-1"}
    elsewhere = Model(id="m", api="openai-responses", provider="openai", base_url="https://evil.example/v1")
    with pytest.raises(AuthRequired, match="is not sent to"):
        Resolver(key).credential_for(Resolver(key).resolve_object(elsewhere))
    proxied = Resolver(key | {"OPENAI_BASE_URL": "https://proxy.example/v1"})
    credential = proxied.credential_for(proxied.resolve("openai/m"))
    assert credential is not None
    assert credential.secret.reveal() == "sk-1"


def test_a_missing_key_is_explained_and_a_local_model_needs_none(resolver: Resolver) -> None:
    with pytest.raises(AuthRequired, match="makai auth login groq`, or set GROQ_API_KEY"):
        resolver.credential_for(resolver.resolve("groq/openai/gpt-oss-120b"))
    for name in ("local/smollm2", "ollama/qwen2.5:7b", "vllm/m", "llama.cpp/m", "lmstudio/m"):
        assert resolver.credential_for(resolver.resolve(name)) is None


@pytest.mark.parametrize(
    ("environ", "model"),
    [
        ({}, ("local", "openai-completions", "smollm2-135m")),
        ({"GROQ_API_KEY": "k"}, ("groq", "openai-completions", "openai/gpt-oss-120b")),
        ({"GROQ_API_KEY": "k", "OPENAI_API_KEY": "k"}, ("openai", "openai-responses", "gpt-6.1-sol")),
        ({"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}, ("anthropic", "anthropic-messages", "claude-sonnet-5-5")),
        ({"GOOGLE_API_KEY": "k"}, ("google", "google-generative-ai", "gemini-3.8-flash")),
        ({"OPENAI_API_KEY": " "}, ("local", "openai-completions", "smollm2-135m")),
    ],
)
def test_the_default_model_is_of_the_first_credential(environ: dict[str, str], model: tuple[str, str, str]) -> None:
    assert named(Resolver(environ).default_model()) == model


def test_auth_status_never_raises() -> None:
    resolver = Resolver({"OPENAI_API_KEY": "k", "GROQ_BASE_URL": "nonsense", "GROQ_API_KEY": "k", "XAI_API_KEY": "é"})
    providers = ("openai", "anthropic", "groq", "xai", "ollama", "local", "unknown")
    expected = ("authenticated", "login_required", "failed", "failed", "authenticated", "authenticated", "unknown")
    assert tuple(resolver.auth_status(provider) for provider in providers) == tuple(map(AuthStatus, expected))
