"""Tool calls as a client sees them: announced, updated, and always ended."""

from __future__ import annotations

from typing import Any

import pytest
from support.acp_updates import PLAIN, Transcript, logged, projected, wire

from makai.core import session_events as ev
from makai.core.content import Image, SessionPart, Text
from makai.protocols.acp.projection import UpdateProjection
from makai.protocols.acp.tool_calls import MAX_PROGRESS

START = ev.RunStarted(run_number=1, model_ref="m")
CALL = ev.ToolCalled(
    call_id="c",
    name="edit",
    arguments_json='{"path": "a.py",\n "text": "x"}',
    kind="edit",
    title="Edit a.py",
    locations=(ev.FilePlace("/p/a.py", 3), ev.FilePlace("/p/b.py")),
)
SHELL = ev.ToolCalled(
    call_id="c",
    name="shell",
    arguments_json='{"command":"make"}',
    kind="execute",
    title="make",
    locations=(ev.FilePlace("/p"),),
)
STARTED = ev.ToolStarted(call_id="c")


def text(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": each}} for each in texts]


def update(**fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": "c", **fields}


def finished(*content: SessionPart, **fields: Any) -> ev.ToolFinished:
    return ev.ToolFinished(call_id="c", content=content or (Text(text="done"),), **fields)


@pytest.mark.req("ACP-UPD-003", "ACP-UPD-004", "ACP-UPD-007", "ACP-UPD-008")
def test_an_edit_is_announced_started_and_completed_with_its_diff() -> None:
    diffs = (
        ev.FileDiff(path="/p/a.py", old_text="y", new_text="x"),
        ev.FileDiff(path="/p/b.py", old_text=None, new_text="new"),
    )

    assert projected(CALL, STARTED, finished(diffs=diffs)) == [
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "c",
            "title": "Edit a.py",
            "name": "edit",
            "kind": "edit",
            "status": "pending",
            "locations": [{"path": "/p/a.py", "line": 3}, {"path": "/p/b.py"}],
            "rawInput": {"path": "a.py", "text": "x"},
        },
        update(status="in_progress"),
        update(
            status="completed",
            content=[
                *text("done"),
                {"type": "diff", "path": "/p/a.py", "oldText": "y", "newText": "x"},
                {"type": "diff", "path": "/p/b.py", "newText": "new"},
            ],
            rawOutput={"output": "done"},
        ),
    ]


@pytest.mark.req("ACP-INIT-009")
@pytest.mark.parametrize("written", ["null", " null\n", "{broken", ""])
def test_arguments_and_output_that_are_null_or_no_json_are_left_out(written: str) -> None:
    call = ev.ToolCalled(call_id="c", name="t", arguments_json=written, title="T", kind="read")
    said = ev.ToolUpdated(call_id="c", title="U", raw_output_json=written)

    assert projected(call, said) == [
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "c",
            "title": "T",
            "name": "t",
            "kind": "read",
            "status": "pending",
        },
        update(title="U"),
    ]


@pytest.mark.req("ACP-UPD-006")
@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        *((kind, kind) for kind in ("read", "edit", "delete", "move", "search", "execute", "think", "fetch")),
        ("switch_mode", "switch_mode"),
        ("other", "other"),
        ("juggle", "other"),
        ("", "other"),
    ],
)
def test_a_kind_is_one_of_the_protocol(kind: str, shown: str) -> None:
    call = ev.ToolCalled(call_id="c", name="t", arguments_json="{}", kind=kind)

    assert [
        each.get("kind") for each in projected(call, ev.ToolUpdated(call_id="c", kind=kind or None, title="x"))
    ] == [
        shown,
        shown if kind else None,
    ]


@pytest.mark.parametrize(
    ("fields", "raw"),
    [
        ({"arguments_json": '{"a": 1}'}, {"a": 1}),
        ({"arguments_json": '{"a": 1}', "raw_input_json": "[1,\n2]"}, [1, 2]),
        ({"arguments_json": '{"a": '}, None),
        ({"arguments_json": '{"a": "\\ud800"}'}, None),
        ({"arguments_json": "[" * 100_000}, None),
    ],
)
def test_the_raw_input_is_json_on_one_line_or_left_out(fields: dict[str, Any], raw: Any) -> None:
    (shown,) = projected(ev.ToolCalled(call_id="c", name="t", title="", **fields))

    assert (shown.get("rawInput"), shown["title"]) == (raw, "t")


