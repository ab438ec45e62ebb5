"""Sessions, grants and repairs in words, for people. Pure.

In: what lists know, a time, a width. Out: lines. The first word of a line of the table is what every command that takes
an ID understands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile
from typing import Final

from makai.cli.model_table import Paint, plain
from makai.sessions.log.base import SessionSummary, StoredGrant
from makai.sessions.log.repair import Report
from makai.sessions.markdown_text import one_line

_SHORTEST_ID: Final = 8
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
_COLOURS: Final = {"awaiting_approval": "yellow", "running": "green", "starting": "green", "error": "red"}


def session_table(
    sessions: Sequence[SessionSummary],
    *,
    now_ms: int,
    known_ids: Iterable[str] = (),
    folders: bool = False,
    paint: Paint = plain,
    width: int | None = None,
) -> list[str]:
    """The lines of `makai sessions list`; a line longer than `width` is cut, and never when there is none.

    Ids are cut where they stay unique among `known_ids` too. `folders` shows where each session works.
    """
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
        _model(session.model_ref),
        "-" if cost is None else "free" if cost == 0 else f"${cost:.4f}",
        *((one_line(session.cwd or "-"),) if folders else ()),
        one_line(session.title) or "(no title)",
    )


def _model(model_ref: str) -> str:
    """`provider/model`: the API between them says nothing to a person."""
    provider, slash, rest = model_ref.partition("/")
    return one_line(f"{provider}{slash}{rest.partition('@')[2] or rest}", 40)


def _line(cells: Sequence[str], widths: Sequence[int], width: int | None) -> str:
    *others, last = cells
    text = "  ".join([*(cell.ljust(size) for cell, size in zip(others, widths[:-1], strict=True)), last])
    return text if width is None or len(text) <= width else text[: max(1, width - 1)] + "…"


def short_ids(ids: Sequence[str], known: Iterable[str] = ()) -> dict[str, str]:
    """Each id cut to the shortest beginning, of at least eight characters, that no other one has."""
    ordered = sorted({*ids, *known})
    shared: dict[str, int] = {}
    for before, after in pairwise(ordered):
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
        shared[before] = max(shared.get(before, 0), same)
        shared[after] = max(shared.get(after, 0), same)
    return {one: one[: max(_SHORTEST_ID, shared.get(one, 0) + 1)] for one in ids}


def age(ms: int) -> str:
    """How long ago, in one word or two."""
    seconds = max(ms, 0) // 1000
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return "just now"


def grant_lines(grants: Sequence[StoredGrant], paint: Paint = plain) -> list[str]:
    """What was allowed or refused for ever, by folder."""
    lines: list[str] = []
    folder: str | None = None
    for grant in grants:
        if grant.folder != folder:
            folder = grant.folder
            lines += [*([""] if lines else []), paint(one_line(folder) or "(no folder)", bold=True)]
        verdict = paint("allow", fg="green") if grant.allow else paint("deny ", fg="red")
        lines.append(f"  {verdict}  {one_line(grant.rule)}  (by {one_line(grant.by)}, session {grant.session_id[:8]})")
    return lines


def report_lines(report: Report, *, repaired: bool) -> list[str]:
    """What a check of the log found, and what was done about it."""
    read = f"{report.sessions:,} sessions with {report.events:,} events"
    if not report.problems:
        return [f"{read}: nothing is damaged."]
    lines = [f"{read}: {len(report.problems)} problems."]
    for problem in report.problems:
        place = f"session {problem.session_id}" if problem.session_id else "the file"
        event = "" if problem.event_id is None else f", event {problem.event_id}"
        lines.append(f"  {one_line(place)}{event}: {one_line(problem.what)}")
    if repaired:
        lines.append("Repaired: every session can be read again, and what was damaged says so in its place.")
        lines.append(f"The damaged file is kept as {report.kept_as}.")
    else:
        lines.append("`makai sessions repair` makes every session readable again.")
    return lines
