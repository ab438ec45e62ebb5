"""What a vendor's refusal means: a `MakaiError` that names the provider, repeats what the vendor said, says what to do
next and holds no secret; and whether and when to ask again. Pure."""

from __future__ import annotations

import email.utils
import random
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from makai.core.errors import AuthRequired, ContextOverflow, MakaiError, Overloaded, ProviderError, RateLimited
from makai.core.secret import MASK, Secret

MAX_MESSAGE = 600
"""How much of a vendor's text is repeated: an HTML page must not become the error."""

RETRY_STATUS = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""Time-outs, conflicts, rate limits and server faults. Anything else will not get better by asking again."""

FIRST_DELAY_S = 0.25
MAX_DELAY_S = 60.0

_PERMANENT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "credit_balance_too_low"})
"""Vendor codes that come as 429 and mean "pay first"."""

_REQUEST_AT_FAULT = re.compile(
    r"invalid_(request|prompt|argument|image)|not_found|permission|too_large|content_filter|content_policy|safety"
    r"|unsupported|failed_precondition|billing|credit_balance",
    re.IGNORECASE,
)
"""Vendor codes, as they come inside streams without a status, of requests that fail the same way every time."""

_OVERFLOW = re.compile(
    r"context[_ ](length|window|size)|maximum context|prompt is too long|input is too long|too many tokens"
    r"|exceed_context_size|exceeds? the (available )?context|input token count .* exceeds|reduce the length"
    r"|context_length_exceeded|maximum prompt length|larger than the model's context|too large for model",
    re.IGNORECASE,
)
_KEY_LIKE = re.compile(
    r"\b(sk|pk|rk|gsk|xai|fw|csk|tgp|key|AIza|ghp|gho|ya29)[-_.][\w*.\-]{6,}"
    r"|\bAIza[\w*-]{10,}|\beyJ[\w-]{8,}\.[\w-]+\.?[\w-]*|(?<=Bearer )\S+"
)
_AUTH_CODES = ("authentication_error", "invalid_api_key", "UNAUTHENTICATED", "API_KEY_INVALID")
_RATE_WORDS = ("rate_limit", "rate limit", "resource_exhausted", "too many requests", "quota")
_OVERLOAD_WORDS = ("overloaded", "unavailable", "capacity")


def scrub(text: str, secret: Secret | None = None) -> str:
    """The text without the credential that was sent and without anything shaped like one. Vendors echo keys, whole or
    with stars in the middle, and first eight plus last four characters are a leak too."""
    if secret:
        text = text.replace(secret.reveal(), MASK)
    return _KEY_LIKE.sub(MASK, text)


def vendor_error(body: bytes) -> tuple[str, str | None, str | None]:
    """(message, vendor code, request id) of an error body in any of the shapes vendors use, or of plain text."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return _plain_text(body), None, None
    if isinstance(value, list) and value:
        value = value[0]
    return error_fields(value)


def error_fields(value: Any) -> tuple[str, str | None, str | None]:
    """The same for an already parsed error object."""
    if not isinstance(value, dict):
        return str(value)[:MAX_MESSAGE], None, None
    request_id = value.get("request_id")
    inner = value.get("error", value)
    if isinstance(inner, str):
        return inner[:MAX_MESSAGE], None, _text(request_id)
    if not isinstance(inner, dict):
        inner = value
    message = inner.get("message") or inner.get("detail") or inner.get("error_description") or inner.get("error")
    if not isinstance(message, str):
        message = msgspec.json.encode(message or value).decode()
    raw_code = inner.get("code")
    code = raw_code if isinstance(raw_code, str) else inner.get("status") or inner.get("type")
    return message[:MAX_MESSAGE], _text(code), _text(request_id)


def retry_after_ms(headers: Mapping[str, str], body: bytes = b"", now: float | None = None) -> int | None:
    """How long the vendor asks to wait: `retry-after-ms`, `Retry-After` (seconds or date), Google's RetryInfo."""
    if precise := _number(headers.get("retry-after-ms")):
        return int(precise)
    if value := headers.get("Retry-After") or headers.get("retry-after"):
        seconds = _number(value)
        if seconds is None:
            seconds = _seconds_until(value, time.time() if now is None else now)
        return None if seconds is None else max(0, int(seconds * 1000))
    if match := re.search(rb'"retryDelay"\s*:\s*"([0-9.]+)s"', body):
        return int(float(match[1]) * 1000)
    return None


def http_failure(
    provider_id: str, status: int, headers: Mapping[str, str], body: bytes, secret: Secret | None = None
) -> MakaiError:
    """The error for an HTTP answer that is not a success."""
    message, vendor_code, request_id = vendor_error(body)
    header_id = headers.get("request-id") or headers.get("x-request-id")
    return classify(
        provider_id,
        scrub(message, secret),
        status=status,
        vendor_code=vendor_code,
        request_id=request_id or header_id,
        wait_ms=retry_after_ms(headers, body),
    )


