"""The lines that Claude Code reads with `--input-format stream-json`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from makai.wire.acp import common as wire

_encoder = msgspec.json.Encoder()


def user_line(prompt: Sequence[wire.ContentBlock], uuid: str) -> bytes:
    """A prompt. One text alone stays a string: only so a command such as `/compact` is understood."""
    content: Any = [_block(block) for block in prompt]
    if len(content) == 1 and content[0]["type"] == "text":
        content = content[0]["text"]
    line = {
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
        "session_id": "",
        "uuid": uuid,
    }
    return _encoder.encode(line) + b"\n"


def control_request(request_id: str, subtype: str, fields: dict[str, Any]) -> bytes:
    request = {"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}}
    return _encoder.encode(request) + b"\n"


def control_response(request_id: str, response: dict[str, Any]) -> bytes:
    answer = {"subtype": "success", "request_id": request_id, "response": response}
    return _encoder.encode({"type": "control_response", "response": answer}) + b"\n"


def control_error(request_id: str, message: str) -> bytes:
    answer = {"subtype": "error", "request_id": request_id, "error": message}
    return _encoder.encode({"type": "control_response", "response": answer}) + b"\n"


def _block(block: wire.ContentBlock) -> dict[str, Any]:
    match block:
        case wire.TextBlock(text=text):
            return {"type": "text", "text": text}
        case wire.ImageBlock(data=data, mime_type=mime_type):
            return {"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": data}}
        case wire.ResourceLinkBlock(uri=uri, name=name):
            path = uri.removeprefix("file://")
            return {"type": "text", "text": f"@{path}" if path != uri else f"[{name}]({uri})"}
        case wire.EmbeddedResource(resource=held) if held.text is not None:
            return {"type": "text", "text": f'<resource uri="{held.uri}">\n{held.text}\n</resource>'}
        case wire.EmbeddedResource(resource=held):
            return {"type": "text", "text": f"[{held.uri}]"}
        case wire.AudioBlock():
            raise AssertionError("audio is not offered")
