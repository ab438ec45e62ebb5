"""Recorded session logs, and what this version makes of them.

`tests/recorded_logs/<date>/<session>.jsonl` holds the lines of a log as a version of that date stored them; they are
never changed. The `.golden.json` beside it is what readers make of it: state, transcript, and the projections of
MiniCodex and ACP. `MAKAI_TEST_WRITES_GOLDEN=1` in the environment of the test writes the golden files again; the diff
is reviewed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from makai.core.session_events import Logged
from makai.protocols.acp.projection import UpdateProjection
from makai.protocols.minicodex.projection import NamedCapabilities, Projector
from makai.sessions.history import history
from makai.sessions.log.base import LoggedEvent, Record
from makai.sessions.log.encoding import decoded
from makai.sessions.state import SessionState, fold
from makai.wire.acp.connecting import AcpClientCapabilities
from support.minicodex_client import BOTH

RECORDED_LOGS = Path(__file__).parents[1] / "recorded_logs"


def recorded() -> list[Path]:
    """Every recorded log, the oldest first."""
    return sorted(RECORDED_LOGS.glob("*/*.jsonl"))


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def read(lines: list[bytes]) -> list[LoggedEvent]:
    return decoded([Record(number, line) for number, line in enumerate(lines, 1)])


def golden_of(events: list[LoggedEvent]) -> dict[str, Any]:
    """What every kind of reader makes of a log, as JSON."""
    return {
        "state": _plain(fold(events)),
        "transcript": [_plain(item) for item in history(events).items()],
        "minicodex": minicodex_frames(events, ()),
        "minicodex_makai": minicodex_frames(events, BOTH),
        "acp": acp_updates(events),
    }


def minicodex_frames(events: list[LoggedEvent], capabilities: tuple[str, ...]) -> list[Any]:
    projector, named = Projector(SessionState()), NamedCapabilities.named(capabilities)
    frames = [frame for event in events if (frame := projector.project(event)) is not None]
    return [json.loads(form) for frame in frames if (form := frame.form(named)) is not None]


def acp_updates(events: list[LoggedEvent]) -> list[Any]:
    projection = UpdateProjection(AcpClientCapabilities())
    known = [event for event in events if isinstance(event, Logged)]
    return [_plain(update) for event in known for update in projection.project(event, replayed=True)]


def _plain(value: object) -> Any:
    return json.loads(msgspec.json.encode(value, enc_hook=sorted))
