"""What a session's events mean for whoever watches it in a terminal.

In: logged events, one after the other, of this and any other client. Out: `Piece`s to print for good, and a model of
what is still going on (`live` draws it). Pure: no clock, no terminal, no session service. The same events always give
the same pieces, so a transcript that is read again looks as it did live.

What the engine knows (mode, queue, open calls) is not kept twice: `state` is the engine's own, evolved here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from makai.cli.terminal.styled_text import Line, Lines, Markdown, Piece, Span, line, lines_of, note
from makai.cli.terminal.tool_call_text import approval_question, decision, finished_call
from makai.cli.terminal.usage_text import run_totals
from makai.core.content import SessionPart, Text, for_model
from makai.core.session_events import (
    ApprovalDecided,
    ApprovalRequested,
    AssistantText,
    AssistantTextDelta,
    Compacted,
    Logged,
    ModeChanged,
    ModelChanged,
    Notice,
    PlanEntry,
    PlanUpdated,
    Reasoning,
    ReasoningDelta,
    RunAborted,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    SessionClosed,
    TitleChanged,
    ToolCalled,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
    UserInput,
    is_of_sub_agent,
)
from makai.core.visible_text import one_line, shown
from makai.sessions.log.base import LoggedEvent
from makai.sessions.state import SessionState, evolve

LONGEST_PROGRESS: Final = 4_000
"""Characters of a running tool's output that are kept for showing its end."""
_ENDINGS: Final = {
    "max_tokens": "The answer was cut at the length limit.",
    "refusal": "The model refused to go on.",
    "max_turns": "The limit of turns was reached.",
}
_MARKS: Final = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
_LEVELS: Final[dict[str, Any]] = {"info": "dim", "warning": "warn", "error": "bad"}


class OpenCall(msgspec.Struct, kw_only=True):
    """A call that has no result yet."""

    fact: ToolCalled
    started_at: int | None = None
    output: str = ""
    """The end of what it has said so far."""
    diff_was_shown: bool = False
    was_denied: bool = False


