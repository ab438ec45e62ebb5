"""Who gets past the guard, decision by decision (reliability tests L1 to L4), without any server."""

from __future__ import annotations

import pytest

from makai.core.secret import Secret
from makai.transports import guard as guards
from makai.transports.guard import FOREIGN_ORIGIN, MISDIRECTED, UNAUTHORIZED, FailureRate, Guard, GuardConfig

TOKEN = "0123456789abcdef0123456789abcdef"
PORT = 8717
ROUTES = ["/ws", "/v1/makai", "/api/models", "/api/sessions", "/api/cookie", "/metrics", "/assets", "/assets/../api"]
BEARER = (b"Authorization", b"Bearer " + TOKEN.encode())
UPGRADE = (b"Upgrade", b"websocket")
CONFIG = GuardConfig(
    Secret(TOKEN),
    PORT,
    hosts=frozenset({"box.example:8717"}),
    origins=frozenset({"https://box.example"}),
    max_body_bytes=1000,
)


def check(
    *headers: tuple[bytes, bytes],
    target: str = "/v1/makai",
    method: str = "GET",
    host: bytes = b"127.0.0.1:8717",
    guard: Guard | None = None,
    now: float = 0.0,
) -> guards.GuardRefusal | None:
    json = [] if method == "GET" else [(b"Content-Type", b"application/json")]
    request = guards.GuardedRequest(method, target, [(b"Host", host), *headers, *json], "127.0.0.1")
    caller = (guard or Guard(CONFIG)).check(request, now)
    return caller if isinstance(caller, guards.GuardRefusal) else None


@pytest.mark.proof("L1")
@pytest.mark.parametrize("target", ROUTES)
@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"Authorization", b"Bearer " + b"f" * 32)],
        [(b"Authorization", b"Bearer " + TOKEN[:-1].encode())],
        [(b"Authorization", b"Bearer " + TOKEN.encode() + b"0")],
        [(b"Authorization", b"Bearer")],
        [(b"Authorization", b"Bearer ")],
        [(b"Authorization", TOKEN.encode())],
        [(b"Authorization", b"Basic " + TOKEN.encode())],
        [(b"Authorization", b"Bearer \xff\xfe\x00")],
        [BEARER, BEARER],
        [BEARER, (b"Authorization", b"Bearer wrong")],
        [(b"Authorization", b"Bearer wrong"), UPGRADE, (b"Sec-WebSocket-Protocol", b"makai.token." + TOKEN.encode())],
        [UPGRADE, (b"Sec-WebSocket-Protocol", b"makai.v1")],
        [UPGRADE, (b"Sec-WebSocket-Protocol", b"makai.v1, makai.token.wrong")],
        [UPGRADE, (b"Sec-WebSocket-Protocol", b"makai.token.wrong, makai.token." + TOKEN.encode())],
        [(b"Sec-WebSocket-Protocol", b"makai.v1, makai.token." + TOKEN.encode())],
        [(b"Cookie", b"token=" + TOKEN.encode())],
        [(b"X-Token", TOKEN.encode())],
    ],
)
def test_without_the_token_in_its_place_no_route_answers(target: str, headers: list[tuple[bytes, bytes]]) -> None:
    assert check(*headers, target=target) == UNAUTHORIZED


def test_a_token_in_the_url_is_not_looked_at() -> None:
    assert check(target=f"/v1/makai?token={TOKEN}&access_token={TOKEN}") == UNAUTHORIZED


@pytest.mark.parametrize(
    "headers",
    [
        [BEARER],
        [(b"authorization", b"bearer " + TOKEN.encode())],
        [UPGRADE, (b"Sec-WebSocket-Protocol", b"makai.v1, makai.token." + TOKEN.encode())],
        [
            UPGRADE,
            (b"Sec-WebSocket-Protocol", b"makai.v1"),
            (b"Sec-WebSocket-Protocol", b"makai.token." + TOKEN.encode()),
        ],
    ],
)
@pytest.mark.parametrize("target", ROUTES)
def test_with_the_token_every_route_answers(target: str, headers: list[tuple[bytes, bytes]]) -> None:
    assert check(*headers, target=target) is None


@pytest.mark.proof("L2")
@pytest.mark.parametrize(
    "origins",
    [
        [b"https://evil.example"], [b"null"], [b""], [b"http://localhost:9999"],
        [b"http://127.0.0.1.evil.example:8717"], [b"http://127.0.0.1"], [b"https://127.0.0.1:8717"],
        [b"HTTP://127.0.0.1:8717"], [b"http://127.0.0.1:8717/"], [b"chrome-extension://abcdefgh"], [b"file://"],
        [b"http://127.0.0.1:8717", b"https://evil.example"], [b"http://127.0.0.1:8717", b"http://127.0.0.1:8717"],
        [b"https://box.example.evil"],
    ],
)  # fmt: skip
@pytest.mark.parametrize(("method", "target"), [("GET", "/healthz"), ("POST", "/v1/makai"), ("OPTIONS", "/v1/makai")])
def test_a_foreign_origin_is_refused_even_with_the_token(origins: list[bytes], method: str, target: str) -> None:
    assert check(BEARER, *((b"Origin", origin) for origin in origins), method=method, target=target) == FOREIGN_ORIGIN


@pytest.mark.parametrize(
    "origin", [b"http://127.0.0.1:8717", b"http://localhost:8717", b"http://[::1]:8717", b"https://box.example"]
)
def test_our_own_origins_pass(origin: bytes) -> None:
    assert check(BEARER, (b"Origin", origin)) is None