def stream_failure(provider_id: str, value: Any, secret: Secret | None = None) -> MakaiError:
    """The error for an error object that arrives inside a stream, after HTTP 200."""
    message, vendor_code, request_id = error_fields(value)
    inner = value.get("error") if isinstance(value, dict) else None
    code = inner.get("code") if isinstance(inner, dict) else None
    return classify(
        provider_id,
        scrub(message, secret),
        status=code if isinstance(code, int) and not isinstance(code, bool) else None,
        vendor_code=vendor_code,
        request_id=request_id,
        wait_ms=None,
    )


def classify(
    provider_id: str,
    message: str,
    *,
    status: int | None,
    vendor_code: str | None,
    request_id: str | None,
    wait_ms: int | None,
) -> MakaiError:
    """Choose the error class. One decision, used for HTTP answers and for errors inside streams."""
    said = message or "no explanation"
    at = f" (HTTP {status})" if status else ""
    told = f"{provider_id} refused the request{at}: {said}"
    words = f"{vendor_code or ''} {message}".lower()
    if status in (401, 403) or vendor_code in _AUTH_CODES or "api key not valid" in words:
        return AuthRequired(
            f"{provider_id} did not accept the credential{at}: {said}",
            provider_id=provider_id,
            hint="Check the key: `makai doctor` shows which one is used.",
        )
    fields: dict[str, Any] = {
        "provider_id": provider_id,
        "status": status,
        "vendor_code": vendor_code,
        "request_id": request_id,
        "retry_after_ms": wait_ms,
    }
    if status in (None, 400, 413, 422, 500) and _OVERFLOW.search(words):
        hint = "Shorten the conversation or choose a model with a larger context window."
        return ContextOverflow(told, hint=hint, **fields)
    if status == 429 or (status is None and any(word in words for word in _RATE_WORDS)):
        return RateLimited(told, hint=_rate_hint(vendor_code, wait_ms), **fields)
    if status in (503, 529) or (status is None and any(word in words for word in _OVERLOAD_WORDS)):
        return Overloaded(
            f"{provider_id} is overloaded{at}: {said}", hint="Try again in a minute, or use another model.", **fields
        )
    return ProviderError(told, hint=_status_hint(status), **fields)


def is_transient(error: MakaiError) -> bool:
    """Whether the same request may succeed when it is sent again."""
    if not isinstance(error, ProviderError) or isinstance(error, ContextOverflow) or error.vendor_code in _PERMANENT:
        return False
    if error.status is None:
        return not _REQUEST_AT_FAULT.search(error.vendor_code or "")
    return error.status in RETRY_STATUS or error.status >= 500


def retry_delay(
    error: MakaiError, attempt: int, max_retries: int, jitter: Callable[[], float] = random.random
) -> float | None:
    """Seconds to wait before the next attempt (`attempt` counts from 0), or None to give up. A wait the vendor asks for
    is honoured up to `MAX_DELAY_S`; a longer one is left to the caller (`retry_after_ms`)."""
    if attempt >= max_retries or not isinstance(error, ProviderError) or not is_transient(error):
        return None
    if error.retry_after_ms is not None:
        asked = error.retry_after_ms / 1000
        return asked if asked <= MAX_DELAY_S else None
    backoff = min(MAX_DELAY_S, FIRST_DELAY_S * 2.0**attempt)
    return backoff * (0.75 + 0.5 * jitter())


def retry_note(error: MakaiError, delay_s: float, attempt: int, max_retries: int) -> str:
    """What a user reads while a request waits to be sent again; `attempt` counts from 0."""
    said = error.message if error.message.endswith((".", "!", "?")) else f"{error.message}."
    return f"{said} Asking again in {delay_s:.1f} s ({attempt + 1} of {max_retries})."


def _rate_hint(vendor_code: str | None, wait_ms: int | None) -> str:
    if vendor_code == "insufficient_quota":
        return "The account has no credit left: check its billing page."
    if wait_ms is not None:
        return f"Try again in {max(1, round(wait_ms / 1000))} s."
    return "Wait a little and try again, or use another model."


def _status_hint(status: int | None) -> str | None:
    if status == 404:
        return "Check the model name (`makai models list`) and the base URL."
    if status is not None and status >= 500:
        return "This is a fault at the provider: try again, or use another model."
    return None


def _plain_text(body: bytes) -> str:
    text = body[:20_000].decode("utf-8", "replace")
    if "<html" in text.lower() or "<!doctype" in text.lower():
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        what = f' titled "{title[1].strip()[:120]}"' if title else ""
        return f"an HTML page{what} instead of JSON (is the base URL right?)"
    return " ".join(text.split())[:MAX_MESSAGE]


def _seconds_until(http_date: str, now: float) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(http_date).timestamp() - now
    except (ValueError, TypeError):
        return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < 1e9 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
