"""Origins are compared exactly; whatever two parsers could read differently is refused."""

from __future__ import annotations

import pytest

from makai.auth.credentials import is_loopback, origin_of
from makai.core.errors import InvalidRequest


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://api.openai.com/v1", "https://api.openai.com:443"),
        ("https://api.openai.com", "https://api.openai.com:443"),
        ("HTTPS://API.OpenAI.com:443/v1?x=1#y", "https://api.openai.com:443"),
        ("http://localhost:11434", "http://localhost:11434"),
        ("http://127.0.0.1", "http://127.0.0.1:80"),
        ("http://[::1]:8080/v1", "http://[::1]:8080"),
        ("http://my_service.internal:9000", "http://my_service.internal:9000"),
        ("https://api.openai.com./v1", "https://api.openai.com.:443"),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "url",
    [
        "https://api.openai.com@evil.example/v1",
        "https://user:pass@api.openai.com/v1",
        "https://api.openai.com\\@evil.example/v1",
        "https://evil.example\\.api.openai.com",
        "https://api.openai.com\n.evil.example",
        "https://api.openai.com /v1",
        "https://api.openai.com\t",
        "https://аpi.openai.com/v1",  # the first letter is Cyrillic
        "https://api。openai。com/v1",
        "https://api.openai.com:99999/v1",
        "https://api.openai.com:port/v1",
        "https://[::1/v1",
        "https:///v1",
        "https://-evil.example",
        "ftp://api.openai.com",
        "api.openai.com/v1",
        "javascript:alert(1)",
        "",
    ],
)
def test_a_url_that_is_not_beyond_doubt_has_no_origin(url: str) -> None:
    with pytest.raises(InvalidRequest):
        origin_of(url)


def test_the_refusal_does_not_repeat_a_password() -> None:
    with pytest.raises(InvalidRequest) as caught:
        origin_of("https://user:hunter2@api.openai.com/v1")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("::1", True), ("localhost", True), ("api.openai.com", False), ("10.0.0.7", False),
        ("localhost.example", False),
    ],
)  # fmt: skip
def test_only_this_machine_is_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
