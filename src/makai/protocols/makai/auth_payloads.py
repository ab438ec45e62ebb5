"""Every payload of the auth side of the protocol, as types.

An `auth_event` travels as an object with exactly one key, the event's kind; SDKs flatten it for their callers.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from makai.catalog.models import AuthStatus
from makai.protocols.makai.payloads import Payload


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
    status: Literal["success", "cancelled", "failed"]


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
