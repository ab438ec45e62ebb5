"""Turns the events of a session into the transcript of a terminal.

Each event gives `Piece`s to print and changes the model of what is in progress, which `status_area` draws. Pure: the
same events always give the same pieces, so a transcript looks the same when it is read again. The mode, the queue and
the run are not kept twice: `state` is the engine's own, evolved here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import msgspec

from makai.cli.terminal.attached_names import attached_names
from makai.cli.terminal.styled_text import Line, Lines, Markdown, Piece, Span, Style, line, lines_of, note
from makai.cli.terminal.tool_call_text import approval_question, decision, finished_call
from makai.cli.terminal.usage_text import all_input, run_totals
from makai.core import session_events as ev
from makai.core.content import SessionPart, own_words
from makai.core.messages import AssistantMessage, UserMessage
from makai.core.visible_text import one_line, shown
from makai.sessions.history import with_output
from makai.sessions.log.base import LoggedEvent
from makai.sessions.state import SessionState, evolve

MAX_PROGRESS_CHARS: Final = 4_000
"""Characters of a running tool's output that are kept to show its end."""
_ENDINGS: Final = {
    "max_tokens": "The answer was cut at the length limit.",
    "refusal": "The model refused to continue.",
    "max_turns": "The run stopped at its limit of turns; the task may not be done.",
}
_LIMITS: Final = {
    "limit_turns": "limit of turns",
    "limit_usd": "budget",
    "limit_output_tokens": "limit of output tokens",
    "limit_seconds": "time limit",
}
_PLAN_STYLES: Final[dict[str, tuple[str, Style]]] = {
    "completed": ("[x]", "dim"),
    "in_progress": ("[>]", "bold"),
    "pending": ("[ ]", ""),
}
_LEVELS: Final[dict[str, Any]] = {"info": "dim", "warning": "warn", "error": "bad"}


class OpenCall(msgspec.Struct, kw_only=True):
    """A call without a result."""

    fact: ev.ToolCalled
    started_at: int | None = None
    output: str = ""
    """The end of its output so far."""
    diff_was_shown: bool = False
    was_denied: bool = False


