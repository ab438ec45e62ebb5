"""Items of a Codex turn as tool calls of ACP. Pure."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any, Final, NamedTuple

import msgspec

from makai.core.visible_text import one_line
from makai.harness.codex.messages import CodexItem, CommandAction, FileUpdate
from makai.wire.acp import updates as wire
from makai.wire.acp.common import ImageBlock, TextBlock

MAX_TITLE_LENGTH: Final = 300
_LOOKING: Final = frozenset({"read", "listFiles", "search"})
_HUNK: Final = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_PLAIN_CALLS: Final = {
    "webSearch": ("Search the web", "fetch"),
    "imageView": ("Look at", "read"),
    "imageGeneration": ("Generate an image", "other"),
}
CALLS: Final = frozenset(
    {"commandExecution", "fileChange", "mcpToolCall", "dynamicToolCall", "collabAgentToolCall", *_PLAIN_CALLS}
)
"""Types of items that are shown as calls of a tool."""
_AGENT_TOOLS: Final = {
    "spawnAgent": "Start an agent",
    "sendInput": "Write to an agent",
    "sendMessage": "Write to an agent",
    "followupTask": "Give an agent a further task",
    "resumeAgent": "Resume an agent",
    "wait": "Wait for agents",
    "closeAgent": "Close an agent",
    "interruptAgent": "Interrupt an agent",
    "listAgents": "List the agents",
}


class CallShape(NamedTuple):
    """What is known of a call when it begins."""

    title: str
    name: str
    kind: wire.ToolKind
    raw_input: msgspec.Raw
    locations: tuple[wire.Location, ...] = ()
    content: tuple[wire.ToolCallContent, ...] | None = None


def shape_of(item: CodexItem) -> CallShape:
    """How a call is shown; for types in `CALLS`."""
    match item.type:
        case "commandExecution":
            return command_shape(item.command, item.cwd, item.command_actions)
        case "fileChange":
            return change_shape(item.changes)
        case "mcpToolCall":
            kind: wire.ToolKind = "read" if item.read_only_hint else "other"
            name = f"mcp__{item.server}__{item.tool}"
            return CallShape(f"{item.server}: {item.tool}", name, kind, _arguments(item))
        case "dynamicToolCall":
            name = f"{item.namespace}__{item.tool}" if item.namespace else item.tool
            return CallShape(name, name, "other", _arguments(item))
        case "collabAgentToolCall":
            title = _AGENT_TOOLS.get(item.tool, item.tool)
            given = {"prompt": item.prompt} | ({"agents": item.receiver_thread_ids} if item.receiver_thread_ids else {})
            what = f"{title}: {one_line(item.prompt, MAX_TITLE_LENGTH)}" if item.prompt else title
            return CallShape(what, item.tool, "other", raw(given))
        case _:
            title, plain_kind = _PLAIN_CALLS[item.type]
            what = item.query or item.path
            title = f"{title}: {one_line(what, MAX_TITLE_LENGTH)}" if what else title
            given = {"query": item.query} if item.query else {"path": item.path} if item.path else {}
            places = tuple(wire.Location(path=path) for path in (item.path, item.saved_path) if path)
            return CallShape(title, item.type, plain_kind, raw(given), places)  # type: ignore[arg-type]


def command_shape(command: str, cwd: str, actions: tuple[CommandAction, ...] = ()) -> CallShape:
    kinds = {action.type for action in actions}
    kind: wire.ToolKind = "execute"
    if kinds and kinds <= _LOOKING:
        kind = "read" if kinds == {"read"} else "search"
    paths = (action.path for action in actions if action.path)
    places = tuple(wire.Location(path=os.path.join(cwd, path)) for path in paths)
    title = one_line(plain_command(command), MAX_TITLE_LENGTH)
    return CallShape(title, "shell", kind, raw({"command": command, "cwd": cwd}), places)


def change_shape(changes: tuple[FileUpdate, ...]) -> CallShape:
    names = ", ".join(os.path.basename(change.path) for change in changes)
    kind: wire.ToolKind = "edit"
    if any(change.kind.type == "delete" for change in changes):
        kind = "delete"
    elif any(change.kind.move_path for change in changes):
        kind = "move"
    verb = {"edit": "Edit", "delete": "Delete", "move": "Move"}[kind]
    paths = [path for change in changes for path in (change.path, change.kind.move_path) if path]
    return CallShape(
        one_line(f"{verb} {names}" if names else "Edit files", MAX_TITLE_LENGTH),
        "apply_patch",
        kind,
        raw({"changes": changes}),
        tuple(wire.Location(path=path) for path in paths),
        tuple(item for change in changes for item in _diffs(change)),
    )


def result_of(item: CodexItem) -> wire.ToolCallUpdate:
    """How a call ended."""
    is_failed = item.status in ("failed", "declined", "interrupted") or bool(item.exit_code) or item.success is False
    content: tuple[wire.ToolCallContent, ...] | None = None
    details: dict[str, Any] = {}
    match item.type:
        case "commandExecution":
            details = {"exitCode": item.exit_code, "durationMs": item.duration_ms}
            words = item.aggregated_output or (f"Exit code {item.exit_code}." if item.exit_code else "")
            content = text_content(words)
        case "fileChange":
            content = change_shape(item.changes).content
        case "mcpToolCall" | "dynamicToolCall":
            content = _result_content(item)
        case _:
            content = None
    if item.status == "declined":
        content = (*(content or ()), *text_content("The call was declined."))
    return wire.ToolCallUpdate(
        tool_call_id=item.id,
        status="failed" if is_failed else "completed",
        content=content,
        raw_output=raw(details) if details and content else msgspec.UNSET,
    )


def text_content(text: str) -> tuple[wire.ToolCallContent, ...]:
    return (wire.ContentItem(content=TextBlock(text=text)),) if text else ()


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def plain_command(command: str) -> str:
    """The command without the shell that Codex runs it with."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    is_shell = len(words) == 3 and os.path.basename(words[0]) in ("bash", "sh", "zsh") and words[1] in ("-c", "-lc")
    return words[2] if is_shell else command


