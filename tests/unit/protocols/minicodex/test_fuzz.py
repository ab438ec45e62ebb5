"""Whatever frames come in: each has one documented answer, and those that are refused change nothing."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_strategies import mutated_json, objects
from support.machine import RecordMeasure
from support.minicodex import ANY_COMMAND, BOTH, JSON, SESSION, Client, Room
from support.profiles import FAULTS, FUZZ_COUNT, examples

from makai.core.session_events import RunFinished
from makai.protocols.minicodex.commands import ClientMessage
from makai.protocols.minicodex.vocabulary import ErrorCode

FRAMES = FUZZ_COUNT if FAULTS else 1_000
CODES = frozenset(get_args(ErrorCode))
NAMES = [str(kind.__struct_config__.tag) for kind in get_args(ClientMessage)]
FIELDS = sorted({field for kind in get_args(ClientMessage) for field in kind.__struct_fields__})
STRANGE: list[Any] = [
    *(None, True, 0, 1, 7, -1, 2**63, 1e300, 1.5, "", "x" * 5_000, "\u202e", "é", [], [[[]]], {}, {"a": {"b": 1}}),
    *("c1", "c2", SESSION, "1.0.0", "2.0.0", "queue", "steer", "session", "plan", ["makai.1"], list(BOTH)),
]


VALID: list[JSON] = [
    {"type": "hello", "v": "1.0.0", "client_capabilities": list(BOTH)},
    {"type": "hello", "v": "1.2.0"},
    {"type": "resume", "last_seen_event_id": 1, "session_id": SESSION},
    {"type": "resume", "client_capabilities": list(BOTH)},
    {"type": "send", "text": "go", "client_msg_id": "m"},
    {"type": "send", "text": "go", "delivery": "queue", "images": [{"data": "aGk=", "mime_type": "image/png"}]},
    {"type": "approve", "call_id": "c1", "scope": "once", "digest": "d", "reason": "r"},
    {"type": "deny", "call_id": "c1"},
    {"type": "abort"},
    {"type": "get_snapshot", "include_transcript_window": True},
    {"type": "ping", "nonce": "n"},
    {"type": "set_mode", "mode": "plan"},
    {"type": "set_model", "model_ref": "a/b@c"},
    {"type": "set_title", "title": "t"},
    {"type": "compact", "instructions": "short"},
]


def fuzzed(chance: random.Random) -> bytes:
    """A command with none, one or several faults."""
    frame = dict(chance.choice(VALID))
    for _ in range(chance.choice([0, 0, 1, 1, 2, 3])):
        match chance.randint(0, 3):
            case 0:
                frame.pop(chance.choice(["type", *FIELDS]), None)
            case 1:
                frame[chance.choice([*FIELDS, "x", "payload"])] = chance.choice(STRANGE)
            case 2:
                frame["type"] = chance.choice([*NAMES, "welcome", "?"])
            case _:
                frame["req_id"] = chance.choice(STRANGE)
    data = msgspec.json.encode(frame)
    if chance.random() < 0.05:
        data = data[: chance.randrange(len(data))]
    if chance.random() < 0.05:
        cut = chance.randrange(len(data) + 1)
        data = data[:cut] + chance.choice([b"}", b",", b'"', b"\x00", b"\\ud800", b"\xff", b"[" * 100]) + data[cut:]
    return data


def answer(client: Client, data: bytes) -> str:
    """Send the frame; it must have exactly one answer, the first of what is not an event, and a refusal no effect."""
    room = client.room
    client.hear()
    before, log = room.view.snapshot(client.connection.capabilities), len(room.trial.log)
    heard = client.say_raw(data)
    replies = [frame for frame in heard if frame["type"] == "accepted" or is_refusal(frame)]
    assert len(replies) == 1, data
    assert heard[0] is replies[0], data
    if replies[0]["type"] == "error":
        assert replies[0]["code"] in CODES, data
        assert heard == replies, data
        assert len(room.trial.log) == log, data
        # A client whose cursor is too old asks for a snapshot next, with the capabilities that it named.
        if replies[0]["code"] != "RESYNC_REQUIRED":
            assert room.view.snapshot(client.connection.capabilities) == before, data
    else:
        ANY_COMMAND.validate(msgspec.json.decode(data))
    return str(replies[0]["type"])


def is_refusal(frame: JSON) -> bool:
    return frame["type"] == "error" and "event_id" not in frame


@pytest.mark.proof("E1")
@pytest.mark.req("MC-CMD-006", "MC-CMD-007", "MC-CMD-008", "MC-CMD-009", "MC-ENV-003")
@pytest.mark.scaled
@pytest.mark.timeout(7200 if FAULTS else 600)
def test_every_fuzzed_frame_has_a_documented_answer(record_measure: RecordMeasure) -> None:
    chance = random.Random(2026)
    room = Room()
    client = room.connect(*BOTH)
    answers = Counter[str]()
    for number in range(FRAMES):
        answers[answer(client, fuzzed(chance))] += 1
        if room.trial.state.active_run is not None and number % 20 == 0:
            room.trial.report(RunFinished(stop_reason="end_turn"))
        if number % 500 == 499:
            room.trial = Room().trial
            room.view = room.opened_view()
            client = room.connect(*chance.choice([(), BOTH]))
            client.names = BOTH
    found = f"{answers.total():,} ({answers['accepted']:,} accepted)"
    record_measure(f"MiniCodex: {FRAMES:,} fuzzed frames: answered as documented", f"{FRAMES:,}", found)
    assert set(answers) == {"accepted", "error"}
    assert answers["accepted"] > FRAMES / 10


@pytest.mark.req("MC-CMD-007")
@given(frames=st.lists(mutated_json() | objects.map(msgspec.json.encode), max_size=5))
@examples(100)
def test_arbitrary_text_is_answered(frames: list[bytes]) -> None:
    client = Room().client()
    for data in frames:
        assert answer(client, data) in ("accepted", "error")
