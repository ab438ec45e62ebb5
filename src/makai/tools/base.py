"""The contract between the agent loop and every tool: what a tool says about a call, and what it answers.

One Struct for the arguments of a tool gives both the schema that the model sees and the check of what it wrote.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from makai.core.confinement import SESSION_SANDBOX, Confinement
from makai.core.content import Image, Text
from makai.core.errors import InvalidRequest, MakaiError
from makai.core.request import ToolDefinition
from makai.core.session_events import FileDiff, FilePlace, FileVersions, Notice

ToolKind: TypeAlias = Literal["read", "edit", "search", "execute", "think", "fetch", "other"]
"""What a call does to the world; clients show it, permission modes decide by it."""


class CallDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a call would do, for people who approve it and rules that match it."""

    kind: ToolKind
    title: str
    subject: str = ""
    """What permission rules match: the command of a shell call, the path of a file call, the URL of a fetch."""
    locations: tuple[FilePlace, ...] = ()
    diffs: tuple[FileDiff, ...] = ()
    protected: bool = False
    """It writes a file that makes later commands run code (`tools.protected`): only a person can allow that."""
    confinement: Confinement = SESSION_SANDBOX
    """What a command asks for beyond the session's sandbox."""
    asks: bool = False
    """The author of the tool wants a person to decide: no mode but `never_ask` allows it, only a rule."""
    asks_because: str = ""
    """Why this call is asked about, where that depends on its arguments."""
    problem: str = ""
    """Why it cannot be done, where that tells something about a file. The model learns it unless a rule forbids the
    call; no person is asked."""


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    content: tuple[Text | Image, ...]
    is_error: bool = False
    diffs: tuple[FileDiff, ...] = ()
    file_versions: tuple[FileVersions, ...] = ()
    """One for each of `diffs`."""
    exit_code: int | None = None
    only_looked: bool = False
    """It ran where it could write nothing but temporary files."""
    omitted_bytes: int = 0
    """How much output the model does not see; all of it is in `spill_path`."""
    spill_path: str | None = None
    details_json: str | None = None
    """For clients, beside what the model sees."""
    notices: tuple[Notice, ...] = ()
    """What people must know about the call, beside its result."""


class ToolContext(Protocol):
    @property
    def call_id(self) -> str:
        """The call's id, unique in its session."""

    def progress(self, text: str) -> None:
        """Output as it arrives, for the people who watch."""


class Tool(Protocol):
    """Something a model may call. A tool keeps no state between calls but what it was made with."""

    definition: ToolDefinition

    async def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
        """What this call would do; `InvalidRequest` when the arguments cannot be meant. Must not change anything."""

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Do it. Failures the model can react to are outcomes with `is_error`; cancellation leaves nothing behind."""


def text_outcome(text: str, *, is_error: bool = False) -> ToolOutcome:
    return ToolOutcome(content=(Text(text=text),), is_error=is_error)


ArgumentsT = TypeVar("ArgumentsT", bound=msgspec.Struct)


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every tool's arguments. A field the tool does not know is a mistake, not noise."""


class ArgumentsTool(ABC, Generic[ArgumentsT]):
    """A `Tool` with a Struct for its arguments. A `MakaiError` of `_run` is an outcome, so that the model can react."""

    shape: type[ArgumentsT]

    async def describe(self, arguments: Mapping[str, Any]) -> CallDescription:
        return await self._describe(parsed(arguments, self.shape))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        try:
            return await self._run(parsed(arguments, self.shape), context)
        except MakaiError as error:
            return text_outcome(str(error), is_error=True)

    @abstractmethod
    async def _describe(self, wanted: ArgumentsT) -> CallDescription: ...

    @abstractmethod
    async def _run(self, wanted: ArgumentsT, context: ToolContext) -> ToolOutcome: ...


def definition(name: str, description: str, arguments: type[msgspec.Struct]) -> ToolDefinition:
    """The tool as the model sees it; the schema has no references, which some model APIs do not follow."""
    (_, components) = msgspec.json.schema_components((arguments,), ref_template="{name}")
    schema = _without_references(components[arguments.__name__], components)
    return ToolDefinition(
        name=name, description=description, parameters_schema_json=msgspec.json.encode(schema).decode()
    )


def parsed(arguments: Mapping[str, Any], shape: type[ArgumentsT]) -> ArgumentsT:
    """The arguments as `shape`. Models write numbers and booleans as text at times; that is understood."""
    try:
        return msgspec.convert(arguments, type=shape, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"The arguments do not fit the tool: {error}.") from None


def _without_references(schema: Any, components: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_without_references(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _without_references(components[schema["$ref"]], components)
    return {
        key: _without_references(value, components)
        for key, value in schema.items()
        # The names and docstrings of our classes tell a model nothing.
        if not (key == "title" or (key == "description" and "properties" in schema))
    }
