"""The loop beneath a session: its facts are those the engine takes, and the log tells the same conversation."""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.agent import FakeHost, ScriptedModels, fixed
from support.agent_scripts import SCRIPTS, all_tools
from support.profiles import examples

from makai.agent.loop import run_agent
from makai.agent.settings import AgentOutcome, AgentSettings, Standing
from makai.core import session_events as ev
from makai.core.messages import AssistantMessage, Message, ToolMessage
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.sessions.commands import Abort, Command, Create, Report, Send
from makai.sessions.engine import decide
from makai.sessions.history import history
from makai.sessions.state import SessionState


class SessionHost(FakeHost):
    """A host that is a session, in memory."""

    def __init__(self, denial: ev.Decision, abort_after: int | None) -> None:
        super().__init__({"denied": denial})
        self.state = SessionState()
        self.log: list[ev.Logged] = []
        self._abort_after = abort_after
        self._steer: list[ev.UserInput] = []
        self.run_task: asyncio.Task[Any] | None = None
        self.do(Create(now=1, model_ref="scripted/scripted@scripted-model"))
        self.do(Send(now=1, input_id="first", content="Hi"))
        assert self.state.run is not None
        self.run_id = self.state.run.run_id

    def do(self, command: Command) -> None:
        decision = decide(self.state, command)
        self.state = decision.state
        self.log.extend(decision.events)

    def report(self, fact: ev.SessionEvent) -> None:
        self.do(Report(now=1, event=fact, run_id=self.run_id))

    def emit_delta(self, event: ev.AssistantTextDelta | ev.ReasoningDelta) -> bool:
        return False

    async def emit(self, event: ev.SessionEvent) -> None:
        self.facts.append(event)
        self.report(event)
        if len(self.facts) == self._abort_after and self.run_task is not None:
            self.do(Abort(now=1))
            self.run_task.cancel()
        elif len(self.facts) == 3 and not self._steer:
            self._steer.append(ev.UserInput(input_id="more", content="More"))
            self.do(Send(now=1, input_id="more", content="More", delivery="steer"))
        await asyncio.sleep(0)

    async def decide(self, call: ev.ToolCalled, *about: Any) -> ev.ApprovalDecided:
        decided = await super().decide(call, *about)
        if decided.decision == "deny_abort":
            question = ev.ApprovalRequested(
                call_id=call.call_id, name=call.name, arguments_json=call.arguments_json, digest="d"
            )
            self.report(question)
            self.do(Abort(now=1))
        else:
            self.report(decided)
        return decided

    def steering(self) -> list[ev.UserInput]:
        waiting = {waiting.input_id for waiting in self.state.waiting}
        return [words for words in self._steer if words.input_id in waiting]

    def call_id(self, vendor_call_id: str) -> str:
        return self.state.fresh_call_id(vendor_call_id)

    def position(self) -> int:
        return self.state.last_event_id


class ComparingModels(ScriptedModels):
    """Looks, at every request, whether the log tells the same conversation."""

    def __init__(self, script: str, host: SessionHost) -> None:
        super().__init__(script)
        self._host = host

    def stream(self, model: str | Model | None, context: Context, options: StreamOptions | None = None) -> Any:
        if context.tools:  # not for a summary
            assert content(context.messages) == content(history(self._host.log).messages())
        return super().stream(model, context, options)


def content(messages: tuple[Message, ...]) -> list[object]:
    """What was said, without the times and counts that a log may keep differently."""
    return [message.result if isinstance(message, ToolMessage) else message.content for message in messages]


@examples(40)
@given(
    script=SCRIPTS, denial=st.sampled_from(["deny_continue", "deny_abort"]), abort_after=st.none() | st.integers(1, 30)
)
def test_the_engine_takes_every_fact_and_has_nothing_left_to_close(
    script: str, denial: ev.Decision, abort_after: int | None
) -> None:
    host = SessionHost(denial, abort_after)
    placed = history(host.log).placed()
    context = Context(messages=tuple(entry.message for entry in placed))
    standing = Standing(places=tuple(entry.event_id for entry in placed))
    settings = AgentSettings(model=None, max_turns=6, keep_tokens=0)

    async def perform() -> AgentOutcome | None:
        models = ComparingModels(script, host)
        host.run_task = asyncio.ensure_future(
            run_agent(host, models, context, fixed(all_tools()), host.decide, settings, standing)
        )
        async with asyncio.timeout(60):
            await asyncio.wait({host.run_task})
        return None if host.run_task.cancelled() else host.run_task.result()

    outcome = asyncio.run(perform())
    before = len(host.log)
    if outcome is None:
        host.report(ev.RunFinished(stop_reason="aborted"))
    elif outcome.error is not None:
        host.report(ev.RunFailed(code=outcome.error.code, message=outcome.error.message, usage=outcome.usage))
    else:
        host.report(ev.RunFinished(stop_reason=outcome.stop_reason, usage=outcome.usage))

    settlement = [logged.event for logged in host.log[before:]]
    run = host.state.run
    assert run is not None
    assert not [fact for fact in settlement if isinstance(fact, ev.ToolFinished | ev.TurnEnded)]
    assert run.settled or run.run_id != host.run_id
    assert all(
        message.stop_reason is not None
        for message in history(host.log).messages()
        if isinstance(message, AssistantMessage)
    )
