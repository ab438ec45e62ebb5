"""The guard and browsers: the page's cookie, other ports of this machine, and the tickets that open the page."""

from __future__ import annotations

import pytest

from makai.core.secret import Secret
from makai.transports import guard as guards
from makai.transports.guard import FOREIGN_ORIGIN, TICKET_S, TRADE_PATH, UNAUTHORIZED, Guard, page_cookie, page_ticket

TOKEN = Secret("0123456789abcdef0123456789abcdef")
NOW = 1_800_000_000.0
VALUE = page_cookie(TOKEN).reveal().encode()
COOKIE = (b"Cookie", guards.COOKIE_NAME.encode() + b"=" + VALUE)
OURS = (b"Origin", b"http://127.0.0.1:8717")
UPGRADE = (b"Upgrade", b"websocket")


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def guard_at(clock: Clock) -> Guard:
    return Guard(guards.GuardConfig(TOKEN, 8717, wall_clock=clock))


def check(
    *headers: tuple[bytes, bytes],
    guard: Guard | None = None,
    method: str = "GET",
    target: str = "/api/sessions",
    host: bytes = b"127.0.0.1:8717",
) -> guards.GuardRefusal | None:
    json = [] if method == "GET" else [(b"Content-Type", b"application/json")]
    request = guards.GuardedRequest(method, target, [(b"Host", host), *headers, *json], "127.0.0.1")
    caller = (guard or guard_at(Clock())).check(request, 0.0)
    return caller if isinstance(caller, guards.GuardRefusal) else None


def trade(guard: Guard, ticket: Secret | str, **more: str) -> guards.GuardRefusal | None:
    text = ticket if isinstance(ticket, str) else ticket.reveal()
    request = {"method": "POST", "target": TRADE_PATH, **more}
    bearer = (b"Authorization", f"Bearer {text}".encode())
    return check(OURS, bearer, guard=guard, method=request["method"], target=request["target"])


def test_the_cookie_is_not_the_token_and_no_part_of_it() -> None:
    assert TOKEN.reveal() not in VALUE.decode()
    assert check((b"Authorization", b"Bearer " + VALUE)) == UNAUTHORIZED
    assert check(UPGRADE, OURS, (b"Sec-WebSocket-Protocol", b"makai.token." + VALUE)) == UNAUTHORIZED
    assert page_cookie(Secret("another")).reveal() != page_cookie(TOKEN).reveal()


