"""Logs that earlier versions wrote are read as they always were: state, transcript and projections are those of the
golden files, and events of unknown types are kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from support.recorded_logs import golden_of, lines_of, read, recorded

from makai.core.session_events import Logged, SessionEvent
from makai.sessions.log.base import UnknownLogged

WRITES = os.environ.get("MAKAI_TEST_WRITES_GOLDEN") == "1"


@pytest.mark.proof("D9")
@pytest.mark.parametrize("path", recorded(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_recorded_log_is_read_as_its_golden_file_says(path: Path) -> None:
    golden = path.with_suffix(".golden.json")
    found = golden_of(read(lines_of(path)))
    if WRITES:
        golden.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")

    assert found == json.loads(golden.read_text(encoding="utf-8"))


@pytest.mark.proof("D9")
@pytest.mark.parametrize("path", recorded(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_is_read_can_be_written_again_with_everything_in_it(path: Path) -> None:
    lines = [json.loads(line) for line in lines_of(path)]
    events = [event for event in read(lines_of(path)) if isinstance(event, Logged)]
    again = {event.event_id: json.loads(msgspec.json.encode(event)) for event in events}

    assert [line for line in lines if not contains(again.get(line["event_id"], line), line)] == []


def contains(new: object, old: object) -> bool:
    """Whether nothing of the old value is gone; later versions may add fields, and leave out defaults."""
    if isinstance(new, dict) and isinstance(old, dict):
        return all(not value or (name in new and contains(new[name], value)) for name, value in old.items())
    return new == old


def test_the_recorded_logs_have_every_type_of_event_and_one_that_is_not_known() -> None:
    events = [event for path in recorded() for event in read(lines_of(path))]
    known = {type(event.event) for event in events if isinstance(event, Logged)}

    assert [kind.__name__ for kind in get_args(SessionEvent) if kind not in known] == []
    assert {event.type for event in events if isinstance(event, UnknownLogged)} == {"from_the_future"}
