"""Every way to log in that is not a vendor's own, against scripted servers."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import msgspec
import pytest
from support.login_servers import DEVICE, ORIGIN, form_of, jwt, log_in, says
from support.people import Person, query_of, redirected
from support.upstream import Request, Script, answers, refuses, upstream

from makai.auth import oauth
from makai.auth.credentials import Account, ApiKey, OAuthToken
from makai.auth.flows import KeyCheck, LoginProvider, oauth2, procedure_of
from makai.auth.http import MAX_BODY, AuthHttp
from makai.auth.refresh import refresh_oauth2, revoke
from makai.catalog.logins import VENDOR_LOGINS, configured, with_login_config, with_vendor_login
from makai.core.config import LoginConfig, ProviderConfig, parse_config
from makai.core.errors import AuthRequired, InvalidGrant, InvalidRequest, MakaiError, ParseError, ProviderError
from makai.core.secret import Secret

ACME = LoginProvider(id="acme", name="Acme", origins=(ORIGIN,))


async def test_a_key_is_tried_before_it_is_kept() -> None:
    async with upstream(says({"data": []})) as server:
        check = KeyCheck(url=f"{server.url}/models", header="x-api-key", prefix="", headers={"version": "1"})
        account = await log_in(Person([' "sk-1" ']), msgspec.structs.replace(ACME, check=check))

    assert account == Account(name="default", credential=ApiKey(key=Secret("sk-1")), origins=(ORIGIN,))
    [request] = server.requests
    assert (request.path, request.headers["x-api-key"], request.headers["version"]) == ("/models", "sk-1", "1")


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (refuses(401), AuthRequired, r"Acme refused the key \(HTTP 401\). It was not stored."),
        (refuses(403), AuthRequired, r"Acme refused the key \(HTTP 403\). It was not stored."),
        (refuses(500), ProviderError, r"could not tell whether the key works \(HTTP 500\). It was not stored."),
        (refuses(302, Location="https://evil.example"), ProviderError, "HTTP 302"),
    ],
)
async def test_a_key_that_does_not_work_is_an_error(script: Script, kind: type[MakaiError], words: str) -> None:
    async with upstream(script) as server:
        provider = msgspec.structs.replace(ACME, check=KeyCheck(url=server.url))
        with pytest.raises(kind, match=words):
            await log_in(Person(["sk-1"]), provider)


async def test_without_a_network_nothing_is_kept() -> None:
    async with upstream(says({})) as server:
        pass  # it is gone
    provider = msgspec.structs.replace(ACME, check=KeyCheck(url=server.url))
    with pytest.raises(ProviderError, match=rf"Cannot reach {server.url}: .* Check the network"):
        await log_in(Person(["sk-1"]), provider)


async def test_where_a_key_cannot_be_tried_the_user_is_told() -> None:
    person = Person(["sk-1"])
    assert (await log_in(person, ACME)).credential == ApiKey(key=Secret("sk-1"))
    assert "stored without a test" in person.said[0]

    async with upstream(refuses(404)) as server:
        person = Person(["sk-1"])
        await log_in(person, msgspec.structs.replace(ACME, check=KeyCheck(url=server.url)))
        assert "stored untested" in person.said[-1]


async def test_what_cannot_be_a_key_is_asked_for_again_and_then_given_up() -> None:
    person = Person(["two words", "tab\there", "ключ"])
    with pytest.raises(AuthRequired, match="No usable API key for Acme"):
        await log_in(person, ACME)
    assert (len(person.prompts), len(person.said)) == (3, 3)


async def test_a_provider_without_address_is_refused_before_anything_is_asked() -> None:
    person = Person(["sk-1"])
    with pytest.raises(InvalidRequest, match="not known where Azure is reached"):
        await log_in(person, LoginProvider(id="azure", name="Azure"))
    assert person.prompts == []


def oidc(url: str, **options: str) -> LoginProvider:
    endpoints = {"authorization_endpoint": "https://sso.example/a", "token_endpoint": f"{url}/token"}
    return msgspec.structs.replace(
        ACME, flow="oidc", options={**endpoints, "client_id": "makai", "scope": "openid", **options}
    )


async def test_a_browser_login_trades_the_code_with_its_verifier() -> None:
    id_token = jwt({"email": "a@b.example"})
    async with upstream(says({"access_token": "at", "refresh_token": "rt", "id_token": id_token})) as server:
        person = Person(opens=redirected())
        provider = oidc(server.url, revocation_endpoint=f"{server.url}/revoke", send_as="X-Token")
        account = await log_in(person, msgspec.structs.replace(provider, client_secret=Secret("cs")))

    assert account == Account(
        name="default",
        credential=OAuthToken(
            access=Secret("at"),
            refresh=Secret("rt"),
            token_url=f"{server.url}/token",
            client_id="makai",
            client_secret=Secret("cs"),
            scope="openid",
            provider_data={"revocation_endpoint": f"{server.url}/revoke", "send_as": "X-Token"},
        ),
        origins=(ORIGIN,),
        label="a@b.example",
    )
    asked, form = query_of(person.urls[0]), form_of(server.requests[0])
    assert await person.pages() == [200]
    verifier = form.pop("code_verifier")
    assert verifier not in person.urls[0]
    assert len(verifier) == 43
    assert form == {
        "grant_type": "authorization_code",
        "code": "c0de",
        "redirect_uri": asked["redirect_uri"],
        "client_id": "makai",
        "client_secret": "cs",
    }


async def test_states_and_verifiers_are_used_once() -> None:
    async with upstream(says({"access_token": "at"})) as server:
        people = [Person(opens=redirected()), Person(opens=redirected())]
        for person in people:
            await log_in(person, oidc(server.url))

    first, second = (query_of(person.urls[0]) for person in people)
    assert first["state"] != second["state"]
    assert first["code_challenge"] != second["code_challenge"]
    assert form_of(server.requests[0])["code_verifier"] != form_of(server.requests[1])["code_verifier"]


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (answers(b"<html>captive portal</html>", 200, "text/html"), ProviderError, "a web page instead of a token"),
        (says({"error": "invalid_grant"}, 400), InvalidGrant, "no longer valid"),
        (says({}), ProviderError, "no access token"),
        (answers(b"x" * (MAX_BODY + 1), 200, "application/json"), ProviderError, "longer than"),
        (refuses(307, Location="https://evil.example/"), ProviderError, "HTTP status 307"),
    ],
)
async def test_a_token_endpoint_that_breaks_the_standard(script: Script, kind: type[MakaiError], words: str) -> None:
    async with upstream(script) as server:
        with pytest.raises(kind, match=words):
            await log_in(Person(opens=redirected()), oidc(server.url))
        assert len(server.requests) == 1


async def test_a_foreign_issuer_in_the_answer_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 9207: the mix-up attack."""
    metadata = {"authorization_endpoint": "https://sso.example/a", "token_endpoint": "https://sso.example/t"}

    async def discovery(request: Request, writer: asyncio.StreamWriter) -> None:
        issuer = f"http://{request.headers['host']}"
        await says({"issuer": issuer, **metadata})(request, writer)

    monkeypatch.setattr("makai.auth.loopback.WAIT_S", 0.5)
    async with upstream(discovery) as server:
        provider = msgspec.structs.replace(ACME, flow="oidc", options={"issuer": server.url, "client_id": "makai"})
        person = Person(opens=redirected(iss="https://evil.example"))
        with pytest.raises(AuthRequired, match="brought no answer"):
            await log_in(person, provider)
        assert await person.pages() == [400]


