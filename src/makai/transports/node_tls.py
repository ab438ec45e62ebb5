"""Connections between the nodes of a cluster: newline-delimited JSON over TCP, with mutual TLS 1.3.

The cluster key makes a certificate authority: every node that knows the key derives the same one, and issues itself a
certificate when it starts. Both sides of a connection require a certificate of this authority, so to know the key is to
be a member. There is no plain connection to fall back to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import tempfile
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from makai.aio.tasks import BackgroundTasks
from makai.auth.cluster_key import derived_key
from makai.core.errors import ChannelClosed, InvalidRequest, ParseError, TransportError
from makai.core.secret import Secret
from makai.transports.channel import MAX_FRAME_BYTES, Channel, Oversized
from makai.transports.connection_table import share_of_descriptors
from makai.transports.stdio import as_lines
from makai.wire.ndjson import NDJSONDecoder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.x509 import Certificate, CertificateBuilder, KeyUsage, Name

log = logging.getLogger(__name__)

CONNECT_S: Final = 3.0
"""For the TCP connection and the TLS handshake together."""
MAX_CONNECTIONS: Final = 256
_NAME: Final = "node.makai.invalid"
"""The name in every certificate: a node is known by the authority, and not by its host."""
_PURPOSE: Final = "certificate authority of node links"
_BACKLOG: Final = 128
_DESCRIPTOR_PARTS: Final = 16
_CHUNK_BYTES: Final = 64 * 1024
_WRITE_BOUND_BYTES: Final = 256 * 1024
CLOSE_DEADLINE_S: Final = 2.0
_PAUSE_S: Final = 0.2
_END_DEADLINE_S: Final = 5.0
_VALID: Final = timedelta(days=3650)
_CLOCK_SKEW: Final = timedelta(days=1)

ServeNode: TypeAlias = Callable[[Channel], Awaitable[None]]
"""Serves one connection; the listener closes the channel when it returns."""


class NodeIdentity:
    """What a node needs to connect to other members, and to admit them. Make one by `of`."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        self.server = server
        self.client = client

    @classmethod
    def of(cls, key: Secret) -> NodeIdentity:
        """Derives the authority and issues a certificate. Blocks for a few milliseconds."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # of the extra `postgres`
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        authority_key = Ed25519PrivateKey.from_private_bytes(derived_key(key, _PURPOSE))
        node_key = Ed25519PrivateKey.generate()
        authority = _authority(authority_key)
        certificate = _certificate(node_key.public_key(), authority, authority_key)
        secret = node_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = secret + certificate.public_bytes(Encoding.PEM)
        trusted = authority.public_bytes(Encoding.PEM).decode()
        server = _context(ssl.PROTOCOL_TLS_SERVER, trusted, chain)
        return cls(server, _context(ssl.PROTOCOL_TLS_CLIENT, trusted, chain))


def _authority(key: Ed25519PrivateKey) -> Certificate:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "makai cluster")])
    return (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .sign(key, None)
    )


def _certificate(public: Ed25519PublicKey, authority: Certificate, authority_key: Ed25519PrivateKey) -> Certificate:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    both_sides = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _builder(name, authority.subject, public)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both_sides), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, None)
    )


def _builder(subject: Name, issuer: Name, public: Ed25519PublicKey) -> CertificateBuilder:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, is_authority: bool) -> KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _context(side: ssl._SSLMethod, trusted: str, chain: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=trusted)
    descriptor, path = tempfile.mkstemp(prefix="makai-node-")  # for this user alone; the ssl module reads files only
    try:
        with open(descriptor, "wb") as file:
            file.write(chain)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
    return context


def host_and_port(address: str, setting: str) -> tuple[str, int]:
    """The parts of `host:port` or `[host]:port`. `setting` names where it was written, for the error."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidRequest(f"{setting} is not an address: {address!r}.", hint='Write it as "host:port".')
    return host, int(port)


async def connect_node(address: str, identity: NodeIdentity, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> Channel:
    """Connect to a node. Raises `TransportError` when it cannot be reached, or is no member of this cluster."""
    host, port = host_and_port(address, "The address of a node")
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=identity.client, server_hostname=_NAME, ssl_shutdown_timeout=CLOSE_DEADLINE_S
            )
    except TimeoutError:
        raise TransportError(f"The node at {address} does not answer.") from None
    except ssl.SSLError:
        raise TransportError(
            f"The node at {address} has another cluster key.", hint="Give all nodes the same cluster key."
        ) from None
    except OSError as error:
        raise TransportError(f"The node at {address} cannot be reached ({error.strerror or error}).") from None
    return StreamChannel(reader, writer, max_frame_bytes)


