"""Who may talk to a listener: pure decisions, taken before any handler runs and before a body is read.

A server on loopback is reachable by every page the user's browser shows and, by DNS rebinding, under any name. So the
`Host` must be one of the server's to the letter, so must an `Origin` if there is one, and everything but the two
health checks and the files of the page needs the token. No answer ever carries `Access-Control-Allow-Origin`.

The page trades the token for a cookie. The cookie is derived from the token and is not the token. Where a
browser always says its origin, which is for everything but reading, a request by cookie must say one; and where it says
that another site or another port of this machine asked for something, the cookie does not count.

Browsers do not keep cookies of two ports of one host apart: whatever else the user opens at 127.0.0.1 or localhost is
shown this one. So the page has a host name of its own, `makai.localhost`, which browsers resolve to this machine
(RFC 6761 section 6.3).

A browser is started with the address as an argument, and every user of the machine can read arguments. So it gets a
ticket in place of the token: good for one trade within a minute.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol, TypeAlias

import msgspec

from makai.core.access import SERVER, TOKEN_MARK, Caller
from makai.core.secret import Secret
from makai.transports.channel import MAX_FRAME_BYTES

PAGE_NAME: Final = "makai.localhost"
LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]", PAGE_NAME)
PAGE_FILES: Final = (
    "icon.svg", "icon-waiting.svg", "icon-192.png", "icon-512.png", "icon-maskable-512.png", "manifest.webmanifest",
    "offline.html", "offline.css", "offline.js", "sw.js",
)  # fmt: skip
"""The files of the page whose names stay the same; they are the same for everyone."""
PUBLIC_PATHS: Final = frozenset({"/healthz", "/readyz", "/", *(f"/{name}" for name in PAGE_FILES)})
"""Readable without a token: the health checks tell nothing, and the page itself is the same for all."""
PUBLIC_FOLDER: Final = "/assets/"
COOKIE_NAME: Final = "makai-page"
TRADE_PATH: Final = "/api/cookie"
TICKET_S: Final = 60
TOKEN_SUBPROTOCOL: Final = "makai.token."
"""Browsers cannot set headers on a WebSocket; they offer the token as a subprotocol behind this prefix."""

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]

_MAX_PEERS: Final = 1024
_MAX_LENGTH_DIGITS: Final = 20
_TICKET: Final = re.compile(r"ticket\.(?P<until>[0-9]{1,12})\.(?P<nonce>[0-9a-f]{32})\.[0-9a-f]{64}")
_OUR_PAGE_OR_THE_USER: Final = frozenset({"same-origin", "none"})


class FailureRate(msgspec.Struct, frozen=True):
    """How many wrong tokens one peer may try: `burst` at once, then `per_minute`."""

    burst: int = 20
    per_minute: float = 60.0


class GuardConfig(msgspec.Struct, frozen=True):
    """What one listener accepts. `hosts` and `origins` are added to the loopback names with `port`."""

    token: Secret
    port: int
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    max_body_bytes: int = MAX_FRAME_BYTES
    max_connections: int = 1024
    failures: FailureRate = FailureRate()
    wall_clock: Callable[[], float] = time.time
    """What tickets are good until: they are made by another process."""
    place: str = ""
    """Where tickets count. Servers with the same token have different ones: each knows only the tickets that were used
    with itself."""


class GuardedRequest(msgspec.Struct, frozen=True):
    """A request as received: `target` is the second word of the request line, `headers` all of them, in order."""

    method: str
    target: str
    headers: RawHeaders
    peer: str


class GuardRefusal(msgspec.Struct, frozen=True):
    """An HTTP status, a code for programs and a sentence for people."""

    status: int
    code: str
    message: str


MISDIRECTED: Final = GuardRefusal(421, "invalid_request", "This server does not answer to that Host.")
BAD_TARGET: Final = GuardRefusal(400, "invalid_request", "The request target must be a path.")
FOREIGN_ORIGIN: Final = GuardRefusal(403, "invalid_request", "This server does not answer to that Origin.")
UNAUTHORIZED: Final = GuardRefusal(401, "auth_required", "Send the server's token as `Authorization: Bearer`.")
TOO_MANY_FAILURES: Final = GuardRefusal(429, "rate_limited", "Too many wrong tokens; wait a minute.")
NO_BODY_EXPECTED: Final = GuardRefusal(400, "invalid_request", "A GET request has no body.")
NOT_JSON: Final = GuardRefusal(415, "invalid_request", "Send application/json, without a Content-Encoding.")
TOO_LARGE: Final = GuardRefusal(413, "invalid_request", "The request body is too large.")
TOO_MANY_CONNECTIONS: Final = GuardRefusal(503, "overloaded", "Too many connections are open.")


class KnownTokens(Protocol):
    """The stored tokens as this process knows them."""

    async def refresh(self, candidate: str) -> None:
        """Learn what was created and revoked, so that `find` is right about this text; paced, and never raises."""

    def find(self, candidate: str) -> Caller | None:
        """The caller whose token this is, while it is neither expired nor revoked."""

    def by_id(self, token_id: str) -> Caller | None: ...

    def hold(self, caller: Caller, end: Callable[[], object]) -> AbstractContextManager[None]:
        """Call `end`, at most once, when the token of `caller` stops counting inside the block."""


class Guard:
    """The decisions of one listener. Its only state: wrong tokens per peer, and tickets that were used. The token of
    its config belongs to an administrator; those of `tokens` say themselves what they are for."""

    def __init__(self, config: GuardConfig, tokens: KnownTokens | None = None) -> None:
        self.config = config
        self.tokens = tokens
        loopback = {f"{name}:{config.port}" for name in LOOPBACK_NAMES}
        self._hosts = loopback | config.hosts
        self._origins = {f"http://{host}" for host in loopback} | config.origins
        self._failures = _FailureCounter(config.failures)
        self._used_tickets: dict[str, int] = {}

    def check(self, request: GuardedRequest, now: float) -> Caller | GuardRefusal | None:
        """Who sends `request`, received at `now` (seconds of any steady clock), or why it is refused; None for what
        needs no token. Stored tokens count as far as `tokens` knows them: see `presented`."""
        hosts = _values(request.headers, b"host")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return MISDIRECTED
        # An absolute target would have to win over the Host header (RFC 9112 section 3.2.2). We are no proxy.
        if not request.target.startswith("/"):
            return BAD_TARGET
        origins = _values(request.headers, b"origin")
        if origins and (len(origins) > 1 or origins[0] not in self._origins):
            return FOREIGN_ORIGIN
        # The target is compared as it was sent: whatever a router makes of another spelling, it needs the token.
        if is_public(request):
            return NO_BODY_EXPECTED if _has_body(request.headers) else None
        caller = (
            self.caller(request.headers)
            or self._page(request, says_origin=bool(origins))
            or self._trade(request)
        )  # fmt: skip
        if caller is None:
            return self.refuse_token(request.peer, now)
        return self._refuse_body(request) or caller

    def presented(self, headers: RawHeaders) -> str | None:
        """The text in `headers` that may be a stored token or stand for one; `tokens` has to be asked about it."""
        texts = (_bearer(headers), _subprotocol_token(headers), _cookie(headers))
        return next((text for text in texts if text is not None and text.startswith(TOKEN_MARK)), None)

    def caller(self, headers: RawHeaders) -> Caller | None:
        """Whose token `headers` hold, in the one place where it belongs."""
        candidate = _bearer(headers) if _values(headers, b"authorization") else _subprotocol_token(headers)
        if candidate is None:
            return None
        if self.config.token.matches(candidate):
            return SERVER
        return self.tokens.find(candidate) if self.tokens is not None else None

    def _page(self, request: GuardedRequest, *, says_origin: bool) -> Caller | None:
        """The caller whose token our page traded for the cookie that this request brings."""
        if _values(request.headers, b"authorization"):
            return None
        if not says_origin:
            if _values(request.headers, b"upgrade") or request.method not in ("GET", "HEAD"):
                return None
            # Sent by browsers alone, which let no page set it (Fetch Metadata, section 2.3). A page of another port of
            # this machine is "same-site": SameSite=Strict does not keep the cookie from what it asks for.
            if not _OUR_PAGE_OR_THE_USER.issuperset(_values(request.headers, b"sec-fetch-site")):
                return None
        cookie = _cookie(request.headers)
        if cookie is None:
            return None
        if page_cookie(self.config.token).matches(cookie):
            return SERVER
        token_id = cookie.removeprefix(TOKEN_MARK).partition(".")[0]
        if self.tokens is None or not page_cookie(self.config.token, token_id).matches(cookie):
            return None
        return self.tokens.by_id(token_id)

    def _trade(self, request: GuardedRequest) -> Caller | None:
        """The administrator, if this trades a ticket, for the first time, for the page's cookie."""
        candidate = _bearer(request.headers)
        if (request.method, request.target) != ("POST", TRADE_PATH) or candidate is None:
            return None
        ticket = _TICKET.fullmatch(candidate)
        if ticket is None:
            return None
        until, nonce = int(ticket["until"]), ticket["nonce"]
        now = self.config.wall_clock()
        self._used_tickets = {used: end for used, end in self._used_tickets.items() if end >= now}
        is_good = now <= until <= now + TICKET_S and nonce not in self._used_tickets
        if not is_good or not _ticket(self.config.token, until, nonce, self.config.place).matches(candidate):
            return None
        self._used_tickets[nonce] = until
        return SERVER

    def refuse_token(self, peer: str, now: float) -> GuardRefusal:
        """The answer to a wrong token. A right one is never held up: another process may share the peer's address."""
        return UNAUTHORIZED if self._failures.allows(peer, now) else TOO_MANY_FAILURES

    def _refuse_body(self, request: GuardedRequest) -> GuardRefusal | None:
        """Bodies are JSON on every route: that is also what keeps other web pages out, whose forms cannot send it."""
        has_body = _has_body(request.headers)
        if request.method in ("GET", "HEAD"):
            return NO_BODY_EXPECTED if has_body else None
        if self._is_too_large(request.headers):
            return TOO_LARGE
        takes_body = has_body or request.method in ("POST", "PUT", "PATCH")
        return NOT_JSON if takes_body and not _is_json(request.headers) else None

    def _is_too_large(self, headers: RawHeaders) -> bool:
        return any(
            not length.isdecimal() or len(length) > _MAX_LENGTH_DIGITS or int(length) > self.config.max_body_bytes
            for length in _values(headers, b"content-length")
        )


