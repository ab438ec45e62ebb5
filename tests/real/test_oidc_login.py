"""Logins against a certified OAuth server: npm's `oidc-provider`, walked by HTTP as a browser would."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest
from support.oidc import Browser, OidcServer

from makai.auth.credentials import Account, OAuthToken
from makai.auth.flows import LoginProvider, oauth2
from makai.auth.http import AuthHttp
from makai.auth.login import LoginEvent, LoginFailed, LoginProgress, LoginSuccess, LoginUrl, RunningLogin
from makai.auth.refresh import REFRESHERS, Refresher, refresh_oauth2
from makai.auth.runtime import AuthRuntime
from makai.auth.store import CredentialStore
from makai.catalog.logins import configured
from makai.core.config import parse_config
from makai.core.errors import AuthExpired, InvalidGrant

Visit: TypeAlias = Callable[[LoginUrl], Coroutine[Any, Any, object]]
CONFIG = """
[providers.corp]
name = "Our gateway"
base_url = "https://llm.corp.example/v1"

[providers.corp.login]
issuer = "{issuer}"
client_id = "{client_id}"
scopes = ["openid", "email", "offline_access"]
flow = "{flow}"
"""


def corp(server: OidcServer, flow: str = "authorization_code") -> LoginProvider:
    text = CONFIG.format(issuer=server.issuer, client_id=server.client_id, flow=flow)
    return configured("corp", parse_config(text).providers["corp"])


class Login:
    """A runtime with one provider and a user at a browser."""

    def __init__(self, runtime: AuthRuntime, store: CredentialStore, http: AuthHttp, browser: Browser) -> None:
        self.runtime, self.store, self.http, self.browser = runtime, store, http, browser

    async def log_in(self, visit: Visit | None = None) -> tuple[RunningLogin, list[LoginEvent]]:
        """Log in; `visit` is what the user does at the URL, by default all that is asked for."""
        flow = self.runtime.start_login("corp", "flow-1")
        events = []
        async with asyncio.timeout(60), asyncio.TaskGroup() as people:
            async for event in flow:
                events.append(event)
                if isinstance(event, LoginUrl):
                    people.create_task(visit(event) if visit else self.browser.visit(event.url))
        return flow, events

    def account(self) -> Account:
        account = self.store.snapshot().account("corp")
        assert account is not None
        return account

    def token(self) -> OAuthToken:
        credential = self.account().credential
        assert isinstance(credential, OAuthToken)
        return credential


@asynccontextmanager
async def login_at(provider: LoginProvider, home: Path) -> AsyncIterator[Login]:
    store = CredentialStore(home)
    async with AuthHttp() as http, Browser() as browser:
        runtime = AuthRuntime(store, [provider], http, {})
        yield Login(runtime, store, http, browser)
        await runtime.close()


def failed(why: str) -> LoginFailed:
    message = f"The login at corp failed: {why} Try again: `makai auth login corp`"
    return LoginFailed(flow_id="flow-1", provider_id="corp", code="auth_required", message=message)


async def test_a_browser_login_is_kept_and_its_token_works(oidc_server: OidcServer, tmp_path: Path) -> None:
    async with login_at(corp(oidc_server), tmp_path) as login:
        flow, events = await login.log_in()

        assert flow.result == "success"
        assert [type(event) for event in events] == [LoginUrl, LoginProgress, LoginSuccess]
        account, token = login.account(), login.token()
        assert (account.label, account.origins) == ("alice@users.example", ("https://llm.corp.example:443",))
        assert await oidc_server.is_active(token.access)
        assert [provider.auth_status for provider in login.runtime.list_providers()] == ["authenticated"]
    # MK-AUTH-016: the next process finds it
    assert CredentialStore(tmp_path).snapshot().account("corp") == account


async def test_a_login_that_the_user_denies_fails_and_stores_nothing(oidc_server: OidcServer, tmp_path: Path) -> None:
    async with login_at(corp(oidc_server), tmp_path) as login:
        flow, events = await login.log_in(lambda event: login.browser.visit(event.url, deny=True))

        assert flow.result == "failed"
        denied = failed("access was denied (End-User aborted interaction).")
        assert events[-1] == denied
        assert login.store.snapshot().providers() == ()
        [status] = login.runtime.list_providers()
        assert (status.auth_status, status.last_error) == ("failed", denied.message)


async def test_a_refresh_rotates_the_token_and_its_reuse_ends_the_login(
    oidc_server: OidcServer, tmp_path: Path
) -> None:
    async with login_at(corp(oidc_server), tmp_path) as login:
        await login.log_in()
        first = login.token()
        refresher = Refresher(login.store, login.http, REFRESHERS)

        renewed = (await refresher.fresh("corp", "default", rejected=first.access)).credential
        assert isinstance(renewed, OAuthToken)
        assert renewed.access != first.access
        assert renewed.refresh != first.refresh
        assert await oidc_server.is_active(renewed.access)

        with pytest.raises(InvalidGrant):
            await refresh_oauth2(first, login.http)
        assert not await oidc_server.is_active(renewed.access), "the server ends the whole grant"
        with pytest.raises(AuthExpired):
            await refresher.fresh("corp", "default", rejected=renewed.access)
        assert login.token() == renewed, "a dead login is kept until the user logs in again"
        await refresher.aclose()

        flow, _ = await login.log_in()
        assert flow.result == "success"
        assert await oidc_server.is_active(login.token().access)


async def test_a_login_by_code_on_another_device(
    oidc_server: OidcServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = asyncio.Event()
    waits: list[float] = []

    async def until_entered(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > 1:  # the first question comes too early, as it does in life
            await entered.wait()

    monkeypatch.setattr(oauth2, "sleep", until_entered)

    async def enter_code(event: LoginUrl) -> None:
        code = re.search(r"enter the code (\S+)", event.instructions)
        assert code is not None
        await login.browser.visit(f"{oidc_server.issuer}/device", user_code=code[1])
        entered.set()

    async with login_at(corp(oidc_server, "device_code"), tmp_path) as login:
        flow, events = await login.log_in(enter_code)

        assert flow.result == "success"
        assert [type(event) for event in events] == [LoginUrl, LoginProgress, LoginSuccess]
        assert waits == [5.0, 5.0]
        assert await oidc_server.is_active(login.token().access)


async def test_logging_out_ends_the_login_at_the_server_too(oidc_server: OidcServer, tmp_path: Path) -> None:
    async with login_at(corp(oidc_server), tmp_path) as login:
        await login.log_in()
        token = login.token()

        assert await login.runtime.logout("corp")

        assert login.store.snapshot().account("corp") is None
        assert token.refresh is not None
        assert not await oidc_server.is_active(token.refresh)
        assert not await oidc_server.is_active(token.access)
        assert not await login.runtime.logout("corp")
        assert [provider.auth_status for provider in login.runtime.list_providers()] == ["login_required"]


async def test_a_wrong_client_id_fails_with_the_servers_reason(oidc_server: OidcServer, tmp_path: Path) -> None:
    provider = corp(oidc_server, "device_code")
    stranger = msgspec.structs.replace(provider, options={**provider.options, "client_id": "unknown"})
    async with login_at(stranger, tmp_path) as login:
        flow, events = await login.log_in()

        assert flow.result == "failed"
        why = "the server does not know this client id, or its secret is wrong (client authentication failed)."
        assert events[-1] == failed(why)
