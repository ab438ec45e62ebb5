"""OAuth 2 and OpenID Connect as data: what to send, and what the answers mean. Pure, apart from drawing random bytes.

Answers become typed values or one typed error: `InvalidGrant` (ended for good), `AuthRequired` (the user must act),
`ProviderError` (may pass), `InvalidRequest` (configured wrongly). A server's text may repeat what it was sent, so only
harmless words of it are shown (`plain_words`).

RFC 6749 (OAuth 2.0), 7636 (PKCE), 8252 (native apps), 8628 (device flow), 9207 (issuer in the answer), 9700 (security).
"""

from __future__ import annotations

import base64
import binascii
import email.utils
import hashlib
import re
import secrets
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

import msgspec

from makai.auth.credentials import safe_origin
from makai.auth.http import Fields, HttpAnswer, revealed
from makai.core.errors import AuthRequired, InvalidGrant, InvalidRequest, MakaiError, ParseError, ProviderError
from makai.core.secret import Secret
from makai.wire.strict_json import decode

DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
MAX_LIFETIME_S: Final = 10 * 365 * 24 * 3600
MAX_TOKEN: Final = 64 * 1024
MAX_PASTED: Final = 8 * 1024

_WORD: Final = re.compile(
    r"[\"'(]*"
    r"([A-Z]?[a-z']{1,20}(-[A-Z]?[a-z']{1,20}){0,2}|[AI]|[a-z]{1,12}(_[a-z]{1,12}){1,4}|[A-Z]{2,8}|\d{1,4})"
    r"[.,:;!?)\"']*"
)
_ERROR_CODE: Final = re.compile(r"[a-z][a-z_]{2,39}")
_MAX_WORDS: Final = 30

_EXPLANATIONS: Final = {
    "access_denied": "access was denied",
    "expired_token": "the code was not entered in time",
    "invalid_client": "the server does not know this client id, or its secret is wrong",
    "unauthorized_client": "this client may not log in this way",
    "invalid_scope": "the server does not grant these scopes",
    "invalid_grant": "the server says that this login or code is no longer valid",
    "temporarily_unavailable": "the server is not available at the moment",
    "server_error": "the server failed",
}
_OVER: Final = frozenset(
    {"invalid_grant", "refresh_token_expired", "refresh_token_reused", "refresh_token_invalidated"}
)
"""RFC 6749 section 5.2, and how auth.openai.com spells it."""
_PASSING: Final = frozenset({"temporarily_unavailable", "server_error", "slow_down"})


class Pkce(msgspec.Struct, frozen=True):
    """A verifier and its S256 challenge; used once."""

    verifier: Secret
    challenge: str


class TokenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A successful answer of a token endpoint (RFC 6749 section 5.1)."""

    access: Secret
    refresh: Secret | None = None
    expires_at_ms: int | None = None
    scope: str = ""
    id_token: Secret | None = None


class DeviceAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """What the user must type where, and how often we may ask (RFC 8628 section 3.2)."""

    device_code: Secret
    user_code: str
    verification_uri: str
    verification_uri_complete: str = ""
    expires_in_s: int = 600
    interval_s: int = 5
    """Section 3.2: "If no value is provided, clients MUST use 5 as the default." """


class ServerMetadata(msgspec.Struct, frozen=True, kw_only=True):
    issuer: str = ""
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    device_authorization_endpoint: str = ""
    revocation_endpoint: str = ""
    names_itself: bool = False
    """`authorization_response_iss_parameter_supported`: an answer without `iss` is not from this server."""


ENDPOINTS: Final = ServerMetadata.__struct_fields__[1:-1]


def try_again(message: str, provider_id: str) -> AuthRequired:
    return AuthRequired(message, provider_id=provider_id, hint=f"Try again: `makai auth login {provider_id}`")


def new_pkce() -> Pkce:
    """A fresh pair: 256 random bits, S256 (RFC 7636 section 4.1 and 4.2)."""
    verifier = secrets.token_urlsafe(32)
    digest = hashlib.sha256(verifier.encode()).digest()
    return Pkce(Secret(verifier), base64.urlsafe_b64encode(digest).rstrip(b"=").decode())


def new_state() -> Secret:
    """256 random bits that tie an answer to its request; compared in constant time, used once."""
    return Secret(secrets.token_urlsafe(32))


def with_query(url: str, parameters: Fields) -> str:
    """The URL with these parameters added to whatever query it has; empty ones are left out."""
    parts = urllib.parse.urlsplit(url)
    query = urllib.parse.urlencode({name: value for name, value in revealed(parameters).items() if value})
    return urllib.parse.urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, query))), fragment=""))


def authorization_url(
    endpoint: str,
    *,
    client_id: str,
    redirect_uri: str,
    scope: str,
    pkce: Pkce,
    state: Secret,
    extra: Mapping[str, str] | None = None,
) -> str:
    """Where the user's browser goes (RFC 6749 section 4.1.1, RFC 7636 section 4.3)."""
    # OpenID Connect Core section 11: offline access is only granted when the request asks for consent.
    consent = "consent" if "offline_access" in scope.split() else ""
    return with_query(
        endpoint,
        {
            "response_type": "code",
            "client_id": client_id,
            "redirect_uri": redirect_uri,
            "scope": scope,
            "state": state,
            "code_challenge": pkce.challenge,
            "code_challenge_method": "S256",
            "prompt": consent,
            **(extra or {}),
        },
    )


