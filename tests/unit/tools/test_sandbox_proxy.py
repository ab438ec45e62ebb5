"""The proxy of a command, by real sockets: which hosts it reaches, what it says of others, and that nothing stays."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import uvloop
from support.machine import open_descriptors
from support.tls import client_hello

from makai.tools import addresses
from makai.tools.sandbox import proxy as module
from makai.tools.sandbox.proxy import EgressProxy, ProxyDeadlines
from makai.tools.sandbox.proxy_clients import ListeningSocket

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
DEADLINE_S = 20.0


class Bench:
    """A proxy with a listener of its own, for which every name is this machine, and servers to be reached."""

    def __init__(self) -> None:
        self.lookups: list[str] = []
        self.answers: dict[str, list[Sequence[str]]] = {}
        self.stack = AsyncExitStack()

    async def resolve(self, name: str, port: int) -> Sequence[str]:
        self.lookups.append(name)
        if name in self.answers:
            return self.answers[name].pop(0)
        return ["127.0.0.1"]

    async def serve(self, talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> int:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await talk(reader, writer)
            except ConnectionError:
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        self.stack.callback(server.close)
        return int(server.sockets[0].getsockname()[1])

    async def proxy(
        self,
        *hosts: str,
        deadlines: ProxyDeadlines | None = None,
        may_be_reached: Callable[[str], bool] = lambda address: True,
        environ: Mapping[str, str] | None = None,
    ) -> EgressProxy:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        made = EgressProxy(
            hosts, environ=environ, resolve=self.resolve, may_be_reached=may_be_reached, deadlines=deadlines
        )
        self.stack.push_async_callback(made.close)
        made.serve(ListeningSocket(listener))
        return made

    async def connect(self) -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.stack.callback(writer.close)
        return reader, writer

    async def ask(self, sent: bytes) -> bytes:
        """All that the proxy says to a client that sends one thing."""
        reader, writer = await self.connect()
        writer.write(sent)
        return await reader.read()

    async def tunnel(self, host: str) -> Stream:
        reader, writer = await self.connect()
        writer.write(f"CONNECT {host} HTTP/1.1\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        return reader, writer


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    async with asyncio.timeout(DEADLINE_S), made.stack:
        yield made


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says back all it heard once the other side has said everything."""
    writer.write(await reader.read())
    writer.write_eof()


async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(head), head))


async def test_a_tunnel_carries_bytes_both_ways_and_the_end_of_each(bench: Bench) -> None:
    port = await bench.serve(echo)
    proxy = await bench.proxy(f"a.example:{port}")
    reader, writer = await bench.tunnel(f"A.Example.:{port}")
    sent = b"not TLS" + os.urandom(1_000_000)
    writer.write(sent)
    writer.write_eof()
    assert await reader.read() == sent
    assert proxy.notice() == ""


async def test_socks5_reaches_the_same_hosts(bench: Bench) -> None:
    port = await bench.serve(echo)
    await bench.proxy(f"a.example:{port}")
    reader, writer = await bench.connect()
    writer.write(b"\x05\x01\x00")
    assert await reader.readexactly(2) == b"\x05\x00"
    writer.write(b"\x05\x01\x00\x03\x09a.example" + port.to_bytes(2, "big"))
    assert await reader.readexactly(10) == b"\x05\x00\x00\x01" + bytes(6)
    writer.write(b"hello")
    writer.write_eof()
    assert await reader.read() == b"hello"


async def test_a_plain_request_reaches_its_server_in_the_form_for_it(bench: Bench) -> None:
    port = await bench.serve(answer_once)
    await bench.proxy(f"a.example:{port}")
    said = await bench.ask(f"GET http://a.example:{port}/x HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n".encode())
    assert said.endswith(f"\r\n\r\nGET /x HTTP/1.1\r\nHost: a.example:{port}\r\nConnection: close\r\n\r\n".encode())


async def test_a_second_request_on_a_plain_connection_never_reaches_a_server(bench: Bench) -> None:
    heard = bytearray()
    gone = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                heard.extend(data)
        finally:
            gone.set()

    port = await bench.serve(listen)
    await bench.proxy(f"a.example:{port}")
    first = f"POST http://a.example:{port}/x HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi".encode()
    second = b"GET /secret HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    assert await bench.ask(first + second) == b""  # in one packet
    await gone.wait()
    gone.clear()
    reader, writer = await bench.connect()
    for piece in (first, second):  # one after the other
        writer.write(piece)
        await writer.drain()
    assert await reader.read() == b""
    await gone.wait()
    assert heard.count(b"POST /x") == 2
    assert b"evil" not in heard


