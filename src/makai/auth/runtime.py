"""The logins of one process: lists providers with their status, starts and ends logins, stores what they obtain."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from makai.auth.account_text import StoreSnapshot
from makai.auth.credentials import DEFAULT_ACCOUNT, Account, ApiKey, OAuthToken, is_loopback
from makai.auth.flows import LoginIO, LoginProvider, procedure_of
from makai.auth.http import AuthHttp
from makai.auth.login import RunningLogin
from makai.auth.refresh import Refresher, revoke
from makai.auth.store import AccountStore, unix_milliseconds
from makai.core.errors import InvalidRequest, MakaiError
from makai.core.secret import Secret

MAX_FLOWS: Final = 64
_LOOPBACK_S: Final = 0.2

AuthStatus: TypeAlias = Literal[
    "authenticated", "login_required", "expired", "refreshing", "login_in_progress", "failed", "unknown"
]


class AccountStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    auth_status: AuthStatus
    is_default: bool
    label: str = ""
    expires_at_ms: int | None = None


class ProviderStatus(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    auth_status: AuthStatus
    last_error: str = ""
    accounts: tuple[AccountStatus, ...] = ()
    source: str = ""
    """Where the credential comes from: "login", the name of an environment variable, or "" without one."""


class AuthRuntime:
    """The logins of one process. Flows are tasks of its event loop; `close` ends them."""

    def __init__(
        self,
        store: AccountStore,
        providers: Iterable[LoginProvider],
        http: AuthHttp,
        environ: Mapping[str, str],
        *,
        refresher: Refresher | None = None,
    ) -> None:
        self._store = store
        self._providers = {provider.id: provider for provider in providers}
        self._http = http
        self._environ = environ
        self._refresher = refresher
        self._flows: set[RunningLogin] = set()
        self._last_errors: dict[str, str] = {}

    def list_providers(self) -> list[ProviderStatus]:
        """Every provider, in the order they were given. A store that cannot be read is each one's `last_error`."""
        try:
            snapshot = self._store.snapshot()
        except MakaiError as error:
            return [
                ProviderStatus(id=provider.id, name=provider.name, auth_status="unknown", last_error=str(error))
                for provider in self._providers.values()
            ]
        return [self._status(provider, snapshot) for provider in self._providers.values()]

    def start_login(self, provider_id: str, flow_id: str, account: str | None = None) -> RunningLogin:
        """Start a login. One that cannot begin is a login that fails (MK-AUTH-013)."""

        async def obtain(io: LoginIO) -> Account:
            return await self._obtain(io, provider_id, account or DEFAULT_ACCOUNT)

        async def keep(obtained: Account) -> None:
            await asyncio.to_thread(self._store.save, provider_id, obtained)

        flow = RunningLogin(provider_id, flow_id, obtain, keep, self._ended)
        self._flows.add(flow)
        return flow

    async def logout(self, provider_id: str, account: str | None = None) -> bool:
        """Remove an account, and end it at its server where that is possible. False when there is none."""
        known = (await asyncio.to_thread(self._store.snapshot)).account(provider_id, account)
        if known is None:
            return False
        # Removed first: a request made meanwhile must not use a token that is about to end.
        removed = await asyncio.to_thread(self._store.remove, provider_id, known.name)
        self._last_errors.pop(provider_id, None)
        if isinstance(known.credential, OAuthToken):
            await revoke(known.credential, self._http)
        return removed

    async def close(self) -> None:
        """Cancel every login and wait until it has ended."""
        flows = list(self._flows)
        for flow in flows:
            flow.cancel()
        for flow in flows:
            await flow.ended()

    async def _obtain(self, io: LoginIO, provider_id: str, account_name: str) -> Account:
        provider = self._providers.get(provider_id)
        if provider is None:
            known = ", ".join(sorted(self._providers))
            raise InvalidRequest("There is no provider of that name to log in to.", hint=f"There are: {known}.")
        if len(self._flows) > MAX_FLOWS:
            raise InvalidRequest(f"{MAX_FLOWS} logins are already running.", hint="End one of them first.")
        # A home that cannot be written to fails now, before the user goes through a browser.
        await asyncio.to_thread(self._store.rehearse)
        ready = _with_environment(provider, self._environ)
        return msgspec.structs.replace(await procedure_of(ready)(io, ready, self._http), name=account_name)

    def _ended(self, flow: RunningLogin, error: str) -> None:
        self._flows.discard(flow)
        if flow.result == "failed" and flow.provider_id in self._providers:
            self._last_errors[flow.provider_id] = error
        elif flow.result == "success":
            self._last_errors.pop(flow.provider_id, None)

    def _status(self, provider: LoginProvider, snapshot: StoreSnapshot) -> ProviderStatus:
        default = snapshot.default(provider.id)
        accounts = tuple(
            AccountStatus(
                name=account.name,
                auth_status=self._account_status(provider.id, account),
                is_default=account.name == default,
                label=account.label,
                expires_at_ms=account.credential.expires_at_ms if isinstance(account.credential, OAuthToken) else None,
            )
            for account in snapshot.accounts(provider.id)
        )
        stored = next((account.auth_status for account in accounts if account.is_default), None)
        variable = next((name for name in provider.key_variables if self._environ.get(name, "").strip()), "")
        last_error = self._last_errors.get(provider.id, "")
        status: AuthStatus
        if any(flow.provider_id == provider.id for flow in self._flows):
            status = "login_in_progress"
        elif stored is not None:
            status = stored
        elif variable:
            status = "authenticated"
        elif not provider.required:
            status = "authenticated" if _may_answer(provider.address) else "unknown"
        else:
            status = "failed" if last_error else "login_required"
        return ProviderStatus(
            id=provider.id,
            name=provider.name,
            auth_status=status,
            last_error=last_error,
            accounts=accounts,
            source="login" if stored is not None else variable,
        )

    def _account_status(self, provider_id: str, account: Account) -> AuthStatus:
        match account.credential:
            case ApiKey():
                return "authenticated"
            case OAuthToken(expires_at_ms=expires_at_ms, refresh=refresh):
                if self._refresher is not None and self._refresher.is_refreshing(provider_id, account.name):
                    return "refreshing"
                over = expires_at_ms is not None and expires_at_ms <= unix_milliseconds()
                return "expired" if over and refresh is None else "authenticated"


def _may_answer(address: str) -> bool:
    """False for a server on this machine that does not listen, such as a stopped Ollama. Others are not asked here."""
    parts = urlsplit(address)
    if parts.port is None or not is_loopback(parts.hostname or ""):
        return True
    with contextlib.suppress(OSError), socket.create_connection((parts.hostname or "", parts.port), _LOOPBACK_S):
        return True
    return False


def _with_environment(provider: LoginProvider, environ: Mapping[str, str]) -> LoginProvider:
    """The provider with the options that environment variables set."""
    found = {
        option: value
        for option, variable in provider.option_variables.items()
        if (value := environ.get(variable, "").strip())
    }
    secret = found.pop("client_secret", "")
    return msgspec.structs.replace(
        provider,
        options={**provider.options, **found},
        client_secret=Secret(secret) if secret else provider.client_secret,
    )
