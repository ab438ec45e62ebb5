"""The execution-plane model: everything an adapter needs to talk to one model, but no credential. How a server's
dialect differs from the standard is data (`ChatQuirks`)."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from makai.core.usage import Price

ReasoningEffort: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh"]


class ModelCapability(StrEnum):
    """What a model can do (MK-MODEL-006)."""

    CHAT = "chat"
    STREAMING = "streaming"
    TOOLS = "tools"
    VISION = "vision"
    REASONING = "reasoning"
    PROMPT_CACHE = "prompt_cache"
    AUDIO_INPUT = "audio_input"
    AUDIO_OUTPUT = "audio_output"


class ChatQuirks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one server's dialect of OpenAI chat completions differs from the middle of the road.

    Adding a vendor is filling in one of these, never an `if` in the adapter.
    """

    path: str = "/chat/completions"
    """Appended to the base URL, which already ends in /v1 or its like."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    system_role: Literal["system", "developer"] = "system"
    stream_usage: bool = True
    """Whether `stream_options.include_usage` is understood."""
    reasoning: Literal["none", "effort", "openrouter", "enable_thinking", "thinking_type"] = "none"
    """How effort is asked for: `reasoning_effort`, a `reasoning` object, `chat_template_kwargs`, or `thinking.type`."""
    reasoning_efforts: tuple[str, ...] = ("low", "medium", "high")
    """The levels the server accepts; others are moved to the nearest one."""
    reasoning_replay: Literal["drop", "reasoning_content", "text"] = "drop"
    """How earlier thinking of the same model is sent back."""
    json_schema: Literal["json_schema", "json_object", "none"] = "json_schema"
    tool_choice_required: str = "required"
    """How this server spells "some tool must be called"."""
    strict_tools: bool = False
    """Send `strict` with each function."""
    tool_id_length: int = 64
    tool_id_alphanumeric: bool = False
    """Mistral takes tool ids of exactly nine letters and digits."""
    tool_result_name: bool = False
    """Whether tool messages must repeat the function's name."""
    user_after_tool: bool = True
    """Whether a user message may directly follow a tool message."""
    anthropic_cache_control: bool = False
    """Pass-through of Anthropic cache marks (OpenRouter)."""
    prompt_cache_key: bool = False
    store: bool = False
    """Whether the API has `store`, which is always switched off."""


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model behind one API at one place."""

    id: str
    """The vendor's own name, byte for byte."""
    api: str
    provider: str
    base_url: str = ""
    """Empty in a caller's object: the provider's own address."""
    name: str = ""
    capabilities: tuple[ModelCapability, ...] = (ModelCapability.CHAT, ModelCapability.STREAMING)
    context_window: int | None = None
    max_output_tokens: int | None = None
    reasoning_default: ReasoningEffort | None = None
    price: Price | None = None
    quirks: ChatQuirks = ChatQuirks()
    headers: dict[str, str] = {}
    """Sent with every request. Never a secret."""
    options: dict[str, str] = {}
    """Settings of one API that others do not have, such as Azure's api-version."""

    def can(self, capability: ModelCapability) -> bool:
        return capability in self.capabilities
