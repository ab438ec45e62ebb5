import pytest

from makai.core import errors
from makai.core.errors import AuthError, MakaiError, ProviderError, error_from_code

CONCRETE = [
    (errors.ParseError, "parse_error"),
    (errors.InvalidRequest, "invalid_request"),
    (errors.ModelRetired, "model_not_found"),
    (errors.NotSupported, "not_implemented"),
    (errors.AuthRequired, "auth_required"),
    (errors.AuthExpired, "auth_expired"),
    (errors.AuthRefreshFailed, "auth_refresh_failed"),
    (errors.Aborted, "aborted"),
    (errors.TransportError, "transport_error"),
    (errors.ProviderError, "provider_error"),
    (errors.RateLimited, "rate_limited"),
    (errors.Overloaded, "overloaded"),
    (errors.ContextOverflow, "context_overflow"),
]


@pytest.mark.parametrize(("kind", "code"), CONCRETE)
def test_every_error_has_its_wire_code_and_comes_back_from_it(kind: type[MakaiError], code: str) -> None:
    error = error_from_code(code, "what happened", provider_id="acme", retry_after_ms=7, hint="do this")
    assert type(error) is kind
    assert (error.code, error.message, error.hint) == (code, "what happened", "do this")
    if isinstance(error, AuthError | ProviderError):
        assert error.provider_id == "acme"
    if isinstance(error, ProviderError):
        assert error.retry_after_ms == 7


def test_an_unknown_code_becomes_the_base_error() -> None:
    assert type(error_from_code("from_the_future", "x")) is MakaiError


def test_an_error_reads_as_its_message_and_what_to_do_next() -> None:
    assert str(MakaiError("It broke.", hint="Try again.")) == "It broke. Try again."
    assert str(MakaiError("It broke.")) == "It broke."


def test_a_grant_that_is_over_reads_as_an_expired_login_to_clients() -> None:
    error = errors.InvalidGrant("The server ended this login.", provider_id="acme")

    assert error.code == "auth_expired"
    assert type(error_from_code(error.code, error.message, provider_id="acme")) is errors.AuthExpired
