"""Finds the session that a client names: by the id of its log, or by the name that a program gave it (`session_id` of
`agent.run`), which may be any text."""

from __future__ import annotations

from contextlib import suppress

from makai.core.errors import Forbidden
from makai.protocols.makai.envelope import is_session_id, is_uuid, log_id_of
from makai.sessions.requests import GetSession
from makai.sessions.service import Sessions


async def session_id_of(sessions: Sessions, given: str) -> str:
    """The id of the session's log. A session whose id is exactly this text comes before one that has it as its name;
    text that is neither is returned as it is, for the request to be refused."""
    if not is_uuid(given) and is_session_id(given):
        for candidate in (given, log_id_of(given)):
            with suppress(Forbidden):  # a token for one session
                if await sessions.dispatch(GetSession(candidate)) is not None:
                    return candidate
    return given
