"""A tool of an MCP server as one of ours, with a server that is played."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.orphan_trials import Silent, confining

from makai.core.content import Image, Text
from makai.core.errors import TransportError
from makai.core.request import ToolDefinition
from makai.core.session_events import Notice
from makai.tools.base import CallDescription, ToolOutcome, text_outcome
from makai.tools.mcp.config import Launch, McpConfig, Timing
from makai.tools.mcp.manager import McpManager, ServerStatus
from makai.tools.mcp.tools import CallResult, McpTool, OnProgress, ToolAnnotations, ToolListing, parts_of

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
        self.notices: tuple[Notice, ...] = ()

    async def call(self, tool: McpTool, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallResult:
        self.asked.append((tool.listing.name, arguments))
        for report in self.reports:
            on_progress(*report)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def take_notices(self) -> tuple[Notice, ...]:
        return self.notices


def said(text: str, **more: Any) -> CallResult:
    return CallResult(content=({"type": "text", "text": text},), **more)


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


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (said("hi"), text_outcome("hi")),
        (said("no such file", is_error=True), text_outcome("no such file", is_error=True)),
        (TransportError("It is gone."), text_outcome("srv: It is gone.", is_error=True)),
        (said("\ud800"), text_outcome("\ud800")),
    ],
    ids=["an answer", "an error of the tool", "a lost server", "odd text"],
)
async def test_the_answer_is_the_outcome(tmp_path: Path, answer: CallResult | Exception, outcome: ToolOutcome) -> None:
    server = Played(answer)

    assert await tool_of(server, tmp_path).run({"text": "hi"}, Silent()) == outcome
    assert server.asked == [("echo", {"text": "hi"})]


async def test_progress_is_shown_but_not_more_than_can_be_read(tmp_path: Path) -> None:
    server = Played(said(""))
    server.reports = [(1, 4, "one\x1b[2J"), (2, 4, "too soon")]
    watcher = Silent()

    await tool_of(server, tmp_path).run({}, watcher)

    assert watcher.heard == ["1 of 4: one\\x1b[2J\n"]


async def test_a_long_answer_is_cut_and_kept_in_a_file(tmp_path: Path) -> None:
    picture = {"type": "image", "data": "cG5n", "mimeType": "image/png"}
    answer = CallResult(content=({"type": "text", "text": "a" * 300_000}, picture, {"type": "text", "text": "end"}))

    outcome = await tool_of(Played(answer), tmp_path).run({}, Silent())

    text = outcome.content[0]
    assert isinstance(text, Text)
    assert text.text.endswith("a\nend")
    assert await asyncio.to_thread(Path(outcome.spill_path or "").read_text) == "a" * 300_000 + "\nend"
    assert outcome == ToolOutcome(
        content=(text, Image(data="cG5n", mime_type="image/png")),
        omitted_bytes=300_004 - 256 * 1024,
        spill_path=outcome.spill_path,
    )


PNG = base64.b64encode(b"png").decode()


def shown(*blocks: dict[str, Any], structured: Any = None) -> tuple[Text | Image, ...]:
    return parts_of(CallResult(content=blocks, structured_content=structured))


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "text", "text": "hello", "annotations": {"priority": 1}}, Text(text="hello")),
        ({"type": "image", "data": PNG, "mimeType": "image/png"}, Image(data=PNG, mime_type="image/png")),
        ({"type": "image", "data": PNG, "mimeType": "image/svg+xml"}, Text(text="[image/svg+xml, 3 bytes: not shown]")),
        ({"type": "image", "data": "???", "mimeType": "image/png"}, Text(text="[image/png that is not valid base64]")),
        ({"type": "audio", "data": PNG, "mimeType": "audio/wav"}, Text(text="[audio/wav, 3 bytes: not shown]")),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "words"}}, Text(text="words")),
        (
            {"type": "resource", "resource": {"uri": "file:///a", "blob": PNG, "mimeType": "image/png"}},
            Image(data=PNG, mime_type="image/png"),
        ),
        (
            {"type": "resource", "resource": {"uri": "file:///a", "blob": PNG}},
            Text(text="[application/octet-stream at file:///a, 3 bytes: not shown]"),
        ),
        (
            {"type": "resource_link", "uri": "file:///a", "name": "a", "mimeType": "text/plain"},
            Text(text="[resource: a, file:///a, text/plain]"),
        ),
        ({"type": "video", "data": ""}, Text(text="[content of an unknown kind: 'video']")),
        ({"type": "text"}, Text(text="[content of an unknown kind: 'text']")),
    ],
)
def test_every_kind_of_content_becomes_a_part(block: dict[str, Any], part: Text | Image) -> None:
    assert shown(block) == (part,)


def test_structured_content_is_told_as_json_unless_a_text_says_the_same() -> None:
    same = {"type": "text", "text": '{ "b": [1, 2] }'}
    other = {"type": "text", "text": "b is 1 and 2"}

    assert shown() == (Text(text="[no output]"),)
    assert shown(structured={"b": [1, 2]}) == (Text(text='{"b":[1,2]}'),)
    assert shown(same, structured={"b": [1, 2]}) == (Text(text='{ "b": [1, 2] }'),)
    assert shown(other, structured={"b": [1, 2]}) == (Text(text="b is 1 and 2"), Text(text='{"b":[1,2]}'))


def texts(*said: str) -> tuple[dict[str, Any], ...]:
    return tuple({"type": "text", "text": text} for text in said)


PICTURE = {"type": "image", "data": PNG, "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("blocks", "structured"),
    [
        (texts("the text"), {"result": "the text"}),
        (texts("a\nb"), {"content": "a\nb"}),
        (texts("a", "b"), {"content": "a\nb"}),
        (texts("a", "b"), {"result": ["a", "b"]}),
        (texts("3"), {"result": 3}),
        (texts('{"a": 1}', '{"a": 2}'), {"result": [{"a": 1}, {"a": 2}]}),
        (texts('{\n  "b": 1, "a": {}\n}'), {"a": {}, "b": 1}),
        (texts('{"b": 1}'), {"result": {"b": 1}}),
        ((PICTURE,), {"content": [PICTURE]}),
    ],
)
def test_structured_content_that_repeats_the_content_is_sent_once(blocks: Any, structured: Any) -> None:
    assert shown(*blocks, structured=structured) == shown(*blocks)


@pytest.mark.parametrize(
    ("blocks", "structured"),
    [
        ((), {"items": []}),
        (texts("1"), {"ok": True}),
        (texts("the text"), {"result": "the text", "more": 1}),
        (texts("a"), {"result": ["a", "b"]}),
        (texts("It is warm."), {"degrees": 25}),
    ],
)
def test_structured_content_that_says_more_is_sent_too(blocks: Any, structured: Any) -> None:
    said = () if not blocks else shown(*blocks)
    assert shown(*blocks, structured=structured) == (*said, Text(text=msgspec.json.encode(structured).decode()))


def test_pictures_beyond_twenty_are_only_named() -> None:
    parts = shown(*[{"type": "image", "data": PNG, "mimeType": "image/png"}] * 22)

    assert parts[:20] == (Image(data=PNG, mime_type="image/png"),) * 20
    assert parts[20:] == (Text(text="[image/png: not shown, there are more than 20 pictures]"),) * 2


def test_the_fingerprint_follows_everything_that_was_told_and_the_server() -> None:
    listing = ToolListing(
        name="x", description="d", input_schema={"a": 1, "b": 2}, annotations=ToolAnnotations(read_only_hint=True)
    )
    replace = msgspec.structs.replace
    others = [
        replace(listing, name="y"),
        replace(listing, title="t"),
        replace(listing, description="e"),
        replace(listing, input_schema={"a": 1, "b": 3}),
        replace(listing, output_schema={}),
        replace(listing, annotations=None),
        replace(listing, annotations=ToolAnnotations(read_only_hint=False)),
    ]

    assert listing.fingerprint("s") == replace(listing, input_schema={"b": 2, "a": 1}).fingerprint("s")
    assert len({one.fingerprint("s") for one in (listing, *others)} | {listing.fingerprint("t")}) == 9


@pytest.mark.parametrize(
    ("given", "title", "read_only"),
    [
        ({}, "n", False),
        ({"annotations": ToolAnnotations(title="a")}, "a", False),
        ({"annotations": ToolAnnotations(title="a", read_only_hint=False), "title": "t"}, "t", False),
        ({"annotations": ToolAnnotations(read_only_hint=True)}, "n", True),
    ],
)
def test_the_title_is_the_first_given_and_a_tool_only_reads_when_its_server_says_so(
    given: dict[str, Any], title: str, read_only: bool
) -> None:
    listing = ToolListing(name="n", input_schema={}, **given)

    assert (listing.shown_title, listing.read_only) == (title, read_only)


@pytest.mark.parametrize("schema", [{"type": "object"}, {"properties": {}}, {}])
def test_a_schema_is_always_an_object_with_properties(schema: dict[str, Any]) -> None:
    assert ToolListing(name="n", input_schema=schema).schema_json() == '{"type":"object","properties":{}}'


LAUNCH = Launch(
    environ={"PATH": "/bin", "LANG": "C", "OPENAI_API_KEY": "s3cret"},
    cwd="/",
    confined=confining(),
    spill_directory=Path("/nowhere"),
)


async def test_entries_that_cannot_be_used_are_shown_as_failed() -> None:
    async with McpManager(McpConfig(problems={"bad": "It has no url."}), LAUNCH) as manager:
        assert manager.statuses() == (ServerStatus(name="bad", state="failed", reason="It has no url."),)
        assert manager.tools() == ()
        assert await manager.settled(0)


async def test_closing_what_was_never_started_is_fine() -> None:
    manager = McpManager(McpConfig(), LAUNCH)

    await manager.close()
    await manager.close()


def test_a_server_gets_what_it_cannot_run_without_and_what_is_its_own() -> None:
    assert LAUNCH.environment({"TOKEN": "t", "LANG": "de"}) == {"PATH": "/bin", "LANG": "de", "TOKEN": "t"}


def test_retries_come_slower_and_slower_up_to_a_bound() -> None:
    timing = Timing(first_retry_s=0.5, longest_retry_s=3.0)

    assert [timing.retry_after(failures) for failures in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]
