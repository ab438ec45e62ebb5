"""What a client may say: every command of MiniCodex, and those of makai.1.

In: nothing. Out: frozen Structs tagged by `type`. Whole commands of makai.1 are in `MAKAI_COMMANDS`, single fields
carry `MAKAI`. How text becomes one of these, or an error, is the business of `reading`.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from makai.core.session_events import Delivery, GrantScope, PermissionMode
from makai.protocols.minicodex.vocabulary import MAKAI, PastedImage, StrictPart


class Command(StrictPart, frozen=True, kw_only=True, tag_field="type"):
    """Base of every command: the document's envelope. Pydantic's `None` for "absent" is accepted as such."""

    v: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    event_id: int | None = None
    """Of no meaning in this direction; the document's envelope has it."""
    ts: str | None = None
    req_id: str | None = None


class HelloCommand(Command, frozen=True, kw_only=True, tag="hello"):
    v: str
    client_capabilities: tuple[str, ...] = ()


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


class ApproveCommand(Command, frozen=True, kw_only=True, tag="approve"):
    call_id: str
    scope: Annotated[GrantScope | None, MAKAI] = None
    digest: Annotated[str | None, MAKAI] = None
    """Approve only these arguments (`approval_pending.digest`)."""
    reason: Annotated[str | None, MAKAI] = None


class DenyCommand(Command, frozen=True, kw_only=True, tag="deny"):
    """Deny, and let the run continue."""

    call_id: str
    scope: Annotated[GrantScope | None, MAKAI] = None
    reason: Annotated[str | None, MAKAI] = None


class AbortCommand(Command, frozen=True, kw_only=True, tag="abort"):
    """Stop the active run; with `run_id`, only if it is that one."""


class GetSnapshotCommand(Command, frozen=True, kw_only=True, tag="get_snapshot"):
    include_transcript_window: bool = False


class PingCommand(Command, frozen=True, kw_only=True, tag="ping"):
    nonce: str | None = None


class SetModeCommand(Command, frozen=True, kw_only=True, tag="set_mode"):
    mode: PermissionMode


class SetModelCommand(Command, frozen=True, kw_only=True, tag="set_model"):
    model_ref: str


class SetTitleCommand(Command, frozen=True, kw_only=True, tag="set_title"):
    title: str


class CompactCommand(Command, frozen=True, kw_only=True, tag="compact"):
    instructions: str | None = None


ClientMessage: TypeAlias = (
    HelloCommand
    | ResumeCommand
    | SendCommand
    | ApproveCommand
    | DenyCommand
    | AbortCommand
    | GetSnapshotCommand
    | PingCommand
    | SetModeCommand
    | SetModelCommand
    | SetTitleCommand
    | CompactCommand
)
MAKAI_COMMANDS: Final[frozenset[type]] = frozenset((SetModeCommand, SetModelCommand, SetTitleCommand, CompactCommand))