def code_form(code: Secret, *, client_id: str, client_secret: Secret | None, redirect_uri: str, pkce: Pkce) -> Fields:
    """Trade a code for tokens (RFC 6749 section 4.1.3, RFC 7636 section 4.5)."""
    return {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": pkce.verifier,
        **_client(client_id, client_secret),
    }


def refresh_form(refresh: Secret, *, client_id: str, client_secret: Secret | None) -> Fields:
    """Trade a refresh token for new tokens (RFC 6749 section 6)."""
    return {"grant_type": "refresh_token", "refresh_token": refresh, **_client(client_id, client_secret)}


def device_form(device_code: Secret, *, client_id: str, client_secret: Secret | None) -> Fields:
    """Ask whether the user has typed the code (RFC 8628 section 3.4)."""
    return {"grant_type": DEVICE_GRANT, "device_code": device_code, **_client(client_id, client_secret)}


def revocation_form(token: Secret, hint: str, *, client_id: str, client_secret: Secret | None) -> Fields:
    """End a token (RFC 7009 section 2.1)."""
    return {"token": token, "token_type_hint": hint, **_client(client_id, client_secret)}


def read_token_answer(answer: HttpAnswer, *, provider_id: str, now_ms: int) -> TokenAnswer:
    """The tokens, or the error that says why there are none. Lifetimes are counted from `now_ms` (take it before
    asking): the server's clock and ours need not agree."""
    fields = successful_object(answer, provider_id=provider_id)
    access = _token(fields, "access_token")
    if access is None:
        raise ProviderError("The login server's answer holds no access token.", provider_id=provider_id)
    kind = fields.get("token_type", "bearer")
    if not (isinstance(kind, str) and kind.lower() in ("bearer", "")):
        # RFC 6749 section 7.1: "The client MUST NOT use an access token if it does not understand the token type."
        raise ProviderError("The login server issued a kind of token we cannot use.", provider_id=provider_id)
    lifetime, scope = _seconds(fields.get("expires_in")), fields.get("scope")
    expires_in_token = local_expiry_ms(jwt_claims(access).get("exp"), answer, now_ms) if lifetime is None else None
    return TokenAnswer(
        access=access,
        refresh=_token(fields, "refresh_token"),
        expires_at_ms=expires_in_token if lifetime is None else now_ms + lifetime * 1000,
        scope=scope if isinstance(scope, str) else "",
        id_token=_token(fields, "id_token"),
    )


def read_device_answer(answer: HttpAnswer, *, provider_id: str) -> DeviceAuthorization:
    fields = successful_object(answer, provider_id=provider_id)
    device_code = _token(fields, "device_code")
    user_code = fields.get("user_code")
    # Google's older spelling is accepted: RFC 8628 appeared after its endpoint.
    address = fields.get("verification_uri", fields.get("verification_url"))
    if device_code is None or not _is_line(user_code) or not _is_line(address):
        raise ProviderError("The login server's answer holds no code to type.", provider_id=provider_id)
    safe_origin(address)
    complete = fields.get("verification_uri_complete")
    if not _is_line(complete) or safe_origin(complete) != safe_origin(address):
        complete = ""
    expires_in_s, interval_s = _seconds(fields.get("expires_in")), _seconds(fields.get("interval"))
    return DeviceAuthorization(
        device_code=device_code,
        user_code=user_code,
        verification_uri=address,
        verification_uri_complete=complete,
        expires_in_s=600 if expires_in_s is None else expires_in_s,
        interval_s=5 if interval_s is None else max(interval_s, 1),
    )


