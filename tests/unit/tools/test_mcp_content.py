"""What servers list and answer, in our words."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from makai.core.content import Image, Text
from makai.tools.mcp.tools import CallResult, ToolAnnotations, ToolListing, parts_of

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

    assert shown(structured={"b": [1, 2]}) == (Text(text='{"b":[1,2]}'),)
    assert shown(same, structured={"b": [1, 2]}) == (Text(text='{ "b": [1, 2] }'),)
    assert shown(other, structured={"b": [1, 2]}) == (Text(text="b is 1 and 2"), Text(text='{"b":[1,2]}'))


def test_an_empty_answer_says_so() -> None:
    assert shown() == (Text(text="[no output]"),)


def test_pictures_beyond_twenty_are_only_named() -> None:
    parts = shown(*[{"type": "image", "data": PNG, "mimeType": "image/png"}] * 22)

    assert parts[:20] == (Image(data=PNG, mime_type="image/png"),) * 20
    assert parts[20:] == (Text(text="[image/png: not shown, there are more than 20 pictures]"),) * 2


@pytest.mark.parametrize(
    ("annotations", "read_only"),
    [
        (None, False),
        (ToolAnnotations(), False),
        (ToolAnnotations(read_only_hint=True), True),
        (ToolAnnotations(read_only_hint=False), False),
    ],
)
def test_a_tool_only_reads_when_its_server_says_so(annotations: ToolAnnotations | None, read_only: bool) -> None:
    assert ToolListing(name="x", input_schema={}, annotations=annotations).read_only == read_only


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


def test_the_title_is_the_first_that_is_given() -> None:
    assert ToolListing(name="n", input_schema={}).shown_title == "n"
    assert ToolListing(name="n", input_schema={}, annotations=ToolAnnotations(title="a")).shown_title == "a"
    assert ToolListing(name="n", title="t", input_schema={}, annotations=ToolAnnotations(title="a")).shown_title == "t"


def test_a_schema_is_always_an_object_with_properties() -> None:
    assert ToolListing(name="n", input_schema={"type": "object"}).schema_json() == '{"type":"object","properties":{}}'
    assert (
        ToolListing(name="n", input_schema={"properties": {"a": {}}}).schema_json()
        == '{"type":"object","properties":{"a":{}}}'
    )