class TranscriptView:
    """One session as it is read in a terminal. `finished_length` says how much of a growing text can be printed; `len`
    prints all of it at once."""

    def __init__(
        self,
        me: str,
        finished_length: Callable[[str], int],
        state: SessionState | None = None,
        sent_here: set[str] | None = None,
    ) -> None:
        self.state = state or SessionState()
        self.calls: dict[str, OpenCall] = {}
        self.questions: dict[str, ev.ApprovalRequested] = {}
        """Pending approvals, the oldest first."""
        self.text = ""
        """The end of the answer, which is not printed yet."""
        self.thinking = ""
        self.usage: ev.UsageReported | None = None
        self.waits_since: int | None = None
        """Since when the model was asked and has not answered."""
        self.notice: ev.Notice | None = None
        """The newest notice, until something else happens."""
        self.noticed_at = 0
        self._limit = ""
        """Which limit the newest run reached: the code of its notice."""
        self._stopped: list[Piece] = []
        """Says who stopped the run. It is printed when the run has ended: calls that were stopped finish before."""
        self.failure: ev.RunFailed | None = None
        """The failure of the newest run, if it failed."""
        self.folded: Piece | None = None
        """The newest piece that was printed shortened; Ctrl+O shows it whole."""
        self.unfolded_questions: dict[str, Callable[[], Piece]] = {}
        self.sent_here = sent_here if sent_here is not None else set()
        """Input ids of this terminal; messages of other clients are marked."""
        self._waited_before = {waiting.input_id for waiting in self.state.waiting}
        """What waited already when the session was opened is not marked."""
        self._me = me
        self._finished_length = finished_length
        self.opened_at = self.state.last_event_id
        """The newest event when the session was opened; who sent earlier ones is of no interest."""
        self._printed = 0
        self._thinks_since = 0

    def take_all(self, events: Iterable[LoggedEvent]) -> list[Piece]:
        return [piece for event in events for piece in self.take(event)]

    def take(self, logged: LoggedEvent) -> list[Piece]:
        """What one event adds. Events of a newer version add nothing."""
        if logged.event_id > self.state.last_event_id:
            self.state = evolve(self.state, logged)
        if not isinstance(logged, ev.Logged):
            return []
        step = _STEPS.get(type(logged.event))
        return [] if step is None else step(self, logged.event, logged) or []

    def _on_user(self, event: ev.UserInput, logged: ev.Logged) -> list[Piece]:
        is_known = event.input_id in self.sent_here or event.input_id in self._waited_before
        others = logged.event_id > self.opened_at and not is_known
        return [_user_lines(event.content, *([Span("  (from another client)", "dim")] if others else []))]

    def _on_history(self, event: ev.HistoryMessage, logged: ev.Logged) -> list[Piece]:
        match event.message:
            case UserMessage(content=content):
                return [_user_lines(content)]
            case AssistantMessage() as message if text := message.text():
                return [Markdown(text=shown(text), begins=True)]
        return []

    def _on_text_delta(self, event: ev.AssistantTextDelta, logged: ev.Logged) -> list[Piece]:
        self._heard()
        self.text += event.delta
        return self._finished_text(self._finished_length(self.text))

    def _on_text(self, event: ev.AssistantText, logged: ev.Logged) -> list[Piece]:
        """The whole block; what was printed of it already is not printed again."""
        self._heard()
        self.text = event.text[self._printed :]
        return self._rest_of_text()

    def _finished_text(self, length: int) -> list[Piece]:
        if length == 0:
            return []
        done, self.text = self.text[:length], self.text[length:]
        piece = Markdown(text=shown(done), begins=self._printed == 0, ends=False)
        self._printed += length
        return [piece]

    def _rest_of_text(self) -> list[Piece]:
        """The end of a block, which may never have been completed."""
        text, printed = self.text, self._printed
        self.text, self._printed = "", 0
        return [Markdown(text=shown(text), begins=printed == 0)] if printed or text.strip() else []

    def _on_thinking_delta(self, event: ev.ReasoningDelta, logged: ev.Logged) -> None:
        self._heard()
        if not self.thinking:
            self._thinks_since = logged.ts
        self.thinking += event.delta

    def _on_thinking(self, event: ev.Reasoning, logged: ev.Logged) -> list[Piece]:
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

    def _on_called(self, event: ev.ToolCalled, logged: ev.Logged) -> None:
        self._heard()
        self.calls[event.call_id] = OpenCall(fact=event)

    def _on_asked(self, event: ev.ApprovalRequested, logged: ev.Logged) -> list[Piece]:
        self.questions[event.call_id] = event
        short, whole = approval_question(event, self.state.cwd)
        if whole is not None:
            self.unfolded_questions[event.call_id] = whole
        if (call := self.calls.get(event.call_id)) is not None:
            call.diff_was_shown = bool(event.diffs)
        return [short]

    def _on_decided(self, event: ev.ApprovalDecided, logged: ev.Logged) -> list[Piece]:
        asked = self.questions.pop(event.call_id, None)
        self.unfolded_questions.pop(event.call_id, None)
        if asked is None:
            return []
        if event.decision != "approve" and (call := self.calls.get(event.call_id)) is not None:
            call.was_denied = True
        decided = decision(event, self._me)
        if self.questions:  # other approvals were shown below this one
            about = one_line(asked.title or asked.name)[:60]
            return [Lines(lines=((*decided.lines[0], Span(f"  ({about})", "dim")),))]
        return [decided]

    def _on_started(self, event: ev.ToolStarted, logged: ev.Logged) -> None:
        if (call := self.calls.get(event.call_id)) is not None:
            call.started_at = logged.ts

    def _on_progress(self, event: ev.ToolProgress, logged: ev.Logged) -> None:
        if (call := self.calls.get(event.call_id)) is not None:
            call.output = (call.output + event.text)[-MAX_PROGRESS_CHARS:]

    def _on_finished(self, event: ev.ToolFinished, logged: ev.Logged) -> list[Piece]:
        call = self.calls.pop(event.call_id, None)
        if call is None or call.was_denied or (call.fact.name == "plan" and not event.is_error):
            return []
        result = with_output(event, call.output)
        short, whole = finished_call(call.fact, result, diff_was_shown=call.diff_was_shown)
        self.folded = whole or self.folded
        return [short]

    def _on_run_started(self, event: ev.RunStarted, logged: ev.Logged) -> list[Piece]:
        self.waits_since = logged.ts
        self.failure = None
        self._limit = ""
        return [note("Summarising the conversation…", gap=True)] if event.purpose == "compaction" else []

    def _on_turn_started(self, event: ev.TurnStarted, logged: ev.Logged) -> None:
        self.waits_since = logged.ts
        self.notice = None

    def _on_turn_ended(self, event: ev.TurnEnded, logged: ev.Logged) -> list[Piece]:
        self._heard()
        self.thinking = ""
        return self._rest_of_text()

    def _on_aborted(self, event: ev.RunAborted, logged: ev.Logged) -> list[Piece]:
        who = "" if event.by in (self._me, "agent", "") else f" by {one_line(event.by)}"
        why = f": {one_line(event.reason)}" if event.reason else ""
        self._stopped = [note(f"Stopped{who}{why}.", "warn", gap=True)]
        return self._rest_of_text()

    def _on_run_finished(self, event: ev.RunFinished, logged: ev.Logged) -> list[Piece]:
        ending = _ENDINGS.get(event.stop_reason)
        if self._limit:
            ending = f"The run stopped at its {_LIMITS.get(self._limit, 'limit')}; the task may not be done."
        pieces = [*self._settled(), note(run_totals(event.usage, self._seconds(logged)))]
        return [*pieces, note(ending, "warn")] if ending else pieces

    def _on_run_failed(self, event: ev.RunFailed, logged: ev.Logged) -> list[Piece]:
        self.failure = event
        lines: list[Line] = lines_of(f"✗ {shown(event.message)}", "bad")
        if event.hint:
            lines += lines_of(shown(event.hint), "", "  ")
        pieces = [*self._settled(), Lines(lines=tuple(lines), gap=True, error=True)]
        has_used = all_input(event.usage) or event.usage.output
        return [*pieces, note(run_totals(event.usage, self._seconds(logged)))] if has_used else pieces

    def _settled(self) -> list[Piece]:
        pieces = [*self._rest_of_text(), *self._stopped]
        self._stopped = []
        self._heard()
        self.thinking = ""
        self.calls.clear()
        self.questions.clear()
        return pieces

    def _seconds(self, logged: ev.Logged) -> int:
        run = self.state.run
        return 0 if run is None or run.run_id != logged.run_id else (logged.ts - run.started_at) // 1000

    def _heard(self) -> None:
        """Something arrived: nothing is waited for any more."""
        self.waits_since = None
        self.notice = None

    def _on_plan(self, event: ev.PlanUpdated, logged: ev.Logged) -> list[Piece]:
        steps = [(*_PLAN_STYLES[entry.status], one_line(entry.content)) for entry in event.entries]
        lines = (line(Span(f"  {mark} {text}", style)) for mark, style, text in steps)
        return [Lines(lines=(line(Span("Plan", "bold")), *lines), gap=True)]

    def _on_usage(self, event: ev.UsageReported, logged: ev.Logged) -> None:
        self.usage = event

    def _on_notice(self, event: ev.Notice, logged: ev.Logged) -> list[Piece]:
        self.notice, self.noticed_at = event, logged.ts
        if event.wait_ms is not None:  # counted down in the status area, and printed when the wait is over
            return []
        if event.code.startswith("limit_"):
            self._limit = event.code
        return [note(shown(event.message), _LEVELS[event.level])]

    def _on_title(self, event: ev.TitleChanged, logged: ev.Logged) -> list[Piece]:
        """A title that the run gave by itself is not announced."""
        return [note(f"The title is now: {one_line(event.title)}")] if logged.run_id is None else []

    def _on_compacted(self, event: ev.Compacted, logged: ev.Logged) -> list[Piece]:
        self.folded = Lines(lines=tuple(lines_of(shown(event.summary), "dim", "  ")), gap=True)
        return [note("The conversation was replaced by a summary (Ctrl+O shows it).")]


