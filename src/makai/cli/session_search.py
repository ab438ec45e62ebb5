"""`makai sessions search` and `makai usage`: what is asked of the sessions, and the text that shows it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from makai.cli.console import Paint, note, painter, plain, say
from makai.cli.run_request import folder_from
from makai.cli.session_access import open_sessions
from makai.cli.session_list import age, short_ids
from makai.cli.session_selection import short_model
from makai.cli.terminal.usage_text import money, tokens
from makai.core.visible_text import one_line
from makai.sessions.index.base import SearchAnswer, SearchHit, SearchMatch, UsageAnswer, UsageRow
from makai.sessions.log.base import ArchivedFilter
from makai.sessions.requests import GetUsage, SearchSessions

UsageKey: TypeAlias = Literal["day", "model", "agent", "folder"]
_WAIT_S: Final = 30.0
_KINDS: Final = {"user": "you", "assistant": "agent", "tool": "tool", "title": "title"}
_UNFINISHED: Final = "makai is still reading your sessions, so there may be more. Run the command again in a moment."


async def search(words: Sequence[str], *, here: bool, archived: ArchivedFilter, limit: int) -> SearchAnswer:
    wanted = SearchSessions(
        query=" ".join(words),
        limit=limit,
        archived=archived,
        cwd=folder_from(None) if here else None,
        wait_s=_WAIT_S,
    )
    async with open_sessions() as sessions:
        return await sessions.dispatch(wanted)


def print_hits(answer: SearchAnswer, words: Sequence[str]) -> None:
    if not answer.hits:
        note(f"Nothing was found for {one_line(' '.join(words), 60)!r}.")
    else:
        say("\n".join(hit_lines(answer.hits, time.time_ns() // 1_000_000, painter(sys.stdout))))
        note(f"\nContinue one with `makai -r {_names(answer.hits)[answer.hits[0].session_id]}`.", dim=True)
    if not answer.complete:
        note(_UNFINISHED)


def hit_lines(hits: Sequence[SearchHit], now_ms: int, paint: Paint = plain) -> list[str]:
    names = _names(hits)
    lines: list[str] = []
    for hit in hits:
        where = f", {one_line(hit.cwd)}" if hit.cwd else ""
        archived = ", archived" if hit.archived else ""
        title = paint(one_line(hit.title, 80) or "(no title)", bold=True)
        lines += [""] if lines else []
        lines.append(f"{names[hit.session_id]}  {title}  ({age(now_ms - hit.updated_ms)}{where}{archived})")
        lines += [f"  {_KINDS[match.kind] + ':':<7}{_marked(match, paint)}" for match in hit.matches]
    return lines


def _names(hits: Sequence[SearchHit]) -> dict[str, str]:
    return short_ids([hit.session_id for hit in hits])


def _marked(match: SearchMatch, paint: Paint) -> str:
    """The snippet with its marks painted. The server made it safe to show."""
    units = match.text.encode("utf-16-le")
    pieces: list[str] = []
    end = 0
    for start, stop in match.marks:
        pieces.append(units[2 * end : 2 * start].decode("utf-16-le"))
        pieces.append(paint(units[2 * start : 2 * stop].decode("utf-16-le"), fg="yellow", bold=True))
        end = stop
    return "".join([*pieces, units[2 * end :].decode("utf-16-le")])


async def usage(days: int) -> UsageAnswer:
    local = time.localtime()
    wanted = GetUsage(days=days, tz_minutes=local.tm_gmtoff // 60, wait_s=_WAIT_S)
    async with open_sessions() as sessions:
        return await sessions.dispatch(wanted)


def print_usage(answer: UsageAnswer, by: UsageKey, days: int) -> None:
    if not answer.rows:
        note(f"No run ended in the last {days} days." if days > 1 else "No run ended today.")
    else:
        say("\n".join(usage_lines(answer.rows, by, painter(sys.stdout))))
    if not answer.complete:
        note(_UNFINISHED)


def usage_lines(rows: Sequence[UsageRow], by: UsageKey, paint: Paint = plain) -> list[str]:
    """A table of sums: days from the newest on, anything else from the most expensive on."""
    groups: dict[str, list[UsageRow]] = {}
    for row in rows:
        groups.setdefault(_group(row, by), []).append(row)
    if by != "day":
        groups = dict(sorted(groups.items(), key=lambda group: _weight(group[1]), reverse=True))
    table: list[tuple[str, ...]] = [(by.upper(), "RUNS", "INPUT", "CACHED", "OUTPUT", "COST")]
    table += [(name, *_sums(some)) for name, some in groups.items()]
    table += [("all", *_sums(rows))] if len(groups) > 1 else []
    widths = [max(len(cells[column]) for cells in table) for column in range(len(table[0]))]
    lines = [
        "  ".join(
            [cells[0].ljust(widths[0]), *(c.rjust(width) for c, width in zip(cells[1:], widths[1:], strict=True))]
        )
        for cells in table
    ]
    return [paint(lines[0], dim=True), *lines[1:]]


def _group(row: UsageRow, by: UsageKey) -> str:
    match by:
        case "day":
            return row.day
        case "model":
            return short_model(row.model_ref) or "(the agent's own)"
        case "agent":
            return "makai" if row.harness == "native" else one_line(row.harness.removeprefix("acp:"))
        case "folder":
            return one_line(row.cwd or "(no folder)")


def _sums(rows: Sequence[UsageRow]) -> tuple[str, ...]:
    costs = [row.cost_usd for row in rows if row.cost_usd is not None]
    return (
        f"{sum(row.runs for row in rows):,}",
        tokens(sum(row.input for row in rows)),
        tokens(sum(row.cache_read + row.cache_write for row in rows)),
        tokens(sum(row.output for row in rows)),
        money(sum(costs)) if costs else "-",
    )


def _weight(rows: Sequence[UsageRow]) -> tuple[float, int]:
    return sum(row.cost_usd or 0.0 for row in rows), sum(row.input + row.output for row in rows)
