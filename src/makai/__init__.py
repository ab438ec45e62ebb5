"""makai: one agent runtime for every protocol.

    async with makai.connect() as client:
        async for event in client.provider.stream(model_ref="local/smollm2-135m", messages="Hello"):
            ...

Everything below is imported when it is first used: `import makai` itself loads next to nothing.
"""

from __future__ import annotations

from makai.core.version import __version__ as __version__

TYPE_CHECKING = False  # type checkers take it for true, and `typing` need not be loaded

if TYPE_CHECKING:
    from makai.catalog.model_ref import ModelRef as ModelRef
    from makai.catalog.model_ref import parse_model_ref as parse_model_ref
    from makai.catalog.models import AuthStatus as AuthStatus
    from makai.catalog.models import ModelDescriptor as ModelDescriptor
    from makai.catalog.models import ModelLifecycle as ModelLifecycle
    from makai.catalog.models import ModelSource as ModelSource
    from makai.client.agent import AgentFollower as AgentFollower
    from makai.client.agent import AgentStream as AgentStream
    from makai.client.agent_types import AgentEndEvent as AgentEndEvent
    from makai.client.agent_types import AgentRunOptions as AgentRunOptions
    from makai.client.agent_types import AgentRunRequest as AgentRunRequest
    from makai.client.agent_types import AgentRunResponse as AgentRunResponse
    from makai.client.agent_types import AgentSessionInfo as AgentSessionInfo
    from makai.client.agent_types import AgentStartEvent as AgentStartEvent
    from makai.client.agent_types import AgentStreamEvent as AgentStreamEvent
    from makai.client.agent_types import AgentTool as AgentTool
    from makai.client.agent_types import AgentToolResult as AgentToolResult
    from makai.client.agent_types import Allow as Allow
    from makai.client.agent_types import Deny as Deny
    from makai.client.agent_types import PermissionDecision as PermissionDecision
    from makai.client.agent_types import PermissionRequest as PermissionRequest
    from makai.client.agent_types import ToolExecutionEndEvent as ToolExecutionEndEvent
    from makai.client.agent_types import ToolExecutionStartEvent as ToolExecutionStartEvent
    from makai.client.agent_types import TurnEndEvent as TurnEndEvent
    from makai.client.agent_types import TurnStartEvent as TurnStartEvent
    from makai.client.client import MakaiClient as MakaiClient
    from makai.client.connect import MakaiClientOptions as MakaiClientOptions
    from makai.client.connect import connect as connect
    from makai.client.connect import create_makai_client as create_makai_client
    from makai.client.provider import ProviderStream as ProviderStream
    from makai.client.sync import SyncMakaiClient as SyncMakaiClient
    from makai.client.sync import connect_sync as connect_sync
    from makai.client.types import AudioContentPart as AudioContentPart
    from makai.client.types import AuthErrorEvent as AuthErrorEvent
    from makai.client.types import AuthFlowHandlers as AuthFlowHandlers
    from makai.client.types import AuthOptions as AuthOptions
    from makai.client.types import AuthProgressEvent as AuthProgressEvent
    from makai.client.types import AuthPromptEvent as AuthPromptEvent
    from makai.client.types import AuthRetryPolicy as AuthRetryPolicy
    from makai.client.types import AuthSuccessEvent as AuthSuccessEvent
    from makai.client.types import AuthUrlEvent as AuthUrlEvent
    from makai.client.types import CompletionResponse as CompletionResponse
    from makai.client.types import ErrorEvent as ErrorEvent
    from makai.client.types import ImageContentPart as ImageContentPart
    from makai.client.types import ListModelsRequest as ListModelsRequest
    from makai.client.types import ListModelsResponse as ListModelsResponse
    from makai.client.types import LoginResult as LoginResult
    from makai.client.types import MakaiAuthEvent as MakaiAuthEvent
    from makai.client.types import MessageEndEvent as MessageEndEvent
    from makai.client.types import MessageStartEvent as MessageStartEvent
    from makai.client.types import ProviderAuthInfo as ProviderAuthInfo
    from makai.client.types import ProviderCompleteRequest as ProviderCompleteRequest
    from makai.client.types import ProviderStreamEvent as ProviderStreamEvent
    from makai.client.types import ResolveModelRequest as ResolveModelRequest
    from makai.client.types import ResolveModelResponse as ResolveModelResponse
    from makai.client.types import RunOptions as RunOptions
    from makai.client.types import TextContentPart as TextContentPart
    from makai.client.types import TextDeltaEvent as TextDeltaEvent
    from makai.client.types import ThinkingContentPart as ThinkingContentPart
    from makai.client.types import ThinkingDeltaEvent as ThinkingDeltaEvent
    from makai.client.types import ToolCallContentPart as ToolCallContentPart
    from makai.client.types import ToolCallEvent as ToolCallEvent
    from makai.client.types import ToolResultContentPart as ToolResultContentPart
    from makai.client.types import UsageSummary as UsageSummary
    from makai.core.content import ContentPart as ContentPart
    from makai.core.errors import InvalidRequest as InvalidRequest
    from makai.core.errors import MakaiAuthError as MakaiAuthError
    from makai.core.errors import MakaiError as MakaiError
    from makai.core.errors import MakaiStreamError as MakaiStreamError
    from makai.core.model import ModelCapability as ModelCapability
    from makai.core.request import ToolChoice as ToolChoice
    from makai.core.request import ToolDefinition as ToolDefinition
    from makai.protocols.makai.payloads import ChatMessage as ChatMessage

