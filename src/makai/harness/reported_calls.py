"""Describes calls of external agents for permission rules. Kind and arguments of a call are the agent's word."""

from __future__ import annotations

import shlex
from typing import Any, Final

import msgspec

from makai.core import session_events as ev
from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.tools.base import CallDescription, ToolKind
from makai.tools.permissions.rules import FetchCall, FileCall, PermissionRules, Rule, ShellCall

USER_INPUT_TOOLS: Final = ("AskUserQuestion",)
"""Tools that need a person, which an autonomous session does not have (DM-SPEC-014)."""
_KINDS: Final[dict[str, ToolKind]] = {
    "read": "read",
    "search": "search",
    "edit": "edit",
    "delete": "edit",
    "move": "edit",
    "execute": "execute",
    "fetch": "fetch",
    "think": "think",
}
_SUBJECTS: Final[dict[ToolKind, tuple[str, ...]]] = {
    "execute": ("command", "cmd"),
    "fetch": ("url",),
    "read": ("file_path", "path", "filePath"),
    "edit": ("file_path", "path", "filePath"),
}
_CONDITIONS: Final[dict[ToolKind, type[Rule]]] = {
    "execute": ShellCall,
    "fetch": FetchCall,
    "read": FileCall,
    "edit": FileCall,
}


def call_description(
    kind: str,
    arguments_json: str,
    *,
    title: str = "",
    locations: tuple[ev.FilePlace, ...] = (),
    diffs: tuple[ev.FileDiff, ...] = (),
    protected: bool = False,
    confinement: Confinement = SESSION_SANDBOX,
) -> CallDescription:
    known = _KINDS.get(kind, "edit" if diffs else "other")
    arguments = msgspec.json.decode(arguments_json)
    return CallDescription(
        kind=known,
        title=title,
        subject=_subject(arguments, known) if isinstance(arguments, dict) else "",
        locations=() if known == "execute" else locations,
        diffs=diffs,
        protected=protected,
        confinement=confinement,
    )


def is_unclear(rules: PermissionRules, description: CallDescription) -> bool:
    """Whether a rule forbids some calls of this kind, and the agent does not say which one this is."""
    condition = _CONDITIONS.get(description.kind)
    is_silent = not (description.subject or description.locations or description.diffs)
    return is_silent and condition is not None and any(isinstance(rule, condition) for rule in rules.deny)


def _subject(arguments: dict[str, Any], kind: ToolKind) -> str:
    for name in _SUBJECTS.get(kind, ()):
        match arguments.get(name):
            case str(text):
                return text
            case list(words) if all(isinstance(word, str) for word in words):
                return shlex.join(words)
    return ""
