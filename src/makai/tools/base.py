"""What a tool is.

In: nothing. Out: the contract between the agent loop and every tool, and the shapes of what a tool says about a call
and answers to it. No tool and no protocol is known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from makai.core.content import Image, Text
from makai.core.request import ToolDefinition

ToolKind: TypeAlias = Literal["read", "edit", "search", "execute", "think", "fetch", "other"]
"""What a call does to the world; clients show it, permission modes decide by it."""


class Location(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in a file that a call touches."""

    path: str
    line: int | None = None


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """What a call changes in a file. `old_text` is None for a new file."""

    path: str
    old_text: str | None
    new_text: str


class CallDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a call would do, told before it is done: for people who approve it and rules that match it."""

    kind: ToolKind
    title: str
    """One line, such as "Edit src/app.py"."""
    subject: str = ""
    """What permission rules match: the command of a shell call, the path of a file call, the URL of a fetch."""
    locations: tuple[Location, ...] = ()
    diffs: tuple[Diff, ...] = ()
    protected: bool = False
    """It writes a file that makes later commands run code (`tools.protected`): nobody but a person allows that."""


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tool answered."""

    content: tuple[Text | Image, ...]
    """For the model."""
    is_error: bool = False
    diffs: tuple[Diff, ...] = ()
    exit_code: int | None = None
    omitted_bytes: int = 0
    """How much output the model does not see; all of it is in `spill_path`."""
    spill_path: str | None = None
    details_json: str | None = None
    """For clients, beside what the model is told."""


class ToolContext(Protocol):
    """What the loop gives a tool for one call."""

    @property
    def call_id(self) -> str:
        """The call's id, unique in its session."""

    def progress(self, text: str) -> None:
        """Output as it arrives, for whoever watches."""


class Tool(Protocol):
    """Something a model may call. A tool keeps no state between calls but what it was made with."""

    definition: ToolDefinition

    def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
        """What this call would do; `InvalidRequest` when the arguments cannot be meant. Must not change anything."""

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Do it. Failures the model can react to are outcomes with `is_error`; cancellation leaves nothing behind."""


def text_outcome(text: str, *, is_error: bool = False) -> ToolOutcome:
    """An answer of plain text."""
    return ToolOutcome(content=(Text(text=text),), is_error=is_error)
