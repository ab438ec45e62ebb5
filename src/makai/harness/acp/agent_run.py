"""One prompt of an agent: what it says becomes facts, its questions become approvals, and it is stopped on request.

Everything the agent sends passes one queue, so that facts are logged in its order: a question comes after what was said
before it, and the end of the run after everything. The queue is bounded; while it is full, the agent is not read.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from makai.aio.cancellation import consume_exception, finish_cleanup
from makai.core import session_events as ev
from makai.core.confinement import SESSION_SANDBOX
from makai.core.content import Text, title_words
from makai.core.errors import Aborted, AgentFailed, InvalidRequest
from makai.core.messages import StopReason
from makai.core.usage import Usage
from makai.core.visible_text import one_line
from makai.harness.acp.content import prompt_blocks
from makai.harness.acp.driven_agent import DrivenAgent
from makai.harness.acp.updates_to_facts import TURNS, AskedCall, FactMapper
from makai.harness.base import Question, RunPort, Settlement
from makai.harness.budget import usd_left
from makai.harness.reported_calls import call_description, is_unclear
from makai.tools.base import CallDescription
from makai.tools.permissions.judge import Verdict
from makai.tools.permissions.judging import judge_call
from makai.tools.permissions.rules import PermissionRules
from makai.tools.protected import is_protected
from makai.wire.acp import client_calls, sessions, updates
from makai.wire.json_rpc_errors import RpcError

CANCEL_S: Final = 4.0
"""How long a cancelled agent may take to answer its prompt; then its process is ended (ACP-CLIENT-007). The end of its
input gives it another second, so it is killed after five (DM-PROV-011)."""
STEER_S: Final = 30.0
MAX_WAITING: Final = 1_000
MAX_TITLE_LENGTH: Final = 80
_STOP_REASONS: Final[dict[str, StopReason]] = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "max_turn_requests": "max_turns",
    "refusal": "refusal",
    "cancelled": "aborted",
}
_CANCELLED: Final = client_calls.RequestPermissionResponse(outcome=client_calls.CancelledOutcome())
_CHANGES: Final = frozenset({"edit", "delete", "move", "execute", "other"})
"""Kinds of calls that a plan does not make."""


class _Asking(NamedTuple):
    request: client_calls.RequestPermissionRequest
    asked: asyncio.Future[AskedCall | None]


_Item: TypeAlias = updates.SessionUpdate | _Asking | asyncio.Future[None]


class AgentRun:
    """`driven_agent.RunListener` for one run."""

    def __init__(self, port: RunPort, agent: DrivenAgent, rules: PermissionRules) -> None:
        """`rules` hold for the agent's questions, in every mode."""
        self._port = port
        self._rules = rules
        self._agent = agent
        self._usd_left = usd_left(port)
        self._mapper = FactMapper(
            port.call_id,
            usage_before=port.session.usage,
            cost_before=agent.cost_usd,
            terminal_text=agent.services.terminal_text,
        )
        self._items: deque[_Item] = deque()
        self._has_items = asyncio.Event()
        self._has_room = asyncio.Event()
        self._deciding: dict[str, asyncio.Task[ev.ApprovalDecided]] = {}
        """Open questions by the agent's id of the call."""
        self._is_stopping = False
        self._is_spent = asyncio.Event()
        """Set when the run has cost what it may, or it is not known whether it has."""
        self._stopped_as: StopReason = "max_turns"
        """Why makai stopped the run, when it did: its time or its money was used up."""

    async def carry_out(self, content: str | tuple[Any, ...]) -> Settlement:
        """Send the prompt and log everything until the agent has answered it."""
        agent = self._agent
        blocks = prompt_blocks(content, agent.offers.agent_capabilities.prompt_capabilities, agent.spec.title)
        agent.listener = self
        logging = asyncio.create_task(self._log_all(), name=f"log {agent.spec.title}")
        params = sessions.PromptRequest(session_id=agent.session_id, prompt=blocks)
        prompt = asyncio.create_task(agent.request("session/prompt", params), name=f"prompt {agent.spec.title}")
        steering = asyncio.create_task(self._steer(), name=f"steer {agent.spec.title}")
        is_aborted = False
        try:
            await self._until_answered(prompt, logging, steering)
            await self._all_logged(logging)
            await self._withdraw_all()
            if self._is_overspent and not self._is_stopping:  # its agent said only at the end what it costs
                await self._emit(self._usd_notice())
            return self._settlement(prompt)
        except asyncio.CancelledError:
            is_aborted = True
            await finish_cleanup(self._stop_and_log(prompt, logging), CANCEL_S + 4.0, f"stopping {agent.spec.title}")
            if not self._port.is_aborted:
                raise
            answer = _answer_of(prompt)
            return ev.RunFinished(stop_reason="aborted", usage=self._usage(answer), turns=_turns(answer))
        finally:
            agent.listener = None
            agent.cost_usd = agent.cost_usd if self._mapper.cost_usd is None else self._mapper.cost_usd
            for task in (prompt, logging, steering, *self._deciding.values()):
                task.cancel()
                task.add_done_callback(consume_exception)
            if not is_aborted:
                for fact in self._mapper.end():
                    await self._emit(fact)

    def on_update(self, update: updates.SessionUpdate) -> None:
        self._items.append(update)
        self._has_items.set()

    async def room(self) -> None:
        while len(self._items) >= MAX_WAITING and self._agent.listener is self:
            self._has_room.clear()
            await self._has_room.wait()

    async def ask(self, request: client_calls.RequestPermissionRequest) -> client_calls.RequestPermissionResponse:
        """Have a person decide, or the session's mode. The answer is one of the offered options, chosen by its kind and
        never by its position (ACP-CLIENT-006); "cancelled" when the question was withdrawn or the run stopped."""
        if self._is_stopping or not request.options:
            return _CANCELLED
        waiting = _Asking(request, asyncio.get_running_loop().create_future())
        self._items.append(waiting)
        self._has_items.set()
        asked = await waiting.asked
        if asked is None:
            return _CANCELLED
        decided = await self._decided(asked, request)
        is_approved = decided is not None and decided.decision == "approve"
        for fact in self._mapper.decided(asked.call, is_approved):
            await self._emit(fact)
        if decided is None or decided.decision == "deny_abort" or decided.by in ("agent", "run_ended"):
            return _CANCELLED
        if is_approved and decided.by not in ("mode", "rule"):
            # What the mode or a rule allows by the agent's word about a call is no person's consent to its command.
            self._agent.services.approved(asked.logged, asked.call.diffs())
        option = _chosen(request.options, decided)
        if option is None:
            return _CANCELLED
        return client_calls.RequestPermissionResponse(outcome=client_calls.SelectedOutcome(option_id=option))

    async def _decided(
        self, asked: AskedCall, request: client_calls.RequestPermissionRequest
    ) -> ev.ApprovalDecided | None:
        """None when the question was withdrawn."""
        call, fields = asked.logged, asked.call.fields
        if (unasked := await self._decided_unasked(asked)) is not None:
            option = _chosen(request.options, unasked)
            if option is not None or (unasked.by == "rule" and unasked.decision != "approve"):
                unasked = msgspec.structs.replace(unasked, option_id=option or "")
                await self._emit(unasked)
                return unasked
        question = Question(
            call=call,
            title=fields.title or call.title,
            diffs=asked.call.diffs(),
            options=tuple(ev.ApprovalOption(id=o.option_id, label=o.name, kind=o.kind) for o in request.options),
            confinement=self._agent.command_confinement if fields.kind == "execute" else SESSION_SANDBOX,
        )
        deciding = asyncio.create_task(self._port.decide(question), name=f"decide {call.call_id}")
        self._deciding[fields.tool_call_id] = deciding
        try:
            await asyncio.wait({deciding})
            return None if deciding.cancelled() else deciding.result()
        finally:
            deciding.cancel()
            if self._deciding.get(fields.tool_call_id) is deciding:
                del self._deciding[fields.tool_call_id]

    async def _decided_unasked(self, asked: AskedCall) -> ev.ApprovalDecided | None:
        """What the rules and the session's mode say, in the order of `permissions.judge`; None when a person has to
        decide. The kind and the arguments of a call are the agent's word."""
        call, kind, mode = asked.logged, asked.call.fields.kind or "other", self._port.session.mode
        places = asked.call.fields.locations or ()
        paths = {diff.path for diff in asked.call.diffs()} | {place.path for place in places}
        description = call_description(
            kind,
            call.arguments_json,
            locations=tuple(ev.FilePlace(place.path, place.line) for place in places),
            diffs=asked.call.diffs(),
            protected=kind in _CHANGES and any(map(self._is_protected_file, paths)),
        )
        verdict = await self._judged(call, description)
        if verdict is not None and verdict.decision == "deny":
            return ev.ApprovalDecided(
                call_id=call.call_id, decision="deny_continue", by="rule", reason="A permission rule forbids this."
            )
        if mode == "plan" and kind in _CHANGES:
            return ev.ApprovalDecided(
                call_id=call.call_id, decision="deny_continue", by="mode", reason="Plan mode is on."
            )
        if is_unclear(self._rules, description) or (verdict is not None and verdict.decision == "ask"):
            return None
        if mode == "never_ask" or (mode == "accept_edits" and kind == "edit" and self._are_own_files(paths)):
            return ev.ApprovalDecided(call_id=call.call_id, decision="approve", by="mode")
        return None if verdict is None else ev.ApprovalDecided(call_id=call.call_id, decision="approve", by="rule")

    async def _judged(self, call: ev.ToolCalled, description: CallDescription) -> Verdict | None:
        """What rules say, and people who forbade such calls; None when no rule speaks about this call. What people
        allowed before was for makai's own tools in their sandbox."""
        denied = [(rule, allows) for rule, allows in await self._port.grants() if not allows]
        if not (denied or self._rules.deny or self._rules.ask or self._rules.allow):
            return None
        never_asks = self._port.session.mode == "never_ask"
        mode: ev.PermissionMode = "never_ask" if never_asks else "ask"
        verdict = await judge_call(mode, self._rules, denied, call.name, description, is_clients_own=False)
        # A mode that never asks leaves open only commands that could not be read, which a rule may forbid.
        return verdict if verdict.by == "rule" or (never_asks and verdict.decision == "ask") else None

    def _are_own_files(self, paths: set[str]) -> bool:
        """Whether there are files, all in the session's folders, and none is protected."""
        return bool(paths) and all(
            os.path.isabs(path) and self._place(path)[0] and not self._is_protected_file(path) for path in paths
        )

    def _is_protected_file(self, path: str) -> bool:
        return is_protected(self._place(path)[1])

    def _place(self, path: str) -> tuple[bool, str]:
        """Whether a file lies in a folder of the session, and its path below that folder or the root folder."""
        session = self._port.session
        real = os.path.realpath(os.path.join(session.cwd or os.sep, path))
        for root in session.roots or ((session.cwd,) if session.cwd else ()):
            relative = os.path.relpath(real, os.path.realpath(root))
            if not relative.startswith(".."):
                return True, relative
        return False, real.lstrip(os.sep)

    async def _until_answered(
        self, prompt: asyncio.Task[Any], logging: asyncio.Task[None], steering: asyncio.Task[None]
    ) -> None:
        spending = asyncio.create_task(self._is_spent.wait(), name="money of the run")
        try:
            await self._until_stopped(prompt, logging, steering, spending)
        finally:
            spending.cancel()

    async def _until_stopped(
        self,
        prompt: asyncio.Task[Any],
        logging: asyncio.Task[None],
        steering: asyncio.Task[None],
        spending: asyncio.Task[Any],
    ) -> None:
        tasks: set[asyncio.Task[Any]] = {prompt, logging, steering, spending}
        left_s = self._port.run.terms.max_seconds
        deadline = None if left_s is None else self._port.now() + max(left_s - self._port.elapsed_s(), 0.0)
        while not prompt.done():
            timeout = None if deadline is None else max(deadline - self._port.now(), 0.0)
            await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for task in (logging, steering):
                if task.done() and task in tasks:
                    task.result()  # raises why the run cannot continue
                    tasks.discard(task)
            if prompt.done() or self._is_stopping:
                continue
            if spending.done():
                tasks.discard(spending)
                self._stopped_as = "max_tokens"
                await self._emit(self._usd_notice())
            elif deadline is not None and self._port.now() >= deadline:
                message = f"The run reached its limit of {left_s:g} s."
                await self._emit(ev.Notice(level="warning", code="limit_seconds", message=message))
            else:
                continue
            await self._stop(prompt)
            deadline = None
            if not prompt.done():
                return

    @property
    def _is_overspent(self) -> bool:
        return self._usd_left is not None and (self._mapper.run_cost_usd or 0.0) > self._usd_left

    def _usd_notice(self) -> ev.Notice:
        message = f"The run reached its limit of {self._usd_left:.4g} USD."
        if self._mapper.unpriced and not self._is_overspent:
            message = f"The price of {self._mapper.unpriced} is not known: a limit in USD needs --allow-unknown-price."
        return ev.Notice(level="warning", code="limit_usd", message=message)

    async def _stop(self, prompt: asyncio.Task[Any]) -> None:
        """Cancel the prompt, answer open questions, and wait for its answer; then end the process (ACP-CLIENT-007)."""
        agent = self._agent
        self._is_stopping = True
        if not prompt.done():
            agent.notify("session/cancel", sessions.SessionRequest(session_id=agent.session_id))
        await self._withdraw_all()
        await asyncio.wait({prompt}, timeout=CANCEL_S)
        if not prompt.done():
            await agent.close()

    async def _stop_and_log(self, prompt: asyncio.Task[Any], logging: asyncio.Task[None]) -> None:
        """Stop, and take what the agent said until its end: the last thing it says is what the run cost."""
        await self._stop(prompt)
        await self._all_logged(logging)

    async def _withdraw_all(self) -> None:
        deciding = set(self._deciding.values())
        for task in deciding:
            task.cancel()
        for item in self._items:
            if isinstance(item, _Asking) and not item.asked.done():
                item.asked.set_result(None)
        if deciding:
            await asyncio.wait(deciding)
            await asyncio.sleep(0)  # `ask` reports what became of its call

    def _settlement(self, prompt: asyncio.Task[Any]) -> Settlement:
        agent = self._agent
        if not prompt.done():
            return ev.RunFinished(stop_reason=self._stopped_as, usage=self._usage(None))
        try:
            answer = prompt.result()
        except RpcError as error:
            raise agent.refused("session/prompt", error) from None
        except AgentFailed:
            if not self._is_stopping:
                raise
            answer = {"stopReason": "cancelled"}  # it had to be ended
        answer = answer if isinstance(answer, dict) else {}
        reason = _STOP_REASONS.get(str(answer.get("stopReason")), "end_turn")
        if reason == "aborted" and self._is_stopping:
            reason = self._stopped_as
        if reason == "end_turn" and self._is_overspent:
            reason = "max_tokens"
        return ev.RunFinished(stop_reason=reason, usage=self._usage(answer), turns=_turns(answer))

    def _usage(self, answer: Any) -> Usage:
        """Of this run, by the answer to its prompt. The agent's cost is that of its whole session."""
        said = answer.get("usage") if isinstance(answer, dict) else None
        try:
            turn = msgspec.convert(said, sessions.TurnUsage) if isinstance(said, dict) else None
        except msgspec.ValidationError:
            turn = None
        cost = self._mapper.run_cost_usd
        if turn is None:
            return Usage(cost_usd=cost)
        return Usage(
            input=turn.input_tokens,
            output=turn.output_tokens,
            cache_read=turn.cached_read_tokens or 0,
            cache_write=turn.cached_write_tokens or 0,
            reasoning=turn.thought_tokens or 0,
            cost_usd=cost,
        )

    async def _steer(self) -> None:
        """Give further input to the agent. What it does not take starts the next run."""
        agent = self._agent
        while agent.can_steer:
            await self._port.until_steered()
            for words in self._port.steering():
                try:
                    offered = agent.offers.agent_capabilities.prompt_capabilities
                    blocks = prompt_blocks(words.content, offered, agent.spec.title)
                    params = sessions.SteeringRequest(session_id=agent.session_id, prompt=blocks)
                    answer = await agent.request("_session/steering", params, seconds=STEER_S)
                except (RpcError, AgentFailed, InvalidRequest):
                    return
                if not isinstance(answer, dict) or answer.get("outcome") not in ("injected", "startedNewTurn"):
                    return
                for fact in self._mapper.end_block():
                    await self._emit(fact)
                await self._emit(words)

    async def _log_all(self) -> None:
        while True:
            while self._items:
                item = self._items.popleft()
                if len(self._items) < MAX_WAITING // 2:
                    self._has_room.set()
                if isinstance(item, asyncio.Future):
                    item.set_result(None)
                elif isinstance(item, _Asking):
                    await self._log_question(item)
                else:
                    await self._log(item)
            self._has_items.clear()
            await self._has_items.wait()

    async def _all_logged(self, logging: asyncio.Task[None]) -> None:
        """Everything that the agent said before its answer is logged before the run ends."""
        barrier: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._items.append(barrier)
        self._has_items.set()
        await asyncio.wait({barrier, logging}, return_when=asyncio.FIRST_COMPLETED)
        if logging.done():
            logging.result()

    async def _log(self, update: updates.SessionUpdate) -> None:
        agent = self._agent
        if agent.note(update) and agent.choices is not None:
            await self._emit(agent.choices.fact)
        if agent.title is not None:
            await self.log_title(agent.title)
            agent.title = None
        for fact in self._mapper.facts(update):
            await self._emit(fact)
        is_unknown = self._mapper.unpriced and not self._port.run.terms.allow_unknown_price
        if self._usd_left is not None and (is_unknown or (self._mapper.run_cost_usd or 0.0) >= self._usd_left):
            self._is_spent.set()
        if isinstance(update, updates.ToolCallUpdate) and (deciding := self._deciding.get(update.tool_call_id)):
            call = self._mapper.call_of(update.tool_call_id)
            if call is not None and call.has_ended:
                deciding.cancel()  # it does not wait for the answer any more

    async def _log_question(self, waiting: _Asking) -> None:
        if waiting.asked.done():
            return
        call_id = waiting.request.tool_call.tool_call_id
        if (before := self._deciding.get(call_id)) is not None:
            before.cancel()
            await asyncio.wait({before})
            await asyncio.sleep(0)  # its `ask` reports what became of the call
        asked = self._mapper.question(waiting.request.tool_call)
        for fact in asked.facts:
            await self._emit(fact)
        if waiting.asked.done():
            return
        is_stopping = self._is_stopping or self._port.is_aborted
        asked.call.status = asked.call.status if is_stopping else "asked"
        waiting.asked.set_result(None if is_stopping else asked)

    async def log_title(self, title: str) -> None:
        """The agent's title, unless a person chose another one."""
        agent, now = self._agent, self._port.session.title
        title = one_line(title, MAX_TITLE_LENGTH)
        if title and title != now and now in ("", agent.last_title):
            agent.last_title = title
            await self._emit(ev.TitleChanged(title=title))

    async def _emit(self, fact: ev.SessionEvent) -> None:
        if isinstance(fact, ev.Delta) and self._port.emit_delta(fact):
            return
        if isinstance(fact, ev.ToolFinished | ev.ToolUpdated | ev.ToolCalled):
            fact = self._storable(fact)
        with suppress(Aborted):  # a call that starts after the run was stopped: session/cancel is on its way
            await self._port.emit(fact)

    def _storable(self, fact: ev.ToolFinished | ev.ToolUpdated | ev.ToolCalled) -> ev.SessionEvent:
        try:
            self._port.check_storable(fact)
        except InvalidRequest as error:
            match fact:
                case ev.ToolFinished():
                    told = (Text(text="The result is too large to be kept."),)
                    return msgspec.structs.replace(fact, content=told, diffs=(), details_json=None)
                case ev.ToolUpdated():
                    return msgspec.structs.replace(fact, content=None, diffs=None, raw_output_json=None)
                case ev.ToolCalled():
                    raise AgentFailed(f"{self._agent.spec.title} made a call that cannot be kept: {error}") from None
        return fact


def _answer_of(prompt: asyncio.Task[Any]) -> Any:
    """None for a prompt that has no answer."""
    is_answered = prompt.done() and not prompt.cancelled() and prompt.exception() is None
    return prompt.result() if is_answered else None


def _turns(answer: Any) -> int:
    meta = answer.get("_meta") if isinstance(answer, dict) else None
    turns = meta.get(TURNS) if isinstance(meta, dict) else None
    return turns if isinstance(turns, int) and turns > 0 else 0


def _chosen(options: tuple[client_calls.PermissionOption, ...], decided: ev.ApprovalDecided) -> str | None:
    """The id of the option that a decision stands for; of those that fit, one for this call alone is preferred."""
    offered = {option.option_id for option in options}
    if decided.option_id:
        return decided.option_id if decided.option_id in offered else None
    verb = "allow" if decided.decision == "approve" else "reject"
    kinds = (f"{verb}_once", f"{verb}_always")
    return next((option.option_id for kind in kinds for option in options if option.kind == kind), None)


def first_line(content: str | tuple[Any, ...]) -> str:
    """The beginning of a prompt, until the agent gives its session a better title."""
    return one_line(title_words(content), MAX_TITLE_LENGTH)
