"""A request that cannot be read is neither logged nor repeated: a secret in any part of it stays where it was sent."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.serve_process import ServeProcess, serve_process

SECRET = "s3cr3t-0123456789-abcdef"
SCENARIO = "text: hi\n"
LINES = ("GET /{s} HTTP/1.1", "GET /?token={s} HTTP/1.1", "{s} / HTTP/1.1", "GET / {s}", "GET {s} HTTP/1.1",
         "GET http://{s}/ HTTP/1.1", "GET /\x01{s} HTTP/1.1", "GET /%zz{s} HTTP/1.1", "GET / HTTP/9.{s}",
         "GET //[{s} HTTP/1.1", "CONNECT {s}:99999 HTTP/1.1", "POST /v1/makai?{s} HTTP/1.1")  # fmt: skip
HEADERS = ("{s}", "{s}: x", "{s}\x00: x", "Authorization: Bearer {s}\x00", "Authorization: Bearer {s}\x01\x7f",
           "Authorization : Bearer {s}", " Authorization: Bearer {s}", "Authorization: Bearer\n\r {s}",
           "Cookie: a={s}\x00", "Cookie: makai-page={s}", "Host: {s}\x00", "Host: {s}:port:port", "Content-Length: {s}",
           "Transfer-Encoding: {s}", "Expect: {s}", "Content-Type: {s}", "Upgrade: {s}", "Authorization: Basic {s}",
           "Origin: {s}", "Sec-WebSocket-Protocol: makai.token.{s}", "X: {s}" + "y" * 20_000,
           "Makai-Connection: {s}")  # fmt: skip
BODIES = (
    '{"s": "{s}', "{s}", '{"mode": "{s}"}', '{"model_ref": {"{s}": 1}}', '{"{s}": 1}', '"\\ud800{s}"',
    '{"demo": "{s}"}',
)  # fmt: skip
FRAMES = ("{s}", '{"type": "{s}"}', '{"type": {"{s}": 1}}', '{"id": "{s}", "type": 5}', '["{s}"]', '{"{s}": ')


def of_secret(text: str) -> str:
    return text.replace("{s}", SECRET)


def malformed(port: int, token: str) -> Iterator[bytes]:
    host, bearer = f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {token}"
    for line in LINES:
        yield f"{of_secret(line)}\r\n{host}\r\nConnection: close\r\n\r\n".encode("latin-1")
    for line, header, key in itertools.product(("GET /api/info", "POST /v1/makai"), HEADERS, (bearer, "X-No: token")):
        head = f"{line} HTTP/1.1\r\n{host}\r\n{key}\r\n{of_secret(header)}\r\nConnection: close\r\n\r\n"
        yield head.encode("latin-1")
    for path, body in itertools.product(
        ("/v1/makai", "/api/sessions", "/api/auth/login", "/api/sessions/x/fork"), BODIES
    ):
        sent = of_secret(body).encode()
        yield (
            f"POST {path} HTTP/1.1\r\n{host}\r\n{bearer}\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(sent)}\r\n\r\n"
        ).encode() + sent
    chunked = f"POST /api/sessions HTTP/1.1\r\n{host}\r\n{bearer}\r\nContent-Type: application/json\r\n"
    for chunk in (f"{SECRET}\r\n", f"5;{SECRET}\x00\r\nhello\r\n", f"1\r\nx{SECRET}\r\n"):
        yield f"{chunked}Transfer-Encoding: chunked\r\n\r\n{chunk}".encode("latin-1")
    upgrade = (
        f"GET /v1/makai HTTP/1.1\r\n{host}\r\n{bearer}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: "
    )
    yield f"{upgrade}{SECRET}\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    yield f"{upgrade}makai.v1\r\nSec-WebSocket-Key: {SECRET}\r\n\r\n".encode()
    opened = f"{upgrade}makai.v1\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    for frame in (b"\x81", b"\xff", b"\x85", b"\x01"):  # unmasked text, reserved bits, a reserved opcode, a fragment
        yield opened + frame + bytes([len(SECRET)]) + SECRET.encode()


def everything_written(server: ServeProcess) -> str:
    files = [path for path in server.folder.rglob("*") if path.is_file() and path.suffix != ".db"]
    return "\n".join(path.read_text(encoding="latin-1") for path in files if path.name != "server-token")


@pytest.mark.proof("O7")
@pytest.mark.parametrize("environ", [{}, {"PYTHONASYNCIODEBUG": "1", "PYTHONDEVMODE": "1"}], ids=["plain", "debug"])
async def test_a_secret_in_a_malformed_request_is_neither_logged_nor_answered(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    async with serve_process(tmp_path, SCENARIO, environ=environ) as server:
        port = int(server.url.rpartition(":")[2])
        answered = 0
        for request in malformed(port, server.token):
            try:
                async with asyncio.timeout(30):
                    answer = await _first_answer(port, request)
            except (ConnectionError, asyncio.IncompleteReadError):
                answer = b""
            answered += bool(answer)
            assert SECRET.encode() not in answer, request
            assert server.token.encode() not in answer, request
        async with server.http.get(f"{server.url}/api/info", headers=dict(server.headers)) as response:
            assert response.status == 200
        written = everything_written(server)

    assert answered > 100
    assert SECRET not in written
    assert server.token not in written


async def _first_answer(port: int, request: bytes) -> bytes:
    """All that is answered until the server closes; the client closes its side when it has sent all."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        answer = b""
        while len(answer) < 100_000:
            async with asyncio.timeout(1.0):
                piece = await reader.read(65_536)
            if not piece:
                break
            answer += piece
        return answer
    except TimeoutError:
        return answer
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("frame", FRAMES)
async def test_a_frame_that_cannot_be_read_is_not_logged(tmp_path: Path, frame: str) -> None:
    async with serve_process(tmp_path, SCENARIO) as server:
        for path, protocol in (("/v1/makai", "makai.v1"), ("/ws", "minicodex.v1")):
            async with server.http.ws_connect(
                server.url + path, headers=dict(server.headers), protocols=(protocol,)
            ) as socket:
                await socket.send_str(of_secret(frame))
                await socket.receive(timeout=30)
        written = everything_written(server)

    assert SECRET not in written
