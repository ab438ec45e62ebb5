"""Carries out `makai run`: opens the session, sends the prompt, follows the run to its end and reports it.

Ctrl-C, SIGTERM and SIGHUP abort the run too, not only this process, and give it a moment to settle.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final
from uuid import uuid4

import msgspec

from makai.catalog.model_ref import parse_model_ref, ref_of
from makai.cli.console import EXIT_LOGIN_NEEDED, exit_code, note
from makai.cli.json_schema import OutputSchema
from makai.cli.line_reader import LineReader
from makai.cli.new_session import chosen_model, continued_session, new_session, settings_for, with_agent
from makai.cli.provider_access import lacks_model
from makai.cli.run_approvals import CLIENT_NAME, RunApprovals
from makai.cli.run_output import OUTPUTS, RunInit, RunOutcome, TextOutput
from makai.cli.run_request import RunRequest, demo_request
from makai.cli.session_access import is_ours, open_sessions
from makai.core import session_events as ev
from makai.core.content import SessionPart
from makai.core.errors import Aborted, MakaiError, ModelRefError, SessionRefused, TransportError, error_from_code
from makai.core.messages import AssistantMessage, StopReason
from makai.core.request import ToolChoice
from makai.core.tool_server_ids import check_server_ids
from makai.core.usage import Usage
from makai.providers.runtime import ModelRuntime
from makai.sessions.commands import Abort, Send, SetMode, SetModel, SetTerms, SetTitle
from makai.sessions.history import History
from makai.sessions.log.encoding import decoded_one
from makai.sessions.project_aliases import expanded_alias
from makai.sessions.requests import GetState, RunCommand
from makai.sessions.service import Sessions
from makai.sessions.state import SessionState

SETTLE_S: Final = 2.0
"""How long an aborted run may take to settle before this process exits."""


async def answer(request: RunRequest, output_format: str) -> int:
    output = OUTPUTS[output_format](hold=request.terms.options.json_schema is not None, is_quiet=request.is_quiet)
    try:
        async with (
            ModelRuntime(on_status=output.status) as models,
            _sessions(request, models) as sessions,
        ):
            request = with_agent(request, models.resolver.settings)
            if request.takes_default_model and models.resolver.settings.model is None and lacks_model(models):
                from makai.cli.first_steps import first_model  # most users have a model

                done = await first_model(models)
                if done != "ready":
                    return await _demo() if done == "demo" else EXIT_LOGIN_NEEDED
            return await run_in_session(request, sessions, models, output, owns_models=is_ours(sessions))
    except MakaiError as error:
        output.failed(error)
        return exit_code(error)


async def _demo() -> int:
    from makai.cli.terminal.chat_setup import chat_until_left

    return await chat_until_left(demo_request())


@asynccontextmanager
async def _sessions(request: RunRequest, models: ModelRuntime) -> AsyncIterator[Sessions]:
    if request.keep:
        async with open_sessions(models=models) as sessions:
            yield sessions
        return
    from makai.sessions.log.memory import MemoryLog
    from makai.sessions.owner import OwnedSessions

    in_memory = await OwnedSessions.open(models.home, models, log=MemoryLog())
    try:
        yield in_memory
    finally:
        await in_memory.close()


async def run_in_session(
    request: RunRequest, sessions: Sessions, models: ModelRuntime, output: TextOutput, *, owns_models: bool = True
) -> int:
    """Run the prompt and return the exit code. `owns_models`: the models of this process answer."""
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
        if request.last_message_file is not None:
            from makai.cli.session_export import write  # most runs write no file

            write([outcome.text.encode()], request.last_message_file)
        output.ended(outcome)
    except MakaiError as error:
        output.failed(error, outcome)
        return exit_code(error)
    finally:
        if outcome is not None and request.keep and sys.stderr.isatty() and not request.is_quiet:
            note(f'makai: continue with `makai run -r {session_id} "…"`, or chat: `makai -r {session_id}`', dim=True)
    return 0


async def _session_for(request: RunRequest, sessions: Sessions, models: ModelRuntime, owns_models: bool) -> str:
    if request.is_new:
        return await _create(request, sessions, models, owns_models)
    session_id = await continued_session(request, sessions)
    await _adjust(request, sessions, models, session_id)
    return session_id


async def _create(request: RunRequest, sessions: Sessions, models: ModelRuntime, owns_models: bool) -> str:
    settings = await settings_for(request, sessions, models)
    model = chosen_model(request, settings, models)
    if owns_models and model is not None:
        # A missing key is reported before there is a session that could only report the same.
        models.resolver.credential_for(model, request.terms.options.account)
    return await sessions.dispatch(new_session(request, settings, model, made_by="run"))


async def _adjust(request: RunRequest, sessions: Sessions, models: ModelRuntime, session_id: str) -> None:
    """Options of the command line change an existing session from here on."""
    if request.model is not None:
        state = await sessions.dispatch(GetState(session_id))
        model_ref = request.model
        if state.capabilities.needs_model:
            model_ref = ref_of(models.resolve(await expanded_alias(sessions, state.cwd, request.model)))
        await sessions.dispatch(RunCommand(session_id, SetModel(now=0, model_ref=model_ref)))
    if request.mode is not None:
        await sessions.dispatch(RunCommand(session_id, SetMode(now=0, mode=request.mode)))
    if request.title and not request.fork:
        await sessions.dispatch(RunCommand(session_id, SetTitle(now=0, title=request.title)))
    given = {
        "system": request.system_prompt,
        "system_append": request.append_system_prompt,
        "sandbox": request.sandbox,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if request.tool_servers:
        check_server_ids(request.tool_servers)
        changes |= {"tool_servers": request.tool_servers, "tool_servers_token": ""}
    if changes:
        terms = (await sessions.dispatch(GetState(session_id))).terms
        changed = msgspec.structs.replace(terms, **changes)
        await sessions.dispatch(RunCommand(session_id, SetTerms(now=0, terms=changed)))


class _Run:
    def __init__(self, request: RunRequest, sessions: Sessions, session_id: str, output: TextOutput) -> None:
        self._request = request
        self._sessions = sessions
        self._session_id = session_id
        self._output = output
        self._began_at = time.monotonic()
        self._input_id = str(uuid4())
        self._state = SessionState()
        self._run_id: str | None = None
        self._cursor = 0
        self._history = History()
        self._usage = Usage()
        self._stop_reason: StopReason | None = None
        self._limit: ev.Notice | None = None
        self._abort: ev.RunAborted | None = None
        self.error: MakaiError | None = None
        """Why the settled run is no success."""

    async def carry_out(self) -> None:
        """Send the prompt and follow the run to its end. Cancelling this aborts the run."""
        try:
            await self._send()
            await self._follow()
        except asyncio.CancelledError:
            await self._stop()
            raise

    def outcome(self) -> RunOutcome:
        """The result; "aborted" when the run was left before its end."""
        messages = [message for message in self._history.messages() if isinstance(message, AssistantMessage)]
        return RunOutcome(
            session_id=self._session_id,
            stop_reason=self._stop_reason or "aborted",
            duration_ms=round((time.monotonic() - self._began_at) * 1000),
            usage=self._usage,
            message=messages[-1] if messages else None,
        )

    async def _send(self) -> None:
        self._state = await self._sessions.dispatch(GetState(self._session_id))
        self._history = History(has_turns=self._state.capabilities.has_turns)
        self._cursor = self._state.last_event_id
        send = Send(
            now=0,
            input_id=self._input_id,
            content=await self._content(),
            client_msg_id=self._input_id,  # the prompt is sent again when the owner died, and counts once
            terms=self._terms(self._state.terms),
        )
        try:
            receipt = await self._sessions.dispatch(RunCommand(self._session_id, send))
        except SessionRefused as refusal:
            hints = {
                "BUSY": f"Wait for it, or watch it: `makai -r {self._session_id}`.",
                "SESSION_CLOSED": f"Continue in a copy: `makai sessions fork {self._session_id}`.",
            }
            refusal.hint = hints.get(refusal.code, refusal.hint)
            raise
        self._run_id = receipt.run_id

    async def _content(self) -> str | tuple[SessionPart, ...]:
        """The question and the files that go along with it."""
        if not self._request.files:
            return self._request.question
        from makai.tools.attachments import attach_files  # most runs have none

        attached = await asyncio.to_thread(attach_files, self._request.question, self._request.files)
        for notice in attached.notices:
            note(f"makai: {notice}", dim=True)
        return attached.content

    def _terms(self, session: ev.SessionTerms) -> ev.RunTerms:
        """In a session that has tools, `--no-tools` applies to this run only."""
        terms = self._request.terms
        if self._request.tools or not (session.builtin_tools or session.tools):
            return terms
        options = msgspec.structs.replace(terms.options, tool_choice=ToolChoice(mode="none"))
        return msgspec.structs.replace(terms, options=options)

    async def _follow(self) -> None:
        lines = LineReader() if _has_terminal() else None
        approving = RunApprovals(self._sessions, self._session_id, self._output.denied, lines, self._state.cwd)
        async with approving as approvals, aclosing(self._events()) as events:
            async for logged in events:
                await self._take(logged, approvals)
                if self._stop_reason is not None:
                    return
        hint = f"See what happened with `makai sessions show {self._session_id}`."
        raise TransportError("the connection to the session was lost.", hint=hint)

    async def _events(self, *, deltas: bool = True) -> AsyncGenerator[ev.Logged, None]:
        follower = self._sessions.follow(self._session_id, self._cursor, deltas=deltas)
        try:
            while records := await follower.next():
                for logged in map(decoded_one, records):
                    self._cursor = logged.event_id
                    if isinstance(logged, ev.Logged):
                        yield logged
        finally:
            follower.close()

    async def _take(self, logged: ev.Logged, approvals: RunApprovals) -> None:
        if isinstance(logged.event, ev.UserInput) and logged.event.input_id == self._input_id:
            self._began(logged.run_id)
        if logged.run_id is None or logged.run_id != self._run_id:
            return
        self._history.apply(logged)
        self._output.event(logged)
        match logged.event:
            case ev.ApprovalRequested() as request:
                await approvals.requested(request, logged.run_id)
            case ev.ApprovalDecided(call_id=call_id):
                await approvals.decided(call_id)
            case ev.Notice(code=code) as notice if code.startswith("limit_"):
                self._limit = notice
            case ev.RunAborted() as abort:
                self._abort = abort
            case ev.RunFinished() as end:
                self._usage, self._stop_reason = end.usage, end.stop_reason
                self.error = self._why_unsuccessful(end)
            case ev.RunFailed() as end:
                self._usage, self._stop_reason = end.usage, "error"
                self.error = error_from_code(
                    end.code,
                    end.message,
                    provider_id=end.provider_id or _provider_of(self._state.model_ref),
                    retry_after_ms=end.retry_after_ms,
                    hint=end.hint,
                )
                self.error.code = end.code
            case _:
                pass

    def _began(self, run_id: str | None) -> None:
        assert run_id is not None, "a user message belongs to a run"
        self._run_id = run_id
        self._output.began(
            RunInit(
                session_id=self._session_id,
                run_id=run_id,
                model=self._state.model_ref,
                cwd=self._state.cwd,
                permission_mode=self._state.mode,
                sandbox=self._state.terms.sandbox,
                tools=self._state.terms.builtin_tools and self._request.tools,
            )
        )

    def _why_unsuccessful(self, end: ev.RunFinished) -> MakaiError | None:
        """A run that a client or a limit stopped has settled, but did not do what was asked."""
        go_on = '`makai run -c "go on"`'
        if self._limit is not None:
            hint = f"Continue with a higher limit: {go_on}." if self._request.keep else None
            error = MakaiError(self._limit.message, hint=hint)
            error.code = self._limit.code
            return error
        if end.stop_reason == "max_tokens":
            more = f", or have the rest written: {go_on}" if self._request.keep else ""
            error = MakaiError("the answer was cut at the length limit.", hint=f"Give a higher --max-tokens{more}.")
            error.code = "limit_tokens"
            return error
        if end.stop_reason != "aborted":
            return None
        if self._abort is not None and self._abort.by == CLIENT_NAME:
            return Aborted("you denied the call and stopped the run.")
        by = f" by {self._abort.by}" if self._abort is not None and self._abort.by else ""
        reason = f": {self._abort.reason}" if self._abort is not None and self._abort.reason else "."
        return Aborted(f"the run was stopped{by}{reason}")

    async def _stop(self) -> None:
        if self._run_id is None or self._stop_reason is not None:
            return
        with contextlib.suppress(MakaiError, TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                abort = Abort(now=0, run_id=self._run_id, by=CLIENT_NAME, reason="Ctrl-C")
                await self._sessions.dispatch(RunCommand(self._session_id, abort))
                async with aclosing(self._events(deltas=False)) as events:
                    async for logged in events:
                        if logged.run_id == self._run_id and isinstance(logged.event, ev.RunFinished | ev.RunFailed):
                            return


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _provider_of(model_ref: str) -> str:
    try:
        return parse_model_ref(model_ref).provider_id
    except ModelRefError:
        return ""
