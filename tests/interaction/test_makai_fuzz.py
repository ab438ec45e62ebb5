"""Mutated frames over every transport: each is answered with a documented code, the server continues (MK-ENV-021)."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.peers import TRANSPORTS, Peer, open_peer
from support.profiles import FAULTS
from support.wire import JSON, ask, envelope, new_id

from makai.wire.strict_json import readable_members

FRAMES = 10_000 if FAULTS else 300
CODES = frozenset(
    [
        *("invalid_request", "model_not_found", "provider_error", "rate_limited", "internal_error", "not_implemented"),
        *("stream_not_found", "stream_already_exists", "version_mismatch"),
        *("invalid_sequence", "duplicate_sequence", "sequence_gap"),
        *("auth_required", "auth_expired", "auth_refresh_failed", "aborted", "overloaded", "context_overflow"),
    ]
)
STRANGE: list[Any] = [None, True, 0, -1, 2**63, 1e300, "", "x" * 5000, "\u2028", "é", [], [[[[]]]], {}, {"a": {"b": 1}}]


def originals(chance: random.Random) -> JSON:
    return chance.choice(
        [
            ask(),
            ask(encoding="proxy"),
            ask("complete_request"),
            envelope("models_request", {"provider_id": "scripted"}),
            envelope("abort_request", {"target_stream_id": new_id()}),
            envelope("ping"),
            envelope("auth_providers_request"),
            ask(fragment={"index": 0, "total": 1, "id": new_id()}),
        ]
    )


def mutate(value: JSON, chance: random.Random) -> bytes:
    """Drop, retype, add or cut something, once or several times."""
    target: Any = value
    for _ in range(chance.randint(1, 3)):
        holder = target
        while chance.random() < 0.5:
            inner = [item for item in holder.values() if isinstance(item, dict) and item]
            if not inner:
                break
            holder = chance.choice(inner)
        key = chance.choice(list(holder)) if holder else "new"
        match chance.randint(0, 3):
            case 0:
                holder.pop(key, None)
            case 1:
                holder[key] = chance.choice(STRANGE)
            case 2:
                holder[f"x_{key}"] = chance.choice(STRANGE)
            case _:
                holder[key], holder["type"] = chance.choice(STRANGE), chance.choice(["ping", "start", "nack", "?"])
    frame = msgspec.json.encode(value)
    if chance.random() < 0.15:
        frame = frame[: chance.randrange(len(frame))]
    if chance.random() < 0.1:
        cut = chance.randrange(len(frame) + 1)
        frame = frame[:cut] + chance.choice([b"}", b",", b'"', b"\x00", b"\\ud800"]) + frame[cut:]
    return frame.decode("utf-8", "ignore").replace("\n", " ").encode()


def expected_reply(frame: bytes) -> str | None:
    """The message id an answer must name; None when only `unknown_envelope` can answer it."""
    try:
        value = msgspec.json.decode(frame)
    except (msgspec.DecodeError, ValueError, RecursionError):
        value = readable_members(frame)
    if not isinstance(value, dict):
        return None
    message_id = value.get("message_id")
    if not isinstance(message_id, str) or not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", message_id):
        return None
    fragment = value.get("fragment")
    if isinstance(fragment, dict) and isinstance(fragment.get("id"), str):
        return f"{message_id}|{fragment['id']}"
    return message_id


async def answered(peer: Peer, frame: bytes) -> None:
    """Send the frame and hear its answer; then hear the answer to a ping."""
    await peer.say(frame)
    expected = expected_reply(frame)
    while True:
        heard = await peer.hear()
        if heard["type"] == "error" and "stream_id" not in heard:
            assert (heard["code"], expected) == ("unknown_envelope", None), frame
            break
        if expected and heard.get("in_reply_to") in expected.split("|"):
            assert heard["type"] in ("ack", "nack", "pong"), frame
            if heard["type"] == "nack":
                assert heard["payload"]["error_code"] in CODES, frame
            break
    ping = envelope("ping")
    await peer.say(ping)
    while (await peer.hear()).get("in_reply_to") != ping["message_id"]:
        pass


@pytest.mark.proof("E1")
@pytest.mark.req("MK-ENV-021")
@pytest.mark.scaled
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_every_mutated_frame_is_answered(transport: str, tmp_path: Path, record_measure: Any) -> None:
    chance = random.Random(2026)
    async with open_peer(transport, {"MAKAI_HOME": str(tmp_path)}) as peer:
        for _ in range(FRAMES):
            frame = mutate(originals(chance), chance)
            if not frame.strip():
                continue  # a blank line is no frame (MK-TRANS-002)
            async with asyncio.timeout(60):
                await answered(peer, frame)
        frames = await peer.ask(ask(encoding="proxy"))
        while frames[-1]["type"] != "result":
            frames = await peer.hear_until("result")
    record_measure(f"mutated frames over {transport}", f"all {FRAMES} answered", f"{FRAMES} answered")
