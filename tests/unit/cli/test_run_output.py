"""What `makai run` prints."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Callable

import msgspec
import pytest

from makai.cli.run import FORMATS
from makai.cli.run_output import OUTPUTS, RunInit, RunOutcome, TextOutput, projected
from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import MakaiError, RateLimited
from makai.core.messages import AssistantMessage
from makai.core.usage import Usage

BEGAN = RunInit(
    session_id="s",
    run_id="r",
    model="a/b@c",
    cwd=None,
    permission_mode="ask",
    sandbox="workspace-write",
    tools=True,
)
OUTCOME = RunOutcome(
    session_id="s",
    stop_reason="end_turn",
    duration_ms=12,
    usage=Usage(input=1, output=2, cost_usd=0.5),
    message=AssistantMessage(content=(Text(text="Hello"),), provider="acme", stop_reason="end_turn"),
)
MEMBERS = {
    "session_id": "s",
    "text": "Hello",
    "usage": {"input": 1, "output": 2, "cost_usd": 0.5},
    "cost_usd": 0.5,
    "stop_reason": "end_turn",
    "duration_ms": 12,
}
CALL = ev.ToolCalled(
    call_id="c", name="write", arguments_json="{}", title="Write \x1b a.py", vendor_call_id="v", signature="x"
)
WORDS: tuple[ev.SessionEvent, ...] = (
    ev.TurnStarted(turn=1),
    ev.ReasoningDelta(content_index=0, delta="Hm \x07"),
    ev.Reasoning(content_index=0, text="Hm", signature="opaque"),
    ev.AssistantTextDelta(content_index=1, delta="Let me"),
    ev.AssistantTextDelta(content_index=1, delta=" look"),
    ev.AssistantText(content_index=1, text="Let me look"),
    CALL,
    ev.ToolFinished(call_id="c", content=(Text(text="it is\nbroken"),), is_error=True),
    ev.Notice(level="warning", code="rate_limited", message="Waiting."),
    ev.TurnStarted(turn=2),
    ev.AssistantText(content_index=0, text="Hello"),
)


def logged(*events: ev.SessionEvent) -> list[ev.Logged]:
    return [ev.Logged(event_id=number, ts=7, event=event, run_id="r") for number, event in enumerate(events, 1)]


def tell_words(output: TextOutput) -> None:
    for event in logged(*WORDS):
        output.event(event)


def lines(capsysbinary: pytest.CaptureFixture[bytes]) -> list[dict[str, object]]:
    out = capsysbinary.readouterr().out
    return [msgspec.json.decode(line, type=dict[str, object]) for line in out.splitlines()]


def test_every_format_has_an_output() -> None:
    assert tuple(OUTPUTS) == FORMATS


def test_text_is_the_words_alone_and_turns_begin_on_a_line_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    output = OUTPUTS["text"]()
    output.began(BEGAN)
    tell_words(output)
    output.ended(OUTCOME)

    # A warning is never dropped; what is only interesting is, when no person watches.
    assert capsys.readouterr() == ("Let me look\nHello\n", "makai: Waiting.\n")


def test_a_person_sees_what_happens_beside_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("NO_COLOR", "1")
    output = OUTPUTS["text"]()
    output.status("starting the model")
    tell_words(output)

    aside = "Hm \\x07\n\n• Write \\x1b a.py\n  it is broken\nmakai: Waiting.\n"
    assert screen.getvalue() == f"starting the model\n{aside}"


def test_held_words_are_printed_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    output = OUTPUTS["text"](hold=True)
    tell_words(output)
    before = capsys.readouterr().out
    output.ended(OUTCOME)

    assert (before, capsys.readouterr().out) == ("", "Hello\n")


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("refusal", "makai: acme stopped the answer: the model refused to continue\n"),
        ("end_turn", ""),
    ],
)
def test_an_answer_that_is_not_whole_says_why(capsys: pytest.CaptureFixture[str], reason: str, says: str) -> None:
    OUTPUTS["text"]().ended(msgspec.structs.replace(OUTCOME, stop_reason=reason))

    assert capsys.readouterr().err == says


def test_a_failure_ends_the_line_of_the_answer_first(capsys: pytest.CaptureFixture[str]) -> None:
    output = OUTPUTS["text"]()
    output.event(logged(ev.AssistantTextDelta(content_index=0, delta="Hel"))[0])
    output.failed(MakaiError("It broke.", hint="Try again."))

    assert capsys.readouterr() == ("Hel\n", "makai: It broke.\n       Try again.\n")


def waits(seconds: int | None, how: str) -> ev.Notice:
    wait_ms = None if seconds is None else seconds * 1000
    return ev.Notice(level="info", code="rate_limited", message=f"Busy. {how}", notice_id="w", wait_ms=wait_ms)


WAITS = (waits(2, "Attempt 2 follows."), waits(30, "Attempt 3 follows."), waits(60, "Attempt 4 follows."))


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_script_gets_one_line_about_all_waits_of_a_request(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = OUTPUTS[kind]()
    for event in logged(*WAITS, waits(None, "Attempt 4 was answered, after 1 min 32 s.")):
        output.event(event)

    assert capsys.readouterr() == ("", "makai: Waiting 30 s: Busy. Attempt 3 follows.\n")


def test_a_stream_of_json_has_every_wait_with_its_length(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output = OUTPUTS["stream-json"]()
    for event in logged(*WAITS, waits(None, "Done.")):
        output.event(event)

    told = lines(capsysbinary)
    assert [(each["notice_id"], each.get("wait_ms")) for each in told] == [
        *(("w", wait_ms) for wait_ms in (2_000, 30_000, 60_000, None))
    ]


async def test_a_terminal_counts_a_wait_down_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    loop = asyncio.get_running_loop()
    output, started = OUTPUTS["text"](), loop.time()
    timers: list[Callable[[], object]] = []

    def call_later(delay: float, callback: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        timers.append(lambda: callback(*arguments))
        return asyncio.TimerHandle(0.0, callback, arguments, loop)

    monkeypatch.setattr(loop, "call_later", call_later)
    monkeypatch.setattr(loop, "time", lambda: started)
    output.event(logged(waits(30, "Attempt 2 follows."))[0])
    monkeypatch.setattr(loop, "time", lambda: started + 11.5)
    timers.pop()()
    output.event(logged(waits(None, "Attempt 2 was answered."))[0])

    assert capsys.readouterr().err == (
        "\r\x1b[KWaiting 30 s: Busy. Attempt 2 follows.  (Ctrl-C stops)"
        "\r\x1b[KWaiting 19 s: Busy. Attempt 2 follows.  (Ctrl-C stops)"
        "\r\x1b[KBusy. Attempt 2 was answered.\n"
    )


def test_a_denied_call_is_told_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    request = ev.ApprovalRequested(call_id="c", name="write", arguments_json="{}", digest="d", title="Write\na.py")
    OUTPUTS["text"]().denied(request, "No user was there.")

    assert capsys.readouterr() == ("", "makai: denied: Write a.py. No user was there.\n")


def test_json_is_one_object_with_the_whole_message(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output = OUTPUTS["json"]()
    output.began(BEGAN)
    tell_words(output)
    output.ended(OUTCOME)

    message = msgspec.json.decode(msgspec.json.encode(OUTCOME.message))
    warned = {"warnings": [{"code": "rate_limited", "message": "Waiting."}]}
    assert lines(capsysbinary) == [{"type": "result", **MEMBERS, "is_error": False, "message": message, **warned}]


def test_a_failed_run_is_an_error_with_the_members_of_a_result(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    output = OUTPUTS["stream-json"]()
    output.failed(RateLimited("Slow down.", provider_id="acme", retry_after_ms=5), OUTCOME)
    output.interrupted(msgspec.structs.replace(OUTCOME, stop_reason="aborted", message=None))
    output.failed(MakaiError("There was no run."))

    first, second, third = lines(capsysbinary)
    error = {"type": "error", "reason": "error"}
    limited = {"error_code": "rate_limited", "error_message": "Slow down.", "provider_id": "acme", "retry_after_ms": 5}
    hint = "Try again, or use another model (`makai models list`)."
    assert first == {**error, **limited, "hint": hint, **MEMBERS, "is_error": True}
    assert (second["error_code"], second["text"], second["stop_reason"]) == ("aborted", "", "aborted")
    assert third == {**error, "error_code": "internal_error", "error_message": "There was no run."}


def test_an_event_is_told_as_the_log_has_it_without_what_only_vendors_read() -> None:
    (call, started, thought) = logged(
        CALL, ev.RunStarted(run_number=1, model_ref="m"), ev.Reasoning(content_index=0, text="Hm", signature="s")
    )

    described = {"call_id": "c", "name": "write", "arguments_json": "{}", "title": "Write \x1b a.py"}
    assert projected(call) == {"type": "tool_call", **described, "event_id": 1, "ts": 7}
    assert projected(started) is None
    assert projected(thought) == {"type": "reasoning", "content_index": 0, "text": "Hm", "event_id": 3, "ts": 7}
