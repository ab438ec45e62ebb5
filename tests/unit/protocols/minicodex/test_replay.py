"""Whatever happens in a session: every way to learn of it tells the same."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given
from support.minicodex import BOTH, JSON, SESSION, Room, events_of, find, of
from support.profiles import examples
from support.session_trials import Trial, arguments, asked, finished

from makai.core import session_events as ev
from makai.core.errors import SessionRefused
from makai.core.usage import Usage
from makai.protocols.minicodex import pages, view
from makai.protocols.minicodex.commands import Open
from makai.sessions.commands import Abort, ApproveCall, Command, DenyCall, Recovered, Report, Send, SetMode, SetTitle

KINDS: list[tuple[str, ...]] = [(), ("streaming",), ("makai.1",), BOTH]
call_ids = st.sampled_from(["c1", "c2", "c3", "c4"])
indexes = st.integers(0, 1)
reports = st.one_of(
    st.just(ev.TurnStarted(turn=0)),
    st.builds(ev.TurnEnded, turn=st.just(0), stop_reason=st.sampled_from(["end_turn", "error", "error"])),
    st.builds(ev.AssistantTextDelta, content_index=indexes, delta=st.sampled_from(["a", "b "])),
    st.builds(ev.AssistantText, content_index=indexes, text=st.just("whole")),
    st.builds(ev.ReasoningDelta, content_index=indexes, delta=st.just("hm ")),
    st.builds(ev.Reasoning, content_index=indexes, text=st.just("hmm"), redacted=st.booleans()),
    call_ids.map(lambda call_id: ev.ToolCalled(call_id=call_id, name="shell", arguments_json=arguments(call_id))),
    st.builds(asked, call_ids),
    st.builds(ev.ToolStarted, call_id=call_ids),
    st.builds(ev.ToolProgress, call_id=call_ids, text=st.just(".")),
    st.builds(finished, call_ids),
    st.just(ev.PlanUpdated(entries=())),
    st.just(ev.UsageReported(total=Usage(input=1), context_tokens=7)),
    st.just(ev.Notice(level="info", code="x", message="x")),
    st.just(ev.RunFailed(code="overloaded", message="no")),
    st.builds(ev.RunFinished, stop_reason=st.sampled_from(["end_turn", "end_turn", "aborted"])),
)
commands = st.one_of(
    st.builds(Send, now=st.just(1), input_id=st.uuids().map(str), content=st.just("hi")),
    st.builds(Send, now=st.just(1), input_id=st.uuids().map(str), content=st.just("ho"), delivery=st.just("queue")),
    st.builds(ApproveCall, now=st.just(1), call_id=call_ids, by=st.just("web")),
    st.builds(DenyCall, now=st.just(1), call_id=call_ids, by=st.just("web")),
    st.just(Abort(now=1)),
    st.builds(SetTitle, now=st.just(1), title=st.sampled_from(["a", "b"])),
    st.just(SetMode(now=1, mode="plan")),
    st.just(Recovered(now=1, can_resume=True)),
)
whatever = st.lists(commands | reports | reports | reports, max_size=50)
start = [Send(now=1, input_id="i", content="go"), ev.TurnStarted(turn=0)]
steps = st.builds(lambda start, rest: [*start, *rest], st.sampled_from([[], start]), whatever)


def perform(trial: Trial, step: Any) -> None:
    """Do it, if the session lets us; turns are numbered here."""
    run = trial.state.run
    match step:
        case ev.TurnStarted() if run is not None:
            step = ev.TurnStarted(turn=run.turn + 1)
        case ev.TurnEnded() if run is not None:
            step = ev.TurnEnded(turn=run.turn, stop_reason=step.stop_reason)
    is_command = hasattr(step, "now")
    command: Command = step if is_command else Report(now=2, event=step, run_id=run.run_id if run else "none")
    with contextlib.suppress(SessionRefused):
        trial.do(command)


def tiny_memory(patch: pytest.MonkeyPatch) -> None:
    """Views that forget at once, and readers that see little at a time."""
    patch.setattr(view, "MAX_FRAMES", 3)
    patch.setattr(pages, "_FIRST_WINDOW", 2)
    patch.setattr(pages, "_LARGEST_WINDOW", 5)


@pytest.mark.req("MC-RESUME-001", "MC-ENV-006", "MC-EVT-012")
@given(steps=steps, data=st.data(), is_forgetful=st.booleans(), is_restarted=st.booleans())
@examples(150)
def test_a_replay_from_any_cursor_is_what_was_said_live(
    steps: list[Any], data: st.DataObject, is_forgetful: bool, is_restarted: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if is_forgetful:
            tiny_memory(patch)
        room = Room()
        clients = {kind: room.client(*kind) for kind in KINDS}
        live: dict[tuple[str, ...], list[JSON]] = {kind: [] for kind in KINDS}
        for step in steps:
            perform(room.trial, step)
            for kind in KINDS:
                live[kind] += events_of(clients[kind].hear())
        if is_restarted:
            room.view = room.opened_view()
        cursor = data.draw(st.integers(0, room.trial.state.last_event_id))

        for kind in KINDS:
            ids = [frame["event_id"] for frame in live[kind]]
            assert ids == sorted(set(ids))
            heard = resumed(room, kind, cursor)
            assert heard == [frame for frame in live[kind] if frame["event_id"] > cursor]


def resumed(room: Room, kind: tuple[str, ...], cursor: int) -> list[JSON]:
    client = room.connect(*kind)
    if "makai.1" in kind:
        heard = client.say("resume", session_id=SESSION, last_seen_event_id=cursor, client_capabilities=list(kind))
    else:
        client.hello()
        heard = client.say("resume", last_seen_event_id=cursor)
    assert [frame["type"] for frame in heard[:2]] == ["accepted", "welcome"]
    return events_of(heard)


# ---------------------------------------------------------------- snapshots

ITEMS = ("user_text", "assistant_text", "reasoning", "tool_call", "function_call_output")
MAKAI_ITEMS = ("approval_pending", "approval_decision", "tool_started", "plan", "notice", "compacted", "error")
COMMON = ("event_id", "ts", "run_id")


def transcript_after(items: list[JSON], frames: list[JSON], kind: tuple[str, ...]) -> list[JSON]:
    """What a client makes of a snapshot and the events after it."""
    has_makai = "makai.1" in kind
    shown = list(items)
    for frame in frames:
        if has_makai and frame["type"] in ("turn_started", "turn_ended", "turn_done", "run_ended"):
            shown = closed(shown, frame)
        elif frame["type"] in ("assistant_text_delta", "reasoning_delta"):
            shown = longer(shown, frame) if has_makai else shown
        elif frame["type"] == "tool_progress":
            shown = more_printed(shown, frame)
        elif frame["type"] in ITEMS or (has_makai and frame["type"] in MAKAI_ITEMS):
            shown = [item for item in shown if not is_part_of(item, frame) and not was_printed_by(item, frame)]
            shown.append(frame if has_makai else {key: value for key, value in frame.items() if key not in COMMON})
    return sorted(shown, key=lambda item: item["event_id"]) if has_makai else shown


def closed(shown: list[JSON], frame: JSON) -> list[JSON]:
    broke_off = frame["type"] == "turn_ended" and frame["stop_reason"] in ("error", "aborted")
    kept = [item for item in shown if broke_off or item.get("whole") is not False or "broken_off" in item]
    return [item | {"broken_off": True} if item.get("whole") is False else item for item in kept]


def longer(shown: list[JSON], delta: JSON) -> list[JSON]:
    item = delta | {"type": delta["type"].removesuffix("_delta"), "whole": False}
    (before,) = [other for other in shown if is_part_of(other, item)] or [{"text": ""}]
    return [other for other in shown if other is not before] + [item | {"text": before["text"] + delta["text"]}]


def more_printed(shown: list[JSON], frame: JSON) -> list[JSON]:
    (before,) = [item for item in shown if is_same_call(item, frame)] or [{"text": ""}]
    return [item for item in shown if item is not before] + [frame | {"text": before["text"] + frame["text"]}]


def is_same_call(item: JSON, frame: JSON) -> bool:
    return all(item.get(key) == frame.get(key) for key in ("type", "call_id"))


def was_printed_by(item: JSON, frame: JSON) -> bool:
    """Whether the call of an item has ended: its output is the whole of what it printed."""
    ended = frame["type"] == "function_call_output" and item.get("call_id") == frame["call_id"]
    return bool(ended and item["type"] == "tool_progress")


def is_part_of(item: JSON, frame: JSON) -> bool:
    same = all(item.get(key) == frame.get(key) for key in ("type", "run_id", "content_index"))
    return same and item.get("whole") is False and "broken_off" not in item


@pytest.mark.req("MC-EVT-003", "MC-EVT-006", "MC-CMD-001")
@given(before=steps, after=steps, is_forgetful=st.booleans())
@examples(150)
def test_a_snapshot_and_what_follows_it_lead_to_the_same_as_a_later_snapshot(
    before: list[Any], after: list[Any], is_forgetful: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if is_forgetful:
            tiny_memory(patch)
        room = Room()
        for step in before:
            perform(room.trial, step)
        room.view = room.opened_view()
        clients = {kind: room.connect(*kind) for kind in KINDS}
        snapshots = {kind: of(clients[kind].hello(), "snapshot") for kind in KINDS}
        for step in after:
            perform(room.trial, step)
        room.publish()
        fresh = room.opened_view()

        for kind in KINDS:
            events = events_of(clients[kind].hear())
            assert all(frame["event_id"] > snapshots[kind]["event_id"] for frame in events)
            later = of(clients[kind].say("get_snapshot"), "snapshot")
            opened_anew = of(room.with_view(fresh).connect(*kind).hello(), "snapshot")
            expected = transcript_after(snapshots[kind]["transcript"], events, kind)
            assert later["transcript"] == expected
            assert later == opened_anew
            assert later["event_id"] in (0, room.trial.state.last_event_id)
            if kind in ((), ("streaming",)):
                assert {item["type"] for item in later["transcript"]} <= set(ITEMS)


@pytest.mark.req("MC-RESUME-001")
def test_a_log_that_is_ahead_of_the_view_is_not_handed_out_twice() -> None:
    """The log is read while the view still has to take its newest events."""
    room = Room()
    room.client().say("send", text="hi")
    room.view = room.opened_view()  # it remembers no frame of what was before
    client = room.connect(*BOTH)
    client.names = BOTH
    (request,) = client.connection.receive(
        b'{"type":"resume","last_seen_event_id":0,"client_capabilities":["makai.1"]}'
    )
    assert isinstance(request, Open)
    client.connection.opened(request, room.view)
    room.trial.answer("Hello.")  # in the log, and not yet in the view
    lookup = client.connection.lookup()
    assert lookup is not None
    find(room, lookup)
    client.connection.begin_replay(lookup)
    client.connection.replay(room.trial.log)
    taken = client.connection.take()
    room.publish()
    taken += client.connection.take()

    ids = [frame["event_id"] for frame in map(msgspec.json.decode, taken) if "event_id" in frame]
    assert ids == sorted(set(ids))
    assert ids[-1] == len(room.trial.log)
