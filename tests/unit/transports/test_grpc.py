"""What is special about gRPC: the message's encoding, which must be protobuf's, and who may call."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.transports import TOKEN, Accepted, read_to_the_end

from makai.core.errors import ChannelClosed, NotSupported, ParseError, TransportError
from makai.core.secret import Secret
from makai.transports import grpc as transport
from makai.transports.channel import Channel
from makai.transports.grpc import METHOD, SERVICE, connect_grpc, decode_frame, encode_frame, serve_grpc
from makai.transports.guard import FailureRate, Guard, GuardConfig

DEADLINE_S = 60.0
LIMIT = 100_000
needs_grpc = pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="needs makai[grpc]")
needs_protobuf = pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="needs grpcio-tools")


@asynccontextmanager
async def grpc_server(accepted: Accepted, **options: Any) -> AsyncIterator[str]:
    guard = Guard(GuardConfig(TOKEN, port=0, **options))
    server = await serve_grpc("127.0.0.1", 0, guard, accepted.serve, max_frame_bytes=LIMIT)
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield f"grpc://127.0.0.1:{server.port}"
    finally:
        await server.close(0)


@given(st.binary(max_size=300) | st.sampled_from([b"x" * 127, b"x" * 128, b"x" * 16_383, b"x" * 16_384]))
def test_a_frame_comes_back_from_its_message(frame: bytes) -> None:
    assert decode_frame(encode_frame(frame)) == frame


@pytest.mark.parametrize(
    ("message", "frame"),
    [
        (b"", b""),
        (b"\x0a\x02{}", b"{}"),
        (b"\x0a\x01a\x0a\x02{}", b"{}"),
        (b"\x10\x96\x01\x0a\x02{}", b"{}"),
        (b"\x1a\x03abc\x0a\x02{}\x25\0\0\0\0\x29\0\0\0\0\0\0\0\0", b"{}"),
    ],
    ids=["empty", "plain", "twice", "unknown number", "unknown fields"],
)
def test_messages_are_read_as_protobuf_asks(message: bytes, frame: bytes) -> None:
    assert decode_frame(message) == frame


@pytest.mark.parametrize(
    "message", [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\xff" * 11, b"\x0a\xff\xff\xff\xff\x0f", b"\x25\0"]
)
def test_what_is_no_message_is_a_parse_error(message: bytes) -> None:
    with pytest.raises(ParseError):
        decode_frame(message)


@pytest.mark.req("MK-TRANS-013")
def test_the_service_has_the_name_that_the_proto_file_gives_it() -> None:
    definition = (Path(transport.__file__).parent / "makai.proto").read_text()

    (package,) = re.findall(r"^package ([\w.]+);", definition, re.MULTILINE)
    (service,) = re.findall(r"^service (\w+) \{", definition, re.MULTILINE)
    (method,) = re.findall(r"rpc (\w+)\s*\(stream Frame\) returns \(stream Frame\)", definition)
    assert (f"{package}.{service}", method) == (SERVICE, METHOD)


@needs_protobuf
@pytest.mark.req("MK-TRANS-013")
def test_our_encoding_is_that_of_the_proto_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    protoc = importlib.import_module("grpc_tools.protoc")
    folder = Path(transport.__file__).parent
    assert protoc.main(["protoc", f"-I{folder}", f"--python_out={tmp_path}", str(folder / "makai.proto")]) == 0
    monkeypatch.syspath_prepend(str(tmp_path))
    generated = importlib.import_module("makai_pb2")

    service = generated.DESCRIPTOR.services_by_name["Makai"]
    (method,) = service.methods
    assert (service.full_name, method.name) == (SERVICE, METHOD)
    assert (method.client_streaming, method.server_streaming) == (True, True)
    for text in ("", "{}", "\u2028 \U0001f600", "x" * 300_000):
        frame = text.encode()
        encoded = generated.Frame(json=text).SerializeToString()
        assert decode_frame(encoded) == frame
        assert generated.Frame.FromString(encode_frame(frame)).json == text


@pytest.mark.proof("L1", "E5")
@needs_grpc
@pytest.mark.parametrize(
    ("token", "message"),
    [
        (None, "refused the connection: Send the server's token"),
        (Secret("wrong"), "refused the connection: Send the server's token"),
        (Secret(TOKEN.reveal()[:-1]), "Check the token"),
    ],
    ids=["none", "wrong", "truncated"],
)
async def test_without_the_token_nobody_is_served(accepted: Accepted, token: Secret | None, message: str) -> None:
    async with grpc_server(accepted) as url:
        with pytest.raises(TransportError, match=message):
            await connect_grpc(url, token)

        assert not accepted.channel.done()


@needs_grpc
async def test_wrong_tokens_are_slowed_down() -> None:
    async with grpc_server(Accepted(), failures=FailureRate(burst=1, per_minute=0.0)) as url:
        with pytest.raises(TransportError, match="Send the server's token"):
            await connect_grpc(url, Secret("wrong"))
        with pytest.raises(TransportError, match="Too many wrong tokens"):
            await connect_grpc(url, Secret("wrong"))


@pytest.mark.proof("L2")
@needs_grpc
async def test_a_call_with_an_origin_is_refused(accepted: Accepted) -> None:
    grpc = importlib.import_module("grpc.aio")
    async with grpc_server(accepted) as url, grpc.insecure_channel(url.removeprefix("grpc://")) as connection:
        metadata = (("authorization", f"Bearer {TOKEN.reveal()}"), ("origin", "https://evil.example"))
        call = connection.stream_stream(f"/{SERVICE}/{METHOD}")(metadata=metadata)
        code = await call.code()

    assert code.name == "PERMISSION_DENIED"
    assert not accepted.channel.done()


@pytest.mark.proof("E5")
@needs_grpc
async def test_a_cancelled_call_is_a_peer_that_has_gone(accepted: Accepted) -> None:
    grpc = importlib.import_module("grpc.aio")
    async with grpc_server(accepted) as url, grpc.insecure_channel(url.removeprefix("grpc://")) as connection:
        metadata = (("authorization", f"Bearer {TOKEN.reveal()}"),)
        call = connection.stream_stream(f"/{SERVICE}/{METHOD}")(metadata=metadata)
        await call.write(encode_frame(b"1"))
        channel = await accepted.channel
        first = await channel.receive()
        call.cancel()

        assert (first, await channel.receive()) == (b"1", None)
        with pytest.raises(ChannelClosed):
            await channel.send([b"2"])


@pytest.mark.proof("E5")
@needs_grpc
async def test_a_frame_above_the_limit_ends_the_call(accepted: Accepted) -> None:
    frame = b"x" * (LIMIT + 100)
    async with grpc_server(accepted) as url:
        client = await connect_grpc(url, TOKEN)
        channel = await accepted.channel
        sending, received = await asyncio.gather(send_until_closed(client, frame), read_to_the_end(channel))
        await client.close()

    assert (sending, received) == ("closed", [])


async def send_until_closed(client: Channel, frame: bytes) -> str:
    try:
        for _ in range(100):
            await client.send([frame])
    except ChannelClosed:
        return "closed"
    return "open"


@needs_grpc
async def test_a_server_that_is_not_there_is_an_error() -> None:
    with pytest.raises(TransportError, match=r"refused the connection"):
        await connect_grpc("grpc://127.0.0.1:9", TOKEN, deadline_s=0.2)


@needs_grpc
async def test_connections_that_say_nothing_are_bounded_and_closed(
    accepted: Accepted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makai.transports.grpc.HEADER_DEADLINE_S", 0.5)
    monkeypatch.setattr("makai.transports.grpc.share_of_descriptors", lambda most, parts: 4)
    async with grpc_server(accepted) as url:
        port = int(url.rpartition(":")[2])
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        for reader, writer in silent:
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.transport.abort()
        client = await connect_grpc(url, TOKEN)
        await client.close()


@needs_grpc
async def test_a_taken_port_is_an_error(accepted: Accepted) -> None:
    async with grpc_server(accepted) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(TransportError, match=f"Cannot listen on 127.0.0.1:{port}"):
            await serve_grpc("127.0.0.1", port, Guard(GuardConfig(TOKEN, port)), accepted.serve)


async def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_grpc(name: str, package: str | None = None) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", no_grpc)
    with pytest.raises(NotSupported, match=r"Install makai\[grpc\]"):
        await connect_grpc("grpc://127.0.0.1:1")


def test_importing_the_transport_does_not_import_the_library() -> None:
    program = "import sys, makai.transports.grpc; sys.exit('grpc' in sys.modules)"
    source = Path(transport.__file__).parents[2]
    finished = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": str(source)}, timeout=50)

    assert finished.returncode == 0