@pytest.mark.req("ACP-UPD-004")
def test_output_replaces_the_output_before_it_and_is_bounded_while_the_tool_runs() -> None:
    long = "x" * MAX_PROGRESS
    shown = projected(
        SHELL, STARTED, ev.ToolProgress(call_id="c", text="one\n"), ev.ToolProgress(call_id="c", text=long), finished()
    )

    assert shown[2:] == [
        update(content=text("one\n")),
        update(content=text(long)),
        update(status="completed", content=text("done"), rawOutput={"output": "done"}),
    ]


@pytest.mark.parametrize(
    ("end", "raw"),
    [
        (finished(exit_code=2, is_error=True), {"output": "done", "exitCode": 2}),
        (finished(details_json='{"rows": 3}'), {"rows": 3}),
        (finished(details_json="{"), {"output": "done"}),
        (finished(Image(data="aGk=", mime_type="image/png")), {"output": "[image]"}),
    ],
)
def test_the_raw_output_is_what_the_tool_says_for_clients_or_its_text(end: ev.ToolFinished, raw: Any) -> None:
    shown = projected(SHELL, STARTED, end)[-1]

    assert (shown["rawOutput"], shown["status"]) == (raw, "failed" if end.is_error else "completed")


@pytest.mark.req("ACP-UPD-004", "ACP-UPD-005")
def test_what_an_external_agent_says_is_passed_on_but_its_result_decides_the_status() -> None:
    diff = ev.FileDiff(path="/p/a.py", old_text="y", new_text="x")
    shown = projected(
        CALL,
        ev.ToolUpdated(call_id="c", status="pending"),
        ev.ToolUpdated(call_id="c", status="in_progress", title="Editing", locations=(ev.FilePlace("/p/c.py"),)),
        ev.ToolUpdated(call_id="c", content=(Text(text="half"),), raw_output_json='{"n": 1}'),
        ev.ToolUpdated(call_id="c", status="completed", diffs=(diff,)),
        STARTED,
        ev.ToolFinished(call_id="c", content=(), is_error=True),
    )
    changed = {"type": "diff", "path": "/p/a.py", "oldText": "y", "newText": "x"}

    assert shown[1:] == [
        update(status="in_progress", title="Editing", locations=[{"path": "/p/c.py"}]),
        update(content=text("half"), rawOutput={"n": 1}),
        update(content=[*text("half"), changed]),
        update(status="failed", content=[*text("half"), changed]),
    ]


@pytest.mark.req("ACP-UPD-005")
@pytest.mark.parametrize("end", [ev.RunFinished(stop_reason="aborted"), ev.RunFailed(code="interrupted", message="x")])
def test_a_call_without_a_result_fails_with_its_run_and_nothing_follows(end: ev.SessionEvent) -> None:
    late = ev.ToolFinished(call_id="c", content=())
    transcript = Transcript()
    projection = UpdateProjection(PLAIN)
    for each in logged(START, CALL, end, STARTED, late):
        for each_update in projection.project(each):
            transcript.take(each_update)

    assert transcript.statuses() == {"c": "failed"}


def test_calls_of_a_sub_agent_name_their_parent_and_its_words_are_shown_in_the_parent() -> None:
    nested = ev.ToolCalled(call_id="n", name="read", arguments_json="{}", parent_call_id="c")
    shown = projected(
        START,
        SHELL,
        STARTED,
        ev.TurnStarted(turn=1, parent_call_id="c"),
        ev.AssistantTextDelta(content_index=0, delta="Look", parent_call_id="c"),
        ev.Reasoning(content_index=0, text="Hm", parent_call_id="c"),
        ev.AssistantText(content_index=0, text="Looking", parent_call_id="c"),
        nested,
        ev.ToolFinished(call_id="n", content=(Text(text="found"),)),
        finished(),
        ev.AssistantText(content_index=0, text="Done"),
    )

    assert shown[2] == update(content=text("Looking\n"))
    assert shown[3]["_meta"] == {"makai": {"parentToolCallId": "c"}}
    assert [each.get("toolCallId") for each in shown] == ["c", "c", "c", "n", "n", "c", None]
    assert shown[-1]["messageId"] == "run/0/text-0"