@pytest.mark.req("MK-AUTH-015")
async def test_the_address_can_be_pasted_where_the_browser_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth2, "PASTE_AFTER_S", 0.0)
    state: list[str] = []

    class Remote(Person):
        async def prompt(self, message: str, *, allow_empty: bool = False) -> str:
            self.prompts.append(message)
            assert allow_empty, "a user who finishes in the browser must not have to answer"
            asked = query_of(self.urls[0])
            state.append(asked["state"])
            wrong = len(self.prompts) == 1
            return f"{asked['redirect_uri']}?code=c0de&state={'wrong' if wrong else asked['state']}"

    async with upstream(says({"access_token": "at"})) as server:
        person = Remote()
        account = await log_in(person, oidc(server.url))

    assert isinstance(account.credential, OAuthToken)
    assert (len(person.prompts), person.said[0]) == (
        2,
        "This answer does not belong to the login that is running. Copy the whole address of the last page.",
    )


async def test_an_empty_answer_leaves_it_to_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth2, "PASTE_AFTER_S", 0.0)
    asked = asyncio.Event()

    async def later(url: str) -> object:
        await asked.wait()
        return await redirected()(url)

    class Patient(Person):
        async def prompt(self, message: str, *, allow_empty: bool = False) -> str:
            asked.set()
            return ""

    async with upstream(says({"access_token": "at"})) as server:
        account = await log_in(Patient(opens=later), oidc(server.url))
    assert isinstance(account.credential, OAuthToken)


