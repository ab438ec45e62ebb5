"""`session/update`: what an agent reports while a session lives.

Agents are newer or stranger than this version, so a reader takes words it does not know for kinds and statuses, and
skips updates it cannot read (ACP-CLIENT-004). What makai sends uses the words of the aliases here.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from makai.wire.acp.common import ContentBlock, Wire
from makai.wire.acp.sessions import ConfigOption

ToolKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]
ToolCallStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed"]
CompactionStatus: TypeAlias = Literal["in_progress", "completed", "failed", "cancelled"]


class _ToolContent(Wire, frozen=True, kw_only=True, tag_field="type"):
    pass


class ContentItem(_ToolContent, frozen=True, kw_only=True, tag="content"):
    content: ContentBlock


class DiffItem(_ToolContent, frozen=True, kw_only=True, tag="diff"):
    path: str
    new_text: str
    old_text: str | None = None
    """None for a new file."""


class TerminalItem(_ToolContent, frozen=True, kw_only=True, tag="terminal"):
    terminal_id: str


ToolCallContent: TypeAlias = ContentItem | DiffItem | TerminalItem


class Location(Wire, frozen=True, kw_only=True):
    path: str
    line: int | None = None


class _Update(Wire, frozen=True, kw_only=True, tag_field="sessionUpdate"):
    pass


class _Chunk(_Update, frozen=True, kw_only=True):
    content: ContentBlock
    message_id: str | None = None


class UserMessageChunk(_Chunk, frozen=True, kw_only=True, tag="user_message_chunk"):
    pass


class AgentMessageChunk(_Chunk, frozen=True, kw_only=True, tag="agent_message_chunk"):
    pass


class AgentThoughtChunk(_Chunk, frozen=True, kw_only=True, tag="agent_thought_chunk"):
    pass


class ToolCallFields(Wire, frozen=True, kw_only=True):
    """What is said about a call; a member that is left out stays as it was (ACP-UPD-004). It has no tag of its own, as
    `toolCall` of a permission request needs it."""

    tool_call_id: str
    title: str | None = None
    name: str | None = None
    kind: str | None = None
    status: str | None = None
    content: tuple[ToolCallContent, ...] | None = None
    locations: tuple[Location, ...] | None = None
    raw_input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    raw_output: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class NewToolCall(ToolCallFields, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call"):
    title: str


class ToolCallUpdate(ToolCallFields, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call_update"):
    pass


class PlanItem(Wire, frozen=True, kw_only=True):
    content: str
    priority: Literal["high", "medium", "low"]
    status: Literal["pending", "in_progress", "completed"]


class PlanUpdate(_Update, frozen=True, kw_only=True, tag="plan"):
    """The whole plan: it replaces the one before (ACP-UPD-009)."""

    entries: tuple[PlanItem, ...]


class CommandInput(Wire, frozen=True, kw_only=True):
    hint: str


class AvailableCommand(Wire, frozen=True, kw_only=True):
    name: str
    description: str
    input: CommandInput | None = None


class AvailableCommandsUpdate(_Update, frozen=True, kw_only=True, tag="available_commands_update"):
    available_commands: tuple[AvailableCommand, ...]


class CurrentModeUpdate(_Update, frozen=True, kw_only=True, tag="current_mode_update"):
    current_mode_id: str


class ConfigOptionUpdate(_Update, frozen=True, kw_only=True, tag="config_option_update"):
    config_options: tuple[ConfigOption, ...]


class SessionInfoUpdate(_Update, frozen=True, kw_only=True, tag="session_info_update"):
    """`None` clears a member, `UNSET` leaves it as it is."""

    title: str | msgspec.UnsetType | None = msgspec.UNSET
    updated_at: str | msgspec.UnsetType | None = msgspec.UNSET


class Cost(Wire, frozen=True, kw_only=True):
    amount: float
    currency: str


class UsageUpdate(_Update, frozen=True, kw_only=True, tag="usage_update"):
    """How many tokens of the context window are used."""

    used: int
    size: int
    cost: Cost | None = None
    """Of the whole session."""

    @property
    def usd(self) -> float | None:
        """The cost, when it is in US dollars."""
        return self.cost.amount if self.cost is not None and self.cost.currency.upper() == "USD" else None


class NoticeUpdate(_Update, frozen=True, kw_only=True, tag="notice"):
    """Sent only to clients that declare `session.notices`."""

    severity: str
    title: str
    description: str | None = None


class CompactionUpdate(_Update, frozen=True, kw_only=True, tag="compaction_update"):
    """Sent only to clients that declare `session.compaction`, as is its summary."""

    compaction_id: str
    status: str
    summary: tuple[ContentBlock, ...] | None = None
    error: str | None = None


class CompactionSummaryChunk(_Update, frozen=True, kw_only=True, tag="compaction_summary_chunk"):
    compaction_id: str
    content: ContentBlock


SessionUpdate: TypeAlias = (
    UserMessageChunk | AgentMessageChunk | AgentThoughtChunk | NewToolCall | ToolCallUpdate | PlanUpdate
    | AvailableCommandsUpdate | CurrentModeUpdate | ConfigOptionUpdate | SessionInfoUpdate | UsageUpdate
    | NoticeUpdate | CompactionUpdate | CompactionSummaryChunk
)  # fmt: skip


class SessionNotification(Wire, frozen=True, kw_only=True):
    """As it is sent."""

    session_id: str
    update: SessionUpdate


class ReceivedUpdate(Wire, frozen=True, kw_only=True):
    """As it is received: the update is read by `session_update`."""

    session_id: str
    update: msgspec.Raw


_update: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(SessionUpdate)


def session_update(raw: msgspec.Raw) -> SessionUpdate | None:
    """None for an update that this version cannot read."""
    try:
        update: SessionUpdate = _update.decode(raw)  # the line it stands in was checked as a whole
    except msgspec.DecodeError:
        return None
    return update
