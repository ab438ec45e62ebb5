"""The guard and browsers: other ports of this machine, and addresses on command lines."""

from __future__ import annotations

import pytest

from makai.core.secret import Secret
from makai.transports.guard import (
    COOKIE_NAME,
    FOREIGN_ORIGIN,
    TICKET_S,
    TRADE_PATH,
    UNAUTHORIZED,
    Guard,
    GuardConfig,
    GuardedRequest,
    GuardRefusal,
    page_cookie,
    page_ticket,
)

TOKEN = Secret("0123456789abcdef0123456789abcdef")
PORT = 8717
NOW = 1_800_000_000.0
COOKIE = (b"Cookie", f"{COOKIE_NAME}={page_cookie(TOKEN).reveal()}".encode())
OURS = (b"Origin", b"http://127.0.0.1:8717")


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def guard_at(clock: Clock) -> Guard:
    return Guard(GuardConfig(TOKEN, PORT, wall_clock=clock))


def check(
    *headers: tuple[bytes, bytes],
    guard: Guard | None = None,
    method: str = "GET",
    target: str = "/api/sessions",
    host: bytes = b"127.0.0.1:8717",
) -> GuardRefusal | None:
    request = GuardedRequest(method, target, [(b"Host", host), *headers], "127.0.0.1")
    return (guard or guard_at(Clock())).check(request, 0.0)


def trade(guard: Guard, ticket: Secret | str, **more: str) -> GuardRefusal | None:
    text = ticket if isinstance(ticket, str) else ticket.reveal()
    request = {"method": "POST", "target": TRADE_PATH, **more}
    bearer = (b"Authorization", f"Bearer {text}".encode())
    return check(OURS, bearer, guard=guard, method=request["method"], target=request["target"])


# The cookie -----------------------------------------------------------------------------------------------------------


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


# Tickets --------------------------------------------------------------------------------------------------------------


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
        page_cookie(TOKEN).reveal(),
    ):
        assert trade(guard, other) == UNAUTHORIZED


def test_a_ticket_beside_another_word_about_the_sender_is_refused() -> None:
    bearer = (b"Authorization", b"Bearer " + page_ticket(TOKEN, NOW).reveal().encode())
    for other in (bearer, (b"Authorization", b"")):
        assert check(OURS, bearer, other, method="POST", target=TRADE_PATH) == UNAUTHORIZED


def test_a_ticket_does_not_make_up_for_a_foreign_origin() -> None:
    bearer = (b"Authorization", b"Bearer " + page_ticket(TOKEN, NOW).reveal().encode())
    foreign = (b"Origin", b"https://evil.example")
    assert check(foreign, bearer, method="POST", target=TRADE_PATH) == FOREIGN_ORIGIN
