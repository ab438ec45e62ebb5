"""Events of another store are imported as they are, into each store."""

from __future__ import annotations

import pytest
from support.log_events import NOW_MS, pending, steps, words

from makai.core import session_events as ev
from makai.core.errors import InvalidRequest, LogConflict
from makai.sessions.log.base import EventLog, Record, SessionFilter, UnknownLogged
from makai.sessions.log.memory import MemoryLog

UNKNOWN = b'{"ts":1700000000009, "event_id":7,"event":{"type":"from_the_future","n":[1, 2]},"run_id":"r"}'
"""Not even in the order and with the spaces of this version."""


async def origin() -> MemoryLog:
    log = MemoryLog()
    await log.append("one", pending(ev.SessionCreated(model_ref="scripted:echo", cwd="/project", title="Words")), 0)
    await log.append("one", pending(ev.RunStatusChanged(status="running"), ts=NOW_MS + 3), 1)
    await log.append("one", words("a", "b"), 2)
    await log.append("one", steps(1), 3)
    allowed = ev.ApprovalDecided(call_id="c", decision="approve", scope="always", grant="Bash(ls:*)", by="me")
    await log.append("one", pending(allowed), 4)
    await log.append("one", pending(ev.TitleChanged(title="Ünï")), 5)
    return log


async def test_an_imported_session_is_the_same_byte_by_byte_and_in_every_view(log: EventLog) -> None:
    source = await origin()
    records = await source.read_raw("one")
    await log.import_records("one", records[:4], 0)
    await log.import_records("one", records[4:], 4)

    assert await log.read_raw("one") == records
    assert await log.read_raw("one", deltas=False) == await source.read_raw("one", deltas=False)
    assert await log.read("one") == await source.read("one")
    assert await log.session("one") == await source.session("one")
    assert await log.sessions(SessionFilter(cwd="/project")) == await source.sessions()
    assert (await log.check()).problems == ()
    assert await log.append("one", steps(1), 6) == (7, 7)


async def test_an_event_of_a_later_version_is_kept_as_it_is(log: EventLog) -> None:
    records = await (await origin()).read_raw("one")
    await log.import_records("one", [*records, Record(7, UNKNOWN)], 0)
    later = UnknownLogged(event_id=7, ts=NOW_MS + 9, type="from_the_future", run_id="r", line=UNKNOWN)

    assert await log.read_raw("one", after=6) == [Record(7, UNKNOWN)]
    assert await log.read("one", after=6) == [later]
    await log.append("one", pending(ev.TitleChanged(title="more"), ts=5), 7)
    assert [logged.ts for logged in await log.read("one", after=6)] == [NOW_MS + 9, NOW_MS + 9]


async def test_what_is_imported_grants_nothing(log: EventLog) -> None:
    source = await origin()
    assert [grant.rule for grant in await source.grants(None)] == ["Bash(ls:*)"]
    await log.import_records("one", await source.read_raw("one"), 0)
    assert await log.grants(None) == []


async def test_only_records_that_continue_a_session_are_imported(log: EventLog) -> None:
    records = await (await origin()).read_raw("one")
    with pytest.raises(InvalidRequest, match="does not continue at event 1"):
        await log.import_records("one", records[1:], 0)
    with pytest.raises(InvalidRequest, match="holds a line that is no event"):
        await log.import_records("one", [Record(1, b"{}")], 0)
    with pytest.raises(InvalidRequest, match="1 to 10000 events, not 0"):
        await log.import_records("one", [], 0)
    await log.import_records("one", records[:2], 0)
    with pytest.raises(LogConflict):
        await log.import_records("one", records[:2], 0)
    with pytest.raises(LogConflict):
        await log.import_records("one", records[3:], 3)
    assert await log.last("one") == 2
