"""Approvals during `makai run`: asks the user at the terminal, or denies at once when there is none.

One question at a time is written to stderr, so that stdout holds nothing but the answer. Another client of the session
may decide first; the question is then withdrawn.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from makai.cli.approval_keys import Widths, answer_in, discard_typed_ahead, key_lines, key_text, next_answer
from makai.cli.console import note
from makai.cli.line_reader import LineReader
from makai.cli.run_request import split_rules
from makai.core.approval_text import ExactLine, LineKind, approval_text, expiry_text
from makai.core.errors import SessionRefused
from makai.core.session_events import ApprovalRequested
from makai.sessions.commands import Abort, ApproveCall, DenyCall
from makai.sessions.requests import RunCommand
from makai.sessions.service import Sessions

Decision: TypeAlias = ApproveCall | DenyCall | Abort
CLIENT_NAME: Final = "run"
"""How the log names this client as the one that decided."""
_STYLES: Final[dict[LineKind, dict[str, Any]]] = {
    "command": {"bold": True},
    "file": {"bold": True},
    "added": {"fg": "green"},
    "removed": {"fg": "red"},
    "omitted": {"fg": "yellow"},
    "opened": {"fg": "yellow", "bold": True},
    "context": {"dim": True},
    "detail": {"dim": True},
}


def denial_reason(request: ApprovalRequested, cwd: str | None) -> str:
    """Why a call is denied without a terminal, and the narrowest option that allows it, to be pasted into a shell. The
    model reads it too."""
    rules = _narrowest_rules(request, cwd)
    if rules:
        option = f"--allowed-tools {shlex.quote(','.join(rules))}"
    elif request.confinement.opens:  # no mode gives more than the sandbox
        option = "an answer in `makai chat`"
    else:
        option = "--permission-mode never_ask"
    return f"This needs an approval, and `makai run` has no terminal to ask on. Allow it with {option}."


def _narrowest_rules(request: ApprovalRequested, cwd: str | None) -> tuple[str, ...]:
    """The narrowest rule that was offered, else those of the exact command or of the file with credentials, if the
    command line takes them."""
    rules = tuple(grant.rule for grant in request.grants[:1]) or ((request.grant,) if request.grant else ())
    if not rules and request.name == "shell":
        from makai.tools.permissions.written_rules import exact_command_rules  # loads a shell parser

        with contextlib.suppress(msgspec.DecodeError):
            command = msgspec.json.decode(request.arguments_json, type=_ShellArguments).command
            rules = exact_command_rules(command, cwd or "/", request.confinement)
    if not rules and request.name == "read" and not request.options and cwd is not None:
        from makai.tools.permissions.written_rules import credentials_read_rules  # loads a shell parser

        with contextlib.suppress(msgspec.DecodeError):
            path = msgspec.json.decode(request.arguments_json, type=_ReadArguments).path
            rules = credentials_read_rules(path, cwd)
    return rules if split_rules(",".join(rules)) == list(rules) else ()


class _ShellArguments(msgspec.Struct, frozen=True):
    command: str


class _ReadArguments(msgspec.Struct, frozen=True):
    path: str


class RunApprovals:
    """Decides the approvals of one run. Use it as `async with`; nothing is asked after that."""

    def __init__(
        self,
        sessions: Sessions,
        session_id: str,
        on_denied: Callable[[ApprovalRequested, str], None],
        lines: LineReader | None,
        cwd: str | None,
    ) -> None:
        """`lines` are what the user types; None when there is no terminal."""
        self._sessions = sessions
        self._session_id = session_id
        self._on_denied = on_denied
        self._lines = lines
        self._cwd = cwd
        self._queue: deque[tuple[ApprovalRequested, str]] = deque()
        """Each with the id of its run."""
        self._shown: ApprovalRequested | None = None
        """The question on the screen that has no answer yet."""
        self._asking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> RunApprovals:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._queue.clear()
        await self._stop_asking()

    async def requested(self, request: ApprovalRequested, run_id: str) -> None:
        if self._lines is None:
            reason = denial_reason(request, self._cwd)
            self._on_denied(request, reason)
            await self._decide(DenyCall(now=0, call_id=request.call_id, by=CLIENT_NAME, reason=reason))
            return
        self._queue.append((request, run_id))
        self._ask_next()

    async def decided(self, call_id: str) -> None:
        """A decision is in the log, made here or by another client."""
        self._queue = deque(each for each in self._queue if each[0].call_id != call_id)
        if self._shown is not None and self._shown.call_id == call_id:
            await self._stop_asking()
            note("\n(decided by another client)", dim=True)
            self._ask_next()

    def _ask_next(self) -> None:
        if self._queue and (self._asking is None or self._asking.done()):
            assert self._lines is not None
            self._asking = asyncio.create_task(self._ask_all(self._lines), name="makai-run-approvals")

    async def _stop_asking(self) -> None:
        asking, self._asking, self._shown = self._asking, None, None
        if asking is not None:
            asking.cancel()
            await asyncio.wait({asking})

    async def _ask_all(self, lines: LineReader) -> None:
        while self._queue:
            self._shown, run_id = self._queue.popleft()
            decision = await _ask(self._shown, run_id, lines, self._cwd)
            self._shown = None  # the decision that arrives next was made here
            await self._decide(decision)

    async def _decide(self, decision: Decision) -> None:
        # The first decision counts (MC-APPR-005); that another client was faster is no failure.
        with contextlib.suppress(SessionRefused):
            await self._sessions.dispatch(RunCommand(self._session_id, decision))


async def _ask(request: ApprovalRequested, run_id: str, lines: LineReader, cwd: str | None) -> Decision:
    """Ask until the answer is understood; the end of input denies."""
    text = approval_text(request, cwd)
    note(f"\n{text.question}", bold=True)
    _show(text.excerpt())
    if expiry := expiry_text(request.deadline_ms, time.time_ns() // 1_000_000):
        note(f"  {expiry}", dim=True)
    widths = Widths.of(request)
    _show_keys(widths, is_long=text.is_long)
    await discard_typed_ahead(lines)
    while True:
        typed = await next_answer(lines, lambda: note("Your answer, then Enter > ", end=""))
        answer = answer_in(typed, widths, is_long=text.is_long)
        match answer:
            case "view":
                _show(text.lines)
            case "deny":
                return DenyCall(now=0, call_id=request.call_id, by=CLIENT_NAME)
            case "stop":
                note("")
                return Abort(now=0, run_id=run_id, by=CLIENT_NAME, reason="at an approval")
            case "once" | "session" | "always":
                grant = "" if answer == "once" else widths.rule
                return ApproveCall(
                    now=0, call_id=request.call_id, by=CLIENT_NAME, scope=answer, digest=request.digest, grant=grant
                )
            case int():
                widths = widths.choose(answer)
                _show_keys(widths, is_long=text.is_long)
            case None:
                note("That is none of the answers.")
            case _:
                assert_never(answer)


def _show_keys(widths: Widths, *, is_long: bool) -> None:
    for keys in key_lines(widths, is_long=is_long):
        note(f"  {key_text(keys)}")


def _show(lines: Iterable[ExactLine]) -> None:
    for line in lines:
        gutter = f"{line.gutter} " if line.gutter else ""
        note(f"  {gutter}{line.text}", **_STYLES.get(line.kind, {}))
