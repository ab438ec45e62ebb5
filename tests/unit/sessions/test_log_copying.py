"""Sessions are copied between stores as they are, and a copy can be repeated."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from support.log_events import marked, pending, steps
from support.stores import PostgresStore, change_row, sqlite_log

from makai.core import session_events as ev
from makai.sessions.log import copying
from makai.sessions.log.base import EventLog, Record, StoredGrant, StoredToken, TrustedFile, TrustedFolder
from makai.sessions.log.copying import CopiedSession, CopyReport, copy_beside, copy_sessions
from makai.sessions.log.memory import MemoryLog

RECORDED = Path(__file__).parents[2] / "fixtures" / "homes" / "2026-11-16"
"""Every type of event, an active run, and a type that no version knows."""
TOKEN = StoredToken(token_id="t", name="phone", scope="admin", digest="d", created_ms=1, expires_ms=2**60)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "recorded"
    folder.mkdir()
    (folder / "sessions.db").write_bytes(gzip.decompress((RECORDED / "sessions.db.gz").read_bytes()))
    return folder


@asynccontextmanager
async def postgres(store: PostgresStore, name: str = "test") -> AsyncIterator[EventLog]:
    log = await store.open(name)
    try:
        yield log
    finally:
        await log.close()


async def copied(source: EventLog, target: EventLog) -> CopyReport:
    return await copy_sessions(source, target, lambda *_: None)


async def lines(log: EventLog) -> dict[str, list[bytes]]:
    """Every session of a small log, byte by byte."""
    names = [summary.session_id for summary in await log.sessions()]
    return {name: [record.line for record in await log.read_raw(name)] for name in names}


async def test_a_round_trip_through_every_store_changes_no_byte(home: Path, tmp_path: Path) -> None:
    store = PostgresStore(tmp_path)
    async with sqlite_log(home) as source:
        before, summaries = await lines(source), await source.sessions()
        async with postgres(store) as database, sqlite_log(tmp_path / "direct") as direct:
            outcomes = {each.outcome for each in (await copied(source, database)).sessions}
            assert outcomes == {each.outcome for each in (await copied(source, direct)).sessions} == {"copied"}
            assert await lines(database) == await lines(direct) == before
            assert await database.sessions() == await direct.sessions() == summaries
            assert (await database.check()).problems == (await direct.check()).problems == ()
    async with postgres(store) as database, sqlite_log(tmp_path / "back") as back:
        await copied(database, back)
        assert {each.outcome for each in (await copied(database, back)).sessions} == {"same"}
        assert await lines(back) == before
        assert await back.sessions() == summaries
        assert (await back.check()).problems == ()


async def test_a_session_is_continued_and_one_that_differs_is_left_alone() -> None:
    source, target = MemoryLog(), MemoryLog()
    for name in ("grows", "forked", "ahead", "same"):
        await source.append(name, steps(3), 0)
    await copied(source, target)
    await source.append("grows", steps(2), 3)
    for log, mark in ((source, "here"), (target, "there")):
        await log.append("forked", marked("forked", 4, 1, mark), 3)
    await target.append("ahead", steps(1), 3)
    kept = await lines(target)

    report = await copied(source, target)

    assert sorted(report.sessions, key=lambda each: each.session_id) == [
        CopiedSession(session_id="ahead", outcome="ahead"),
        CopiedSession(session_id="forked", outcome="differs", event_id=4),
        CopiedSession(session_id="grows", outcome="continued", events=2),
        CopiedSession(session_id="same", outcome="same"),
    ]
    assert not report.is_complete
    assert await lines(target) == kept | {"grows": (await lines(source))["grows"]}


async def test_a_damaged_session_is_listed_and_the_others_are_copied(tmp_path: Path) -> None:
    async with sqlite_log(tmp_path / "home") as log:
        await log.append("good", steps(3), 0)
        await log.append("bad", steps(3), 0)
    change_row(tmp_path / "home", "UPDATE event SET line = '{}' WHERE event_id = 2 AND session_key = 2")
    target = MemoryLog()
    async with sqlite_log(tmp_path / "home") as log:
        report = await copied(log, target)

    assert {each.session_id: (each.outcome, each.event_id) for each in report.sessions} == {
        "good": ("copied", None),
        "bad": ("damaged", 2),
    }
    assert list(await lines(target)) == ["good"]


async def test_nothing_is_changed_in_a_rehearsal() -> None:
    source, target = MemoryLog(), MemoryLog()
    await source.append("one", pending(ev.RunStatusChanged(status="running")), 0)
    report = await copy_sessions(source, target, lambda *_: None, dry_run=True)
    assert report.sessions == (CopiedSession(session_id="one", outcome="copied", events=1, is_active=True),)
    assert await target.sessions() == []


async def test_a_commit_ends_where_no_run_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that is killed must not leave a session behind that looks as if its run had to be resumed."""
    source, target = MemoryLog(), MemoryLog()
    last = 0
    for _ in range(4):
        run = [
            *pending(ev.RunStatusChanged(status="running")),
            *steps(700),
            *pending(ev.RunFinished(stop_reason="end_turn")),
        ]
        _, last = await source.append("one", run, last)
    statuses = []
    import_records = target.import_records

    async def watched(session_id: str, records: Sequence[Record], expected_last: int) -> None:
        await import_records(session_id, records, expected_last)
        summary = await target.session(session_id)
        assert summary is not None
        statuses.append(summary.status)

    monkeypatch.setattr(target, "import_records", watched)
    await copied(source, target)
    assert statuses == ["finished"] * 3
    assert await target.read_raw("one", 1000) == await source.read_raw("one", 1000)

    monkeypatch.setattr(copying, "MAX_COMMIT_BYTES", 1)  # a run that does not fit into one commit
    await target.delete("one")
    statuses.clear()
    await copied(source, target)
    assert statuses == ["running", "running", "finished"]


