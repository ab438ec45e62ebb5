"""The address of a PostgreSQL database, and what its errors mean. Import it only where a database is used: the driver
is the extra `makai[postgres]`."""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from typing import Final
from urllib.parse import unquote, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from makai.core.errors import InvalidRequest
from makai.core.secret import MASK

DEFAULTS: Final = {
    "target_session_attrs": "read-write",
    "connect_timeout": "3",
    "tcp_user_timeout": "3000",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "application_name": "makai",
}
"""Unless the address says otherwise. A server that vanished is noticed within about 5 seconds."""
_MAX_TEXT: Final = 300
_RETRYABLE: Final = ("08", "25006", "40001", "40P01", "53300", "57P")
"""States of SQL after which the same can be tried again on another connection: lost or refused connections, a server
that became read-only or shuts down, and two transactions that waited for each other."""


class PostgresAddress:
    """How to connect. Nothing that it raises or prints contains the password."""

    def __init__(self, url: str) -> None:
        try:
            settings = conninfo_to_dict(url)
            password = urlsplit(url).password or ""
        except (psycopg.Error, ValueError):
            raise InvalidRequest(
                "The address of the store is not one of PostgreSQL.",
                hint="Write postgres://USER@HOST:PORT/DATABASE; see docs/configuration.md.",
            ) from None
        self.settings = {**DEFAULTS, **{name: str(value) for name, value in settings.items()}}
        known = {password, unquote(password), self.settings.get("password", "")}
        self._secrets = sorted((text for text in known if text), key=len, reverse=True)

    def __repr__(self) -> str:
        where = ", ".join(f"{name}={self.settings[name]}" for name in ("host", "dbname") if name in self.settings)
        return f"{type(self).__name__}({self._masked(where)})"

    def text_of(self, error: BaseException) -> str:
        """What an error says, in one line and without the password."""
        return self._masked(" ".join(str(error).split()))[:_MAX_TEXT]

    def _masked(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text


def is_retryable(error: psycopg.Error) -> bool:
    """Whether the same statement may succeed on a new connection. What the failed one did may be unknown."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state.startswith(_RETRYABLE)


def has_input(descriptor: int) -> bool:
    """Whether there is something to read on a connection that waits for no answer: most likely it has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def cut_socket(descriptor: int) -> None:
    """End the connection of a socket: what waits for an answer on it raises `psycopg.OperationalError`. This is how a
    deadline is kept: a request to cancel does not roll back a commit that waits for its standby."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as copied:
        copied.shutdown(socket.SHUT_RDWR)
