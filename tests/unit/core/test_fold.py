import msgspec
import pytest
from hypothesis import given
from support.answers import answers
from support.profiles import examples
from support.streams import TIMESTAMP

from makai.core import stream_events as ev
from makai.core.content import Text, Thinking, ToolCall
from makai.core.fold import MessageFold, fold
from makai.core.messages import AssistantMessage

EMPTY = AssistantMessage(content=(), provider="acme", api="x", model="m", timestamp=TIMESTAMP)


def test_a_stream_folds_to_its_parts_in_order_of_content_index() -> None:
    call = ToolCall(tool_call_id="c", name="read", arguments_json='{"a":1}', thought_signature="t")
    events: list[ev.StreamEvent] = [
        ev.Start(EMPTY),
        ev.ThinkingStart(0),
        ev.ThinkingDelta(0, "Hm"),
        ev.ThinkingEnd(0, "sig"),
        ev.TextStart(1),
        ev.ToolCallStart(2, "c", "read"),
        ev.TextDelta(1, "Hello "),
        ev.ToolCallDelta(2, '{"a":1}'),
        ev.TextDelta(1, "world\r\n"),
        ev.TextEnd(1),
        ev.ToolCallEnd(2, call),
    ]
    assert fold(events) == msgspec.structs.replace(
        EMPTY, content=(Thinking(thinking="Hm", thinking_signature="sig"), Text(text="Hello world\r\n"), call)
    )


def test_a_delta_without_its_start_changes_nothing() -> None:
    assert fold([ev.Start(EMPTY), ev.TextDelta(4, "lost"), ev.Keepalive()]) == EMPTY


@given(events=answers)
@examples(300)
def test_folding_the_events_gives_the_message_of_the_terminal_event(events: list[ev.StreamEvent]) -> None:
    terminal = events[-1]
    assert isinstance(terminal, ev.Done | ev.Failed)
    assert fold(events) == terminal.message
    assert fold(events[:-1]).content == terminal.message.content


@given(events=answers)
@examples(200)
def test_events_survive_json(events: list[ev.StreamEvent]) -> None:
    assert msgspec.json.decode(msgspec.json.encode(events), type=list[ev.StreamEvent]) == events


@pytest.mark.req("MK-PROV-028")
def test_a_keepalive_changes_neither_the_message_nor_the_end() -> None:
    state = MessageFold(EMPTY)
    state.apply(ev.TextStart(0))
    state.apply(ev.TextDelta(0, "a"))
    before = state.message()
    state.apply(ev.Keepalive())
    assert state.message() == before
