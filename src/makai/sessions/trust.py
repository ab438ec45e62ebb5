"""Which folders a person trusts, what changed in their project files since, and what such files settle."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from makai.agent.project_trust import (
    PROJECT_CONFIG,
    digest_of,
    is_as_trusted,
    shown_text,
    trusted_content,
    wanted_by_project,
)
from makai.core.config import parse_project_config
from makai.core.errors import InvalidRequest
from makai.core.session_events import FileDiff
from makai.core.settings import SettingsLayer
from makai.sessions import requests as req
from makai.sessions.log import base


async def is_trusted(log: base.EventLog, request: req.IsTrusted) -> bool:
    return await log.is_trusted(await asyncio.to_thread(os.path.realpath, request.folder))


async def set_trust(log: base.EventLog, request: req.SetTrust) -> bool:
    folder = await asyncio.to_thread(os.path.realpath, request.folder)
    content = await asyncio.to_thread(trusted_content, folder) if request.trusted else {}
    if request.trusted and _digests(content) != request.shown:
        return False
    files = [
        base.TrustedFile(path=path, digest=digest_of(data), text=shown_text(data)) for path, data in content.items()
    ]
    await log.trust(folder, request.trusted, files)
    return True


async def get_trust(log: base.EventLog, request: req.GetTrust) -> req.FolderTrust:
    folder = await asyncio.to_thread(os.path.realpath, request.folder)
    now = await asyncio.to_thread(trusted_content, folder)
    wanted, digests = tuple(wanted_by_project(now)), _digests(now)
    if not await log.is_trusted(folder):
        return req.FolderTrust(trusted=False, wanted=wanted, digests=digests)
    known = {file.path: file for file in await log.trusted_files(folder)}
    changed = tuple(
        FileDiff(path=path, old_text=known[path].text if path in known else None, new_text=shown_text(data))
        for path, data in now.items()
        if path not in known or known[path].digest != digests[path]
    )
    return req.FolderTrust(trusted=True, changed=changed, wanted=wanted, digests=digests)


def _digests(content: Mapping[str, bytes]) -> dict[str, str]:
    return {path: digest_of(data) for path, data in content.items()}


async def digests_of(log: base.EventLog, folder: str) -> tuple[bool, dict[str, str]]:
    """Whether a folder is trusted, and the digests of the files whose content was."""
    folder = await asyncio.to_thread(os.path.realpath, folder)
    files = await log.trusted_files(folder)
    return await log.is_trusted(folder), {file.path: file.digest for file in files}


async def project_settings(log: base.EventLog, request: req.GetProjectSettings) -> SettingsLayer:
    trusted, digests = await digests_of(log, request.folder)
    return await asyncio.to_thread(_settings_in, request.folder, digests) if trusted else SettingsLayer()


def _settings_in(folder: str, digests: Mapping[str, str]) -> SettingsLayer:
    data = trusted_content(os.path.realpath(folder)).get(PROJECT_CONFIG)
    if data is None or not is_as_trusted(PROJECT_CONFIG, data, digests):
        return SettingsLayer()
    where = os.path.join(folder, PROJECT_CONFIG)
    try:
        return parse_project_config(data.decode(), where).settings
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{where} is not UTF-8: {error.reason} at byte {error.start:,}.") from None
