"""The protocol document says what servers say: its transcripts, code and lists are compared with the real thing."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from makai.core.errors import MakaiError, RefusalCode
from makai.protocols.makai.agent_payloads import AGENT_CLIENT_PAYLOADS, AGENT_SERVER_PAYLOADS
from makai.protocols.makai.framing import SequenceFault
from makai.protocols.makai.payloads import CLIENT_PAYLOADS, SERVER_PAYLOADS
from makai.protocols.makai.projection import wire_code
from makai.protocols.makai.tool_payloads import TOOL_CLIENT_PAYLOADS, TOOL_SERVER_PAYLOADS
from tools.transcripts import DOCUMENT, MARKED, renewed, transcripts

JSON = dict[str, Any]

NOT_ON_THE_WIRE = {"rpc_error", "transport_error", "no_provider", "unsupported"}
"""Errors of JSON-RPC have codes of their own; a client raises the second one when there is no connection; the contract
of harnesses has the last two for programs that use it."""


@pytest.fixture(scope="module")
def document() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("curl") is None, reason="the transcripts of HTTP are made with curl")
def test_the_transcripts_are_what_servers_say_today(document: str) -> None:
    assert document == renewed(document, asyncio.run(transcripts())), "run `make docs` and review the change"


def test_every_transcript_has_exactly_one_place() -> None:
    page = "<!-- transcript:one -->\nold\n<!-- /transcript -->\n"

    assert renewed(page, {"one": "new\n"}) == "<!-- transcript:one -->\nnew\n<!-- /transcript -->\n"
    for wrong in ({}, {"two": ""}, {"one": "", "two": ""}):
        with pytest.raises(ValueError, match="places"):
            renewed(page, wrong)
    with pytest.raises(ValueError, match="places"):
        renewed(page + page, {"one": ""})


def test_the_documented_reconstruction_gives_the_message_of_full_encoding(document: str) -> None:
    full = heard(document, "stream-full")[-1]["payload"]

    assert rebuild(document, heard(document, "stream-proxy")) == full


def test_the_documented_reconstruction_keeps_thinking_and_tool_calls(document: str) -> None:
    message = rebuild(document, heard(document, "tool-call"))

    assert [part for part in message["content"] if part["type"] != "tool_call"] == [
        {"type": "thinking", "thinking": "I should look it up.", "thinking_signature": "c2lnbmVk"},
        {"type": "text", "text": "One moment."},
    ]
    assert json.loads(message["content"][2]["arguments_json"]) == {"city": "Paris"}
    assert message["stop_reason"] == "tool_use"


def test_the_documented_reconstruction_keeps_what_came_before_a_failure(document: str) -> None:
    assert rebuild(document, heard(document, "failure")) == {
        "role": "assistant",
        "content": [{"type": "text", "text": "Hel"}],
        "stop_reason": "error",
        "error_message": "Slow down, please.",
    }


def test_every_message_type_and_every_code_is_documented(document: str) -> None:
    codes = {wire_code(error.code) for error in error_classes()} - NOT_ON_THE_WIRE
    codes |= {wire_code(code) for code in get_args(RefusalCode)}
    agent_types = {*AGENT_CLIENT_PAYLOADS, *AGENT_SERVER_PAYLOADS}
    types = {*CLIENT_PAYLOADS, *SERVER_PAYLOADS, *agent_types, *TOOL_CLIENT_PAYLOADS, *TOOL_SERVER_PAYLOADS}
    names = {*types, *codes, *get_args(SequenceFault), "unknown_envelope"}

    assert sorted(name for name in names if f"`{name}`" not in document) == []


def error_classes(root: type[MakaiError] = MakaiError) -> Iterator[type[MakaiError]]:
    yield root
    for derived in root.__subclasses__():
        yield from error_classes(derived)


def heard(document: str, name: str) -> list[JSON]:
    """The envelopes a server sent in a transcript that elides nothing of interest."""
    (block,) = [match[0] for match in MARKED.finditer(document) if match[2] == name]
    lines = [line.removeprefix("← ") for line in block.splitlines() if line.startswith("← ")]
    return [json.loads(line.replace("{…}", "{}")) for line in lines]


def rebuild(document: str, frames: list[JSON]) -> JSON:
    code = re.search(r"```python\n(def rebuild.*?)```", document, re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1], names)
    message: JSON = names["rebuild"](frames)
    return message
