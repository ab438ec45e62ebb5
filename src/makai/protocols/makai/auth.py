"""The auth side of a server connection, sans-IO: provider queries and logins, and their payloads. A login's scope is
its `flow_id`, which is the `stream_id` of its envelopes (MK-AUTH-007). It is live from `auth_login_start` to
`auth_login_result`; answers and cancels that come later are acked and ignored (MK-AUTH-014). An `auth_event` travels as
an object with exactly one key, the event's kind; SDKs flatten it for their callers."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from makai.catalog.models import AuthStatus
from makai.core.errors import InvalidRequest
from makai.protocols.makai.envelope import Envelope, Scope
from makai.protocols.makai.framing import EnvelopeSender, Inbound
from makai.protocols.makai.payloads import Ack, Payload

LoginStatus: TypeAlias = Literal["success", "cancelled", "failed"]


class AuthProvidersRequest(Payload, frozen=True):
    pass


class AuthProviderInfo(Payload, frozen=True, kw_only=True):
    id: str
    name: str
    auth_status: AuthStatus
    last_error: str = ""


class AuthProvidersResponse(Payload, frozen=True):
    providers: tuple[AuthProviderInfo, ...]


class AuthLoginStart(Payload, frozen=True, kw_only=True):
    provider_id: str
    account: str | None = None
    """Ours: the name to keep the login under, where a provider has several."""


class AuthPromptResponse(Payload, frozen=True, kw_only=True):
    flow_id: str
    prompt_id: str
    answer: str


class AuthCancel(Payload, frozen=True):
    flow_id: str


class AuthUrl(Payload, frozen=True, kw_only=True):
    flow_id: str
    provider_id: str
    url: str
    instructions: str = ""


class AuthPrompt(msgspec.Struct, frozen=True, kw_only=True):
    flow_id: str
    prompt_id: str
    provider_id: str
    message: str
    allow_empty: bool = False


class AuthProgress(Payload, frozen=True, kw_only=True):
    flow_id: str
    provider_id: str
    message: str


class AuthSuccess(Payload, frozen=True, kw_only=True):
    flow_id: str
    provider_id: str


class AuthFailure(Payload, frozen=True, kw_only=True):
    flow_id: str
    provider_id: str
    message: str
    code: str = ""


class AuthEvent(Payload, frozen=True, kw_only=True):
    """Exactly one field is set; its name is the kind of the event."""

    auth_url: AuthUrl | None = None
    prompt: AuthPrompt | None = None
    progress: AuthProgress | None = None
    success: AuthSuccess | None = None
    error: AuthFailure | None = None


class AuthLoginResult(Payload, frozen=True, kw_only=True):
    flow_id: str
    provider_id: str
    status: LoginStatus


AUTH_CLIENT_PAYLOADS: dict[str, type[msgspec.Struct]] = {
    "auth_providers_request": AuthProvidersRequest,
    "auth_login_start": AuthLoginStart,
    "auth_prompt_response": AuthPromptResponse,
    "auth_cancel": AuthCancel,
}
AUTH_AFTERTHOUGHTS = frozenset({"auth_prompt_response", "auth_cancel"})
"""What belongs to a login that was started before; it may come when that is already over."""

AUTH_SERVER_PAYLOADS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "auth_providers_response": (AuthProvidersResponse,),
    "auth_event": (AuthEvent,),
    "auth_login_result": (AuthLoginResult,),
}


class ListProviders(msgspec.Struct, frozen=True):
    """Answer with `providers`."""

    scope: Scope


class StartLogin(msgspec.Struct, frozen=True, kw_only=True):
    """Answer with `event` any number of times, then with `result` once."""

    flow_id: str
    provider_id: str
    account: str | None


AuthCommand: TypeAlias = ListProviders | StartLogin | AuthPromptResponse | AuthCancel
"""What the connection asks of its shell. A prompt that does not wait for a response ignores it; a cancelled login still
ends with its `result`."""


class AuthScopes:
    def __init__(self, sender: EnvelopeSender, inbound: Inbound) -> None:
        self._sender = sender
        self._inbound = inbound
        self._queries: dict[Scope, str] = {}
        self._flows: dict[str, str] = {}

    @property
    def running(self) -> int:
        return len(self._queries) + len(self._flows)

    def is_live(self, scope: Scope) -> bool:
        return scope in self._queries or (scope.kind == "stream_id" and scope.id in self._flows)

    def begin(
        self, envelope: Envelope, payload: AuthProvidersRequest | AuthLoginStart, numbers_used: int
    ) -> ListProviders | StartLogin:
        """A query or login in a scope that is free."""
        scope = _stream_scope(envelope)
        self._inbound.take(scope, numbers_used)
        self._sender.sequences.begin(scope)
        self._ack(scope, envelope.message_id)
        if isinstance(payload, AuthProvidersRequest):
            self._queries[scope] = envelope.message_id
            return ListProviders(scope)
        self._flows[scope.id] = payload.provider_id
        return StartLogin(flow_id=scope.id, provider_id=payload.provider_id, account=payload.account)

    def carry_on(
        self, envelope: Envelope, payload: AuthPromptResponse | AuthCancel, numbers_used: int
    ) -> list[AuthCommand]:
        """An answer or a cancel; nothing but an ack when its login is over."""
        scope = _stream_scope(envelope)
        if payload.flow_id != scope.id:
            raise InvalidRequest("flow_id is not the stream_id of this envelope")
        self._ack(scope, envelope.message_id)
        if payload.flow_id not in self._flows:
            self._forget(scope)
            return []
        self._inbound.accept(scope, envelope.sequence + numbers_used)
        return [payload]

    def providers(self, scope: Scope, providers: tuple[AuthProviderInfo, ...]) -> None:
        message_id = self._queries.pop(scope, None)
        if message_id is None:
            return
        response = AuthProvidersResponse(providers)
        self._sender.send(scope, "auth_providers_response", response, in_reply_to=message_id)
        self._forget(scope)

    def event(self, flow_id: str, event: AuthEvent) -> None:
        if flow_id in self._flows:
            self._sender.send(Scope("stream_id", flow_id), "auth_event", event)

    def result(self, flow_id: str, status: LoginStatus) -> None:
        """The login is over: the last envelope of its scope."""
        provider_id = self._flows.get(flow_id)
        if provider_id is None:
            return
        scope = Scope("stream_id", flow_id)
        result = AuthLoginResult(flow_id=flow_id, provider_id=provider_id, status=status)
        self._sender.send(scope, "auth_login_result", result)
        del self._flows[flow_id]
        self._forget(scope)

    def _ack(self, scope: Scope, message_id: str) -> None:
        self._sender.send(scope, "ack", Ack(message_id), in_reply_to=message_id)

    def _forget(self, scope: Scope) -> None:
        self._inbound.forget(scope)
        self._sender.sequences.forget(scope)


def _stream_scope(envelope: Envelope) -> Scope:
    if envelope.stream_id is None:
        raise InvalidRequest(f"{envelope.type} belongs to a stream_id")
    return envelope.scope