class _FailureCounter:
    """A token bucket per peer, for the peers seen last."""

    def __init__(self, rate: FailureRate) -> None:
        self._rate = rate
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and since when

    def allows(self, peer: str, now: float) -> bool:
        left, since = self._buckets.pop(peer, (float(self._rate.burst), now))
        left = min(float(self._rate.burst), left + (now - since) * self._rate.per_minute / 60)
        allowed = left >= 1
        self._buckets[peer] = (left - 1 if allowed else left, now)
        if len(self._buckets) > _MAX_PEERS:
            self._buckets.popitem(last=False)
        return allowed


def page_cookie(token: Secret, token_id: str = "") -> Secret:
    """What the page's cookie holds: good for as long as the token is, and no way back to it. With an id it stands for
    that stored token; `token` is the server's own in any case."""
    if not token_id:
        return Secret(hmac.digest(token.reveal().encode(), b"makai page cookie", "sha256").hex())
    mac = hmac.digest(token.reveal().encode(), f"makai page cookie {token_id}".encode(), "sha256").hex()
    return Secret(f"{TOKEN_MARK}{token_id}.{mac}")


def page_ticket(token: Secret, now: float, place: str = "") -> Secret:
    """What opens the page of the server at `place` once, made at `now` (Unix seconds) by a holder of the token."""
    return _ticket(token, int(now) + TICKET_S, secrets.token_hex(16), place)


