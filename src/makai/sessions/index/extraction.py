"""What of a session's events can be searched and counted. Pure: a page of events becomes a page of the index, and the
same events lead to the same entries however they are cut into pages.

Usage is counted when a run ends, by the agent, model and folder it ran with. Runs that a fork copied from its origin
are not counted again: a fork has them with the time of its own creation, because time never runs backwards in a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from makai.core import session_events as ev
from makai.core.content import own_words, title_words, words_of
from makai.core.messages import AssistantMessage, UserMessage
from makai.sessions.index.base import EntryKind, IndexCursor, IndexPage, SearchEntry, SessionFold, UsageEntry
from makai.sessions.log.base import LoggedEvent, SessionSummary

MAX_WORDS: Final = 32_000
"""Characters of a message that can be found."""
MAX_OUTPUT: Final = 4_000
"""Characters of a tool's output that can be found: its beginning says what it is."""
MAX_CALL: Final = 2_000
_MAX_DEPTH: Final = 6


def resumed(summary: SessionSummary, known: IndexCursor | None) -> IndexCursor:
    """Where to continue a session: at its beginning when it is another one than the index knows, or a shorter one."""
    if known is None or known.created_ms != summary.created_ms or known.last > summary.events:
        return IndexCursor(created_ms=summary.created_ms)
    return known


def page_of(summary: SessionSummary, before: IndexCursor, events: Sequence[LoggedEvent]) -> IndexPage:
    """The entries of the next events of a session, which follow `before`."""
    fold = before.fold
    entries: list[SearchEntry] = []
    usage: list[UsageEntry] = []
    for logged in events:
        if not isinstance(logged, ev.Logged):
            continue
        entries += _entries(logged)
        if isinstance(logged.event, ev.RunFinished | ev.RunFailed) and not fold.run_is_copied:
            usage.append(UsageEntry(logged.ts, fold.run_model_ref, fold.harness, fold.cwd, logged.event.usage))
        fold = _folded(fold, logged)
    titles = [entry for entry in entries if entry.kind == "title"]
    return IndexPage(
        session_id=summary.session_id,
        after=before.last,
        cursor=IndexCursor(
            created_ms=summary.created_ms, last=events[-1].event_id if events else before.last, fold=fold
        ),
        updated_ms=summary.updated_ms,
        entries=tuple(entry for entry in entries if entry.kind != "title" or entry is titles[-1]),
        usage=tuple(usage),
    )


def _folded(fold: SessionFold, logged: ev.Logged) -> SessionFold:
    match logged.event:
        case ev.SessionCreated(harness=harness, cwd=cwd, forked_from=origin):
            return SessionFold(created_ts=logged.ts, is_fork=origin is not None, harness=harness, cwd=cwd)
        case ev.HarnessChanged(harness=harness):
            return msgspec.structs.replace(fold, harness=harness)
        case ev.SessionArchived(archived=archived):
            return msgspec.structs.replace(fold, archived=archived)
        case ev.RunStarted(model_ref=model_ref):
            is_copied = fold.is_fork and logged.ts <= fold.created_ts
            return msgspec.structs.replace(fold, run_model_ref=model_ref, run_is_copied=is_copied)
        case _:
            return fold


def _entries(logged: ev.Logged) -> Iterator[SearchEntry]:
    for kind, text in _texts(logged.event):
        if text.strip() or kind == "title":  # an empty title replaces the former one
            yield SearchEntry(logged.event_id, kind, text)


def _texts(event: ev.SessionEvent) -> Iterable[tuple[EntryKind, str]]:
    match event:
        case ev.SessionCreated(title=title) | ev.TitleChanged(title=title):
            return [("title", title)]
        case ev.UserInput(content=content):
            return [("user", (own_words(content) or title_words(content))[:MAX_WORDS])]
        case ev.HistoryMessage(message=UserMessage(content=content)):
            return [("user", own_words(content)[:MAX_WORDS])]
        case ev.HistoryMessage(message=AssistantMessage() as message):
            return [("assistant", message.text()[:MAX_WORDS])]
        case ev.AssistantText(text=text, parent_call_id=""):
            return [("assistant", text[:MAX_WORDS])]
        case ev.ToolCalled():
            return [("tool", _call_text(event))]
        case ev.ToolFinished(content=content, diffs=diffs):
            paths = [diff.path for diff in diffs]
            return [("tool", "\n".join([*paths, words_of(content)[:MAX_OUTPUT]])[:MAX_OUTPUT])]
        case _:
            return ()


def _call_text(call: ev.ToolCalled) -> str:
    """The title, the paths and the arguments of a call, each once."""
    try:
        given = msgspec.json.decode(call.arguments_json)
    except (msgspec.DecodeError, RecursionError):
        given = call.arguments_json
    texts = [call.title or call.name, *(place.path for place in call.locations), *_strings(given)]
    return "\n".join(dict.fromkeys(text for text in texts if text))[:MAX_CALL]


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:MAX_CALL]
    elif depth < _MAX_DEPTH and isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner, depth + 1)
