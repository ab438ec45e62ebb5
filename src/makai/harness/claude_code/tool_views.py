"""What a person sees of a call of Claude Code's tools: title, kind, places, changes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from makai.core.visible_text import one_line
from makai.wire.acp import updates
from makai.wire.acp.common import ImageBlock, TextBlock

MAX_TITLE_LENGTH: Final = 200
ASK_TOOL: Final = "AskUserQuestion"
PLAN_TOOL: Final = "TodoWrite"

OldText: TypeAlias = Callable[[str], str | None]
"""The present text of a file; None when there is none, or none that can be shown."""

_KINDS: Final[Mapping[str, updates.ToolKind]] = {
    "Bash": "execute", "BashOutput": "execute", "KillShell": "execute", "Monitor": "execute",
    "shell_command": "execute",
    "Read": "read", "NotebookRead": "read", "LS": "search", "Glob": "search", "Grep": "search", "ToolSearch": "search",
    "finder": "search", "glob": "search", "edit_file": "edit", "create_file": "edit",
    "Edit": "edit", "MultiEdit": "edit", "Write": "edit", "NotebookEdit": "edit",
    "WebFetch": "fetch", "WebSearch": "fetch", "web_search": "fetch", "read_web_page": "fetch",
    "Task": "think", "Agent": "think", "Skill": "think", PLAN_TOOL: "think", ASK_TOOL: "think",
    "EnterPlanMode": "switch_mode", "ExitPlanMode": "switch_mode",
}  # fmt: skip
_PATHS: Final = ("file_path", "notebook_path", "path")
_SUBJECTS: Final[Mapping[str, str]] = {
    "Glob": "pattern", "Grep": "pattern", "WebFetch": "url", "WebSearch": "query", "Task": "description",
    "Agent": "description", "Skill": "skill", "ToolSearch": "query",
}  # fmt: skip


class ToolView(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    kind: updates.ToolKind
    locations: tuple[updates.Location, ...] = ()
    diffs: tuple[updates.DiffItem, ...] = ()


def tool_view(name: str, raw: msgspec.Raw | msgspec.UnsetType, old_text: OldText) -> ToolView:
    given = members(raw)
    path = next((text for key in _PATHS if (text := text_of(given, key))), "")
    return ToolView(
        title=one_line(_title(name, given, path), MAX_TITLE_LENGTH),
        kind=_KINDS.get(name, "other"),
        locations=(updates.Location(path=path),) if path else (),
        diffs=_diffs(name, given, path, old_text),
    )


def members(raw: msgspec.Raw | msgspec.UnsetType) -> Mapping[str, Any]:
    """The arguments of a call; empty when they are no object."""
    value = None if isinstance(raw, msgspec.UnsetType) else msgspec.json.decode(raw)
    return value if isinstance(value, dict) else {}


def text_of(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key)
    return value if isinstance(value, str) else ""


def _title(name: str, given: Mapping[str, Any], path: str) -> str:
    if name.startswith("mcp__"):
        return name.removeprefix("mcp__").replace("__", ": ", 1)
    if name in ("Bash", "shell_command"):
        return text_of(given, "command") or name
    if name == "ExitPlanMode":
        return "Leave plan mode and begin to work"
    subject = text_of(given, _SUBJECTS[name]) if name in _SUBJECTS else path
    return f"{name} {subject}" if subject else name


def _diffs(name: str, given: Mapping[str, Any], path: str, old_text: OldText) -> tuple[updates.DiffItem, ...]:
    if not path:
        return ()
    if name in ("Write", "create_file"):
        new = given.get("content")
        return (updates.DiffItem(path=path, old_text=old_text(path), new_text=new),) if isinstance(new, str) else ()
    edits = given.get("edits") if name == "MultiEdit" else [given] if name in ("Edit", "edit_file") else ()
    found: list[updates.DiffItem] = []
    for edit in edits if isinstance(edits, list) else ():
        if isinstance(edit, dict):
            old = text_of(edit, "old_string") or text_of(edit, "old_str")
            new = text_of(edit, "new_string") or text_of(edit, "new_str")
            found.append(updates.DiffItem(path=path, old_text=old or None, new_text=new))
    return tuple(found)


def plan_of(raw: msgspec.Raw | msgspec.UnsetType) -> updates.PlanUpdate | None:
    """The plan that a call of `TodoWrite` sets; None when it cannot be read."""
    todos = members(raw).get("todos")
    entries = [
        {"content": todo.get("content"), "priority": "medium", "status": todo.get("status")}
        for todo in (todos if isinstance(todos, list) else ())
        if isinstance(todo, dict)
    ]
    try:
        return updates.PlanUpdate(entries=msgspec.convert(entries, tuple[updates.PlanItem, ...])) if entries else None
    except msgspec.ValidationError:
        return None


def result_content(content: Any) -> tuple[updates.ToolCallContent, ...]:
    """The content of a tool's result: text, or a list of blocks."""
    if isinstance(content, str):
        return (updates.ContentItem(content=TextBlock(text=content)),) if content else ()
    items: list[updates.ToolCallContent] = []
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        source = block.get("source")
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            items.append(updates.ContentItem(content=TextBlock(text=block["text"])))
        elif block.get("type") == "image" and isinstance(source, dict) and isinstance(source.get("data"), str):
            image = ImageBlock(data=source["data"], mime_type=str(source.get("media_type") or "image/png"))
            items.append(updates.ContentItem(content=image))
        else:
            items.append(updates.ContentItem(content=TextBlock(text=msgspec.json.encode(block).decode())))
    return tuple(items)
