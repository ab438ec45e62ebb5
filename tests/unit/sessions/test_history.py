"""What was said in a session, read from its log: for models and for people."""

from __future__ import annotations

import msgspec
import pytest
from support.messages import call, result, said_by
from support.session_trials import Trial, arguments, asked, finished

from makai.core import session_events as ev
from makai.core.content import AssistantPart, Image, Text, Thinking, ToolCall
from makai.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from makai.core.model import Model
from makai.core.request import Context
from makai.core.usage import Usage
from makai.harness.base import PlacedMessage
from makai.providers.preparation import prepare
from makai.sessions.commands import Abort, Compact, DenyCall, Send
from makai.sessions.history import NoteItem, TextItem, ThinkingItem, ToolItem, UserItem, history

NOTHING = Usage()
CALLING = Usage(input=10, output=5)
SPEAKING = Usage(input=10, output=2)
ACME_ONE = Model(id="one", api="acme-chat", provider="acme")


def messages(trial: Trial) -> tuple[Message, ...]:
    return history(trial.log).messages()


def said(*content: AssistantPart, stop_reason: str = "end_turn", usage: Usage = NOTHING) -> AssistantMessage:
    return said_by(ACME_ONE, *content, stop_reason=stop_reason, usage=usage, timestamp=1_000)


def called(call_id: str) -> ToolCall:
    return call(call_id, "shell", arguments(call_id))


def answered(call_id: str, text: str = "done", *, is_error: bool = False) -> ToolMessage:
    return result(call_id, "shell", (Text(text=text),), is_error=is_error)


# ---------------------------------------------------------------- for models


@pytest.mark.req("MK-AGENT-016")
def test_a_conversation_holds_words_calls_and_results_of_every_run(trial: Trial) -> None:
    trial.send("one")
    trial.call("c1", "c2")
    trial.run_tool("c2")
    trial.run_tool("c1")
    trial.answer("1", turn=2)
    trial.send("two")
    trial.answer("2")

    assert messages(trial) == (
        UserMessage(content="one"),
        said(called("c1"), called("c2"), stop_reason="tool_use", usage=CALLING),
        answered("c1"),
        answered("c2"),
        said(Text(text="1"), usage=SPEAKING),
        UserMessage(content="two"),
        said(Text(text="2"), usage=SPEAKING),
    )


def test_blocks_keep_their_order_and_signatures(trial: Trial) -> None:
    trial.report(
        ev.TurnStarted(turn=1),
        ev.ReasoningDelta(content_index=0, delta="Hm"),
        ev.ReasoningDelta(content_index=0, delta="m."),
        ev.AssistantTextDelta(content_index=1, delta="Let me"),
        ev.Reasoning(content_index=0, text="Hmm.", signature="s0"),
        ev.AssistantText(content_index=1, text="Let me look.", signature="s1"),
        ev.Reasoning(content_index=2, text="", signature="s2", redacted=True),
        ev.ToolCalled(
            call_id="call_0#2",
            vendor_call_id="call_0",
            name="read",
            arguments_json="{",
            content_index=3,
            signature="s3",
            arguments_error="ends too early",
        ),
        ev.TurnEnded(turn=1, stop_reason="tool_use"),
        finished("call_0#2"),
    )

    assert messages(trial)[1:] == (
        said(
            Thinking(thinking="Hmm.", thinking_signature="s0"),
            Text(text="Let me look.", text_signature="s1"),
            Thinking(thinking="", thinking_signature="s2", redacted=True),
            call("call_0", "read", "{", thought_signature="s3", arguments_error="ends too early"),
            stop_reason="tool_use",
        ),
        result("call_0", "read", (Text(text="done"),)),
    )


def test_an_aborted_turn_keeps_the_words_that_arrived_but_not_half_a_thought(trial: Trial) -> None:
    trial.report(
        ev.TurnStarted(turn=1),
        ev.ReasoningDelta(content_index=0, delta="Hm"),
        ev.AssistantTextDelta(content_index=1, delta="Hel"),
        ev.AssistantTextDelta(content_index=1, delta="lo"),
    )
    trial.do(Abort(now=1_000))
    trial.report(ev.RunFinished(stop_reason="aborted"))

    assert messages(trial) == (UserMessage(content="go"), said(Text(text="Hello"), stop_reason="aborted"))


def test_a_turn_that_failed_and_was_tried_again_never_happened(trial: Trial) -> None:
    trial.report(ev.TurnStarted(turn=1), ev.AssistantTextDelta(content_index=0, delta="Hel"))
    trial.restart()
    trial.answer("Hello", turn=2)

    assert messages(trial) == (UserMessage(content="go"), said(Text(text="Hello"), usage=SPEAKING))


def test_a_turn_that_is_about_to_be_tried_again_after_a_restart_is_not_sent(trial: Trial) -> None:
    trial.report(ev.TurnStarted(turn=1), ev.AssistantTextDelta(content_index=0, delta="Hel"))
    trial.report(ev.TurnEnded(turn=1, stop_reason="error"))
    trial.restart()

    assert messages(trial) == (UserMessage(content="go"),)