_PLACES = {
    "AgentEndEvent": "makai.client.agent_types",
    "AgentFollower": "makai.client.agent",
    "AgentRunOptions": "makai.client.agent_types",
    "AgentRunRequest": "makai.client.agent_types",
    "AgentRunResponse": "makai.client.agent_types",
    "AgentSessionInfo": "makai.client.agent_types",
    "AgentStartEvent": "makai.client.agent_types",
    "AgentStream": "makai.client.agent",
    "AgentStreamEvent": "makai.client.agent_types",
    "AgentTool": "makai.client.agent_types",
    "AgentToolResult": "makai.client.agent_types",
    "Allow": "makai.client.agent_types",
    "AudioContentPart": "makai.client.types",
    "AuthErrorEvent": "makai.client.types",
    "AuthFlowHandlers": "makai.client.types",
    "AuthOptions": "makai.client.types",
    "AuthProgressEvent": "makai.client.types",
    "AuthPromptEvent": "makai.client.types",
    "AuthRetryPolicy": "makai.client.types",
    "AuthStatus": "makai.catalog.models",
    "AuthSuccessEvent": "makai.client.types",
    "AuthUrlEvent": "makai.client.types",
    "ChatMessage": "makai.protocols.makai.payloads",
    "CompletionResponse": "makai.client.types",
    "connect": "makai.client.connect",
    "connect_sync": "makai.client.sync",
    "ContentPart": "makai.core.content",
    "create_makai_client": "makai.client.connect",
    "Deny": "makai.client.agent_types",
    "ErrorEvent": "makai.client.types",
    "ImageContentPart": "makai.client.types",
    "InvalidRequest": "makai.core.errors",
    "ListModelsRequest": "makai.client.types",
    "ListModelsResponse": "makai.client.types",
    "LoginResult": "makai.client.types",
    "MakaiAuthError": "makai.core.errors",
    "MakaiAuthEvent": "makai.client.types",
    "MakaiClient": "makai.client.client",
    "MakaiClientOptions": "makai.client.connect",
    "MakaiError": "makai.core.errors",
    "MakaiStreamError": "makai.core.errors",
    "MessageEndEvent": "makai.client.types",
    "MessageStartEvent": "makai.client.types",
    "ModelCapability": "makai.core.model",
    "ModelDescriptor": "makai.catalog.models",
    "ModelLifecycle": "makai.catalog.models",
    "ModelRef": "makai.catalog.model_ref",
    "ModelSource": "makai.catalog.models",
    "parse_model_ref": "makai.catalog.model_ref",
    "PermissionDecision": "makai.client.agent_types",
    "PermissionRequest": "makai.client.agent_types",
    "ProviderAuthInfo": "makai.client.types",
    "ProviderCompleteRequest": "makai.client.types",
    "ProviderStream": "makai.client.provider",
    "ProviderStreamEvent": "makai.client.types",
    "ResolveModelRequest": "makai.client.types",
    "ResolveModelResponse": "makai.client.types",
    "RunOptions": "makai.client.types",
    "SyncMakaiClient": "makai.client.sync",
    "TextContentPart": "makai.client.types",
    "TextDeltaEvent": "makai.client.types",
    "ThinkingContentPart": "makai.client.types",
    "ThinkingDeltaEvent": "makai.client.types",
    "ToolCallContentPart": "makai.client.types",
    "ToolCallEvent": "makai.client.types",
    "ToolChoice": "makai.core.request",
    "ToolDefinition": "makai.core.request",
    "ToolExecutionEndEvent": "makai.client.agent_types",
    "ToolExecutionStartEvent": "makai.client.agent_types",
    "ToolResultContentPart": "makai.client.types",
    "TurnEndEvent": "makai.client.agent_types",
    "TurnStartEvent": "makai.client.agent_types",
    "UsageSummary": "makai.client.types",
}
"""Public name -> where it lives. The specification of the SDK fixes the names."""

__all__ = sorted(_PLACES, key=str.casefold)


def __getattr__(name: str) -> object:
    import importlib

    try:
        module = _PLACES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    value: object = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