def _user_lines(content: str | tuple[SessionPart, ...], *marks: Span) -> Lines:
    words = lines_of(shown(own_words(content)), "user", "  ")
    first = Span("> " + words[0][0].text[2:], "user")
    attached = [line(Span(f"  {one_line(name)}", "dim")) for name in attached_names(content)]
    return Lines(lines=(line(first, *marks), *words[1:], *attached), gap=True)


_Step: TypeAlias = Callable[[TranscriptView, Any, ev.Logged], list[Piece] | None]


def _says(text: Callable[[Any], str]) -> _Step:
    return lambda view, event, logged: [note(text(event))]


_STEPS: Final[dict[type, _Step]] = {
    ev.UserInput: TranscriptView._on_user,
    ev.HistoryMessage: TranscriptView._on_history,
    ev.AssistantTextDelta: TranscriptView._on_text_delta,
    ev.AssistantText: TranscriptView._on_text,
    ev.ReasoningDelta: TranscriptView._on_thinking_delta,
    ev.Reasoning: TranscriptView._on_thinking,
    ev.ToolCalled: TranscriptView._on_called,
    ev.ApprovalRequested: TranscriptView._on_asked,
    ev.ApprovalDecided: TranscriptView._on_decided,
    ev.ToolStarted: TranscriptView._on_started,
    ev.ToolProgress: TranscriptView._on_progress,
    ev.ToolFinished: TranscriptView._on_finished,
    ev.RunStarted: TranscriptView._on_run_started,
    ev.TurnStarted: TranscriptView._on_turn_started,
    ev.TurnEnded: TranscriptView._on_turn_ended,
    ev.RunAborted: TranscriptView._on_aborted,
    ev.RunFinished: TranscriptView._on_run_finished,
    ev.RunFailed: TranscriptView._on_run_failed,
    ev.PlanUpdated: TranscriptView._on_plan,
    ev.UsageReported: TranscriptView._on_usage,
    ev.Notice: TranscriptView._on_notice,
    ev.Compacted: TranscriptView._on_compacted,
    ev.RunResumed: _says(lambda event: "The server was restarted; the run continues."),
    ev.ModelChanged: _says(lambda event: f"The model is now {one_line(event.model_ref)}."),
    ev.ModeChanged: _says(lambda event: f"The permission mode is now {event.mode}."),
    ev.TitleChanged: TranscriptView._on_title,
    ev.SessionClosed: _says(lambda event: "The session is closed. /fork continues in a copy."),
}