def test_calls_of_a_turn_that_broke_off_are_left_out_when_it_is_tried_again(trial: Trial) -> None:
    trial.report(
        ev.TurnStarted(turn=1),
        ev.AssistantText(content_index=0, text="Let me look"),
        ev.ToolCalled(call_id="c1", name="read", arguments_json="{}", content_index=1),
        ev.TurnEnded(turn=1, stop_reason="error"),
        finished("c1"),
    )
    trial.answer("Hello", turn=2)

    assert messages(trial) == (UserMessage(content="go"), said(Text(text="Hello"), usage=SPEAKING))


def test_a_turn_that_failed_for_good_keeps_its_words(trial: Trial) -> None:
    trial.report(
        ev.TurnStarted(turn=1),
        ev.AssistantText(content_index=0, text="Half"),
        ev.RunFailed(code="overloaded", message="Too busy."),
    )
    trial.send("again")
    trial.answer("whole")

    assert messages(trial) == (
        UserMessage(content="go"),
        said(Text(text="Half"), stop_reason="error"),
        UserMessage(content="again"),
        said(Text(text="whole"), usage=SPEAKING),
    )


def test_interrupted_and_denied_calls_are_error_results(trial: Trial) -> None:
    trial.call("c1", "c2", "c3")
    trial.report(ev.ToolStarted(call_id="c1"), asked("c2"))
    trial.restart()
    trial.do(DenyCall(now=1_000, call_id="c2", by="web"))
    trial.report(finished("c2", "denied", is_error=True), ev.ToolStarted(call_id="c3"))
    trial.report(ev.ToolFinished(call_id="c3", content=()))

    assert messages(trial)[2:] == (
        answered("c1", "The server ended while this tool ran; what it did is unknown.", is_error=True),
        answered("c2", "denied", is_error=True),
        answered("c3", "The tool gave no output."),
    )


def test_the_result_of_a_stopped_tool_has_its_output_so_far(trial: Trial) -> None:
    trial.call("c1", "c2")
    trial.report(ev.ToolStarted(call_id="c1"), ev.ToolProgress(call_id="c1", text="line one\n"))
    trial.report(ev.ToolStarted(call_id="c2"), ev.ToolProgress(call_id="c2", text="x" * 20_000 + "end"))
    trial.report(ev.ToolProgress(call_id="c1", text="line two\n"))
    trial.do(Abort(now=2_000))
    trial.report(ev.RunFinished(stop_reason="aborted"))

    first, second = (message for message in messages(trial) if isinstance(message, ToolMessage))
    told = [part.text for part in first.result.content if isinstance(part, Text)]
    assert told[1:] == ["Its output until it was stopped:\nline one\nline two\n"]
    assert first.result.is_error
    cut = [part.text for part in second.result.content if isinstance(part, Text)][1]
    assert cut == f"Its output until it was stopped:\n[the beginning is left out]\n{'x' * 16_381}end"


def test_pictures_are_part_of_the_conversation(trial: Trial) -> None:
    content = (Text(text="look"), Image(data="AAAA", mime_type="image/png"))
    trial.do(Send(now=1_000, input_id="i1", content=content))

    assert messages(trial) == (UserMessage(content=content),)


def test_steering_words_are_where_they_were_read(trial: Trial) -> None:
    trial.call("c1")
    trial.send("careful", "steer")
    trial.run_tool("c1")
    assert messages(trial)[-1] == answered("c1")
    trial.report(ev.UserInput(input_id="input-careful", content="careful"))

    assert messages(trial)[-2:] == (answered("c1"), UserMessage(content="careful"))


def test_each_turn_names_the_model_that_answered(trial: Trial) -> None:
    trial.report(
        ev.TurnStarted(turn=1, model_ref="acme/acme-chat@two"),
        ev.AssistantText(content_index=0, text="x"),
        ev.TurnEnded(turn=1, stop_reason="end_turn"),
        ev.TurnStarted(turn=2, model_ref="sonnet"),
        ev.AssistantText(content_index=0, text="y"),
        ev.TurnEnded(turn=2, stop_reason="end_turn"),
    )

    assert messages(trial)[1:] == (
        msgspec.structs.replace(said(Text(text="x")), model="two"),
        AssistantMessage(content=(Text(text="y"),), model="sonnet", stop_reason="end_turn", timestamp=1_000),
    )


def test_a_summary_stands_for_everything_up_to_its_event(trial: Trial) -> None:
    trial.send("one")
    trial.call("c1")
    trial.run_tool("c1")
    trial.answer("1", turn=2)
    trial.send("two")
    trial.answer("2")
    placed = history(trial.log).placed()
    cut = next(place.event_id for place in placed if place.message == said(Text(text="1"), usage=SPEAKING))
    trial.do(Compact(now=1_000, input_id="k1"))
    trial.report(ev.Compacted(summary="One was asked.", through=cut), ev.RunFinished(stop_reason="end_turn"))
    trial.send("three")

    assert history(trial.log).placed() == (
        PlacedMessage(cut, UserMessage(content="<summary>\nOne was asked.\n</summary>")),
        *[place for place in placed if place.event_id > cut],
        PlacedMessage(trial.log[-1].event_id, UserMessage(content="three")),
    )
    rest = [logged for logged in trial.log if logged.event_id > trial.state.compacted_through]
    assert history(rest).placed() == history(trial.log).placed()


