"""The pure half of logins: what is sent, and what answers mean."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.login_servers import jwt
from support.people import query_of

from makai.auth import oauth
from makai.auth.credentials import safe_origin
from makai.auth.http import HttpAnswer
from makai.core import errors
from makai.core.secret import Secret

NOW_MS = 1_700_000_000_000


def answer(body: Any, status: int = 200, **headers: str) -> HttpAnswer:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpAnswer(status, {"content-type": "application/json", **headers}, content)


def tokens(body: Any, status: int = 200, **headers: str) -> oauth.TokenAnswer:
    return oauth.read_token_answer(answer(body, status, **headers), provider_id="acme", now_ms=NOW_MS)


def test_a_challenge_is_the_hash_of_its_verifier_and_every_pair_and_state_is_new() -> None:
    pkce = oauth.new_pkce()

    digest = hashlib.sha256(pkce.verifier.reveal().encode()).digest()
    assert base64.urlsafe_b64decode(pkce.challenge + "=") == digest
    assert len(pkce.verifier.reveal()) == 43  # RFC 7636 section 4.1: 43 to 128 characters
    assert oauth.new_pkce().verifier != pkce.verifier
    assert oauth.new_state() != oauth.new_state()
    assert len(oauth.new_state().reveal()) >= 22  # 128 bits


def test_the_page_to_open_carries_everything_the_server_needs_and_no_verifier() -> None:
    pkce = oauth.Pkce(Secret("the-verifier"), "the-challenge")
    url = oauth.authorization_url(
        "https://sso.example/authorize?tenant=1",
        client_id="makai",
        redirect_uri="http://127.0.0.1:1/callback",
        scope="openid",
        pkce=pkce,
        state=Secret("the-state"),
        extra={"originator": "makai", "empty": ""},
    )

    assert url.startswith("https://sso.example/authorize?tenant=1&")
    assert query_of(url) == {
        "tenant": "1",
        "response_type": "code",
        "client_id": "makai",
        "redirect_uri": "http://127.0.0.1:1/callback",
        "scope": "openid",
        "state": "the-state",
        "code_challenge": "the-challenge",
        "code_challenge_method": "S256",
        "originator": "makai",
    }


def test_offline_access_asks_for_consent_unless_the_vendor_says_otherwise() -> None:
    def query(**extra: str) -> dict[str, str]:
        url = oauth.authorization_url(
            "https://sso.example/a",
            client_id="c",
            redirect_uri="r",
            scope="openid offline_access",
            pkce=oauth.new_pkce(),
            state=oauth.new_state(),
            extra=extra,
        )
        return query_of(url)

    assert query()["prompt"] == "consent"
    assert "prompt" not in query(prompt="")


def test_forms_name_the_client_and_its_secret_only_when_it_has_one() -> None:
    pkce = oauth.Pkce(Secret("v"), "c")
    assert oauth.code_form(Secret("x"), client_id="id", client_secret=None, redirect_uri="r", pkce=pkce) == {
        "grant_type": "authorization_code",
        "code": Secret("x"),
        "redirect_uri": "r",
        "code_verifier": Secret("v"),
        "client_id": "id",
    }
    assert oauth.refresh_form(Secret("x"), client_id="id", client_secret=Secret("s")) == {
        "grant_type": "refresh_token",
        "refresh_token": Secret("x"),
        "client_id": "id",
        "client_secret": Secret("s"),
    }
    assert oauth.device_form(Secret("d"), client_id="id", client_secret=None) == {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": Secret("d"),
        "client_id": "id",
    }
    assert oauth.revocation_form(Secret("x"), "refresh_token", client_id="id", client_secret=None) == {
        "token": Secret("x"),
        "token_type_hint": "refresh_token",
        "client_id": "id",
    }


def test_a_token_answer_is_read_whole() -> None:
    body = {
        "access_token": "a",
        "refresh_token": "r",
        "expires_in": 60,
        "scope": "openid",
        "id_token": "i.i.i",
        "token_type": "Bearer",
        "more": 1,
    }
    assert tokens(body) == oauth.TokenAnswer(
        access=Secret("a"), refresh=Secret("r"), expires_at_ms=NOW_MS + 60_000, scope="openid", id_token=Secret("i.i.i")
    )


@pytest.mark.parametrize(
    ("expires_in", "expected"),
    [
        (3600, 3_600_000),
        ("3600", 3_600_000),
        (0.5, 0),
        (0, 0),
        (-1, None),
        ("soon", None),
        (True, None),
        ([], None),
        (None, None),
        (10**30, 315_360_000_000),
    ],
)
def test_lifetimes_are_counted_from_our_own_clock(expires_in: Any, expected: int | None) -> None:
    """Whatever the server's clock says."""
    read = tokens({"access_token": "a", "expires_in": expires_in}, date="Thu, 01 Jan 1970 00:00:00 GMT")

    assert read.expires_at_ms == (None if expected is None else NOW_MS + expected)


