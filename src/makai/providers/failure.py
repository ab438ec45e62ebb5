"""What a vendor's refusal means: a `MakaiError` that names the provider, repeats what the vendor said, says what to do
next and holds no secret. Pure. Whether to ask again is decided in `retries.py`."""

from __future__ import annotations

import datetime
import email.utils
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from makai.auth.credentials import how_to_log_in
from makai.catalog.model_ref import format_model_ref
from makai.catalog.vendor_table import CHAT, RESPONSES
from makai.catalog.vendors import Vendor
from makai.core.durations import duration
from makai.core.errors import AuthRequired, ContextOverflow, MakaiError, Overloaded, ProviderError, RateLimited
from makai.core.model import Model
from makai.core.secret import MASK, Secret
from makai.wire.json_repair import repaired
from makai.wire.sse import SSEDecoder

MAX_MESSAGE = 600
"""How much of a vendor's text is repeated: an HTML page must not become the error."""
MAX_WAIT_S = 1e9
"""A vendor that asks for a longer wait is not understood; a date in the message would end the calendar."""
MAX_READ_TEXT = 20_000
"""How much of it is searched for what it means."""

_NO_CREDIT = re.compile(
    r"insufficient[_ ](quota|balance|credits?|funds)|credit[_ ]balance|(credit|spend(ing)?|usage|monthly|weekly) limit"
    r"|billing_hard_limit|exceeded_current_quota|out of credits"
    r"|(used up|exhausted) (all )?(your|the|available) credits",
    re.IGNORECASE,
)
_PER_DAY = re.compile(r"per[ _-]?day|\bdaily\b|\b[rt]pd\b", re.IGNORECASE)
"""With `_NO_CREDIT`, how vendors say that no wait of minutes helps. Google names a limit per minute "quota" too."""

_OVERFLOW = re.compile(
    r"context[_ ](length|window|size)|maximum context|prompt is too long|input is too long|too many tokens"
    r"|exceed_context_size|exceeds? the (available )?context|input token count .{0,200} exceeds|reduce the length"
    r"|context_length_exceeded|maximum prompt length|larger than the model's context|too large for model",
    re.IGNORECASE,
)
_KEY_LIKE = re.compile(
    r"\b(sk|pk|rk|gsk|xai|fw|csk|tgp|key|AIza|ghp|gho|ya29)[-_.][\w*.\-]{6,}"
    r"|\bAIza[\w*-]{10,}|\beyJ[\w-]{8,}\.[\w-]+\.?[\w-]*|(?<=Bearer )\S+"
)
_LONG_SECRET = 8
_AUTH_CODES = ("authentication_error", "invalid_api_key", "UNAUTHENTICATED", "API_KEY_INVALID")
_BAD_CREDENTIAL = re.compile(
    r"api key not valid|(invalid|incorrect|expired|revoked|missing|no) (\w+ ){0,2}(api[ _-]?key|token|credentials?)\b"
    r"|(api[ _-]?key|token|credentials?) (is |has |was )?(invalid|incorrect|expired|revoked|missing|not valid)",
    re.IGNORECASE,
)
_NOT_ABOUT_WHO_ASKS = re.compile(
    r"countr(y|ies)|region|territor|location|\bip\b|address|quota|balance|billing|credit"
    r"|blocked|banned|suspended|html page"
)
_NO_CODES = ("", "error", "None", "null")
"""Fillers that some gateways put where a code belongs."""
_RATE_WORDS = ("rate_limit", "rate limit", "resource_exhausted", "too many requests", "quota")
_NO_MODEL = re.compile(r"model.{0,200}(not[ _]found|not exist|unknown)|model_not_found|no such model", re.DOTALL)
_PAGE = "an html page"
_FRAMED = re.compile(rb"^(data|event|id|retry)?:|^\s*[\[{]", re.MULTILINE)
"""Events or JSON: no text for a person."""
_OVERLOAD_WORDS = ("overloaded", "unavailable", "capacity")


