"""Messages that a client sends about sessions, and their results."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from makai.core.errors import ParseError
from makai.wire import strict_json
from makai.wire.acp.common import ContentBlock, NameValue, Wire

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


class StdioMcpServer(Wire, frozen=True, kw_only=True):
    """An MCP server that is a program. It has no `type` (ACP-SESS-003)."""

    name: str
    command: str
    args: tuple[str, ...]
    env: tuple[NameValue, ...]


class HttpMcpServer(Wire, frozen=True, kw_only=True, tag_field="type", tag="http"):
    name: str
    url: str
    headers: tuple[NameValue, ...]


class SseMcpServer(Wire, frozen=True, kw_only=True, tag_field="type", tag="sse"):
    name: str
    url: str
    headers: tuple[NameValue, ...]


McpServer: TypeAlias = StdioMcpServer | HttpMcpServer | SseMcpServer


class _ServerKind(msgspec.Struct, frozen=True):
    type: str = "stdio"


_kind = msgspec.json.Decoder(_ServerKind)
_servers: dict[str, msgspec.json.Decoder[Any]] = {
    "stdio": msgspec.json.Decoder(StdioMcpServer),
    "http": msgspec.json.Decoder(HttpMcpServer),
    "sse": msgspec.json.Decoder(SseMcpServer),
}


def mcp_server(raw: msgspec.Raw) -> McpServer:
    """An entry of `mcpServers`. `ParseError` when it is none of the three kinds."""
    data = bytes(raw)
    kind = strict_json.decode_with(_kind, data).type
    decoder = _servers.get(kind)
    if decoder is None:
        raise ParseError(f"an MCP server of type {kind!r} is not known")
    server: McpServer = strict_json.decode_with(decoder, data)
    return server


class SessionMode(Wire, frozen=True, kw_only=True):
    id: str
    name: str
    description: str | None = None


class SessionModeState(Wire, frozen=True, kw_only=True):
    current_mode_id: str
    available_modes: tuple[SessionMode, ...]


class ModelInfo(Wire, frozen=True, kw_only=True):
    model_id: str
    name: str
    description: str | None = None


class SessionModelState(Wire, frozen=True, kw_only=True):
    """Of the protocol's first version; `configOptions` of category "model" replaced it. Some agents send only this."""

    current_model_id: str
    available_models: tuple[ModelInfo, ...]


class SelectValue(Wire, frozen=True, kw_only=True):
    """A value of an option, or a group of values: then it has `group` and `options` instead of `value`."""

    name: str
    value: str | msgspec.UnsetType = msgspec.UNSET
    description: str | None = None
    group: str | msgspec.UnsetType = msgspec.UNSET
    options: tuple[SelectValue, ...] | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.value is msgspec.UNSET and msgspec.UNSET in (self.group, self.options):
            raise ValueError("a value of an option has `value`, a group `group` and `options`")


class _ConfigOption(Wire, frozen=True, kw_only=True, tag_field="type"):
    id: str
    name: str
    description: str | None = None
    category: str | None = None
    """mode, model, model_config, thought_level, or one that begins with an underscore."""


class SelectOption(_ConfigOption, frozen=True, kw_only=True, tag="select"):
    current_value: str
    options: tuple[SelectValue, ...]


class BooleanOption(_ConfigOption, frozen=True, kw_only=True, tag="boolean"):
    """Sent only to clients that declare `session.configOptions.boolean`."""

    current_value: bool


ConfigOption: TypeAlias = SelectOption | BooleanOption


class NewSessionRequest(Wire, frozen=True, kw_only=True):
    cwd: str
    mcp_servers: tuple[msgspec.Raw, ...]
    """Each is read by `mcp_server`."""
    additional_directories: tuple[str, ...] = ()


class SessionSettings(Wire, frozen=True, kw_only=True):
    """The result of session/load and session/resume: what can be chosen in the session."""

    modes: SessionModeState | None = None
    models: SessionModelState | None = None
    config_options: tuple[ConfigOption, ...] | None = None


class NewSessionResponse(SessionSettings, frozen=True, kw_only=True):
    session_id: str


class LoadSessionRequest(Wire, frozen=True, kw_only=True):
    session_id: str
    cwd: str
    mcp_servers: tuple[msgspec.Raw, ...]
    additional_directories: tuple[str, ...] = ()


class ResumeSessionRequest(Wire, frozen=True, kw_only=True):
    session_id: str
    cwd: str
    mcp_servers: tuple[msgspec.Raw, ...] = ()
    additional_directories: tuple[str, ...] = ()


class ForkSessionRequest(ResumeSessionRequest, frozen=True, kw_only=True):
    """Unstable. The result is a `NewSessionResponse`."""


class ListSessionsRequest(Wire, frozen=True, kw_only=True):
    cwd: str | None = None
    cursor: str | None = None


class ListedSession(Wire, frozen=True, kw_only=True):
    session_id: str
    cwd: str
    additional_directories: tuple[str, ...] = ()
    title: str | None = None
    updated_at: str | None = None
    """ISO 8601."""


class ListSessionsResponse(Wire, frozen=True, kw_only=True):
    sessions: tuple[ListedSession, ...]
    next_cursor: str | None = None


class SessionRequest(Wire, frozen=True, kw_only=True):
    """session/close, session/delete and the notification session/cancel: they name a session and nothing else."""

    session_id: str


class SetModeRequest(Wire, frozen=True, kw_only=True):
    session_id: str
    mode_id: str


class SetModelRequest(Wire, frozen=True, kw_only=True):
    session_id: str
    model_id: str


class SetConfigOptionRequest(Wire, frozen=True, kw_only=True):
    session_id: str
    config_id: str
    value: str | bool
    type: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) and self.type != "boolean":
            raise ValueError('`value` is a boolean only if `type` is "boolean"')


class SetConfigOptionResponse(Wire, frozen=True, kw_only=True):
    config_options: tuple[ConfigOption, ...]


class PromptRequest(Wire, frozen=True, kw_only=True):
    session_id: str
    prompt: tuple[ContentBlock, ...]


class TurnUsage(Wire, frozen=True, kw_only=True):
    """Unstable."""

    total_tokens: int
    input_tokens: int
    output_tokens: int
    thought_tokens: int | None = None
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None


class PromptResponse(Wire, frozen=True, kw_only=True):
    stop_reason: StopReason
    usage: TurnUsage | None = None


class SteeringRequest(Wire, frozen=True, kw_only=True):
    """`_session/steering`: further input for the running turn. No part of the protocol, but used by several agents."""

    session_id: str
    prompt: tuple[ContentBlock, ...]


class SteeringResponse(Wire, frozen=True, kw_only=True):
    outcome: Literal["injected", "startedNewTurn", "failed"]
