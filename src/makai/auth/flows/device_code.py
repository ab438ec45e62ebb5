"""The device flow (RFC 8628): the user enters a short code on any device while this side polls.

It never polls more often than the server allows and stops when the code expires.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from makai.auth.flows import LoginIO, LoginProvider
from makai.auth.http import AuthHttp, HttpAnswer
from makai.auth.oauth import (
    DeviceAuthorization,
    TokenAnswer,
    device_form,
    error_code,
    read_device_answer,
    read_token_answer,
)
from makai.core.errors import AuthRequired, ProviderError
from makai.core.secret import Secret

SLOW_DOWN_S: Final = 5
"""Section 3.5: "the interval MUST be increased by 5 seconds for this and all subsequent requests"."""
MAX_WAIT_S: Final = 15 * 60
MAX_INTERVAL_S: Final = 60

sleep = asyncio.sleep
monotonic = time.monotonic

T = TypeVar("T")


async def device_login(
    io: LoginIO,
    provider: LoginProvider,
    http: AuthHttp,
    *,
    device_endpoint: str,
    token_endpoint: str,
    client_id: str,
    client_secret: Secret | None,
    scope: str,
) -> TokenAnswer:
    asked = {"client_id": client_id} | ({"scope": scope} if scope else {})
    device = read_device_answer(await http.post_form(device_endpoint, asked), provider_id=provider.id)
    await show(io, device)
    form = device_form(device.device_code, client_id=client_id, client_secret=client_secret)

    async def ask() -> TokenAnswer | str:
        now_ms = time.time_ns() // 1_000_000
        answer = await http.post_form(token_endpoint, form)
        return pending(answer) or read_token_answer(answer, provider_id=provider.id, now_ms=now_ms)

    return await poll(provider, ask, interval_s=device.interval_s, expires_in_s=device.expires_in_s)


async def show(io: LoginIO, device: DeviceAuthorization) -> None:
    """Tell the user what to type where; the code is shown even where the link already holds it (section 3.3.1)."""
    instructions = f"Open {device.verification_uri} on any device and enter the code {device.user_code}"
    await io.auth_url(device.verification_uri_complete or device.verification_uri, instructions)
    await io.progress("Waiting for the code to be entered.")


def pending(answer: HttpAnswer) -> str:
    """ "authorization_pending" or "slow_down" when the user has not finished, else ""."""
    code = error_code(answer)
    return code if code in ("authorization_pending", "slow_down") else ""


async def poll(
    provider: LoginProvider, ask: Callable[[], Awaitable[T | str]], *, interval_s: int, expires_in_s: int
) -> T:
    """Call `ask` until it gives more than a reason to wait. A server out of reach is asked again, ever less often."""
    interval = float(max(interval_s, 1))
    ends_at = monotonic() + min(expires_in_s, MAX_WAIT_S)
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
    raise AuthRequired(
        "The code was not entered in time.",
        provider_id=provider.id,
        hint=f"Start again: `makai auth login {provider.id}`",
    )
