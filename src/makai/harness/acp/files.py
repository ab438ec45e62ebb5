"""Serves files to a driven agent: fs/read_text_file and fs/write_text_file.

Everything goes through the session's `FileSystem`, so its folders, hidden and protected files hold. Text is exact in
both directions: line ends stay as they are, and a file that is not UTF-8 is refused, since it would not survive.
"""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from makai.core.errors import InvalidRequest
from makai.core.session_events import FileDiff
from makai.harness.acp.served_calls import ServedCalls
from makai.tools.base import CallDescription
from makai.tools.edit import MAX_BYTES, WriteTool
from makai.tools.file_errors import FileRefused, printable
from makai.tools.files import MAX_READ_S, ReadTool, skip_lines
from makai.tools.permissions.rules import denied_paths
from makai.tools.ports import FileSystem
from makai.tools.workspace import OpenedFile
from makai.wire import json_rpc
from makai.wire.acp.client_calls import ReadTextFileRequest, ReadTextFileResponse, WriteTextFileRequest
from makai.wire.acp.common import Empty
from makai.wire.json_rpc_errors import RpcError

_MAX_EXPECTED: Final = 100


class AgentFiles:
    """The files of one driven agent."""

    def __init__(self, files: FileSystem, calls: ServedCalls) -> None:
        self._files = files
        self._calls = calls
        self._expected: deque[FileDiff] = deque(maxlen=_MAX_EXPECTED)

    def expect(self, diffs: Sequence[FileDiff]) -> None:
        """Changes that a person approved when the agent asked for permission: each is written once without a second
        question, if it is exactly the one that was shown."""
        self._expected.extend(diffs)

    async def read_text_file(self, request: ReadTextFileRequest) -> ReadTextFileResponse:
        """The lines from `line` on, at most `limit`; "" after the last line."""
        check_absolute(request.path)
        tool = ReadTool(self._files, denied_paths(self._calls.rules, "Read"))

        def read(file: OpenedFile) -> str:
            tool.check(file, request.path)
            return _text(file.stream, request)

        async with self._calls.allowed(tool, {"path": request.path}):
            return ReadTextFileResponse(content=await self._files.read(request.path, read))

    async def write_text_file(self, request: WriteTextFileRequest) -> Empty:
        """Create a file, with missing folders, or replace all of it."""
        check_absolute(request.path)
        tool = WriteTool(self._files, denied_paths(self._calls.rules, "Read", "Edit", "Write"))
        arguments = {"path": request.path, "content": request.content}
        async with self._calls.allowed(tool, arguments, self._take_expected) as call:
            call.outcome = await tool.run(arguments, _Silent(call.fact.call_id))
            if call.outcome.is_error:
                raise FileRefused("".join(getattr(part, "text", "") for part in call.outcome.content))
        return Empty()

    def _take_expected(self, description: CallDescription) -> bool:
        if description.protected or len(description.diffs) != 1:
            return False
        (change,) = description.diffs
        found = next((diff for diff in self._expected if _is_shown(diff, change)), None)
        if found is not None:
            self._expected.remove(found)
        return found is not None


class _Silent:
    def __init__(self, call_id: str) -> None:
        self.call_id = call_id

    def progress(self, text: str) -> None:
        """Writing a file reports nothing on its way."""


def _is_shown(shown: FileDiff, change: FileDiff) -> bool:
    """Whether a person who saw `shown` saw this change: of the whole file, or of the one place where the text was."""
    if shown.path != change.path:
        return False
    if (shown.old_text, shown.new_text) == (change.old_text, change.new_text):
        return True
    old, part = change.old_text, shown.old_text
    if not old or not part:
        return False
    return old.count(part) == 1 and old.replace(part, shown.new_text) == change.new_text


def check_absolute(path: str) -> None:
    if not path.startswith("/"):
        raise RpcError(json_rpc.INVALID_PARAMS, f"{printable(path)} is not an absolute path.")


def _text(stream: io.BufferedReader, request: ReadTextFileRequest) -> str:
    data = _wanted_bytes(stream, request.line or 1, request.limit, time.monotonic() + MAX_READ_S)
    if len(data) > MAX_BYTES:
        hint = "Read it in parts, with `line` and `limit`."
        raise FileRefused(f"{printable(request.path)} is larger than {MAX_BYTES:,} bytes.", hint=hint)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        shown = printable(request.path)
        raise FileRefused(f"{shown} is not UTF-8 text: {error.reason} at byte {error.start:,}.") from None


def _wanted_bytes(stream: io.BufferedReader, line: int, limit: int | None, deadline: float) -> bytes:
    """The lines with their ends, or more than `MAX_BYTES` of them."""
    if line < 1 or (limit is not None and limit < 0):
        raise InvalidRequest("`line` counts from 1, and `limit` is not negative.")
    if skip_lines(stream, line - 1, deadline) is not None:
        return b""
    if limit is None:
        return stream.read(MAX_BYTES + 1)
    found = bytearray()
    while limit > 0 and len(found) <= MAX_BYTES and (piece := stream.readline(MAX_BYTES + 1 - len(found))):
        found += piece
        limit -= piece.endswith(b"\n")
    return bytes(found)
