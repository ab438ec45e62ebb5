"""The interfaces of the contract. Any object with these members satisfies them (DM-PROV-001).

The deadline of an operation is its caller's: a cancelled `spawn` or `resume` leaves no process behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Protocol, TypeAlias, runtime_checkable

from makai.harness.contract.capabilities import Capabilities
from makai.harness.contract.endpoint import EndpointBinding, EndpointRequest, HarnessManifest, ModelEndpointManifest
from makai.harness.contract.events import Event
from makai.harness.contract.one_shot import OneShotRequest, OneShotResult
from makai.harness.contract.spec import Spec

STOP_GRACE_S: Final = 5.0


@runtime_checkable
class Handle(Protocol):
    """One session that runs. Iterating over it yields its events; there is one reader."""

    @property
    def session_id(self) -> str:
        """The harness' own id. Empty until the `init` event was delivered (DM-PROV-008)."""

    def __aiter__(self) -> AsyncIterator[Event]:
        """One `init`, other events, one `result` or `error`, and then the end (DM-PROV-003)."""

    async def inject(self, text: str) -> None:
        """Send a user message into the session, also while its events are read. Raises `Unsupported` without
        `supports_message_injection`."""

    async def stop(self, *, grace_s: float = STOP_GRACE_S) -> None:
        """End the session; its process is killed after `grace_s`. Returns normally when it has ended already."""


Session: TypeAlias = Handle


@runtime_checkable
class Harness(Protocol):
    """Runs sessions of one kind of agent. Constructing one raises `ProviderUnavailable` when its program is missing."""

    @property
    def name(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...

    async def spawn(self, spec: Spec) -> Handle:
        """Start a session. Raises `SpawnFailed` when it cannot start."""

    async def resume(self, session_id: str, spec: Spec) -> Handle:
        """Continue the session of an earlier `init`. Raises `Unsupported` without `supports_session_resume`, and
        `SessionNotFound` for an id that is unknown or has ended."""

    async def shutdown(self) -> None:
        """Free what the sessions of this instance share. Repeating it does nothing."""


Provider: TypeAlias = Harness


@runtime_checkable
class HarnessProvider(Harness, Protocol):
    """A harness that also has a manifest."""

    def manifest(self) -> HarnessManifest: ...


@runtime_checkable
class OneShotProvider(Protocol):
    """Completes a request without a session."""

    async def complete(self, request: OneShotRequest) -> OneShotResult: ...


@runtime_checkable
class ModelEndpointProvider(Protocol):
    """Declares the endpoints of a company and resolves requests for them, without I/O."""

    def manifest(self) -> ModelEndpointManifest: ...
    def resolve(self, request: EndpointRequest) -> EndpointBinding: ...
