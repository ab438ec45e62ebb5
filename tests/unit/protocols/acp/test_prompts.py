"""Prompts as content of a session, and back."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from makai.core.content import Audio, Image, Resource, ResourceLink, SessionPart, Text, content_for_model
from makai.protocols.acp.prompts import MAX_BLOCKS, MAX_PROMPT_BYTES, content_blocks, prompt_content
from makai.wire.acp.common import ContentBlock
from makai.wire.acp.connecting import PromptCapabilities
from makai.wire.json_rpc_errors import RpcError

ALL = PromptCapabilities(image=True, audio=True, embedded_context=True)
NONE = PromptCapabilities()


def blocks(*raw: dict[str, Any]) -> tuple[ContentBlock, ...]:
    return msgspec.convert(raw, tuple[ContentBlock, ...])


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def resource(uri: str = "file:///a", **contents: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, **contents}}


PNG = base64_of(b"\x89PNG")
CASES: list[tuple[dict[str, Any], SessionPart]] = [
    ({"type": "text", "text": "Hi"}, Text(text="Hi")),
    (
        {"type": "resource_link", "uri": "file:///a.py", "name": "a.py", "mimeType": "text/x-python"},
        ResourceLink(uri="file:///a.py", name="a.py", mime_type="text/x-python"),
    ),
    (
        {"type": "resource_link", "uri": "db:1", "name": "row", "title": "T", "description": "The row", "size": 3},
        ResourceLink(uri="db:1", name="row", title="T", description="The row", size=3),
    ),
    ({"type": "image", "data": PNG, "mimeType": "image/png"}, Image(data=PNG, mime_type="image/png")),
    ({"type": "audio", "data": PNG, "mimeType": "audio/wav"}, Audio(data=PNG, mime_type="audio/wav")),
    (
        resource(text="x = 1", mimeType="text/x-python"),
        Resource(uri="file:///a", text="x = 1", mime_type="text/x-python"),
    ),
    (
        resource(blob=base64_of(b"%PDF"), mimeType="application/pdf"),
        Resource(uri="file:///a", data=base64_of(b"%PDF"), mime_type="application/pdf"),
    ),
]


@pytest.mark.req("ACP-PROMPT-002", "ACP-PROMPT-003", "ACP-PROMPT-004", "ACP-PROMPT-005")
@pytest.mark.parametrize(("raw", "part"), CASES)
def test_a_block_becomes_a_part_and_comes_back_as_the_same_block(raw: dict[str, Any], part: SessionPart) -> None:
    taken = prompt_content(blocks({"type": "text", "text": "See"}, raw), ALL)

    assert taken == (Text(text="See"), part)
    assert msgspec.to_builtins(content_blocks([part])) == [raw]


@pytest.mark.req("ACP-PROMPT-002")
def test_text_and_links_are_always_taken_and_reach_the_model() -> None:
    taken = prompt_content(
        blocks(
            {"type": "text", "text": "Read", "annotations": None, "_meta": {"session_id": "evil"}},
            {"type": "resource_link", "uri": "file:///a.py", "name": "a.py", "size": 3, "title": None},
            {"type": "resource_link", "uri": "db:1", "name": "row", "description": "The first row"},
        ),
        NONE,
    )

    assert content_for_model(taken) == (
        Text(text="Read"),
        Text(text="[a.py](file:///a.py)"),
        Text(text="[row](db:1): The first row"),
    )


def test_a_single_text_is_a_plain_string_and_comes_back_as_one_block() -> None:
    assert prompt_content(blocks({"type": "text", "text": "Hi"}), NONE) == "Hi"
    assert msgspec.to_builtins(content_blocks("Hi")) == [{"type": "text", "text": "Hi"}]


@pytest.mark.req("ACP-PROMPT-003")
@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (
            resource(blob=base64_of(b"x = 1"), mimeType="text/x-python"),
            Text(text='<resource uri="file:///a">\nx = 1\n</resource>'),
        ),
        (resource(blob=base64_of(b"x = 1")), Text(text='<resource uri="file:///a">\nx = 1\n</resource>')),
        (resource(blob=base64_of(b"\xff")), Text(text="[The content of file:///a is not text.]")),
        (resource(blob=PNG, mimeType="image/png"), Image(data=PNG, mime_type="image/png")),
    ],
)
def test_embedded_bytes_reach_the_model_as_text_or_picture_where_they_are_one(
    raw: dict[str, Any], part: SessionPart
) -> None:
    assert content_for_model(prompt_content(blocks(raw), ALL)) == (part,)


@pytest.mark.req("ACP-PROMPT-003")
@pytest.mark.parametrize("raw", [raw for raw, _ in CASES[3:]])
def test_what_was_not_offered_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(RpcError, match=rf"prompt\[0\]: blocks of type {raw['type']} are not taken") as refused:
        prompt_content(blocks(raw), NONE)

    assert refused.value.rpc_code == -32602


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], "The prompt is empty."),
        ([{"type": "text", "text": " \n"}], "The prompt is empty."),
        ([{"type": "image", "data": "%%%", "mimeType": "image/png"}], "prompt[0]: the data is not valid base64."),
        ([{"type": "image", "data": "aGk", "mimeType": "image/png"}], "prompt[0]: the data is not valid base64."),
        ([{"type": "image", "data": "é", "mimeType": "image/png"}], "prompt[0]: the data is not valid base64."),
        ([{"type": "image", "data": "", "mimeType": "image/png"}], "prompt[0]: the image is empty."),
        ([{"type": "image", "data": PNG, "mimeType": "text/html"}], "prompt[0]: 'text/html' is no type of image."),
        ([{"type": "audio", "data": PNG, "mimeType": "image/png"}], "prompt[0]: 'image/png' is no type of audio."),
        ([resource(blob="%%%")], "prompt[0]: the data is not valid base64."),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(raw: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(RpcError) as refused:
        prompt_content(blocks(*raw), ALL)

    assert (refused.value.rpc_code, refused.value.message) == (-32602, message)


@pytest.mark.parametrize(
    "raw",
    [
        [{"type": "image", "data": "A" * 40 * 1024 * 1024, "mimeType": "image/png"}],
        [{"type": "text", "text": "é" * (MAX_PROMPT_BYTES // 2 + 1)}],
        [resource(text="x" * (MAX_PROMPT_BYTES // 2)), resource(blob="A" * (MAX_PROMPT_BYTES // 2 + 4))],
        [{"type": "text", "text": "x"}] * (MAX_BLOCKS + 1),
    ],
)
def test_a_prompt_that_is_too_large_is_refused(raw: list[dict[str, Any]]) -> None:
    with pytest.raises(RpcError, match=r"at most (12 MB|1,000) are taken") as refused:
        prompt_content(blocks(*raw), ALL)

    assert refused.value.rpc_code == -32602


def test_text_that_cannot_be_stored_is_made_storable() -> None:
    assert prompt_content(blocks({"type": "text", "text": "a\0b\ud800"}), NONE) == "a\ufffdb\ufffd"


def test_a_resource_without_any_content_is_still_a_valid_block() -> None:
    assert msgspec.to_builtins(content_blocks([Resource(uri="file:///a"), ResourceLink(uri="file:///b")])) == [
        resource(text=""),
        {"type": "resource_link", "uri": "file:///b", "name": "file:///b"},
    ]