def reasoning_of(item: CodexItem) -> str:
    """The summary of a reasoning item, or its text if it has no summary."""
    if item.summary:
        return "\n\n".join(item.summary)
    try:
        return "".join(msgspec.json.decode(item.content, type=tuple[str, ...])) if item.content else ""
    except msgspec.DecodeError:
        return ""


def _arguments(item: CodexItem) -> msgspec.Raw:
    return item.arguments if bytes(item.arguments) not in (b"", b"null") else raw({})


def _result_content(item: CodexItem) -> tuple[wire.ToolCallContent, ...]:
    if item.error is not None:
        return text_content(item.error.message or "The call failed.")
    blocks: Any = item.content_items or ()
    if bytes(item.result)[:1] == b"{":
        result = msgspec.json.decode(item.result)
        blocks = result.get("content") or ()
        if not blocks and result.get("structuredContent") is not None:
            return text_content(msgspec.json.encode(result["structuredContent"]).decode())
    found: list[wire.ToolCallContent] = []
    for block in blocks if isinstance(blocks, list | tuple) else ():
        found += _block(block)
    return tuple(found)


def _block(block: Any) -> tuple[wire.ToolCallContent, ...]:
    if not isinstance(block, dict):
        return text_content(msgspec.json.encode(block).decode())
    if isinstance(text := block.get("text"), str):
        return text_content(text)
    data, mime_type = block.get("data"), block.get("mimeType")
    if block.get("type") == "image" and isinstance(data, str) and isinstance(mime_type, str):
        return (wire.ContentItem(content=ImageBlock(data=data, mime_type=mime_type)),)
    return text_content(msgspec.json.encode(block).decode())


def _diffs(change: FileUpdate) -> list[wire.ToolCallContent]:
    """One diff per hunk: Codex shows what it changes, not the whole file."""
    match change.kind.type:
        case "add":
            return [wire.DiffItem(path=change.path, new_text=change.diff)]
        case "delete":
            return [wire.DiffItem(path=change.path, old_text=change.diff, new_text="")]
    found: list[wire.ToolCallContent] = []
    old: list[str] = []
    new: list[str] = []
    is_inside = False

    def end() -> None:
        if old or new:
            found.append(wire.DiffItem(path=change.path, old_text="".join(old), new_text="".join(new)))
        old.clear()
        new.clear()

    for line in _LINE.findall(change.diff):
        if _HUNK.match(line):
            end()
            is_inside = True
        elif is_inside and line[0] in " +-":
            if line[0] != "+":
                old.append(line[1:])
            if line[0] != "-":
                new.append(line[1:])
        elif not line.startswith("\\"):
            is_inside = False
    end()
    return found or list(text_content(change.diff))
