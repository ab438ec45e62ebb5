"""What every log promises, on each of them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.log_events import NOW_MS, pending, steps, words

from makai.core import session_events as ev
from makai.core.content import Text
from makai.core.errors import InvalidRequest, LogConflict
from makai.core.usage import Usage
from makai.sessions.log import base, encoding
from makai.sessions.log.base import (
    ArchivedFilter,
    EventLog,
    Pending,
    PendingApproval,
    SessionFilter,
    SessionSummary,
    replay,
)
from makai.sessions.log.memory import MemoryLog
from makai.sessions.log.sqlite import SqliteLog


async def everything(log: EventLog, session_id: str) -> list[ev.SessionEvent]:
    return [logged.event async for logged in replay(log, session_id) if isinstance(logged, ev.Logged)]


CREATED = ev.SessionCreated(model_ref="scripted:echo", cwd="/project", title="First words")


async def test_numbers_run_from_one_without_gaps_in_each_session(log: EventLog) -> None:
    assert await log.append("one", steps(3), 0) == (1, 3)
    assert await log.append("two", steps(1), 0) == (1, 1)
    assert await log.append("one", steps(2), 3) == (4, 5)

    assert (await log.last("one"), await log.last("two"), await log.last("three")) == (5, 1, 0)
    assert [logged.event_id for logged in await log.read("one")] == [1, 2, 3, 4, 5]


@pytest.mark.proof("D12")
async def test_what_was_appended_is_read_back_whole(log: EventLog) -> None:
    text = 'a "quoted" \\u0000 word\nand a line \u2028 of ünï😀'
    await log.append("one", pending(CREATED, run_id=None), 0)
    await log.append("one", pending(ev.AssistantText(content_index=0, text=text), ts=NOW_MS + 5), 1)

    assert await log.read("one") == [
        ev.Logged(event_id=1, ts=NOW_MS, event=CREATED),
        ev.Logged(event_id=2, ts=NOW_MS + 5, event=ev.AssistantText(content_index=0, text=text), run_id="run-1"),
    ]
    assert [record.line for record in await log.read_raw("one")] == [
        msgspec.json.encode(logged) for logged in await log.read("one")
    ]


@pytest.mark.parametrize("expected", [0, 1, 3, -1, 2**70])
async def test_an_append_after_anything_but_the_last_event_is_a_conflict(log: EventLog, expected: int) -> None:
    await log.append("one", steps(2), 0)

    with pytest.raises(LogConflict) as caught:
        await log.append("one", steps(1), expected)

    assert (caught.value.expected, caught.value.last) == (expected, 2)
    assert await log.last("one") == 2


async def test_time_never_runs_backwards_in_a_session(log: EventLog) -> None:
    await log.append("one", [*steps(1), *pending(CREATED, ts=NOW_MS - 50), *pending(CREATED, ts=NOW_MS + 1)], 0)
    await log.append("one", pending(CREATED, ts=5), 3)

    assert [logged.ts for logged in await log.read("one")] == [NOW_MS, NOW_MS, NOW_MS + 1, NOW_MS + 1]


async def test_consecutive_deltas_of_a_block_in_an_append_become_one_event(log: EventLog) -> None:
    thoughts = pending(*(ev.ReasoningDelta(content_index=1, delta=text) for text in ("a", "b")))
    other_run = pending(ev.AssistantTextDelta(content_index=1, delta="!"), run_id="run-2")
    appended = [
        *words("Hel", "lo", " "),
        *words("there", content_index=1),
        *other_run,
        *thoughts,
        *steps(1),
        *words("x"),
    ]

    assert await log.append("one", appended, 0) == (1, 6)
    assert await log.append("one", words("y"), 6) == (7, 7)
    assert [
        event for event in await everything(log, "one") if isinstance(event, ev.AssistantTextDelta | ev.ReasoningDelta)
    ] == [
        ev.AssistantTextDelta(content_index=0, delta="Hello "),
        ev.AssistantTextDelta(content_index=1, delta="there"),
        ev.AssistantTextDelta(content_index=1, delta="!"),
        ev.ReasoningDelta(content_index=1, delta="ab"),
        ev.AssistantTextDelta(content_index=0, delta="x"),
        ev.AssistantTextDelta(content_index=0, delta="y"),
    ]


async def test_deltas_can_be_left_out(log: EventLog) -> None:
    await log.append("one", [*words("a"), *steps(1), *words("b"), *steps(1)], 0)

    assert [logged.event_id for logged in await log.read("one", deltas=False)] == [2, 4]
    assert [logged.event_id for logged in await log.read("one", 2, deltas=False)] == [4]


@pytest.mark.parametrize(
    ("after", "limit", "numbers"),
    [
        (0, 2, [1, 2]),
        (3, 10, [4, 5]),
        (5, 10, []),
        (99, 10, []),
        (2**80, 10, []),
        (-7, 1, [1]),
        (0, 0, []),
        (1, -3, []),
    ],
)
async def test_reading_starts_above_the_cursor_and_ends_at_the_limit(
    log: EventLog, after: int, limit: int, numbers: list[int]
) -> None:
    await log.append("one", steps(5), 0)

    assert [record.event_id for record in await log.read_raw("one", after, limit)] == numbers


async def test_a_batch_ends_with_the_event_that_fills_it(log: EventLog) -> None:
    large = steps(1, "x" * (base.BATCH_BYTES // 2))
    for last in range(5):
        await log.append("one", large, last)

    assert [record.event_id for record in await log.read_raw("one")] == [1, 2]
    assert len(await everything(log, "one")) == 5


@pytest.mark.proof("D12")
@pytest.mark.parametrize("text", ["a \x00 b", "\ud800", "ok\udfff"], ids=["NUL", "surrogate", "surrogate at the end"])
async def test_text_that_not_every_store_can_hold_is_refused(log: EventLog, text: str) -> None:
    with pytest.raises(InvalidRequest):
        await log.append("one", [*steps(1), *steps(1, text)], 0)
    with pytest.raises(InvalidRequest):
        await log.append(text, steps(1), 0)
    with pytest.raises(InvalidRequest):
        await log.append("one", [Pending(NOW_MS, text, CREATED)], 0)

    assert await log.last("one") == 0


@pytest.mark.parametrize("events", [[], steps(10_001)], ids=["none", "too many"])
async def test_an_append_of_no_or_too_many_events_is_refused(log: EventLog, events: list[Pending]) -> None:
    with pytest.raises(InvalidRequest):
        await log.append("one", events, 0)


async def test_an_event_that_is_too_large_is_refused(log: EventLog) -> None:
    with pytest.raises(InvalidRequest, match="exceeds the limit"):
        await log.append("one", steps(1, "x" * encoding.MAX_EVENT_BYTES), 0)


async def test_the_list_shows_what_became_of_each_session(log: EventLog) -> None:
    await log.append("one", pending(CREATED, ev.RunStarted(run_number=1, model_ref="scripted:echo")), 0)
    changes = pending(
        ev.TitleChanged(title="Renamed"),
        ev.ModelChanged(model_ref="scripted:other"),
        ev.ModeChanged(mode="plan"),
        ev.TurnEnded(turn=1, stop_reason="tool_use", usage=Usage(input=3, output=2)),
        ev.TurnEnded(turn=2, stop_reason="end_turn", usage=Usage(input=5, output=1)),
        ev.RunFinished(stop_reason="end_turn"),
        ts=NOW_MS + 9,
    )
    await log.append("two", pending(CREATED), 0)
    await log.append("two", changes, 1)
    await log.append("old", pending(ev.SessionCreated(model_ref="m"), ev.SessionClosed(), ts=NOW_MS - 9), 0)

    one = SessionSummary(
        session_id="one",
        title="First words",
        model_ref="scripted:echo",
        cwd="/project",
        status="starting",
        created_ms=NOW_MS,
        updated_ms=NOW_MS,
        events=2,
    )
    two = SessionSummary(
        session_id="two",
        title="Renamed",
        model_ref="scripted:other",
        mode="plan",
        cwd="/project",
        status="finished",
        created_ms=NOW_MS,
        updated_ms=NOW_MS + 9,
        events=7,
        usage=Usage(input=8, output=3),
    )
    assert await log.session("two") == two
    assert await log.session("three") is None
    assert [summary.session_id for summary in await log.sessions()] == ["two", "one", "old"]
    assert await log.sessions(SessionFilter(limit=1)) == [two]
    assert await log.sessions(SessionFilter(cwd="/project", updated_before_ms=NOW_MS + 9)) == [one]
    assert [summary.status for summary in await log.sessions(SessionFilter(updated_before_ms=NOW_MS))] == ["closed"]


async def test_a_list_is_with_or_without_archived_sessions(log: EventLog) -> None:
    made = ev.SessionCreated(model_ref="m", made_by="run")
    await log.append("kept", pending(made), 0)
    await log.append("archived", pending(made, ev.SessionArchived(archived=True)), 0)
    await log.append("back", pending(made, ev.SessionArchived(archived=True)), 0)
    await log.append("back", pending(ev.SessionArchived(archived=False)), 2)

    async def listed(archived: ArchivedFilter) -> list[str]:
        return [found.session_id for found in await log.sessions(SessionFilter(archived=archived))]

    assert await listed("with") == ["archived", "back", "kept"]
    assert await listed("only") == ["archived"]
    assert await listed("without") == ["back", "kept"]
    summary = await log.session("archived")
    assert summary == SessionSummary(
        session_id="archived",
        model_ref="m",
        created_ms=NOW_MS,
        updated_ms=NOW_MS,
        events=2,
        archived=True,
        made_by="run",
    )


async def test_archiving_is_no_use_of_a_session_and_time_does_not_run_backwards(log: EventLog) -> None:
    await log.append("one", [Pending(NOW_MS, None, ev.SessionCreated(model_ref="m"))], 0)
    await log.append("one", [Pending(NOW_MS + 50, None, ev.SessionArchived(archived=True))], 1)
    archived = await log.session("one")
    await log.append("one", [Pending(NOW_MS + 20, None, ev.TitleChanged(title="t"))], 2)
    used = await log.session("one")

    assert (archived and archived.updated_ms, used and used.updated_ms) == (NOW_MS, NOW_MS + 50)
    assert [logged.ts for logged in await log.read("one")] == [NOW_MS, NOW_MS + 50, NOW_MS + 50]


async def test_a_stated_total_replaces_the_sum_of_the_turns(log: EventLog) -> None:
    total = Usage(input=100, output=50, cost_usd=0.5)
    await log.append("one", pending(ev.TurnEnded(turn=1, stop_reason="end_turn", usage=Usage(input=1))), 0)
    await log.append("one", pending(ev.UsageReported(total=total)), 1)

    summary = await log.session("one")
    assert summary is not None
    assert summary.usage == total


async def test_an_approval_is_pending_until_someone_decides_or_its_call_is_over(log: EventLog) -> None:
    asked = [
        ev.ApprovalRequested(call_id=f"call-{number}", name="shell", arguments_json="{}", digest="d")
        for number in range(3)
    ]
    await log.append("one", pending(CREATED, asked[0], ev.RunStatusChanged(status="awaiting_approval"), asked[1]), 0)
    await log.append("two", pending(asked[2]), 0)
    await log.append("one", pending(ev.ApprovalDecided(call_id="call-0", decision="approve")), 4)

    assert await log.pending_approvals() == [
        PendingApproval(session_id="one", event_id=4, ts=NOW_MS, run_id="run-1", request=asked[1]),
        PendingApproval(session_id="two", event_id=1, ts=NOW_MS, run_id="run-1", request=asked[2]),
    ]
    waiting = SessionFilter(awaiting_approval=True)
    assert {summary.session_id: summary.pending_approvals for summary in await log.sessions(waiting)} == {
        "one": 1,
        "two": 1,
    }

    over = ev.ToolFinished(call_id="call-2", content=(Text(text="gone"),), interrupted=True)
    await log.append("two", pending(over), 1)
    await log.append("one", pending(ev.ApprovalDecided(call_id="call-1", decision="deny_abort")), 5)
    assert await log.pending_approvals() == []
    assert await log.sessions(waiting) == []


async def test_a_deleted_session_is_gone_and_its_name_can_be_used_again(log: EventLog) -> None:
    await log.append("one", steps(5), 0)
    await log.append("two", steps(5), 0)

    assert await log.delete("one") is True
    assert await log.delete("one") is False
    assert (await log.last("one"), await log.read("one")) == (0, [])
    assert [summary.session_id for summary in await log.sessions()] == ["two"]
    assert await log.append("one", steps(2), 0) == (1, 2)
    assert (len(await log.read("one")), len(await log.read("two"))) == (2, 5)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
EVENTS = st.one_of(
    st.builds(ev.AssistantTextDelta, content_index=st.integers(0, 2), delta=TEXTS),
    st.builds(ev.ReasoningDelta, content_index=st.integers(0, 2), delta=TEXTS),
    st.builds(ev.Notice, level=st.just("info"), code=st.just("c"), message=TEXTS),
    st.builds(ev.SessionCreated, model_ref=TEXTS, title=TEXTS, cwd=st.none() | TEXTS),
)
PENDING = st.builds(Pending, st.integers(0, 2**45), st.none() | st.just("run-1"), EVENTS)


@pytest.mark.proof("D12")
@given(appends=st.lists(st.tuples(st.sampled_from("ab"), st.lists(PENDING, min_size=1, max_size=6)), max_size=8))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_the_durable_log_and_the_one_in_memory_never_differ(
    tmp_path_factory: pytest.TempPathFactory, appends: list[tuple[str, list[Pending]]]
) -> None:
    home = tmp_path_factory.mktemp("home")
    memory, durable = MemoryLog(), await SqliteLog.open(home)
    for session_id, events in appends:
        last = await memory.last(session_id)
        assert await memory.append(session_id, events, last) == await durable.append(session_id, events, last)
    await durable.close()

    reopened = await SqliteLog.open(home)
    for session_id in "ab":
        assert await reopened.read_raw(session_id) == await memory.read_raw(session_id)
    assert await reopened.sessions() == await memory.sessions()
    await reopened.close()
