"""What a client may say: text from a client -> a command, or the error that answers it -> a request to the owner.
Commands that only makai.1 has are in `MAKAI_COMMANDS`; fields that only it has carry `MAKAI`. All that a client writes
has an answer that names the field that was wrong (MC-CMD-007, MC-CMD-008, MC-ENV-003); nothing raises."""

from __future__ import annotations

import binascii
import re
from functools import partial
from typing import Annotated, Any, Final, TypeAlias, get_args

import msgspec

from makai.core.content import Image, Resource, SessionPart, Text
from makai.core.errors import ParseError
from makai.core.sanitize import is_clean
from makai.core.session_events import DecodedMode, Delivery, GrantScope, HasPermissionMode
from makai.harness.registry import harness_id_of
from makai.protocols.minicodex import vocabulary
from makai.protocols.minicodex.projection import NamedCapabilities, makai_fields
from makai.protocols.minicodex.vocabulary import (
    MAKAI,
    MAKAI_1,
    VERSION,
    AttachedText,
    ErrorCode,
    PastedImage,
    StrictPart,
)
from makai.sessions import commands as engine
from makai.wire import strict_json

_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*:[^\s\"<>]{1,2000}")


class WrongField(ValueError):
    """A field of a command has a value that its type allows and that still means nothing."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Command(StrictPart, frozen=True, kw_only=True, tag_field="type"):
    """Base of every command: the document's envelope. Every optional field may be null, which means absent."""

    v: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    event_id: int | None = None
    """Of no meaning in this direction; the document's envelope has it."""
    ts: str | None = None
    req_id: str | None = None


class HelloCommand(Command, frozen=True, kw_only=True, tag="hello"):
    v: str
    client_capabilities: tuple[str, ...] | None = None


class ResumeCommand(Command, frozen=True, kw_only=True, tag="resume"):
    """Go on after `last_seen_event_id`; a fresh load without it."""

    last_seen_event_id: int | None = None
    client_capabilities: Annotated[tuple[str, ...] | None, MAKAI] = None
    """Reconnecting takes one frame instead of two: as in `hello`."""


class SendCommand(Command, frozen=True, kw_only=True, tag="send"):
    text: str
    client_msg_id: str | None = None
    delivery: Annotated[Delivery | None, MAKAI] = None
    images: Annotated[tuple[PastedImage, ...] | None, MAKAI] = None
    files: Annotated[tuple[AttachedText, ...] | None, MAKAI] = None


class ApproveCommand(Command, frozen=True, kw_only=True, tag="approve"):
    call_id: str
    scope: Annotated[GrantScope | None, MAKAI] = None
    digest: Annotated[str | None, MAKAI] = None
    """Approve only these arguments (`approval_pending.digest`)."""
    reason: Annotated[str | None, MAKAI] = None
    grant: Annotated[str | None, MAKAI] = None
    """For a wider scope: the chosen one of `approval_pending.grants`; by default its `grant`."""


class DenyCommand(Command, frozen=True, kw_only=True, tag="deny"):
    """Deny, and let the run continue."""

    call_id: str
    scope: Annotated[GrantScope | None, MAKAI] = None
    reason: Annotated[str | None, MAKAI] = None
    grant: Annotated[str | None, MAKAI] = None


class AbortCommand(Command, frozen=True, kw_only=True, tag="abort"):
    """Stop the active run; with `run_id`, only if it is that one."""


class GetSnapshotCommand(Command, frozen=True, kw_only=True, tag="get_snapshot"):
    include_transcript_window: bool | None = None


class PingCommand(Command, frozen=True, kw_only=True, tag="ping"):
    nonce: str | None = None


class SetModeCommand(Command, HasPermissionMode, frozen=True, kw_only=True, tag="set_mode"):
    mode: DecodedMode


class SetModelCommand(Command, frozen=True, kw_only=True, tag="set_model"):
    model_ref: str


class SetAgentCommand(Command, frozen=True, kw_only=True, tag="set_agent"):
    agent: str
    """The name of an agent, or "native"."""
    model_ref: str | None = None


class SetTitleCommand(Command, frozen=True, kw_only=True, tag="set_title"):
    title: str


class CompactCommand(Command, frozen=True, kw_only=True, tag="compact"):
    instructions: str | None = None


