"""Base URLs and key origins under an environment."""

from __future__ import annotations

import pytest

from makai.catalog.vendor_table import builtin_vendors
from makai.catalog.vendors import base_url_of, key_source_of, ollama_url, options_of
from makai.core.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("myhost", "http://myhost:11434"), ("myhost:8000", "http://myhost:8000"),
        ("127.0.0.1", "http://127.0.0.1:11434"), ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000"), (":8000", "http://127.0.0.1:8000"), ("::1", "http://[::1]:11434"),
        ("[::1]:8000", "http://[::1]:8000"), ("[::]:8000", "http://[::1]:8000"), ("http://myhost", "http://myhost"),
        ("http://myhost:8000", "http://myhost:8000"), ("https://ollama.example/base", "https://ollama.example/base"),
        (" http://myhost:8000/ ", "http://myhost:8000/"),
    ],
)  # fmt: skip
def test_ollama_host_in_its_loose_forms(text: str, url: str) -> None:
    assert ollama_url(text) == url


@pytest.mark.parametrize(
    ("provider", "api", "environ", "url"),
    [
        ("openai", "openai-responses", {}, "https://api.openai.com/v1"),
        ("openai", "openai-completions", {"OPENAI_BASE_URL": "http://localhost:1/v1/"}, "http://localhost:1/v1"),
        ("openai", "openai-responses", {"OPENAI_BASE_URL": "https://proxy.example/x"}, "https://proxy.example/x"),
        ("anthropic", "anthropic-messages", {}, "https://api.anthropic.com"),
        ("anthropic", "anthropic-messages", {"ANTHROPIC_BASE_URL": "http://h:1"}, "http://h:1"),
        ("anthropic", "anthropic-messages", {"ANTHROPIC_BASE_URL": "http://h:1/v1"}, "http://h:1"),
        ("google", "google-generative-ai", {"GEMINI_BASE_URL": "http://h:1/v1beta/"}, "http://h:1"),
        ("ollama", "ollama", {}, "http://127.0.0.1:11434"),
        ("ollama", "openai-completions", {}, "http://127.0.0.1:11434/v1"),
        ("ollama", "ollama", {"OLLAMA_HOST": "box"}, "http://box:11434"),
        ("ollama", "openai-completions", {"OLLAMA_HOST": "http://box:80/api"}, "http://box:80/v1"),
        ("azure", "azure-openai-responses", {}, ""),
        (
            "azure",
            "azure-openai-responses",
            {"AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com/openai/v1/"},
            "https://me.openai.azure.com",
        ),
        ("groq", "openai-completions", {}, "https://api.groq.com/openai/v1"),
        ("groq", "openai-completions", {"GROQ_BASE_URL": "http://h:1/v1"}, "http://h:1/v1"),
        ("deepseek", "openai-completions", {}, "https://api.deepseek.com"),
        ("llama.cpp", "openai-completions", {"LLAMA_CPP_BASE_URL": "http://h:1/v1"}, "http://h:1/v1"),
        ("llama.cpp", "anthropic-messages", {"LLAMA_CPP_BASE_URL": "http://h:1/v1"}, "http://h:1"),
        ("llama.cpp", "anthropic-messages", {}, "http://127.0.0.1:8080"),
        ("local", "openai-completions", {}, ""),
    ],
)
def test_base_urls_are_what_the_official_sdk_takes(provider: str, api: str, environ: dict[str, str], url: str) -> None:
    assert base_url_of(builtin_vendors()[provider], api, environ, {}) == url


def test_the_runtime_knows_where_the_local_server_is() -> None:
    runtime = {"local": "http://127.0.0.1:40001/v1"}
    local = builtin_vendors()["local"]
    assert {api: base_url_of(local, api, {}, runtime) for api in local.apis} == {
        "openai-completions": "http://127.0.0.1:40001/v1",
        "openai-responses": "http://127.0.0.1:40001/v1",
        "anthropic-messages": "http://127.0.0.1:40001",
    }


def test_a_base_url_in_the_environment_widens_where_the_key_may_go() -> None:
    openai = builtin_vendors()["openai"]
    plain = key_source_of(openai, {}, {})
    proxied = key_source_of(openai, {"OPENAI_BASE_URL": "http://localhost:9/v1"}, {})
    assert plain.origins == {"https://api.openai.com:443"}
    assert proxied.origins == {"https://api.openai.com:443", "http://localhost:9"}


def test_the_ollama_key_goes_to_the_hosted_service_only_unless_the_user_says_so() -> None:
    ollama = builtin_vendors()["ollama"]
    assert key_source_of(ollama, {}, {}).origins == {"https://ollama.com:443"}
    named = key_source_of(ollama, {"OLLAMA_HOST": "127.0.0.1:11434"}, {})
    assert named.origins == {"https://ollama.com:443", "http://127.0.0.1:11434"}


@pytest.mark.parametrize("value", ["not a url", "ftp://h", "https://user:pw@h/v1"])
def test_a_broken_base_url_names_its_variable_and_keeps_its_password(value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        base_url_of(builtin_vendors()["openai"], "openai-responses", {"OPENAI_BASE_URL": value}, {})
    assert "OPENAI_BASE_URL" in str(caught.value)
    assert "pw" not in str(caught.value)


def test_options_come_from_the_first_variable_that_is_set() -> None:
    azure = builtin_vendors()["azure"]
    assert options_of(azure, {}) == {}
    assert options_of(azure, {"OPENAI_API_VERSION": "preview"}) == {"api_version": "preview"}
    both = {"OPENAI_API_VERSION": "preview", "AZURE_OPENAI_API_VERSION": "2025-04-01-preview"}
    assert options_of(azure, both) == {"api_version": "2025-04-01-preview"}
