"""Runs the tool calls of a turn: one result for each, in their order.

Calls that only look (read, search, fetch, think, other) run beside each other. One that changes files or runs a
command waits for everything before it, and everything after it waits for it: the result is that of running all calls
in the order in which the model wrote them. Whether a call may run is the decision of `Decide`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from makai.agent.host import AgentHost, Decide, Recorder
from makai.agent.settings import AgentSettings
from makai.agent.tool_io import ArgumentsSchema, ProgressReporter
from makai.aio.cancellation import run_with_grace
from makai.core import session_events as ev
from makai.core.content import Image, Text, ToolCall, ToolResult
from makai.core.errors import InvalidRequest, MakaiError, ToolUnavailable
from makai.core.messages import ToolMessage
from makai.core.sanitize import REPLACED, REPLACEMENT, fits_event, sanitize
from makai.tools.base import CallDescription, Tool, ToolOutcome, text_outcome
from makai.tools.plan import PlanTool, plan_of

log = logging.getLogger(__name__)

NO_OUTPUT = "The tool gave no output."
_ONE_AFTER_THE_OTHER = frozenset({"edit", "execute"})
_MAX_NAMES = 100
MAX_REFUSED_REPEATS = 10
"""A call that was refused so often in a row, for being the same as the one before it, ends the run."""


class RunDenied(Exception):
    """A user denied a call and with it the whole run."""


class CallRepeated(Exception):
    """The model made the same call again and again, although it was refused."""

    def __init__(self, call: ev.ToolCalled, times: int) -> None:
        super().__init__(call.name)
        self.call = call
        self.times = times


class PreparedCall(msgspec.Struct, kw_only=True):
    """A call that can be run, or the reason why it cannot."""

    fact: ev.ToolCalled
    tool: Tool | None = None
    arguments: Mapping[str, Any] = {}
    description: CallDescription | None = None
    refusal: str | None = None
    """What the model gets instead of a result."""

    @property
    def waits(self) -> bool:
        """Whether it may change what other calls see."""
        return self.refusal is None and self.fact.kind in _ONE_AFTER_THE_OTHER


class ToolCalls:
    def __init__(self, host: AgentHost, recorder: Recorder, decide: Decide, settings: AgentSettings) -> None:
        self._host = host
        self._decide = decide
        self._recorder = recorder
        self._settings = settings
        self._tools: Mapping[str, Tool] = {}
        self._schemas: dict[str, ArgumentsSchema] = {}
        self._room = asyncio.Semaphore(settings.max_parallel_tools)
        self._last_call: object = None
        self._times = 0
        self._repeated: CallRepeated | None = None

    def offer(self, tools: Mapping[str, Tool]) -> None:
        """Take calls of these tools from now on. Calls that are prepared already keep their tool."""
        self._schemas = {
            name: self._schemas[name] if self._tools.get(name) is tool else ArgumentsSchema(tool.definition)
            for name, tool in tools.items()
        }
        self._tools = tools

    async def take(self, part: ToolCall, content_index: int) -> PreparedCall:
        """Log and prepare a call that the model has just written whole."""
        if not fits_event(part.arguments_json):
            too_long = f"The arguments have {len(part.arguments_json):,} characters, more than an event can hold."
            part = msgspec.structs.replace(part, arguments_json="{}", arguments_error=too_long)
        fact = ev.ToolCalled(
            call_id=self._host.call_id(part.tool_call_id),
            name=part.name,
            arguments_json=part.arguments_json,
            content_index=content_index,
            vendor_call_id=part.tool_call_id,
            signature=part.thought_signature,
            arguments_error=part.arguments_error,
            title=part.name,
        )
        call = await self._prepared(fact)
        if (known := call.description) is not None:
            call.fact = msgspec.structs.replace(fact, kind=known.kind, title=known.title, locations=known.locations)
        await self._recorder.emit(call.fact)
        return call

    async def retake(self, fact: ev.ToolCalled) -> PreparedCall:
        """Prepare a call that was logged before the run was resumed."""
        self._recorder.reopen(fact)
        return await self._prepared(fact)

    async def run_all(self, calls: Sequence[PreparedCall]) -> list[ToolMessage]:
        """Run the calls. Raises `RunDenied` when a user ended the run; open calls are the caller's to close. Raises
        `CallRepeated` after all calls have their results."""
        for call in calls:
            await self._count(call)
        results: dict[str, ToolMessage] = {}
        for number, batch in enumerate(_batches(calls)):
            try:
                async with asyncio.TaskGroup() as group:
                    for call in batch:
                        group.create_task(self._one(call, number > 0, results))
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from None
        if self._repeated is not None:
            raise self._repeated
        return [results[call.fact.call_id] for call in calls]

    async def _prepared(self, fact: ev.ToolCalled) -> PreparedCall:
        tool = self._tools.get(fact.name)
        if tool is None and fact.name.startswith(self._settings.tool_servers):
            unavailable = ToolUnavailable("The tool server of this tool is not connected, or has no such tool.")
            return PreparedCall(fact=fact, refusal=f"{unavailable.code}: {unavailable}")
        if tool is None:
            known = ", ".join(sorted(self._tools)[:_MAX_NAMES]) or "none"
            return PreparedCall(fact=fact, refusal=f"There is no tool {fact.name!r}. The tools are: {known}.")
        if fact.arguments_error is not None:
            return PreparedCall(fact=fact, refusal=f"Not run: {fact.arguments_error}")
        try:
            arguments = self._schemas[fact.name].arguments(fact.arguments_json)
            return PreparedCall(fact=fact, tool=tool, arguments=arguments, description=await tool.describe(arguments))
        except InvalidRequest as error:
            return PreparedCall(fact=fact, refusal=str(error))
        except Exception as error:
            return PreparedCall(fact=fact, refusal=_failure(fact.name, error))

    async def _count(self, call: PreparedCall) -> None:
        """Refuse a call that the model repeats without end: it costs and leads nowhere."""
        written = call.fact.arguments_json if call.tool is None else call.arguments
        this_call = (call.fact.name, written)
        self._times = self._times + 1 if this_call == self._last_call else 1
        self._last_call = this_call
        most = self._settings.max_same_calls
        if self._times >= most + MAX_REFUSED_REPEATS - 1:
            self._repeated = CallRepeated(call.fact, self._times)
        if self._times < most or call.refusal is not None:
            return
        call.refusal = (
            f"Not run: you made this call, with the same arguments, {self._times} times in a row. The results you have "
            "stand. Do something else, or say what keeps you from continuing."
        )
        if self._times == most:
            message = f"The model called {call.fact.name} {most} times in a row with the same arguments."
            await self._recorder.emit(ev.Notice(level="warning", code="repeated_call", message=message))

    async def _one(self, call: PreparedCall, is_later: bool, results: dict[str, ToolMessage]) -> None:
        if is_later and call.refusal is None:
            # What the calls before it did may have changed what this one would do.
            call = await self._prepared(call.fact)
        tool, description = call.tool, call.description
        if call.refusal is not None or tool is None or description is None:
            results[call.fact.call_id] = await self._finish(call, text_outcome(call.refusal or "", is_error=True))
            return
        decided = await self._decide(call.fact, description, sanitize(description.diffs))
        if decided.decision != "approve":
            why = f"denied: {decided.reason}" if decided.reason else "denied"
            results[call.fact.call_id] = await self._finish(call, text_outcome(why, is_error=True))
            if decided.decision == "deny_abort":
                raise RunDenied
            return
        if description.problem:
            results[call.fact.call_id] = await self._finish(call, text_outcome(description.problem, is_error=True))
            return
        async with self._room:
            outcome = await self._run(call, tool)
            results[call.fact.call_id] = await self._finish(call, outcome)
        for notice in outcome.notices:
            await self._recorder.emit(notice)
        if isinstance(tool, PlanTool) and not outcome.is_error:
            await self._recorder.emit(ev.PlanUpdated(entries=plan_of(call.arguments)))

    async def _run(self, call: PreparedCall, tool: Tool) -> ToolOutcome:
        name = call.fact.name
        await self._recorder.emit(ev.ToolStarted(call_id=call.fact.call_id))
        async with ProgressReporter(call.fact.call_id, self._recorder.emit) as progress:
            try:
                work = tool.run(call.arguments, progress)
                return await run_with_grace(work, self._settings.stop_grace_s, f"the tool {name}")
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                return text_outcome(_failure(name, error), is_error=True)
            except MakaiError as error:
                return text_outcome(str(error), is_error=True)
            except Exception as error:
                return text_outcome(_failure(name, error), is_error=True)

    async def _finish(self, call: PreparedCall, outcome: ToolOutcome) -> ToolMessage:
        outcome = sanitize(outcome)
        content = _with_note(outcome.content) or (Text(text=NO_OUTPUT),)
        finished = ev.ToolFinished(
            call_id=call.fact.call_id,
            content=content,
            is_error=outcome.is_error,
            diffs=outcome.diffs,
            file_versions=outcome.file_versions,
            exit_code=outcome.exit_code,
            only_looked=outcome.only_looked,
            omitted_bytes=outcome.omitted_bytes,
            spill_path=outcome.spill_path,
            details_json=outcome.details_json,
        )
        await self._recorder.emit(finished)
        # The vendor's own id, so that the next request repeats, to the byte, what its cache knows.
        call_id = call.fact.vendor_call_id or call.fact.call_id
        return ToolMessage(
            result=ToolResult(
                tool_call_id=call_id, tool_name=call.fact.name, content=content, is_error=outcome.is_error
            )
        )


def _batches(calls: Sequence[PreparedCall]) -> Iterator[list[PreparedCall]]:
    """Calls that may run beside each other, in order; one that changes things is alone."""
    for waits, group in groupby(calls, lambda call: call.waits):
        batch = list(group)
        yield from ([call] for call in batch) if waits else [batch]


def _with_note(content: tuple[Text | Image, ...]) -> tuple[Text | Image, ...]:
    """The result of a tool, which says once that something in it was replaced, unless the tool has said so."""
    text = "\n".join(part.text for part in content if isinstance(part, Text))
    is_silent = REPLACEMENT in text and f"{REPLACEMENT} stands for" not in text
    return (*content, Text(text=REPLACED)) if is_silent else content


def _failure(name: str, error: BaseException) -> str:
    """What the model gets when a tool broke its contract; the server's log has the rest."""
    log.error("the tool %s failed", name, exc_info=error)
    return f"The tool {name} failed: {type(error).__name__}: {str(error)[:500]}"