class UndoCommand(Command, frozen=True, kw_only=True, tag="undo"):
    """Restore files to before a message; all of them or none."""

    count: int | None = None
    """How many messages with file changes, from the last one back; 1 when absent."""
    to: int | None = None
    """The event of a message, in place of `count`."""
    paths: tuple[str, ...] | None = None
    """Only these files, absolute or below the session's folder; the others stay as they are."""
    plan_id: str | None = None
    """Of the preview; refused when another one holds by now."""


class RedoCommand(Command, frozen=True, kw_only=True, tag="redo"):
    """Bring back file changes that were undone."""

    count: int | None = None
    to: int | None = None
    paths: tuple[str, ...] | None = None
    plan_id: str | None = None


class WithdrawCommand(Command, frozen=True, kw_only=True, tag="withdraw"):
    """Take back a message that waits: it never runs."""

    input_id: str
    """Of `input_accepted` or `session_details.waiting`."""


class RetryCommand(Command, frozen=True, kw_only=True, tag="retry"):
    """Ask the model again after a run failed, without a second copy of the message; only the first retry counts."""

    run_id: str
    """The run that failed (`error.run_id`)."""


_RunCommand: TypeAlias = SendCommand | ApproveCommand | DenyCommand | AbortCommand
_MakaiCommand: TypeAlias = (
    SetModeCommand
    | SetModelCommand
    | SetAgentCommand
    | SetTitleCommand
    | CompactCommand
    | UndoCommand
    | RedoCommand
    | WithdrawCommand
    | RetryCommand
)
SessionCommand: TypeAlias = _RunCommand | _MakaiCommand
"""What the engine carries out."""
ClientMessage: TypeAlias = HelloCommand | ResumeCommand | _RunCommand | GetSnapshotCommand | PingCommand | _MakaiCommand
MAKAI_COMMANDS: Final[frozenset[type]] = frozenset(get_args(_MakaiCommand))

MAJOR: Final = VERSION.partition(".")[0]
_SEMVER: Final = re.compile(r"(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(?:[-+][0-9A-Za-z.+-]{0,100})?")
_PATH: Final = re.compile(r"at `\$\.([a-z_]+)")
_MAX_NAME: Final = 64


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    code: ErrorCode
    message: str
    req_id: str | None = None
    details: dict[str, Any] | None = None


class _Shape:
    def __init__(self, kind: type[Any]) -> None:
        fields = msgspec.structs.fields(kind)
        self.kind = kind
        self.fields = frozenset(field.name for field in fields) | {"type"}
        self.required = [field.name for field in fields if field.required]
        self.makai_fields = frozenset(makai_fields(kind))


_SHAPES: Final = {str(kind.__struct_config__.tag): _Shape(kind) for kind in get_args(ClientMessage)}


def read(data: str | bytes, capabilities: NamedCapabilities) -> ClientMessage | Refusal:
    """What the client says; `capabilities` are those it has named so far."""
    try:
        value = strict_json.decode(data)
    except ParseError as error:
        return refusal(_req_id_in(data), "INVALID_COMMAND", error.message)
    if not isinstance(value, dict):
        return Refusal(code="INVALID_COMMAND", message="A command is a JSON object.")
    req_id = value.get("req_id")
    refuse = partial(refusal, req_id if isinstance(req_id, str) else None)
    name = value.get("type")
    shape = _SHAPES.get(name) if isinstance(name, str) else None
    if shape is None:
        return refuse("INVALID_COMMAND", "There is no command of this type.", "type")
    named = value.get("client_capabilities")  # a resume may bring the capabilities that it needs
    has_makai = capabilities.makai or (name == "resume" and isinstance(named, list) and MAKAI_1 in named)
    if shape.kind in MAKAI_COMMANDS and not has_makai:
        return refuse("INVALID_COMMAND", f"This command needs the capability {MAKAI_1}.", "type")
    for field, given in value.items():
        if field not in shape.fields:
            return refuse("BAD_ARGUMENT", f"{vocabulary.published_name(shape.kind.__name__)} has no such field.", field)
        if field in shape.makai_fields and given is not None and not has_makai:
            return refuse("BAD_ARGUMENT", f"This field needs the capability {MAKAI_1}.", field)
    for field in shape.required:
        if field not in value:
            return refuse("MISSING_FIELD", f"{vocabulary.published_name(shape.kind.__name__)} needs this field.", field)
    try:
        command: ClientMessage = msgspec.convert(value, shape.kind)
    except msgspec.ValidationError as error:
        place = _PATH.search(str(error))
        return refuse("BAD_ARGUMENT", str(error).partition(" - at ")[0] + ".", place[1] if place else None)
    if isinstance(command, HelloCommand | ResumeCommand) and command.v is not None:
        version = _SEMVER.fullmatch(command.v)
        if version is None or version[1] != MAJOR:
            return refuse("BAD_ARGUMENT", f"This server speaks version {VERSION}.", "v", supported=[VERSION])
    return command