@pytest.mark.parametrize("hosts", [(), ("b.example",), ("*.a.example",), ("a.example:444",)])
async def test_a_host_that_is_not_named_is_refused_before_it_is_resolved(bench: Bench, hosts: tuple[str, ...]) -> None:
    proxy = await bench.proxy(*hosts)
    said = await bench.ask(b"CONNECT a.example:443 HTTP/1.1\r\n\r\n")
    head, _, body = said.decode().partition("\r\n\r\n")
    allowed = ", ".join(hosts) or "none"
    assert head.startswith("HTTP/1.1 403 Forbidden\r\n")
    assert body == (
        f'makai: a.example:443 is not among the allowed hosts ({allowed}). Ask for it with network=["a.example"].\n'
    )
    assert bench.lookups == []
    ask = ", ".join(f'"{host}"' for host in (*hosts, "a.example"))
    assert proxy.notice() == f"[blocked: a.example:443 is not among the allowed hosts; ask with network=[{ask}]]\n"


async def test_a_notice_names_each_refused_host_once_and_not_too_many(bench: Bench) -> None:
    proxy = await bench.proxy("a.example")
    for name in ("b.example:80", "c.example:8080", "b.example:80"):
        await bench.ask(f"GET http://{name}/ HTTP/1.1\r\n\r\n".encode())
    hosts = '["a.example", "b.example", "c.example:8080"]'
    names = "b.example:80, c.example:8080"
    assert proxy.notice() == f"[blocked: {names} are not among the allowed hosts; ask with network={hosts}]\n"
    for number in range(100):
        await bench.ask(f"GET http://h{number}.example/ HTTP/1.1\r\n\r\n".encode())
    assert proxy.notice().partition(" are not ")[0].count(":80") == module.MAX_REFUSALS


@pytest.mark.parametrize("found", [["127.0.0.1"], ["10.0.0.1"], ["::1"], ["169.254.169.254"], ["1.1.1.1", "127.0.0.1"]])
async def test_a_name_that_leads_to_this_machine_or_network_is_refused(bench: Bench, found: list[str]) -> None:
    port = await bench.serve(echo)
    bench.answers["a.example"] = [found]
    proxy = await bench.proxy(f"a.example:{port}", may_be_reached=addresses.may_be_reached)
    said = await bench.ask(f"CONNECT a.example:{port} HTTP/1.1\r\n\r\n".encode())
    assert b" 403 Forbidden" in said
    assert proxy.notice() == "[blocked: a.example is not on the public internet]\n"


@pytest.mark.proof("L7")
async def test_the_addresses_that_were_checked_are_those_that_are_connected_to(bench: Bench) -> None:
    port = await bench.serve(echo)
    bench.answers["a.example"] = [["127.0.0.1"], ["127.0.0.2"]]  # it changes after the first lookup
    await bench.proxy(f"a.example:{port}", may_be_reached=lambda address: address == "127.0.0.1")
    for _ in range(2):
        _, writer = await bench.tunnel(f"a.example:{port}")
        writer.close()
    assert bench.lookups == ["a.example"]


async def test_a_name_with_very_many_addresses_costs_the_checks_of_a_few(bench: Bench) -> None:
    checked: list[str] = []

    def may_be_reached(address: str) -> bool:
        checked.append(address)
        return True

    bench.answers["a.example"] = [[f"127.1.{number // 250}.{number % 250 + 1}" for number in range(5_000)]]
    await bench.proxy("a.example:1", may_be_reached=may_be_reached)  # nothing listens at this port
    assert b"502 Bad Gateway" in await bench.ask(b"CONNECT a.example:1 HTTP/1.1\r\n\r\n")
    assert checked == [f"127.1.0.{number + 1}" for number in range(8)]


async def test_an_address_that_does_not_answer_is_followed_by_the_next(bench: Bench) -> None:
    port = await bench.serve(echo)
    bench.answers["a.example"] = [["127.0.0.9", "::1", "127.0.0.1"]]  # nothing listens at the first two
    await bench.proxy(f"a.example:{port}")
    await bench.tunnel(f"a.example:{port}")


