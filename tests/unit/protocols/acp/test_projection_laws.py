"""Laws of the projection, for any sequence of events: live and replay show the same, statuses only move forward, every
call ends, and every update is valid by the official schema."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.acp_updates import MODERN, PLAIN, Transcript, logged
from support.profiles import examples

from makai.core import session_events as ev
from makai.core.content import Image, Resource, ResourceLink, SessionPart, Text
from makai.core.usage import Usage
from makai.protocols.acp.projection import UpdateProjection, joined
from makai.wire.acp.connecting import AcpClientCapabilities
from makai.wire.acp.updates import CompactionSummaryChunk, CompactionUpdate, NoticeUpdate, SessionUpdate

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
call_ids = st.sampled_from(["c1", "c2", "c3"])
parts: st.SearchStrategy[SessionPart] = st.one_of(
    st.builds(Text, text=words),
    st.builds(Image, data=st.just("aGk="), mime_type=st.just("image/png")),
    st.builds(Resource, uri=words, text=st.none() | words, data=st.none() | st.just("aGk=")),
    st.builds(ResourceLink, uri=words, name=words),
)
contents = st.lists(parts, max_size=3).map(tuple)
places = st.lists(st.builds(ev.FilePlace, words, st.none() | st.integers(-1, 9)), max_size=2).map(tuple)
diffs = st.lists(st.builds(ev.FileDiff, path=words, old_text=st.none() | words, new_text=words), max_size=2).map(tuple)
kinds = st.sampled_from(["read", "execute", "edit", "other", "unheard-of"])
json_texts = st.sampled_from(["{}", '{"a": [1, 2]}', "nonsense", '"text"', ""])
statuses = st.sampled_from(["pending", "in_progress", "completed", "failed"])
levels = st.sampled_from(["info", "warning", "error"])


@st.composite
def blocks(draw: st.DrawFn) -> list[ev.SessionEvent]:
    """A whole block with some of its words before it, as one delta or several."""
    text, index = draw(words), draw(st.integers(0, 2))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], cuts, strict=False)]
    if draw(st.booleans()):
        return [
            *(ev.AssistantTextDelta(content_index=index, delta=piece) for piece in pieces),
            ev.AssistantText(content_index=index, text=text),
        ]
    return [
        *(ev.ReasoningDelta(content_index=index, delta=piece) for piece in pieces),
        ev.Reasoning(content_index=index, text=text),
    ]


of_calls: st.SearchStrategy[ev.SessionEvent] = st.one_of(
    st.builds(ev.ToolStarted, call_id=call_ids),
    st.builds(ev.ToolProgress, call_id=call_ids, text=words),
    st.builds(
        ev.ToolUpdated,
        call_id=call_ids,
        title=st.none() | words,
        kind=st.none() | kinds,
        status=st.none() | statuses,
        locations=st.none() | places,
        content=st.none() | contents,
        diffs=st.none() | diffs,
        raw_output_json=st.none() | json_texts,
    ),
    st.builds(
        ev.ToolFinished,
        call_id=call_ids,
        content=contents,
        is_error=st.booleans(),
        diffs=diffs,
        exit_code=st.none() | st.integers(-9, 255),
        details_json=st.none() | json_texts,
        interrupted=st.booleans(),
    ),
)
others: st.SearchStrategy[ev.SessionEvent] = st.one_of(
    st.builds(ev.Notice, level=levels, code=words, message=words),
    st.builds(ev.TitleChanged, title=words),
    st.builds(
        ev.UsageReported,
        total=st.builds(Usage, cost_usd=st.none() | st.floats(0, 9)),
        context_tokens=st.none() | st.integers(-1, 10**9),
        context_window=st.none() | st.integers(0, 10**9),
    ),
    st.builds(ev.PlanUpdated, entries=st.lists(st.builds(ev.PlanEntry, content=words), max_size=2).map(tuple)),
    st.builds(ev.Compacted, summary=words, through=st.integers(1, 9)),
    st.builds(ev.UserInput, input_id=words, content=words | contents),
)


@st.composite
def runs(draw: st.DrawFn) -> list[ev.Logged]:
    """One to three runs with or without turns; each settles, and calls may be left open or be mentioned late."""
    result: list[ev.Logged] = []
    for number in range(draw(st.integers(1, 3))):
        run: list[ev.SessionEvent] = [
            ev.RunStarted(run_number=number + 1, model_ref="m", purpose=draw(st.sampled_from(["input", "compaction"])))
        ]
        called: set[str] = set()
        has_turns = draw(st.booleans())
        for turn in range(1, draw(st.integers(1, 3)) + 1):
            run += [ev.TurnStarted(turn=turn)] if has_turns else []
            for step in draw(
                st.lists(blocks() | of_calls.map(lambda event: [event]) | others.map(lambda e: [e]), max_size=8)
            ):
                run += step
                if draw(st.booleans()) and (call_id := draw(call_ids)) not in called:
                    called.add(call_id)
                    run.append(_call(draw, f"{number}-{call_id}"))
        end = draw(st.sampled_from(["end_turn", "aborted", "failed"]))
        failed = ev.RunFailed(code="provider_error", message="x")
        run.append(
            failed if end == "failed" else ev.RunFinished(stop_reason="aborted" if end == "aborted" else "end_turn")
        )
        result += logged(*(_in_run(event, number) for event in run), run_id=f"run-{number}", first=len(result) + 1)
    return result


def _call(draw: st.DrawFn, call_id: str) -> ev.ToolCalled:
    arguments, kind = draw(json_texts), draw(kinds)
    return ev.ToolCalled(call_id=call_id, name=draw(words), arguments_json=arguments, kind=kind, locations=draw(places))


def _in_run(event: ev.SessionEvent, number: int) -> ev.SessionEvent:
    """Ids of calls are unique in a session."""
    if isinstance(event, ev.ToolStarted | ev.ToolProgress | ev.ToolUpdated | ev.ToolFinished):
        return type(event)(
            **{**{f: getattr(event, f) for f in event.__struct_fields__}, "call_id": f"{number}-{event.call_id}"}
        )
    return event


def updates_of(events: Sequence[ev.Logged], client: AcpClientCapabilities, *, in_terminal: bool) -> list[SessionUpdate]:
    projection = UpdateProjection(client, shows_terminal_output=in_terminal)
    return [update for each in events for update in projection.project(each)]


@pytest.mark.req("ACP-UPD-002", "ACP-UPD-004", "ACP-UPD-005", "ACP-SESS-009")
@examples(25)
@given(events=runs(), client=st.sampled_from([PLAIN, MODERN]), in_terminal=st.booleans())
def test_live_and_replay_show_the_same_and_every_call_ends(
    events: list[ev.Logged], client: AcpClientCapabilities, in_terminal: bool
) -> None:
    whole = [each for each in events if not isinstance(each.event, ev.Delta)]
    said = updates_of(events, client, in_terminal=in_terminal)
    live = Transcript(said)
    replay = Transcript(updates_of(whole, client, in_terminal=in_terminal))
    short = Transcript(joined(said))

    assert live.texts == replay.texts == short.texts
    assert live.calls == replay.calls == short.calls
    assert (live.plan, live.title) == (replay.plan, replay.title) == (short.plan, short.title)
    assert set(live.statuses().values()) <= {"completed", "failed"}
    if client is MODERN:  # every chunk is the model's: notices and compactions have updates of their own
        texts = [each.event.text for each in events if isinstance(each.event, ev.AssistantText)]
        thoughts = [each.event.text for each in events if isinstance(each.event, ev.Reasoning)]
        assert live.said("agent_message_chunk") == "".join(texts)
        assert live.said("agent_thought_chunk") == "".join(thoughts)
    else:
        undeclared = (NoticeUpdate, CompactionUpdate, CompactionSummaryChunk)
        assert [update for update in said if isinstance(update, undeclared)] == []
