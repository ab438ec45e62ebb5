"""How the connections of a confined command come to the proxy, although the command has no network.

The sandbox sends one descriptor over a channel before the command begins. With bubblewrap it is a listening socket that
was made in the command's empty network namespace; connections to it are accepted here. With Landlock it is a listener
of seccomp: every `connect` of the command stops, its socket is replaced by one that leads to the proxy, and the call
succeeds. The kernel never runs the call itself, so it does not matter which address is behind its pointer.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from makai.tools.sandbox.proxy_channel import CONNECT_CALLS, LISTENING_SOCKET, PROXY_PORT

_URL: Final = f"http://127.0.0.1:{PROXY_PORT}"
_OWN_HOSTS: Final = "localhost,127.0.0.1,::1"
_PROXIES: Final = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _URL) | {"NO_PROXY": _OWN_HOSTS}
_PROXIES_OF_PROGRAMS: Final = (
    "PIP_PROXY npm_config_proxy npm_config_https_proxy CARGO_HTTP_PROXY YARN_HTTP_PROXY YARN_HTTPS_PROXY"
)
"""For programs whose own settings would come first: those may name a proxy of the user's network."""
_ENVIRONMENT: Final = (
    _PROXIES
    | {name.lower(): value for name, value in _PROXIES.items()}
    | dict.fromkeys(_PROXIES_OF_PROGRAMS.split(), _URL)
    | {"npm_config_noproxy": _OWN_HOSTS, "NODE_USE_ENV_PROXY": "1"}
)


def proxy_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with what tells programs to use the proxy. Servers that the command starts are reached without it."""
    count = environ.get("GIT_CONFIG_COUNT", "0")
    at = int(count) if count.isdecimal() else 0
    git = {f"GIT_CONFIG_KEY_{at}": "http.proxy", f"GIT_CONFIG_VALUE_{at}": _URL, "GIT_CONFIG_COUNT": str(at + 1)}
    return {**environ, **_ENVIRONMENT, **git}


# linux/seccomp.h
_NOTIFICATION: Final = struct.Struct("=QII iIQ6Q")  # id, process, flags; number, architecture, pointer, arguments
_RECEIVE, _SEND, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40182103
_REPLACE_DESCRIPTOR: Final = 1
_PAIR_DEADLINE_S: Final = 5.0


class ProxyClients(Protocol):
    async def accept(self) -> socket.socket | None:
        """The next connection; None when there will be none. `OSError` when one failed."""

    def close(self) -> None: ...


class ListeningSocket:
    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        self.close = listener.close

    async def accept(self) -> socket.socket | None:
        client, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        return client


class _ConnectCall(NamedTuple):
    id: int
    process: int
    descriptor: int


class ConnectCalls:
    """The `connect` calls of a command that a seccomp filter hands over (seccomp_unotify(2))."""

    def __init__(self, listener: int) -> None:
        self._listener = listener

    def close(self) -> None:
        """Calls that still wait fail in the command."""
        if self._listener >= 0:
            os.close(self._listener)
        self._listener = -1

    async def accept(self) -> socket.socket | None:
        while True:
            await _readable(self._listener)
            if self._has_hung_up():
                return None
            if (call := self._next()) is not None:
                try:
                    client, theirs = await _tcp_pair()
                except OSError:
                    self._answer(call, errno.ECONNREFUSED)
                    raise
                with theirs:
                    if self._is_given(call, theirs):
                        return client
                client.close()

    def _has_hung_up(self) -> bool:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        return any(events & select.POLLHUP and not events & select.POLLIN for _, events in poll.poll(0))

    def _next(self) -> _ConnectCall | None:
        """None when the caller is gone, or what it wanted to connect is not a socket."""
        notification = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, notification, True)
        except OSError:
            return None
        number, process, _, _, _, _, descriptor, *_ = _NOTIFICATION.unpack(notification)
        call = _ConnectCall(number, process, descriptor & 0xFFFF_FFFF)
        try:
            is_socket = os.readlink(f"/proc/{process}/fd/{call.descriptor}").startswith("socket:")
        except OSError:
            is_socket = False
        if not is_socket:
            self._answer(call, errno.ENOTSOCK)
        return call if is_socket else None

    def _is_given(self, call: _ConnectCall, connected: socket.socket) -> bool:
        """Whether the caller now has `connected` in place of its socket."""
        try:
            info = Path(f"/proc/{call.process}/fdinfo/{call.descriptor}").read_text()
            flags = int(info.partition("flags:")[2].split()[0], 8)
            connected.setblocking(not flags & os.O_NONBLOCK)
            wanted = (call.id, _REPLACE_DESCRIPTOR, connected.fileno(), call.descriptor, flags & os.O_CLOEXEC)
            fcntl.ioctl(self._listener, _ADD_DESCRIPTOR, struct.pack("=QIIII", *wanted))
        except (OSError, ValueError, IndexError):
            self._answer(call, errno.ECONNREFUSED)
            return False
        return self._answer(call, 0)

    def _answer(self, call: _ConnectCall, error: int) -> bool:
        try:
            fcntl.ioctl(self._listener, _SEND, bytearray(struct.pack("=QqiI", call.id, 0, -error, 0)), True)
        except OSError:  # the caller is gone
            return False
        return True


async def receive_clients(channel: socket.socket, deadline_s: float) -> ProxyClients | None:
    """What the sandbox sends before the command begins; None when it failed. Takes over and closes `channel`."""
    with channel, contextlib.suppress(OSError, TimeoutError):
        channel.setblocking(False)
        async with asyncio.timeout(deadline_s):
            await _readable(channel.fileno())
        size = array.array("i").itemsize
        kind, found, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC)
        descriptors = array.array("i", b"".join(data[:size] for _, _, data in found))
        if kind == LISTENING_SOCKET:
            return ListeningSocket(socket.socket(fileno=descriptors[0]))
        if kind == CONNECT_CALLS:
            return ConnectCalls(descriptors[0])
    return None


async def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of one TCP connection: programs set options of TCP on what they believe to have connected."""
    loop = asyncio.get_running_loop()
    theirs = socket.socket()
    try:
        theirs.setblocking(False)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            async with asyncio.timeout(_PAIR_DEADLINE_S):
                await loop.sock_connect(theirs, listener.getsockname())
                while True:
                    ours, peer = await loop.sock_accept(listener)
                    if peer == theirs.getsockname():
                        return ours, theirs
                    ours.close()  # another process of this machine was faster
    except BaseException:
        theirs.close()
        raise


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