class TranscriptView:
    """One session as it is read in a terminal.

    `finished_length` says how much of a growing text can be printed for good; `len` prints every word at once.
    """

    def __init__(self, me: str, finished_length: Callable[[str], int], state: SessionState | None = None) -> None:
        self.state = state or SessionState()
        self.calls: dict[str, OpenCall] = {}
        self.questions: dict[str, ApprovalRequested] = {}
        """Calls that wait for a person, the oldest first."""
        self.text = ""
        """The end of what the model is saying, which is not printed yet."""
        self.thinking = ""
        self.usage: UsageReported | None = None
        self.waits_since: int | None = None
        """Since when the model is asked and has said nothing."""
        self.notice: Notice | None = None
        """Why it takes so long, until something happens."""
        self.failure: RunFailed | None = None
        """How the newest run failed, if it did."""
        self.folded: Piece | None = None
        """The newest thing of which only the gist was printed."""
        self.unfolded_questions: dict[str, Piece] = {}
        self.sent_here: set[str] = set()
        """Inputs of this terminal; those of others are marked."""
        self._me = me
        self._finished_length = finished_length
        self._opened_at = self.state.last_event_id
        self._printed = 0
        self._thinks_since = 0

    def take_all(self, events: Iterable[LoggedEvent]) -> list[Piece]:
        """What these events add to the transcript."""
        return [piece for event in events for piece in self.take(event)]

    def take(self, logged: LoggedEvent) -> list[Piece]:
        """What one event adds. What a newer version wrote adds nothing."""
        if logged.event_id > self.state.last_event_id:
            self.state = evolve(self.state, logged)
        if not isinstance(logged, Logged) or is_of_sub_agent(logged.event):
            return []
        step = _STEPS.get(type(logged.event))
        return [] if step is None else step(self, logged.event, logged)

    # ------------------------------------------------------------ words

    def _on_user(self, event: UserInput, logged: Logged) -> list[Piece]:
        others = logged.event_id > self._opened_at and event.input_id not in self.sent_here
        words = lines_of(shown(words_of(event.content)), "user", "  ")
        first = Span("> " + words[0][0].text[2:], "user")
        mark = [Span("  (from another client)", "dim")] if others else []
        return [Lines(lines=(line(first, *mark), *words[1:]), gap=True)]

    def _on_text_delta(self, event: AssistantTextDelta, logged: Logged) -> list[Piece]:
        self._heard()
        self.text += event.delta
        return self._finished_text(self._finished_length(self.text))

    def _on_text(self, event: AssistantText, logged: Logged) -> list[Piece]:
        """The whole block: whatever of it was printed already is not printed again."""
        self._heard()
        if not event.text.strip() and not self._printed:
            self._forget_text()
            return []
        self.text = event.text[self._printed :]
        pieces: list[Piece] = [Markdown(text=shown(self.text), begins=self._printed == 0)]
        self._forget_text()
        return pieces

    def _finished_text(self, length: int) -> list[Piece]:
        if length == 0:
            return []
        done, self.text = self.text[:length], self.text[length:]
        piece = Markdown(text=shown(done), begins=self._printed == 0, ends=False)
        self._printed += length
        return [piece]

    def _forget_text(self) -> None:
        self.text, self._printed = "", 0

    def _broken_text(self) -> list[Piece]:
        """The rest of words whose block never became whole."""
        if not self.text.strip() and not self._printed:
            self._forget_text()
            return []
        piece = Markdown(text=shown(self.text), begins=self._printed == 0)
        self._forget_text()
        return [piece]

    def _on_thinking_delta(self, event: ReasoningDelta, logged: Logged) -> list[Piece]:
        self._heard()
        if not self.thinking:
            self._thinks_since = logged.ts
        self.thinking += event.delta
        return []

    def _on_thinking(self, event: Reasoning, logged: Logged) -> list[Piece]:
        self._heard()
        seconds = (logged.ts - self._thinks_since) // 1000 if self.thinking else 0
        self.thinking = ""
        if not event.text.strip():
            return []
        took = f" for {seconds} s" if seconds else ""
        first = next(text for text in shown(event.text).split("\n") if text.strip()).strip()
        gist = f"· thought{took}: {first[:70]}{'…' if len(event.text.strip()) > min(len(first), 70) else ''}"
        self.folded = Lines(lines=tuple(lines_of(shown(event.text.strip()), "dim", "  ")), gap=True)
        return [note(gist, gap=True)]

    # ------------------------------------------------------------ calls

    def _on_called(self, event: ToolCalled, logged: Logged) -> list[Piece]:
        self._heard()
        self.calls[event.call_id] = OpenCall(fact=event)
        return []

    def _on_asked(self, event: ApprovalRequested, logged: Logged) -> list[Piece]:
        self.questions[event.call_id] = event
        short, whole = approval_question(event, self.state.cwd)
        if whole is not None:
            self.unfolded_questions[event.call_id] = whole
        if (call := self.calls.get(event.call_id)) is not None:
            call.diff_was_shown = bool(event.diffs)
        return [short]

    def _on_decided(self, event: ApprovalDecided, logged: Logged) -> list[Piece]:
        asked = self.questions.pop(event.call_id, None)
        self.unfolded_questions.pop(event.call_id, None)
        if asked is None:
            return []
        if event.decision != "approve" and (call := self.calls.get(event.call_id)) is not None:
            call.was_denied = True
        told = decision(event, self._me)
        if self.questions:  # of several questions, the one that was asked last is the one right above
            about = one_line(asked.title or asked.name)[:60]
            return [Lines(lines=((*told.lines[0], Span(f"  ({about})", "dim")),))]
        return [told]

    def _on_started(self, event: ToolStarted, logged: Logged) -> list[Piece]:
        if (call := self.calls.get(event.call_id)) is not None:
            call.started_at = logged.ts
        return []

    def _on_progress(self, event: ToolProgress, logged: Logged) -> list[Piece]:
        if (call := self.calls.get(event.call_id)) is not None:
            call.output = (call.output + event.text)[-LONGEST_PROGRESS:]
        return []

    def _on_finished(self, event: ToolFinished, logged: Logged) -> list[Piece]:
        call = self.calls.pop(event.call_id, None)
        if call is None or call.was_denied or (call.fact.name == "plan" and not event.is_error):
            return []
        short, whole = finished_call(call.fact, event, diff_was_shown=call.diff_was_shown)
        self.folded = whole or self.folded
        return [short]

    # ------------------------------------------------------------ runs

    def _on_run_started(self, event: RunStarted, logged: Logged) -> list[Piece]:
        self.waits_since = logged.ts
        self.failure = None
        if event.purpose == "compaction":
            return [note("Summarising the conversation…", gap=True)]
        return []

    def _on_turn_started(self, event: TurnStarted, logged: Logged) -> list[Piece]:
        self.waits_since = logged.ts
        self.notice = None
        return []

    def _on_turn_ended(self, event: TurnEnded, logged: Logged) -> list[Piece]:
        self._heard()
        self.thinking = ""
        return self._broken_text()

    def _on_aborted(self, event: RunAborted, logged: Logged) -> list[Piece]:
        who = "" if event.by in (self._me, "agent", "") else f" by {one_line(event.by)}"
        why = f": {one_line(event.reason)}" if event.reason else ""
        return [*self._broken_text(), note(f"Stopped{who}{why}.", "warn", gap=True)]

    def _on_run_finished(self, event: RunFinished, logged: Logged) -> list[Piece]:
        ending = _ENDINGS.get(event.stop_reason)
        pieces = [*self._settled(), note(run_totals(event.usage, self._seconds(logged)))]
        return [*pieces, note(ending, "warn")] if ending else pieces

    def _on_run_failed(self, event: RunFailed, logged: Logged) -> list[Piece]:
        self.failure = event
        lines: list[Line] = lines_of(f"✗ {shown(event.message)}", "bad")
        if event.hint:
            lines += lines_of(shown(event.hint), "", "  ")
        return [*self._settled(), Lines(lines=tuple(lines), gap=True, error=True)]

    def _settled(self) -> list[Piece]:
        pieces = self._broken_text()
        self._heard()
        self.thinking = ""
        self.calls.clear()
        self.questions.clear()
        return pieces

    def _seconds(self, logged: Logged) -> int:
        run = self.state.run
        return 0 if run is None or run.run_id != logged.run_id else (logged.ts - run.started_at) // 1000

    def _heard(self) -> None:
        """The model, or somebody, has said something."""
        self.waits_since = None
        self.notice = None

    # ------------------------------------------------------------ the rest

    def _on_plan(self, event: PlanUpdated, logged: Logged) -> list[Piece]:
        return [Lines(lines=(line(Span("Plan", "bold")), *map(_step, event.entries)), gap=True)]

    def _on_usage(self, event: UsageReported, logged: Logged) -> list[Piece]:
        self.usage = event
        return []

    def _on_notice(self, event: Notice, logged: Logged) -> list[Piece]:
        self.notice = event
        return [note(shown(event.message), _LEVELS[event.level])]

    def _on_title(self, event: TitleChanged, logged: Logged) -> list[Piece]:
        """The title that a session gets by itself is no news."""
        return [note(f"The title is now: {one_line(event.title)}")] if logged.run_id is None else []

    def _on_compacted(self, event: Compacted, logged: Logged) -> list[Piece]:
        self.folded = Lines(lines=tuple(lines_of(shown(event.summary), "dim", "  ")), gap=True)
        return [note("The conversation so far is now a summary (Ctrl+O shows it).")]


