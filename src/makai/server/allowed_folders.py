"""In which folders a caller may begin sessions, list folders and complete files."""

from __future__ import annotations

import asyncio
import os
from pathlib import PurePath

from makai.core.access import Caller
from makai.core.errors import Forbidden
from makai.sessions import requests as req
from makai.sessions.service import Sessions


async def allowed_folder(sessions: Sessions, caller: Caller, folder: str) -> str:
    """The folder free of links. `Forbidden` when the caller may not approve and the folder is neither below the one
    where the server was started nor trusted by a person."""
    resolved = await asyncio.to_thread(os.path.realpath, folder)
    if caller.may("approve"):
        return resolved
    home = await asyncio.to_thread(os.path.realpath, os.getcwd())
    if PurePath(resolved).is_relative_to(home) or await sessions.dispatch(req.IsTrusted(resolved)):
        return resolved
    raise Forbidden(
        # As it was asked for: where a link leads is not for this caller to know.
        f"The token {caller.name!r} has the scope {caller.scope}, which does not open {folder}.",
        hint=f"Trust the folder (`makai sessions trust {folder}`), or use a token of scope approve.",
    )
