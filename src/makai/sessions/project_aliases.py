"""Names of models that a trusted project defines for the sessions in its folder."""

from __future__ import annotations

from makai.core.settings import Settings
from makai.sessions.requests import GetProjectSettings
from makai.sessions.service import Sessions


async def expanded_alias(sessions: Sessions, folder: str | None, name: str) -> str:
    """What an alias of the trusted project in `folder` stands for; any other name stays as it is."""
    if folder is None or not name or "/" in name:
        return name
    project = await sessions.dispatch(GetProjectSettings(folder))
    return Settings(aliases=project.aliases).expanded(name)
