"""What a caller asks of a model: the conversation, the tools, the options. They reach the adapter unchanged."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from makai.core.messages import Message
from makai.core.model import ReasoningEffort

CacheRetention: TypeAlias = Literal["none", "short", "long"]


ToolPermission: TypeAlias = Literal["allow", "ask"]


class ToolDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool the model may call. The schema travels as JSON text."""

    name: str
    description: str
    parameters_schema_json: str
    permission: ToolPermission = "allow"
    """Of a tool that a client carries out: "ask" has a person decide each call that no rule allows."""
    read_only: bool = False
    """Of such a tool: it changes nothing."""


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the model may, must or must not call a tool; `name` only with mode "tool"."""

    mode: Literal["auto", "none", "required", "tool"] = "auto"
    name: str | None = None


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The conversation to continue."""

    messages: tuple[Message, ...]
    system_prompt: str | None = None
    tools: tuple[ToolDefinition, ...] = ()


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    reasoning_effort: ReasoningEffort | None = None
    tool_choice: ToolChoice | None = None
    json_schema: str | None = None
    """The answer must be JSON of this schema (JSON text), where the API can promise that."""
    cache_retention: CacheRetention = "short"
    session_id: str | None = None
    """Groups requests of one conversation for vendors' prompt caches."""
    metadata: dict[str, str] = {}
    account: str | None = None
    """Which of the user's logins to use; the provider's default one when not given."""


class StreamOptions(RequestOptions, frozen=True, kw_only=True):
    """How to continue it. Everything is optional; what a model cannot do is left out of its request, with a warning."""

    connect_timeout_s: float = 15.0
    stall_timeout_s: float = 300.0
    """How long upstream may say nothing new before we give up. Keep-alives are not news."""
    max_retries: int | None = None
    """How often a failed request is sent again at most; by default three times within seconds."""
    retry_for_s: float | None = None
    """How long a request that a vendor refused for its load or rate is sent again, with growing waits; 0: not at all.
    None: only `max_retries` quick ones; the runs of sessions then have what the user's `config.toml` says, or minutes
    (`providers.retries.PATIENCE_S`)."""
