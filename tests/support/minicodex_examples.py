"""The conversations of `docs/protocol/minicodex.md`, held by the code itself; a test compares the two.

To regenerate the document: PYTHONPATH=src:tests:. python tests/support/minicodex_examples.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.usage import Usage
from makai.protocols.minicodex.server import Limits
from makai.sessions.commands import Archive, Close, SetTerms, SettleRestore
from support.minicodex import BOTH, JSON, SESSION, Client, Room
from tools.transcripts import MARKED, renewed

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "protocol" / "minicodex.md"
MODEL = "acme/acme-chat@one"


class Page:
    """The lines of one conversation; every step takes 10 ms."""

    def __init__(self, *capabilities: str, limits: Limits | None = None) -> None:
        self.room = Room(limits=limits) if limits else Room()
        self.room.trial.now = 1_760_000_000_000
        self.lines: list[str] = []
        self.client = self.room.connect(*capabilities)

    def say(self, kind: str, **fields: Any) -> None:
        self.room.trial.now += 10
        self.lines.append("→ " + compact({"type": kind, **fields}))
        self.hear(self.client.say(kind, **fields))

    def quietly(self, kind: str, **fields: Any) -> None:
        """Something the page does not show again."""
        self.room.trial.now += 10
        self.client.say(kind, **fields)

    def greeted(self) -> Page:
        more = {"client_capabilities": list(self.client.names)} if self.client.names else {}
        self.quietly("hello", v="1.0.0", **more)
        return self

    def report(self, *events: Any) -> None:
        self.room.trial.now += 10
        self.room.trial.report(*events)
        self.hear(self.client.hear())

    def hear(self, frames: list[JSON]) -> None:
        self.lines += ["← " + compact(frame) for frame in frames]

    def text(self) -> str:
        return "```text\n" + "\n".join(self.lines) + "\n```\n"


def compact(frame: JSON) -> str:
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))


def hello() -> Page:
    page = Page()
    page.say("hello", v="1.0.0", req_id="1")
    page.say("ping", nonce="n", req_id="2")
    return page


def plain_run() -> Page:
    page = Page().greeted()
    page.say("send", text="Hello!", client_msg_id="m-1", req_id="3")
    page.report(ev.TurnStarted(turn=1), ev.Reasoning(content_index=0, text="A greeting."))
    page.report(ev.AssistantText(content_index=1, text="Hello. What can I do?"))
    page.report(ev.TurnEnded(turn=1, stop_reason="end_turn"), ev.RunFinished(stop_reason="end_turn"))
    page.say("send", text="Hello!", client_msg_id="m-1", req_id="4")
    return page


def approval() -> Page:
    page = Page().greeted()
    page.quietly("send", text="Which branch is this?")
    call = ev.ToolCalled(call_id="call_1", name="shell", arguments_json='{"command":"git branch"}')
    asked = ev.ApprovalRequested(call_id="call_1", name="shell", arguments_json=call.arguments_json, digest="d1")
    page.report(ev.TurnStarted(turn=1), call, ev.TurnEnded(turn=1, stop_reason="tool_use"), asked)
    page.say("approve", call_id="call_1")
    page.report(
        ev.ToolStarted(call_id="call_1"),
        ev.ToolFinished(call_id="call_1", content=(Text(text="* main"),), exit_code=0),
        ev.TurnStarted(turn=2),
        ev.AssistantText(content_index=0, text="You are on main."),
        ev.TurnEnded(turn=2, stop_reason="end_turn"),
        ev.RunFinished(stop_reason="end_turn"),
    )
    page.say("deny", call_id="call_1")
    return page


def abort() -> Page:
    page = Page().greeted()
    page.quietly("send", text="Write a book.")
    page.report(ev.TurnStarted(turn=1))
    page.lines.clear()
    page.say("abort")
    page.report(ev.RunFinished(stop_reason="aborted"))
    return page


def failure() -> Page:
    page = Page().greeted()
    page.quietly("send", text="Hello!")
    page.report(ev.RunFailed(code="auth_required", message="No key for acme.", hint="Log in."))
    return page


def resume() -> Page:
    page = Page(limits=Limits(replay_events=5)).greeted()
    page.quietly("send", text="Hello!")
    page.room.trial.answer("Hello.")
    page.client = Client(page.room, (), SESSION)
    page.say("resume", session_id=SESSION, last_seen_event_id=7)
    page.client = Client(page.room, (), SESSION)
    page.say("resume", session_id=SESSION, last_seen_event_id=2)
    page.say("get_snapshot", include_transcript_window=True)
    return page


def refusals() -> Page:
    page = Page()
    page.say("send", text="Hello!")
    page.quietly("hello", v="1.0.0")
    page.say("dance", req_id="7")
    page.say("send")
    page.say("send", text=7)
    page.say("send", text="Hello!", colour="red")
    page.say("hello", v="2.0.0")
    page.say("abort")
    page.say("approve", call_id="call_9")
    return page


def streaming() -> Page:
    page = Page("streaming").greeted()
    page.quietly("send", text="Hello!")
    page.report(ev.TurnStarted(turn=1))
    page.lines.clear()
    page.report(ev.ReasoningDelta(content_index=0, delta="A gree"), ev.ReasoningDelta(content_index=0, delta="ting."))
    page.report(ev.Reasoning(content_index=0, text="A greeting."))
    page.report(ev.AssistantTextDelta(content_index=1, delta="Hel"))
    page.report(ev.AssistantTextDelta(content_index=1, delta="lo."))
    page.report(ev.AssistantText(content_index=1, text="Hello."))
    return page


def signs_of_life() -> Page:
    page = Page(limits=Limits(drain_events=3)).greeted()
    page.client.connection.beat(15_000)
    page.hear(page.client.hear())
    page.room.trial.send("Hello!")
    page.room.trial.answer("Hello.")
    heard = page.client.hear()
    page.hear(heard[:1])
    page.lines.append("  (what it missed)")
    page.hear(heard[-1:])
    return page


def makai_settings() -> Page:
    page = Page("makai.1")
    page.say("hello", v="1.0.0", client_capabilities=["makai.1"])
    page.say("set_title", title="Tea")
    page.say("set_mode", mode="accept_edits")
    page.say("set_model", model_ref="acme/acme-chat@two")
    page.room.trial.do(SetTerms(now=page.room.trial.now, terms=ev.SessionTerms(builtin_tools=True)))
    page.room.trial.do(Archive(now=page.room.trial.now))
    page.hear(page.client.hear())
    page.say("set_agent", agent="claude-code", model_ref="sonnet")
    return page


def makai_undo() -> Page:
    page = Page("makai.1").greeted()
    for kind, fields in (("undo", {"count": 1, "plan_id": "a642ba14b229a983"}), ("redo", {})):
        page.say(kind, **fields)
        file = ev.RestoredFile(path="/home/me/app/greet.py", kind="change", outcome="restored")
        page.room.trial.do(SettleRestore(now=page.room.trial.now, files=(file,)))
        page.hear(page.client.hear())
    return page


def makai_withdraw() -> Page:
    page = Page("makai.1").greeted()
    page.quietly("send", text="Rename it.")
    page.say("send", text="And test it.", delivery="queue", client_msg_id="m-2")
    page.say("withdraw", input_id="input-2")
    page.say("withdraw", input_id="input-2")
    return page


def makai_run() -> Page:
    page = Page(*BOTH).greeted()
    page.say("send", text="Rename it.", images=[{"data": "iVBORw0KGgo=", "mime_type": "image/png"}])
    page.report(ev.TurnStarted(turn=1))
    page.say("send", text="And test it.", delivery="queue", client_msg_id="m-2")
    diff = ev.FileDiff(path="tea.py", old_text="cup\n", new_text="mug\n")
    call = ev.ToolCalled(
        call_id="call_1",
        name="edit",
        arguments_json='{"path":"tea.py"}',
        kind="edit",
        title="Edit tea.py",
        locations=(ev.FilePlace("tea.py", 1),),
    )
    asked = ev.ApprovalRequested(
        call_id="call_1",
        name="edit",
        arguments_json=call.arguments_json,
        digest="9f86d081",
        title="Edit tea.py",
        diffs=(diff,),
        deadline_ms=1_760_000_600_000,
        grant="Edit(tea.py)",
    )
    page.report(call, ev.TurnEnded(turn=1, stop_reason="tool_use", usage=Usage(input=20, output=9, cost_usd=0.0004)))
    page.report(asked)
    page.say("approve", call_id="call_1", scope="session", digest="9f86d081")
    page.report(
        ev.ToolStarted(call_id="call_1"),
        ev.ToolProgress(call_id="call_1", text="writing"),
        ev.ToolFinished(call_id="call_1", content=(Text(text="Done."),), diffs=(diff,)),
        ev.PlanUpdated(entries=(ev.PlanEntry(content="Test it", status="in_progress", priority="high"),)),
        ev.UsageReported(total=Usage(input=20, output=9, cost_usd=0.0004), context_tokens=29, context_window=8192),
        ev.Notice(level="warning", code="retry", message="The model is busy; trying again."),
        ev.RunFinished(stop_reason="max_turns"),
    )
    return page


def makai_more() -> Page:
    page = Page(*BOTH).greeted()
    page.quietly("send", text="Hello!")
    page.report(ev.TurnStarted(turn=1), ev.AssistantTextDelta(content_index=0, delta="Hel"))
    page.lines.clear()
    page.say("get_snapshot")
    page.room.trial.restart()
    page.hear(page.client.hear())
    page.room.trial.answer("Hello.", turn=2)
    page.hear(page.client.hear())
    page.say("compact", instructions="Keep the names.")
    page.report(ev.Compacted(summary="They greeted.", through=10), ev.RunFinished(stop_reason="end_turn"))
    page.room.trial.do(Close(now=page.room.trial.now, reason="done"))
    page.hear(page.client.hear())
    return page


EXAMPLES = {
    "hello": hello,
    "plain-run": plain_run,
    "approval": approval,
    "abort": abort,
    "failure": failure,
    "resume": resume,
    "refusals": refusals,
    "streaming": streaming,
    "signs-of-life": signs_of_life,
    "makai-settings": makai_settings,
    "makai-undo": makai_undo,
    "makai-withdraw": makai_withdraw,
    "makai-run": makai_run,
    "makai-more": makai_more,
}


def examples() -> dict[str, str]:
    return {name: make().text() for name, make in EXAMPLES.items()}


def shown(document: str) -> list[JSON]:
    blocks = "".join(match.group(0) for match in MARKED.finditer(document))
    return [json.loads(line[2:]) for line in blocks.splitlines() if line[:2] in ("→ ", "← ")]


def main() -> None:
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(encoding="utf-8"), examples()), encoding="utf-8")
    sys.stdout.write(f"wrote {DOCUMENT.name}\n")


if __name__ == "__main__":
    main()
