"""A tool of an MCP server as one of ours, with a server that is played."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from makai.core.content import Image, Text
from makai.core.errors import TransportError
from makai.core.request import ToolDefinition
from makai.tools.base import CallDescription, ToolOutcome, text_outcome
from makai.tools.mcp.tools import CallResult, McpTool, OnProgress, ToolAnnotations, ToolListing

ECHO = ToolListing(
    name="echo", title="Echo", description="Say it again.", input_schema={"properties": {"text": {"type": "string"}}}
)


class Played:
    """A server whose next answer is known."""

    name = "srv"

    def __init__(self, answer: CallResult | Exception) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.reports: list[tuple[float, float | None, str | None]] = []

    async def call(self, tool: McpTool, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallResult:
        self.asked.append((tool.listing.name, arguments))
        for report in self.reports:
            on_progress(*report)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Watcher:
    """Keeps what is shown."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    call_id = "call_1"

    def progress(self, text: str) -> None:
        self.seen.append(text)


def said(text: str, **more: Any) -> CallResult:
    return CallResult(content=({"type": "text", "text": text},), **more)


def only_file_in(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def tool_of(server: Played, tmp_path: Path, listing: ToolListing = ECHO) -> McpTool:
    return McpTool(server, "identity", listing, tmp_path)


def test_the_definition_is_what_the_server_lists(tmp_path: Path) -> None:
    tool = tool_of(Played(said("")), tmp_path)

    assert tool.definition == ToolDefinition(
        name="mcp__srv__echo",
        description="Say it again.",
        parameters_schema_json='{"type":"object","properties":{"text":{"type":"string"}}}',
    )
    assert tool.fingerprint == ECHO.fingerprint("identity")


async def test_a_call_is_described_by_its_title_and_arguments(tmp_path: Path) -> None:
    reads = ToolListing(name="r", input_schema={}, annotations=ToolAnnotations(read_only_hint=True))
    server = Played(said(""))
    tool, reading = tool_of(server, tmp_path), tool_of(server, tmp_path, reads)

    assert await tool.describe({"text": "a\nb\u202e", "n": [1]}) == CallDescription(
        kind="other", title='srv: Echo(text="a\\nb\\u202e", n=[1])', subject=tool.fingerprint[:32]
    )
    assert await reading.describe({}) == CallDescription(
        kind="read", title="srv: r()", subject=reading.fingerprint[:32]
    )
    assert len((await tool_of(server, tmp_path).describe({"text": "x" * 10_000})).title) == 123


async def test_an_answer_becomes_an_outcome(tmp_path: Path) -> None:
    server = Played(said("hi"))

    assert await tool_of(server, tmp_path).run({"text": "hi"}, Watcher()) == text_outcome("hi")
    assert server.asked == [("echo", {"text": "hi"})]


async def test_an_error_of_the_tool_is_an_error_of_the_outcome(tmp_path: Path) -> None:
    outcome = await tool_of(Played(said("no such file", is_error=True)), tmp_path).run({}, Watcher())

    assert outcome == text_outcome("no such file", is_error=True)


async def test_a_lost_server_is_an_error_the_model_can_read(tmp_path: Path) -> None:
    outcome = await tool_of(Played(TransportError("It is gone.")), tmp_path).run({}, Watcher())

    assert outcome == text_outcome("srv: It is gone.", is_error=True)


async def test_progress_is_shown_but_not_more_than_can_be_read(tmp_path: Path) -> None:
    server = Played(said(""))
    server.reports = [(1, 4, "one\x1b[2J"), (2, 4, "too soon")]
    watcher = Watcher()

    await tool_of(server, tmp_path).run({}, watcher)

    assert watcher.seen == ["1 of 4: one\\x1b[2J\n"]


async def test_a_long_answer_is_cut_and_kept_in_a_file(tmp_path: Path) -> None:
    picture = {"type": "image", "data": "cG5n", "mimeType": "image/png"}
    answer = CallResult(content=({"type": "text", "text": "a" * 300_000}, picture, {"type": "text", "text": "end"}))

    outcome = await tool_of(Played(answer), tmp_path).run({}, Watcher())

    text = outcome.content[0]
    assert isinstance(text, Text)
    assert text.text.endswith("a\nend")
    file = only_file_in(tmp_path)
    assert file.read_text() == "a" * 300_000 + "\nend"
    assert outcome == ToolOutcome(
        content=(text, Image(data="cG5n", mime_type="image/png")),
        omitted_bytes=300_004 - 256 * 1024,
        spill_path=str(file),
    )


@pytest.mark.parametrize("text", ["\ud800", "é" * 10])
async def test_odd_text_passes(tmp_path: Path, text: str) -> None:
    assert await tool_of(Played(said(text)), tmp_path).run({}, Watcher()) == text_outcome(text)
