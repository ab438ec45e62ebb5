"""`client.auth`: who is logged in, logging in, and what to do when a request needs a login. Credentials stay with the
server: nothing here starts programs, reads credential files or hands out tokens."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from makai.client import types as sdk
from makai.client.connection import Exchange, MakaiConnection
from makai.client.failures import as_auth_error, broken_protocol
from makai.core.errors import MakaiAuthError, MakaiStreamError
from makai.protocols.makai.auth import AuthCancel, AuthLoginStart, AuthPromptResponse, AuthProvidersRequest
from makai.protocols.makai.client import Reply

INTERACTION_REQUIRED: Final = "interaction_required"
"""The code of a login that needed a person while no handler was given."""
CANCEL_DEADLINE_S: Final = 5.0
"""How long a server may take to confirm that it cancelled."""

_CANNOT_LOG_IN: Final = frozenset({INTERACTION_REQUIRED, "not_implemented"})
_EVENT_TYPES: Final = ("auth_url", "prompt", "progress", "success", "error")


class _Providers(msgspec.Struct, frozen=True):
    """`auth_providers_response`. Decoding into a type keeps what is not documented away from callers."""

    providers: tuple[sdk.ProviderAuthInfo, ...]


class _Result(msgspec.Struct, frozen=True):
    status: Literal["success", "cancelled", "failed"]


_providers = msgspec.json.Decoder(_Providers).decode
_result = msgspec.json.Decoder(_Result).decode
_fields = msgspec.json.Decoder(dict[str, dict[str, Any]]).decode


class RemoteLogin:
    """One login, from `auth_login_start` to `auth_login_result`. Events reach the handlers in wire order."""

    def __init__(
        self, exchange: Exchange, provider_id: str, handlers: sdk.AuthFlowHandlers, account: str | None = None
    ) -> None:
        self._exchange = exchange
        self._provider_id = provider_id
        self._account = account
        self._handlers = handlers
        self._flow_id = exchange.scope.id
        self._last_error: sdk.AuthErrorEvent | None = None
        self._answering: asyncio.Future[AuthPromptResponse] | None = None
        self._url_shown = False

    async def run(self) -> None:
        """Log in. Whatever ends this early, also a cancelled task, cancels the flow on the server."""
        self._exchange.send("auth_login_start", AuthLoginStart(provider_id=self._provider_id, account=self._account))
        try:
            await self._follow()
        except _GivenUp as reason:
            await self._cancel()
            raise reason.error from reason.error.__cause__
        except asyncio.CancelledError:
            self._exchange.send("auth_cancel", AuthCancel(self._flow_id))
            raise
        finally:
            self._exchange.end()
            if self._answering is not None:
                self._answering.cancel()
                await asyncio.gather(self._answering, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            reply = await self._next()
            if reply.type == "auth_event":
                await self._take(_flattened(reply))
            elif reply.type == "auth_login_result":
                return self._settle(reply)

    async def _next(self) -> Reply:
        """The next reply. A prompt may be waiting for its answer meanwhile: the login can end without it, for
        example in the browser."""
        if self._answering is None:
            return await self._exchange.next()
        reply = asyncio.ensure_future(self._exchange.next())
        try:
            both: set[asyncio.Future[Any]] = {reply, self._answering}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if self._answering.done() and not reply.done():
                answering, self._answering = self._answering, None
                response = answering.result()
                try:
                    self._exchange.send("auth_prompt_response", response)
                except MakaiStreamError as error:
                    raise _GivenUp(as_auth_error(error, self._provider_id)) from error
            return await reply
        finally:
            reply.cancel()
            await asyncio.gather(reply, return_exceptions=True)

    async def _take(self, event: sdk.MakaiAuthEvent | None) -> None:
        if event is None:
            return
        self._flow_id = event.flow_id
        if isinstance(event, sdk.AuthErrorEvent):
            self._last_error = event
        await self._publish(event)
        if isinstance(event, sdk.AuthPromptEvent):
            self._prompt(event)
        elif isinstance(event, sdk.AuthUrlEvent) and self._handlers == sdk.AuthFlowHandlers():
            # Without a handler the page would never be opened.
            raise self._needs_person()
        elif isinstance(event, sdk.AuthUrlEvent):
            self._url_shown = True

    async def _publish(self, event: sdk.MakaiAuthEvent) -> None:
        if self._handlers.on_event is None:
            return
        try:
            outcome = self._handlers.on_event(event)
            if inspect.isawaitable(outcome):
                await outcome
        except Exception as error:
            raise _GivenUp(self._failed_handler("on_event", error)) from error

    def _prompt(self, prompt: sdk.AuthPromptEvent) -> None:
        if self._handlers.on_prompt is None:
            if prompt.allow_empty and self._url_shown:
                return  # only another way to finish what the user does in the browser
            raise self._needs_person()
        if self._answering is not None:
            self._answering.cancel()
        self._answering = asyncio.ensure_future(self._answer(prompt))

    async def _answer(self, prompt: sdk.AuthPromptEvent) -> AuthPromptResponse:
        assert self._handlers.on_prompt is not None
        try:
            answer = self._handlers.on_prompt(prompt)
            text = answer if isinstance(answer, str) else await answer
        except Exception as error:
            raise _GivenUp(self._failed_handler("on_prompt", error)) from error
        return AuthPromptResponse(flow_id=prompt.flow_id, prompt_id=prompt.prompt_id, answer=text)

    async def _cancel(self) -> None:
        """Ask the server to stop, and wait for its word; its last events still reach `on_event`."""
        self._exchange.send("auth_cancel", AuthCancel(self._flow_id))
        with suppress(TimeoutError, MakaiAuthError, MakaiStreamError, _GivenUp):
            async with asyncio.timeout(CANCEL_DEADLINE_S):
                while (reply := await self._exchange.next()).type != "auth_login_result":
                    event = _flattened(reply) if reply.type == "auth_event" else None
                    if event is not None:
                        await self._publish(event)

    def _settle(self, reply: Reply) -> None:
        try:
            status = _result(reply.payload).status
        except (msgspec.DecodeError, ValueError) as error:
            raise broken_protocol(f"a malformed auth_login_result: {error}") from error
        if status == "success":
            return
        if status == "cancelled":
            raise self._error("the login was cancelled", "cancelled", "cancelled")
        last = self._last_error
        raise self._error(last.message if last else "the login failed", "provider_error", last.code if last else None)

    def _needs_person(self) -> _GivenUp:
        message = f"logging in to {self._provider_id} needs a person, but no handler was given"
        return _GivenUp(self._error(message, "cancelled", INTERACTION_REQUIRED))

    def _failed_handler(self, name: str, cause: Exception) -> MakaiAuthError:
        error = self._error(f"the {name} handler failed: {cause}", "cancelled", "cancelled")
        error.__cause__ = cause
        return error

    def _error(self, message: str, kind: Literal["cancelled", "provider_error"], code: str | None) -> MakaiAuthError:
        return MakaiAuthError(message, kind=kind, code=code, provider_id=self._provider_id)


class _GivenUp(Exception):
    """This side gives up; `error` is what the caller gets once the login is cancelled on the server."""

    def __init__(self, error: MakaiAuthError) -> None:
        super().__init__()
        self.error = error


def _flattened(reply: Reply) -> sdk.MakaiAuthEvent | None:
    """The wire's `{"prompt": {...}}` as `{"type": "prompt", ...}`; None for an event of a later version."""
    try:
        for name, fields in _fields(reply.payload).items():
            if name in _EVENT_TYPES:
                return msgspec.convert({**fields, "type": name}, sdk.MakaiAuthEvent)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, ValueError) as error:
        raise broken_protocol(f"a malformed auth_event: {error}") from error
    return None


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
        """Log in. Each handler is looked up in `handlers`, then in the client's; raises unless it succeeds. `account`
        names the login, where a provider has several."""
        own, defaults = handlers or sdk.AuthFlowHandlers(), self._options.handlers
        chosen = sdk.AuthFlowHandlers(
            on_event=own.on_event or defaults.on_event, on_prompt=own.on_prompt or defaults.on_prompt
        )
        async with self._turn:
            await self._run(provider_id, chosen, account)
        return sdk.LoginResult()

    async def login_for_retry(self, error: Exception, policy: sdk.AuthRetryPolicy | None, logins_before: int) -> None:
        """Do what an `auth_required` failure asks for, so that its request can be tried again; else raise it. Requests
        that failed together share one login, and its failure."""
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
