"""What a server or a transport reported, as an exception: `MakaiAuthError` when a login is needed or failed,
`MakaiStreamError` for everything else."""

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


def failure_of(said: Nack | StreamError | AgentError | ErrorEvent) -> ClientFailure:
    """The exception for a request that was refused, that failed after it was accepted, or for a run that failed."""
    match said:
        case Nack(error_code=code, reason=message):
            pass
        case StreamError(error_code=code, error_message=message):
            pass
        case _:
            code, message = said.code, said.message
    provider_id, hint = said.provider_id, said.hint
    warnings = said.warnings if isinstance(said, AgentError) else ()
    if code in _AUTH_CODES:
        return MakaiAuthError(
            message, kind="provider_error", code=code, provider_id=provider_id, hint=hint, warnings=warnings
        )
    kind: StreamErrorKind = "provider_error" if code in _UPSTREAM_CODES else "unknown"
    return MakaiStreamError(
        message,
        kind="aborted" if code == "aborted" else kind,
        code=code,
        provider_id=provider_id,
        retry_after_ms=said.retry_after_ms,
        hint=hint,
        warnings=warnings,
    )


def error_event(failure: ClientFailure) -> ErrorEvent:
    """The terminal event of an answer or a run that failed."""
    return ErrorEvent(
        message=failure.message,
        code=failure.code,
        provider_id=failure.provider_id,
        retry_after_ms=failure.retry_after_ms if isinstance(failure, MakaiStreamError) else None,
        hint=failure.hint,
    )


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