class StreamChannel:
    """A channel over a pair of asyncio streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._reader = reader
        self._writer = writer
        writer.transport.set_write_buffer_limits(high=_WRITE_BOUND_BYTES)
        self._decoder = NDJSONDecoder(max_frame_bytes)
        self._lines: deque[bytes | Oversized] = deque()
        self._ended = False
        self._closed = False

    async def receive(self) -> bytes | Oversized | None:
        while not self._lines:
            if self._ended or self._closed:
                return None
            try:
                data = await self._reader.read(_CHUNK_BYTES)
            except OSError:  # reset, or broken TLS
                data = b""
            self._ended = not data
            for line in self._decoder.feed(data) if data else self._decoder.close():
                if isinstance(line, ParseError):
                    self._lines.append(Oversized(self.max_frame_bytes, self._decoder.skipped_start))
                else:
                    self._lines.append(line)
        return None if self._closed else self._lines.popleft()

    async def send(self, frames: Sequence[bytes]) -> None:
        if not frames:
            return
        if self._closed or self._writer.is_closing():
            raise ChannelClosed("The connection to the node is closed.")
        self._writer.write(as_lines(frames))
        try:
            await self._writer.drain()
        except OSError:
            raise ChannelClosed("The connection to the node broke.") from None

    async def close(self, reason: str = "") -> None:
        if self._closed:
            return
        self._closed = True
        self._reader.feed_eof()
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()


class NodeListener:
    """Serves every member that connects. Make one by `open`."""

    def __init__(
        self, listening: socket.socket, identity: NodeIdentity, serve: ServeNode, max_frame_bytes: int
    ) -> None:
        self._listening = listening
        self._identity = identity
        self._serve = serve
        self._max_frame_bytes = max_frame_bytes
        self._connections = BackgroundTasks()
        self._count = 0
        self._max_connections = share_of_descriptors(MAX_CONNECTIONS, _DESCRIPTOR_PARTS)
        self.port: int = listening.getsockname()[1]
        self._accepting = self._connections.start(self._accept(), "makai-node-listener")

    @classmethod
    def open(
        cls, host: str, port: int, identity: NodeIdentity, serve: ServeNode, *, max_frame_bytes: int = MAX_FRAME_BYTES
    ) -> NodeListener:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise InvalidRequest(
                f"Cannot listen on {host}:{port} for other nodes ({error.strerror}).",
                hint="Change `listen` in [cluster] of config.toml.",
            ) from None
        listening.setblocking(False)
        return cls(listening, identity, serve, max_frame_bytes)

    def stop_accepting(self) -> None:
        """Refuse new connections; existing ones stay. May be repeated."""
        self._accepting.cancel()
        self._listening.close()

    async def close(self) -> None:
        self.stop_accepting()
        await self._connections.close(_END_DEADLINE_S)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listening)
            except OSError as error:  # out of descriptors, most likely: the others continue meanwhile
                log.warning("cannot accept a connection of a node: %s", error)
                await asyncio.sleep(_PAUSE_S)
                continue
            if self._count >= self._max_connections:
                log.warning("refused a node: %d connections are open", self._count)
                connection.close()
                continue
            self._count += 1
            self._connections.start(self._run(connection), "makai-node-connection")

    async def _run(self, connection: socket.socket) -> None:
        channel: StreamChannel | None = None
        try:
            channel = await self._admitted(connection)
            if channel is not None:
                with contextlib.suppress(ChannelClosed):
                    await self._serve(channel)
        finally:
            self._count -= 1
            if channel is not None:
                await channel.close()
            connection.close()

    async def _admitted(self, connection: socket.socket) -> StreamChannel | None:
        """The channel of a peer that proved to be a member."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            async with asyncio.timeout(CONNECT_S):
                transport, _ = await loop.connect_accepted_socket(
                    lambda: protocol, connection, ssl=self._identity.server, ssl_shutdown_timeout=CLOSE_DEADLINE_S
                )
        except (OSError, TimeoutError) as error:
            log.warning("refused a connection to the port for nodes: %s", type(error).__name__)
            return None
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        return StreamChannel(reader, writer, self._max_frame_bytes)
