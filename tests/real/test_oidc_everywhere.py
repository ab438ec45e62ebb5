"""One login at a certified OAuth server, from nothing to its end, through every way to use makai.

The model's server is scripted, but believes no token by itself: it asks the OAuth server about each one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
from support.cli import Cli
from support.login_ways import WAYS, Refused, open_way
from support.oidc import Browser, OidcServer, started
from support.upstream import Request, answers, chat_stream, refuses, upstream

from makai.auth.credentials import Account, OAuthToken
from makai.auth.store import CredentialStore
from makai.core.secret import Secret

PROVIDER = "oidc-test"
MODEL = f"{PROVIDER}/openai-completions@large"
CONFIG = """
[providers.oidc-test]
name = "Our gateway"
base_url = "{gateway}/v1"
default_model = "large"

[providers.oidc-test.login]
issuer = "{issuer}"
client_id = "{client_id}"
scopes = ["openid", "email", "offline_access"]
"""


class Tokens:
    """What is stored, and what the OAuth server says of it."""

    def __init__(self, server: OidcServer, home: Path, http: aiohttp.ClientSession) -> None:
        self._server = server
        self._store = CredentialStore(home)
        self._http = http
        self.secrets: set[str] = set()
        """Every token there ever was."""

    def current(self) -> OAuthToken:
        credential = self._account().credential
        assert isinstance(credential, OAuthToken)
        assert credential.refresh is not None
        self.secrets |= {credential.access.reveal(), credential.refresh.reveal()}
        return credential

    def grow_old(self) -> None:
        account = self._account()
        token = msgspec.structs.replace(self.current(), expires_at_ms=1)
        self._store.save(PROVIDER, msgspec.structs.replace(account, credential=token))

    async def revoke(self, token: str) -> None:
        form = {"token": token, "client_id": self._server.client_id}
        async with self._http.post(f"{self._server.issuer}/token/revocation", data=form) as response:
            assert response.status == 200

    async def is_active(self, token: str) -> bool:
        return await self._server.is_active(Secret(token))

    def _account(self) -> Account:
        account = self._store.snapshot().account(PROVIDER)
        assert account is not None
        return account


class Gateway:
    """The model's server: which tokens it was shown, and which of them it let in."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self.seen: list[tuple[str, bool]] = []
        self.distrusted: set[str] = set()
        """What it lets in no more, whatever the OAuth server says."""

    async def serve(self, request: Request, writer: asyncio.StreamWriter) -> None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        good = token not in self.distrusted and await self._tokens.is_active(token)
        self.seen.append((token, good))
        await (answers(chat_stream("Hello.")) if good else refuses(401))(request, writer)

    def last(self, count: int) -> list[tuple[str, bool]]:
        """The last requests; they are forgotten, and there were no others."""
        seen, self.seen = self.seen, []
        assert len(seen) == count
        return seen


@asynccontextmanager
async def gateway(server: OidcServer, home: Path) -> AsyncIterator[tuple[Gateway, Tokens]]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http:
        tokens = Tokens(server, home, http)
        model = Gateway(tokens)
        async with upstream(model.serve) as listening:
            (home / "config.toml").write_text(
                CONFIG.format(gateway=listening.url, issuer=server.issuer, client_id=server.client_id)
            )
            yield model, tokens


@pytest.mark.req("MK-AUTH-016", "MK-AUTH-017", "MK-AUTH-018", "MK-AUTH-019", "MK-AUTH-020")
@pytest.mark.parametrize("kind", WAYS)
async def test_a_login_from_nothing_to_its_end(kind: str, oidc_server: OidcServer, tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    async with (
        gateway(oidc_server, tmp_path) as (model, tokens),
        open_way(kind, cli, PROVIDER, MODEL) as user,
        Browser() as browser,
    ):
        # without a login the model's server is not asked
        assert await user.status() == "login_required"
        with pytest.raises(Refused) as refused:
            await user.ask()
        assert (refused.value.args, model.last(0)) == (("auth_required", PROVIDER), [])

        # a login in the browser, and its token in use
        assert await user.log_in(browser.visit) == ["auth_url", "progress", "success"]
        assert await user.status() == "authenticated"
        first = tokens.current()
        assert await user.ask() == "Hello."
        assert model.last(1) == [(first.access.reveal(), True)]

        # it expires: refreshed before the request, which notices nothing
        tokens.grow_old()
        assert await user.ask() == "Hello."
        second = tokens.current()
        assert second.refresh != first.refresh
        assert model.last(1) == [(second.access.reveal(), True)]

        # a token is turned down before its time: refused once, refreshed, asked again
        model.distrusted.add(second.access.reveal())
        assert await user.ask() == "Hello."
        third = tokens.current()
        assert model.last(2) == [(second.access.reveal(), False), (third.access.reveal(), True)]

        # the OAuth server ends the whole login: only a person can help
        assert third.refresh is not None
        await tokens.revoke(third.refresh.reveal())
        tokens.grow_old()
        with pytest.raises(Refused) as expired:
            await user.ask()
        assert (expired.value.args, model.last(0)) == (("auth_expired", PROVIDER), [])
        await user.log_in(browser.visit)
        assert await user.ask() == "Hello."
        fourth = tokens.current()
        assert model.last(1) == [(fourth.access.reveal(), True)]

        # logging out ends it at the server too
        assert (await cli("auth", "logout", PROVIDER)).code == 0
        assert fourth.refresh is not None
        assert not await tokens.is_active(fourth.refresh.reveal())
        assert not await tokens.is_active(fourth.access.reveal())
        assert await user.status() == "login_required"
        with pytest.raises(Refused) as again:
            await user.ask()
        assert again.value.args == ("auth_required", PROVIDER)

        said = "\n".join(user.told)
        assert said.count(PROVIDER) > 5
        assert [secret for secret in tokens.secrets if secret in said] == []
        assert len(tokens.secrets) == 8


@pytest.mark.req("MK-AUTH-019")
async def test_a_token_that_has_really_expired_is_renewed_before_it_is_sent(tmp_path: Path) -> None:
    with started(ACCESS_TOKEN_S="2") as server:
        async with (
            gateway(server, tmp_path) as (model, tokens),
            open_way("python in process", Cli(tmp_path), PROVIDER, MODEL) as user,
            Browser() as browser,
        ):
            await user.log_in(browser.visit)
            short = tokens.current().access.reveal()
            for _ in range(200):
                if not await tokens.is_active(short):
                    break
                await asyncio.sleep(0.02)  # only time can do this

            assert await user.ask() == "Hello."
            assert model.last(1) == [(tokens.current().access.reveal(), True)]
            assert tokens.current().access.reveal() != short


async def test_a_denied_login_fails_on_the_command_line_with_a_reason(oidc_server: OidcServer, tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    async with gateway(oidc_server, tmp_path), Browser() as browser, cli.started("auth", "login", PROVIDER) as process:
        assert process.stdout is not None
        async for line in process.stdout:
            if (url := line.decode().strip()).startswith("http"):
                break
        await browser.visit(url, deny=True)
        _, err = await process.communicate()

    assert process.returncode == 1
    assert b"access was denied" in err
    assert b"Try again: `makai auth login oidc-test`" in err
    assert not (tmp_path / "auth.json").exists()