@pytest.mark.parametrize("origin", [[], [OURS]], ids=["no origin", "our origin"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_reading_needs_the_cookie_and_nothing_else(origin: list[tuple[bytes, bytes]], method: str) -> None:
    assert check(COOKIE, *origin, method=method) is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_changing_something_by_cookie_needs_our_origin(method: str) -> None:
    assert check(COOKIE, OURS, method=method) is None
    assert check(COOKIE, method=method) == UNAUTHORIZED


def test_an_upgrade_by_cookie_needs_our_origin() -> None:
    assert check(COOKIE, OURS, UPGRADE, target="/ws") is None
    assert check(COOKIE, UPGRADE, target="/ws") == UNAUTHORIZED
    assert check(COOKIE, (b"upgrade", b"h2c"), target="/ws") == UNAUTHORIZED


@pytest.mark.parametrize(
    "origin", [b"https://evil.example", b"null", b"http://localhost:9999", b"https://127.0.0.1:8717", b""]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_cookie_with_a_foreign_origin_is_refused(origin: bytes, method: str) -> None:
    assert check(COOKIE, (b"Origin", origin), method=method) == FOREIGN_ORIGIN


def test_the_cookie_does_not_make_up_for_a_foreign_host() -> None:
    assert check(COOKIE, OURS, host=b"evil.com:8717") == guards.MISDIRECTED


@pytest.mark.parametrize(
    "authorization", [b"Bearer wrong", b"Bearer " + VALUE, b"Basic x", b"Bearer", b""], ids=lambda value: str(value)
)
def test_the_cookie_does_not_make_up_for_a_wrong_token(authorization: bytes) -> None:
    assert check(COOKIE, OURS, (b"Authorization", authorization)) == UNAUTHORIZED


@pytest.mark.parametrize(
    "cookies",
    [
        [b""],
        [b"makai-page"],
        [b"makai-page="],
        [b"makai-page=" + VALUE[:-1]],
        [b"makai-page=" + VALUE + b"0"],
        [b"makai-page=" + VALUE.upper()],
        [b"Makai-Page=" + VALUE],
        [b"xmakai-page=" + VALUE],
        [b'makai-page="' + VALUE + b'"'],
        [b"makai-page=" + VALUE + b"; makai-page=" + VALUE],
        [b"makai-page=wrong; makai-page=" + VALUE],
        [b"makai-page=" + VALUE, b"makai-page=wrong"],
        [b"makai-page=\xff\xfe"],
    ],
)
def test_other_cookies_open_nothing(cookies: list[bytes]) -> None:
    assert check(*((b"Cookie", cookie) for cookie in cookies), OURS) == UNAUTHORIZED


@pytest.mark.parametrize("cookies", [b"other=1; makai-page=%b", b"makai-page=%b;other=1", b"a=b;  makai-page=%b ; c=d"])
def test_the_cookie_may_stand_among_others(cookies: bytes) -> None:
    assert check((b"Cookie", cookies.replace(b"%b", VALUE)), OURS) is None


@pytest.mark.parametrize("target", ["/", "/icon.svg", "/sw.js", "/offline.html", "/assets/index-abc123.js"])
def test_the_files_of_the_page_are_readable_by_all_and_only_readable(target: str) -> None:
    assert check(target=target) is None
    assert check(target=target, method="HEAD") is None
    assert check(target=target, method="POST") == UNAUTHORIZED
    assert check((b"Origin", b"https://evil.example"), target=target) == FOREIGN_ORIGIN


@pytest.mark.parametrize(
    "target",
    [
        "/assets/../api/sessions", "/assets/..%2fapi%2fsessions", "/assets/%2e%2e/api/sessions", "/assets",
        "/assets%2f",
        "/assets/x/../../api/sessions", "/assets/..", "//assets/x", "/Assets/x", "/?x", "/index.html", "/./",
    ],
)  # fmt: skip
def test_no_spelling_gets_out_of_the_folder_of_the_page(target: str) -> None:
    assert check(target=target) == UNAUTHORIZED


@pytest.mark.parametrize("site", [b"same-site", b"cross-site", b"", b"Same-Origin", b"same-origin, cross-site"])
def test_the_cookie_does_not_count_when_another_page_asks_even_one_of_another_port(site: bytes) -> None:
    assert check(COOKIE, (b"Sec-Fetch-Site", site)) == UNAUTHORIZED
    assert check(COOKIE, (b"sec-fetch-site", site), method="HEAD") == UNAUTHORIZED


@pytest.mark.parametrize("site", [b"same-origin", b"none"])
def test_the_cookie_counts_when_our_page_or_the_user_asks(site: bytes) -> None:
    assert check(COOKIE, (b"Sec-Fetch-Site", site)) is None


def test_the_token_counts_wherever_a_program_says_it_is() -> None:
    assert check((b"Authorization", b"Bearer " + TOKEN.reveal().encode()), (b"Sec-Fetch-Site", b"cross-site")) is None


def test_the_page_has_a_name_of_its_own() -> None:
    ours = (b"Origin", b"http://makai.localhost:8717")
    assert check(COOKIE, ours, method="POST", host=b"makai.localhost:8717") is None
    assert check(COOKIE, (b"Origin", b"http://evil.localhost:8717"), host=b"makai.localhost:8717") == FOREIGN_ORIGIN


def test_a_ticket_is_good_for_one_trade() -> None:
    guard, ticket = guard_at(Clock()), page_ticket(TOKEN, NOW)

    assert trade(guard, ticket) is None
    assert trade(guard, ticket) == UNAUTHORIZED
    assert trade(guard, page_ticket(TOKEN, NOW)) is None


def test_a_ticket_does_not_tell_the_token_and_opens_nothing_else() -> None:
    guard, ticket = guard_at(Clock()), page_ticket(TOKEN, NOW)

    assert TOKEN.reveal() not in ticket.reveal()
    for method, target in (("GET", "/api/sessions"), ("POST", "/api/sessions"), ("GET", TRADE_PATH)):
        assert trade(guard, ticket, method=method, target=target) == UNAUTHORIZED
    upgrade = ((b"Upgrade", b"websocket"), (b"Sec-WebSocket-Protocol", b"makai.token." + ticket.reveal().encode()))
    assert check(OURS, *upgrade, guard=guard, target="/ws") == UNAUTHORIZED
    assert trade(guard, ticket) is None  # none of that has used it up


@pytest.mark.parametrize("late_s", [-1, TICKET_S + 1, 10 * TICKET_S])
def test_a_ticket_is_good_for_a_minute(late_s: float) -> None:
    clock = Clock()
    guard, ticket = guard_at(clock), page_ticket(TOKEN, NOW)
    clock.now = NOW + late_s

    assert trade(guard, ticket) == UNAUTHORIZED


def test_what_was_used_is_forgotten_only_when_it_is_too_late_anyway() -> None:
    clock = Clock()
    guard, ticket = guard_at(clock), page_ticket(TOKEN, NOW)
    trade(guard, ticket)
    for late_s in (TICKET_S, TICKET_S + 1):
        clock.now = NOW + late_s
        assert trade(guard, ticket) == UNAUTHORIZED


def test_a_ticket_cannot_be_made_or_changed_without_the_token() -> None:
    guard, ticket = guard_at(Clock()), page_ticket(TOKEN, NOW).reveal()
    name, until, nonce, signature = ticket.split(".")
    for other in (
        f"{name}.{int(until) - 1}.{nonce}.{signature}",
        f"{name}.{until}.{nonce[::-1]}.{signature}",
        f"{name}.{until}.{nonce}.{signature[::-1]}",
        f"{name}.{until}.{nonce}",
        f" {ticket}",
        f"{ticket} ",
        page_ticket(Secret("another"), NOW).reveal(),
        page_ticket(TOKEN, NOW, "another machine").reveal(),
        page_cookie(TOKEN).reveal(),
    ):
        assert trade(guard, other) == UNAUTHORIZED


def test_a_ticket_beside_another_header_about_the_sender_is_refused() -> None:
    bearer = (b"Authorization", b"Bearer " + page_ticket(TOKEN, NOW).reveal().encode())
    for other in (bearer, (b"Authorization", b"")):
        assert check(OURS, bearer, other, method="POST", target=TRADE_PATH) == UNAUTHORIZED
    foreign = (b"Origin", b"https://evil.example")
    assert check(foreign, bearer, method="POST", target=TRADE_PATH) == FOREIGN_ORIGIN
