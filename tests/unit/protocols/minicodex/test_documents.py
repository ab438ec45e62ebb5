"""What is published about the protocol is what the code says: page and schema."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from support.minicodex import ANY_COMMAND, ANY_FRAME, DOCUMENT_FRAME
from support.minicodex_examples import DOCUMENT, examples, shown

from makai.protocols.minicodex.commands import ClientMessage
from makai.protocols.minicodex.frames import ServerMessage
from makai.protocols.minicodex.vocabulary import ErrorCode
from tools.schema import minicodex_client_schema, minicodex_server_schema
from tools.transcripts import renewed


@pytest.fixture(scope="module")
def document() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


def test_the_conversations_of_the_page_are_those_of_the_code(document: str) -> None:
    assert document == renewed(document, examples()), "run tests/support/minicodex_examples.py and review the change"


def test_the_page_shows_every_command_and_every_frame(document: str) -> None:
    kinds = {str(kind.__struct_config__.tag) for kind in (*get_args(ClientMessage), *get_args(ServerMessage))}

    assert {frame["type"] for frame in shown(document)} - {"dance"} == kinds


def test_every_frame_of_the_page_fits_the_schema(document: str) -> None:
    for frame in shown(document):
        assert ANY_FRAME.is_valid(frame) or ANY_COMMAND.is_valid(frame) or is_refused_there(frame), frame


def is_refused_there(frame: dict[str, object]) -> bool:
    return frame["type"] == "dance" or frame in (
        {"type": "send"},
        {"type": "send", "text": 7},
        {"type": "send", "text": "Hello!", "colour": "red"},
    )


def test_the_page_lists_every_error_code(document: str) -> None:
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", document, re.MULTILINE)) == set(get_args(ErrorCode))


@pytest.mark.req("MC-ENV-002")
def test_the_schema_says_what_needs_a_capability() -> None:
    client, server = minicodex_client_schema()["$defs"], minicodex_server_schema()["$defs"]

    assert {name for name, part in client.items() if "x-capability" in part} == {
        "SetMode",
        "SetModel",
        "SetAgent",
        "SetTitle",
        "Compact",
        "Undo",
        "Redo",
        "Withdraw",
        "Retry",
    }
    assert {name for name, part in server.items() if part.get("x-capability") == "streaming"} == {
        "AssistantTextDelta",
        "ReasoningDelta",
    }
    assert server["TurnDone"]["properties"]["usage"]["x-capability"] == "makai.1"


@pytest.mark.req("MC-ENV-001", "MC-ENV-002")
@pytest.mark.parametrize(
    "frame",
    [
        {"type": "accepted", "payload": {}},
        {"type": "accepted", "event_id": 7},
        {"type": "heartbeat"},
        {"type": "turn_done"},
        {"type": "turn_done", "event_id": 7, "stop_reason": "end_turn"},
        {"type": "title_changed", "event_id": 7, "title": "t"},
    ],
    ids=str,
)
def test_the_strict_schema_refuses_what_the_document_does_not_have(frame: dict[str, object]) -> None:
    assert not DOCUMENT_FRAME.is_valid(frame)
