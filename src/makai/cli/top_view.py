"""What `makai top` shows, and what its keys do. Pure: a state, keys in, lines out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from makai.cli.console import Paint, clip, plain
from makai.cli.session_list import age, short_ids
from makai.cli.session_selection import shown_agent
from makai.core.visible_text import one_line
from makai.server.activity import Activity
from makai.sessions.log.base import SessionSummary

SortKey: TypeAlias = Literal["changed", "cost", "tokens", "events", "status", "agent"]
SORT_KEYS: Final[tuple[SortKey, ...]] = get_args(SortKey)
ACTIVE: Final = frozenset({"starting", "running", "awaiting_approval", "aborting"})
MAX_FILTER: Final = 60
_COLOURS: Final = {"awaiting_approval": "yellow", "running": "green", "starting": "green", "error": "red"}
_ORDER: Final = {"awaiting_approval": 0, "aborting": 1, "running": 2, "starting": 2, "error": 3}
_KEYS: Final = "q quit   s sort   r reverse   a active only   / filter   arrows scroll"
_HEAD: Final = ("ID", "STATUS", "AGENT", "TOKENS", "COST", "EV/S", "CHANGED", "TITLE")
_RIGHT: Final = frozenset({"TOKENS", "COST", "EV/S"})
_BACKSPACE: Final = ("\x7f", "\b")

_ORDERS: Final[dict[SortKey, Callable[[SessionSummary], object]]] = {
    "changed": lambda session: -session.updated_ms,
    "cost": lambda session: -(session.usage.cost_usd or 0.0),
    "tokens": lambda session: -_tokens(session),
    "events": lambda session: -session.events,
    "status": lambda session: (_ORDER.get(session.status, 4), -session.updated_ms),
    "agent": lambda session: (shown_agent(session), -session.updated_ms),
}


class TopView(msgspec.Struct):
    """What the person chose, and what is needed to show rates."""

    sort: SortKey = "changed"
    is_reversed: bool = False
    only_active: bool = False
    filter: str = ""
    is_typing: bool = False
    """Whether keys are letters of the filter."""
    first: int = 0
    """The first row that is shown."""
    before: Activity | None = None
    activity: Activity = Activity(now_ms=0)
    problem: str = ""
    """Why there is nothing newer."""

    def take(self, activity: Activity) -> None:
        self.before, self.activity, self.problem = self.activity if self.activity.now_ms else None, activity, ""

    def press(self, key: str) -> bool:
        """Carry out a key; False when the person leaves. An unknown key does nothing."""
        if self.is_typing:
            self._type(key)
            return True
        match key:
            case "q" | "\x04":
                return False
            case "s":
                self.sort = SORT_KEYS[(SORT_KEYS.index(self.sort) + 1) % len(SORT_KEYS)]
            case "r":
                self.is_reversed = not self.is_reversed
            case "a":
                self.only_active = not self.only_active
            case "/":
                self.is_typing, self.filter = True, ""
            case "\x1b":
                self.filter = ""
            case "\x1b[A" | "\x1bOA" | "k":
                self.first -= 1
            case "\x1b[B" | "\x1bOB" | "j":
                self.first += 1
            case _:
                return True
        self.first = max(0, min(self.first, len(self.sessions()) - 1))
        return True

    def _type(self, key: str) -> None:
        if key in ("\r", "\n"):
            self.is_typing = False
        elif key == "\x1b":
            self.is_typing, self.filter = False, ""
        elif key in _BACKSPACE:
            self.filter = self.filter[:-1]
        elif key.isprintable() and len(self.filter) < MAX_FILTER:
            self.filter += key
        self.first = 0

    def sessions(self) -> list[SessionSummary]:
        """Those to show, in their order."""
        wanted = self.filter.casefold()
        found = [
            session
            for session in self.activity.sessions
            if (not self.only_active or session.status in ACTIVE) and wanted in _searched(session)
        ]
        return sorted(found, key=_ORDERS[self.sort], reverse=self.is_reversed)  # type: ignore[arg-type]

    def rate(self, session: SessionSummary) -> float:
        """Events a second since the last look."""
        if self.before is None or (passed := self.activity.now_ms - self.before.now_ms) <= 0:
            return 0.0
        former = {one.session_id: one.events for one in self.before.sessions}
        return max(0, session.events - former.get(session.session_id, session.events)) * 1000 / passed


def keys_in(text: str) -> Iterator[str]:
    """What was read from a terminal, key by key."""
    at = 0
    while at < len(text):
        length = 3 if text[at : at + 2] in ("\x1b[", "\x1bO") else 1
        yield text[at : at + length]
        at += length


def top_lines(view: TopView, width: int | None, height: int | None, paint: Paint = plain) -> list[str]:
    """The whole picture, at most `height` lines of `width` columns; without them all rows are whole."""
    lines = [*_summary(view, width, paint), *_nodes(view, width, paint), ""]
    sessions = view.sessions()
    room = len(sessions) if height is None else max(1, height - len(lines) - 2)
    first = min(view.first, max(0, len(sessions) - room))
    shown = sessions[first : first + room]
    names = short_ids([session.session_id for session in shown], [one.session_id for one in view.activity.sessions])
    rows = [_cells(view, session, names[session.session_id]) for session in shown]
    widths = [max(len(cells[column]) for cells in (_HEAD, *rows)) for column in range(len(_HEAD))]
    lines.append(paint(clip(_row(_HEAD, widths), width), dim=True))
    for session, cells in zip(shown, rows, strict=True):
        colour = "red" if session.damaged else _COLOURS.get(session.status)
        text = clip(_row(cells, widths), width)
        lines.append(paint(text, fg=colour) if colour else text)
    if not shown:
        lines.append(paint("No session matches." if view.activity.sessions else "There is no session yet.", dim=True))
    if height is not None:
        lines = lines[: height - 1] + [""] * (height - 1 - len(lines))
        lines.append(_footer(view, first, len(shown), len(sessions), width, paint))
    return lines


def _summary(view: TopView, width: int | None, paint: Paint) -> Iterator[str]:
    activity = view.activity
    active = sum(session.status in ACTIVE for session in activity.sessions)
    waiting = sum(session.pending_approvals for session in activity.sessions)
    clock = time.strftime("%H:%M:%S", time.localtime(activity.now_ms / 1000)) if activity.now_ms else "--:--:--"
    count = _count(len(activity.sessions), "session")
    today = f"today {_cost(activity.today.cost_usd)}, {_short(activity.today.input + activity.today.output)} tokens"
    yield paint(clip(f"makai top   {clock}   {count}, {active} active   {today}", width), bold=True)
    if waiting:
        answer = "answer with `makai sessions list --waiting`"
        yield paint(clip(f"{_count(waiting, 'approval')} waiting; {answer}", width), fg="yellow")
    if view.problem:
        yield paint(clip(view.problem, width), fg="red")


def _nodes(view: TopView, width: int | None, paint: Paint) -> Iterator[str]:
    """Only of a cluster: one process needs no list."""
    nodes = view.activity.nodes
    if len(nodes) == 1 and not nodes[0].address:
        return
    for node in nodes:
        up = age(view.activity.now_ms - node.started_ms).removesuffix(" ago") if node.started_ms else "-"
        facts = [f"node {node.name}", node.address or "no address", f"up {up}"]
        facts += [f"labels {', '.join(node.labels) or '-'}", *(["draining"] if node.draining else [])]
        text = clip("   ".join(map(one_line, facts)), width)
        yield paint(text, fg="yellow") if node.draining else text


def _footer(view: TopView, first: int, shown: int, count: int, width: int | None, paint: Paint) -> str:
    if view.is_typing:
        return clip(f"Filter: {view.filter}_   Enter keeps it, Esc clears it", width)
    order = f"sorted by {view.sort}{', reversed' if view.is_reversed else ''}"
    chosen = [
        order,
        *(["active only"] if view.only_active else []),
        *([f"filter {view.filter!r}"] if view.filter else []),
    ]
    place = f"{first + 1}-{first + shown} of {count}   " if shown < count else ""
    return paint(clip(f"{place}{', '.join(chosen)}   {_KEYS}", width), dim=True)


def _cells(view: TopView, session: SessionSummary, name: str) -> tuple[str, ...]:
    if session.damaged:
        return (name, "damaged", "-", "-", "-", "-", "-", "run `makai sessions repair`")
    rate = view.rate(session)
    return (
        name,
        "waits for you" if session.pending_approvals else session.status.replace("_", " "),
        shown_agent(session, 32),
        _short(_tokens(session)),
        _cost(session.usage.cost_usd),
        f"{rate:.0f}" if rate >= 1 else "-",
        age(view.activity.now_ms - session.updated_ms),
        one_line(session.title) or "(no title)",
    )


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(size) if head in _RIGHT else cell.ljust(size)
        for head, cell, size in zip(_HEAD, cells, widths, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _tokens(session: SessionSummary) -> int:
    usage = session.usage
    return usage.input + usage.output + usage.cache_read + usage.cache_write


def _searched(session: SessionSummary) -> str:
    texts = (session.session_id, session.title, session.model_ref, session.harness, session.cwd or "", session.status)
    return "\n".join(texts).casefold()


def _short(number: int) -> str:
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if number >= size:
            return f"{number / (1_000 if unit == 'k' else size):.1f}{unit}"
    return str(number)


def _cost(cost: float | None) -> str:
    return "-" if cost is None else "free" if cost == 0 else f"${cost:.4f}" if cost < 10 else f"${cost:.2f}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
