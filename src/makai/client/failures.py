"""What a server or a transport reported -> one of the SDK's two exceptions.

`MakaiAuthError` means that a login is needed or failed, `MakaiStreamError` everything else.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from makai.client.types import ErrorEvent
from makai.core.errors import AuthErrorKind, MakaiAuthError, MakaiStreamError, StreamErrorKind
from makai.protocols.makai.agent_payloads import AgentError
from makai.protocols.makai.payloads import Nack, StreamError

ClientFailure: TypeAlias = MakaiAuthError | MakaiStreamError

_AUTH_CODES: Final = frozenset({"auth_required", "auth_expired", "auth_refresh_failed"})
_UPSTREAM_CODES: Final = frozenset({"provider_error", "rate_limited", "overloaded", "context_overflow"})
_AUTH_KINDS: Final[dict[StreamErrorKind, AuthErrorKind]] = {
    "provider_error": "provider_error",
    "transport_error": "transport_error",
    "aborted": "cancelled",
    "unknown": "unknown",
}


def refusal(nack: Nack) -> ClientFailure:
    """A request the server did not accept."""
    return _failure(nack.error_code, nack.reason, nack)


def stream_failure(error: StreamError) -> ClientFailure:
    """A request that failed after the server had accepted it."""
    return _failure(error.error_code, error.error_message, error)


def event_failure(event: ErrorEvent) -> ClientFailure:
    """The exception for a caller who wants no events."""
    return _failure(event.code, event.message, event)


def run_failure(error: AgentError) -> ClientFailure:
    """An agent's run that failed, was stopped, or was not begun because another one is active."""
    return _failure(error.code, error.message, error)


def transport_failure(message: str, code: str = "transport_error", hint: str | None = None) -> MakaiStreamError:
    """The connection does not work, or not any more."""
    return MakaiStreamError(message, kind="transport_error", code=code, hint=hint)


def broken_protocol(what: str) -> MakaiStreamError:
    """The server sent what no server of this protocol sends."""
    return transport_failure(f"the server broke the protocol: {what}", code="parse_error")


def as_auth_error(error: ClientFailure, provider_id: str | None = None) -> MakaiAuthError:
    """What went wrong in an auth operation, as the exception that auth operations raise."""
    if isinstance(error, MakaiAuthError):
        return error
    return MakaiAuthError(
        error.message,
        kind=_AUTH_KINDS[error.kind],
        code=error.code,
        provider_id=error.provider_id or provider_id,
        hint=error.hint,
    )


def _failure(code: str | None, message: str, details: Nack | StreamError | AgentError | ErrorEvent) -> ClientFailure:
    if code in _AUTH_CODES:
        return MakaiAuthError(
            message, kind="provider_error", code=code, provider_id=details.provider_id, hint=details.hint
        )
    return MakaiStreamError(
        message,
        kind=_stream_kind(code),
        code=code,
        provider_id=details.provider_id,
        retry_after_ms=details.retry_after_ms,
        hint=details.hint,
    )


def _stream_kind(code: str | None) -> StreamErrorKind:
    if code == "aborted":
        return "aborted"
    return "provider_error" if code in _UPSTREAM_CODES else "unknown"