def terminal(**meta: Any) -> dict[str, Any]:
    return {name: {"terminal_id": "c", **value} for name, value in meta.items()}


SHOWN = [{"type": "terminal", "terminalId": "c"}]


def test_a_client_that_shows_output_gets_a_terminal_for_each_command() -> None:
    shown = projected(
        SHELL,
        STARTED,
        ev.ToolProgress(call_id="c", text="one\n"),
        finished(exit_code=0),
        shows_terminal_output=True,
    )

    assert (shown[0]["content"], shown[0]["_meta"]) == (SHOWN, terminal(terminal_info={"cwd": "/p"}))
    assert shown[1:] == [
        update(status="in_progress", content=SHOWN),  # a question may have replaced it
        update(_meta=terminal(terminal_output={"data": "one\n"})),
        update(
            status="completed",
            content=SHOWN,
            rawOutput={"output": "done", "exitCode": 0},
            _meta=terminal(terminal_exit={"exit_code": 0, "signal": None}),
        ),
    ]
    assert "_meta" not in projected(CALL, shows_terminal_output=True)[0]


@pytest.mark.parametrize(
    "begins",
    [STARTED, ev.ToolProgress(call_id="c", text="one\n"), ev.ToolUpdated(call_id="c", status="in_progress")],
)
def test_a_command_that_begins_shows_its_terminal_again(begins: ev.SessionEvent) -> None:
    assert projected(SHELL, begins, shows_terminal_output=True)[1]["content"] == SHOWN


@pytest.mark.parametrize(
    ("before", "end", "content", "output"),
    [
        ((), finished(Text(text="denied"), is_error=True), text("denied"), None),
        ((STARTED,), finished(Text(text="no output")), SHOWN, "no output"),
        (
            (STARTED, ev.ToolProgress(call_id="c", text="one")),
            finished(Text(text="Interrupted."), is_error=True, interrupted=True),
            SHOWN,
            "Interrupted.",
        ),
    ],
)
def test_what_a_shown_terminal_does_not_have_yet_is_not_lost(
    before: tuple[ev.SessionEvent, ...], end: ev.ToolFinished, content: list[Any], output: str | None
) -> None:
    last = projected(SHELL, *before, end, shows_terminal_output=True)[-1]

    assert last["content"] == content
    assert last["_meta"].get("terminal_output", {}).get("data") == output
    assert last["_meta"]["terminal_exit"] == {"terminal_id": "c", "exit_code": None, "signal": None}


@pytest.mark.req("ACP-TERM-009")
@pytest.mark.parametrize("shows_terminal_output", [False, True])
@pytest.mark.parametrize("is_early", [False, True])
def test_a_command_in_a_terminal_of_the_client_embeds_it_until_it_ends(
    shows_terminal_output: bool, is_early: bool
) -> None:
    """Also when the terminal opens before the follower of the log has come to the call."""
    projection = UpdateProjection(PLAIN, shows_terminal_output=shows_terminal_output)
    transcript = Transcript()
    embedded = [{"type": "terminal", "terminalId": "t7"}]
    call, *rest = logged(SHELL, STARTED, ev.ToolProgress(call_id="c", text="one"), finished(exit_code=0))
    opened = projection.open_terminal("c", "t7") if is_early else []
    opened += projection.project(call)
    opened += [] if is_early else projection.open_terminal("c", "t7")
    for each in opened:
        transcript.take(each)

    assert transcript.calls["c"]["content"] == embedded
    for event in rest:
        for each in projection.project(event):
            assert wire(each).get("content") in (None, embedded)
            transcript.take(each)
    assert (transcript.calls["c"]["content"], transcript.statuses()) == (embedded, {"c": "completed"})


@pytest.mark.req("ACP-UPD-004")
def test_an_update_of_a_call_that_was_never_announced_is_not_sent() -> None:
    assert projected(STARTED, ev.ToolProgress(call_id="c", text="one"), finished()) == []
