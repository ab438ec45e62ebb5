"""The page's cookie, decision by decision: what it opens, where it must come from, and what it is not."""

from __future__ import annotations

import pytest

from makai.core.secret import Secret
from makai.transports.guard import (
    COOKIE_NAME,
    FOREIGN_ORIGIN,
    MISDIRECTED,
    UNAUTHORIZED,
    Guard,
    GuardConfig,
    GuardedRequest,
    GuardRefusal,
    page_cookie,
)

TOKEN = Secret("0123456789abcdef0123456789abcdef")
PORT = 8717
VALUE = page_cookie(TOKEN).reveal().encode()
COOKIE = (b"Cookie", COOKIE_NAME.encode() + b"=" + VALUE)
OURS = (b"Origin", b"http://127.0.0.1:8717")
UPGRADE = (b"Upgrade", b"websocket")


def check(
    *headers: tuple[bytes, bytes], target: str = "/api/sessions", method: str = "GET", host: bytes = b"127.0.0.1:8717"
) -> GuardRefusal | None:
    guard = Guard(GuardConfig(TOKEN, PORT))
    return guard.check(GuardedRequest(method, target, [(b"Host", host), *headers], "127.0.0.1"), 0.0)


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
    assert check(COOKIE, OURS, host=b"evil.com:8717") == MISDIRECTED


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


@pytest.mark.parametrize("target", ["/", "/icon.svg", "/assets/index-abc123.js"])
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
