"""Requests that an agent makes of its client: permissions, files, terminals, questions."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import msgspec

from makai.wire.acp.common import NameValue, Wire
from makai.wire.acp.updates import ToolCallFields

PermissionKind: TypeAlias = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class PermissionOption(Wire, frozen=True, kw_only=True):
    option_id: str
    name: str
    kind: PermissionKind


class RequestPermissionRequest(Wire, frozen=True, kw_only=True):
    session_id: str
    tool_call: ToolCallFields
    options: tuple[PermissionOption, ...]


class ReceivedOption(Wire, frozen=True, kw_only=True):
    option_id: str
    name: str
    kind: str
    """One that a newer version added is no reason to refuse the others."""


class ReceivedPermissionRequest(Wire, frozen=True, kw_only=True):
    """As an agent sends it."""

    session_id: str
    tool_call: ToolCallFields
    options: tuple[ReceivedOption, ...]

    def usable_options(self) -> tuple[PermissionOption, ...]:
        """The options whose choice has one known meaning: an unknown kind has none, an id with two kinds has two."""
        kinds: dict[str, set[str]] = {}
        for option in self.options:
            kinds.setdefault(option.option_id, set()).add(option.kind)
        first = {option.option_id: option for option in reversed(self.options)}
        known = get_args(PermissionKind)
        return tuple(
            msgspec.convert(option, PermissionOption, from_attributes=True)
            for option in self.options
            if first[option.option_id] is option and option.kind in known and len(kinds[option.option_id]) == 1
        )


class SelectedOutcome(Wire, frozen=True, kw_only=True, tag_field="outcome", tag="selected"):
    option_id: str


class CancelledOutcome(Wire, frozen=True, kw_only=True, tag_field="outcome", tag="cancelled"):
    pass


class RequestPermissionResponse(Wire, frozen=True, kw_only=True):
    outcome: SelectedOutcome | CancelledOutcome


class ReadTextFileRequest(Wire, frozen=True, kw_only=True):
    session_id: str
    path: str
    line: int | None = None
    """From 1."""
    limit: int | None = None


class ReadTextFileResponse(Wire, frozen=True, kw_only=True):
    content: str


class WriteTextFileRequest(Wire, frozen=True, kw_only=True):
    session_id: str
    path: str
    content: str


class CreateTerminalRequest(Wire, frozen=True, kw_only=True):
    session_id: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[NameValue, ...] = ()
    cwd: str | None = None
    output_byte_limit: int | None = None


class CreateTerminalResponse(Wire, frozen=True, kw_only=True):
    terminal_id: str


class TerminalRequest(Wire, frozen=True, kw_only=True):
    """terminal/output, terminal/wait_for_exit, terminal/kill and terminal/release."""

    session_id: str
    terminal_id: str


class TerminalExit(Wire, frozen=True, kw_only=True):
    """How a command ended; also the result of terminal/wait_for_exit."""

    exit_code: int | None = None
    signal: str | None = None


class TerminalOutput(Wire, frozen=True, kw_only=True):
    output: str
    truncated: bool
    exit_status: TerminalExit | None = None


class CreateElicitationRequest(Wire, frozen=True, kw_only=True):
    """Ask a person: a form with `requestedSchema`, or an address to open. It belongs to a session or to a request."""

    message: str
    mode: str
    requested_schema: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    elicitation_id: str | None = None
    url: str | None = None
    session_id: str | None = None
    tool_call_id: str | None = None
    request_id: int | str | msgspec.UnsetType | None = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.session_id is None and self.request_id is msgspec.UNSET:
            raise ValueError("a question belongs to a session or to a request")
        schema = self.requested_schema
        if self.mode == "form" and (isinstance(schema, msgspec.UnsetType) or bytes(schema)[:1] != b"{"):
            raise ValueError("a form has a `requestedSchema`")
        if self.mode == "url" and None in (self.elicitation_id, self.url):
            raise ValueError("an address to open has an `elicitationId` and a `url`")


class CreateElicitationResponse(Wire, frozen=True, kw_only=True):
    action: str
    """accept, decline or cancel."""
    content: dict[str, Any] | None = None


class CompleteElicitation(Wire, frozen=True, kw_only=True):
    """The notification elicitation/complete: what an address was opened for is done."""

    elicitation_id: str
