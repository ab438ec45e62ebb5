"""A session as a file: Markdown for people, JSON lines for programs. The lines are those of the log, one event each, so
nothing is lost. The Markdown leaves out what only programs need (deltas, signatures, numbers of turns) and is safe to
open: see `markdown_text`. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, assert_never

from makai.core import session_events as ev
from makai.core.access import LOCAL
from makai.core.content import Image, SessionPart, Text, for_model
from makai.core.usage import Usage
from makai.sessions import history
from makai.sessions.log.base import Record, SessionSummary
from makai.sessions.log.encoding import decoded_one
from makai.sessions.markdown_text import closed, code_span, diff_block, fenced, json_block, plain, quoted

# Valid inside a JSON string, but a terminal interprets the first two groups, and some readers end a line at the third.
# As escapes they are the same JSON.
_CONTROL: Final = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]")

_BOXES: Final = {"pending": "[ ]", "in_progress": "[ ] (now)", "completed": "[x]"}
_DECISIONS: Final = {"approve": "Approved", "deny_continue": "Denied", "deny_abort": "Denied, and the run stopped,"}


def jsonl(records: Iterable[Record]) -> Iterator[bytes]:
    """The stored lines, each with a line end."""
    for record in records:
        yield _CONTROL.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), record.line) + b"\n"


def markdown(summary: SessionSummary, records: Iterable[Record]) -> str:
    transcript = history.History()
    created: ev.SessionCreated | None = None
    terms: ev.SessionTerms | None = None
    questions: dict[str, ev.ApprovalRequested] = {}
    ends: list[tuple[int, str]] = []
    for record in records:
        logged = decoded_one(record)
        transcript.apply(logged)
        if not isinstance(logged, ev.Logged):
            continue
        match logged.event:
            case ev.SessionCreated() as event:
                created, terms = event, event.terms
            case ev.TermsChanged() as event:
                terms = event.terms
            case ev.ApprovalRequested() as event:
                questions[event.call_id] = event
            case ev.RunFinished() | ev.RunFailed() as event:  # the note of a failed run says why it failed
                ended = "" if isinstance(event, ev.RunFailed) else f"{event.stop_reason}; "
                ends.append((logged.event_id, f"*({ended}{usage_text(event.usage)})*"))
    blocks = [(item.event_id, _item(item, questions)) for item in (*transcript.items(), *transcript.waiting())]
    said = [text for _, text in sorted([*blocks, *ends], key=lambda block: block[0]) if text]
    return "\n\n".join([_head(summary, created, terms), *(said or ["Nothing was said yet."])]) + "\n"


def _head(summary: SessionSummary, created: ev.SessionCreated | None, terms: ev.SessionTerms | None) -> str:
    facts = {
        "Session": code_span(summary.session_id),
        "Model": code_span(summary.model_ref),
        "Folder": code_span(summary.cwd) if summary.cwd else "",
        "Began": time_text(summary.created_ms),
        "Last change": time_text(summary.updated_ms),
        "Mode": summary.mode,
        "Sandbox": terms.sandbox if terms is not None else "",
        "Used": usage_text(summary.usage),
    }
    if created is not None and created.forked_from:
        facts["Continues"] = f"{code_span(created.forked_from)}, after its event {created.forked_at}"
    lines = [f"- {name}: {value}" for name, value in facts.items() if value]
    return "\n".join([f"# {plain(summary.title) or 'A session without a title'}", "", *lines])


def time_text(ms: int) -> str:
    """A time of the log in UTC, so that it is the same on every machine."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def usage_text(usage: Usage) -> str:
    counts = [f"{usage.input + usage.cache_read + usage.cache_write:,} tokens in"]
    if usage.cache_read:
        counts.append(f"of these {usage.cache_read:,} from a cache")
    counts.append(f"{usage.output:,} out")
    if usage.cost_usd is not None:
        counts.append(f"${usage.cost_usd:.4f}")
    return ", ".join(counts)


