"""One process of Claude Code: its lines, makai's control requests, its questions, and the prompt that it answers.

A prompt has ended when the program says that it is idle. Input that is sent meanwhile becomes part of the running turn
or a turn of its own, as the program decides, so results are not counted. A program that does not report its state ends
a prompt by the last result, or by silence after it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, Final
from uuid import uuid4

from makai.aio.cancellation import consume_exception
from makai.core.errors import AgentFailed
from makai.harness.acp.connection import AgentLines, AgentTransport
from makai.harness.acp.peer import AgentClient
from makai.harness.claude_code import input_lines, permissions
from makai.harness.claude_code.output_lines import ControlAnswer
from makai.harness.claude_code.running_cost import anthropic_row
from makai.harness.claude_code.tool_views import ASK_TOOL
from makai.harness.claude_code.translator import (
    AgentsChanged,
    ClaudeTranslator,
    ClaudeTurnStarted,
    HostAsked,
    InputState,
    PermissionAsked,
    PermissionWithdrawn,
    Signal,
    StateChanged,
    notice,
)
from makai.harness.claude_code.turn_results import ClaudeTurnResult
from makai.tools.protected import is_protected
from makai.wire import json_rpc
from makai.wire.acp import common, updates
from makai.wire.json_rpc_errors import RpcError

CONTROL_S: Final = 30.0
IDLE_S: Final = 5.0
"""How long after a result a program that reports its state may take to say that it is idle."""
QUIET_S: Final = 2.0
"""How long input that was sent during a turn may take to begin a turn of its own."""
MAX_OLD_BYTES: Final = 256 * 1024
MAX_QUESTIONS_OPEN: Final = 64


class _Prompt:
    def __init__(self) -> None:
        self.answer: asyncio.Future[ClaudeTurnResult] = asyncio.get_running_loop().create_future()
        self.answer.add_done_callback(consume_exception)
        self.sent = 0
        self.results = 0
        self.waiting: set[str] = set()
        """Input that was sent and is not answered, as far as the program tells."""
        self.has_begun = False
        self.is_cancelled = False
        self.last: ClaudeTurnResult | None = None
        self.timer: asyncio.TimerHandle | None = None

    def end_in(self, seconds: float) -> None:
        self.keep()
        self.timer = asyncio.get_running_loop().call_later(seconds, self.end)

    def keep(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def end(self) -> None:
        self.keep()
        if not self.answer.done():
            self.answer.set_result(self.last or ClaudeTurnResult())

    def fail(self, why: Exception) -> None:
        self.keep()
        if not self.answer.done():
            self.answer.set_exception(why)


class ClaudeProcess:
    """The owner calls `close`, on every path."""

    def __init__(
        self,
        title: str,
        transport: AgentTransport,
        client: AgentClient,
        session_id: str,
        cwd: str,
        ended: Callable[[AgentFailed], None],
    ) -> None:
        """`ended` learns once why the process says nothing more."""
        self.session_id = session_id
        self.translator = ClaudeTranslator(partial(present_text, os.path.realpath(cwd)), anthropic_row)
        self.notices: list[updates.NoticeUpdate] = []
        """What the next prompt begins with: between two prompts no one listens."""
        self._title = title
        self._client = client
        self._on_end = ended
        self._why: AgentFailed | None = None
        self._ids = count(1)
        self._answers: dict[str, asyncio.Future[ControlAnswer]] = {}
        self._questions: dict[str, asyncio.Task[None]] = {}
        self._prompt: _Prompt | None = None
        self._early: ClaudeTurnResult | None = None
        self._reports_state = False
        self._reports_input = False
        self._agents = 0
        self._has_told_drift = False
        self._lines = AgentLines(title, "Claude Code's stream of JSON", transport, self._take, self._no_more)
        self.failure = self._lines.failure
        self.close = self._lines.close

    @property
    def refused(self) -> ClaudeTurnResult | None:
        """The result that came before any prompt: why the process could not begin."""
        return self._early

    @property
    def has_ended(self) -> bool:
        return self._why is not None

    async def control(self, subtype: str, *, seconds: float = CONTROL_S, **fields: Any) -> Any:
        """The answer to a control request. `RpcError` when it is refused, `AgentFailed` when none comes in time."""
        if self._why is not None:
            raise self._why
        request_id = f"makai-{next(self._ids)}"
        waiting: asyncio.Future[ControlAnswer] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = waiting
        try:
            self._lines.put(input_lines.control_request(request_id, subtype, fields))
            async with asyncio.timeout(seconds):
                answer = await waiting
        except TimeoutError:
            raise self.failure(f"did not answer {subtype} within {seconds:g} s") from None
        finally:
            self._answers.pop(request_id, None)
        if answer.subtype != "success":
            raise RpcError(json_rpc.INVALID_PARAMS, answer.error or f"{subtype} was refused")
        return answer.response

    async def prompt(self, content: Sequence[common.ContentBlock]) -> ClaudeTurnResult:
        if self._why is not None:
            raise self._why
        if self._prompt is not None:
            raise RpcError(json_rpc.INVALID_REQUEST, "A prompt is being answered.")
        prompt = self._prompt = _Prompt()
        try:
            for told in self.notices:
                self._client.on_session_update(self.session_id, told)
            self.notices.clear()
            self._send(prompt, content)
            result = await prompt.answer
            if prompt.is_cancelled:
                return ClaudeTurnResult(stop_reason="cancelled", usage=result.usage, turns=result.turns)
            return result
        finally:
            prompt.keep()
            self._prompt = None

    def steer(self, content: Sequence[common.ContentBlock]) -> bool:
        """Give further input to the running prompt; False when there is none."""
        prompt = self._prompt
        if prompt is None or prompt.answer.done() or prompt.is_cancelled or self._why is not None:
            return False
        self._send(prompt, content)
        return True

    def interrupt(self) -> None:
        if self._prompt is not None and self._why is None:
            self._prompt.is_cancelled = True
            self._lines.put(input_lines.control_request(f"makai-{next(self._ids)}", "interrupt", {}))

    def _send(self, prompt: _Prompt, content: Sequence[common.ContentBlock]) -> None:
        uuid = str(uuid4())
        prompt.sent += 1
        prompt.waiting.add(uuid)
        self._lines.put(input_lines.user_line(content, uuid))

    async def _take(self, line: bytes) -> str | None:
        signals = self.translator.feed(line)
        if signals is None:
            return ""
        for signal in signals:
            self._on_signal(signal)
            if isinstance(signal, PermissionAsked):
                await asyncio.sleep(0)  # the question begins before what follows
        await self._client.room()
        return None

    def _on_signal(self, signal: Signal) -> None:
        match signal:
            case PermissionAsked():
                self._ask(signal)
            case PermissionWithdrawn(request_id=request_id):
                if (question := self._questions.get(request_id)) is not None:
                    question.cancel()
            case HostAsked(request_id=request_id, subtype=subtype):
                self._lines.put(_host_answer(request_id, subtype))
            case ControlAnswer(request_id=request_id):
                if (waiting := self._answers.get(request_id)) is not None and not waiting.done():
                    waiting.set_result(signal)
            case AgentsChanged(number=number):
                self._agents = number
                if self._prompt is not None and self._prompt.last is not None and self._reports_state:
                    self._await_idle(self._prompt)
            case ClaudeTurnStarted() | StateChanged() | ClaudeTurnResult() | InputState():
                self._on_turn(signal)
            case update:
                self._client.on_session_update(self.session_id, update)

    def _on_turn(self, signal: ClaudeTurnStarted | StateChanged | ClaudeTurnResult | InputState) -> None:
        self._reports_state = self._reports_state or isinstance(signal, StateChanged)
        prompt = self._prompt
        if prompt is None:
            self._early = signal if isinstance(signal, ClaudeTurnResult) else self._early
            return
        match signal:
            case ClaudeTurnStarted():
                self._begins(prompt)
            case StateChanged(state="idle"):
                self._tell_drift()
                is_answered = not prompt.waiting or (prompt.sent == 1 and not self._reports_input)
                if prompt.last is not None and is_answered:
                    prompt.end()
                elif prompt.has_begun or prompt.last is not None:
                    prompt.end_in(QUIET_S)
            case StateChanged():
                prompt.has_begun = True
                prompt.keep()
            case InputState(uuid=uuid, state=state):
                self._reports_input = True
                if state not in ("queued", "started"):
                    prompt.waiting.discard(uuid)
            case ClaudeTurnResult():
                prompt.last = signal.after(prompt.last)
                prompt.results += 1
                if self._reports_state:
                    self._await_idle(prompt)
                elif prompt.results >= prompt.sent:
                    self._tell_drift()
                    prompt.end()
                else:
                    prompt.end_in(QUIET_S)

    def _await_idle(self, prompt: _Prompt) -> None:
        """Wait until the program says that it is idle: as long as sub-agents work, otherwise `IDLE_S`."""
        if self._agents:
            prompt.keep()
        else:
            prompt.end_in(IDLE_S)

    def _begins(self, prompt: _Prompt) -> None:
        """A turn begins. One of input that was queued before the prompt was cancelled is cancelled too."""
        if prompt.is_cancelled and prompt.last is not None:
            self.interrupt()
        prompt.has_begun = True
        prompt.keep()

    def _tell_drift(self) -> None:
        """Say once that the program says more than makai understands."""
        if self.translator.drift.counts and not self._has_told_drift:
            self._has_told_drift = True
            what = f"{self._title} said things that this makai does not know: {self.translator.drift.summary()}"
            self._client.on_session_update(self.session_id, notice("info", what))

    def _ask(self, asked: PermissionAsked) -> None:
        if len(self._questions) >= MAX_QUESTIONS_OPEN or asked.request_id in self._questions:
            self._lines.put(input_lines.control_error(asked.request_id, "Too many questions are open."))
            return
        question = asyncio.create_task(self._answer(asked), name=f"{self._title} asks {asked.request_id}")
        self._questions[asked.request_id] = question
        question.add_done_callback(consume_exception)

    async def _answer(self, asked: PermissionAsked) -> None:
        try:
            questions = permissions.questions_of(asked) if asked.tool_name == ASK_TOOL else ()
            if questions:
                answer = await self._answer_questions(asked, questions)
            else:
                request = permissions.permission_request(asked, self.session_id)
                answer = permissions.permission_answer(asked, await self._client.on_permission(request))
            self._lines.put(input_lines.control_response(asked.request_id, answer))
        except Exception:
            self._lines.put(input_lines.control_error(asked.request_id, "The question could not be asked."))
            raise
        finally:
            self._questions.pop(asked.request_id, None)

    async def _answer_questions(
        self, asked: PermissionAsked, questions: tuple[permissions.AgentQuestion, ...]
    ) -> dict[str, Any]:
        answers: dict[str, str] = {}
        for question in questions:
            outcome = await self._client.on_permission(permissions.question_request(asked, question, self.session_id))
            label = permissions.chosen_label(question, outcome)
            if label is None:
                return permissions.without_answer(outcome)
            answers[question.text] = label
        return permissions.with_answers(asked, answers)

    async def _no_more(self, why: AgentFailed) -> None:
        if self._why is not None:
            return
        self._why = why
        for question in list(self._questions.values()):
            question.cancel()
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(why)
        if (prompt := self._prompt) is not None:
            if prompt.last is not None:
                prompt.end()  # it answered, and ended before it said that it was idle
            else:
                prompt.fail(why)
        self._on_end(why)


def _host_answer(request_id: str, subtype: str) -> bytes:
    """Hooks that makai did not set are let pass, and forms are declined; nothing may wait for an answer."""
    match subtype:
        case "hook_callback":
            return input_lines.control_response(request_id, {})
        case "elicitation":
            return input_lines.control_response(request_id, {"action": "decline"})
        case _:
            return input_lines.control_error(request_id, f"makai does not know {subtype[:100]}.")


def present_text(root: str, path: str) -> str | None:
    """The text of a small file below `root`, for the difference that a person is shown. Protected files stay unread:
    what is shown is also logged."""
    real = os.path.realpath(path)
    relative = os.path.relpath(real, root)
    if not os.path.isabs(path) or relative.startswith("..") or is_protected(relative):
        return None
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            data = file.read(MAX_OLD_BYTES + 1)
        return data.decode() if len(data) <= MAX_OLD_BYTES and b"\0" not in data else None
    except (OSError, ValueError):
        return None
