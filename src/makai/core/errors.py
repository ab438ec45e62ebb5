"""Every way makai can fail, as one tree. Each class has one stable wire code (`error_from_code` is the way back). A
message says what happened; `hint` says what the user can do next. Neither ever holds a secret."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, TypeVar

AuthErrorKind: TypeAlias = Literal["provider_error", "cancelled", "transport_error", "unknown"]
EndpointErrorKind: TypeAlias = Literal[
    "unknown_company",
    "unknown_host",
    "auth_not_offered",
    "missing_key",
    "missing_value",
    "invalid_value",
    "not_in_matrix",
]
RefusalCode: TypeAlias = Literal[
    "BUSY",
    "NOT_RUNNING",
    "STALE_RUN_ID",
    "UNKNOWN_CALL_ID",
    "APPROVAL_CONFLICT",
    "INPUT_NOT_WAITING",
    "BAD_ARGUMENT",
    "INVALID_COMMAND",
    "UNKNOWN_SESSION",
    "SESSION_EXISTS",
    "SESSION_CLOSED",
]
"""MiniCodex's codes, one about queued messages, and three about the session itself."""
StreamErrorKind: TypeAlias = Literal["provider_error", "transport_error", "aborted", "unknown"]


class MakaiError(Exception):
    """Base of everything makai raises on purpose."""

    code: str = "internal_error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class ParseError(MakaiError):
    """Input that its format does not allow: JSON, NDJSON, SSE, envelopes."""

    code = "parse_error"


class MissingEventKind(ParseError):
    """An event without a `kind`, or with an empty one."""


class UnknownEventKind(ParseError):
    """An event of a kind that the contract of harnesses does not have."""

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class InvalidRequest(MakaiError):
    """The request cannot be carried out as written; nothing was sent upstream."""

    code = "invalid_request"


class ModelNotFound(InvalidRequest):
    """No model of that name. The message always contains "model not found"."""