async def test_the_browser_ends_a_question_that_nobody_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth2, "PASTE_AFTER_S", 0.0)
    async with upstream(says({"access_token": "at"})) as server:
        assert isinstance((await log_in(Person(opens=redirected()), oidc(server.url))).credential, OAuthToken)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
async def test_a_port_that_another_program_has_gets_no_redirect(address: str) -> None:
    """The other program would be handed the code."""
    with socket.create_server((address, 0)) as taken:
        port = taken.getsockname()[1]
        async with upstream() as server:
            person = Person()
            with pytest.raises(InvalidRequest, match=f"port {port} on this machine is in use"):
                await log_in(person, oidc(server.url, redirect_port=str(port)))
    assert person.urls == []


async def test_a_server_that_names_itself_must_do_so_in_its_answer() -> None:
    callback = oauth.Callback(
        provider_id="acme", state=Secret("right"), issuer="https://sso.example", needs_issuer=True
    )

    assert callback.read("code=c0de&state=right&iss=https://sso.example").reveal() == "c0de"
    for query in ("code=c0de&state=right", "code=c0de&state=right&iss=https://evil.example"):
        with pytest.raises(ParseError, match="another login server"):
            callback.read(query)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"client_id": ""}, r"needs `client_id`. Set it in \[providers.acme.login\] of config.toml"),
        ({"authorization_endpoint": ""}, "names no authorization_endpoint"),
        ({"token_endpoint": ""}, "names no token_endpoint"),
        ({"flow": "device_code"}, "names no device_authorization_endpoint"),
        ({"token_endpoint": "http://sso.example/t"}, "unencrypted"),
    ],
)
async def test_a_login_that_is_set_up_wrongly_says_what_to_write_where(options: dict[str, str], words: str) -> None:
    person = Person()
    with pytest.raises(InvalidRequest, match=words):
        await log_in(person, oidc("https://sso.example", **options))
    assert person.urls == []


PENDING = says({"error": "authorization_pending"}, 400)
SLOW_DOWN = says({"error": "slow_down"}, 400)


def device(url: str) -> LoginProvider:
    return oidc(url, flow="device_code", device_authorization_endpoint=f"{url}/device")


@pytest.mark.proof("O6")
async def test_the_device_flow_asks_no_more_often_than_told(waits: list[float]) -> None:
    scripts = [says(DEVICE), *[PENDING] * 5, SLOW_DOWN, SLOW_DOWN, says({"access_token": "at"})]
    async with upstream(*scripts) as server:
        person = Person()
        account = await log_in(person, device(server.url))

    assert isinstance(account.credential, OAuthToken)
    assert account.credential.access == Secret("at")
    assert waits == [2, 2, 2, 2, 2, 2, 7, 12]
    assert form_of(server.requests[0]) == {"client_id": "makai", "scope": "openid"}
    assert form_of(server.requests[-1])["device_code"] == "d"
    assert (person.urls, person.instructions) == (
        ["https://sso.example/device"],
        ["Open https://sso.example/device on any device and enter the code ABCD-EFGH"],
    )


@pytest.mark.proof("O6")
@pytest.mark.parametrize(
    ("lifetime_s", "scripts", "kind", "words", "waited"),
    [
        (600, [PENDING, says({"error": "access_denied"}, 400)], AuthRequired, "access was denied", [2, 2]),
        (600, [PENDING, says({"error": "expired_token"}, 400)], AuthRequired, "was not entered in time", [2, 2]),
        (9, [PENDING], AuthRequired, "The code was not entered in time", [2, 2, 2, 2]),
        (60, [refuses(503)], ProviderError, "HTTP status 503", [2, 4, 8, 16]),
    ],
    ids=["denied", "the server says the code is old", "the code expires", "the server stays away"],
)
async def test_the_device_flow_ends(
    waits: list[float], lifetime_s: int, scripts: list[Script], kind: type[MakaiError], words: str, waited: list[float]
) -> None:
    async with upstream(says({**DEVICE, "expires_in": lifetime_s}), *scripts) as server:
        with pytest.raises(kind, match=words):
            await log_in(Person(), device(server.url))
    assert waits == waited


async def test_the_device_flow_outlives_a_server_that_is_away_for_a_while(waits: list[float]) -> None:
    away = [refuses(503), answers(b"<html>", 502, "text/html"), PENDING]
    async with upstream(says(DEVICE), *away, says({"access_token": "at"})) as server:
        account = await log_in(Person(), device(server.url))
    assert isinstance(account.credential, OAuthToken)
    assert waits == [2, 4, 8, 8]


