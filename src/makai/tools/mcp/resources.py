"""The resources of an MCP server as two more tools of it: `list_resources` and `read_resource`.

They are named and judged like every tool of the server, so that rules such as `mcp__docs__*` and grants cover them. A
server that has a tool of such a name itself keeps it. The SDK is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from makai.core.visible_text import one_line
from makai.tools.mcp.tools import CallResult, ToolAnnotations, ToolListing

MAX_LISTED: Final = 500
_MAX_LINE: Final = 500
_READS: Final = ToolAnnotations(read_only_hint=True)
LIST_RESOURCES: Final = ToolListing(
    name="list_resources",
    title="List resources",
    description="List the resources of this server (such as files, records or pages), one URI a line, and the "
    "templates of further URIs.",
    input_schema={"type": "object", "properties": {}},
    annotations=_READS,
)
READ_RESOURCE: Final = ToolListing(
    name="read_resource",
    title="Read resource",
    description="Read a resource of this server by a URI that list_resources gave, or that fills in a template.",
    input_schema={
        "type": "object",
        "properties": {"uri": {"type": "string", "minLength": 1, "maxLength": 8192}},
        "required": ["uri"],
    },
    annotations=_READS,
)


class ListedResource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A resource, or with `uri_template` a template of some."""

    uri: str = ""
    uri_template: str = ""
    name: str = ""
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None

    def line(self) -> str:
        facts = [self.mime_type or "", "" if self.size is None else f"{self.size:,} bytes"]
        words = [self.uri or f"template {self.uri_template}", self.name, *facts, self.description or ""]
        return one_line(", ".join(word for word in words if word), _MAX_LINE)


def listed(resources: Sequence[ListedResource], *, are_all: bool) -> CallResult:
    lines = [resource.line() for resource in resources[:MAX_LISTED]]
    if len(resources) > MAX_LISTED or not are_all:
        lines.append(f"[The server has more; these are the first {len(lines)}.]")
    return CallResult(content=({"type": "text", "text": "\n".join(lines) or "[no resources]"},))


def read(contents: Sequence[Mapping[str, Any]]) -> CallResult:
    """As the result of a call: texts and pictures are shown, other binary content is only described."""
    return CallResult(content=tuple({"type": "resource", "resource": dict(one)} for one in contents))
