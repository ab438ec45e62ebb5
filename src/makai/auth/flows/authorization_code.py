"""The browser login: PKCE, an answer over loopback, and pasting it where the browser is on another machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final

import msgspec

from makai.auth.flows import LoginIO, LoginProvider
from makai.auth.http import AuthHttp
from makai.auth.loopback import CallbackListener, listen
from makai.auth.oauth import (
    Callback,
    Pkce,
    TokenAnswer,
    authorization_url,
    code_form,
    new_pkce,
    new_state,
    read_token_answer,
)
from makai.core.errors import AuthRequired, InvalidRequest, ParseError
from makai.core.secret import Secret

PASTE_AFTER_S: Final = 20.0
"""How long to wait for the browser before offering to paste: most logins end earlier."""
PASTE_ATTEMPTS: Final = 5

_INSTRUCTIONS: Final = "Open this page in a browser and log in. makai notices when you are done."
_PASTE: Final = (
    "If the browser runs on another machine, it ends at a page that does not open: paste that page's address here. "
    "Otherwise finish in the browser."
)
_PASTE_ONLY: Final = "Log in in the browser. It ends at a page that does not open: paste that page's address here."


class BrowserLogin(msgspec.Struct, frozen=True, kw_only=True):
    """What a login in the browser needs to know."""

    url: Callable[[str, Pkce, Secret], str]
    """From redirect URI, PKCE pair and state: the page to open."""
    issuer: str = ""
    host: str = "127.0.0.1"
    ports: Sequence[int] = (0,)
    path: str = "/callback"
    state_in_path: bool = False


class Code(msgspec.Struct, frozen=True):
    """An authorization code and what must be shown with it."""

    code: Secret
    redirect_uri: str
    pkce: Pkce


class Switched(Exception):
    """The user typed a word that asks for another way to log in."""


async def browser_code(io: LoginIO, provider: LoginProvider, login: BrowserLogin, *, switch_word: str = "") -> Code:
    """Send the user to the page and wait for the code. Pair and state are made here and used once.

    With a `switch_word`, the user may answer it instead of an address: `Switched`.
    """
    pkce, state = new_pkce(), new_state()
    callback = Callback(
        provider_id=provider.id,
        state=state,
        path=login.path,
        state_in_path=login.state_in_path,
        issuer=login.issuer,
    )
    async with AsyncExitStack() as stack:
        listener: CallbackListener | None = None
        try:
            listener = await stack.enter_async_context(listen(callback, host=login.host, ports=login.ports))
            redirect_uri = listener.redirect_uri
        except InvalidRequest as error:
            # The redirect still shows in the browser's address bar, so the login can go on by pasting it.
            redirect_uri = f"http://{login.host}:{login.ports[0]}{callback.redirect_path}"
            await io.progress(error.message)
        await io.auth_url(login.url(redirect_uri, pkce, state), _INSTRUCTIONS)
        code = await _first_answer(io, callback, listener, switch_word)
        return Code(code, redirect_uri, pkce)


async def _first_answer(io: LoginIO, callback: Callback, listener: CallbackListener | None, switch_word: str) -> Secret:
    """The code from the browser or from the user, whichever comes first; the other wait is cancelled."""
    if listener is None:
        return await _pasted(io, callback, _PASTE_ONLY, allow_empty=False, switch_word=switch_word)
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


async def _pasted_later(io: LoginIO, callback: Callback, switch_word: str) -> Secret | None:
    """None when the user leaves it to the browser."""
    await asyncio.sleep(PASTE_AFTER_S)
    message = _PASTE + (f' Or type "{switch_word}" to log in with a code instead.' if switch_word else "")
    try:
        return await _pasted(io, callback, message, allow_empty=True, switch_word=switch_word)
    except _LeftToBrowser:
        return None


class _LeftToBrowser(Exception):
    pass


async def _pasted(io: LoginIO, callback: Callback, message: str, *, allow_empty: bool, switch_word: str) -> Secret:
    for _ in range(PASTE_ATTEMPTS):
        answer = (await io.prompt(message, allow_empty=allow_empty)).strip()
        if not answer:
            raise _LeftToBrowser
        if switch_word and answer.lower() == switch_word:
            raise Switched
        try:
            return callback.read_pasted(answer)
        except ParseError as error:
            await io.progress(f"{error.message} Copy the whole address of the last page.")
    raise AuthRequired(
        "No usable address was pasted.",
        provider_id=callback.provider_id,
        hint=f"Start again: `makai auth login {callback.provider_id}`",
    )


async def browser_token(
    io: LoginIO,
    provider: LoginProvider,
    http: AuthHttp,
    login: BrowserLogin,
    *,
    token_endpoint: str,
    client_id: str,
    client_secret: Secret | None = None,
    switch_word: str = "",
) -> TokenAnswer:
    code = await browser_code(io, provider, login, switch_word=switch_word)
    await io.progress("Fetching the tokens.")
    return await exchange(provider, http, code, token_endpoint, client_id, client_secret)


async def exchange(
    provider: LoginProvider, http: AuthHttp, code: Code, token_endpoint: str, client_id: str, secret: Secret | None
) -> TokenAnswer:
    form = code_form(
        code.code, client_id=client_id, client_secret=secret, redirect_uri=code.redirect_uri, pkce=code.pkce
    )
    now_ms = time.time_ns() // 1_000_000
    answer = await http.post_form(token_endpoint, form)
    return read_token_answer(answer, provider_id=provider.id, now_ms=now_ms)


def standard_page(
    endpoint: str, *, client_id: str, scope: str, extra: dict[str, str] | None = None
) -> Callable[[str, Pkce, Secret], str]:
    """`BrowserLogin.url` of a server that keeps to the standard."""

    def url(redirect_uri: str, pkce: Pkce, state: Secret) -> str:
        return authorization_url(
            endpoint,
            client_id=client_id,
            redirect_uri=redirect_uri,
            scope=scope,
            pkce=pkce,
            state=state,
            extra=extra,
        )

    return url
