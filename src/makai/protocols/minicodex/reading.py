"""Text from a client -> a command, or the error that answers it.

In: one text frame. Out: a Struct of `commands`, or a `Refusal`. Never an exception: whatever a client writes has an
answer (MC-CMD-007, MC-CMD-008, MC-ENV-003), and every answer names the field that was wrong.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec

from makai.core.errors import ParseError
from makai.protocols.minicodex import commands
from makai.protocols.minicodex.projection import Capabilities
from makai.protocols.minicodex.vocabulary import MAKAI, MAKAI_1, VERSION, ErrorCode, published_name
from makai.wire import strict_json

MAJOR: Final = VERSION.partition(".")[0]
_SEMVER: Final = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(?:[-+][0-9A-Za-z.+-]{0,100})?")
_PATH: Final = re.compile(r"at `\$\.([a-z_]+)")
_MAX_NAME: Final = 64


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a command was not taken."""

    code: ErrorCode
    message: str
    req_id: str | None = None
    details: dict[str, Any] | None = None


class _Shape(msgspec.Struct, frozen=True):
    """What a command consists of."""

    kind: type[Any]
    fields: frozenset[str]
    required: tuple[str, ...]
    makai_fields: frozenset[str]


def _shape(kind: type[msgspec.Struct]) -> _Shape:
    hints = get_type_hints(kind, include_extras=True)
    marked = {name for name, hint in hints.items() if get_origin(hint) is Annotated and MAKAI in hint.__metadata__}
    fields = msgspec.structs.fields(kind)
    return _Shape(
        kind,
        frozenset(field.name for field in fields) | {"type"},
        tuple(field.name for field in fields if field.required),
        frozenset(marked),
    )


_SHAPES: Final = {str(kind.__struct_config__.tag): _shape(kind) for kind in get_args(commands.ClientMessage)}


def read(data: str | bytes, capabilities: Capabilities) -> commands.ClientMessage | Refusal:
    """What the client says; `capabilities` are those it has named so far."""
    try:
        value = strict_json.decode(data)
    except ParseError as error:
        return Refusal(code="INVALID_COMMAND", message=error.message)
    if not isinstance(value, dict):
        return Refusal(code="INVALID_COMMAND", message="A command is a JSON object.")
    req_id = value.get("req_id")
    refusal = _Refusing(req_id if isinstance(req_id, str) else None)
    name = value.get("type")
    shape = _SHAPES.get(name) if isinstance(name, str) else None
    if shape is None:
        return refusal.of("INVALID_COMMAND", "There is no command of this type.", "type")
    has_makai = capabilities.makai or _declares_makai(value)
    if shape.kind in commands.MAKAI_COMMANDS and not has_makai:
        return refusal.of("INVALID_COMMAND", f"This command needs the capability {MAKAI_1}.", "type")
    for field in value:
        if field not in shape.fields:
            return refusal.of("BAD_ARGUMENT", f"{published_name(shape.kind.__name__)} has no such field.", field)
        if field in shape.makai_fields and not has_makai:
            return refusal.of("BAD_ARGUMENT", f"This field needs the capability {MAKAI_1}.", field)
    for field in shape.required:
        if field not in value:
            return refusal.of("MISSING_FIELD", f"{published_name(shape.kind.__name__)} needs this field.", field)
    return _converted(value, shape, refusal)


class _Refusing:
    """Makes refusals that name their command and field."""

    def __init__(self, req_id: str | None) -> None:
        self._req_id = req_id

    def of(self, code: ErrorCode, message: str, field: str | None = None, **details: Any) -> Refusal:
        if field is not None:
            details["field"] = field[:_MAX_NAME]
            message = f"{field[:_MAX_NAME]}: {message}"
        return Refusal(code=code, message=message, req_id=self._req_id, details=details or None)


def _declares_makai(value: dict[str, Any]) -> bool:
    """A resume may bring the capabilities that it needs."""
    named = value.get("client_capabilities")
    return value.get("type") == "resume" and isinstance(named, list) and MAKAI_1 in named


def _converted(value: dict[str, Any], shape: _Shape, refusal: _Refusing) -> commands.ClientMessage | Refusal:
    try:
        command: commands.ClientMessage = msgspec.convert(value, shape.kind)
    except msgspec.ValidationError as error:
        place = _PATH.search(str(error))
        return refusal.of("BAD_ARGUMENT", str(error).partition(" - at ")[0] + ".", place[1] if place else None)
    if isinstance(command, commands.HelloCommand | commands.ResumeCommand) and command.v is not None:
        version = _SEMVER.fullmatch(command.v)
        if version is None or version[1] != MAJOR:
            return refusal.of("BAD_ARGUMENT", f"This server speaks version {VERSION}.", "v", supported=[VERSION])
    return command
