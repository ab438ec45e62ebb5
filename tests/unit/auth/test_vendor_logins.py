"""The logins of vendors, against scripted servers that answer as theirs do."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from support.login_servers import DEVICE, ORIGIN, form_of, jwt, log_in, says
from support.people import Person, query_of, redirected
from support.upstream import Script, refuses, upstream

from makai.auth.credentials import ApiKey, OAuthToken
from makai.auth.flows import KeyCheck, LoginProvider, oauth2, vendors
from makai.auth.http import AuthHttp
from makai.auth.refresh import REFRESHERS
from makai.catalog.logins import TEST_FIXTURE, VENDOR_LOGINS, with_vendor_login
from makai.core.errors import AuthRequired, InvalidGrant, InvalidRequest, MakaiError, ProviderError
from makai.core.secret import Secret


async def test_anthropic_takes_a_key_or_a_token_of_the_users_own_cli() -> None:
    async with upstream(says({})) as server:
        check = KeyCheck(url=server.url, header="x-api-key", prefix="", headers={"anthropic-version": "2023-06-01"})
        provider = with_vendor_login(LoginProvider(id="anthropic", name="Anthropic", origins=(ORIGIN,), check=check))
        key = await log_in(Person(["sk-ant-api03-k"]), provider)
        token = await log_in(Person(["sk-ant-oat01-t"]), provider)

    assert key.credential == ApiKey(key=Secret("sk-ant-api03-k"))
    assert token.credential == OAuthToken(access=Secret("sk-ant-oat01-t"))
    first, second = server.requests
    assert first.headers["x-api-key"] == "sk-ant-api03-k"
    assert second.headers["authorization"] == "Bearer sk-ant-oat01-t"
    assert second.headers["anthropic-beta"] == "oauth-2025-04-20"
    assert "x-api-key" not in second.headers


def codex(url: str) -> LoginProvider:
    provider = LoginProvider(
        id="openai-codex", name="ChatGPT", origins=("https://chatgpt.com:443",), options={"issuer": url}
    )
    return with_vendor_login(provider)


CODEX_TOKENS = {
    "access_token": "at",
    "refresh_token": "rt",
    "expires_in": 3600,
    "id_token": jwt({"email": "a@b.example", "https://api.openai.com/auth": {"chatgpt_account_id": "acc-1"}}),
}


async def test_chatgpt_in_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendors, "CODEX_PORTS", (0,))
    async with upstream(says(CODEX_TOKENS)) as server:
        person = Person(opens=redirected())
        account = await log_in(person, codex(server.url))

    assert isinstance(account.credential, OAuthToken)
    assert account.credential.provider_data == {
        "revocation_endpoint": f"{server.url}/oauth/revoke",
        "revocation_encoding": "json",
        "account_id": "acc-1",
    }
    assert (account.label, account.origins) == ("a@b.example", ("https://chatgpt.com:443",))
    asked = query_of(person.urls[0])
    assert re.fullmatch(r"http://localhost:\d+/auth/callback", asked["redirect_uri"])
    assert {name: asked[name] for name in ("client_id", "scope", "originator", "code_challenge_method")} == {
        "client_id": VENDOR_LOGINS["openai-codex"].options["client_id"],
        "scope": "openid profile email offline_access",
        "originator": "makai",
        "code_challenge_method": "S256",
    }
    assert server.requests[0].path == "/oauth/token"


async def test_chatgpt_with_a_code_on_another_device(monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> None:
    monkeypatch.setattr(vendors, "CODEX_PORTS", (0,))
    monkeypatch.setattr(oauth2, "PASTE_AFTER_S", 0.0)
    started = says({"device_auth_id": "id-1", "user_code": "WXYZ", "interval": "3"})
    typed = says({"authorization_code": "c0de", "code_verifier": "v3rifier", "code_challenge": "x"})
    async with upstream(started, refuses(403), refuses(404), typed, says(CODEX_TOKENS)) as server:
        person = Person(["code"])
        account = await log_in(person, codex(server.url))

    assert isinstance(account.credential, OAuthToken)
    assert waits == [3, 3, 3]
    assert 'Or type "code"' in person.prompts[0]
    assert person.instructions[1] == f"Open {server.url}/codex/device on any device and enter the code WXYZ"
    device = "/api/accounts/deviceauth"
    paths = [request.path for request in server.requests]
    assert paths == [f"{device}/usercode", *[f"{device}/token"] * 3, "/oauth/token"]
    form = form_of(server.requests[-1])
    assert (form["code"], form["code_verifier"]) == ("c0de", "v3rifier")
    assert form["redirect_uri"] == f"{server.url}/deviceauth/callback"


async def test_chatgpt_without_an_account_id_is_no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendors, "CODEX_PORTS", (0,))
    async with upstream(says({**CODEX_TOKENS, "id_token": jwt({})})) as server:
        with pytest.raises(ProviderError, match="names no ChatGPT account"):
            await log_in(Person(opens=redirected()), codex(server.url))


def copilot(url: str) -> LoginProvider:
    provider = LoginProvider(id="github-copilot", name="GitHub Copilot", options={"web": url, "api": url})
    return with_vendor_login(provider)


GITHUB_PENDING = says({"error": "authorization_pending"})  # GitHub sends errors with status 200
COPILOT_TOKEN = {
    "token": "tid=1;exp=2",
    "expires_at": 1_000_000_600,
    "endpoints": {"api": "https://api.individual.githubcopilot.com"},
}


async def test_github_copilot_trades_the_github_token(waits: list[float]) -> None:
    scripts = [
        says({**DEVICE, "interval": 5}),
        GITHUB_PENDING,
        says({"access_token": "gho_1", "token_type": "bearer", "scope": "read:user"}),
        says(COPILOT_TOKEN, date="Sun, 09 Sep 2001 01:46:40 GMT"),
        says({"login": "octocat"}),
    ]
    async with upstream(*scripts) as server:
        account = await log_in(Person(), copilot(server.url))

        token = account.credential
        assert isinstance(token, OAuthToken)
        assert token.expires_at_ms is not None
        assert token == OAuthToken(
            access=Secret("tid=1;exp=2"),
            refresh=Secret("gho_1"),
            expires_at_ms=token.expires_at_ms,
            refresher="github_copilot",
            token_url=f"{server.url}/copilot_internal/v2/token",
            client_id=VENDOR_LOGINS["github-copilot"].options["client_id"],
            provider_data={"base_url": "https://api.individual.githubcopilot.com"},
        )
    assert account.label == "octocat"
    assert account.origins == ("https://api.individual.githubcopilot.com:443",)
    assert [request.path for request in server.requests] == [
        "/login/device/code",
        "/login/oauth/access_token",
        "/login/oauth/access_token",
        "/copilot_internal/v2/token",
        "/user",
    ]
    exchange = server.requests[3].headers
    assert exchange["authorization"] == "Bearer gho_1"
    assert exchange["editor-version"].startswith("makai/")


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (refuses(401), InvalidGrant, "GitHub no longer accepts this login"),
        (refuses(403), AuthRequired, "may not use Copilot"),
        (refuses(500), ProviderError, "HTTP status 500"),
        (says({}), ProviderError, "no Copilot token"),
    ],
)
async def test_a_copilot_token_that_is_not_given(script: Script, kind: type[MakaiError], words: str) -> None:
    async with upstream(script) as server, AuthHttp() as http:
        token = OAuthToken(access=Secret("old"), refresh=Secret("gho_1"), token_url=server.url)
        with pytest.raises(kind, match=words):
            await REFRESHERS["github_copilot"](token, http)


async def test_a_refreshed_copilot_token_stays_at_its_address() -> None:
    elsewhere = {**COPILOT_TOKEN, "endpoints": {"api": "https://evil.example"}}
    async with upstream(says(elsewhere)) as server, AuthHttp() as http:
        data = {"base_url": "https://api.business.githubcopilot.com"}
        token = OAuthToken(access=Secret("old"), refresh=Secret("gho_1"), token_url=server.url, provider_data=data)
        renewed = await REFRESHERS["github_copilot"](token, http)
    assert (renewed.access, renewed.refresh, renewed.provider_data) == (Secret("tid=1;exp=2"), Secret("gho_1"), data)


def google(url: str, **options: str) -> LoginProvider:
    provider = LoginProvider(
        id="google-gemini-cli",
        name="Gemini Code Assist",
        origins=(ORIGIN,),
        options={
            "client_id": "mine.apps.example",
            "authorization_endpoint": "https://accounts.example/a",
            "token_endpoint": f"{url}/token",
            "revocation_endpoint": f"{url}/revoke",
            "base_url": url,
            **options,
        },
        client_secret=Secret("cs"),
    )
    return with_vendor_login(provider)


GOOGLE_TOKENS = {"access_token": "at", "refresh_token": "rt", "expires_in": 3599, "id_token": jwt({"email": "a@b.c"})}


async def test_google_uses_the_users_own_client_and_finds_the_project() -> None:
    async with upstream(says(GOOGLE_TOKENS), says({"cloudaicompanionProject": "proj-1"})) as server:
        person = Person(opens=redirected())
        account = await log_in(person, google(server.url))

    assert isinstance(account.credential, OAuthToken)
    assert account.credential.provider_data["project"] == "proj-1"
    assert account.credential.client_secret == Secret("cs")
    assert server.requests[1].path == "/v1internal:loadCodeAssist"
    asked = query_of(person.urls[0])
    assert (asked["access_type"], asked["prompt"]) == ("offline", "consent")
    assert "cs" not in asked.values()


async def test_google_without_a_project_is_still_a_login() -> None:
    async with upstream(says(GOOGLE_TOKENS), refuses(403)) as server:
        person = Person(opens=redirected())
        account = await log_in(person, google(server.url))
    assert isinstance(account.credential, OAuthToken)
    assert "project" not in account.credential.provider_data
    assert "set GOOGLE_CLOUD_PROJECT" in person.said[-1]


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ({"options": {}}, "needs `client_id`.*GOOGLE_OAUTH_CLIENT_ID"),
        ({"client_secret": None}, "GOOGLE_OAUTH_CLIENT_SECRET"),
    ],
)
async def test_google_says_what_to_set(missing: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        await log_in(Person(), msgspec.structs.replace(google("https://x.example"), **missing))


def openrouter(url: str) -> LoginProvider:
    provider = LoginProvider(
        id="openrouter",
        name="OpenRouter",
        origins=(ORIGIN,),
        check=KeyCheck(url=f"{url}/key"),
        options={"token_endpoint": f"{url}/keys"},
    )
    return with_vendor_login(provider)


async def test_openrouter_gives_a_key_and_the_state_travels_in_the_path() -> None:
    async with upstream(says({"key": "sk-or-v1-1", "user_id": "u"})) as server:
        person = Person(opens=redirected(parameter="callback_url"))
        account = await log_in(person, openrouter(server.url))

    assert account.credential == ApiKey(key=Secret("sk-or-v1-1"))
    asked = query_of(person.urls[0])
    assert re.fullmatch(r"http://localhost:\d+/callback/[\w-]{43}", asked["callback_url"])
    assert sorted(asked) == ["callback_url", "code_challenge", "code_challenge_method"]
    sent = server.requests[0].json()
    assert (sent["code"], sent["code_challenge_method"], len(sent["code_verifier"])) == ("c0de", "S256", 43)


async def test_openrouter_also_takes_a_pasted_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth2, "PASTE_AFTER_S", 0.0)
    async with upstream(says({})) as server:
        account = await log_in(Person(["sk-or-v1-2"]), openrouter(server.url))
    assert account.credential == ApiKey(key=Secret("sk-or-v1-2"))
    assert server.requests[0].headers["authorization"] == "Bearer sk-or-v1-2"


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [(refuses(403), AuthRequired, "refused the code"), (says({}), ProviderError, "holds no key")],
)
async def test_openrouter_without_a_key(script: Script, kind: type[MakaiError], words: str) -> None:
    async with upstream(script) as server:
        with pytest.raises(kind, match=words):
            await log_in(Person(opens=redirected(parameter="callback_url")), openrouter(server.url))


async def test_the_fixture_wants_one_word() -> None:
    account = await log_in(Person([" ok "]), TEST_FIXTURE)
    assert isinstance(account.credential, OAuthToken)
    assert (account.label, account.origins) == ("test", TEST_FIXTURE.origins)
    with pytest.raises(AuthRequired, match='The answer was not "ok"'):
        await log_in(Person(["no"]), TEST_FIXTURE)
