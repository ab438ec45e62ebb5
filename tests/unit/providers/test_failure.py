import pytest

from makai.core.errors import AuthRequired, ContextOverflow, MakaiError, Overloaded, ProviderError, RateLimited
from makai.core.secret import MASK, Secret
from makai.providers.failure import (
    Target,
    http_failure,
    retry_after_ms,
    scrub,
    stream_failure,
    vendor_error,
)

ACME = Target(provider_id="acme", secret=Secret("test-key"))
SHAPES = [
    (b'{"error":{"message":"No","type":"t","code":"c"}}', ("No", "c", None)),
    (b'{"error":{"message":"No","type":"t","code":400}}', ("No", "t", None)),
    (
        b'{"type":"error","error":{"type":"overloaded_error","message":"No"},"request_id":"r"}',
        ("No", "overloaded_error", "r"),
    ),
    (b'[{"error":{"code":400,"message":"No","status":"INVALID_ARGUMENT"}}]', ("No", "INVALID_ARGUMENT", None)),
    (b'{"error":"model not found"}', ("model not found", None, None)),
    (b'{"object":"error","message":"No","type":"invalid"}', ("No", "invalid", None)),
    (b'{"detail":"Not Found"}', ("Not Found", None, None)),
    (b'{"detail":[{"loc":["body"],"msg":"bad"}]}', ('[{"loc":["body"],"msg":"bad"}]', None, None)),
    (b"plain  text\n here", ("plain text here", None, None)),
    (b"", ("", None, None)),
    (b"\xff\xfe", ("��", None, None)),
    (b"[]", ("[]", None, None)),
    (b"null", ("None", None, None)),
]


@pytest.mark.parametrize(("body", "fields"), SHAPES)
def test_every_vendor_error_shape_is_read(body: bytes, fields: tuple[str, str | None, str | None]) -> None:
    assert vendor_error(body) == fields


def test_an_html_page_is_named_not_repeated() -> None:
    message, _, _ = vendor_error(b"<!DOCTYPE html><html><title>502 Bad Gateway</title><body>" + b"x" * 9000)
    assert message == 'an HTML page titled "502 Bad Gateway" instead of JSON (is the base URL right?)'


CLASSES = [
    (401, b'{"error":{"message":"bad key"}}', AuthRequired),
    (403, b"{}", ProviderError),
    (403, b'{"error":{"message":"The API key has expired."}}', AuthRequired),
    (400, b'{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}', AuthRequired),
    (429, b"{}", RateLimited),
    (503, b"{}", Overloaded),
    (529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', Overloaded),
    (
        400,
        b'{"error":{"code":400,"message":"exceeds the available context size","type":"exceed_context_size_error"}}',
        ContextOverflow,
    ),
    (400, b'{"error":{"code":"context_length_exceeded","message":"too long"}}', ContextOverflow),
    (
        400,
        b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens"}}',
        ContextOverflow,
    ),
    (
        400,
        b'{"error":{"message":"The input token count (1200000) exceeds the maximum number of tokens allowed"}}',
        ContextOverflow,
    ),
    (400, b'{"error":{"message":"temperature must be a number"}}', ProviderError),
    (404, b'{"error":{"message":"no such model"}}', ProviderError),
    (500, b"", ProviderError),
]


@pytest.mark.parametrize(("status", "body", "kind"), CLASSES)
def test_an_http_refusal_becomes_the_right_error(status: int, body: bytes, kind: type[MakaiError]) -> None:
    error = http_failure(ACME, status, {}, body)
    assert type(error) is kind
    assert "acme" in error.message


def test_what_the_vendor_said_is_carried_along() -> None:
    headers = {"x-request-id": "req_1", "Retry-After": "20"}
    error = http_failure(ACME, 429, headers, b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}')
    assert isinstance(error, RateLimited)
    fields = (error.status, error.vendor_code, error.request_id, error.retry_after_ms, error.hint)
    assert fields == (429, "rate_limit_exceeded", "req_1", 20_000, "Try again in 20 s.")


WAITS = [
    ({"retry-after-ms": "1500"}, b"", 1500),
    ({"Retry-After": "2"}, b"", 2000),
    ({"Retry-After": "0.5"}, b"", 500),
    ({"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"}, b"", 7000),
    ({"Retry-After": "soon"}, b"", None),
    ({"Retry-After": "-5"}, b"", None),
    ({}, b'{"error":{"details":[{"@type":"RetryInfo","retryDelay":"34.5s"}]}}', 34500),
    ({}, b'{"retryDelay":"99999999999999s"}', None),
    ({}, b'{"retryDelay":"1.2.3s"}', None),
    ({}, b'{"retryDelay":".s"}', None),
    ({"Retry-After": "Fri, 31 Dec 9999 23:59:59 -1200"}, b"", None),
    ({}, b"", None),
]


@pytest.mark.req("MK-PROV-017")
@pytest.mark.parametrize(("headers", "body", "expected"), WAITS)
def test_the_wait_is_read_from_wherever_the_vendor_puts_it(
    headers: dict[str, str], body: bytes, expected: int | None
) -> None:
    assert retry_after_ms(headers, body, now=784111770.0) == expected


def test_an_error_inside_a_stream_is_classified_like_an_http_error() -> None:
    overloaded = stream_failure(ACME, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    assert type(overloaded) is Overloaded
    limited = stream_failure(ACME, {"error": {"code": 429, "message": "quota"}})
    assert type(limited) is RateLimited


CANARIES = [
    "sk-proj-abcdefghijklmnop1234",
    "sk-ant-api03-AbCdEfGhIjKlMnOp",
    "sk-abcd***********wxyz",
    "AIzaSyD-1234567890abcdefghijk",
    "gsk_abcdefghijklmnop",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig",
    "Bearer abc.def-ghi",
]


@pytest.mark.proof("O7")
@pytest.mark.parametrize("canary", CANARIES)
def test_key_like_text_never_reaches_the_user(canary: str) -> None:
    shown = scrub(f"Incorrect API key provided: {canary}. Check it.")
    token = canary.removeprefix("Bearer ")
    assert token not in shown
    assert token[:8] not in shown
    assert token[-4:] not in shown
    assert MASK in shown


@pytest.mark.proof("O7")
def test_the_very_credential_we_sent_never_reaches_the_user() -> None:
    target = Target(provider_id="acme", secret=Secret("hunter2"))
    error = http_failure(target, 401, {}, b'{"error":{"message":"key hunter2 is wrong"}}')
    assert "hunter2" not in str(error)


def test_a_short_credential_does_not_garble_words_that_contain_it() -> None:
    target = Target(provider_id="acme", secret=Secret("k"))
    error = http_failure(target, 400, {}, b'{"error":{"message":"210000 tokens, and k is your key"}}')
    assert error.message == f"acme refused the request (HTTP 400): 210000 tokens, and {MASK} is your key"