async def test_a_host_that_is_not_known_or_does_not_answer_is_reported(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    bench.answers["b.example"] = [[]]
    proxy = await bench.proxy(f"a.example:{port}", f"b.example:{port}")
    assert b"502 Bad Gateway" in await bench.ask(f"CONNECT a.example:{port} HTTP/1.1\r\n\r\n".encode())
    assert b"502 Bad Gateway" in await bench.ask(f"CONNECT b.example:{port} HTTP/1.1\r\n\r\n".encode())
    refused = f"[blocked: a.example:{port} could not be reached: "
    assert proxy.notice().startswith(refused)
    assert proxy.notice().endswith("[blocked: b.example is not known]\n")


async def test_every_wait_has_a_deadline(bench: Bench) -> None:
    never = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def resolve(name: str, port: int) -> Sequence[str]:
        if name == "slow.example":
            await never.wait()
        return ["127.0.0.1"]

    port = await bench.serve(say_nothing)
    bench.resolve = resolve  # type: ignore[method-assign]
    deadlines = ProxyDeadlines(request_s=0.1, resolve_s=0.1, connect_s=0.1, idle_s=0.1)
    await bench.proxy(f"a.example:{port}", "slow.example", deadlines=deadlines)
    assert await bench.ask(b"CONN") == b""  # half of a request
    assert b"504 Gateway Timeout" in await bench.ask(b"CONNECT slow.example:443 HTTP/1.1\r\n\r\n")
    reader, _ = await bench.tunnel(f"a.example:{port}")
    assert await reader.read() == b""  # silence


async def test_lookups_that_hang_take_few_places(bench: Bench) -> None:
    never = asyncio.Event()
    begun: list[str] = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        begun.append(name)
        await never.wait()
        return []

    bench.resolve = resolve  # type: ignore[method-assign]
    await bench.proxy("*.a.example", deadlines=ProxyDeadlines(resolve_s=0.1))
    asked = (bench.ask(f"CONNECT h{number}.a.example:443 HTTP/1.1\r\n\r\n".encode()) for number in range(10))
    assert all(b"504" in said for said in await asyncio.gather(*asked))
    assert len(begun) == 2


async def test_connections_are_bounded_and_further_ones_wait(bench: Bench) -> None:
    port = await bench.serve(echo)
    await bench.proxy(f"a.example:{port}")
    held = [await bench.tunnel(f"a.example:{port}") for _ in range(module.MAX_CONNECTIONS)]
    _, writer = waiting = await bench.connect()
    writer.write(f"CONNECT a.example:{port} HTTP/1.1\r\n\r\n".encode())
    first = asyncio.create_task(waiting[0].read(1))
    await held[0][0].read(0)
    assert not first.done()
    held[0][1].close()
    assert await first == b"H"


async def test_a_slow_reader_slows_the_server(bench: Bench) -> None:
    sent = 0
    is_stuck = asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(bytes(1_000_000))
            sent += 1_000_000
            try:
                await asyncio.wait_for(writer.drain(), 0.5)
            except TimeoutError:
                is_stuck.set()
                return

    port = await bench.serve(flood)
    await bench.proxy(f"a.example:{port}")
    await bench.tunnel(f"a.example:{port}")
    await is_stuck.wait()
    assert sent < 50_000_000  # buffers of the kernel and of the test's own streams


async def test_a_flood_leaves_turns_to_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio does not suspend a task whose socket is ready, and in a flood it always is."""
    loop = asyncio.get_running_loop()
    left = 1_000

    async def always_ready(source: socket.socket, buffer: memoryview) -> int:
        nonlocal left
        left -= 1
        return len(buffer) if left > 0 else 0

    async def always_taken(target: socket.socket, data: bytes) -> None:
        """As if it was sent."""

    port = await bench.serve(echo)
    await bench.proxy(f"a.example:{port}")
    await bench.tunnel(f"a.example:{port}")
    _, writer = await bench.connect()
    monkeypatch.setattr(loop, "sock_recv_into", always_ready)
    monkeypatch.setattr(loop, "sock_sendall", always_taken)
    writer.write(f"CONNECT a.example:{port} HTTP/1.1\r\n\r\n".encode())
    turns = 0
    while left > 0:
        turns += left < 1_000
        await asyncio.sleep(0)
    assert turns > 400  # one for each of two directions


@pytest.mark.parametrize(("named", "is_heard"), [("a.example", True), ("evil.example", False), (None, False)])
async def test_a_tunnel_with_tls_for_another_host_never_reaches_the_server(
    bench: Bench, named: str | None, is_heard: bool
) -> None:
    """Behind the address of an allowed host there are often all the others of a content network."""
    heard = bytearray()
    gone = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read())
        gone.set()

    port = await bench.serve(listen)
    proxy = await bench.proxy(f"a.example:{port}")
    reader, writer = await bench.tunnel(f"a.example:{port}")
    hello = client_hello(named)
    for at in range(0, len(hello), 100):
        writer.write(hello[at : at + 100])
        await writer.drain()
    if is_heard:
        writer.write_eof()
    assert await reader.read() == b""
    await gone.wait()
    assert bytes(heard) == (hello if is_heard else b"")
    blocked = f"[blocked: a tunnel to a.example:{port} that does not begin with TLS for a.example]\n"
    assert proxy.notice() == ("" if is_heard else blocked)


async def test_the_users_own_proxy_is_used_and_its_password_is_not_shown(bench: Bench) -> None:
    heard: list[bytes] = []

    async def corporate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        if b"evil" in heard[-1]:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nearly,")
        writer.write(await reader.read())

    port = await bench.serve(corporate)
    environ = {"HTTPS_PROXY": f"http://u:secret@corp.example:{port}"}
    bench.answers["a.example"] = [[]]  # only the proxy of the network knows it
    proxy = await bench.proxy("a.example:9418", "evil.example", environ=environ)
    reader, writer = await bench.tunnel("a.example:9418")
    writer.write(b"late")
    writer.write_eof()
    assert await reader.read() == b"early,late"
    said = await bench.ask(b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n")
    assert b"502 Bad Gateway" in said
    assert heard[0].startswith(b"CONNECT a.example:9418 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dTpzZWNyZXQ=" in heard[0]
    assert proxy.notice() == "[blocked: your network's proxy refused evil.example:443 (status 407)]\n"


async def test_the_users_own_proxy_is_used_where_there_is_no_dns(bench: Bench) -> None:
    never = asyncio.Event()

    async def corporate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await reader.read()

    async def resolve(name: str, port: int) -> Sequence[str]:
        bench.lookups.append(name)
        if name == "a.example":
            await never.wait()
        return ["127.0.0.1"] if name == "corp.example" else ["10.0.0.1"]

    port = await bench.serve(corporate)
    bench.resolve = resolve  # type: ignore[method-assign]
    environ = {"HTTPS_PROXY": f"http://corp.example:{port}"}
    deadlines = ProxyDeadlines(resolve_s=0.5)
    allowed = addresses.may_be_reached
    proxy = await bench.proxy(
        "a.example", "intranet.example", environ=environ, deadlines=deadlines, may_be_reached=allowed
    )
    for _ in range(2):
        await bench.tunnel("a.example:443")
    assert bench.lookups == ["corp.example", "a.example"]
    assert b"403 Forbidden" in await bench.ask(b"CONNECT intranet.example:443 HTTP/1.1\r\n\r\n")
    assert proxy.notice() == "[blocked: intranet.example is not on the public internet]\n"


async def test_closing_ends_every_connection_and_leaves_no_descriptor() -> None:
    @asynccontextmanager
    async def made() -> AsyncIterator[Bench]:
        bench = Bench()
        async with bench.stack:
            yield bench

    before = open_descriptors()
    async with asyncio.timeout(DEADLINE_S), made() as bench:
        port = await bench.serve(echo)
        outside = open_descriptors()
        proxy = await bench.proxy(f"a.example:{port}")
        streams = [await bench.tunnel(f"a.example:{port}") for _ in range(5)]
        streams += [await bench.connect() for _ in range(5)]  # these have said nothing yet
        await proxy.close()
        for reader, writer in streams:
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
        for _ in range(100):
            if not open_descriptors() - outside:
                break
            await asyncio.sleep(0.01)
        assert open_descriptors() - outside == set()
    assert len(open_descriptors() - before) <= 1


ON_UVLOOP = (
    test_a_tunnel_carries_bytes_both_ways_and_the_end_of_each,
    test_socks5_reaches_the_same_hosts,
    test_a_plain_request_reaches_its_server_in_the_form_for_it,
    test_a_second_request_on_a_plain_connection_never_reaches_a_server,
    test_an_address_that_does_not_answer_is_followed_by_the_next,
    test_every_wait_has_a_deadline,
    test_connections_are_bounded_and_further_ones_wait,
    test_a_slow_reader_slows_the_server,
)


@pytest.mark.parametrize("case", ON_UVLOOP, ids=lambda case: case.__name__)
def test_the_same_holds_on_uvloop(case: Callable[[Bench], Awaitable[None]]) -> None:
    """makai runs on uvloop where it can, and its sockets are other code."""

    async def run() -> None:
        bench = Bench()
        async with asyncio.timeout(DEADLINE_S), bench.stack:
            await case(bench)

    uvloop.run(run())


def test_closing_leaves_no_descriptor_on_uvloop() -> None:
    uvloop.run(test_closing_ends_every_connection_and_leaves_no_descriptor())