class ModelRefError(InvalidRequest):
    """A malformed `model_ref`; `kind` is stable and machine-readable."""

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class EndpointError(InvalidRequest):
    """A request for a model endpoint cannot be resolved; `kind` says why."""

    def __init__(self, message: str, *, kind: EndpointErrorKind, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class NoProvider(InvalidRequest):
    """No harness is registered under that name."""

    code = "no_provider"


class SessionNotFound(InvalidRequest):
    """A harness does not know the session that it was asked to resume, or the session has ended."""

    code = "session_not_found"


class ModelRetired(MakaiError):
    """A ref we issued once, whose model its vendor has retired."""

    code = "model_not_found"


class NotSupported(MakaiError):
    """Asked for something this runtime or this model API does not offer."""

    code = "not_implemented"


class Unsupported(NotSupported):
    """A harness was asked for a capability that it does not declare."""

    code = "unsupported"


class Forbidden(MakaiError):
    """The caller's token may not do this; the hint says which one may."""

    code = "forbidden"


class AuthError(MakaiError):
    """Base of credential failures. `provider_id` names whose login is needed."""

    code = "auth_required"

    def __init__(self, message: str, *, provider_id: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.provider_id = provider_id


class AuthRequired(AuthError):
    """No usable credential, or the provider refused the one we sent."""


class AuthExpired(AuthError):
    """The credential expired and there is no way to refresh it."""

    code = "auth_expired"


class InvalidGrant(AuthError):
    """The OAuth server's `invalid_grant` (RFC 6749 section 5.2): this code or refresh token is over for good. The only
    refusal of a refresh that is permanent; every other one may pass."""

    code = "auth_expired"


class AuthRefreshFailed(AuthError):
    """The credential expired and refreshing it failed."""

    code = "auth_refresh_failed"


class Aborted(MakaiError):
    """The caller stopped the operation."""

    code = "aborted"


class TransportError(MakaiError):
    """The way between two makai processes failed: no connection, a refused one, or one that broke."""

    code = "transport_error"


class ChannelClosed(TransportError):
    """Nothing can be sent any more: the peer is gone, or this side closed the channel."""


class ToolUnavailable(MakaiError):
    """The program that executes a tool is not connected, or disconnected during the call."""

    code = "tool_unavailable"


class ToolTimeout(MakaiError):
    """The program that executes a tool did not answer in time."""

    code = "tool_timeout"


class AgentFailed(MakaiError):
    """An external agent could not be started, ended, broke its protocol or refused what it was asked. The message has
    the last lines of its standard error."""

    code = "agent_failed"


NO_RESULT: Final = "spawn_no_result"
"""The code of an `AgentFailed` about an agent that ended as if it were well, without a result."""


class SpawnFailed(AgentFailed):
    """A harness could not start this session."""

    code = "spawn_failed"


class ProviderUnavailable(AgentFailed):
    """The program that a harness needs is missing or does not answer: no session of it can start."""

    code = "provider_unavailable"


class ProviderError(MakaiError):
    """The model API failed after we accepted the request. Carries what the vendor said: HTTP status, its own error
    code, its request id, how long to wait, and whether credit or a limit per day is used up, so that no wait helps."""

    code = "provider_error"

    def __init__(
        self,
        message: str,
        *,
        provider_id: str | None = None,
        status: int | None = None,
        vendor_code: str | None = None,
        request_id: str | None = None,
        retry_after_ms: int | None = None,
        quota_exhausted: bool = False,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.provider_id = provider_id
        self.status = status
        self.quota_exhausted = quota_exhausted
        self.vendor_code = vendor_code
        self.request_id = request_id
        self.retry_after_ms = retry_after_ms


class RateLimited(ProviderError):
    """Too many requests or tokens (HTTP 429)."""

    code = "rate_limited"


class Overloaded(ProviderError):
    """The vendor is over capacity (HTTP 503, 529)."""

    code = "overloaded"


class ContextOverflow(ProviderError):
    """The conversation does not fit into the model's context window."""

    code = "context_overflow"


class StorageUnavailable(MakaiError):
    """The store of sessions refuses: a full disk, an I/O error, a read-only file. Nothing was acknowledged or shown."""

    code = "storage_unavailable"


class LogDamaged(StorageUnavailable):
    """What is stored for a session is not what was written. Other sessions are not affected."""

    def __init__(self, message: str, *, session_id: str, event_id: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.session_id = session_id
        self.event_id = event_id


class HomeInUse(StorageUnavailable):
    """Another process owns the sessions of this MAKAI_HOME; `pid` names it where it is known."""

    def __init__(self, message: str, *, pid: int | None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.pid = pid


class OwnershipLost(StorageUnavailable):
    """A writer was refused because it does not own the sessions any more, or knows an old version of one. Nothing was
    stored. What it knows about the session is read again before it is used again."""


class SessionElsewhere(StorageUnavailable):
    """Another node of the cluster owns the session, or has its folder. Nothing was changed; ask that node."""

    def __init__(self, message: str, *, node_id: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.node_id = node_id


class LogConflict(MakaiError):
    """An append expected another last event than the session has: its writer's view is out of date."""

    def __init__(self, message: str, *, expected: int, last: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.last = last


class SessionRefused(MakaiError):
    """A session refused a command; nothing was logged and nothing changed. Each protocol sends `code` as it is, or maps
    it."""

    def __init__(self, code: RefusalCode, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class MakaiAuthError(MakaiError):
    """What an SDK raises about logins. A login failed or was cancelled, or one is needed: then `code` is
    "auth_required" and `provider_id` says whose."""

    def __init__(
        self,
        message: str,
        *,
        kind: AuthErrorKind,
        code: str | None = None,
        provider_id: str | None = None,
        hint: str | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        """`warnings` are those of the run that failed: what the user should know about it."""
        super().__init__(message, hint=hint)
        self.kind = kind
        self.warnings = warnings
        self.code = code or kind
        self.provider_id = provider_id


class MakaiStreamError(MakaiError):
    """What an SDK raises when any other request was refused, failed, was aborted or lost its connection."""

    def __init__(
        self,
        message: str,
        *,
        kind: StreamErrorKind,
        code: str | None = None,
        provider_id: str | None = None,
        retry_after_ms: int | None = None,
        hint: str | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        """`warnings` are those of the run that failed: what the user should know about it."""
        super().__init__(message, hint=hint)
        self.kind = kind
        self.warnings = warnings
        self.code = code or kind
        self.provider_id = provider_id
        self.retry_after_ms = retry_after_ms


_PROVIDER_ERRORS: dict[str, type[ProviderError]] = {
    error.code: error for error in (ProviderError, RateLimited, Overloaded, ContextOverflow)
}
_AUTH_ERRORS: dict[str, type[AuthError]] = {
    error.code: error for error in (AuthRequired, AuthExpired, AuthRefreshFailed)
}
_PLAIN_ERRORS: dict[str, type[MakaiError]] = {
    error.code: error
    for error in (
        ParseError,
        InvalidRequest,
        ModelRetired,
        NotSupported,
        Forbidden,
        Aborted,
        TransportError,
        AgentFailed,
        NoProvider,
        SessionNotFound,
        Unsupported,
        SpawnFailed,
        ProviderUnavailable,
        ToolUnavailable,
        ToolTimeout,
    )
} | {StorageUnavailable.code: StorageUnavailable}


Found = TypeVar("Found", bound=BaseException)


def find_error(error: BaseException | None, kind: type[Found]) -> Found | None:
    """The error of that class which `error` is, groups or was raised from (`raise ... from`), else None: an error stays
    recognizable after others wrapped it with context (DM-PROV-005)."""
    seen = set[int]()
    waiting = [error]
    while waiting:
        candidate = waiting.pop(0)
        if candidate is None or id(candidate) in seen:
            continue
        if isinstance(candidate, kind):
            return candidate
        seen.add(id(candidate))
        waiting += candidate.exceptions if isinstance(candidate, BaseExceptionGroup) else ()
        waiting.append(candidate.__cause__ or (None if candidate.__suppress_context__ else candidate.__context__))
    return None


def error_from_code(
    code: str,
    message: str,
    *,
    provider_id: str | None = None,
    retry_after_ms: int | None = None,
    hint: str | None = None,
) -> MakaiError:
    """The exception for a wire code: the inverse of `.code`, for clients and for `complete`."""
    if auth_error := _AUTH_ERRORS.get(code):
        return auth_error(message, provider_id=provider_id or "unknown", hint=hint)
    if provider_error := _PROVIDER_ERRORS.get(code):
        return provider_error(message, provider_id=provider_id, retry_after_ms=retry_after_ms, hint=hint)
    return _PLAIN_ERRORS.get(code, MakaiError)(message, hint=hint)
