"""`client.auth`: who is logged in, logging in, and what to do when a request needs a login.

Credentials stay with the server: nothing here starts programs, reads credential files or hands out tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from makai.client import types as sdk
from makai.client.connection import MakaiConnection
from makai.client.failures import as_auth_error
from makai.client.login_flow import INTERACTION_REQUIRED, RemoteLogin
from makai.core.errors import MakaiAuthError, MakaiStreamError
from makai.protocols.makai.auth import AuthProvidersRequest

_CANNOT_LOG_IN: Final = frozenset({INTERACTION_REQUIRED, "not_implemented"})


class _Providers(msgspec.Struct, frozen=True):
    """`auth_providers_response`. Decoding into a type keeps what is not documented away from callers."""

    providers: tuple[sdk.ProviderAuthInfo, ...]


_providers = msgspec.json.Decoder(_Providers).decode


class AuthApi:
    """Logins. At most one flow is active per client: later ones wait for it."""

    def __init__(self, connection: MakaiConnection, options: sdk.AuthOptions, on_login: Callable[[], None]) -> None:
        self._connection = connection
        self._options = options
        self._on_login = on_login
        self._turn = asyncio.Lock()
        self._outcomes: dict[str, tuple[int, MakaiAuthError | None]] = {}
        self.logins = 0
        """How many flows have ended: what a request notes to know which of them it came before."""

    async def list_providers(self) -> tuple[sdk.ProviderAuthInfo, ...]:
        """Every provider and whether it can be used."""
        try:
            listed = await self._connection.ask(
                "auth_providers_request", AuthProvidersRequest(), "auth_providers_response", _providers
            )
            return listed.providers
        except MakaiStreamError as error:
            raise as_auth_error(error) from error

    async def login(
        self, provider_id: str, handlers: sdk.AuthFlowHandlers | None = None, *, account: str | None = None
    ) -> sdk.LoginResult:
        """Log in. Each handler is looked up in `handlers`, then in the client's; raises unless it succeeds.

        `account` names the login, where a provider has several.
        """
        own, defaults = handlers or sdk.AuthFlowHandlers(), self._options.handlers
        chosen = sdk.AuthFlowHandlers(
            on_event=own.on_event or defaults.on_event, on_prompt=own.on_prompt or defaults.on_prompt
        )
        async with self._turn:
            await self._run(provider_id, chosen, account)
        return sdk.LoginResult()

    async def login_for_retry(self, error: Exception, policy: sdk.AuthRetryPolicy | None, logins_before: int) -> None:
        """Do what an `auth_required` failure asks for, so that its request can be tried again; else raise it.

        Requests that failed together share one login, and its failure.
        """
        effective = policy or self._options.auth_retry_policy
        if effective != "auto_once" or not isinstance(error, MakaiAuthError) or error.code != "auth_required":
            raise error
        if error.provider_id is None:
            raise error
        async with self._turn:
            ended, failure = self._outcomes.get(error.provider_id, (0, None))
            if ended > logins_before:
                if failure is not None:
                    raise error from failure
                return
            try:
                await self._run(error.provider_id, self._options.handlers)
            except MakaiAuthError as reason:
                # Fail fast with the typed auth_required: the caller has to log in by hand.
                if reason.code in _CANNOT_LOG_IN:
                    raise error from reason
                raise

    async def _run(self, provider_id: str, handlers: sdk.AuthFlowHandlers, account: str | None = None) -> None:
        """One flow, while it is our turn."""
        outcome: MakaiAuthError | None = None
        try:
            await RemoteLogin(await self._connection.open(), provider_id, handlers, account).run()
            self._on_login()
        except MakaiAuthError as error:
            outcome = error
            raise
        except MakaiStreamError as error:
            outcome = as_auth_error(error, provider_id)
            raise outcome from error
        finally:
            self.logins += 1
            self._outcomes[provider_id] = (self.logins, outcome)