def scrub(text: str, secret: Secret | None = None) -> str:
    """The text without the credential that was sent and without anything shaped like one. Vendors echo keys, whole or
    with stars in the middle, and first eight plus last four characters are a leak too."""
    if secret:
        known = re.escape(secret.reveal())
        # A short one, such as the "EMPTY" of a local server, may be a part of ordinary words.
        is_short = len(secret.reveal()) < _LONG_SECRET
        text = re.sub(rf"(?<!\w){known}(?!\w)" if is_short else known, MASK, text)
    return _KEY_LIKE.sub(MASK, text)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, as far as its failures depend on it."""

    provider_id: str
    secret: Secret | None = None
    """The credential that was sent. Messages never hold it."""
    vendor: Vendor | None = None
    """Known where the provider is one that users name."""
    model: Model | None = None

    def how_to_log_in(self) -> str:
        if self.vendor is None or not self.vendor.can_log_in:
            return "Send a credential with the request."
        return how_to_log_in(self.vendor.id, self.vendor.key_variables)

    def how_to_use_chat(self) -> str:
        """How to ask the model by Chat Completions; "" unless Responses was asked and the server may speak both."""
        if self.model is None or self.vendor is None or self.model.api != RESPONSES:
            return ""
        if CHAT in self.vendor.paths:
            return f"use Chat Completions: `{format_model_ref(self.vendor.id, CHAT, self.model.id)}`"
        if self.vendor.is_configured:
            return f'set `api = "{CHAT}"` in `[providers.{self.vendor.id}]` of config.toml'
        return ""


def vendor_error(body: bytes) -> tuple[str, str | None, str | None]:
    """(message, vendor code, request id) of an error body in any of the shapes vendors use, or of plain text. The type
    of the content does not matter: gateways send JSON as text, and refuse a stream inside an event of that stream."""
    values = list(_json_values(repaired(body)))
    if not values:
        return _plain_text(body), None, None
    return error_fields(next(filter(_is_error, reversed(values)), values[0]))


def error_fields(value: Any) -> tuple[str, str | None, str | None]:
    """The same for an already parsed error object."""
    if not isinstance(value, dict):
        return str(value), None, None
    request_id = value.get("request_id")
    inner = value.get("error") or value.get("errors") or value
    if isinstance(inner, list):
        inner = inner[0]
    if isinstance(inner, str):
        return inner, None, _text(request_id)
    if not isinstance(inner, dict):
        inner = value
    said = (inner.get(name) for name in ("message", "detail", "error_description", "error", "msg", "title"))
    message = next(filter(None, said), None)
    if isinstance(message, dict) and isinstance(message.get("message") or message.get("error"), str | dict):
        return error_fields(message)
    if not isinstance(message, str):
        message = msgspec.json.encode(message or value).decode()
    codes = (inner.get("code"), inner.get("status"), inner.get("type"), value.get("type"))
    named = (code for code in codes if isinstance(code, str) and not code.isdigit() and code not in _NO_CODES)
    return message, next(named, None), _text(request_id)


def retry_after_ms(headers: Mapping[str, str], body: bytes = b"", now: float | None = None) -> int | None:
    """How long the vendor asks to wait: `retry-after-ms`, `Retry-After` (seconds or date), Google's RetryInfo."""
    if precise := _number(headers.get("retry-after-ms")):
        return int(precise)
    if value := headers.get("Retry-After") or headers.get("retry-after"):
        seconds = _number(value)
        if seconds is None:
            seconds = _seconds_until(value, time.time() if now is None else now)
    elif match := re.search(rb'"retryDelay"\s*:\s*"([0-9.]+)s"', body):
        seconds = _number(match[1].decode("ascii"))
    else:
        return None
    return None if seconds is None else int(seconds * 1000)


