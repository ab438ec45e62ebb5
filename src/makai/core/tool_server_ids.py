"""The ids of tool servers: programs that register tools for every session whose terms name them. An id is part of the
names that models see (`server__tool`), so it has only characters that every model API takes."""

from __future__ import annotations

import re
from typing import Final

from makai.core.errors import InvalidRequest

MAX_NAMED_SERVERS: Final = 32
SERVER_ID_PATTERN: Final = "(?!mcp$)(?!.*__)[A-Za-z0-9]([A-Za-z0-9_-]{0,34}[A-Za-z0-9-])?"
SERVER_ID_FORM: Final = "1 to 36 letters, digits, dashes and single underscores, and not mcp"
_ID: Final = re.compile(SERVER_ID_PATTERN)


def is_server_id(text: object) -> bool:
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def check_server_ids(ids: tuple[str, ...]) -> None:
    """Raise `InvalidRequest` for ids that a session's terms cannot name."""
    for server_id in ids:
        if not is_server_id(server_id):
            raise InvalidRequest(f"No tool server can be called {server_id!r}.", hint=f"An id is {SERVER_ID_FORM}.")
    if len(set(ids)) < len(ids) or len(ids) > MAX_NAMED_SERVERS:
        raise InvalidRequest(f"A session has at most {MAX_NAMED_SERVERS} tool servers, each of them once.")