def read_metadata(answer: HttpAnswer, *, issuer: str, provider_id: str) -> ServerMetadata:
    """An OpenID Connect discovery document. OpenID Connect Discovery section 4.3: "The issuer value returned MUST be
    identical to the Issuer URL"."""
    fields = successful_object(answer, provider_id=provider_id)
    if str(fields.get("issuer", "")).rstrip("/") != issuer.rstrip("/"):
        hint = f"Check `issuer` in [providers.{provider_id}.login] of config.toml."
        raise InvalidRequest(f"The server at {safe_origin(issuer)} names another issuer.", hint=hint)
    names_itself = fields.get("authorization_response_iss_parameter_supported") is True
    found: dict[str, str | bool] = {"issuer": str(fields["issuer"]), "names_itself": names_itself}
    for name in ENDPOINTS:
        value = fields.get(name)
        if _is_line(value):
            safe_origin(value)
            found[name] = value
    return msgspec.convert(found, ServerMetadata)


class Callback(msgspec.Struct, frozen=True, kw_only=True):
    """The browser's answer that we wait for: where it must arrive and what it must carry."""

    provider_id: str
    state: Secret
    path: str = "/callback"
    state_in_path: bool = False
    """For servers that return no `state`: it is then the last part of the path."""
    issuer: str = ""
    needs_issuer: bool = False
    """Whether the server said that it names itself in every answer."""

    @property
    def redirect_path(self) -> str:
        return f"{self.path}/{self.state.reveal()}" if self.state_in_path else self.path

    def is_addressed(self, path: str) -> bool:
        """Whether a request for this path may be the answer."""
        return Secret(self.redirect_path).matches(path)

    def read(self, query: str) -> Secret:
        """The code; `AuthRequired` when the server refused, `ParseError` when the answer is not ours. Not ours is what
        does not carry our state (RFC 6749 section 10.12) or comes from another issuer (RFC 9207)."""
        fields = _query_fields(query)
        if not self.state_in_path and not self.state.matches(fields.get("state", "")):
            raise ParseError("This answer does not belong to the login that is running.")
        named = fields.get("iss", "" if self.needs_issuer else self.issuer)
        if self.issuer and named.rstrip("/") != self.issuer.rstrip("/"):
            raise ParseError("This answer comes from another login server.")
        if "error" in fields:
            raise refusal(fields["error"], fields.get("error_description", ""), provider_id=self.provider_id)
        if not fields.get("code"):
            raise try_again("The login page sent no code.", self.provider_id)
        return Secret(fields["code"])

    def read_pasted(self, text: str) -> Secret:
        """The code in what the user pasted: the whole address, its query, `code#state`, or the bare code."""
        text = text.strip()
        if not text or len(text) > MAX_PASTED or not text.isprintable() or " " in text:
            raise ParseError("That is not the address or code of a login.")
        if "?" in text:
            address, _, query = text.partition("?")
            if not self.is_addressed(urllib.parse.urlsplit(address).path):
                raise ParseError("That is not the address the login ends at.")
            return self.read(query.partition("#")[0])
        if "code=" in text or "error=" in text:
            return self.read(text)
        code, _, state = text.partition("#")
        if state and not self.state.matches(state):
            raise ParseError("This code does not belong to the login that is running.")
        if not code or "://" in code:
            raise ParseError("That address holds no code.")
        return Secret(code)


def refusal(error: object, description: object, *, provider_id: str) -> MakaiError:
    """The exception for a server's error code, in words that cannot hold a secret."""
    if isinstance(error, dict):  # auth.openai.com answers {"error": {"code", "message"}}
        description = error.get("message")
        error = error.get("code")
    code = error if isinstance(error, str) and _ERROR_CODE.fullmatch(error) else "an error it did not name"
    words = plain_words(description)
    explanation = _EXPLANATIONS.get("invalid_grant" if code in _OVER else code, f"the server answered {code}")
    message = f"The login at {provider_id} failed: {explanation}" + (f" ({words})" if words else "") + "."
    if code in _OVER:
        return InvalidGrant(message, provider_id=provider_id, hint=f"Log in again: `makai auth login {provider_id}`")
    if code in _PASSING:
        return ProviderError(message, provider_id=provider_id, vendor_code=code, hint="Try again in a while.")
    return try_again(message, provider_id)