def http_failure(
    target: Target, status: int, headers: Mapping[str, str], body: bytes, now: float | None = None
) -> MakaiError:
    """The error for an HTTP answer that is not a success; `now` is Unix time."""
    now = time.time() if now is None else now
    message, vendor_code, request_id = vendor_error(body)
    if 300 <= status < 400 and (location := headers.get("Location")):
        message = f"it redirects to {_without_secrets(location)}, and makai does not follow"
    header_id = headers.get("request-id") or headers.get("x-request-id")
    return classify(
        target,
        message,
        status=status,
        vendor_code=vendor_code,
        request_id=request_id or header_id,
        wait_ms=retry_after_ms(headers, body, now),
        details=body[:MAX_READ_TEXT].decode("utf-8", "replace"),
        now=now,
    )


def stream_failure(target: Target, value: Any) -> MakaiError:
    """The error for an error object that arrives inside a stream, after HTTP 200."""
    message, vendor_code, request_id = error_fields(value)
    return classify(
        target,
        message,
        status=_status_inside(value),
        vendor_code=vendor_code,
        request_id=request_id,
        wait_ms=None,
    )


def unread_failure(target: Target, body: bytes, *, is_whole: bool) -> MakaiError | None:
    """The error in a body, or in its end, that came with a success and was not understood; None when it holds none.
    Text is taken for an explanation only where it is the whole body."""
    value = next(filter(_is_error, reversed(list(_json_values(body)))), None)
    if value is not None:
        return stream_failure(target, value)
    text = _plain_text(body)
    if not is_whole or not text or _FRAMED.search(body):
        return None
    return classify(target, text, status=None, vendor_code=None, request_id=None, wait_ms=None)


def classify(
    target: Target,
    message: str,
    *,
    status: int | None,
    vendor_code: str | None,
    request_id: str | None,
    wait_ms: int | None,
    details: str = "",
    now: float = 0.0,
) -> MakaiError:
    """Choose the error class. One decision, used for HTTP answers and for errors inside streams. `details` is what the
    vendor said beside the message; `now` is the time that `wait_ms` counts from."""
    provider_id = target.provider_id
    words = f"{vendor_code or ''} {message[:MAX_READ_TEXT]}".lower()
    said = scrub(message[:MAX_READ_TEXT], target.secret)[:MAX_MESSAGE] or "no explanation"
    at = f" (HTTP {status})" if status else ""
    told = f"{provider_id} refused the request{at}: {said}"
    if _is_about_credential(target, status, vendor_code, words):
        if target.secret is None:
            asks = f"{provider_id} asks for a credential and none was sent{at}: {said}"
            return AuthRequired(asks, provider_id=provider_id, hint=target.how_to_log_in())
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
    later = "" if wait_ms is None else _later(wait_ms, now)
    if status in (None, 400, 413, 422, 500) and _OVERFLOW.search(words):
        hint = "Shorten the conversation or choose a model with a larger context window."
        return ContextOverflow(told, hint=hint, **fields)
    if status == 429 or (status is None and any(word in words for word in _RATE_WORDS)):
        spent = _spent(f"{words} {details}", later)
        hint = spent or later or "Wait a little and try again, or use another model."
        return RateLimited(told, hint=hint, quota_exhausted=bool(spent), **fields)
    if status in (503, 529) or (status is None and any(word in words for word in _OVERLOAD_WORDS)):
        hint = f"{later.removesuffix('.') or 'Try again in a minute'}, or use another model."
        return Overloaded(f"{provider_id} is overloaded{at}: {said}", hint=hint, **fields)
    spent = _spent(f"{words} {details}", later) if status in (402, 403) else ""
    return ProviderError(told, hint=spent or later or _status_hint(target, status, words), **fields)


def _is_about_credential(target: Target, status: int | None, vendor_code: str | None, words: str) -> bool:
    """401 always is. 403 is when the vendor says so, or when nothing was sent and it gives no other reason. Else it
    does not allow this (a region, an address, a quota), which no other key of the same account changes."""
    if status == 401 or vendor_code in _AUTH_CODES:
        return True
    if status == 403:
        is_unknown = target.secret is None and not _NOT_ABOUT_WHO_ASKS.search(words)
        return is_unknown or _BAD_CREDENTIAL.search(words) is not None
    return "api key not valid" in words