def test_without_a_lifetime_the_tokens_own_expiry_counts_by_the_servers_clock() -> None:
    access = jwt({"exp": 1_000_000_600})

    read = tokens({"access_token": access}, date="Sun, 09 Sep 2001 01:46:40 GMT")  # = 1_000_000_000

    assert read.expires_at_ms == NOW_MS + 600_000


@pytest.mark.parametrize(
    ("expires_at", "headers", "expected"),
    [
        (1_700_000_060, {}, NOW_MS + 60_000),
        (1_000_000_060, {"date": "Sun, 09 Sep 2001 01:46:40 GMT"}, NOW_MS + 60_000),
        (5, {}, NOW_MS),
        (1_700_000_060, {"date": "nonsense"}, NOW_MS + 60_000),
        ("x", {}, None),
        (True, {}, None),
        (None, {}, None),
    ],
)
def test_an_absolute_expiry_is_moved_to_our_clock(expires_at: Any, headers: dict[str, str], expected: Any) -> None:
    assert oauth.local_expiry_ms(expires_at, HttpAnswer(200, headers, b""), NOW_MS) == expected


HTML = b"<!DOCTYPE html><html><body>Please log in to the wifi: secret-in-a-page</body></html>"
REFUSALS: list[tuple[HttpAnswer, type[errors.MakaiError], str]] = [
    (answer({"error": "invalid_grant"}, 400), errors.InvalidGrant, "no longer valid"),
    (
        answer({"error": {"code": "refresh_token_reused", "message": "used"}}, 401),
        errors.InvalidGrant,
        "no longer valid (used)",
    ),
    (answer({"error": "invalid_client"}, 401), errors.AuthRequired, "does not know this client id"),
    (answer({"error": "access_denied"}, 400), errors.AuthRequired, "access was denied"),
    (
        answer({"error": "something_new", "error_description": "Try later."}, 400),
        errors.AuthRequired,
        "something_new (Try later)",
    ),
    (answer({"error": "Not A Code!"}, 400), errors.AuthRequired, "an error it did not name"),
    (answer({"error": "invalid_grant"}, 200), errors.InvalidGrant, "no longer valid"),
    (answer({"error": "temporarily_unavailable"}, 400), errors.ProviderError, "not available at the moment"),
    (answer({"error": "invalid_grant"}, 503), errors.ProviderError, "HTTP status 503"),
    (answer({"error": "rate_limited"}, 429), errors.ProviderError, "HTTP status 429"),
    (answer({}, 401), errors.ProviderError, "HTTP status 401"),
    (answer(b"", 500), errors.ProviderError, "HTTP status 500"),
    (HttpAnswer(200, {"content-type": "text/html; charset=utf-8"}, HTML), errors.ProviderError, "a web page"),
    (HttpAnswer(502, {}, HTML), errors.ProviderError, "a web page"),
    (answer([1]), errors.ProviderError, "not a JSON object"),
    (answer(b"\xff\xfe"), errors.ProviderError, "not a JSON object"),
    (answer({"access_token": ""}), errors.ProviderError, "no access token"),
    (answer({"access_token": 7}), errors.ProviderError, "no access token"),
    (answer({"access_token": "a\nb"}), errors.ProviderError, "no access token"),
    (answer({"access_token": "a", "token_type": "mac"}), errors.ProviderError, "kind of token"),
    (answer({"access_token": "a", "token_type": 7}), errors.ProviderError, "kind of token"),
]


