"""Checks of `makai doctor` that each report by themselves: settings, session log, MCP servers, npm SDK and the page.
A check that fails in a way it did not expect says so in its row and costs the others nothing."""

from __future__ import annotations

import asyncio
import os
import shlex
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from makai.aio.child_process import ChildProcess
from makai.core.config import Config
from makai.core.errors import InvalidRequest, MakaiError
from makai.core.programs import find_program, trusted_environment
from makai.core.visible_text import one_line
from makai.providers.logins import CONFIG_FILE, read_config
from makai.server.announcement import listening
from makai.sessions.log.opening import is_postgres, reach, store_of
from makai.tools.commands import child_environment

CHECK_S: Final = 20.0
_NODE_S: Final = 5.0
_MAX_VERSION: Final = 100
_MAX_REASON: Final = 200


class MachineCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    state: Literal["good", "bad", "neutral"]
    text: str
    """One line or several."""
    next_step: str = ""


class CheckedPlace(msgspec.Struct, frozen=True, kw_only=True):
    home: Path
    folder: str
    environ: Mapping[str, str]


async def machine_checks(place: CheckedPlace) -> tuple[MachineCheck, ...]:
    """All of them at the same time, in a fixed order."""
    checks = {"settings": _settings, "sessions": _sessions, "MCP": _mcp, "npm SDK": _npm, "page": _page}
    return tuple(await asyncio.gather(*(_carried_out(name, check, place) for name, check in checks.items())))


async def _carried_out(
    name: str, check: Callable[[CheckedPlace], Awaitable[MachineCheck]], place: CheckedPlace
) -> MachineCheck:
    try:
        async with asyncio.timeout(CHECK_S):
            return await check(place)
    except TimeoutError:
        return MachineCheck(name=name, state="bad", text=f"no answer within {CHECK_S:g} s")
    except MakaiError as error:
        return MachineCheck(name=name, state="bad", text=error.message, next_step=error.hint or "")
    except Exception as error:  # what is wrong with this machine is what the command is for
        return MachineCheck(name=name, state="bad", text=f"the check failed: {error}")


async def _settings(place: CheckedPlace) -> MachineCheck:
    from makai.agent.workbench import user_rules  # loads a shell parser

    path = place.home / CONFIG_FILE
    await asyncio.to_thread(read_config, path)
    await asyncio.to_thread(user_rules, place.home, (), ())
    text = str(path) if await asyncio.to_thread(os.path.exists, path) else "none; the defaults count"
    return MachineCheck(name="settings", state="good", text=text)


async def _sessions(place: CheckedPlace) -> MachineCheck:
    try:
        config = await asyncio.to_thread(read_config, place.home / CONFIG_FILE)
    except InvalidRequest:  # the row of the settings says it
        config = Config()
    if is_postgres(store := store_of(place.home, config)):
        return MachineCheck(name="sessions", state="good", text="\n".join(await reach(store)))
    path = place.home / "sessions.db"

    def look() -> MachineCheck:
        if not path.exists():
            return MachineCheck(name="sessions", state="neutral", text="no session yet")
        if not path.is_file():
            step = f"Move {path} away: sessions are stored in a file of that name"
            return MachineCheck(name="sessions", state="bad", text=f"{path} is not a file", next_step=step)
        try:
            database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1.0)
            try:
                database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            finally:
                database.close()
        except sqlite3.Error as error:
            step = "makai sessions repair           keeps a copy and makes the sessions readable again"
            return MachineCheck(name="sessions", state="bad", text=f"{path}: {error}", next_step=step)
        return MachineCheck(name="sessions", state="good", text=str(path))

    return await asyncio.to_thread(look)


async def _mcp(place: CheckedPlace) -> MachineCheck:
    from makai.cli.session_access import trust_of
    from makai.server.mcp_servers import checked_servers, server_files

    listed = [one for file in server_files(place.home, place.folder) for one in file.listed(place.environ)]
    if not listed:
        return MachineCheck(name="MCP", state="neutral", text="no server; add one with `makai mcp add`")
    checked = await checked_servers(
        listed, place.home, place.folder, dict(place.environ), trust=trust_of, within_s=CHECK_S - 5
    )
    down = [one for one in checked if one.is_down]
    told = "\n".join(one_line(f"{one.name}: {one.problem or one.state or 'disabled'}", _MAX_REASON) for one in checked)
    step = f"makai mcp test {shlex.quote(down[0].name)}" if len(down) == 1 else "makai mcp list --check" if down else ""
    return MachineCheck(name="MCP", state="bad" if down else "good", text=told, next_step=step)


async def _npm(place: CheckedPlace) -> MachineCheck:
    environ = trusted_environment(child_environment(place.environ), [place.folder])
    node = find_program("node", environ["PATH"], [place.folder])
    if node is None:
        return MachineCheck(name="npm SDK", state="neutral", text="Node.js is not installed")
    child = await ChildProcess.start([node, "--version"], env=environ, cwd=place.folder)
    said = b""
    try:
        async with asyncio.timeout(_NODE_S):
            while len(said) < _MAX_VERSION and (chunk := await child.read()):
                said += chunk
    finally:
        await child.stop()
    version = said[:_MAX_VERSION].decode(errors="replace").strip()
    package = await asyncio.to_thread(_package_of, Path(place.folder))
    text = f"Node.js {version}, {package or 'the package is not installed in this folder (npm install makai)'}"
    return MachineCheck(name="npm SDK", state="good" if package else "neutral", text=text)


def _package_of(folder: Path) -> str:
    """The version and place of the package that a program in this folder imports; "" when there is none."""
    for parent in (folder, *folder.parents):
        path = parent / "node_modules" / "makai"
        if (path / "package.json").is_file():
            described = msgspec.json.decode((path / "package.json").read_bytes(), type=dict[str, object])
            if not (path / "dist").is_dir():
                raise InvalidRequest(f"{path} is not built.", hint=f"cd {path} && npm install && npm run build")
            return f"makai {described.get('version', '')} in {path}"
    return ""


async def _page(place: CheckedPlace) -> MachineCheck:
    import makai.server

    index = Path(makai.server.__file__).parent / "page" / "index.html"
    is_built = await asyncio.to_thread(lambda: index.is_file() and index.stat().st_size > 0)
    if not is_built:
        step = "Install makai again, with Node.js 20.19 or newer on the PATH: this installation has no page"
        return MachineCheck(name="page", state="bad", text="not built", next_step=step)
    server = await asyncio.to_thread(listening, place.home)
    if server is None:
        return MachineCheck(name="page", state="good", text="built; `makai web` serves it")
    status = await asyncio.to_thread(_status_of, server.address)
    state: Literal["good", "bad"] = "good" if status == "200" else "bad"
    return MachineCheck(name="page", state=state, text=f"served at {server.address} by process {server.pid} ({status})")


def _status_of(address: str) -> str:
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, build_opener

    try:
        with build_opener(ProxyHandler({})).open(f"{address.rstrip('/')}/", timeout=_NODE_S) as answer:
            return str(answer.status)
    except HTTPError as error:
        return str(error.code)
    except OSError as error:
        return f"it does not answer: {error}"
