"""The standard logins: in the browser (PKCE, an answer over loopback, or pasting it where the browser is on another
machine), and with a code on any device (RFC 8628). `login_oidc` uses them at any server that config.toml describes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final, TypeVar

import msgspec

from makai.auth import oauth
from makai.auth.credentials import Account, OAuthToken, safe_origin
from makai.auth.flows import LoginIO, LoginProvider, account_of, required_option
from makai.auth.http import AuthHttp
from makai.auth.loopback import CallbackListener, listen
from makai.auth.store import unix_milliseconds
from makai.core.errors import InvalidRequest, ParseError, ProviderError
from makai.core.secret import Secret

PASTE_AFTER_S: Final = 20.0
"""How long to wait for the browser before offering to paste: most logins end earlier."""
PASTE_ATTEMPTS: Final = 5

_INSTRUCTIONS: Final = "Open this page in a browser and log in. makai notices when you are done."
_PASTE: Final = (
    "If the browser runs on another machine, it ends at a page that does not open: paste that page's address here. "
    "Otherwise finish in the browser."
)


class BrowserLogin(msgspec.Struct, frozen=True, kw_only=True):
    url: Callable[[str, oauth.Pkce, Secret], str]
    """From redirect URI, PKCE pair and state: the page to open."""
    issuer: str = ""
    needs_issuer: bool = False
    host: str = "127.0.0.1"
    ports: Sequence[int] = (0,)
    path: str = "/callback"
    state_in_path: bool = False


class Code(msgspec.Struct, frozen=True):
    """An authorization code and what must be shown with it."""

    code: Secret
    redirect_uri: str
    pkce: oauth.Pkce


class Switched(Exception):
    """The user typed a word that asks for another way to log in."""


async def browser_code(io: LoginIO, provider: LoginProvider, login: BrowserLogin, *, switch_word: str = "") -> Code:
    """Send the user to the page and wait for the code. Pair and state are made here and used once. With a
    `switch_word`, the user may answer it instead of an address: `Switched`."""
    pkce, state = oauth.new_pkce(), oauth.new_state()
    callback = oauth.Callback(
        provider_id=provider.id,
        state=state,
        path=login.path,
        state_in_path=login.state_in_path,
        issuer=login.issuer,
        needs_issuer=login.needs_issuer,
    )
    async with AsyncExitStack() as stack:
        try:
            listener = await stack.enter_async_context(listen(callback, host=login.host, ports=login.ports))
        except InvalidRequest as error:
            # Another program has the port: a redirect would hand the code to it.
            if not switch_word:
                raise
            await io.progress(error.message)
            raise Switched from None
        await io.auth_url(login.url(listener.redirect_uri, pkce, state), _INSTRUCTIONS)
        code = await _first_answer(io, callback, listener, switch_word)
        return Code(code, listener.redirect_uri, pkce)


async def _first_answer(io: LoginIO, callback: oauth.Callback, listener: CallbackListener, switch_word: str) -> Secret:
    """The code from the browser or from the user, whichever comes first; the other wait is cancelled."""
    browser = asyncio.ensure_future(listener.code())
    user = asyncio.ensure_future(_pasted_later(io, callback, switch_word))
    try:
        await asyncio.wait({browser, user}, return_when=asyncio.FIRST_COMPLETED)
        if not browser.done() and (code := user.result()) is not None:
            return code
        return await browser
    finally:
        browser.cancel()
        user.cancel()
        await asyncio.gather(browser, user, return_exceptions=True)


async def _pasted_later(io: LoginIO, callback: oauth.Callback, switch_word: str) -> Secret | None:
    """None when the user leaves it to the browser."""
    await asyncio.sleep(PASTE_AFTER_S)
    message = _PASTE + (f' Or type "{switch_word}" to log in with a code instead.' if switch_word else "")
    return await _pasted(io, callback, message, allow_empty=True, switch_word=switch_word)


async def _pasted(
    io: LoginIO, callback: oauth.Callback, message: str, *, allow_empty: bool, switch_word: str
) -> Secret | None:
    """None when the answer is empty."""
    for _ in range(PASTE_ATTEMPTS):
        answer = (await io.prompt(message, allow_empty=allow_empty)).strip()
        if not answer:
            return None
        if switch_word and answer.lower() == switch_word:
            raise Switched
        try:
            return callback.read_pasted(answer)
        except ParseError as error:
            await io.progress(f"{error.message} Copy the whole address of the last page.")
    raise oauth.try_again("No usable address was pasted.", callback.provider_id)


async def browser_token(
    io: LoginIO,
    provider: LoginProvider,
    http: AuthHttp,
    login: BrowserLogin,
    token_endpoint: str,
    *,
    switch_word: str = "",
) -> oauth.TokenAnswer:
    code = await browser_code(io, provider, login, switch_word=switch_word)
    await io.progress("Fetching the tokens.")
    return await exchange(provider, http, code, token_endpoint)


async def exchange(provider: LoginProvider, http: AuthHttp, code: Code, token_endpoint: str) -> oauth.TokenAnswer:
    form = oauth.code_form(
        code.code,
        client_id=provider.options["client_id"],
        client_secret=provider.client_secret,
        redirect_uri=code.redirect_uri,
        pkce=code.pkce,
    )
    now_ms = unix_milliseconds()
    return oauth.read_token_answer(await http.post_form(token_endpoint, form), provider_id=provider.id, now_ms=now_ms)


def standard_page(
    endpoint: str, provider: LoginProvider, extra: dict[str, str] | None = None
) -> Callable[[str, oauth.Pkce, Secret], str]:
    """`BrowserLogin.url` of a server that keeps to the standard."""

    def url(redirect_uri: str, pkce: oauth.Pkce, state: Secret) -> str:
        return oauth.authorization_url(
            endpoint,
            client_id=provider.options["client_id"],
            redirect_uri=redirect_uri,
            scope=provider.options.get("scope", ""),
            pkce=pkce,
            state=state,
            extra=extra,
        )

    return url


SLOW_DOWN_S: Final = 5
"""Section 3.5: "the interval MUST be increased by 5 seconds for this and all subsequent requests"."""
MAX_WAIT_S: Final = 15 * 60
MAX_INTERVAL_S: Final = 60

sleep = asyncio.sleep
monotonic = time.monotonic

T = TypeVar("T")


async def device_login(
    io: LoginIO, provider: LoginProvider, http: AuthHttp, device_endpoint: str, token_endpoint: str
) -> oauth.TokenAnswer:
    """RFC 8628: the user enters a short code on any device while this side polls."""
    client_id, scope = provider.options["client_id"], provider.options.get("scope", "")
    asked = {"client_id": client_id} | ({"scope": scope} if scope else {})
    device = oauth.read_device_answer(await http.post_form(device_endpoint, asked), provider_id=provider.id)
    await show(io, device)
    form = oauth.device_form(device.device_code, client_id=client_id, client_secret=provider.client_secret)

    async def ask() -> oauth.TokenAnswer | str:
        now_ms = unix_milliseconds()
        answer = await http.post_form(token_endpoint, form)
        code = oauth.error_code(answer)
        if code in ("authorization_pending", "slow_down"):
            return code
        return oauth.read_token_answer(answer, provider_id=provider.id, now_ms=now_ms)

    return await poll(provider, ask, device)


async def show(io: LoginIO, device: oauth.DeviceAuthorization) -> None:
    """Tell the user what to type where; the code is shown even where the link already holds it (section 3.3.1)."""
    instructions = f"Open {device.verification_uri} on any device and enter the code {device.user_code}"
    await io.auth_url(device.verification_uri_complete or device.verification_uri, instructions)
    await io.progress("Waiting for the code to be entered.")


async def poll(provider: LoginProvider, ask: Callable[[], Awaitable[T | str]], device: oauth.DeviceAuthorization) -> T:
    """Call `ask` until it gives more than a reason to wait. A server out of reach is asked again, ever less often."""
    interval = float(max(device.interval_s, 1))
    ends_at = monotonic() + min(device.expires_in_s, MAX_WAIT_S)
    unreachable: ProviderError | None = None
    while monotonic() + interval <= ends_at:
        await sleep(interval)
        try:
            outcome = await ask()
        except ProviderError as error:
            # Section 3.5: on connection trouble "the client MUST unilaterally reduce its polling frequency".
            unreachable = error
            interval = min(interval * 2, max(MAX_INTERVAL_S, interval))
            continue
        unreachable = None
        if not isinstance(outcome, str):
            return outcome
        if outcome == "slow_down":
            interval += SLOW_DOWN_S
    if unreachable is not None:
        raise unreachable
    raise oauth.try_again("The code was not entered in time.", provider.id)


async def login_oidc(io: LoginIO, provider: LoginProvider, http: AuthHttp) -> Account:
    """Log in at any OAuth 2 or OpenID Connect server that config.toml describes, by its issuer or its endpoints."""
    required_option(provider, "client_id")
    server = await _metadata(provider, http)
    if provider.options.get("flow") == "device_code":
        device_endpoint, token_endpoint = _known(provider, server, "device_authorization_endpoint", "token_endpoint")
        answer = await device_login(io, provider, http, device_endpoint, token_endpoint)
    else:
        page, token_endpoint = _known(provider, server, "authorization_endpoint", "token_endpoint")
        browser = BrowserLogin(
            url=standard_page(page, provider),
            issuer=server.issuer,
            needs_issuer=server.names_itself,
            ports=(int(provider.options.get("redirect_port", "0")),),
        )
        answer = await browser_token(io, provider, http, browser, token_endpoint)
    return account_of(provider, token_of(provider, answer, server), label=label_of(answer))


async def _metadata(provider: LoginProvider, http: AuthHttp) -> oauth.ServerMetadata:
    """What the server says of itself; what the user wrote wins."""
    written = {name: provider.options[name] for name in oauth.ENDPOINTS if provider.options.get(name)}
    for url in written.values():
        safe_origin(url)
    issuer = provider.options.get("issuer", "")
    if not issuer:
        return msgspec.convert(written, oauth.ServerMetadata)
    answer = await http.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
    found = oauth.read_metadata(answer, issuer=issuer, provider_id=provider.id)
    return msgspec.structs.replace(found, **written)


def token_of(
    provider: LoginProvider, answer: oauth.TokenAnswer, server: oauth.ServerMetadata, **data: str
) -> OAuthToken:
    """What is kept of a standard answer: everything that refreshing and revoking need."""
    kept = {"revocation_endpoint": server.revocation_endpoint, "send_as": provider.options.get("send_as", ""), **data}
    return OAuthToken(
        access=answer.access,
        refresh=answer.refresh,
        expires_at_ms=answer.expires_at_ms,
        token_url=server.token_endpoint,
        client_id=provider.options["client_id"],
        client_secret=provider.client_secret,
        scope=answer.scope or provider.options.get("scope", ""),
        provider_data={name: value for name, value in kept.items() if value},
    )


def label_of(answer: oauth.TokenAnswer) -> str:
    """Whose account it is, for people."""
    claims = oauth.jwt_claims(answer.id_token)
    for name in ("email", "preferred_username", "name", "sub"):
        value = claims.get(name)
        if isinstance(value, str) and value.isprintable() and 0 < len(value) <= 200:
            return value
    return ""


def _known(provider: LoginProvider, server: oauth.ServerMetadata, *names: str) -> list[str]:
    for name in names:
        if not getattr(server, name):
            hint = f"Set it in [providers.{provider.id}.login] of config.toml, or choose another `flow` there."
            raise InvalidRequest(f"The login server of {provider.name} names no {name}.", hint=hint)
    return [getattr(server, name) for name in names]
