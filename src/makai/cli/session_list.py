"""`makai sessions list`: which sessions are listed, and the table of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile
from typing import Final

import msgspec

from makai.cli.console import Paint, clip, note, painter, plain, say, terminal_width
from makai.cli.run_request import folder_from
from makai.cli.session_access import open_sessions
from makai.cli.session_selection import LIST_HINT, every_session, shown_agent
from makai.core.visible_text import one_line
from makai.sessions.log.base import SessionSummary

MIN_ID_LENGTH: Final = 8
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
_COLOURS: Final = {"awaiting_approval": "yellow", "running": "green", "starting": "green", "error": "red"}


class SessionListing(msgspec.Struct, frozen=True, kw_only=True):
    sessions: tuple[SessionSummary, ...]
    known_ids: tuple[str, ...]
    """Of all sessions, so that ids can be cut where they stay unique."""
    folder: str | None
    left_out: int
    archived: int = 0
    """How many of this list are left out because they are archived."""
    only_waiting: bool = False
    only_archived: bool = False


async def list_now(*, all_folders: bool, waiting: bool, archived: bool, limit: int) -> SessionListing:
    folder = None if all_folders else folder_from(None)
    async with open_sessions() as sessions:
        known = await every_session(sessions)
    here = [
        session
        for session in known
        if (folder is None or session.cwd == folder or session.damaged)
        and (not waiting or session.pending_approvals > 0)
    ]
    wanted = [session for session in here if session.archived == archived or waiting or session.damaged]
    shown = wanted[:limit] if limit else wanted
    return SessionListing(
        sessions=tuple(shown),
        known_ids=tuple(session.session_id for session in known),
        folder=folder,
        left_out=len(wanted) - len(shown),
        archived=0 if archived else len(here) - len(wanted),
        only_waiting=waiting,
        only_archived=archived,
    )


def print_list(listed: SessionListing) -> None:
    if not listed.sessions and listed.only_waiting:
        note("No session waits for your approval.")
        return
    if not listed.sessions and listed.only_archived:
        note("No session of this folder is archived." if listed.folder else "No session is archived.")
        return
    if not listed.sessions and listed.archived:
        everywhere = "" if listed.folder else " --all"
        note(f"All sessions{_in(listed)} are archived. List them with `makai sessions list --archived{everywhere}`.")
        return
    if not listed.sessions:
        elsewhere = f" {LIST_HINT}" if listed.folder and listed.known_ids else ""
        note(f'You have no session{_in(listed)} yet. Begin one with `makai run "…"` or `makai`.{elsewhere}')
        return
    lines = session_table(
        listed.sessions,
        now_ms=time.time_ns() // 1_000_000,
        known_ids=listed.known_ids,
        folders=listed.folder is None,
        paint=painter(sys.stdout),
        width=terminal_width(),
    )
    say("\n".join(lines))
    if listed.left_out:
        note(f"{listed.left_out} more; show all with --limit 0.", dim=True)


def _in(listed: SessionListing) -> str:
    return f" in {listed.folder}" if listed.folder else ""


def session_table(
    sessions: Sequence[SessionSummary],
    *,
    now_ms: int,
    known_ids: Iterable[str] = (),
    folders: bool = False,
    paint: Paint = plain,
    width: int | None = None,
) -> list[str]:
    """Lines of the table, cut to `width` if it is given. Ids are cut where they stay unique among `known_ids` too."""
    names = short_ids([session.session_id for session in sessions], known_ids)
    head = ("ID", "CHANGED", "STATUS", "MODEL", "COST", *(("FOLDER",) if folders else ()), "TITLE")
    rows = [_cells(session, names[session.session_id], now_ms, folders) for session in sessions]
    widths = [max(len(cells[column]) for cells in (head, *rows)) for column in range(len(head))]
    lines = [paint(_line(head, widths, width), dim=True)]
    for session, cells in zip(sessions, rows, strict=True):
        colour = "red" if session.damaged else _COLOURS.get(session.status)
        lines.append(paint(_line(cells, widths, width), fg=colour) if colour else _line(cells, widths, width))
    return lines


def _cells(session: SessionSummary, name: str, now_ms: int, folders: bool) -> tuple[str, ...]:
    if session.damaged:
        rest = ("-", "damaged", "-", "-", *(("-",) if folders else ()))
        return (name, *rest, "run `makai sessions repair`")
    cost = session.usage.cost_usd
    return (
        name,
        age(now_ms - session.updated_ms),
        "waits for you" if session.pending_approvals else session.status.replace("_", " "),
        shown_agent(session, 40),
        "-" if cost is None else "free" if cost == 0 else f"${cost:.4f}",
        *((one_line(session.cwd or "-"),) if folders else ()),
        one_line(session.title) or "(no title)",
    )


def _line(cells: Sequence[str], widths: Sequence[int], width: int | None) -> str:
    *others, last = cells
    return clip("  ".join([*(cell.ljust(size) for cell, size in zip(others, widths[:-1], strict=True)), last]), width)


def short_ids(ids: Sequence[str], known: Iterable[str] = ()) -> dict[str, str]:
    """Each id cut to the shortest unique prefix of at least eight characters."""
    ordered = sorted({*ids, *known})
    shared: dict[str, int] = {}
    for before, after in pairwise(ordered):
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
        shared[before] = max(shared.get(before, 0), same)
        shared[after] = max(shared.get(after, 0), same)
    return {one: one[: max(MIN_ID_LENGTH, shared.get(one, 0) + 1)] for one in ids}


def age(ms: int) -> str:
    seconds = max(ms, 0) // 1000
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return "just now"
