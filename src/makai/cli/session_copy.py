"""`makai sessions copy`: opens two stores, copies the sessions of one to the other, and says what happened."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from makai.cli.console import note
from makai.cli.session_access import in_words
from makai.core.config import Config, StoreConfig
from makai.core.errors import HomeInUse, InvalidRequest, StorageUnavailable
from makai.core.home import home_directory
from makai.core.visible_text import one_line
from makai.providers.logins import CONFIG_FILE, read_config
from makai.sessions.log import schema
from makai.sessions.log.base import EventLog
from makai.sessions.log.copying import NOT_COPIED, CopiedSession, CopyReport, copy_beside, copy_sessions
from makai.sessions.log.memory import MemoryLog
from makai.sessions.log.opening import VISITOR_LEASE_S, is_postgres, open_beside, store_of
from makai.sessions.log.sqlite import SqliteLog

PROGRESS_S: Final = 2.0
_CONFIG_SUFFIX: Final = ".toml"


async def copy(source: str, target: str, *, everything: bool, dry_run: bool) -> CopyReport:
    home = home_directory(os.environ)
    config = read_config(home / CONFIG_FILE)
    from_place, to_place = (_place(text, home, config) for text in (source, target))
    if from_place == to_place:
        raise InvalidRequest("FROM and TO are the same store.", hint="Name two stores: `makai sessions copy --help`.")
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(_opened(from_place, config, is_source=True))
        second = await stack.enter_async_context(_opened(to_place, config, is_dry_run=dry_run))
        try:
            patience_s = VISITOR_LEASE_S + 1 if isinstance(to_place, StoreConfig) else 0.0
            report = await copy_sessions(first, second, _progress(), dry_run=dry_run, patience_s=patience_s)
        except asyncio.CancelledError:
            note("Interrupted. What was copied stays; run the same command again to copy the rest.")
            raise
        return await copy_beside(first, second, report) if everything else report


def report_lines(report: CopyReport) -> list[str]:
    moved = [each for each in report.sessions if each.outcome in ("copied", "continued")]
    present = sum(each.outcome in ("same", "ahead") for each in report.sessions)
    verb = "Would copy" if report.dry_run else "Copied"
    lines = [f"{verb} {_count(len(moved), 'session')} with {_count(sum(each.events for each in moved), 'event')}."]
    if present:
        lines.append(f"{_count(present, 'session')} {'was' if present == 1 else 'were'} there already.")
    if report.tokens or report.trusted_folders or report.grants:
        folders, grants = _count(report.trusted_folders, "trusted folder"), _count(report.grants, "saved permission")
        lines.append(f"{verb} {_count(report.tokens, 'token')}, {folders} and {grants}.")
    if active := sum(each.is_active for each in moved):
        has = "has a run" if active == 1 else "have runs"
        lines.append(
            f"{active} of them {has} that did not end, and both stores would continue it: use one of them only."
        )
    if refused := [each for each in report.sessions if each.outcome in NOT_COPIED]:
        lines += ["Not copied:", *(f"  {one_line(each.session_id)}: {_reason(each)}" for each in refused)]
    lines += [f"Not copied: the token {name!r}, another token has this name." for name in report.refused_tokens]
    return lines


def _reason(session: CopiedSession) -> str:
    if session.outcome == "differs":
        return f"the stores differ from event {session.event_id} on. Fork or delete one of the two, and copy again."
    if session.outcome == "damaged":
        return "it is damaged. Run `makai sessions repair`, and copy again."
    return "another node uses it. Copy again when that node has ended."


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _place(text: str, home: Path, config: Config) -> Path | StoreConfig:
    """A MAKAI_HOME, or one database or several."""
    if text == "store":
        store = store_of(home, config)
    elif text.endswith(_CONFIG_SUFFIX):
        store = _store_in(Path(text).expanduser())
    else:
        store = StoreConfig(url=text)
    if is_postgres(store):
        return store
    if store.shards:
        raise InvalidRequest("Only databases of PostgreSQL can be shards.", hint="Correct `url` in [store].")
    if store.url == "sqlite":
        return home.resolve()
    if "://" in store.url:
        raise InvalidRequest(
            f"{store.url.partition(':')[0]!r} is no store of sessions.",
            hint="Name `sqlite`, `store`, a folder, a config.toml, or postgres://USER@HOST/DATABASE.",
        )
    return Path(store.url).expanduser().resolve()


def _store_in(path: Path) -> StoreConfig:
    """The store that a config.toml of another makai names."""
    if not path.is_file():
        raise InvalidRequest(f"There is no file {path}.", hint="Name a config.toml with [store] in it.")
    store = read_config(path).store
    if not is_postgres(store):
        raise InvalidRequest(
            f"{path} names no database in [store].", hint="Name the folder of that makai instead, its MAKAI_HOME."
        )
    return store


@asynccontextmanager
async def _opened(
    place: Path | StoreConfig, config: Config, *, is_source: bool = False, is_dry_run: bool = False
) -> AsyncIterator[EventLog]:
    log = await _log(place, config, is_source=is_source, is_dry_run=is_dry_run)
    try:
        yield log
    finally:
        await log.close()


async def _log(place: Path | StoreConfig, config: Config, *, is_source: bool, is_dry_run: bool) -> EventLog:
    if isinstance(place, StoreConfig):
        return await open_beside(place, config.cluster)
    if not (place / schema.FILE_NAME).exists():
        if is_source:
            raise InvalidRequest(f"There are no sessions in {place}.", hint="Name the folder that is MAKAI_HOME there.")
        if is_dry_run:
            return MemoryLog()
    try:
        return await SqliteLog.open(place)
    except StorageUnavailable as error:
        raised = in_words(error, place)
        if isinstance(error, HomeInUse):
            end_it = f"Stop it (kill {error.pid})" if error.pid else "Stop it"
            raised.hint = f"{end_it} and try again: no other process may write to a store while it is copied."
        raise raised from None


def _progress() -> Callable[[int, int, int], None]:
    """Says every few seconds how far the copy is."""
    shown_at = time.monotonic()

    def show(done: int, sessions: int, events: int) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= PROGRESS_S:
            shown_at = time.monotonic()
            note(f"{done:,} of {_count(sessions, 'session')}, {_count(events, 'event')} copied")

    return show
