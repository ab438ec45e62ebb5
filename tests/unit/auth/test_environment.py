"""Keys come from the environment and go only to their own origins."""

from __future__ import annotations

import pytest

from makai.auth.credentials import Credential, KeySource
from makai.auth.store import Keychain, find_key
from makai.core.errors import AuthRequired
from makai.core.secret import Secret

OPENAI = KeySource(
    provider_id="openai",
    name="OpenAI",
    variables=("OPENAI_API_KEY",),
    origins=frozenset({"https://api.openai.com:443"}),
    base_url_variable="OPENAI_BASE_URL",
)
GOOGLE = KeySource(
    provider_id="google",
    name="Google Gemini",
    variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    origins=frozenset({"https://generativelanguage.googleapis.com:443"}),
)
OLLAMA = KeySource(
    provider_id="ollama",
    name="Ollama",
    variables=("OLLAMA_API_KEY",),
    origins=frozenset({"https://ollama.com:443"}),
    required=False,
)
KEY = {"OPENAI_API_KEY": "sk-test-1234"}


def test_a_key_is_found_with_its_source_and_origins() -> None:
    assert Keychain(KEY).credential_for(OPENAI, "https://api.openai.com/v1") == Credential(
        provider_id="openai",
        secret=Secret("sk-test-1234"),
        origins=frozenset({"https://api.openai.com:443"}),
        source="OPENAI_API_KEY",
    )


def test_variables_are_tried_in_order_and_empty_ones_are_absent() -> None:
    both = {"GEMINI_API_KEY": "first", "GOOGLE_API_KEY": "second"}
    blank = {"GEMINI_API_KEY": "  ", "GOOGLE_API_KEY": "second\n"}
    found = [find_key(GOOGLE, environ) for environ in (both, blank, {})]
    keys = [(key.source, key.secret.reveal()) if key else None for key in found]
    assert keys == [("GEMINI_API_KEY", "first"), ("GOOGLE_API_KEY", "second"), None]


def test_a_missing_key_says_which_variable_to_set() -> None:
    with pytest.raises(AuthRequired) as caught:
        Keychain({}).credential_for(GOOGLE, "https://generativelanguage.googleapis.com")
    assert caught.value.provider_id == "google"
    assert str(caught.value) == (
        "No API key for Google Gemini. Run `makai auth login google`, or set GEMINI_API_KEY or GOOGLE_API_KEY."
    )


@pytest.mark.parametrize(
    "base_url",
    [
        "https://api.openai.com.evil.example/v1", "https://evil.example/https://api.openai.com/v1",
        "https://evil-api.openai.com/v1", "https://api.openai.com:8443/v1", "http://api.openai.com/v1",
        "https://api.openai.comevil.example/v1", "https://api.openai.com./v1", "https://api-openai.com/v1",
    ],
)  # fmt: skip
def test_a_look_alike_server_gets_no_key(base_url: str) -> None:
    with pytest.raises(AuthRequired) as caught:
        Keychain(KEY).credential_for(OPENAI, base_url)
    message = str(caught.value)
    assert "OPENAI_API_KEY is not sent to" in message
    assert "OPENAI_BASE_URL" in message
    assert "sk-test" not in message


@pytest.mark.parametrize(
    "base_url", ["https://API.OPENAI.COM/v1", "https://api.openai.com:443", "https://api.openai.com/"]
)
def test_the_same_origin_written_differently_gets_the_key(base_url: str) -> None:
    credential = Keychain(KEY).credential_for(OPENAI, base_url)
    assert credential is not None
    assert credential.source == "OPENAI_API_KEY"


def test_where_no_key_is_needed_none_is_sent_to_other_origins() -> None:
    key = {"OLLAMA_API_KEY": "ollama-key"}
    hosted = Keychain(key).credential_for(OLLAMA, "https://ollama.com")
    assert hosted is not None
    assert hosted.secret.reveal() == "ollama-key"
    assert Keychain(key).credential_for(OLLAMA, "http://127.0.0.1:11434") is None
    assert Keychain({}).credential_for(OLLAMA, "http://127.0.0.1:11434") is None


@pytest.mark.parametrize("value", ["sk-\u200btest", "sk-te\nst", "sk-té"])
def test_a_key_that_cannot_be_a_header_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(AuthRequired) as caught:
        find_key(OPENAI, {"OPENAI_API_KEY": value})
    assert "OPENAI_API_KEY" in str(caught.value)
    assert value not in str(caught.value)


def test_a_credential_cannot_be_printed() -> None:
    assert "sk-test" not in repr(find_key(OPENAI, KEY))
