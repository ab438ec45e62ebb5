"""What a connection asks of its owner, and how a client's command becomes one of the engine's.

In: read commands. Out: `Ask`, `Open`, `TakeSnapshot`, or the field that no session could take. Pure.
"""

from __future__ import annotations

import binascii
from typing import TypeAlias, assert_never

import msgspec

from makai.core.content import Image, Text, UserPart
from makai.protocols.minicodex import commands
from makai.protocols.minicodex.vocabulary import PastedImage
from makai.sessions import commands as engine
from makai.sessions.requests import UserCommand

SessionCommand: TypeAlias = (
    commands.SendCommand
    | commands.ApproveCommand
    | commands.DenyCommand
    | commands.AbortCommand
    | commands.SetModeCommand
    | commands.SetModelCommand
    | commands.SetTitleCommand
    | commands.CompactCommand
)


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Have the session carry this out; then `answered` or `refused`."""

    session_id: str
    command: UserCommand
    req_id: str | None = None


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """Find the session, or make a new one when `session_id` is None; then `opened` with its view, or `refused`."""

    session_id: str | None
    cursor: int | None = None
    """Go on after this event; None: a fresh load."""
    with_window: bool = False
    req_id: str | None = None


class TakeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Wait until the view has taken event `at_least`, then call `show`: a client's own commands are in its snapshot."""

    at_least: int
    with_window: bool = False
    req_id: str | None = None


Request: TypeAlias = Ask | Open | TakeSnapshot


def engine_command(command: SessionCommand, *, by: str, input_id: str) -> UserCommand:
    """The same for the engine, whose owner sets the time. Raises `ValueError` for pictures that are none."""
    match command:
        case commands.SendCommand():
            return engine.Send(
                now=0,
                input_id=input_id,
                content=_content(command),
                client_msg_id=command.client_msg_id,
                delivery=command.delivery,
            )
        case commands.ApproveCommand():
            return engine.ApproveCall(
                now=0,
                call_id=command.call_id,
                by=by,
                reason=command.reason or "",
                scope=command.scope or "once",
                digest=command.digest,
            )
        case commands.DenyCommand():
            return engine.DenyCall(
                now=0, call_id=command.call_id, by=by, reason=command.reason or "", scope=command.scope or "once"
            )
        case commands.AbortCommand():
            return engine.Abort(now=0, run_id=command.run_id, by=by)
        case commands.SetModeCommand():
            return engine.SetMode(now=0, mode=command.mode)
        case commands.SetModelCommand():
            return engine.SetModel(now=0, model_ref=command.model_ref)
        case commands.SetTitleCommand():
            return engine.SetTitle(now=0, title=command.title)
        case commands.CompactCommand():
            return engine.Compact(now=0, input_id=input_id, instructions=command.instructions or "")
        case _:
            assert_never(command)


def _content(command: commands.SendCommand) -> str | tuple[UserPart, ...]:
    if not command.images:
        return command.text
    pictures = tuple(_picture(image) for image in command.images)
    return (Text(text=command.text), *pictures) if command.text.strip() else pictures


def _picture(image: PastedImage) -> Image:
    if not image.mime_type.startswith("image/"):
        raise ValueError("A picture has a mime_type that begins with image/.")
    try:
        binascii.a2b_base64(image.data, strict_mode=True)
    except (binascii.Error, ValueError):
        raise ValueError("The data of a picture is base64.") from None
    return Image(data=image.data, mime_type=image.mime_type)
