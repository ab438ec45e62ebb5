"""What each kind of vendor is asked, and what its list of models becomes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_strategies import values

from makai.catalog import discovery
from makai.catalog.discovery import NOT_CHAT, ListingPage, ListingRequest, is_offered, listing_request, read_listing
from makai.catalog.models import ModelLifecycle, ModelRow, builtin
from makai.catalog.vendor_table import builtin_vendors
from makai.catalog.vendors import ASSUMED_CAPABILITIES
from makai.core.errors import ParseError
from makai.core.model import ModelCapability
from makai.core.secret import Secret
from makai.core.usage import Price

CHAT, STREAMING, TOOLS, VISION, REASONING = ASSUMED_CAPABILITIES
KEY = Secret("test-key")
BEARER = {"Authorization": Secret("Bearer test-key")}
LISTING_VENDORS = [vendor.id for vendor in builtin_vendors().values() if vendor.listing != "none"]


def page(provider_id: str, value: Any) -> ListingPage:
    return read_listing(builtin_vendors()[provider_id], msgspec.json.encode(value))


def row(provider: str, id: str, name: str, **facts: Any) -> ModelRow:
    return ModelRow(provider=provider, id=id, name=name, **({"capabilities": ASSUMED_CAPABILITIES} | facts))


def only_row(provider_id: str, value: Any) -> ModelRow:
    (found,) = page(provider_id, value).rows
    return found


def in_data(**entry: Any) -> Any:
    return {"object": "list", "data": [entry]}


@pytest.mark.parametrize(
    ("provider_id", "base_url", "cursor", "expected"),
    [
        ("openai", "https://h/v1", "", ListingRequest(url="https://h/v1/models", headers={**BEARER})),
        ("deepseek", "https://h/", "", ListingRequest(url="https://h/models", headers={**BEARER})),
        ("ollama", "http://h:1", "", ListingRequest(url="http://h:1/api/tags", headers={**BEARER})),
        ("openrouter", "https://h/api/v1", "", ListingRequest(url="https://h/api/v1/models", headers={**BEARER})),
        (
            "openrouter",
            "https://h/api/v1",
            "offset=500&limit=500",
            ListingRequest(url="https://h/api/v1/models?offset=500&limit=500", headers={**BEARER}),
        ),
        (
            "anthropic",
            "https://h",
            "claude/b c",
            ListingRequest(
                url="https://h/v1/models?limit=1000&after_id=claude%2Fb%20c",
                headers={"anthropic-version": "2023-06-01", "x-api-key": KEY},
            ),
        ),
        (
            "google",
            "https://h",
            "a&b",
            ListingRequest(
                url="https://h/v1beta/models?pageSize=1000&pageToken=a%26b", headers={"x-goog-api-key": KEY}
            ),
        ),
    ],
)
def test_a_vendor_is_asked_where_and_how_its_documentation_says(
    provider_id: str, base_url: str, cursor: str, expected: ListingRequest
) -> None:
    assert listing_request(builtin_vendors()[provider_id], base_url, KEY, cursor) == expected


def test_a_login_token_of_anthropic_is_sent_as_a_bearer_token() -> None:
    token = Secret("sk-ant-oat01-test")

    assert listing_request(builtin_vendors()["anthropic"], "https://h", token).headers == {
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "oauth-2025-04-20",
        "Authorization": Secret("Bearer sk-ant-oat01-test"),
    }


@pytest.mark.parametrize("provider_id", LISTING_VENDORS)
def test_without_a_credential_none_is_sent(provider_id: str) -> None:
    headers = listing_request(builtin_vendors()[provider_id], "https://h", None).headers

    assert [value for value in headers.values() if isinstance(value, Secret)] == []


def test_a_bare_openai_entry_gives_the_id_and_what_we_assume_of_any_model() -> None:
    entry = {"id": "gpt-9:new/one", "object": "model", "created": 1, "owned_by": "openai"}

    assert page("openai", in_data(**entry)) == ListingPage(rows=(row("openai", "gpt-9:new/one", "gpt-9:new/one"),))


@pytest.mark.parametrize(
    ("provider_id", "entry", "facts"),
    [
        (
            "groq",
            {"context_window": 131072, "max_completion_tokens": 32768},
            {"context_window": 131072, "max_output_tokens": 32768},
        ),
        ("vllm", {"max_model_len": 40960}, {"context_window": 40960}),
        (
            "llama.cpp",
            {"meta": {"n_ctx": 4096, "n_ctx_train": 8192}, "architecture": {"input_modalities": ["text"]}},
            {"context_window": 4096, "capabilities": (CHAT, STREAMING, TOOLS, REASONING)},
        ),
        (
            "mistral",
            {
                "max_context_length": 9,
                "capabilities": {"completion_chat": True, "function_calling": True, "vision": False},
            },
            {"context_window": 9, "capabilities": (CHAT, STREAMING, TOOLS, REASONING)},
        ),
        (
            "fireworks",
            {"context_length": 1000, "supports_chat": True, "supports_image_input": True, "supports_tools": False},
            {"context_window": 1000, "capabilities": (CHAT, STREAMING, VISION, REASONING)},
        ),
    ],
)
def test_what_compatible_servers_add_to_an_entry_is_used(provider_id: str, entry: Any, facts: dict[str, Any]) -> None:
    assert only_row(provider_id, in_data(id="m", **entry)) == row(provider_id, "m", "m", **facts)


def test_a_bare_list_is_read_too_and_its_other_types_are_left_out() -> None:
    entries = [
        {"id": "zai-org/GLM-9", "type": "chat", "context_length": 200000},
        {"id": "some/picture", "type": "image"},
        {"id": "some/vectors", "type": "embedding"},
    ]

    assert [row.id for row in page("together", entries).rows] == ["zai-org/GLM-9"]


@pytest.mark.parametrize(
    "entry",
    [
        {"capabilities": {"completion_chat": False}},
        {"supports_chat": False},
        {"active": False},
        {"architecture": {"output_modalities": ["image"]}},
    ],
)
def test_what_a_compatible_server_says_cannot_chat_is_left_out(entry: Any) -> None:
    assert page("mistral", in_data(id="m", **entry)).rows == ()


def test_an_anthropic_page_gives_limits_capabilities_and_the_next_cursor() -> None:
    body = {
        "data": [
            {
                "type": "model",
                "id": "claude-next",
                "display_name": "Claude Next",
                "created_at": "2026-06-01T00:00:00Z",
                "max_input_tokens": 1_000_000,
                "max_tokens": 128_000,
                "capabilities": {"image_input": {"supported": False}, "thinking": {"supported": True}},
            },
            {"type": "model", "id": "claude-bare", "display_name": "Claude Bare", "capabilities": None},
        ],
        "has_more": True,
        "first_id": "claude-next",
        "last_id": "claude-bare",
    }

    assert page("anthropic", body) == ListingPage(
        rows=(
            row(
                *("anthropic", "claude-next", "Claude Next"),
                context_window=1_000_000,
                max_output_tokens=128_000,
                capabilities=(CHAT, STREAMING, TOOLS, REASONING),
            ),
            row("anthropic", "claude-bare", "Claude Bare"),
        ),
        next_cursor="claude-bare",
    )


def test_the_last_anthropic_page_has_no_cursor() -> None:
    assert page("anthropic", {"data": [], "has_more": False, "last_id": "x"}) == ListingPage(rows=())


def test_google_lists_what_generates_content_under_the_id_that_its_api_takes() -> None:
    body = {
        "models": [
            {
                "name": "models/gemini-9-flash-preview",
                "displayName": "Gemini 9 Flash",
                "inputTokenLimit": 1_048_576,
                "outputTokenLimit": 65_536,
                "supportedGenerationMethods": ["generateContent", "countTokens"],
                "thinking": False,
            },
            {"name": "models/embedding-001", "supportedGenerationMethods": ["embedContent"]},
            {"displayName": "without a name", "supportedGenerationMethods": ["generateContent"]},
        ],
        "nextPageToken": "page-2",
    }

    assert page("google", body) == ListingPage(
        rows=(
            ModelRow(
                provider="google",
                id="gemini-9-flash-preview",
                name="Gemini 9 Flash",
                context_window=1_048_576,
                max_output_tokens=65_536,
                capabilities=(CHAT, STREAMING, TOOLS, VISION),
                lifecycle=ModelLifecycle.PREVIEW,
            ),
        ),
        next_cursor="page-2",
    )


def test_ollama_lists_tags_and_their_capabilities_where_it_tells_them() -> None:
    body = {
        "models": [
            {"model": "qwen9:4b", "details": {"context_length": 40960}, "capabilities": ["completion", "tools"]}
            | {"name": "qwen9:4b"},
            {"name": "old-server:latest", "details": {"family": "llama"}},
            {"name": "vectors", "model": "vectors", "capabilities": ["embedding"]},
        ]
    }

    assert page("ollama", body).rows == (
        row("ollama", "qwen9:4b", "qwen9:4b", context_window=40960, capabilities=(CHAT, STREAMING, TOOLS)),
        row("ollama", "old-server:latest", "old-server:latest"),
    )


def test_openrouter_tells_prices_modalities_parameters_and_the_next_page() -> None:
    entry = {
        "id": "acme/one",
        "name": "Acme: One",
        "context_length": 200_000,
        "architecture": {"input_modalities": ["text", "audio"], "output_modalities": ["text"]},
        "pricing": {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003", "request": "0"},
        "top_provider": {"max_completion_tokens": 64_000},
        "supported_parameters": ["max_tokens", "tools"],
        "expiration_date": "2027-01-01",
    }
    body = {"data": [entry], "links": {"next": "https://evil.example/api/v1/models?offset=500&limit=500"}}

    assert page("openrouter", body) == ListingPage(
        rows=(
            ModelRow(
                provider="openrouter",
                id="acme/one",
                name="Acme: One",
                context_window=200_000,
                max_output_tokens=64_000,
                capabilities=(CHAT, STREAMING, TOOLS, ModelCapability.AUDIO_INPUT),
                lifecycle=ModelLifecycle.DEPRECATED,
                price=Price(input=3.0, output=15.0, cache_read=0.3),
            ),
        ),
        next_cursor="offset=500&limit=500",
    )


@pytest.mark.parametrize("pricing", [None, {}, {"prompt": "-1", "completion": "-1"}, {"prompt": "x", "completion": []}])
def test_a_price_that_is_missing_or_varies_is_not_guessed(pricing: Any) -> None:
    assert only_row("openrouter", in_data(id="openrouter/auto", pricing=pricing)).price is None


def test_an_entry_nobody_can_use_does_not_hide_the_others() -> None:
    entries = ["text", None, {"id": 7}, {"id": ""}, {"id": "x" * 513}, {"id": "good", "context_window": "many"}]

    assert [row.id for row in page("openai", {"data": entries}).rows] == ["good"]


def test_a_name_that_would_move_the_cursor_of_a_terminal_is_replaced_by_the_id() -> None:
    assert only_row("openrouter", in_data(id="acme/one", name="Acme\x1b[2J")).name == "acme/one"


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"data": {}}', b'"text"', b"\xff", b"[" * 100_000])
def test_what_is_not_a_list_of_models_is_a_parse_error(body: bytes) -> None:
    with pytest.raises(ParseError, match="list of models"):
        read_listing(builtin_vendors()["openai"], body)


NESTED_FIELDS = ("capabilities", "architecture", "pricing", "top_provider", "meta")
PLAIN_FIELDS = ("name", "model", "type", "thinking", "supportedGenerationMethods", "supported_parameters")


@given(provider_id=st.sampled_from(LISTING_VENDORS), value=values)
def test_no_json_breaks_the_reader(provider_id: str, value: Any) -> None:
    inner = dict.fromkeys(("thinking", "input_modalities", "prompt", "completion", "n_ctx"), value)
    entries = [
        value,
        {"id": "m", "name": "m", **dict.fromkeys(NESTED_FIELDS, value)},
        {"id": "n", **dict.fromkeys(NESTED_FIELDS, inner), **dict.fromkeys(PLAIN_FIELDS, value)},
    ]
    ends = {"has_more": True, "last_id": value, "nextPageToken": value, "links": {"next": value}}

    found = page(provider_id, {"data": entries, "models": entries, **ends})

    assert all(row.id for row in found.rows)


@pytest.mark.parametrize("link", ["//[", "?a=1", 7, None, ""])
def test_a_strange_link_to_the_next_page_is_followed_on_our_own_base_url_or_not_at_all(link: Any) -> None:
    assert page("openrouter", {"data": [], "links": {"next": link}}).next_cursor == ("a=1" if link == "?a=1" else "")


@pytest.mark.parametrize(
    "model_id",
    [
        *("text-embedding-3-large", "nomic-embed-text:latest", "bge-m3", "omni-moderation-latest"),
        "mistral-ocr-latest",
        *("tts-1-hd", "gpt-4o-mini-tts", "whisper-large-v3", "gpt-4o-transcribe", "gpt-realtime", "gpt-audio"),
        *("dall-e-3", "gpt-image-1", "chatgpt-image-latest", "grok-2-image-1212", "sora-2", "davinci-002"),
        *("gemini-2.5-flash-preview-tts", "gemini-2.5-flash-image"),
    ],
)
def test_a_name_tells_that_a_model_does_not_chat(model_id: str) -> None:
    row = ModelRow(provider="openai", id=model_id, name=model_id)

    assert not is_offered(builtin_vendors()["openai"], row, None)
    assert is_offered(builtin_vendors()["openai"], row, row), "the catalog knows better than the name"


def test_the_name_table_leaves_every_built_in_model_alone() -> None:
    assert [row.id for row in builtin().models if NOT_CHAT.search(row.id)] == []


def test_a_retired_model_is_not_offered_though_its_vendor_lists_it() -> None:
    retired = next(row for row in builtin().models if row.retired)

    assert not is_offered(builtin_vendors()[retired.provider], retired, retired)


def test_what_the_catalog_knows_is_kept_and_what_it_does_not_know_is_filled_in() -> None:
    facts: dict[str, Any] = {"capabilities": (CHAT, STREAMING, TOOLS), "max_output_tokens": 10}
    facts["price"] = Price(input=1, output=2)
    known = row("acme", "one", "One", also=("one-20260101",), **facts)
    told = row("acme", "one-20260101", "One of January", context_window=100, max_output_tokens=99)

    filled_in = row("acme", "one-20260101", "One of January", context_window=100, **facts)
    assert discovery.with_known_facts(told, known) == filled_in
    assert discovery.with_known_facts(told, None) == told
