"""Refreshes tokens, once however many tasks and processes ask; and revokes them at logout.

A rotating refresh token is good for one use, and a second use makes the server end the login (RFC 9700 section
4.14.2). So a token is only sent by the one task that holds the lock of its account, after it has read the store inside
that lock, and only while there is room to store the answer. Nothing here ever removes a login: what cannot be refreshed
stays in the store until the user logs in again.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from makai.aio.cancellation import consume_exception
from makai.auth.account_text import StoreSnapshot
from makai.auth.credentials import DEFAULT_ACCOUNT, Account, ApiKey, OAuthToken, secret_of
from makai.auth.flows import vendors
from makai.auth.http import AuthHttp
from makai.auth.oauth import read_token_answer, refresh_form, revocation_form
from makai.auth.private_files import pauses
from makai.auth.store import AccountStore, unix_milliseconds
from makai.core import errors
from makai.core.secret import Secret

EXPIRY_MARGIN_MS: Final = 60_000
LOCK_DEADLINE_S: Final = 30.0
ANSWER_DEADLINE_S: Final = 25.0
"""Less than `LOCK_DEADLINE_S`: the holder of the lock is done before others give up."""
CLOSE_DEADLINE_S: Final = 5.0
REVOKE_S: Final = 10.0

RefreshProcedure: TypeAlias = Callable[[OAuthToken, AuthHttp], Awaitable[OAuthToken]]
"""Asks the server for the next token. Raises `InvalidGrant` when this one has ended for good, and another `MakaiError`
when it may work later: a `ProviderError` without status when no answer came."""


async def refresh_oauth2(token: OAuthToken, http: AuthHttp) -> OAuthToken:
    """The standard procedure (RFC 6749 section 6)."""
    server = urllib.parse.urlsplit(token.token_url).hostname or "its server"
    if token.refresh is None or not token.token_url:
        raise errors.InvalidGrant("This login cannot be refreshed.", provider_id=server)
    now_ms = unix_milliseconds()
    form = refresh_form(token.refresh, client_id=token.client_id, client_secret=token.client_secret)
    answer = read_token_answer(await http.post_form(token.token_url, form), provider_id=server, now_ms=now_ms)
    return msgspec.structs.replace(
        token,
        access=answer.access,
        # Section 6: the server "MAY issue a new refresh token"; where it does not, the old one stays.
        refresh=answer.refresh or token.refresh,
        expires_at_ms=answer.expires_at_ms,
        scope=answer.scope or token.scope,
    )


REFRESHERS: Final[Mapping[str, RefreshProcedure]] = {
    "oauth2": refresh_oauth2,
    vendors.COPILOT_REFRESHER: vendors.refresh_copilot,
}
"""By `OAuthToken.refresher`."""


async def revoke(token: OAuthToken, http: AuthHttp) -> bool:
    """End the login at its server (RFC 7009). False when the server offers no such endpoint or refuses: the token then
    expires there by itself."""
    endpoint = token.provider_data.get("revocation_endpoint", "")
    if not endpoint:
        return False
    # Section 2.1: ending a refresh token "SHOULD also invalidate all access tokens based on the same grant".
    secret, hint = (token.refresh, "refresh_token") if token.refresh else (token.access, "access_token")
    form = revocation_form(secret, hint, client_id=token.client_id, client_secret=token.client_secret)
    post = http.post_json if token.provider_data.get("revocation_encoding") == "json" else http.post_form
    try:
        answer = await post(endpoint, form, deadline_s=REVOKE_S)
    except errors.MakaiError:
        return False
    return 200 <= answer.status < 300


class Refresher:
    """Belongs to one event loop. Close it, so that an answer that is under way is stored."""

    def __init__(
        self,
        store: AccountStore,
        http: AuthHttp,
        refreshers: Mapping[str, RefreshProcedure],
        *,
        now_ms: Callable[[], int] = unix_milliseconds,
    ) -> None:
        self._store = store
        self._http = http
        self._refreshers = refreshers
        self._now_ms = now_ms
        self._running: dict[tuple[str, str, Secret], asyncio.Task[Account]] = {}
        self._refused: dict[tuple[str, str], Secret] = {}

    async def fresh(
        self, provider_id: str, account_name: str | None = None, *, rejected: Secret | None = None
    ) -> Account:
        """The account with a token that can be sent now. `rejected` is one that the provider has just refused."""
        account = _account(self._store.snapshot(), provider_id, account_name)
        stale = secret_of(account)
        if stale != rejected and not self._expires_within(account, EXPIRY_MARGIN_MS):
            return account
        if isinstance(account.credential, ApiKey):
            hint = _login(provider_id, account)
            raise errors.AuthRequired(f"{provider_id} refused the stored API key.", provider_id=provider_id, hint=hint)
        key = (provider_id, account.name, stale)
        if (task := self._running.get(key)) is None:
            task = self._running[key] = asyncio.create_task(self._refresh(provider_id, account))
            task.add_done_callback(lambda done: self._ended(key, done))
        try:
            # A cancelled caller must not stop a request whose answer is the only copy of the next token.
            return await asyncio.shield(task)
        except errors.AuthRefreshFailed:
            if stale == rejected or self._expires_within(account, 0):
                raise
            return account  # it was early: what there is still works

    def is_refreshing(self, provider_id: str, account_name: str) -> bool:
        return any(key[:2] == (provider_id, account_name) for key in self._running)

    async def aclose(self) -> None:
        """Wait up to `CLOSE_DEADLINE_S` for refreshes under way, then cancel them."""
        if running := list(self._running.values()):
            _, late = await asyncio.wait(running, timeout=CLOSE_DEADLINE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _refresh(self, provider_id: str, stale: Account) -> Account:
        try:
            return await self._refresh_in_turn(provider_id, stale)
        except errors.AuthError:
            raise
        except errors.MakaiError as error:  # of the store or a lock
            raise _failed(provider_id, error.message) from None

    async def _refresh_in_turn(self, provider_id: str, stale: Account) -> Account:
        async with self._store.refresh_lock(provider_id, stale.name) as lock:
            try:
                async with asyncio.timeout(LOCK_DEADLINE_S):
                    for pause in pauses():
                        if await lock.try_acquire():
                            break
                        await asyncio.sleep(pause)
                        if (account := await self._stored(provider_id, stale.name)).credential != stale.credential:
                            return account
            except TimeoutError:
                raise _failed(
                    provider_id, f"another process has been refreshing it for {LOCK_DEADLINE_S:g} seconds"
                ) from None
            return await self._refresh_alone(provider_id, stale)

    async def _refresh_alone(self, provider_id: str, stale: Account) -> Account:
        """Inside the lock."""
        account = await self._stored(provider_id, stale.name)
        token = account.credential
        if token != stale.credential or isinstance(token, ApiKey):
            return account
        procedure = self._refreshers.get(token.refresher)
        if token.refresh is None or procedure is None or self._refused.get((provider_id, stale.name)) == token.refresh:
            raise _over(provider_id, stale)
        await asyncio.to_thread(self._store.rehearse)
        try:
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                answer = await self._ask(procedure, token)
        except errors.InvalidGrant:
            # Final only if the store still holds what was refused: a process elsewhere, on a file system whose locks do
            # not reach us, or a new login may have been faster.
            if (current := await self._stored(provider_id, stale.name)).credential != token:
                return current
            self._refused[provider_id, stale.name] = token.refresh
            raise _over(provider_id, stale) from None
        except TimeoutError:
            raise _failed(provider_id, f"no answer within {ANSWER_DEADLINE_S:g} seconds") from None
        except errors.MakaiError as error:
            raise _failed(provider_id, error.message) from None
        if answer.refresh is None:
            # RFC 6749 section 6: the server "MAY issue a new refresh token"; else the old one stays in use
            answer = msgspec.structs.replace(answer, refresh=token.refresh)
        renewed = msgspec.structs.replace(account, credential=answer)
        await asyncio.to_thread(self._store.replace, provider_id, account, renewed)
        # Not `renewed`: if the user logged in or out meanwhile, that is what counts.
        return await self._stored(provider_id, stale.name)

    async def _ask(self, procedure: RefreshProcedure, token: OAuthToken) -> OAuthToken:
        """Ask, and once more if no answer came: servers accept the repetition of a request whose answer was lost."""
        try:
            return await procedure(token, self._http)
        except errors.ProviderError as error:
            if error.status is not None:
                raise
        return await procedure(token, self._http)

    async def _stored(self, provider_id: str, account_name: str) -> Account:
        return _account(await asyncio.to_thread(self._store.latest), provider_id, account_name)

    def _expires_within(self, account: Account, margin_ms: int) -> bool:
        token = account.credential
        if isinstance(token, ApiKey) or token.expires_at_ms is None:
            return False
        if token.refresh is None:
            margin_ms = 0  # nothing could be done earlier
        # A life shorter than the margin would always be about to end: leave it its first half.
        life_ms = max(0, token.expires_at_ms - account.saved_at_ms)
        return self._now_ms() >= token.expires_at_ms - min(margin_ms, life_ms // 2)

    def _ended(self, key: tuple[str, str, Secret], task: asyncio.Task[Account]) -> None:
        del self._running[key]
        consume_exception(task)  # the callers may all have been cancelled


def _account(snapshot: StoreSnapshot, provider_id: str, account_name: str | None) -> Account:
    account = snapshot.account(provider_id, account_name)
    if account is None:
        missing = f"There is no login for {provider_id}" + (f" named {account_name!r}." if account_name else ".")
        raise errors.AuthRequired(missing, provider_id=provider_id, hint=_login(provider_id, None))
    return account


def _failed(provider_id: str, why: str) -> errors.AuthRefreshFailed:
    failed = f"The login for {provider_id} could not be refreshed: {why.rstrip('.')}."
    return errors.AuthRefreshFailed(failed, provider_id=provider_id, hint="The login is kept; try again.")


def _over(provider_id: str, account: Account) -> errors.AuthExpired:
    hint = _login(provider_id, account)
    return errors.AuthExpired(f"The login for {provider_id} has expired.", provider_id=provider_id, hint=hint)


def _login(provider_id: str, account: Account | None) -> str:
    command = f"makai auth login {provider_id}"
    if account is not None and account.name != DEFAULT_ACCOUNT:
        command += f" --account {account.name}"
    return f"Run: {command}"