async def test_tokens_and_trust_are_copied_on_demand_and_decisions_of_the_second_store_stay() -> None:
    source, target = MemoryLog(), MemoryLog()
    await source.put_token(TOKEN)
    await source.trust("/one", True, [TrustedFile(path="MAKAI.md", digest="d", text="t")])
    await source.trust("/two", True)
    await target.trust("/two", False)
    await target.put_token(msgspec.structs.replace(TOKEN, token_id="other"))

    report = await copy_beside(source, target, CopyReport(sessions=()))
    assert report == CopyReport(sessions=(), trusted_folders=1, refused_tokens=("phone",))
    await target.revoke_token("other", 5)
    again = await copy_beside(source, target, CopyReport(sessions=()))

    assert again == CopyReport(sessions=(), tokens=1)
    assert await target.trusted_folders() == [TrustedFolder("/one", True), TrustedFolder("/two", False)]
    assert await target.trusted_files("/one") == await source.trusted_files("/one")
    assert TOKEN in await target.tokens()


async def test_saved_permissions_are_copied_both_ways_and_the_newer_decision_counts(tmp_path: Path) -> None:
    def grant(rule: str, ts: int, *, allow: bool = True) -> StoredGrant:
        return StoredGrant(folder="/work", rule=rule, allow=allow, session_id="s", event_id=1, ts=ts, by="cli")

    nothing = CopyReport(sessions=())
    async with postgres(PostgresStore(tmp_path)) as database, sqlite_log(tmp_path / "file") as file:
        await file.import_grants([grant("Bash(ls)", 5), grant("Bash(make)", 5), grant("Edit", 5)])
        await database.import_grants([grant("Bash(make)", 9, allow=False), grant("Edit", 3, allow=False)])

        rehearsed = await copy_beside(file, database, CopyReport(sessions=(), dry_run=True))
        assert rehearsed == CopyReport(sessions=(), grants=2, dry_run=True)
        assert len(await database.grants(None)) == 2
        assert await copy_beside(file, database, nothing) == CopyReport(sessions=(), grants=2)
        assert await copy_beside(database, file, nothing) == CopyReport(sessions=(), grants=1)
        assert await copy_beside(file, database, nothing) == nothing
        newest = [grant("Bash(ls)", 5), grant("Bash(make)", 9, allow=False), grant("Edit", 5)]
        assert await file.grants("/work") == await database.grants("/work") == newest


async def test_a_session_that_another_node_uses_is_copied_when_that_node_has_ended(tmp_path: Path) -> None:
    store, source = PostgresStore(tmp_path), MemoryLog()
    await source.append("one", steps(2), 0)
    await source.append("two", steps(2), 0)
    async with postgres(store) as database, postgres(store, "node") as node:
        await copied(source, node)
        await source.append("one", steps(1), 2)
        assert {each.session_id: each.outcome for each in (await copied(source, database)).sessions} == {
            "one": "in_use",
            "two": "same",
        }
        await node.close()
        assert {each.outcome for each in (await copied(source, database)).sessions} == {"continued", "same"}
