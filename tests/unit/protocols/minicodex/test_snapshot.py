"""Snapshots, their window and bound, and the older pages of a transcript."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.minicodex import ANY_FRAME, BOTH, JSON, Room, events_of, of, types
from support.session_trials import Trial, finished

from makai.core.session_events import (
    AssistantTextDelta,
    Reasoning,
    ReasoningDelta,
    RunFinished,
    ToolCalled,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from makai.core.usage import Usage
from makai.protocols.minicodex import pages
from makai.protocols.minicodex.pages import TranscriptReader
from makai.protocols.minicodex.view import page
from makai.sessions.commands import Abort, SetTitle
from makai.sessions.open_texts import OpenTexts


def talk(trial: Trial, *texts: str) -> None:
    for text in texts:
        trial.send(text)
        trial.answer(f"You said {text[:20]}.")


def snapshot(room: Room, *capabilities: str, **fields: Any) -> JSON:
    return of(room.client(*capabilities).say("get_snapshot", **fields), "snapshot")


@pytest.mark.req("MC-EVT-002", "MC-EVT-006")
def test_a_document_snapshot_lists_items_without_common_fields(room: Room) -> None:
    room.trial.send("hi")
    room.trial.report(TurnStarted(turn=1), Reasoning(content_index=0, text="A greeting"))
    room.trial.report(ToolCalled(call_id="c1", name="shell", arguments_json='{"command":"date"}', content_index=1))
    room.trial.report(TurnEnded(turn=1, stop_reason="tool_use"))
    room.trial.run_tool("c1")
    room.trial.answer("You said hi.", turn=2)

    shown = snapshot(room)

    assert [item["type"] for item in shown["transcript"] if "output" in item] == ["function_call_output"]
    assert [item for item in shown["transcript"] if "output" not in item] == [
        {"type": "user_text", "text": "hi"},
        {"type": "reasoning", "text": "A greeting"},
        {"type": "tool_call", "name": "shell", "args": {"command": "date"}, "call_id": "c1"},
        {"type": "assistant_text", "text": "You said hi."},
    ]
    assert shown["run_state"]["status"] == "finished"
    assert shown["session_state"]["active_run_id"] is None
    assert shown["session_state"]["run_counter"] == 1
    assert "before" not in shown


def test_with_makai_the_transcript_is_made_of_the_frames_themselves(room: Room) -> None:
    client = room.client("makai.1")
    room.asked(client, "c1")
    client.say("approve", call_id="c1")
    room.trial.run_tool("c1")
    live = events_of(client.say("resume", last_seen_event_id=0))

    shown = snapshot(room, "makai.1")

    listed = ("user_text", "tool_call", "approval_pending", "approval_decision", "tool_started", "function_call_output")
    assert types(shown["transcript"]) == list(listed)
    assert shown["transcript"] == [frame for frame in live if frame["type"] in listed]
    assert shown["before"] is None


@pytest.mark.req("MC-EVT-005")
def test_the_window_is_what_the_newest_run_said_and_only_there_when_asked_for(room: Room) -> None:
    talk(room.trial, "one", "two")

    assert "transcript_window" not in snapshot(room)["run_state"]
    shown = snapshot(room, include_transcript_window=True)
    assert shown["run_state"]["transcript_window"] == shown["transcript"][2:]
    assert len(shown["transcript"]) == 4


def test_a_text_that_is_arriving_is_shown_in_part_to_those_who_can_tell(room: Room) -> None:
    room.trial.report(
        TurnStarted(turn=1),
        ReasoningDelta(content_index=0, delta="Hm"),
        AssistantTextDelta(content_index=1, delta="He"),
        AssistantTextDelta(content_index=1, delta="llo"),
    )
    room.view = room.opened_view()

    texts = [item for item in snapshot(room, *BOTH)["transcript"] if item["type"] != "user_text"]
    assert [(item["type"], item["text"], item["whole"], item["event_id"]) for item in texts] == [
        ("reasoning", "Hm", False, 7),
        ("assistant_text", "Hello", False, 9),
    ]
    for others in ((), ("streaming",), ("makai.1",)):
        assert types(snapshot(room, *others)["transcript"]) == ["user_text"]


@pytest.mark.parametrize("is_opened_anew", [False, True])
def test_what_a_running_call_printed_so_far_is_shown_until_the_call_ends(
    room: Room, is_opened_anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_RUNNING_OUTPUT", 12)
    room.trial.report(TurnStarted(turn=1))
    room.trial.report(ToolCalled(call_id="c1", name="shell", arguments_json='{"command":"make"}', content_index=0))
    room.trial.report(ToolCalled(call_id="c2", name="shell", arguments_json='{"command":"ls"}', content_index=1))
    room.trial.report(TurnEnded(turn=1, stop_reason="tool_use"), ToolStarted(call_id="c1"), ToolStarted(call_id="c2"))
    for call_id, text in (("c1", "one "), ("c2", "x"), ("c1", "two "), ("c1", "three ")):
        room.trial.report(ToolProgress(call_id=call_id, text=text))
    room.trial.report(finished("c2"))
    room.publish()
    if is_opened_anew:
        room.view = room.opened_view()

    printed = [item for item in snapshot(room, "makai.1")["transcript"] if item["type"] == "tool_progress"]
    assert [(item["call_id"], item["text"]) for item in printed] == [("c1", "e two three ")]
    assert "tool_progress" not in types(snapshot(room, "streaming")["transcript"])
    room.trial.report(finished("c1"))
    assert "tool_progress" not in types(snapshot(room, "makai.1")["transcript"])


@pytest.mark.parametrize("is_opened_anew", [False, True])
def test_a_text_that_broke_off_stays_in_the_transcript(room: Room, is_opened_anew: bool) -> None:
    room.trial.report(
        TurnStarted(turn=1), AssistantTextDelta(content_index=0, delta="Onc"), TurnEnded(turn=1, stop_reason="error")
    )
    room.trial.answer("Once.", turn=2)
    room.publish()
    if is_opened_anew:
        room.view = room.opened_view()

    assert [(item["text"], item.get("broken_off")) for item in snapshot(room, *BOTH)["transcript"][1:]] == [
        ("Onc", True),
        ("Once.", None),
    ]


@pytest.mark.parametrize("is_opened_anew", [False, True])
def test_all_clients_see_the_text_and_the_reasoning_of_an_aborted_answer(room: Room, is_opened_anew: bool) -> None:
    room.trial.report(
        TurnStarted(turn=1),
        ReasoningDelta(content_index=0, delta="Hm"),
        AssistantTextDelta(content_index=1, delta="Onc"),
        AssistantTextDelta(content_index=1, delta="e upon"),
    )
    room.trial.do(Abort(now=1))
    room.trial.report(RunFinished(stop_reason="aborted"))
    room.publish()
    if is_opened_anew:
        room.view = room.opened_view()

    for others in ((), ("streaming",)):
        assert snapshot(room, *others)["transcript"][1:] == [
            {"type": "reasoning", "text": "Hm"},
            {"type": "assistant_text", "text": "Once upon"},
        ]
    texts = [item for item in snapshot(room, *BOTH)["transcript"] if item["type"] in ("reasoning", "assistant_text")]
    assert [(item["text"], item["whole"], item["broken_off"]) for item in texts] == [
        ("Hm", False, True),
        ("Once upon", False, True),
    ]


@pytest.mark.parametrize("is_opened_anew", [False, True])
def test_the_words_of_an_aborted_answer_are_read_from_a_log_that_has_only_deltas(
    room: Room, is_opened_anew: bool
) -> None:
    room.trial.report(TurnStarted(turn=1), AssistantTextDelta(content_index=0, delta="Onc"))
    room.trial.open_texts = OpenTexts()
    room.trial.do(Abort(now=1))
    room.trial.restart()
    room.publish()
    if is_opened_anew:
        room.view = room.opened_view()

    assert [(item["text"], item["broken_off"]) for item in snapshot(room, *BOTH)["transcript"][1:2]] == [("Onc", True)]


def test_details_follow_the_welcome_of_clients_with_makai(room: Room) -> None:
    room.trial.do(SetTitle(now=1, title="Tea"))
    room.trial.send("go")
    room.trial.send("later", delivery="queue", client_msg_id="m")
    room.trial.report(UsageReported(total=Usage(input=3, output=4), context_tokens=7, context_window=100))
    room.view = room.opened_view()

    heard = room.connect("makai.1").hello()

    assert types(heard) == ["accepted", "welcome", "snapshot", "session_details"]
    assert heard[-1] == {
        "type": "session_details",
        "session_id": "s-1",
        "title": "Tea",
        "model_ref": "acme/acme-chat@one",
        "mode": "ask",
        "sandbox": "workspace-write",
        "harness": "native",
        "created_at": "1970-01-01T00:00:01.000Z",
        "closed": False,
        "waiting": [{"input_id": "input-later", "text": "later", "delivery": "queue", "client_msg_id": "m"}],
        "usage": {"input": 3, "output": 4},
        "context_tokens": 7,
        "context_window": 100,
    }


def pages_of(room: Room, before: int | None, limit: int) -> list[JSON]:
    found = []
    while before is not None:
        shown = msgspec.json.decode(page(room.read(TranscriptReader(before, limit))))
        for item in shown["items"]:
            ANY_FRAME.validate(item)
        found.append(shown)
        before = shown["before"]
    return found


@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
@pytest.mark.parametrize("is_opened_anew", [False, True])
def test_a_snapshot_and_its_older_pages_are_the_whole_transcript(
    limit: int, is_opened_anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_FIRST_WINDOW", 5)
    everything = Room()
    talk(everything.trial, *(f"message {number}" for number in range(30)))
    whole = snapshot(everything, *BOTH)["transcript"]
    size = sum(len(msgspec.json.encode(item)) for item in whole)

    with monkeypatch.context() as patch:
        for module in ("pages", "view"):
            patch.setattr(f"makai.protocols.minicodex.{module}.TRANSCRIPT_BYTES", size // 4)
        patch.setattr(TranscriptReader.__init__, "__defaults__", (None, size // 4))
        room = Room(everything.trial) if is_opened_anew else Room()
        if not is_opened_anew:
            talk(room.trial, *(f"message {number}" for number in range(30)))
        shown = snapshot(room, *BOTH)

    assert sum(len(msgspec.json.encode(item)) for item in shown["transcript"]) <= size // 4
    older = pages_of(room, shown["before"], limit)
    joined = [item for one in reversed(older) for item in one["items"]] + shown["transcript"]
    assert joined == whole
    assert all(0 < len(one["items"]) <= limit for one in older if one["before"] is not None)


def test_a_single_item_is_shown_however_large_it_is(room: Room) -> None:
    talk(room.trial, "x" * (pages.TRANSCRIPT_BYTES + 1))

    assert types(snapshot(room)["transcript"]) == ["assistant_text"]
    (older,) = pages_of(room, snapshot(room, "makai.1")["before"], 10)
    assert types(older["items"]) == ["user_text"]


def test_a_long_session_is_opened_without_reading_all_of_it(room: Room) -> None:
    talk(room.trial, *(f"{number} " + "x" * 20_000 for number in range(400)))
    reader = TranscriptReader(room.trial.state.last_event_id + 1)
    read = 0
    while (window := reader.window) is not None:
        read += window.through - window.after
        reader.take(room.events(window))

    assert read < len(room.trial.log) * 0.8
    assert sum(len(item.full) for item in reader.items()) <= pages.TRANSCRIPT_BYTES
