"""The types of the SDK.

Union members have a `type`, so that `event.type == "text_delta"` and `match` both tell them apart. Fields that makai
adds to the specified ones come last and have defaults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from makai.catalog.models import AuthStatus, ModelDescriptor, ModelsRequest, ModelsResponse
from makai.core.content import Audio, Image, Text, Thinking, ToolCall, ToolResult
from makai.core.request import ToolDefinition
from makai.core.usage import Usage
from makai.protocols.makai.payloads import ChatMessage, RequestOptions

AuthRetryPolicy: TypeAlias = Literal["manual", "auto_once"]

# What makai calls otherwise inside.
TextContentPart: TypeAlias = Text
ThinkingContentPart: TypeAlias = Thinking
ImageContentPart: TypeAlias = Image
AudioContentPart: TypeAlias = Audio
ToolCallContentPart: TypeAlias = ToolCall
ToolResultContentPart: TypeAlias = ToolResult
UsageSummary: TypeAlias = Usage
ListModelsRequest: TypeAlias = ModelsRequest
ListModelsResponse: TypeAlias = ModelsResponse


class Shape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every shape."""


# ---------------------------------------------------------------- logins


class ProviderAuthInfo(Shape, frozen=True, kw_only=True):
    """Whether one provider can be used. Never holds token material."""

    id: str
    name: str
    auth_status: AuthStatus
    last_error: str | None = None


class AuthUrlEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="auth_url"):
    """A page the user has to open."""

    type: ClassVar[Literal["auth_url"]] = "auth_url"
    flow_id: str
    provider_id: str
    url: str
    instructions: str | None = None


class AuthPromptEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="prompt"):
    """A question the user has to answer."""

    type: ClassVar[Literal["prompt"]] = "prompt"
    flow_id: str
    prompt_id: str
    provider_id: str
    message: str
    allow_empty: bool = False


class AuthProgressEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="progress"):
    type: ClassVar[Literal["progress"]] = "progress"
    flow_id: str
    provider_id: str
    message: str


class AuthSuccessEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="success"):
    type: ClassVar[Literal["success"]] = "success"
    flow_id: str
    provider_id: str


class AuthErrorEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="error"):
    type: ClassVar[Literal["error"]] = "error"
    flow_id: str
    provider_id: str
    message: str
    code: str | None = None


MakaiAuthEvent: TypeAlias = AuthUrlEvent | AuthPromptEvent | AuthProgressEvent | AuthSuccessEvent | AuthErrorEvent


class AuthFlowHandlers(Shape, frozen=True, kw_only=True):
    """How a login talks to its user. Both may be plain or async functions."""

    on_event: Callable[[MakaiAuthEvent], Any] | None = None
    """Gets every event, prompts included."""
    on_prompt: Callable[[AuthPromptEvent], str | Awaitable[str]] | None = None
    """Answers a prompt."""


class AuthOptions(Shape, frozen=True, kw_only=True):
    """What holds for every request of a client, unless the request says otherwise."""

    auth_retry_policy: AuthRetryPolicy = "manual"
    handlers: AuthFlowHandlers = AuthFlowHandlers()


class LoginResult(Shape, frozen=True, kw_only=True):
    """A login that worked; every other one raises."""

    status: Literal["success"] = "success"


# ---------------------------------------------------------------- models


class ResolveModelRequest(Shape, frozen=True, kw_only=True):
    """One model, named exactly."""

    provider_id: str
    model_id: str
    api: str | None = None


class ResolveModelResponse(Shape, frozen=True, kw_only=True):
    model: ModelDescriptor


# ---------------------------------------------------------------- requests


class RunOptions(RequestOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to answer. `auth_retry_policy` stays in the client; the others travel."""

    auth_retry_policy: AuthRetryPolicy | None = None


class ProviderCompleteRequest(Shape, frozen=True, kw_only=True):
    """One model call."""

    model_ref: str
    """As `models.list` gave it: opaque, never taken apart here."""
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolDefinition, ...] = ()
    options: RunOptions = RunOptions()


class CompletionResponse(Shape, frozen=True, kw_only=True):
    """A whole answer. `message` also says who made it: appended to `messages` it keeps the vendor's signatures."""

    message: ChatMessage
    usage: Usage | None = None
    provider_id: str = ""
    api: str = ""
    model_id: str = ""
    stop_reason: str | None = None
    """end_turn, max_tokens, tool_use, stop_sequence, max_turns, or whatever a later server says."""

    @property
    def text(self) -> str:
        """What the model said to the reader, without thinking and tool calls."""
        content = self.message.content
        if isinstance(content, str):
            return content
        return "".join(part.text for part in content if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools the model wants to run, in order."""
        return tuple(part for part in self.message.content if isinstance(part, ToolCall))


# ---------------------------------------------------------------- stream events


class MessageStartEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="message_start"):
    """The model was asked. Says which one where the server has told."""

    type: ClassVar[Literal["message_start"]] = "message_start"
    provider_id: str | None = None
    api: str | None = None
    model_id: str | None = None


class TextDeltaEvent(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="text_delta"):
    type: ClassVar[Literal["text_delta"]] = "text_delta"
    delta: str


class ThinkingDeltaEvent(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="thinking_delta"):
    type: ClassVar[Literal["thinking_delta"]] = "thinking_delta"
    delta: str


class ToolCallEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="tool_call"):
    """A whole tool call: arguments are never handed out in pieces."""

    type: ClassVar[Literal["tool_call"]] = "tool_call"
    name: str
    arguments_json: str
    tool_call_id: str


class MessageEndEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="message_end"):
    """The last event of an answer that is complete."""

    type: ClassVar[Literal["message_end"]] = "message_end"
    usage: Usage | None = None
    stop_reason: str | None = None


class ErrorEvent(Shape, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """The last event of an answer that broke off after the server had accepted the request."""

    type: ClassVar[Literal["error"]] = "error"
    message: str
    code: str | None = None
    provider_id: str | None = None
    retry_after_ms: int | None = None
    hint: str | None = None


ProviderStreamEvent: TypeAlias = (
    MessageStartEvent | TextDeltaEvent | ThinkingDeltaEvent | ToolCallEvent | MessageEndEvent | ErrorEvent
)