def words_of(content: str | tuple[SessionPart, ...]) -> str:
    """What a user said, pictures as a word."""
    if isinstance(content, str):
        return content
    return "\n".join(
        part.text if isinstance(part, Text) else f"[{type(part).__name__.lower()}]" for part in map(for_model, content)
    )


def _step(entry: PlanEntry) -> Line:
    text = f"  {_MARKS[entry.status]} {one_line(entry.content)}"
    match entry.status:
        case "completed":
            return line(Span(text, "dim"))
        case "in_progress":
            return line(Span(text, "bold"))
        case "pending":
            return line(text)


def _told(text: Callable[[Any], str]) -> Callable[[TranscriptView, Any, Logged], list[Piece]]:
    return lambda view, event, logged: [note(text(event))]


_STEPS: Final[dict[type, Callable[[TranscriptView, Any, Logged], list[Piece]]]] = {
    UserInput: TranscriptView._on_user,
    AssistantTextDelta: TranscriptView._on_text_delta,
    AssistantText: TranscriptView._on_text,
    ReasoningDelta: TranscriptView._on_thinking_delta,
    Reasoning: TranscriptView._on_thinking,
    ToolCalled: TranscriptView._on_called,
    ApprovalRequested: TranscriptView._on_asked,
    ApprovalDecided: TranscriptView._on_decided,
    ToolStarted: TranscriptView._on_started,
    ToolProgress: TranscriptView._on_progress,
    ToolFinished: TranscriptView._on_finished,
    RunStarted: TranscriptView._on_run_started,
    TurnStarted: TranscriptView._on_turn_started,
    TurnEnded: TranscriptView._on_turn_ended,
    RunAborted: TranscriptView._on_aborted,
    RunFinished: TranscriptView._on_run_finished,
    RunFailed: TranscriptView._on_run_failed,
    PlanUpdated: TranscriptView._on_plan,
    UsageReported: TranscriptView._on_usage,
    Notice: TranscriptView._on_notice,
    Compacted: TranscriptView._on_compacted,
    RunResumed: _told(lambda event: "The server ended and came back; the run goes on."),
    ModelChanged: _told(lambda event: f"The model is now {one_line(event.model_ref)}."),
    ModeChanged: _told(lambda event: f"The permission mode is now {event.mode}."),
    TitleChanged: TranscriptView._on_title,
    SessionClosed: _told(lambda event: "The session is closed. /fork goes on in a new one."),
}
