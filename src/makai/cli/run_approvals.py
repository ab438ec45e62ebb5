"""Answers to the questions of a run: by the person at the terminal, or at once when there is none.

In: questions of the session, as they come and as others decide them. Out: decisions, given to the session. A person is
asked one question at a time, on stderr, so that the answer on stdout stays clean.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final

from makai.cli.console import note
from makai.cli.line_reader import LineReader
from makai.core.errors import SessionRefused
from makai.core.session_events import ApprovalRequested, GrantScope
from makai.sessions.commands import Approve, Deny
from makai.sessions.markdown_text import diff_lines, one_line, visible
from makai.sessions.service import Sessions

WHO: Final = "run"
"""How the log names us as the decider."""
_SHOWN_LINES: Final = 40
_LONGEST_LINE: Final = 500
_SCOPES: Final[dict[str, GrantScope]] = {"y": "once", "s": "session", "a": "always"}


def denial(request: ApprovalRequested) -> str:
    """Why a call is denied when nobody can be asked, and what the user can do: the model is told, and tells them."""
    rule = f"--allowed-tools '{request.grant}'" if request.grant else "--permission-mode full_access"
    other = ", or another --permission-mode" if request.grant else ""
    return f"Nobody was there to approve this. `makai run` allows it with {rule}{other}."


class RunApprovals:
    """Answers what a session asks during one run. Use it as `async with`; nothing is asked after that."""

    def __init__(
        self,
        sessions: Sessions,
        session_id: str,
        on_denied: Callable[[ApprovalRequested, str], None],
        lines: LineReader | None,
    ) -> None:
        """`lines` are what the person types; None when there is no person."""
        self._sessions = sessions
        self._session_id = session_id
        self._on_denied = on_denied
        self._lines = lines
        self._waiting: deque[ApprovalRequested] = deque()
        self._shown: ApprovalRequested | None = None
        """The question that is on the screen without an answer."""
        self._asking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> RunApprovals:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._waiting.clear()
        await self._stop_asking()

    async def requested(self, request: ApprovalRequested) -> None:
        """Somebody has to decide."""
        if self._lines is None:
            reason = denial(request)
            self._on_denied(request, reason)
            await self._decide(Deny(now=0, call_id=request.call_id, by=WHO, reason=reason))
            return
        self._waiting.append(request)
        self._ask_on()

    async def decided(self, call_id: str) -> None:
        """It is decided, by us or by somebody else."""
        self._waiting = deque(request for request in self._waiting if request.call_id != call_id)
        if self._shown is not None and self._shown.call_id == call_id:
            await self._stop_asking()
            note("\n(decided elsewhere)", dim=True)
            self._ask_on()

    def _ask_on(self) -> None:
        if self._waiting and (self._asking is None or self._asking.done()):
            assert self._lines is not None
            self._asking = asyncio.create_task(self._ask_all(self._lines), name="makai-run-questions")

    async def _stop_asking(self) -> None:
        asking, self._asking, self._shown = self._asking, None, None
        if asking is not None:
            asking.cancel()
            await asyncio.wait({asking})

    async def _ask_all(self, lines: LineReader) -> None:
        while self._waiting:
            self._shown = request = self._waiting.popleft()
            decision = await _answer(request, lines)
            self._shown = None  # from here on it is we who decide
            await self._decide(decision)

    async def _decide(self, decision: Approve | Deny) -> None:
        # Whoever answers first decides (document 002); that another client was first is no failure of ours.
        with contextlib.suppress(SessionRefused):
            await self._sessions.ask(self._session_id, decision)


async def _answer(request: ApprovalRequested, lines: LineReader) -> Approve | Deny:
    """Ask until the person says something we understand; the end of their input is a no."""
    show(request)
    while True:
        note(_choices(request), end="")
        line = await lines.next()
        word = "n" if line is None else line.strip().lower()[:1]
        if word == "n":
            return Deny(now=0, call_id=request.call_id, by=WHO)
        scope = _SCOPES.get(word)
        if scope is not None and (scope == "once" or request.grant):
            return Approve(now=0, call_id=request.call_id, by=WHO, scope=scope, digest=request.digest)


def show(request: ApprovalRequested) -> None:
    """What a person needs to know to decide."""
    note(f"\nmakai wants to use {one_line(request.name)}: {one_line(request.title)}", bold=True)
    lines = [line for diff in request.diffs for line in diff_lines(diff)]
    if not lines:
        lines = [request.arguments_json]
    for line in lines[:_SHOWN_LINES]:
        colour = {"+": "green", "-": "red"}.get(line[:1]) if request.diffs else None
        note(f"  {visible(line)[:_LONGEST_LINE]}", fg=colour)
    if len(lines) > _SHOWN_LINES:
        note(f"  … {len(lines) - _SHOWN_LINES} more lines", dim=True)


def _choices(request: ApprovalRequested) -> str:
    if not request.grant:
        return "[y]es or [n]o? "
    return f"[y]es, [n]o, [s]ession or [a]lways ({one_line(request.grant)})? "