@pytest.mark.parametrize(("given_answer", "kind", "words"), REFUSALS)
def test_other_answers_are_one_typed_error(given_answer: HttpAnswer, kind: type[errors.MakaiError], words: str) -> None:
    """O3: only `invalid_grant` is permanent."""
    with pytest.raises(errors.MakaiError) as caught:
        oauth.read_token_answer(given_answer, provider_id="acme", now_ms=NOW_MS)

    assert type(caught.value) is kind
    assert words in caught.value.message
    assert "secret-in-a-page" not in str(caught.value)


@given(body=st.binary(max_size=200), status=st.integers(100, 599))
def test_no_answer_raises_anything_but_a_makai_error(body: bytes, status: int) -> None:
    for read in (
        lambda it: oauth.read_token_answer(it, provider_id="acme", now_ms=NOW_MS),
        lambda it: oauth.read_device_answer(it, provider_id="acme"),
        lambda it: oauth.read_metadata(it, issuer="https://sso.example", provider_id="acme"),
    ):
        with pytest.raises(errors.MakaiError):
            read(HttpAnswer(status, {}, body))


DEVICE = {"device_code": "d", "user_code": "ABCD-EFGH", "verification_uri": "https://sso.example/device"}


def device(**more: Any) -> oauth.DeviceAuthorization:
    return oauth.read_device_answer(answer({**DEVICE, **more}), provider_id="acme")


def test_a_device_answer_has_the_defaults_of_the_standard() -> None:
    assert device() == oauth.DeviceAuthorization(
        device_code=Secret("d"), user_code="ABCD-EFGH", verification_uri="https://sso.example/device"
    )
    assert (device(interval=0).interval_s, device(interval="7").interval_s) == (1, 7)
    assert device(expires_in=9).expires_in_s == 9


def test_a_link_with_the_code_in_it_must_lead_to_the_same_server() -> None:
    good = "https://sso.example/device?user_code=ABCD-EFGH"
    assert device(verification_uri_complete=good).verification_uri_complete == good
    assert device(verification_uri_complete="https://evil.example/x").verification_uri_complete == ""


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"device_code": None}, errors.ProviderError),
        ({"user_code": "a\nb"}, errors.ProviderError),
        ({"verification_uri": None}, errors.ProviderError),
        ({"verification_uri": "http://sso.example/device"}, errors.InvalidRequest),
        ({"verification_uri": "javascript:alert(1)"}, errors.InvalidRequest),
    ],
)
def test_a_device_answer_that_cannot_be_used(change: dict[str, Any], kind: type[errors.MakaiError]) -> None:
    with pytest.raises(kind):
        device(**change)


def test_a_discovery_document_must_name_its_own_issuer_and_safe_endpoints() -> None:
    found = {
        "issuer": "https://sso.example",
        "authorization_endpoint": "https://sso.example/a",
        "token_endpoint": "https://sso.example/t",
        "device_authorization_endpoint": 7,
    }
    assert oauth.read_metadata(
        answer(found), issuer="https://sso.example/", provider_id="acme"
    ) == oauth.ServerMetadata(
        issuer="https://sso.example",
        authorization_endpoint="https://sso.example/a",
        token_endpoint="https://sso.example/t",
    )
    with pytest.raises(errors.InvalidRequest, match="names another issuer"):
        oauth.read_metadata(answer(found), issuer="https://other.example", provider_id="acme")
    bad = {**found, "token_endpoint": "http://sso.example/t"}
    with pytest.raises(errors.InvalidRequest, match="unencrypted"):
        oauth.read_metadata(answer(bad), issuer="https://sso.example", provider_id="acme")


@pytest.mark.parametrize(
    "url", ["https://sso.example", "http://127.0.0.1:8080/x", "http://localhost/", "http://[::1]:1/"]
)
def test_secrets_go_to_tls_or_to_this_machine(url: str) -> None:
    assert safe_origin(url).split(":")[0] == url.split(":")[0]


@pytest.mark.parametrize("url", ["http://sso.example", "http://127.0.0.1.evil.example/", "ftp://x", "https://a@b"])
def test_secrets_go_nowhere_else(url: str) -> None:
    with pytest.raises(errors.InvalidRequest):
        safe_origin(url)


CALLBACK = oauth.Callback(provider_id="acme", state=Secret("right"), issuer="https://sso.example")


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:7777/callback?code=c0de&state=right",
        " http://localhost:1/callback?state=right&code=c0de&iss=https://sso.example# ",
        "code=c0de&state=right",
        "c0de#right",
        "c0de",
    ],
)
def test_a_pasted_answer_is_read_in_every_usual_form(text: str) -> None:
    assert CALLBACK.read_pasted(text) == Secret("c0de")


