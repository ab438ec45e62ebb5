"""Every event of a session and the frame it is, for clients with and without makai.1."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from support.minicodex import ANY_FRAME, DOCUMENT_FRAME, JSON

from makai.core import session_events as log
from makai.core.confinement import Confinement
from makai.core.content import Image, Text
from makai.core.messages import AssistantMessage, UserMessage
from makai.core.session_events import FileDiff, FilePlace, Logged, PlanEntry, SessionEvent
from makai.core.usage import Usage
from makai.protocols.minicodex.projection import NamedCapabilities, Projector
from makai.protocols.minicodex.states import rfc3339
from makai.sessions.log.base import UnknownLogged
from makai.sessions.state import SessionState, fold

PLAIN, STREAMING = NamedCapabilities(), NamedCapabilities(streaming=True)
MAKAI, BOTH = NamedCapabilities(makai=True), NamedCapabilities(streaming=True, makai=True)
EVERY_KIND = (PLAIN, STREAMING, MAKAI, BOTH)
DIFF = {"path": "a.py", "old_text": None, "new_text": "x"}
PICTURE = {"data": "aGk=", "mime_type": "image/png"}
USAGE = {"input": 3, "output": 4}
RUN = "7d44f0e8-2c1a-5d0b-9a55-0f6d1c1d2e3f"

CASES: list[tuple[SessionEvent, JSON | None, JSON]] = [
    # event, the frame of the document (None: it has none), what makai.1 adds
    (log.TitleChanged(title="t"), None, {"type": "title_changed", "title": "t"}),
    (log.ModelChanged(model_ref="a/b@c"), None, {"type": "model_changed", "model_ref": "a/b@c"}),
    (
        log.HarnessChanged(harness="codex", dropped=("pictures",), token="local"),
        None,
        {"type": "agent_changed", "harness": "codex", "model_ref": "", "dropped": ["pictures"]},
    ),
    (log.ModeChanged(mode="plan"), None, {"type": "mode_changed", "mode": "plan"}),
    (
        log.TermsChanged(terms=log.SessionTerms(system="secret")),
        None,
        {"type": "terms_changed", "sandbox": "workspace-write"},
    ),
    (log.SessionClosed(reason="over"), None, {"type": "session_closed", "reason": "over"}),
    (
        log.InputAccepted(
            input_id="i", content=(Text(text="look"), Image(data="aGk=", mime_type="image/png")), client_msg_id="m"
        ),
        None,
        {
            "type": "input_accepted",
            "input_id": "i",
            "text": "look",
            "delivery": "queue",
            "client_msg_id": "m",
            "images": [PICTURE],
        },
    ),
    (log.SessionArchived(archived=True), None, {"type": "session_archived", "archived": True}),
    (log.InputWithdrawn(input_id="i", token="t"), None, {"type": "input_withdrawn", "input_id": "i"}),
    (
        log.UserInput(input_id="i", content=(Text(text="look"), Image(data="aGk=", mime_type="image/png"))),
        {"type": "user_text", "text": "look"},
        {"input_id": "i", "images": [PICTURE]},
    ),
    (log.HistoryMessage(message=UserMessage(content="hi")), {"type": "user_text", "text": "hi"}, {}),
    (
        log.HistoryMessage(message=AssistantMessage(content=(Text(text="hi"),))),
        {"type": "assistant_text", "text": "hi"},
        {"content_index": 0},
    ),
    (
        log.UserInput(input_id="i", content="hi", client_msg_id="m"),
        {"type": "user_text", "text": "hi"},
        {"input_id": "i", "client_msg_id": "m"},
    ),
    (log.RunResumed(), None, {"type": "run_resumed"}),
    (
        log.RunAborted(by="web", reason="enough"),
        {
            "type": "error",
            "code": "ABORTED",
            "message": "The run was aborted.",
            "details": {"by": "web", "reason": "enough"},
        },
        {},
    ),
    (
        log.RunFailed(code="overloaded", message="Busy."),
        {"type": "error", "code": "OVERLOADED", "message": "Busy."},
        {},
    ),
    (
        log.RunFinished(stop_reason="max_turns", usage=Usage(input=3, output=4)),
        {"type": "turn_done"},
        {"stop_reason": "max_turns", "usage": USAGE},
    ),
    (log.TurnStarted(turn=2, model_ref="a/b@c"), None, {"type": "turn_started", "turn": 2, "model_ref": "a/b@c"}),
    (
        log.TurnEnded(turn=2, stop_reason="tool_use", usage=Usage(input=3, output=4)),
        None,
        {"type": "turn_ended", "turn": 2, "stop_reason": "tool_use", "usage": USAGE},
    ),
    (log.AssistantText(content_index=1, text="Hi."), {"type": "assistant_text", "text": "Hi."}, {"content_index": 1}),
    (
        log.Reasoning(content_index=0, text="Hm.", signature="s"),
        {"type": "reasoning", "text": "Hm."},
        {"content_index": 0},
    ),
    (
        log.ToolCalled(
            call_id="c",
            name="edit",
            arguments_json='{"path":"a.py"}',
            kind="edit",
            title="Edit a.py",
            locations=(FilePlace("a.py", 3),),
            vendor_call_id="v",
        ),
        {"type": "tool_call", "name": "edit", "args": {"path": "a.py"}, "call_id": "c"},
        {"title": "Edit a.py", "kind": "edit", "locations": [{"path": "a.py", "line": 3}]},
    ),
    (
        log.ToolCalled(call_id="c", name="edit", arguments_json='{"path', arguments_error="cut off"),
        {"type": "tool_call", "name": "edit", "args": {"arguments_json": '{"path'}, "call_id": "c"},
        {"title": "", "kind": "other", "locations": [], "arguments_error": "cut off"},
    ),
    (
        log.ApprovalRequested(
            call_id="c",
            name="edit",
            arguments_json='{"path":"a.py"}',
            digest="d",
            title="Edit a.py",
            diffs=(FileDiff(path="a.py", old_text=None, new_text="x"),),
            deadline_ms=61_000,
            grant="Edit(a.py)",
            options=(log.ApprovalOption(id="2", label="Always", kind="allow_always"),),
            confinement=Confinement(agent="Codex"),
        ),
        {"type": "approval_pending", "call_id": "c", "tool_key": "edit", "args_json": '{"path":"a.py"}'},
        {
            "title": "Edit a.py",
            "diffs": [DIFF],
            "digest": "d",
            "deadline": "1970-01-01T00:01:01.000Z",
            "grant": "Edit(a.py)",
            "agent_wider": "Always",
            "confinement": {"agent": "Codex"},
        },
    ),
    (
        log.ApprovalDecided(
            call_id="c", decision="approve", by="web", scope="session", grant="Edit(a.py)", token="ana/1"
        ),
        {"type": "approval_decision", "call_id": "c", "decision": "approve"},
        {"by": "web", "reason": "", "scope": "session", "grant": "Edit(a.py)", "token": "ana/1"},
    ),
    (log.ToolStarted(call_id="c"), None, {"type": "tool_started", "call_id": "c"}),
    (log.ToolProgress(call_id="c", text="."), None, {"type": "tool_progress", "call_id": "c", "text": "."}),
    (
        log.ToolFinished(
            call_id="c",
            content=(Text(text="one"), Image(data="aGk=", mime_type="image/png"), Text(text="two")),
            is_error=True,
            diffs=(FileDiff(path="a.py", old_text=None, new_text="x"),),
            exit_code=1,
            omitted_bytes=7,
            details_json='{"rows":2}',
            interrupted=True,
            spill_path="/private",
        ),
        {
            "type": "function_call_output",
            "call_id": "c",
            "result": {
                "content": [
                    {"type": "text", "text": "one"},
                    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                    {"type": "text", "text": "two"},
                ],
                "isError": True,
                "structuredContent": {"rows": 2},
            },
            "output": "one\ntwo",
        },
        {"is_error": True, "diffs": [DIFF], "exit_code": 1, "omitted_bytes": 7, "interrupted": True},
    ),
    (
        log.PlanUpdated(entries=(PlanEntry(content="do"),)),
        None,
        {"type": "plan", "entries": [{"content": "do", "status": "pending", "priority": "medium"}]},
    ),
    (
        log.UsageReported(total=Usage(input=3, output=4), context_tokens=9, context_window=100),
        None,
        {"type": "usage", "total": USAGE, "context_tokens": 9, "context_window": 100},
    ),
    (
        log.Notice(level="warning", code="retry", message="Again."),
        None,
        {"type": "notice", "level": "warning", "code": "retry", "message": "Again."},
    ),
    (log.Compacted(summary="So far.", through=7), None, {"type": "compacted", "summary": "So far.", "through": 7}),
]
WITHOUT_FRAME: list[SessionEvent] = [
    log.SessionCreated(model_ref="a/b@c"),
    log.RunStarted(run_number=1, model_ref="a/b@c"),
    log.Reasoning(content_index=0, text="", signature="s", redacted=True),
    log.AssistantText(content_index=0, text="of a sub-agent", parent_call_id="c1"),
    log.AgentSession(agent_session_id="own"),
    log.ToolUpdated(call_id="c1", title="news"),
    # A notice says it.
    log.FilesRestoring(direction="undo", message=3, events=(7,), files=()),
    log.FilesRestored(direction="undo", message=3, events=(7,), files=()),
]
ELSEWHERE = {log.RunStatusChanged, log.AssistantTextDelta, log.ReasoningDelta}


def shown(event: SessionEvent, capabilities: NamedCapabilities, run_id: str | None = RUN) -> Any:
    shared = Projector(SessionState(last_event_id=8)).project(Logged(event_id=9, ts=1_500, event=event, run_id=run_id))
    encoded = shared.form(capabilities) if shared else None
    return None if encoded is None else msgspec.json.decode(encoded)


@pytest.mark.req("MC-ENV-001", "MC-ENV-002", "MC-EVT-006", "MC-EVT-007", "MC-EVT-008", "MC-EVT-009")
@pytest.mark.parametrize(("event", "document", "added"), CASES, ids=lambda case: type(case).__name__)
def test_an_event_is_one_flat_frame(event: SessionEvent, document: JSON | None, added: JSON) -> None:
    common = {"event_id": 9, "ts": "1970-01-01T00:00:01.500Z", "run_id": RUN}

    assert shown(event, MAKAI) == shown(event, BOTH) == {**(document or {}), **added, **common}
    assert shown(event, PLAIN) == shown(event, STREAMING) == (None if document is None else document | common)
    ANY_FRAME.validate(shown(event, MAKAI))
    if document is not None:
        DOCUMENT_FRAME.validate(shown(event, PLAIN))


@pytest.mark.parametrize("event", WITHOUT_FRAME, ids=lambda event: type(event).__name__)
def test_some_events_have_no_frame(event: SessionEvent) -> None:
    assert [shown(event, kind) for kind in EVERY_KIND] == [None] * 4


def test_every_event_of_the_log_is_covered_here() -> None:
    covered = {type(event) for event, _, _ in CASES} | {type(event) for event in WITHOUT_FRAME} | ELSEWHERE
    assert covered == set(get_args(SessionEvent))


@pytest.mark.req("MC-EVT-012")
@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (log.AssistantTextDelta(content_index=2, delta="Hi"), "assistant_text_delta"),
        (log.ReasoningDelta(content_index=2, delta="Hi"), "reasoning_delta"),
    ],
)
def test_deltas_are_for_clients_that_stream(event: SessionEvent, kind: str) -> None:
    frame = {"type": kind, "text": "Hi", "event_id": 9, "ts": "1970-01-01T00:00:01.500Z", "run_id": RUN}

    assert [shown(event, one) for one in EVERY_KIND] == [None, frame, None, frame | {"content_index": 2}]


def test_an_event_of_the_session_names_no_run() -> None:
    assert "run_id" not in shown(log.TitleChanged(title="t"), MAKAI, run_id=None)


def test_the_end_of_a_run_with_tool_output_is_no_turn_done() -> None:
    state = fold(
        [
            Logged(event_id=1, ts=1, run_id=RUN, event=log.RunStarted(run_number=1, model_ref="a/b@c")),
            Logged(event_id=2, ts=1, run_id=RUN, event=log.ToolCalled(call_id="c", name="x", arguments_json="{}")),
            Logged(event_id=3, ts=1, run_id=RUN, event=log.ToolFinished(call_id="c", content=())),
        ]
    )
    for reason, plain, makai in (("end_turn", None, "run_ended"), ("aborted", "turn_done", "turn_done")):
        event = log.RunFinished(stop_reason=reason)  # type: ignore[arg-type]
        shared = Projector(state).project(Logged(event_id=4, ts=1, run_id=RUN, event=event))
        assert shared is not None
        forms = [shared.form(kind) for kind in (PLAIN, MAKAI)]
        assert [form and msgspec.json.decode(form)["type"] for form in forms] == [plain, makai]


def test_what_a_newer_version_wrote_is_passed_over() -> None:
    projector = Projector(SessionState(last_event_id=8))

    assert projector.project(UnknownLogged(event_id=9, ts=1, type="dream", line=b"{}")) is None
    assert projector.state.last_event_id == 9


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_760_000_000_123, "2025-10-09T08:53:20.123Z"),
        (10**18, "9999-12-31T23:59:59.999Z"),
        (-1, "1970-01-01T00:00:00.000Z"),
    ],
)
def test_times_are_rfc_3339(milliseconds: int, text: str) -> None:
    assert rfc3339(milliseconds) == text


def test_a_frame_is_encoded_once_for_each_form() -> None:
    logged = Logged(event_id=9, ts=1, event=log.AssistantText(content_index=0, text="Hi."), run_id=RUN)
    shared = Projector(SessionState()).project(logged)
    assert shared is not None

    assert shared.form(PLAIN) is shared.form(STREAMING)
    assert shared.form(MAKAI) is shared.form(BOTH) is shared.item(MAKAI)
    assert shared.item(PLAIN) is shared.item(STREAMING)