@pytest.mark.proof("L3")
@pytest.mark.parametrize(
    "host",
    [
        b"evil.com", b"evil.com:8717", b"127.0.0.1.nip.io:8717", b"0.0.0.0:8717", b"[::]:8717",
        b"[::ffff:127.0.0.1]:8717", b"localhost.:8717", b"LOCALHOST:8717", b"Localhost:8717", b"127.0.0.1",
        b"localhost", b"127.0.0.1:", b"127.0.0.1:8718", b"127.0.0.1:08717", b"127.1:8717", b"2130706433:8717",
        b"127.0.0.2:8717", b"::1:8717", b"a/b", b"a?b", b"a#b", b"user@127.0.0.1:8717", b"127.0.0.1:8717/healthz?",
        b"127.0.0.1:8717 ", b"127.0.0.1:8717,evil.com", b"", b"\xff", b"box.example",
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", ["/v1/makai", "/healthz"])
def test_a_foreign_host_is_refused_even_with_the_token(host: bytes, target: str) -> None:
    assert check(BEARER, host=host, target=target) == MISDIRECTED


@pytest.mark.parametrize("host", [b"127.0.0.1:8717", b"localhost:8717", b"[::1]:8717", b"box.example:8717"])
def test_our_own_hosts_pass(host: bytes) -> None:
    assert check(BEARER, host=host) is None


@pytest.mark.proof("L3")
@pytest.mark.parametrize("hosts", [[], [b"127.0.0.1:8717"] * 2, [b"127.0.0.1:8717", b"evil.com"]])
def test_there_is_exactly_one_host(hosts: list[bytes]) -> None:
    request = guards.GuardedRequest("GET", "/", [BEARER, *((b"host", host) for host in hosts)], "127.0.0.1")

    assert Guard(CONFIG).check(request, 0.0) == MISDIRECTED


@pytest.mark.parametrize("target", ["/healthz", "/readyz"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_health_checks_need_no_token(target: str, method: str) -> None:
    assert check(target=target, method=method) is None


SPELLINGS = [
    "//healthz", "/healthz/", "/./healthz", "/healthz/.", "/%68ealthz", "/healthz%2f", "/healthz;x=1", "/healthz?x=1",
    "/healthz#x", "/HEALTHZ", "/healthz.", "/healthz ", "/healthz%00", "/healthz/../v1/makai", "/healthz/..%2fv1/makai",
    "/healthz%2f..%2fv1%2fmakai", "/v1/makai/../../healthz", "/v1/makai/%2e%2e/%2e%2e/healthz", "/v1/makai;/healthz",
    "/v1/makai?/healthz", "/v1/makai#/healthz", "/v1/makai%3f/healthz", "//v1/makai", "/v1//makai", "/v1/./makai",
    "/V1/Makai", "/v1%2fmakai", "/v1/makai/", "/v1/makai.", "/v1/makai%20", "/\\v1\\makai", "/%76%31/makai", "/.", "//",
]  # fmt: skip


@pytest.mark.proof("L4")
@pytest.mark.parametrize("target", SPELLINGS)
def test_no_spelling_of_a_path_gets_around_the_token(target: str) -> None:
    assert check(target=target) == UNAUTHORIZED


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:8717/healthz", "http://evil.com/healthz", "*", "127.0.0.1:8717", "healthz", "",
        "HTTP://a/healthz",
    ],
)  # fmt: skip
def test_a_target_that_is_no_path_is_refused(target: str) -> None:
    assert check(BEARER, target=target) == guards.BAD_TARGET


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_only_reading_a_health_check_is_free(method: str) -> None:
    assert check(target="/healthz", method=method) == UNAUTHORIZED


@pytest.mark.proof("limit-message")
@pytest.mark.parametrize(
    ("length", "refusal"),
    [(b"0", None), (b"1000", None)]
    + [(length, guards.TOO_LARGE) for length in (b"1001", b"9" * 5000, b"-1", b"1e3", b"\xb2")],
)
def test_a_body_above_the_limit_is_refused_unread(length: bytes, refusal: guards.GuardRefusal | None) -> None:
    assert check(BEARER, (b"Content-Length", length), method="POST") == refusal


def test_a_stranger_does_not_learn_the_limit() -> None:
    assert check((b"Content-Length", b"999999"), method="POST") == UNAUTHORIZED


def test_after_too_many_wrong_tokens_a_peer_has_to_wait_but_the_right_token_always_works() -> None:
    guard = Guard(GuardConfig(Secret(TOKEN), PORT, failures=FailureRate(burst=3, per_minute=60.0)))

    assert [check(guard=guard) for _ in range(5)] == [UNAUTHORIZED] * 3 + [guards.TOO_MANY_FAILURES] * 2
    assert check(BEARER, guard=guard) is None
    assert [check(guard=guard, now=1.0) for _ in range(2)] == [UNAUTHORIZED, guards.TOO_MANY_FAILURES]


def test_peers_are_counted_apart_and_old_ones_forgotten() -> None:
    guard = Guard(GuardConfig(Secret(TOKEN), PORT, failures=FailureRate(burst=1, per_minute=0.0)))

    first = [guard.refuse_token(f"10.0.0.{number}", 0.0) for number in (1, 1, 2)]
    for number in range(2000):
        guard.refuse_token(f"peer {number}", 0.0)

    assert first == [UNAUTHORIZED, guards.TOO_MANY_FAILURES, UNAUTHORIZED]
    assert guard.refuse_token("10.0.0.1", 0.0) == UNAUTHORIZED
