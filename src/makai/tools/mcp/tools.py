"""A tool of an MCP server, as one of ours.

In: what its server lists, and a way to call it. Out: a `Tool` whose answers are bounded, with a `fingerprint` for
whoever remembers approvals. It must not know the SDK, and holds no connection: a server that was started again in the
meantime is simply called.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from makai.core.content import Image, Text
from makai.core.errors import InvalidRequest, MakaiError
from makai.core.request import ToolDefinition
from makai.tools.base import CallDescription, ToolContext, ToolKind, ToolOutcome, text_outcome
from makai.tools.file_errors import printable
from makai.tools.mcp.content import CallResult, ToolListing, parts_of
from makai.tools.mcp.names import tool_name
from makai.tools.output import KEPT_BYTES, CappedOutput

OnProgress: TypeAlias = Callable[[float, float | None, str | None], None]
FINGERPRINT_SHOWN: Final = 32
"""So much of it stands in permission rules, which people read."""
_LONGEST_TITLE: Final = 120
_LONGEST_DESCRIPTION: Final = 10_000
_LONGEST_PROGRESS: Final = 500
_PROGRESS_EVERY_S: Final = 0.1
_CHUNK_BYTES: Final = 64 * 1024


class Caller(Protocol):
    """Whoever reaches the server."""

    name: str

    async def call(self, tool: McpTool, arguments: Mapping[str, Any], on_progress: OnProgress) -> CallResult:
        """Call it; a `MakaiError` when the server is gone, refuses, or now lists another tool under this name."""


class McpTool:
    """One tool of one server, as it was listed."""

    def __init__(self, caller: Caller, identity: str, listing: ToolListing, spill_directory: Path) -> None:
        self._caller = caller
        self._spill_directory = spill_directory
        self.listing = listing
        self.fingerprint = listing.fingerprint(identity)
        """What an approval of this tool is worth: when it differs, ask again (reliability T6)."""
        self.destructive = listing.destructive
        """Whether it must be taken for destructive. That it need not be is only its server's claim."""
        self.definition = ToolDefinition(
            name=tool_name(caller.name, listing.name),
            description=(listing.description or listing.shown_title)[:_LONGEST_DESCRIPTION],
            parameters_schema_json=listing.schema_json(),
        )

    def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
        """The tool and its arguments in one line. "read" is what its server claims."""
        if not all(isinstance(name, str) for name in arguments):
            raise InvalidRequest("The arguments are not a JSON object.")
        shown = ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in arguments.items())
        title = printable(f"{self._caller.name}: {self.listing.shown_title}({shown})")
        if len(title) > _LONGEST_TITLE:
            title = f"{title[:_LONGEST_TITLE]}..."
        kind: ToolKind = "read" if self.listing.read_only else "other"
        return CallDescription(kind=kind, title=title, subject=self.fingerprint[:FINGERPRINT_SHOWN])

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """What the server answers. When cancelled, the server is told to stop."""
        try:
            result = await self._caller.call(self, arguments, _Progress(context))
        except MakaiError as error:
            return text_outcome(f"{self._caller.name}: {error}", is_error=True)
        return await self._outcome(result)

    async def _outcome(self, result: CallResult) -> ToolOutcome:
        parts = parts_of(result)
        texts = [part.text.encode("utf-8", "replace") for part in parts if isinstance(part, Text)]
        if sum(map(len, texts)) <= KEPT_BYTES:
            return ToolOutcome(content=parts, is_error=result.is_error)
        output = CappedOutput(self._spill_directory)
        try:
            whole = b"\n".join(texts)
            for start in range(0, len(whole), _CHUNK_BYTES):
                await output.add(whole[start : start + _CHUNK_BYTES])
        finally:
            output.close()
        pictures = tuple(part for part in parts if isinstance(part, Image))
        return ToolOutcome(
            content=(Text(text=output.text()), *pictures),
            is_error=result.is_error,
            omitted_bytes=output.omitted,
            spill_path=str(output.spill_path) if output.spill_path else None,
        )


class _Progress:
    """Progress of a call as lines, not more than a watcher can read."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._told_at = float("-inf")

    def __call__(self, done: float, total: float | None, message: str | None) -> None:
        now = time.monotonic()
        if now - self._told_at < _PROGRESS_EVERY_S:
            return
        self._told_at = now
        amount = f"{done:g}" if total is None else f"{done:g} of {total:g}"
        words = f"{amount}: {printable(message[:_LONGEST_PROGRESS])}" if message else amount
        self._context.progress(f"{words}\n")