@pytest.mark.parametrize(
    "text",
    [
        "", "   ", "http://127.0.0.1:7777/callback?code=c0de&state=wrong", "http://127.0.0.1:7777/callback?code=c0de",
        "http://127.0.0.1:7777/elsewhere?code=c0de&state=right", "code=c0de&state=right&iss=https://evil.example",
        "c0de#wrong", "http://127.0.0.1:7777/callback", "two words", "c\x000de", "x" * 9000,
    ],
)  # fmt: skip
def test_what_does_not_belong_to_this_login_is_refused(text: str) -> None:
    with pytest.raises(errors.ParseError):
        CALLBACK.read_pasted(text)


def test_a_refusal_or_an_answer_without_code_ends_the_login() -> None:
    with pytest.raises(errors.AuthRequired, match="access was denied"):
        CALLBACK.read("error=access_denied&state=right")
    with pytest.raises(errors.AuthRequired, match="sent no code"):
        CALLBACK.read("state=right")
    with pytest.raises(errors.ParseError):  # an error without our state is anybody's
        CALLBACK.read("error=access_denied")
    with pytest.raises(errors.ParseError):
        CALLBACK.read("&".join(["x=1"] * 51))


def test_where_no_state_comes_back_it_is_in_the_path() -> None:
    callback = oauth.Callback(provider_id="acme", state=Secret("right"), state_in_path=True)

    assert callback.redirect_path == "/callback/right"
    assert (callback.is_addressed("/callback/right"), callback.is_addressed("/callback")) == (True, False)
    assert callback.read("code=c0de") == Secret("c0de")
    assert callback.read_pasted("http://localhost:1/callback/right?code=c0de") == Secret("c0de")
    with pytest.raises(errors.ParseError):
        callback.read_pasted("http://localhost:1/callback/wrong?code=c0de")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("The refresh token is invalid.", "The refresh token is invalid"),
        ("redirect_uri did not match, see RFC 6749 (4.1)", "redirect_uri did not match, see RFC 6749"),
        ("token sk-ant-oat01-AbCd was revoked", "token … was revoked"),
        ("bad code 4/0AdEu5BXyZ and https://user:pass@host/?key=1", "bad code … and"),
        ("eyJhbGciOiJub25lIn0.e30.x", ""),
        ("AIzaSyD4f8 ghp_16C7e42F292c6912E7710c838347Ae178B4a", ""),
        (None, ""),
        (7, ""),
    ],
)
def test_only_ordinary_words_of_a_server_are_repeated(said: object, shown: str) -> None:
    assert oauth.plain_words(said) == shown


def test_a_refusal_names_the_command_to_type_next() -> None:
    assert str(oauth.refusal("invalid_grant", "", provider_id="acme")).endswith("Log in again: `makai auth login acme`")


def test_error_codes_are_found_whatever_the_status() -> None:
    assert oauth.error_code(answer({"error": "slow_down"}, 400)) == "slow_down"
    assert oauth.error_code(answer({"error": "authorization_pending"})) == "authorization_pending"
    assert oauth.error_code(answer({"error": {"code": "slow_down"}})) == "slow_down"
    useless: list[Any] = [{"error": "sk-secret"}, [], b"<html>", {}]
    assert [oauth.error_code(answer(body)) for body in useless] == ["", "", "", ""]


@pytest.mark.parametrize(
    "token", [None, Secret("opaque"), Secret("a.b"), Secret("a.!!!.c"), Secret("a.WzFd.c"), Secret("a.e30x.c")]
)
def test_what_is_no_jwt_has_no_claims(token: Secret | None) -> None:
    assert oauth.jwt_claims(token) == {}


def test_claims_of_a_jwt_are_read() -> None:
    assert oauth.jwt_claims(Secret(jwt({"email": "a@b"}))) == {"email": "a@b"}


def test_a_query_is_added_to_one_that_is_there() -> None:
    assert oauth.with_query("https://x/y?a=1#part", {"b": "2", "c": ""}) == "https://x/y?a=1&b=2"
    assert oauth.with_query("https://x/y", {"b": Secret("2")}) == "https://x/y?b=2"
