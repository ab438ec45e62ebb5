"""The listener that takes the browser's answer (reliability O4)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from makai.auth import loopback
from makai.auth.loopback import CallbackListener, listen
from makai.auth.oauth import Callback
from makai.core.errors import AuthRequired, InvalidRequest
from makai.core.secret import Secret

CALLBACK = Callback(provider_id="acme", state=Secret("right"))


@pytest.fixture
async def listener() -> AsyncIterator[CallbackListener]:
    async with listen(CALLBACK) as listening:
        yield listening


def port_of(listener: CallbackListener) -> int:
    return int(listener.redirect_uri.split(":")[2].split("/")[0])


async def ask(
    listener: CallbackListener, target: str = "/callback?code=c0de&state=right", *, method: str = "GET", host: str = ""
) -> tuple[int, str]:
    """Status and page for one request."""
    port = port_of(listener)
    return await send(port, f"{method} {target} HTTP/1.1\r\nHost: {host or f'127.0.0.1:{port}'}\r\n\r\n".encode())


async def send(port: int, request: bytes) -> tuple[int, str]:
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request)
            head, _, page = (await reader.read()).decode().partition("\r\n\r\n")
            return int(head.split(" ")[1]), page
        finally:
            writer.close()


async def is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


@pytest.mark.proof("O4")
async def test_the_right_answer_is_taken_and_the_port_closes() -> None:
    async with listen(CALLBACK) as listener:
        port = port_of(listener)
        assert listener.redirect_uri == f"http://127.0.0.1:{port}/callback"
        status, page = await ask(listener)

        assert (status, "received the answer" in page) == (200, True)
        assert "c0de" not in page
        assert await listener.code() == Secret("c0de")
    assert not await is_open(port)


@pytest.mark.proof("O4")
@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("/callback?code=evil&state=wrong", 400, "does not belong to the login"),
        ("/callback?code=evil", 400, "does not belong to the login"),
        ("/callback?code=evil&state=", 400, "does not belong to the login"),
        ("/callback?error=access_denied", 400, "does not belong to the login"),
        ("/callback", 400, "does not belong to the login"),
        ("/", 404, "nothing here"),
        ("/favicon.ico", 404, "nothing here"),
        ("/callback/?code=evil&state=right", 404, "nothing here"),
        ("//callback?code=evil&state=right", 404, "nothing here"),
        (f"/callback?code={'x' * 100_000}&state=right", 414, "too long"),
        (f"/callback?code=evil&state=right&{'&'.join(['a=1'] * 60)}", 400, "cannot be read"),
    ],
)
async def test_other_requests_change_nothing(listener: CallbackListener, target: str, status: int, words: str) -> None:
    got, page = await ask(listener, target)
    assert (got, words in page) == (status, True)

    assert (await ask(listener))[0] == 200
    assert await listener.code() == Secret("c0de")


@pytest.mark.proof("O4")
@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "OPTIONS"])
async def test_only_get_is_an_answer(listener: CallbackListener, method: str) -> None:
    assert (await ask(listener, method=method))[0] == 405
    assert (await ask(listener))[0] == 200


@pytest.mark.proof("O4")
@pytest.mark.parametrize("host", ["evil.example", "localhost:1", "127.0.0.1", "evil.example:80\r\nHost: 127.0.0.1"])
async def test_a_foreign_host_is_dns_rebinding(listener: CallbackListener, host: str) -> None:
    assert (await ask(listener, host=host))[0] == 403
    assert (await ask(listener))[0] == 200


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET http://127.0.0.1/callback HTTP/1.1\r\n\r\n",
        b"GET /callback\xff HTTP/1.1\r\n\r\n",
        b"\r\n\r\n",
    ],
)
async def test_bytes_that_are_no_request_of_a_browser(listener: CallbackListener, request_bytes: bytes) -> None:
    assert (await send(port_of(listener), request_bytes))[0] == 400
    assert (await ask(listener))[0] == 200


@pytest.mark.proof("O4")
async def test_a_second_answer_is_told_so_and_the_first_one_counts(listener: CallbackListener) -> None:
    assert [(await ask(listener))[0], (await ask(listener, "/callback?code=other&state=right"))[0]] == [200, 410]
    assert await listener.code() == Secret("c0de")


@pytest.mark.parametrize(
    ("query", "words"), [("error=access_denied&state=right", "access was denied"), ("state=right", "sent no code")]
)
async def test_a_refusal_by_the_server_ends_the_wait(listener: CallbackListener, query: str, words: str) -> None:
    status, page = await ask(listener, f"/callback?{query}")

    assert (status, words in page) == (400, True)
    with pytest.raises(AuthRequired, match=words):
        await listener.code()


async def test_a_page_never_repeats_markup_of_the_request(listener: CallbackListener) -> None:
    _, page = await ask(listener, "/callback?error=<script>x</script>&error_description=<b>x</b>&state=right")

    assert "<script" not in page
    assert "<b>" not in page


@pytest.mark.proof("O4")
async def test_a_thousand_wrong_requests_do_not_keep_the_right_one_out(listener: CallbackListener) -> None:
    for _ in range(50):
        crowd = [ask(listener, "/callback?code=evil&state=wrong") for _ in range(20)]
        assert {status for status, _ in await asyncio.gather(*crowd)} == {400}

    assert (await ask(listener))[0] == 200
    assert await listener.code() == Secret("c0de")


async def test_connections_that_say_nothing_are_bounded_and_do_not_keep_the_browser_out() -> None:
    async with listen(CALLBACK) as listener:
        crowd = range(loopback.MAX_CONNECTIONS + 1)
        silent = [await asyncio.open_connection("127.0.0.1", port_of(listener)) for _ in crowd]
        async with asyncio.timeout(60):
            assert await silent[0][0].read() == b"", "the oldest one makes room"
            assert (await ask(listener))[0] == 200
    for reader, writer in silent:
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.proof("O4")
async def test_without_an_answer_the_wait_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "WAIT_S", 0.0)
    async with listen(CALLBACK) as listener:
        with pytest.raises(AuthRequired, match="The browser brought no answer within 0 minutes"):
            await listener.code()


async def test_a_port_that_is_taken_is_named_and_another_one_is_tried() -> None:
    async with listen(CALLBACK) as first:
        taken = port_of(first)
        with pytest.raises(InvalidRequest, match=f"port {taken} on this machine is in use"):
            async with listen(CALLBACK, ports=(taken,)):
                pass
        async with listen(CALLBACK, host="localhost", ports=(taken, 0)) as second:
            assert second.redirect_uri == f"http://localhost:{port_of(second)}/callback"
            assert (await ask(second, host=f"localhost:{port_of(second)}"))[0] == 200
            assert (await ask(second))[0] == 403, "only the Host of the redirect URI"


async def test_localhost_is_this_login_on_both_addresses_or_on_another_port() -> None:
    """A browser may resolve `localhost` to ::1, where another program could be waiting for the code."""
    async with listen(CALLBACK, host="localhost") as listener:
        port = port_of(listener)
        reader, writer = await asyncio.open_connection("::1", port)
        writer.write(f"GET /callback?code=c0de&state=right HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
        assert (await asyncio.wait_for(reader.read(), 60)).startswith(b"HTTP/1.1 200 ")
        writer.close()
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidRequest, match=f"port {port} on this machine is in use"):
            async with listen(CALLBACK, host="localhost", ports=(port,)):
                pass
        async with listen(CALLBACK, ports=(port,)) as literal:
            assert port_of(literal) == port


@pytest.mark.parametrize(
    "query",
    [
        *(
            "code=c0de&state=right&state=right",
            "state=wrong&code=c0de&state=right",
            "state=right&code=c0de&state=wrong",
        ),
        *("code=evil&code=c0de&state=right", "code=c0de&state=right&iss=a&iss=b", "error=a&error=b&state=right"),
        "code=c0de&state=right&%73tate=right",
    ],
)
async def test_an_answer_that_says_something_twice_is_refused(listener: CallbackListener, query: str) -> None:
    status, page = await ask(listener, f"/callback?{query}")

    assert (status, "names a value twice" in page) == (400, True)
    assert (await ask(listener))[0] == 200, "the right answer is still taken"
    assert (await ask(listener))[0] == 410, "and no second one"


async def test_the_path_can_carry_the_state() -> None:
    async with listen(Callback(provider_id="acme", state=Secret("right"), state_in_path=True)) as listener:
        assert (await ask(listener, "/callback?code=c0de&state=right"))[0] == 404
        assert (await ask(listener, "/callback/wrong?code=c0de"))[0] == 404
        assert (await ask(listener, "/callback/right?code=c0de"))[0] == 200