def _req_id_in(data: str | bytes) -> str | None:
    """Of a command that cannot be read as a whole: its client waits for the answer with this id."""
    document = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
    req_id = strict_json.readable_members(document).get("req_id")
    return req_id if isinstance(req_id, str) and is_clean(req_id) else None


def refusal(req_id: str | None, code: ErrorCode, message: str, field: str | None = None, **details: Any) -> Refusal:
    """Refuse the command `req_id`, naming the field that was wrong."""
    if field is not None:
        details["field"] = field[:_MAX_NAME]
        message = f"{field[:_MAX_NAME]}: {message}"
    return Refusal(code=code, message=message, req_id=req_id, details=details or None)


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Have the session carry this out; then `answered` or `refused`."""

    session_id: str
    command: engine.UserCommand
    req_id: str | None = None


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """Find the session, or make a new one when `session_id` is None; then `opened` with its view, or `refused`."""

    session_id: str | None
    cursor: int | None = None
    """Go on after this event; None: a fresh load."""
    client_capabilities: tuple[str, ...] | None = None
    """What the client understands from now on; None: as before. They count once the session is found."""
    with_window: bool = False
    req_id: str | None = None


class TakeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Wait until the view has taken event `at_least`, then call `show`: a client's own commands are in its snapshot."""

    at_least: int
    with_window: bool = False
    req_id: str | None = None


Request: TypeAlias = Ask | Open | TakeSnapshot


_ENGINE_COMMANDS: Final[dict[type[SessionCommand], type[engine.UserCommand]]] = {
    SendCommand: engine.Send,
    ApproveCommand: engine.ApproveCall,
    DenyCommand: engine.DenyCall,
    AbortCommand: engine.Abort,
    SetModeCommand: engine.SetMode,
    SetModelCommand: engine.SetModel,
    SetAgentCommand: engine.SetHarness,
    SetTitleCommand: engine.SetTitle,
    CompactCommand: engine.Compact,
    UndoCommand: engine.RestoreFiles,
    RedoCommand: engine.RestoreFiles,
    WithdrawCommand: engine.WithdrawInput,
    RetryCommand: engine.RetryRun,
}
"""Fields of the same name mean the same; what a client leaves out has the engine's default."""


def engine_command(command: SessionCommand, *, by: str, input_id: str) -> engine.UserCommand:
    """The same for the engine, whose owner sets the time. Raises `WrongField` for pictures and files that are none."""
    given: dict[str, Any] = {"now": 0, "by": by, "input_id": input_id, **msgspec.structs.asdict(command)}
    if isinstance(command, SendCommand):
        given["content"] = _content(command)
    if isinstance(command, SetAgentCommand):
        given["harness"] = harness_id_of(command.agent)
    if isinstance(command, RedoCommand):
        given["direction"] = "redo"
    kind = _ENGINE_COMMANDS[type(command)]
    return kind(**{name: given[name] for name in kind.__struct_fields__ if given.get(name) is not None})


def _content(command: SendCommand) -> str | tuple[SessionPart, ...]:
    if not command.images and not command.files:
        return command.text
    pictures = tuple(_picture(image) for image in command.images or ())
    files = tuple(_file(file) for file in command.files or ())
    return (Text(text=command.text), *pictures, *files) if command.text.strip() else (*pictures, *files)


def _file(file: AttachedText) -> Resource:
    if not _ADDRESS.fullmatch(file.uri):
        raise WrongField("files", "A file has a uri such as attachment:///notes.txt, without blanks.")
    return Resource(uri=file.uri, text=file.text)


def _picture(image: PastedImage) -> Image:
    if not image.mime_type.startswith("image/"):
        raise WrongField("images", "A picture has a mime_type that begins with image/.")
    try:
        binascii.a2b_base64(image.data, strict_mode=True)
    except (binascii.Error, ValueError):
        raise WrongField("images", "The data of a picture is base64.") from None
    return Image(data=image.data, mime_type=image.mime_type)
