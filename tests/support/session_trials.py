"""A session without a server: commands go to the engine, and what it decides is kept where a log and a runner would."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import SessionRefused
from makai.core.usage import Usage
from makai.sessions.commands import AnyEffect, ApproveCall, Command, Create, Recovered, Report, Send
from makai.sessions.draft import Decision
from makai.sessions.engine import decide
from makai.sessions.open_texts import OpenTexts
from makai.sessions.state import Run, SessionState, fold

MODEL_REF = "acme/acme-chat@one"

_Fact = TypeVar("_Fact")


class Trial:
    """One session; `now` is its clock, which tests set as they like."""

    def __init__(self) -> None:
        self.state = SessionState()
        self.log: list[ev.Logged] = []
        self.effects: list[AnyEffect] = []
        self.now = 1_000
        self.open_texts = OpenTexts()

    def do(self, command: Command) -> Decision:
        decision = decide(self.state, command, self.open_texts.broken_off)
        self.open_texts.take(decision.events)
        self.log.extend(decision.events)
        self.effects.extend(decision.effects)
        self.state = decision.state
        return decision

    def refusal(self, command: Command) -> str:
        """The code the command is refused with; nothing has changed."""
        before = msgspec.structs.replace(self.state)
        with pytest.raises(SessionRefused) as refused:
            decide(self.state, command)
        assert self.state == before == fold(self.log)
        return refused.value.code

    def restart(self, *, can_resume: bool = True) -> Decision:
        """The server died and is back: all it knows is the log."""
        self.state = fold(self.log)
        self.open_texts = OpenTexts()
        return self.do(Recovered(now=self.now, can_resume=can_resume))

    def create(self) -> Trial:
        self.do(Create(now=self.now, model_ref=MODEL_REF))
        return self

    def send(self, text: str, delivery: ev.Delivery | None = None, client_msg_id: str | None = None) -> Decision:
        input_id = f"input-{text}"
        return self.do(
            Send(now=self.now, input_id=input_id, content=text, delivery=delivery, client_msg_id=client_msg_id)
        )

    def report(self, *events: ev.SessionEvent) -> None:
        """Facts of the run. A session that has none yet is told to go first."""
        if self.state.run is None:
            self.send("go")
        for event in events:
            self.do(Report(now=self.now, event=event, run_id=self.run.run_id))

    def report_refusal(self, event: ev.SessionEvent) -> str:
        return self.refusal(Report(now=self.now, event=event, run_id=self.run.run_id))

    def approve(self, call_id: str) -> Decision:
        return self.do(ApproveCall(now=self.now, call_id=call_id, by="web"))

    def answer(self, text: str, *, turn: int = 1) -> None:
        """A turn that only says something, and the end of the run."""
        self.report(
            ev.TurnStarted(turn=turn),
            ev.AssistantText(content_index=0, text=text),
            ev.TurnEnded(turn=turn, stop_reason="end_turn", usage=Usage(input=10, output=2)),
            ev.RunFinished(stop_reason="end_turn"),
        )

    def call(self, *call_ids: str, turn: int = 1, ask: bool = False) -> None:
        self.report(ev.TurnStarted(turn=turn))
        for call_id in call_ids:
            self.report(ev.ToolCalled(call_id=call_id, name="shell", arguments_json=arguments(call_id)))
        self.report(ev.TurnEnded(turn=turn, stop_reason="tool_use", usage=Usage(input=10, output=5)))
        for call_id in call_ids if ask else ():
            self.report(asked(call_id))

    def run_tool(self, call_id: str) -> None:
        self.report(ev.ToolStarted(call_id=call_id), finished(call_id))

    @property
    def run(self) -> Run:
        assert self.state.run is not None
        return self.state.run

    def events(self) -> list[ev.SessionEvent]:
        return [logged.event for logged in self.log]

    def last(self, count: int) -> list[ev.SessionEvent]:
        return self.events()[-count:]

    def of(self, kind: type[_Fact]) -> list[_Fact]:
        return [event for event in self.events() if isinstance(event, kind)]

    def effects_of(self, kind: type[_Fact]) -> list[_Fact]:
        return [effect for effect in self.effects if isinstance(effect, kind)]


def arguments(call_id: str) -> str:
    return f'{{"command":"echo {call_id}"}}'


def asked(call_id: str, *, deadline_ms: int | None = None, grant: str = "") -> ev.ApprovalRequested:
    return ev.ApprovalRequested(
        call_id=call_id,
        name="shell",
        arguments_json=arguments(call_id),
        digest=f"digest of {call_id}",
        deadline_ms=deadline_ms,
        grant=grant,
    )


def finished(call_id: str, text: str = "done", *, is_error: bool = False) -> ev.ToolFinished:
    return ev.ToolFinished(call_id=call_id, content=(Text(text=text),), is_error=is_error)
