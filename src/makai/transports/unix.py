"""Frames between processes of one user: newline-delimited JSON over a unix socket with a path.

The socket is for this user alone, three times over: it has mode 0600, lies in a folder that its caller keeps at 0700,
and both sides ask the kernel who the other one is (SO_PEERCRED) before they read a byte.

A path may be longer than an address can hold (`sun_path`, unix(7)). Then it is reached through a descriptor of its
folder, `/proc/self/fd/N/name`: the socket stays where it belongs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from makai.aio.tasks import BackgroundTasks
from makai.core.errors import ChannelClosed, StorageUnavailable, TransportError
from makai.transports.channel import MAX_FRAME_BYTES, Channel
from makai.transports.connection_table import share_of_descriptors
from makai.transports.stdio import StdioChannel

log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 256

_BACKLOG: Final = 128
_DESCRIPTOR_PARTS: Final = 16
"""A connection has two descriptors, so an eighth of all is for processes that attach."""
_MAX_ADDRESS_BYTES: Final = 107  # sun_path has 108 bytes, the last of which is NUL
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid
_NO_DESCRIPTORS_PAUSE_S: Final = 0.2
_END_DEADLINE_S: Final = 5.0


class Peer(msgspec.Struct, frozen=True):
    """Whom the kernel says we are talking to."""

    pid: int
    uid: int


ServePeer: TypeAlias = Callable[[Channel, Peer], Awaitable[None]]
"""Serves one connection; the listener closes the channel when it returns."""


def connect_unix(path: Path, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> tuple[Channel, Peer]:
    """Connect to the process of this user that listens there; does not wait. Raises `TransportError` without one."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        with _address(path) as address:
            connection.connect(address)  # at once or never: EAGAIN means that its backlog is full
        peer = _peer(connection)
        if peer.uid != os.geteuid():
            raise TransportError(f"{path} belongs to another user.")
        return _channel(connection, max_frame_bytes), peer
    except OSError as error:
        raise TransportError(f"No process listens at {path} ({error.strerror}).") from None
    finally:
        connection.close()  # nothing is left to close when a channel took it over


class UnixListener:
    """Serves every process of this user that connects. Make one by `open`."""

    def __init__(self, path: Path, listening: socket.socket, serve: ServePeer, max_frame_bytes: int) -> None:
        self._path = path
        self._listening = listening
        self._serve = serve
        self._max_frame_bytes = max_frame_bytes
        self._connections = BackgroundTasks()
        self._count = 0
        self._max_connections = share_of_descriptors(MAX_CONNECTIONS, _DESCRIPTOR_PARTS)
        self._loop = asyncio.get_running_loop()
        self._resume()

    @classmethod
    def open(cls, path: Path, serve: ServePeer, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> UnixListener:
        """Listen at a path, in place of whatever dead process listened there before. Make sure that no other process
        wants this path: a live socket is replaced too."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _remove_stale(path)
            os.fchmod(listening.fileno(), 0o600)  # Linux gives the new file the mode of its socket
            with _address(path) as address:
                listening.bind(address)
            listening.listen(_BACKLOG)
            listening.setblocking(False)
        except OSError as error:
            listening.close()
            raise StorageUnavailable(
                f"Cannot listen at {path} ({error.strerror}).", hint="Set MAKAI_HOME to a folder on a local disk."
            ) from None
        except BaseException:
            listening.close()
            raise
        return cls(path, listening, serve, max_frame_bytes)

    def stop_accepting(self) -> None:
        """Refuse new connections; existing ones stay. May be repeated."""
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening.fileno())
            self._path.unlink(missing_ok=True)
            self._listening.close()

    async def close(self) -> None:
        self.stop_accepting()
        await asyncio.sleep(0)  # a task that is cancelled before it began would not close its channel
        await self._connections.close(_END_DEADLINE_S)

    def _resume(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError):  # the peer has left again
            return
        except OSError as error:  # out of descriptors, most likely: the others continue meanwhile
            self._pause(error)
            return
        with connection:
            peer = _peer(connection)
            if peer.uid != os.geteuid():
                log.warning("refused process %d of user %d", peer.pid, peer.uid)
            elif self._count >= self._max_connections:
                log.warning("refused process %d: %d are connected", peer.pid, self._count)
            else:
                try:
                    channel = _channel(connection, self._max_frame_bytes)
                except OSError as error:
                    self._pause(error)
                    return
                self._count += 1
                self._connections.start(self._run(channel, peer), f"makai-unix-{peer.pid}")

    def _pause(self, error: OSError) -> None:
        log.warning("cannot accept a connection: %s", error)
        self._loop.remove_reader(self._listening.fileno())
        self._loop.call_later(_NO_DESCRIPTORS_PAUSE_S, self._resume)

    async def _run(self, channel: Channel, peer: Peer) -> None:
        try:
            with contextlib.suppress(ChannelClosed):
                await self._serve(channel, peer)
        finally:
            self._count -= 1
            await channel.close()


def _channel(connection: socket.socket, max_frame_bytes: int) -> Channel:
    """Takes the connection over; on failure it is still its caller's."""
    input = os.dup(connection.fileno())
    return StdioChannel(input, connection.detach(), max_frame_bytes=max_frame_bytes)


def _peer(connection: socket.socket) -> Peer:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(credentials)
    return Peer(pid, uid)


def _remove_stale(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise StorageUnavailable(f"{path} is not a socket of this user.", hint="Remove it.")
    path.unlink(missing_ok=True)


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    if len(os.fsencode(path)) <= _MAX_ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
