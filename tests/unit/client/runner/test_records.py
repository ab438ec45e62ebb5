"""events.jsonl and state.json."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import msgspec
import pytest

from makai.client.runner.records import RecordedEvents, RunRecords, WorktreeRunState
from makai.core.errors import InvalidRequest, StorageUnavailable
from makai.harness.contract.events import (
    AgentErrorEvent,
    AssistantTextEvent,
    Event,
    InitEvent,
    ResultEvent,
    SystemEvent,
    ToolProgressEvent,
    ToolResultEvent,
    ToolUseEvent,
)

EVENTS: tuple[Event, ...] = (
    InitEvent(session_id="s-1"),
    SystemEvent(subtype="compaction"),
    AssistantTextEvent(text="two\nlines\u2028and \0"),
    ToolUseEvent(tool_name="Bash", tool_use_id="t", input={"command": "ls"}),
    ToolProgressEvent(tool_name="Bash", elapsed_seconds=1.5),
    ToolResultEvent(tool_use_id="t", content="", is_error=False),
    AgentErrorEvent(message="no", code="x"),
    ResultEvent(success=False, errors=("a",)),
)
STATE = WorktreeRunState(
    run_id="r", harness="stub", branch="agent/r", base_commit="0" * 40, phase="running", prompt="do it"
)


@pytest.mark.req("DM-EVT-012")
def test_what_was_appended_is_read_back_and_only_the_user_can_read_it(tmp_path: Path) -> None:
    records = RunRecords(tmp_path)
    with records.open():
        for event in EVENTS:
            records.append(event)

    assert records.events_path == tmp_path / ".agent/events.jsonl"
    assert records.events_path.read_bytes().count(b"\n") == len(EVENTS)
    assert records.read_events() == RecordedEvents(events=EVENTS)
    assert stat.S_IMODE(records.events_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(records.folder.stat().st_mode) == 0o700
    assert records.read_events().session_id == "s-1"


def test_a_second_attempt_appends_after_a_line_that_was_cut(tmp_path: Path) -> None:
    records = RunRecords(tmp_path)
    with records.open():
        records.append(EVENTS[0])
    with records.events_path.open("ab") as file:
        file.write(b'{"kind":"assistant_te')
    with records.open():
        records.append(InitEvent(session_id="s-2"))

    assert records.read_events() == RecordedEvents(events=(EVENTS[0], InitEvent(session_id="s-2")), damaged_lines=(2,))
    assert records.read_events().session_id == "s-2"


def test_damaged_lines_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    records = RunRecords(tmp_path)
    records.folder.mkdir()
    records.events_path.write_bytes(
        b'{"kind":"init","sessionId":"s-1"}\n\xff\xfe\n{"kind":"zzz"}\n[1]\n\n{"kind":"result","success":true}\n'
    )

    found = RecordedEvents(events=(EVENTS[0], ResultEvent(success=True)), damaged_lines=(2, 3, 4))
    assert records.read_events() == found
    assert RunRecords(tmp_path / "none").read_events() == RecordedEvents(events=())


def test_a_second_run_in_the_same_worktree_is_refused(tmp_path: Path) -> None:
    refused = pytest.raises(InvalidRequest, match="Another run is active")
    with RunRecords(tmp_path).open(), refused, RunRecords(tmp_path).open():
        pass
    with RunRecords(tmp_path).open():
        pass


def test_the_log_is_never_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine", encoding="utf-8")
    records = RunRecords(tmp_path)
    records.folder.mkdir()
    records.events_path.symlink_to(target)

    with pytest.raises(StorageUnavailable), records.open():
        pass
    assert target.read_text(encoding="utf-8") == "mine"


def test_a_full_disk_is_an_error_and_not_a_lost_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    records = RunRecords(tmp_path)
    with records.open():
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StorageUnavailable, match="No space left"):
            records.append(EVENTS[0])


def test_the_state_is_replaced_as_a_whole(tmp_path: Path) -> None:
    records = RunRecords(tmp_path)
    with records.open():
        records.write_state(STATE)
        records.write_state(msgspec.structs.replace(STATE, phase="completed"))

    assert records.read_state() == msgspec.structs.replace(STATE, phase="completed")
    assert stat.S_IMODE(records.state_path.stat().st_mode) == 0o600
    assert sorted(path.name for path in records.folder.iterdir()) == [".gitignore", "events.jsonl", "state.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schemaVersion":2}', b"\xff"])
def test_a_damaged_state_and_a_missing_one_are_refused_with_a_hint(tmp_path: Path, content: bytes) -> None:
    records = RunRecords(tmp_path)
    with pytest.raises(InvalidRequest, match="no run to resume") as missing:
        records.read_state()
    records.folder.mkdir()
    records.state_path.write_bytes(content)
    with pytest.raises(InvalidRequest, match="damaged") as damaged:
        records.read_state()

    assert missing.value.hint == damaged.value.hint is not None
