"""Connections between nodes: only a process that knows the cluster key is admitted, and only over TLS 1.3. What every
channel keeps is in `test_channels`."""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.transports import Accepted

from makai.core.errors import InvalidRequest, TransportError
from makai.core.secret import Secret
from makai.transports.node_tls import NodeIdentity, NodeListener, connect_node, host_and_port

KEY = Secret("a cluster key for tests, long enough")
OTHER_KEY = Secret("another cluster key for tests, as long")


@asynccontextmanager
async def listening(accepted: Accepted) -> AsyncIterator[NodeListener]:
    listener = NodeListener.open("127.0.0.1", 0, NodeIdentity.of(KEY), accepted.serve)
    async with asyncio.timeout(30):
        try:
            yield listener
        finally:
            await listener.close()


async def said_to(port: int, context: ssl.SSLContext) -> bytes:
    """What the listener says to a peer that says hello; nothing when it refuses it in any way."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except OSError:
        return b""
    try:
        writer.write(b'"hello"\n')
        return await reader.read()
    except OSError:
        return b""
    finally:
        writer.transport.abort()


async def test_two_processes_with_one_key_issue_different_certificates_and_trust_each_other(accepted: Accepted) -> None:
    async with listening(accepted) as listener:
        channel = await connect_node(f"127.0.0.1:{listener.port}", NodeIdentity.of(KEY))
        await channel.send([b'"hello"'])
        assert await (await accepted.channel).receive() == b'"hello"'
        accepted.over.set()
        await channel.close()


async def test_a_node_with_another_key_is_refused_on_both_sides(accepted: Accepted) -> None:
    async with listening(accepted) as listener:
        with pytest.raises(TransportError) as refused:
            await connect_node(f"127.0.0.1:{listener.port}", NodeIdentity.of(OTHER_KEY))
        assert str(refused.value) == (
            f"The node at 127.0.0.1:{listener.port} has another cluster key. Give all nodes the same cluster key."
        )
        assert not accepted.channel.done()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_peer_without_a_certificate_gets_no_connection(accepted: Accepted, version: ssl.TLSVersion) -> None:
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname = False
    anyone.verify_mode = ssl.CERT_NONE
    anyone.maximum_version = version
    async with listening(accepted) as listener:
        # TLS 1.3 refuses after the handshake, by an alert or a reset.
        said = await said_to(listener.port, anyone)
        assert said == b""
        assert not accepted.channel.done()


async def test_a_plain_connection_gets_no_answer(accepted: Accepted) -> None:
    async with listening(accepted) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b'{"type":"hello"}\n')
        assert b"welcome" not in await reader.read()
        assert not accepted.channel.done()
        writer.close()


def test_the_private_key_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    NodeIdentity.of(KEY)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("address", ["", "host", "host:", ":7", "host:port", "host:70000", "host:²"])
def test_an_address_that_is_none_names_the_setting(address: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        host_and_port(address, "`listen` in [cluster]")
    assert str(refused.value) == f'`listen` in [cluster] is not an address: {address!r}. Write it as "host:port".'


def test_an_address_may_be_a_name_or_an_ip_of_either_version() -> None:
    assert host_and_port("node-a:8719", "") == ("node-a", 8719)
    assert host_and_port("10.0.0.1:1", "") == ("10.0.0.1", 1)
    assert host_and_port("[::1]:8719", "") == ("::1", 8719)