def _item(item: history.TranscriptItem, questions: dict[str, ev.ApprovalRequested]) -> str:
    match item:
        case history.UserItem():
            text = item.content if isinstance(item.content, str) else "\n".join(map(_part_text, item.content))
            waits = " (no run has read it yet)" if item.waits else ""
            return f"## User, {time_text(item.ts)}{waits}\n\n{quoted(text)}"
        case history.TextItem():
            ending = "" if item.whole else "\n\n*(broken off here)*"
            return f"## Assistant\n\n{closed(item.text)}{ending}" if item.text.strip() else ""
        case history.ThinkingItem():
            words = item.text if item.text.strip() else "(withheld by the provider)" if item.redacted else ""
            return f"### Thinking\n\n{quoted(words)}" if words else ""
        case history.ToolItem():
            return "\n\n".join(_tool(item, questions.get(item.call.call_id)))
        case history.NoteItem():
            return _note(item)
        case _:
            assert_never(item)


def _part_text(part: SessionPart) -> str:
    part = for_model(part)
    if isinstance(part, Text):
        return part.text
    kind = "image" if isinstance(part, Image) else "sound"
    return f"({kind}, {part.mime_type}, {len(part.data) * 3 // 4:,} bytes)"


def _tool(item: history.ToolItem, question: ev.ApprovalRequested | None) -> Iterator[str]:
    call = item.call
    yield f"### Tool {code_span(call.name)}{': ' + plain(call.title) if call.title else ''}"
    yield json_block(call.arguments_json)
    if call.arguments_error:
        yield f"These arguments cannot be read: {plain(call.arguments_error)}"
    # What the call changed, or would have changed when it did not run.
    diffs = (item.result.diffs if item.result else ()) or (question.diffs if question else ())
    yield from map(diff_block, diffs)
    if item.decision is not None:
        yield _decision(item.decision)
    elif question is not None and item.result is None:
        yield "**Waits for a decision.**"
    if item.result is not None:
        yield from _result(item.result)
    elif item.decision is not None and item.decision.decision == "approve":
        yield "(no result so far)"


def _decision(decision: ev.ApprovalDecided) -> str:
    text = f"**{_DECISIONS[decision.decision]} by {plain(decision.by) or 'an unknown client'}**"
    text += _with_token(decision.token)
    if decision.scope != "once":
        text += f", {decision.scope}"
    if decision.grant:
        text += f" (rule {code_span(decision.grant)})"
    return f"{text}: {plain(decision.reason)}" if decision.reason else text


def _with_token(token: str) -> str:
    """Who decided, as far as the token says; nothing for a process of the same user."""
    return f" with the token {code_span(token)}" if token not in ("", LOCAL.label) else ""


def _result(result: ev.ToolFinished) -> Iterator[str]:
    facts = [
        "failed" if result.is_error else "",
        "interrupted, what it did is unknown" if result.interrupted else "",
        f"exit code {result.exit_code}" if result.exit_code is not None else "",
        f"{result.omitted_bytes:,} bytes left out" if result.omitted_bytes else "",
        f"all of it in {code_span(result.spill_path)}" if result.spill_path else "",
    ]
    told = ", ".join(fact for fact in facts if fact)
    yield f"Result ({told}):" if told else "Result:"
    text = "\n".join(map(_part_text, result.content))
    yield fenced(text, "text") if text else "(no output)"


def _note(item: history.NoteItem) -> str:
    match item.event:
        case ev.Notice(level=level, message=message):
            return quoted(f"**{level}:** {plain(message)}")
        case ev.PlanUpdated(entries=entries):
            return "\n".join(
                ["### Plan", "", *(f"- {_BOXES[entry.status]} {plain(entry.content)}" for entry in entries)]
            )
        case ev.Compacted(summary=summary):
            return f"### Summary of everything above, for the model\n\n{quoted(summary)}"
        case ev.RunFailed(code=code, message=message, hint=hint):
            hint = f" {plain(hint)}" if hint else ""
            return quoted(f"**The run failed** ({plain(code)}): {plain(message)}{hint}")
        case ev.RunAborted(by=by, reason=reason, token=token):
            who = f" by {plain(by)}" if by else ""
            return quoted(f"**Stopped{who}**{_with_token(token)}{': ' + plain(reason) if reason else ''}")
        case _:
            assert_never(item.event)