def _spent(words: str, later: str) -> str:
    """What is used up and will not come back within minutes; "" for a limit that a short wait is about."""
    if _NO_CREDIT.search(words):
        return "The account has no credit left: check its billing page."
    return f"A limit per day is used up. {later or 'Use another model.'}" if _PER_DAY.search(words) else ""


def _later(wait_ms: int, now: float) -> str:
    """When to try again. A wait of minutes is also said as a time: the message may be read later."""
    wait_s = max(1, round(wait_ms / 1000))
    if not now or wait_s <= 60:
        return f"Try again in {wait_s} s."
    at = datetime.datetime.fromtimestamp(now + wait_s, datetime.UTC)
    day = "" if wait_s < 12 * 3600 else f"{at:%Y-%m-%d} "
    return f"Try again in {duration(wait_s)}, after {day}{at:%H:%M} UTC."


def _status_hint(target: Target, status: int | None, words: str) -> str | None:
    if status == 403:
        if _PAGE in words:
            return "A firewall or proxy may have refused it: check the base URL, the proxy settings and the network."
        if target.secret is None:
            return f"No credential was sent. If the server wants one: {target.how_to_log_in()}"
        return "The credential is known but may not do this: check which models, projects and regions it is allowed."
    if status in (404, 405, 501) and (chat := target.how_to_use_chat()) and not _NO_MODEL.search(words):
        return f"If this server has no Responses API, {chat}. Else check the base URL."
    if status is not None and 300 <= status < 400:
        return "Set the base URL to the address that the server redirects to, if that is the right one."
    if status == 404:
        return "Check the model name (`makai models list`) and the base URL."
    if status is not None and status >= 500:
        return "This is a fault at the provider: try again, or use another model."
    return None


def _status_inside(value: Any) -> int | None:
    """The HTTP status that an error object names: some gateways write it as text."""
    if not isinstance(value, dict):
        return None
    inner = value.get("error")
    places = (inner, value) if isinstance(inner, dict) else (value,)
    for place in places:
        for name in ("code", "status", "status_code", "http_status"):
            number = place.get(name)
            if isinstance(number, str) and number.isdecimal():
                number = int(number[:4])
            if isinstance(number, int) and not isinstance(number, bool) and 300 <= number < 600:
                return number
    return None


def _is_error(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if value.get("error") or value.get("errors") or value.get("detail"):
        return True
    return "error" in (value.get("type"), value.get("object")) or isinstance(value.get("message"), str)


def _json_values(body: bytes) -> Iterator[Any]:
    """The JSON values in a body: the document or the first element of its list, else those of its events or lines."""
    body = body.removeprefix(b"\xef\xbb\xbf")
    with suppress(msgspec.DecodeError, RecursionError, ValueError):
        value = msgspec.json.decode(body)
        yield value[0] if isinstance(value, list) and value else value
        return
    lines = [line.removeprefix(b"error:") for line in body.splitlines() if line.startswith((b"{", b"error:"))]
    for payload in SSEDecoder().feed_data(body + b"\n\n") + lines:
        with suppress(msgspec.DecodeError, RecursionError, ValueError):
            yield msgspec.json.decode(payload)


def _plain_text(body: bytes) -> str:
    text = body[:MAX_READ_TEXT].decode("utf-8", "replace")
    if "<html" in text.lower() or "<!doctype" in text.lower():
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        what = f' titled "{title[1].strip()[:120]}"' if title else ""
        return f"an HTML page{what} instead of JSON (is the base URL right?)"
    return " ".join(text.split())


def _without_secrets(address: str) -> str:
    """An address without its query and the name and password of a user."""
    return re.sub(r"//[^/]*@", "//", re.split("[?#]", address)[0])


def _seconds_until(http_date: str, now: float) -> float | None:
    """0 for a time that is over, None for no date or one that is too far away to be meant."""
    try:
        seconds = max(0.0, email.utils.parsedate_to_datetime(http_date).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if seconds < MAX_WAIT_S else None


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < MAX_WAIT_S else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
