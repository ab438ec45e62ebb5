"""One question in a session: what `makai run` does once it knows what was asked.

In: a `RunRequest`, the models and the sessions of this home. Out: the events of the run, given to an output, and an
exit code. Ctrl-C stops the run, not only us: the session is told, and has a moment to settle.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final
from uuid import uuid4

import msgspec

from makai.catalog.model_ref import format_model_ref, parse_model_ref
from makai.cli.console import EXIT_INTERRUPTED, exit_code, note
from makai.cli.json_schema import OutputSchema
from makai.cli.line_reader import LineReader
from makai.cli.run_approvals import CLIENT_NAME, RunApprovals
from makai.cli.run_output import OUTPUTS, RunInit, RunOutcome, TextOutput
from makai.cli.run_request import RunRequest
from makai.cli.session_access import is_ours, open_sessions
from makai.cli.session_selection import find_session, newest_session
from makai.core.errors import Aborted, MakaiError, ModelRefError, SessionRefused, TransportError, error_from_code
from makai.core.messages import AssistantMessage, StopReason
from makai.core.model import ModelCapability
from makai.core.request import ToolChoice
from makai.core.session_events import (
    ApprovalDecided,
    ApprovalRequested,
    Logged,
    Notice,
    RunAborted,
    RunFailed,
    RunFinished,
    RunTerms,
    SessionTerms,
    UserInput,
)
from makai.core.usage import Usage
from makai.providers.runtime import ModelRuntime
from makai.sessions.commands import Abort, Send, SetMode, SetModel, SetTerms
from makai.sessions.history import History
from makai.sessions.log.base import LoggedEvent
from makai.sessions.log.encoding import decoded_one
from makai.sessions.requests import CreateSession, GetState, RunCommand
from makai.sessions.service import Sessions
from makai.sessions.state import SessionState

SETTLE_S: Final = 2.0
"""How long a run that we stopped may take to settle before we leave."""


async def answer(request: RunRequest, output_format: str) -> int:
    """Ask, print, and say how it went."""
    output = OUTPUTS[output_format](hold=request.terms.options.json_schema is not None)
    with _ended_by_terminate() as was_ended:
        try:
            async with (
                ModelRuntime(on_status=output.status) as models,
                _sessions(request, models) as sessions,
            ):
                return await run_in_session(request, sessions, models, output, owns_models=is_ours(sessions))
        except MakaiError as error:
            output.failed(error)
            return exit_code(error)
        except asyncio.CancelledError:
            if was_ended():
                return EXIT_INTERRUPTED
            raise


@asynccontextmanager
async def _sessions(request: RunRequest, models: ModelRuntime) -> AsyncIterator[Sessions]:
    if request.keep:
        async with open_sessions(models=models) as sessions:
            yield sessions
        return
    from makai.sessions.log.memory import MemoryLog
    from makai.sessions.owner import OwnedSessions

    forgotten = await OwnedSessions.open(models.home, models, log=MemoryLog())
    try:
        yield forgotten
    finally:
        await forgotten.close()


@contextlib.contextmanager
def _ended_by_terminate() -> Iterator[Callable[[], bool]]:
    """SIGTERM stops the run as Ctrl-C does: `timeout 60 makai run` must not leave one behind that somebody resumes.

    Gives a function that says whether it came.
    """
    if os.name != "posix":
        yield lambda: False
        return
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    came = False

    def end() -> None:
        nonlocal came
        came = True
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield lambda: came
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def run_in_session(
    request: RunRequest, sessions: Sessions, models: ModelRuntime, output: TextOutput, *, owns_models: bool = True
) -> int:
    """Ask, print, and say how it went. `owns_models`: the models of this process answer, not those of another."""
    schema_text = request.terms.options.json_schema
    outcome: RunOutcome | None = None
    try:
        schema = None if schema_text is None else OutputSchema(schema_text)
        session_id = await _session_for(request, sessions, models, owns_models)
        run = _Run(request, sessions, session_id, output)
        try:
            await run.carry_out()
        except asyncio.CancelledError:
            outcome = run.outcome()
            output.interrupted(outcome)
            raise
        outcome = run.outcome()
        if run.error is not None:
            raise run.error
        if schema is not None:
            schema.check(outcome.message or AssistantMessage(content=()))
        output.ended(outcome)
    except MakaiError as error:
        output.failed(error, outcome)
        return exit_code(error)
    finally:
        if outcome is not None:
            _hint_at_resuming(request, outcome.session_id)
    return 0


def _hint_at_resuming(request: RunRequest, session_id: str) -> None:
    if request.keep and sys.stderr.isatty():
        note(f'makai: go on with `makai run -r {session_id} "…"`, or talk: `makai -r {session_id}`', dim=True)


# ---------------------------------------------------------------- the session


async def _session_for(request: RunRequest, sessions: Sessions, models: ModelRuntime, owns_models: bool) -> str:
    if request.is_new:
        return await _create(request, sessions, models, owns_models)
    if request.resume is not None:
        summary = await find_session(sessions, request.resume)
    else:
        summary = await newest_session(sessions, request.cwd)
    await _adjust(request, sessions, models, summary.session_id)
    return summary.session_id


async def _create(request: RunRequest, sessions: Sessions, models: ModelRuntime, owns_models: bool) -> str:
    model = models.resolve(request.model)
    if owns_models:
        # What is missing here is said before there is a session that could only say the same.
        models.resolver.credential_for(model, request.terms.options.account)
    can_use_tools = request.tools and ModelCapability.TOOLS in model.capabilities
    return await sessions.dispatch(
        CreateSession(
            model_ref=format_model_ref(model.provider, model.api, model.id),
            mode=request.mode or "ask",
            cwd=request.cwd,
            roots=request.roots,
            terms=SessionTerms(system=request.system_prompt, builtin_tools=can_use_tools),
        )
    )


async def _adjust(request: RunRequest, sessions: Sessions, models: ModelRuntime, session_id: str) -> None:
    """What was asked for on the command line holds from here on."""
    if request.model is not None:
        model = models.resolve(request.model)
        model_ref = format_model_ref(model.provider, model.api, model.id)
        await sessions.dispatch(RunCommand(session_id, SetModel(now=0, model_ref=model_ref)))
    if request.mode is not None:
        await sessions.dispatch(RunCommand(session_id, SetMode(now=0, mode=request.mode)))
    if request.system_prompt is not None:
        terms = (await sessions.dispatch(GetState(session_id))).terms
        changed = msgspec.structs.replace(terms, system=request.system_prompt)
        await sessions.dispatch(RunCommand(session_id, SetTerms(now=0, terms=changed)))


# ---------------------------------------------------------------- the run


class _Run:
    """From the question to the settlement of its run."""

    def __init__(self, request: RunRequest, sessions: Sessions, session_id: str, output: TextOutput) -> None:
        self._request = request
        self._sessions = sessions
        self._session_id = session_id
        self._output = output
        self._began_at = time.monotonic()
        self._input_id = str(uuid4())
        self._state: SessionState | None = None
        self._run_id: str | None = None
        self._cursor = 0
        self._history = History()
        self._provider = ""
        self._usage = Usage()
        self._stop_reason: StopReason | None = None
        self._limit: Notice | None = None
        self._abort: RunAborted | None = None
        self.error: MakaiError | None = None
        """Why the run is no success, once it has settled."""

    async def carry_out(self) -> None:
        """Ask, and follow the run to its end. Cancelled: the run is stopped too."""
        try:
            await self._begin()
            await self._follow()
        except asyncio.CancelledError:
            await self._stop()
            raise

    def outcome(self) -> RunOutcome:
        """How it ended; "aborted" when we left before its end."""
        messages = [message for message in self._history.messages() if isinstance(message, AssistantMessage)]
        return RunOutcome(
            session_id=self._session_id,
            stop_reason=self._stop_reason or "aborted",
            duration_ms=round((time.monotonic() - self._began_at) * 1000),
            usage=self._usage,
            message=messages[-1] if messages else None,
        )

    async def _begin(self) -> None:
        state = await self._sessions.dispatch(GetState(self._session_id))
        self._cursor = state.last_event_id
        self._provider = _provider_of(state.model_ref)
        self._state = state
        send = Send(
            now=0,
            input_id=self._input_id,
            content=self._request.question,
            client_msg_id=self._input_id,  # the owner may die and be asked again: it is said once
            terms=self._terms(state.terms),
        )
        try:
            receipt = await self._sessions.dispatch(RunCommand(self._session_id, send))
        except SessionRefused as refusal:
            refusal.hint = _hint_for(refusal, self._session_id)
            raise
        self._run_id = receipt.run_id

    def _terms(self, session: SessionTerms) -> RunTerms:
        """In a session that has tools, `--no-tools` counts for this run only."""
        terms = self._request.terms
        if self._request.tools or not (session.builtin_tools or session.tools):
            return terms
        options = msgspec.structs.replace(terms.options, tool_choice=ToolChoice(mode="none"))
        return msgspec.structs.replace(terms, options=options)

    async def _follow(self) -> None:
        lines = LineReader() if _has_person() else None
        follower = self._sessions.follow(self._session_id, self._cursor)
        try:
            async with RunApprovals(
                self._sessions, self._session_id, self._output.denied, lines, self._state.cwd if self._state else None
            ) as approvals:
                while self._stop_reason is None:
                    records = await follower.next()
                    if not records:
                        raise TransportError(
                            "the session's owner is gone.", hint=f"`makai sessions show {self._session_id}` tells more."
                        )
                    for record in records:
                        logged = decoded_one(record)
                        self._cursor = logged.event_id
                        if isinstance(logged, Logged):
                            await self._take(logged, approvals)
        finally:
            follower.close()

    async def _take(self, logged: Logged, approvals: RunApprovals) -> None:
        if isinstance(logged.event, UserInput) and logged.event.input_id == self._input_id:
            self._began(logged.run_id)
        if logged.run_id is None or logged.run_id != self._run_id:
            return
        self._history.apply(logged)
        self._output.event(logged)
        match logged.event:
            case ApprovalRequested() as request:
                await approvals.requested(request)
            case ApprovalDecided(call_id=call_id):
                await approvals.decided(call_id)
            case Notice(code=code) as notice if code.startswith("limit_"):
                self._limit = notice
            case RunAborted() as abort:
                self._abort = abort
            case RunFinished() as end:
                self._usage, self._stop_reason = end.usage, end.stop_reason
                self.error = self._why_not_done(end)
            case RunFailed() as end:
                self._usage, self._stop_reason = end.usage, "error"
                self.error = error_from_code(
                    end.code,
                    end.message,
                    provider_id=end.provider_id or self._provider,
                    retry_after_ms=end.retry_after_ms,
                    hint=end.hint,
                )
                self.error.code = end.code
            case _:
                pass

    def _began(self, run_id: str | None) -> None:
        assert run_id is not None, "words belong to a run"
        assert self._state is not None
        self._run_id = run_id
        self._output.began(
            RunInit(
                session_id=self._session_id,
                run_id=run_id,
                model=self._state.model_ref,
                cwd=self._state.cwd,
                permission_mode=self._state.mode,
                tools=self._state.terms.builtin_tools and self._request.tools,
            )
        )

    def _why_not_done(self, end: RunFinished) -> MakaiError | None:
        """A run that somebody or a limit stopped has settled well, and is not what was asked for."""
        if self._limit is not None:
            hint = 'It can go on: `makai run -c "go on"`, with a higher limit.' if self._request.keep else None
            error = MakaiError(self._limit.message, hint=hint)
            error.code = self._limit.code
            return error
        if end.stop_reason != "aborted":
            return None
        by = f" by {self._abort.by}" if self._abort is not None and self._abort.by else ""
        reason = f": {self._abort.reason}" if self._abort is not None and self._abort.reason else "."
        return Aborted(f"the run was stopped{by}{reason}")

    async def _stop(self) -> None:
        """Ctrl-C: the run ends with us. What it had begun gets a moment to clean up."""
        if self._run_id is None or self._stop_reason is not None:
            return
        with contextlib.suppress(MakaiError, TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await self._sessions.dispatch(
                    RunCommand(self._session_id, Abort(now=0, run_id=self._run_id, by=CLIENT_NAME, reason="Ctrl-C"))
                )
                await self._settled()

    async def _settled(self) -> None:
        follower = self._sessions.follow(self._session_id, self._cursor, deltas=False)
        try:
            while records := await follower.next():
                if any(self._is_end(decoded_one(record)) for record in records):
                    return
        finally:
            follower.close()

    def _is_end(self, logged: LoggedEvent) -> bool:
        return (
            isinstance(logged, Logged)
            and logged.run_id == self._run_id
            and isinstance(logged.event, RunFinished | RunFailed)
        )


def _has_person() -> bool:
    """Whether somebody reads stderr and can answer."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _provider_of(model_ref: str) -> str:
    try:
        return parse_model_ref(model_ref).provider_id
    except ModelRefError:
        return ""


def _hint_for(refusal: SessionRefused, session_id: str) -> str | None:
    """What to do next, in commands."""
    hints = {
        "BUSY": f"Wait for it, or watch it: `makai -r {session_id}`.",
        "SESSION_CLOSED": f"Go on in a copy: `makai sessions fork {session_id}`.",
    }
    return hints.get(refusal.code, refusal.hint)