async def test_a_refresh_keeps_what_the_server_does_not_repeat() -> None:
    async with upstream(says({"access_token": "at2"}), says({"access_token": "at3", "refresh_token": "rt3"})) as server:
        token = OAuthToken(
            access=Secret("at1"),
            refresh=Secret("rt1"),
            expires_at_ms=1,
            token_url=server.url,
            client_id="makai",
            scope="openid",
            provider_data={"account_id": "1"},
        )
        async with AuthHttp() as http:
            second = await refresh_oauth2(token, http)
            third = await refresh_oauth2(second, http)

    assert second == msgspec.structs.replace(token, access=Secret("at2"), expires_at_ms=None)
    assert third == msgspec.structs.replace(second, access=Secret("at3"), refresh=Secret("rt3"))
    assert form_of(server.requests[0]) == {"grant_type": "refresh_token", "refresh_token": "rt1", "client_id": "makai"}


async def test_a_token_without_a_refresh_token_is_over() -> None:
    async with AuthHttp() as http:
        with pytest.raises(InvalidGrant):
            await refresh_oauth2(OAuthToken(access=Secret("at"), token_url="https://sso.example"), http)


@pytest.mark.parametrize(("status", "ended"), [(200, True), (503, False)])
async def test_a_login_is_ended_at_its_server_as_far_as_possible(status: int, ended: bool) -> None:
    async with upstream(refuses(status)) as server, AuthHttp() as http:
        token = OAuthToken(
            access=Secret("at"), refresh=Secret("rt"), client_id="c", provider_data={"revocation_endpoint": server.url}
        )
        assert await revoke(token, http) is ended
        assert form_of(server.requests[0]) == {"token": "rt", "token_type_hint": "refresh_token", "client_id": "c"}

        as_json = {"revocation_endpoint": server.url, "revocation_encoding": "json"}
        assert await revoke(msgspec.structs.replace(token, refresh=None, provider_data=as_json), http) is ended
        assert server.requests[1].json() == {"token": "at", "token_type_hint": "access_token", "client_id": "c"}
        assert not await revoke(OAuthToken(access=Secret("at")), http)


def test_config_describes_a_login() -> None:
    text = """
    [providers.corp]
    base_url = "https://llm.corp.example:8443/v1"
    key_variable = "CORP_KEY"

    [providers.corp.login]
    issuer = "https://sso.corp.example"
    client_id = "makai"
    client_secret = "hidden"
    scopes = ["openid", "offline_access"]
    redirect_port = 8123
    send_as = "X-Corp-Token"
    """
    provider = configured("corp", parse_config(text).providers["corp"])

    assert provider == LoginProvider(
        id="corp",
        name="corp",
        flow="oidc",
        origins=("https://llm.corp.example:8443",),
        key_variables=("CORP_KEY",),
        options={
            "client_id": "makai",
            "issuer": "https://sso.corp.example",
            "scope": "openid offline_access",
            "flow": "authorization_code",
            "redirect_port": "8123",
            "send_as": "X-Corp-Token",
        },
        client_secret=Secret("hidden"),
    )
    assert "hidden" not in repr(provider)
    assert configured("plain", ProviderConfig(base_url="https://x.example/v1")).flow == "api_key"


def test_config_replaces_the_client_of_a_known_vendor_but_not_its_flow() -> None:
    known = with_vendor_login(LoginProvider(id="openai-codex", name="ChatGPT"))
    mine = with_login_config(known, LoginConfig(client_id="mine"))

    client, issuer = mine.options["client_id"], mine.options["issuer"]
    assert (mine.flow, client, issuer) == ("openai_codex", "mine", "https://auth.openai.com")


def test_config_gives_google_a_client() -> None:
    login = LoginConfig(client_id="mine.apps.example", client_secret="hidden")
    provider = configured("google-gemini-cli", ProviderConfig(base_url="https://x.example", login=login))

    assert (provider.flow, provider.options["client_id"]) == ("google_gemini_cli", "mine.apps.example")
    assert provider.client_secret == Secret("hidden")
    assert "cloud-platform" in provider.options["scope"]


def test_config_names_an_address_that_is_not_safe() -> None:
    with pytest.raises(InvalidRequest, match=r"\[providers.acme.login\] token_endpoint: .* unencrypted"):
        with_login_config(ACME, LoginConfig(client_id="c", token_endpoint="http://sso.example/t"))


@pytest.mark.parametrize(
    "flow", sorted({"api_key", "oidc", "test_fixture", *(row.flow for row in VENDOR_LOGINS.values())})
)
def test_every_flow_has_a_procedure(flow: Any) -> None:
    assert callable(procedure_of(LoginProvider(id="x", name="X", flow=flow)))