def error_code(answer: HttpAnswer) -> str:
    """The `error` of a token endpoint's answer; "" when it holds none (GitHub sends errors with status 200)."""
    error = (_object(answer) or {}).get("error")
    if isinstance(error, dict):
        error = error.get("code")
    return error if isinstance(error, str) and _ERROR_CODE.fullmatch(error) else ""


def successful_object(answer: HttpAnswer, *, provider_id: str) -> dict[str, Any]:
    """The JSON object of a successful answer; the typed error of any other."""
    fields = _object(answer)
    if fields is not None and fields.get("error"):
        if answer.status >= 500 or answer.status == 429:
            raise _unusable(answer, provider_id)
        raise refusal(fields["error"], fields.get("error_description"), provider_id=provider_id)
    if fields is None or not 200 <= answer.status < 300:
        raise _unusable(answer, provider_id)
    return fields


def _object(answer: HttpAnswer) -> dict[str, Any] | None:
    try:
        fields = decode(answer.body)
    except ParseError:
        return None
    return fields if isinstance(fields, dict) else None


def _unusable(answer: HttpAnswer, provider_id: str) -> ProviderError:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    what = "a web page" if kind == "text/html" or answer.body.lstrip()[:1] == b"<" else f"HTTP status {answer.status}"
    if 200 <= answer.status < 300 and what != "a web page":
        what = "something that is not a JSON object"
    return ProviderError(
        f"The login server of {provider_id} answered with {what} instead of a token.",
        provider_id=provider_id,
        status=answer.status,
        hint="Try again in a while; behind a proxy or a captive portal, log in to that first.",
    )


def jwt_claims(token: Secret | None) -> dict[str, Any]:
    """The claims of a JWT that came straight from the token endpoint over TLS; {} when it is none.

    OpenID Connect Core section 3.1.3.7, 6: "the TLS server validation MAY be used to validate the issuer in place of
    checking the token signature". They are only used as labels and ids, never to decide who may do what here.
    """
    parts = token.reveal().split(".") if token is not None else []
    if len(parts) != 3:
        return {}
    try:
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = decode(text)
    except (binascii.Error, ValueError, ParseError):
        return {}
    return claims if isinstance(claims, dict) else {}


def local_expiry_ms(expires_at_s: object, answer: HttpAnswer, now_ms: int) -> int | None:
    """An absolute expiry of the server as a time of this machine's clock, which may go wrong by any amount."""
    if not isinstance(expires_at_s, int) or isinstance(expires_at_s, bool):
        return None
    try:
        server_ms = int(email.utils.parsedate_to_datetime(answer.headers["date"]).timestamp() * 1000)
    except (KeyError, ValueError):
        server_ms = now_ms
    return now_ms + min(max(expires_at_s * 1000 - server_ms, 0), MAX_LIFETIME_S * 1000)


def plain_words(text: object) -> str:
    """What a server said, reduced to ordinary words: whatever could be a token, a key or an address is left out."""
    if not isinstance(text, str):
        return ""
    words = [word if _WORD.fullmatch(word) else "…" for word in text.split()[:_MAX_WORDS]]
    return " ".join(words).strip(" .…") if any(word != "…" for word in words) else ""


def _client(client_id: str, client_secret: Secret | None) -> dict[str, str | Secret]:
    return {"client_id": client_id} | ({"client_secret": client_secret} if client_secret else {})


def _query_fields(query: str) -> dict[str, str]:
    """RFC 6749 section 3.1: "Request and response parameters MUST NOT be included more than once." Which of two values
    counts must not be left to the order in which someone wrote them."""
    try:
        pairs = urllib.parse.parse_qsl(query, keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError:
        raise ParseError("The answer of the login page cannot be read.") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ParseError("The answer of the login page names a value twice.")
    return fields


def _token(fields: Mapping[str, Any], name: str) -> Secret | None:
    value = fields.get(name)
    if not (isinstance(value, str) and value and len(value) <= MAX_TOKEN and value.isascii() and value.isprintable()):
        return None
    return Secret(value)


def _is_line(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= MAX_PASTED and value.isprintable()


def _seconds(value: object) -> int | None:
    """A lifetime; some servers write it as text. Nonsense is as good as not told."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < 0:
        return None
    return int(min(value, MAX_LIFETIME_S))
