"""`/api/settings`: the user's defaults for new sessions and the instructions for every folder, as the page shows and
changes them. Values are written to the user's config.toml by the code behind `makai config set`; instructions are the
`AGENTS.md` in the home of makai, which the agent's prompt has in every session."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

from makai.agent.prompt import INSTRUCTION_FILES, MAX_FILE_BYTES
from makai.core.access import Caller
from makai.core.config import AgentConfig, Config
from makai.core.config_forms import choices_of
from makai.core.errors import InvalidRequest
from makai.core.home import home_directory
from makai.core.settings import Settings, Source
from makai.harness.registry import NATIVE, harness_id_of
from makai.providers.config_file import ConfigFile, replace_file, user_config_file
from makai.providers.logins import read_config
from makai.server.http_json import answer, answering, read_body
from makai.server.scopes import check_all_sessions
from makai.transports.http_guard import caller_of

if TYPE_CHECKING:
    from makai.server.session_source import SettingsOf

SHOWN: Final = ("agent", "model", "mode", "sandbox", "effort")
"""The settings that the page changes; `theme` is about the terminal."""
MAX_VALUE: Final = 1_000
MAX_BODY: Final = 4 * MAX_FILE_BYTES


class ChangeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    values: dict[str, str] = {}
    reset: tuple[str, ...] = ()
    """Settings that get their default again."""
    instructions: str | None = None
    """The new text; empty removes the file."""
    instructions_version: str = ""
    """Of the text that was edited: a file that changed meanwhile is not overwritten."""


class ShownSetting(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str | None
    """What counts for a new session in `folder`; None is the default of the catalog or of the model."""
    source: Source
    written: str | None
    """What the user's own file says."""
    default: str | None
    choices: tuple[str, ...]


class Instructions(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    text: str
    version: str
    max_bytes: int
    is_cut: bool
    """The file is longer than what the agent reads of it: edit it elsewhere."""


class SettingsRoutes:
    def __init__(self, settings: SettingsOf, home: Path | None = None) -> None:
        self._settings = settings
        self._home = home
        self._writing = asyncio.Lock()

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/api/settings", answering(self._show))
        app.router.add_patch("/api/settings", answering(self._change))

    async def _show(self, request: web.Request) -> web.Response:
        caller = caller_of(request)
        check_all_sessions(caller, "reading settings")
        return answer(await self._shown(caller))

    async def _change(self, request: web.Request) -> web.Response:
        caller = caller_of(request)
        check_all_sessions(caller, "changing settings")
        body = await read_body(request, ChangeBody, MAX_BODY)
        _check(body)
        async with self._writing:
            await asyncio.to_thread(self._write, body)
        return answer(await self._shown(caller))

    def _folder(self) -> Path:
        return self._home or home_directory(os.environ)

    def _write(self, body: ChangeBody) -> None:
        file = user_config_file(self._folder())
        removed = tuple(name for name in body.reset if _written(file.text(), name) is not None)
        if (agent := body.values.get("agent")) is not None:
            from makai.harness.acp.known_agents import check_agent_name

            check_agent_name(agent, read_config(file.path).agents)
        if body.values or removed:
            file.change(body.values, removed)
        if body.instructions is not None:
            _write_instructions(self._folder(), body.instructions, body.instructions_version)

    async def _shown(self, caller: Caller) -> dict[str, Any]:
        file = user_config_file(self._folder())
        text = await asyncio.to_thread(file.text)
        folder = os.getcwd()
        problem = await asyncio.to_thread(_problem, file, text)
        settings = Settings(sources=dict.fromkeys(SHOWN, "default"))
        if problem is None:
            try:
                settings = await self._settings(folder, caller)
            except InvalidRequest as error:  # a project's file that cannot be read
                problem = error
        valid = text if problem is None else ""
        shown = [_shown_setting(name, settings, valid) for name in SHOWN]
        if problem is None:
            agents = (await asyncio.to_thread(read_config, file.path)).agents
            shown = [_with_agent_names(one, agents) if one.name == "agent" else one for one in shown]
        return {
            "path": str(file.path),
            "folder": folder,
            "settings": shown,
            "ignored": settings.ignored,
            "problem": None if problem is None else {"message": problem.message, "hint": problem.hint or ""},
            "instructions": await asyncio.to_thread(_read_instructions, self._folder()),
        }


def _check(body: ChangeBody) -> None:
    unknown = [name for name in (*body.values, *body.reset) if name not in SHOWN]
    if unknown:
        raise InvalidRequest(f"The page cannot change {unknown[0]!r}.", hint="Use `makai config set`.")
    if any(len(value) > MAX_VALUE for value in body.values.values()):
        raise InvalidRequest(f"A value has at most {MAX_VALUE:,} characters.")


def _problem(file: ConfigFile, text: str) -> InvalidRequest | None:
    try:
        file.check(text)
    except InvalidRequest as error:
        return error
    return None


def _written(text: str, name: str) -> str | None:
    """What a valid file says about a setting; `sandbox` may be a table."""
    import tomllib

    try:
        found = tomllib.loads(text).get(name)
    except tomllib.TOMLDecodeError:
        return None
    found = found.get("level") if isinstance(found, dict) else found
    return found if isinstance(found, str) else None


def _shown_setting(name: str, settings: Settings, text: str) -> ShownSetting:
    return ShownSetting(
        name=name,
        value=getattr(settings, name),
        source=settings.sources.get(name, "default"),
        written=_written(text, name),
        default=getattr(Settings(), name),
        choices=choices_of([name], Config),
    )


def _with_agent_names(setting: ShownSetting, configured: Mapping[str, AgentConfig]) -> ShownSetting:
    """The setting with the first name of an agent that has several: the page offers agents by it."""
    from makai.harness.acp.known_agents import agent_of

    def first_name(agent: str | None) -> str | None:
        harness = harness_id_of(agent)
        return agent if agent is None or harness == NATIVE else agent_of(harness, configured).name or agent

    return msgspec.structs.replace(setting, value=first_name(setting.value), written=first_name(setting.written))


def _read_instructions(home: Path) -> Instructions:
    path = home / INSTRUCTION_FILES[0]
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        data = b""
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    return Instructions(
        path=str(path),
        text=data[:MAX_FILE_BYTES].decode("utf-8", "replace"),
        version=hashlib.sha256(data).hexdigest(),
        max_bytes=MAX_FILE_BYTES,
        is_cut=len(data) > MAX_FILE_BYTES,
    )


def _write_instructions(home: Path, text: str, version: str) -> None:
    now = _read_instructions(home)
    if now.is_cut:
        raise InvalidRequest(f"{now.path} is longer than what the page can edit.", hint="Use your editor.")
    if version != now.version:
        hint = "Reload this page to see the new text, then make your change again."
        raise InvalidRequest(f"{now.path} changed since you opened it.", hint=hint)
    if len(text.encode()) > MAX_FILE_BYTES:
        raise InvalidRequest(f"Instructions have at most {MAX_FILE_BYTES:,} bytes: the agent reads no more.")
    if text.strip():
        replace_file(Path(now.path), text)
    else:
        Path(now.path).unlink(missing_ok=True)
