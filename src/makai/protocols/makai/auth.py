"""The auth side of a server connection, sans-IO: provider queries and logins.

A login's scope is its `flow_id`, which is the `stream_id` of its envelopes (MK-AUTH-007). It is live from
`auth_login_start` to `auth_login_result`; answers and cancels that come later are acked and ignored (MK-AUTH-014).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from makai.core.errors import InvalidRequest
from makai.protocols.makai import auth_payloads as wire
from makai.protocols.makai.envelope import Envelope, Scope
from makai.protocols.makai.payloads import Ack
from makai.protocols.makai.sender import EnvelopeSender
from makai.protocols.makai.sequences import Inbound

LoginStatus: TypeAlias = Literal["success", "cancelled", "failed"]


class ListProviders(msgspec.Struct, frozen=True):
    """Answer with `providers`."""

    scope: Scope


class StartLogin(msgspec.Struct, frozen=True, kw_only=True):
    """Answer with `event` any number of times, then with `result` once."""

    flow_id: str
    provider_id: str
    account: str | None


class AnswerPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The user answered; a prompt that does not wait for it ignores it."""

    flow_id: str
    prompt_id: str
    answer: str


class CancelLogin(msgspec.Struct, frozen=True):
    """The user gave up; the flow still ends with its `result`."""

    flow_id: str


AuthCommand: TypeAlias = ListProviders | StartLogin | AnswerPrompt | CancelLogin


class AuthScopes:
    """The queries and logins of one connection."""

    def __init__(self, sender: EnvelopeSender, inbound: Inbound) -> None:
        self._sender = sender
        self._inbound = inbound
        self._queries: dict[Scope, str] = {}
        self._flows: dict[str, str] = {}

    @property
    def running(self) -> int:
        """How many queries and logins have not ended."""
        return len(self._queries) + len(self._flows)

    def is_live(self, scope: Scope) -> bool:
        """Whether a query or login is active in this scope."""
        return scope in self._queries or (scope.kind == "stream_id" and scope.id in self._flows)

    def begin(
        self, envelope: Envelope, payload: wire.AuthProvidersRequest | wire.AuthLoginStart, numbers_used: int
    ) -> ListProviders | StartLogin:
        """A query or login in a scope that is free."""
        scope = _stream_scope(envelope)
        self._inbound.take(scope, numbers_used)
        self._sender.sequences.begin(scope)
        self._ack(scope, envelope.message_id)
        if isinstance(payload, wire.AuthProvidersRequest):
            self._queries[scope] = envelope.message_id
            return ListProviders(scope)
        self._flows[scope.id] = payload.provider_id
        return StartLogin(flow_id=scope.id, provider_id=payload.provider_id, account=payload.account)

    def carry_on(
        self, envelope: Envelope, payload: wire.AuthPromptResponse | wire.AuthCancel, numbers_used: int
    ) -> list[AuthCommand]:
        """An answer or a cancel; nothing but an ack when its login is over."""
        scope = _stream_scope(envelope)
        if payload.flow_id != scope.id:
            raise InvalidRequest("flow_id is not the stream_id of this envelope")
        self._ack(scope, envelope.message_id)
        if payload.flow_id not in self._flows:
            self._forget(scope)
            return []
        self._inbound.take(scope, numbers_used)
        if isinstance(payload, wire.AuthCancel):
            return [CancelLogin(payload.flow_id)]
        return [AnswerPrompt(flow_id=payload.flow_id, prompt_id=payload.prompt_id, answer=payload.answer)]

    def providers(self, scope: Scope, providers: tuple[wire.AuthProviderInfo, ...]) -> None:
        message_id = self._queries.pop(scope, None)
        if message_id is None:
            return
        response = wire.AuthProvidersResponse(providers)
        self._sender.send(scope, "auth_providers_response", response, in_reply_to=message_id)
        self._forget(scope)

    def event(self, flow_id: str, event: wire.AuthEvent) -> None:
        if flow_id in self._flows:
            self._sender.send(Scope("stream_id", flow_id), "auth_event", event)

    def result(self, flow_id: str, status: LoginStatus) -> None:
        """The login is over: the last envelope of its scope."""
        provider_id = self._flows.get(flow_id)
        if provider_id is None:
            return
        scope = Scope("stream_id", flow_id)
        result = wire.AuthLoginResult(flow_id=flow_id, provider_id=provider_id, status=status)
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