def test_cutting_between_a_turn_and_its_results_cuts_both(trial: Trial) -> None:
    trial.send("one")
    trial.call("c1")
    cut = trial.state.last_event_id
    trial.run_tool("c1")
    trial.report(ev.Compacted(summary="A tool was called.", through=cut))
    trial.answer("1", turn=2)

    assert messages(trial) == (
        UserMessage(content="<summary>\nA tool was called.\n</summary>"),
        said(Text(text="1"), usage=SPEAKING),
    )


def test_a_finished_conversation_is_one_that_model_apis_take_as_it_is(trial: Trial) -> None:
    trial.send("one")
    trial.call("c1", "c2", ask=True)
    trial.approve("c1")
    trial.report(ev.ToolStarted(call_id="c1"))
    trial.do(Abort(now=1_000))
    trial.report(ev.RunFinished(stop_reason="aborted"))
    trial.send("two")
    trial.answer("2")
    context = Context(messages=messages(trial))

    assert prepare(context, ACME_ONE, inline_system=True) == context


# ---------------------------------------------------------------- for people


def test_a_notice_that_changes_is_one_item_of_the_transcript(trial: Trial) -> None:
    trial.send("go")
    other = ev.Notice(level="info", code="other", message="Other.")
    first, last = (
        ev.Notice(level="info", code="rate_limited", message=message, notice_id="wait-1", wait_ms=wait_ms)
        for message, wait_ms in (("Attempt 2 follows.", 3_000), ("Attempt 2 was answered.", None))
    )
    trial.report(first, other, last)

    assert [item.event for item in history(trial.log).items() if isinstance(item, NoteItem)] == [last, other]


def test_a_transcript_shows_what_was_said_and_done_in_order(trial: Trial) -> None:
    trial.send("go")
    run_id = trial.run.run_id
    notice = ev.Notice(level="info", code="rate_limited", message="Waiting 3 s.")
    plan = ev.PlanUpdated(entries=(ev.PlanEntry(content="look"),))
    trial.report(
        ev.TurnStarted(turn=1),
        ev.Reasoning(content_index=0, text="Hmm."),
        ev.AssistantText(content_index=1, text="Let me look."),
        ev.ToolCalled(call_id="c1", name="shell", arguments_json=arguments("c1"), content_index=2),
        ev.TurnEnded(turn=1, stop_reason="tool_use"),
        asked("c1"),
    )
    trial.approve("c1")
    trial.run_tool("c1")
    trial.report(notice, plan, ev.TurnStarted(turn=2), ev.AssistantTextDelta(content_index=0, delta="I see"))
    trial.do(Abort(now=1_000, by="web"))
    trial.report(ev.RunFinished(stop_reason="aborted"))

    assert history(trial.log).items() == (
        UserItem(event_id=4, ts=1_000, run_id=run_id, content="go"),
        ThinkingItem(event_id=7, ts=1_000, run_id=run_id, text="Hmm."),
        TextItem(event_id=8, ts=1_000, run_id=run_id, text="Let me look."),
        ToolItem(
            event_id=9,
            ts=1_000,
            run_id=run_id,
            call=ev.ToolCalled(call_id="c1", name="shell", arguments_json=arguments("c1"), content_index=2),
            decision=ev.ApprovalDecided(call_id="c1", decision="approve", by="web"),
            result=finished("c1"),
        ),
        NoteItem(event_id=17, ts=1_000, run_id=run_id, event=notice),
        NoteItem(event_id=18, ts=1_000, run_id=run_id, event=plan),
        TextItem(event_id=20, ts=1_000, run_id=run_id, text="I see", whole=False),
        NoteItem(event_id=23, ts=1_000, run_id=run_id, event=ev.RunAborted(by="web")),
    )


def test_a_transcript_keeps_what_a_summary_replaced(trial: Trial) -> None:
    trial.send("one")
    trial.answer("1")
    summary = ev.Compacted(summary="One was asked.", through=trial.state.last_event_id)
    trial.do(Compact(now=1_000, input_id="k1"))
    trial.report(summary, ev.RunFinished(stop_reason="end_turn"))

    kinds = [type(item) for item in history(trial.log).items()]
    assert kinds == [UserItem, TextItem, NoteItem]
    assert messages(trial) == (UserMessage(content="<summary>\nOne was asked.\n</summary>"),)


def test_a_failure_is_part_of_the_transcript(trial: Trial) -> None:
    failure = ev.RunFailed(code="auth_required", message="Log in.", hint="makai auth login acme")
    trial.report(failure)

    assert history(trial.log).items()[-1] == NoteItem(
        event_id=trial.log[-1].event_id, ts=1_000, run_id=trial.run.run_id, event=failure
    )
