"""Mends answers of MCP servers that the protocol does not allow, so that an odd tool or block does not cost the others:
the SDK refuses an answer as a whole. An answer that every version of the protocol allows is not changed."""

from __future__ import annotations

import logging
from typing import Any, Final

import mcp_types as types
import msgspec
from pydantic import BaseModel, TypeAdapter, ValidationError

from makai.tools.file_errors import printable

log = logging.getLogger(__name__)

_blocks: Final[TypeAdapter[Any]] = TypeAdapter(types.ContentBlock)
_tools: Final[TypeAdapter[Any]] = TypeAdapter(types.Tool)


def mend(message: BaseModel) -> None:
    """Mend the result of a `tools/list` or a `tools/call` in place; other messages are left alone."""
    if not isinstance(message, types.JSONRPCResponse):
        return
    result = message.result
    if isinstance(tools := result.get("tools"), list):
        result["tools"] = [tool for tool in map(_tool, tools) if tool is not None]
    if "structuredContent" in result or "content" in result:
        content = result.get("content")
        blocks = content if isinstance(content, list) else [] if content is None else [content]
        result["content"] = [_block(block) for block in blocks]
        if not isinstance(result.get("isError", False), bool):
            result["isError"] = bool(result["isError"])
        structured = result.get("structuredContent", {})
        if structured is None:
            del result["structuredContent"]
        elif not isinstance(structured, dict):
            result["structuredContent"] = {"result": structured}


def _block(block: Any) -> Any:
    """The block, or its JSON as text."""
    if isinstance(block, dict) and _is_valid(_blocks, block):
        return block
    return {"type": "text", "text": block if isinstance(block, str) else msgspec.json.encode(block).decode()}


def _tool(tool: Any) -> Any:
    """The tool with a schema of an object, without what is optional and wrong; None when it cannot be called."""
    if isinstance(tool, dict) and isinstance(tool.get("name"), str):
        tool = {**tool, "inputSchema": _object_schema(tool.get("inputSchema"))}
        output = tool.get("outputSchema")
        if not isinstance(output, dict) or output.get("type") != "object":
            tool.pop("outputSchema", None)
        if _is_valid(_tools, tool):
            return tool
        needed = {name: tool[name] for name in ("name", "description", "inputSchema") if name in tool}
        if not isinstance(needed.get("description", ""), str):
            del needed["description"]
        if _is_valid(_tools, needed):
            return needed
    log.info("An MCP server lists a tool that cannot be used: %s", printable(str(tool))[:200])
    return None


def _object_schema(schema: Any) -> dict[str, Any]:
    """Model APIs refuse every request with a tool whose arguments are not an object."""
    mended: dict[str, Any] = {**schema, "type": "object"} if isinstance(schema, dict) else {"type": "object"}
    if not isinstance(mended.get("properties", {}), dict):
        del mended["properties"]
    required = mended.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        del mended["required"]
    return mended


def _is_valid(kind: TypeAdapter[Any], value: dict[str, Any]) -> bool:
    try:
        kind.validate_python(value, by_name=False)
    except ValidationError:
        return False
    return True
