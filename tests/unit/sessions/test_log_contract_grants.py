"""What every log keeps beside the events: checkpoints, grants, trust, and the way around the deltas."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.log_events import NOW_MS, pending, steps, words

from makai.core import session_events as ev
from makai.core.errors import InvalidRequest
from makai.sessions.log.base import Checkpoint, EventLog, Pending, StoredGrant, TrustedFile
from makai.sessions.log.heads import MIN_DELTA_RUN
from makai.sessions.log.memory import MemoryLog
from makai.sessions.log.sqlite import SqliteLog


def created(cwd: str | None = "/project") -> list[Pending]:
    return pending(ev.SessionCreated(model_ref="m", cwd=cwd))


def decided(
    rule: str, decision: ev.Decision = "approve", scope: ev.GrantScope = "always", *, ts: int = NOW_MS
) -> list[Pending]:
    return pending(ev.ApprovalDecided(call_id="c", decision=decision, by="editor", scope=scope, grant=rule), ts=ts)


def stored(
    rule: str, event_id: int, *, allow: bool = True, folder: str = "/project", session_id: str = "one", ts: int = NOW_MS
) -> StoredGrant:
    return StoredGrant(
        folder=folder, rule=rule, allow=allow, session_id=session_id, event_id=event_id, ts=ts, by="editor"
    )


async def test_a_checkpoint_is_read_back_and_the_next_one_replaces_it(log: EventLog) -> None:
    await log.append("one", steps(9), 0)
    await log.append("two", steps(9), 0)
    assert await log.checkpoint("one") is None

    await log.save_checkpoint("one", Checkpoint(3, 1, b"\x00any \xff bytes"))
    assert await log.checkpoint("one") == Checkpoint(3, 1, b"\x00any \xff bytes")
    await log.save_checkpoint("one", Checkpoint(9, 2, b""))
    assert await log.checkpoint("one") == Checkpoint(9, 2, b"")
    assert (await log.checkpoint("two"), await log.checkpoint("three")) == (None, None)


@pytest.mark.parametrize("event_id", [3, 2**70])
async def test_a_checkpoint_above_the_last_event_is_forgotten_and_the_former_one_stays(
    log: EventLog, event_id: int
) -> None:
    await log.append("one", steps(2), 0)
    await log.save_checkpoint("one", Checkpoint(1, 1, b"good"))

    await log.save_checkpoint("one", Checkpoint(event_id, 1, b"from the future"))
    await log.save_checkpoint("unknown", Checkpoint(1, 1, b"of no session"))
    await log.append("one", steps(5), 2)
    await log.append("unknown", steps(5), 0)

    assert await log.checkpoint("one") == Checkpoint(1, 1, b"good")
    assert await log.checkpoint("unknown") is None


async def test_a_checkpoint_goes_with_its_session(log: EventLog) -> None:
    await log.append("one", steps(5), 0)
    await log.save_checkpoint("one", Checkpoint(5, 1, b"first life"))

    await log.delete("one")
    assert await log.checkpoint("one") is None
    await log.append("one", steps(9), 0)
    assert await log.checkpoint("one") is None


async def test_what_was_decided_for_always_is_kept_for_the_folder_of_its_session(log: EventLog) -> None:
    await log.append("one", [*created(), *decided("Bash(ls:*)"), *decided("Edit", "deny_continue", ts=NOW_MS + 5)], 0)
    await log.append("two", [*created("/other"), *decided("Edit", "deny_abort")], 0)
    await log.append("three", [*created(None), *decided("Fetch")], 0)

    of_project = [stored("Bash(ls:*)", 2), stored("Edit", 3, allow=False, ts=NOW_MS + 5)]
    of_other = [stored("Edit", 2, allow=False, folder="/other", session_id="two")]
    of_none = [stored("Fetch", 2, folder="", session_id="three")]
    assert await log.grants("/project") == of_project
    assert await log.grants("/other") == of_other
    assert await log.grants("") == of_none
    assert await log.grants("/") == []
    assert await log.grants(None) == [*of_none, *of_other, *of_project]


async def test_only_decisions_for_always_that_name_a_rule_are_kept(log: EventLog) -> None:
    narrower = [*decided("Edit", scope="once"), *decided("Edit", scope="session"), *decided("")]
    await log.append("one", [*created(), *narrower], 0)

    assert await log.grants(None) == []


async def test_the_last_decision_about_a_rule_counts_in_every_session(log: EventLog) -> None:
    await log.append("one", [*created(), *decided("Edit"), *decided("Edit", "deny_continue")], 0)
    assert await log.grants("/project") == [stored("Edit", 3, allow=False)]

    await log.append("two", [*created(), *decided("Edit", ts=NOW_MS + 1)], 0)
    assert await log.grants("/project") == [stored("Edit", 2, session_id="two", ts=NOW_MS + 1)]


async def test_a_grant_outlives_its_session_until_it_is_revoked(log: EventLog) -> None:
    await log.append("one", [*created(), *decided("Edit"), *decided("Fetch")], 0)
    await log.delete("one")
    assert await log.grants("/project") == [stored("Edit", 2), stored("Fetch", 3)]

    assert await log.revoke("/project", "Edit") is True
    assert await log.revoke("/project", "Edit") is False
    assert await log.revoke("/elsewhere", "Fetch") is False
    assert await log.grants("/project") == [stored("Fetch", 3)]


async def test_an_append_that_is_refused_grants_nothing(log: EventLog) -> None:
    await log.append("one", created(), 0)

    with pytest.raises(InvalidRequest):
        await log.append("one", [*decided("Edit"), *decided("Edit \x00")], 1)

    assert await log.grants(None) == []


async def test_nothing_is_trusted_until_someone_says_so(log: EventLog) -> None:
    assert [await log.is_trusted(folder) for folder in ("/", "/project", "", "project")] == [False] * 4


async def test_the_word_about_the_nearest_folder_decides(log: EventLog) -> None:
    await log.trust("/home/me", True)
    await log.trust("/home/me/downloads", False)
    await log.trust("/home/me/downloads/mine/", True)

    trusted = {
        "/home/me": True,
        "/home/me/": True,
        "//home//me/./project": True,
        "/home/me/project/deeper": True,
        "/home/me/downloads": False,
        "/home/me/downloads/archive": False,
        "/home/me/downloads/mine/src": True,
        "/home/meg": False,
        "/home": False,
        "/": False,
    }
    assert {folder: await log.is_trusted(folder) for folder in trusted} == trusted

    await log.trust("/home/me", False)
    await log.trust("/", True)
    assert [await log.is_trusted(folder) for folder in ("/home/me/project", "/etc")] == [False, True]


@pytest.mark.parametrize(
    "folder",
    ["", "project", "./project", "/home/me/../you", "/a\x00b", "/\udcff", "/" + "x" * 4096],
    ids=["empty", "relative", "dot", "parent", "NUL", "no text", "long"],
)
async def test_what_does_not_name_a_folder_by_itself_is_never_trusted(log: EventLog, folder: str) -> None:
    await log.trust("/", True)

    with pytest.raises(InvalidRequest):
        await log.trust(folder, True)
    assert await log.is_trusted(folder) is False


async def test_the_content_that_was_trusted_is_that_of_the_last_decision_about_this_very_folder(log: EventLog) -> None:
    files = [TrustedFile(path=path, digest=path * 2, text="é") for path in ("b", "a")]
    await log.trust("/project", True, files)
    assert (await log.trusted_files("/project"), await log.trusted_files("/project/sub")) == (files[::-1], [])

    await log.trust("/project", True, files[:1])
    assert await log.trusted_files("/project") == files[:1]
    await log.trust("/project", False)
    assert await log.trusted_files("/project") == []


def alternating(count: int) -> list[Pending]:
    """Deltas that are not joined."""
    return [delta for number in range(count) for delta in words("word", content_index=number % 2)]


async def test_a_long_run_of_deltas_is_left_out_from_wherever_one_reads(log: EventLog) -> None:
    run = MIN_DELTA_RUN + 36
    await log.append("one", steps(2), 0)
    await log.append("one", alternating(run - 10), 2)
    await log.append("one", [*alternating(10), *steps(1), *alternating(5)], run - 8)  # the run ends: event run + 3
    await log.append("one", [*steps(1), *alternating(run)], run + 8)
    last = 2 * run + 9

    lasting = [1, 2, run + 3, run + 9]
    for after in (0, 1, 2, 3, 50, run + 1, run + 2, run + 3, run + 9, run + 50, last, last + 1):
        read = [record.event_id for record in await log.read_raw("one", after, deltas=False)]
        assert read == [number for number in lasting if number > after], f"above {after}"
    assert [record.event_id for record in await log.read_raw("one", 1, 2, deltas=False)] == [2, run + 3]
    assert [record.event_id for record in await log.read_raw("one")] == list(range(1, last + 1))


async def test_changed_terms_are_an_event_like_any_other(log: EventLog) -> None:
    changed = ev.TermsChanged(terms=ev.SessionTerms(system="Be brief.", builtin_tools=True))
    await log.append("one", [*created(), *pending(changed)], 0)

    assert (await log.read("one", 1, deltas=False)) == [ev.Logged(event_id=2, ts=NOW_MS, event=changed, run_id="run-1")]


RULES = st.sampled_from(["Edit", "Bash(git log:*)", "ä"])
FOLDERS = st.sampled_from([None, "/a", "/a/b"])
CHOICES = st.tuples(
    RULES, st.sampled_from(["approve", "deny_continue"]), st.sampled_from(["once", "session", "always"])
)
STEPS = st.lists(
    st.one_of(
        st.builds(lambda count: alternating(count), st.integers(1, 90)),
        st.builds(lambda count: steps(count), st.integers(1, 3)),
        st.builds(lambda choice: decided(*choice), CHOICES),
        st.builds(lambda folder: created(folder), FOLDERS),
    ),
    min_size=1,
    max_size=4,
)


@given(appends=st.lists(st.tuples(st.sampled_from("ab"), STEPS, st.booleans()), max_size=8), after=st.integers(0, 200))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_both_logs_agree_on_grants_and_on_what_is_left_without_deltas(
    tmp_path_factory: pytest.TempPathFactory, appends: list[tuple[str, list[list[Pending]], bool]], after: int
) -> None:
    home = tmp_path_factory.mktemp("home")
    memory, durable = MemoryLog(), await SqliteLog.open(home)
    for session_id, parts, is_reopened in appends:
        if is_reopened:
            await durable.close()
            durable = await SqliteLog.open(home)
        events = [event for part in parts for event in part]
        last = await memory.last(session_id)
        assert await memory.append(session_id, events, last) == await durable.append(session_id, events, last)

    assert await durable.grants(None) == await memory.grants(None)
    for session_id in "ab":
        for start, limit in ((0, 1000), (after, 1000), (after, 3)):
            expected = await memory.read_raw(session_id, start, limit, deltas=False)
            assert await durable.read_raw(session_id, start, limit, deltas=False) == expected
    await durable.close()
