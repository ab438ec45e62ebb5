"""Agents and what runs them: the public contract, the port through which a session runs an agent, and the drivers.

    from makai.harness import Spec, decode_event, is_supported

The names of the contract are imported when they are first used, and no driver with them.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true, and `typing` need not be loaded

if TYPE_CHECKING:
    from makai.core.errors import EndpointError as EndpointError
    from makai.core.errors import MissingEventKind as MissingEventKind
    from makai.core.errors import NoProvider as NoProvider
    from makai.core.errors import ProviderUnavailable as ProviderUnavailable
    from makai.core.errors import SessionNotFound as SessionNotFound
    from makai.core.errors import SpawnFailed as SpawnFailed
    from makai.core.errors import UnknownEventKind as UnknownEventKind
    from makai.core.errors import Unsupported as Unsupported
    from makai.core.errors import find_error as find_error
    from makai.harness.contract.capabilities import Capabilities as Capabilities
    from makai.harness.contract.capabilities import Capability as Capability
    from makai.harness.contract.capabilities import is_supported as is_supported
    from makai.harness.contract.endpoint import AuthMode as AuthMode
    from makai.harness.contract.endpoint import Company as Company
    from makai.harness.contract.endpoint import CostModel as CostModel
    from makai.harness.contract.endpoint import EndpointBinding as EndpointBinding
    from makai.harness.contract.endpoint import EndpointRequest as EndpointRequest
    from makai.harness.contract.endpoint import Family as Family
    from makai.harness.contract.endpoint import HarnessCaps as HarnessCaps
    from makai.harness.contract.endpoint import HarnessManifest as HarnessManifest
    from makai.harness.contract.endpoint import HarnessName as HarnessName
    from makai.harness.contract.endpoint import HostDesc as HostDesc
    from makai.harness.contract.endpoint import ModelDesc as ModelDesc
    from makai.harness.contract.endpoint import ModelEndpointManifest as ModelEndpointManifest
    from makai.harness.contract.endpoint import ProviderName as ProviderName
    from makai.harness.contract.endpoint import ServingHost as ServingHost
    from makai.harness.contract.endpoint import StreamingTransport as StreamingTransport
    from makai.harness.contract.endpoint import TransportKind as TransportKind
    from makai.harness.contract.endpoint import WireProtocol as WireProtocol
    from makai.harness.contract.events import AssistantTextEvent as AssistantTextEvent
    from makai.harness.contract.events import CostData as CostData
    from makai.harness.contract.events import ErrorEvent as ErrorEvent
    from makai.harness.contract.events import Event as Event
    from makai.harness.contract.events import EventKind as EventKind
    from makai.harness.contract.events import InitEvent as InitEvent
    from makai.harness.contract.events import ResultEvent as ResultEvent
    from makai.harness.contract.events import SystemEvent as SystemEvent
    from makai.harness.contract.events import TerminalEvent as TerminalEvent
    from makai.harness.contract.events import ToolCategory as ToolCategory
    from makai.harness.contract.events import ToolProgressEvent as ToolProgressEvent
    from makai.harness.contract.events import ToolResultEvent as ToolResultEvent
    from makai.harness.contract.events import ToolUseEvent as ToolUseEvent
    from makai.harness.contract.events import decode_event as decode_event
    from makai.harness.contract.events import encode_event as encode_event
    from makai.harness.contract.events import is_terminal as is_terminal
    from makai.harness.contract.interfaces import STOP_GRACE_S as STOP_GRACE_S
    from makai.harness.contract.interfaces import Handle as Handle
    from makai.harness.contract.interfaces import Harness as Harness
    from makai.harness.contract.interfaces import HarnessProvider as HarnessProvider
    from makai.harness.contract.interfaces import ModelEndpointProvider as ModelEndpointProvider
    from makai.harness.contract.interfaces import OneShotProvider as OneShotProvider
    from makai.harness.contract.interfaces import Provider as Provider
    from makai.harness.contract.interfaces import Session as Session
    from makai.harness.contract.one_shot import Message as Message
    from makai.harness.contract.one_shot import OneShotMessage as OneShotMessage
    from makai.harness.contract.one_shot import OneShotRequest as OneShotRequest
    from makai.harness.contract.one_shot import OneShotResult as OneShotResult
    from makai.harness.contract.result import BackstopReport as BackstopReport
    from makai.harness.contract.result import QualityReport as QualityReport
    from makai.harness.contract.result import Result as Result
    from makai.harness.contract.result import ResultStatus as ResultStatus
    from makai.harness.contract.result import WorkResult as WorkResult
    from makai.harness.contract.shapes import decode as decode
    from makai.harness.contract.shapes import encode as encode
    from makai.harness.contract.spec import CodeIntelEnforcement as CodeIntelEnforcement
    from makai.harness.contract.spec import EffortLevel as EffortLevel
    from makai.harness.contract.spec import JsonSchema as JsonSchema
    from makai.harness.contract.spec import MCPServerConfig as MCPServerConfig
    from makai.harness.contract.spec import PermissionConfig as PermissionConfig
    from makai.harness.contract.spec import SandboxLevel as SandboxLevel
    from makai.harness.contract.spec import Spec as Spec
    from makai.harness.endpoints.companies import endpoint_manifest as endpoint_manifest
    from makai.harness.endpoints.companies import endpoint_manifests as endpoint_manifests
    from makai.harness.endpoints.resolve import CompanyEndpoint as CompanyEndpoint
    from makai.harness.endpoints.resolve import resolve as resolve
    from makai.harness.manifests import HarnessDeclaration as HarnessDeclaration
    from makai.harness.manifests import harness_declaration as harness_declaration
    from makai.harness.manifests import harness_manifests as harness_manifests
    from makai.harness.manifests import honoured_fields as honoured_fields
    from makai.harness.manifests import ignored_fields as ignored_fields
    from makai.harness.matrix import CapabilityMatrix as CapabilityMatrix
    from makai.harness.matrix import MatrixCell as MatrixCell
    from makai.harness.matrix import build_matrix as build_matrix
    from makai.harness.matrix import check_binding as check_binding
    from makai.harness.one_shot import complete as complete
    from makai.harness.one_shot import spawn_complete as spawn_complete

_NAMES = {
    "makai.core.errors": (
        "EndpointError find_error MissingEventKind NoProvider ProviderUnavailable SessionNotFound SpawnFailed "
        "UnknownEventKind Unsupported"
    ),
    "makai.harness.contract.capabilities": "Capabilities Capability is_supported",
    "makai.harness.contract.endpoint": (
        "AuthMode Company CostModel EndpointBinding EndpointRequest Family HarnessCaps HarnessManifest HarnessName "
        "HostDesc ModelDesc ModelEndpointManifest ProviderName ServingHost StreamingTransport TransportKind "
        "WireProtocol"
    ),
    "makai.harness.contract.events": (
        "AssistantTextEvent CostData decode_event encode_event ErrorEvent Event EventKind InitEvent is_terminal "
        "ResultEvent SystemEvent TerminalEvent ToolCategory ToolProgressEvent ToolResultEvent ToolUseEvent"
    ),
    "makai.harness.contract.interfaces": (
        "Handle Harness HarnessProvider ModelEndpointProvider OneShotProvider Provider Session STOP_GRACE_S"
    ),
    "makai.harness.contract.one_shot": "Message OneShotMessage OneShotRequest OneShotResult",
    "makai.harness.contract.result": "BackstopReport QualityReport Result ResultStatus WorkResult",
    "makai.harness.contract.shapes": "decode encode",
    "makai.harness.contract.spec": (
        "CodeIntelEnforcement EffortLevel JsonSchema MCPServerConfig PermissionConfig SandboxLevel Spec"
    ),
    "makai.harness.endpoints.companies": "endpoint_manifest endpoint_manifests",
    "makai.harness.endpoints.resolve": "CompanyEndpoint resolve",
    "makai.harness.manifests": (
        "harness_declaration harness_manifests HarnessDeclaration honoured_fields ignored_fields"
    ),
    "makai.harness.matrix": "build_matrix CapabilityMatrix check_binding MatrixCell",
    "makai.harness.one_shot": "complete spawn_complete",
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