def _ticket(token: Secret, until: int, nonce: str, place: str) -> Secret:
    said = f"ticket.{until}.{nonce}"
    meant = f"makai page {said} {place}".encode("utf-8", "surrogateescape")
    return Secret(f"{said}.{hmac.digest(token.reveal().encode(), meant, 'sha256').hex()}")


def is_public(request: GuardedRequest) -> bool:
    """Whether the request needs no token."""
    target = request.target
    return request.method in ("GET", "HEAD") and (
        target in PUBLIC_PATHS or (target.startswith(PUBLIC_FOLDER) and ".." not in target and "%" not in target)
    )


def _has_body(headers: RawHeaders) -> bool:
    lengths = _values(headers, b"content-length")
    return bool(_values(headers, b"transfer-encoding")) or any(length.strip("0") for length in lengths)


def _is_json(headers: RawHeaders) -> bool:
    types = [value.partition(";")[0].strip().lower() for value in _values(headers, b"content-type")]
    encodings = {value.strip().lower() for value in _values(headers, b"content-encoding")}
    return types == ["application/json"] and encodings <= {"identity"}


def _bearer(headers: RawHeaders) -> str | None:
    authorization = _values(headers, b"authorization")
    if len(authorization) != 1:
        return None
    scheme, _, candidate = authorization[0].partition(" ")
    return candidate if scheme.lower() == "bearer" else None


def _subprotocol_token(headers: RawHeaders) -> str | None:
    """Browsers cannot set headers of a WebSocket, but they can offer subprotocols."""
    if "websocket" not in [value.lower() for value in _values(headers, b"upgrade")]:
        return None
    offered = [name.strip() for value in _values(headers, b"sec-websocket-protocol") for name in value.split(",")]
    found = [name.removeprefix(TOKEN_SUBPROTOCOL) for name in offered if name.startswith(TOKEN_SUBPROTOCOL)]
    return found[0] if len(found) == 1 else None


def _cookie(headers: RawHeaders) -> str | None:
    cookies = [part.strip() for value in _values(headers, b"cookie") for part in value.split(";")]
    ours = [cookie.partition("=")[2] for cookie in cookies if cookie.startswith(f"{COOKIE_NAME}=")]
    return ours[0] if len(ours) == 1 else None


def _values(headers: RawHeaders, name: bytes) -> list[str]:
    """Every value of a header. Latin-1 maps each byte to one character, so nothing is lost and nothing can fail."""
    return [value.decode("latin-1") for key, value in headers if key.lower() == name]
