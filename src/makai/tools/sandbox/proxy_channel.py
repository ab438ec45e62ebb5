"""The sandbox's end of the channel to the proxy. The launcher holds this module in memory, so it imports little."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
from typing import Final, NoReturn

PROXY_PORT: Final = 3128
"""Where the proxy listens in the command's own network namespace, in which nothing else listens."""
LISTENING_SOCKET, CONNECT_CALLS = b"L", b"C"
"""What is sent: see `proxy_clients`."""
_BACKLOG: Final = 128
_MAX_INFO_BYTES: Final = 4096
_DEADLINE_S: Final = 20
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def send(channel: int, kind: bytes, descriptor: int) -> None:
    """The only message of a channel. Both descriptors are closed, so that no program inherits them."""
    with socket.socket(fileno=channel) as end:
        socket.send_fds(end, [kind], [descriptor])
    os.close(descriptor)


def listening_options(channel: int) -> tuple[list[str], list[int]]:
    """Options for the bubblewrap that is started next, and the descriptors in them that it alone must keep: its command
    begins when a socket listens in its namespace.

    A fork of this process makes that socket. It joins the namespaces of the command for it, which it may because the
    same user made them; they hold nothing else yet, and the command does not run before.
    """
    info, their_info = os.pipe()
    their_gate, gate = os.pipe()
    if os.fork() == 0:
        _listen(channel, info, gate)
    for descriptor in (info, gate):
        os.close(descriptor)
    for descriptor in (their_info, their_gate):
        os.set_inheritable(descriptor, True)
    return ["--info-fd", str(their_info), "--block-fd", str(their_gate)], [their_info, their_gate]


def _listen(channel: int, info: int, gate: int) -> NoReturn:
    """The fork. However it ends, the gate opens: without a listener the command has no network at all."""
    try:
        signal.alarm(_DEADLINE_S)
        said = b""
        while not said.rstrip().endswith(b"}") and (more := os.read(info, _MAX_INFO_BYTES)):
            said += more
        process = os.pidfd_open(int(json.loads(said)["child-pid"]))
        if _libc.setns(process, _NEW_USER | _NEW_NETWORK) == 0:
            listener = socket.socket()
            listener.bind(("0.0.0.0", PROXY_PORT))  # there is only a loopback, which may not be up yet
            listener.listen(_BACKLOG)
            send(channel, LISTENING_SOCKET, listener.detach())
            os.write(gate, b".")
    finally:
        os._exit(0)
