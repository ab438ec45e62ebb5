import pytest

from makai.core.errors import AuthRequired, ContextOverflow, MakaiError, Overloaded, ProviderError, RateLimited
from makai.core.secret import MASK, Secret
from makai.providers.failure import (
    Target,
    http_failure,
    retry_after_ms,
    retry_delay,
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


@pytest.mark.parametrize("canary", CANARIES)
def test_key_like_text_never_reaches_the_user(canary: str) -> None:
    shown = scrub(f"Incorrect API key provided: {canary}. Check it.")
    token = canary.removeprefix("Bearer ")
    assert token not in shown
    assert token[:8] not in shown
    assert token[-4:] not in shown
    assert MASK in shown


def test_the_very_credential_we_sent_never_reaches_the_user() -> None:
    target = Target(provider_id="acme", secret=Secret("hunter2"))
    error = http_failure(target, 401, {}, b'{"error":{"message":"key hunter2 is wrong"}}')
    assert "hunter2" not in str(error)


def failure(status: int | None, wait_ms: int | None = None, vendor_code: str | None = None) -> ProviderError:
    return ProviderError("x", status=status, retry_after_ms=wait_ms, vendor_code=vendor_code)


@pytest.mark.parametrize("status", [None, 408, 409, 429, 500, 502, 503, 504, 520, 529])
def test_passing_faults_are_tried_again_with_growing_waits(status: int | None) -> None:
    delays = [retry_delay(failure(status), attempt, 3, jitter=lambda: 0.5) for attempt in range(4)]
    assert delays == [0.25, 0.5, 1.0, None]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 495])
def test_a_refusal_that_will_not_change_is_not_tried_again(status: int) -> None:
    assert retry_delay(failure(status), 0, 3) is None


def test_the_wait_the_vendor_asks_for_is_honoured_up_to_a_minute() -> None:
    assert retry_delay(failure(429, 1500), 0, 3) == 1.5
    assert retry_delay(failure(429, 60_000), 0, 3) == 60.0
    assert retry_delay(failure(429, 61_000), 0, 3) is None


def test_an_empty_account_is_not_a_passing_fault() -> None:
    assert retry_delay(failure(429, vendor_code="insufficient_quota"), 0, 3) is None


def test_waits_are_spread_so_that_many_clients_do_not_come_back_together() -> None:
    assert retry_delay(failure(500), 0, 3, jitter=lambda: 0.0) == 0.1875
    assert retry_delay(failure(500), 0, 3, jitter=lambda: 1.0) == 0.3125
    assert retry_delay(failure(500), 40, 99, jitter=lambda: 0.5) == 60.0
