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
    from makai.client.connect import MakaiClient as MakaiClient
    from makai.client.connect import MakaiClientOptions as MakaiClientOptions
    from makai.client.connect import connect as connect
    from makai.client.connect import create_makai_client as create_makai_client
    from makai.client.function_tools import tool as tool
    from makai.client.harness.opening import MakaiHarness as MakaiHarness
    from makai.client.harness.opening import open_harness as open_harness
    from makai.client.notebook import show as show
    from makai.client.one_shot import OneShotAnswer as OneShotAnswer
    from makai.client.one_shot import complete as complete
    from makai.client.provider import ProviderStream as ProviderStream
    from makai.client.sync import SyncMakaiClient as SyncMakaiClient
    from makai.client.sync import connect_sync as connect_sync
    from makai.client.tools import ServedToolCall as ServedToolCall
    from makai.client.tools import ToolServer as ToolServer
    from makai.client.types import AgentEndEvent as AgentEndEvent
    from makai.client.types import AgentRestoreResult as AgentRestoreResult
    from makai.client.types import AgentRunOptions as AgentRunOptions
    from makai.client.types import AgentRunRequest as AgentRunRequest
    from makai.client.types import AgentRunResponse as AgentRunResponse
    from makai.client.types import AgentSessionInfo as AgentSessionInfo
    from makai.client.types import AgentStartEvent as AgentStartEvent
    from makai.client.types import AgentStreamEvent as AgentStreamEvent
    from makai.client.types import AgentTool as AgentTool
    from makai.client.types import AgentToolResult as AgentToolResult
    from makai.client.types import Allow as Allow
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
    from makai.client.types import Deny as Deny
    from makai.client.types import ErrorEvent as ErrorEvent
    from makai.client.types import FileChange as FileChange
    from makai.client.types import FileRestore as FileRestore
    from makai.client.types import ImageContentPart as ImageContentPart
    from makai.client.types import ListModelsRequest as ListModelsRequest
    from makai.client.types import ListModelsResponse as ListModelsResponse
    from makai.client.types import LoginResult as LoginResult
    from makai.client.types import MakaiAuthEvent as MakaiAuthEvent
    from makai.client.types import MessageEndEvent as MessageEndEvent
    from makai.client.types import MessageStartEvent as MessageStartEvent
    from makai.client.types import PermissionDecision as PermissionDecision
    from makai.client.types import PermissionRequest as PermissionRequest
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
    from makai.client.types import ToolExecutionEndEvent as ToolExecutionEndEvent
    from makai.client.types import ToolExecutionStartEvent as ToolExecutionStartEvent
    from makai.client.types import ToolResultContentPart as ToolResultContentPart
    from makai.client.types import TurnEndEvent as TurnEndEvent
    from makai.client.types import TurnStartEvent as TurnStartEvent
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

_NAMES = {
    "makai.catalog.model_ref": "ModelRef parse_model_ref",
    "makai.catalog.models": "AuthStatus ModelDescriptor ModelLifecycle ModelSource",
    "makai.client.agent": "AgentFollower AgentStream",
    "makai.client.connect": "connect create_makai_client MakaiClient MakaiClientOptions",
    "makai.client.function_tools": "tool",
    "makai.client.harness.opening": "MakaiHarness open_harness",
    "makai.client.notebook": "show",
    "makai.client.one_shot": "complete OneShotAnswer",
    "makai.client.provider": "ProviderStream",
    "makai.client.sync": "connect_sync SyncMakaiClient",
    "makai.client.tools": "ServedToolCall ToolServer",
    "makai.client.types": (
        "AgentEndEvent AgentRestoreResult AgentRunOptions AgentRunRequest AgentRunResponse AgentSessionInfo "
        "AgentStartEvent AgentStreamEvent AgentTool AgentToolResult Allow AudioContentPart AuthErrorEvent "
        "AuthFlowHandlers AuthOptions AuthProgressEvent AuthPromptEvent AuthRetryPolicy AuthSuccessEvent AuthUrlEvent "
        "CompletionResponse Deny ErrorEvent FileChange FileRestore ImageContentPart ListModelsRequest "
        "ListModelsResponse LoginResult MakaiAuthEvent MessageEndEvent MessageStartEvent PermissionDecision "
        "PermissionRequest ProviderAuthInfo "
        "ProviderCompleteRequest ProviderStreamEvent ResolveModelRequest ResolveModelResponse RunOptions "
        "TextContentPart TextDeltaEvent ThinkingContentPart ThinkingDeltaEvent ToolCallContentPart ToolCallEvent "
        "ToolExecutionEndEvent ToolExecutionStartEvent ToolResultContentPart TurnEndEvent TurnStartEvent UsageSummary"
    ),
    "makai.core.content": "ContentPart",
    "makai.core.errors": "InvalidRequest MakaiAuthError MakaiError MakaiStreamError",
    "makai.core.model": "ModelCapability",
    "makai.core.request": "ToolChoice ToolDefinition",
    "makai.protocols.makai.payloads": "ChatMessage",
}
"""The public names by the module in which they live."""
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}

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
