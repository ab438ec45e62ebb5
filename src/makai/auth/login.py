"""One login while it runs: events out, answers in, one result.

A login always ends: by itself, by `cancel`, or after `FLOW_S`. Its result is settled once, together with its last
event. No event ever holds a token, key or code (MK-AUTH-017).
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, Literal, TypeAlias

import msgspec

from makai.auth.credentials import Account
from makai.auth.flows import LoginIO
from makai.core.errors import Aborted, AuthRequired, MakaiError

log = logging.getLogger(__name__)

FLOW_S: Final = 20 * 60.0
"""Longer than any single wait inside a flow, so that those can say what they waited for."""
MAX_UNREAD: Final = 256
MAX_EMPTY_ANSWERS: Final = 10
"""How often a question is asked again: a program that has no answer would be asked without end."""
CANCELLED: Final = "cancelled"

LoginResult: TypeAlias = Literal["success", "cancelled", "failed"]


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """The tag of each event is its key on the wire (MK-AUTH-004)."""

    flow_id: str
    provider_id: str


class LoginUrl(_Event, frozen=True, kw_only=True, tag="auth_url"):
    """A page for the user to open."""

    url: str
    instructions: str = ""


class LoginPrompt(_Event, frozen=True, kw_only=True, tag="prompt"):
    """A question; the flow waits for its answer, unless the login ends in the browser first."""

    prompt_id: str
    message: str
    allow_empty: bool = False


class LoginProgress(_Event, frozen=True, kw_only=True, tag="progress"):
    message: str


class LoginSuccess(_Event, frozen=True, kw_only=True, tag="success"):
    """The credential is stored."""


class LoginFailed(_Event, frozen=True, kw_only=True, tag="error"):
    """The last event of every login that does not succeed."""

    message: str
    code: str = ""


LoginEvent: TypeAlias = LoginUrl | LoginPrompt | LoginProgress | LoginSuccess | LoginFailed


class RunningLogin:
    """An async iterator of events, for one reader. Starts when it is created; needs a running event loop. It is the
    `LoginIO` of its procedure; clients use `answer`, `cancel`, `result`, `ended` and the iteration."""

    def __init__(
        self,
        provider_id: str,
        flow_id: str,
        obtain: Callable[[LoginIO], Coroutine[Any, Any, Account]],
        keep: Callable[[Account], Awaitable[None]],
        ended: Callable[[RunningLogin, str], None],
    ) -> None:
        self.provider_id = provider_id
        self.flow_id = flow_id
        self._about = {"flow_id": flow_id, "provider_id": provider_id}
        self.result: LoginResult | None = None
        """None while it runs."""
        self._events: deque[LoginEvent] = deque()
        self._news = asyncio.Event()
        self._prompts: dict[str, asyncio.Future[str]] = {}
        self._prompt_count = 0
        self._on_end = ended
        loop = asyncio.get_running_loop()
        self._obtaining = loop.create_task(obtain(self), name=f"login at {provider_id}")
        self._task = loop.create_task(self._run(keep), name=f"login flow {flow_id}")

    def __repr__(self) -> str:
        return f"RunningLogin(provider_id={self.provider_id!r}, result={self.result!r})"

    def answer(self, prompt_id: str, text: str) -> bool:
        """Answer a prompt. False, without effect, when that prompt is not waiting."""
        waiting = self._prompts.get(prompt_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(text)
        return True

    def cancel(self) -> bool:
        """End the login. False, without effect, when it has ended or is already storing its credential."""
        return self._obtaining.cancel()

    async def ended(self) -> LoginResult:
        """Wait for the end, without reading events."""
        await asyncio.shield(self._task)
        assert self.result is not None
        return self.result

    async def __aiter__(self) -> AsyncIterator[LoginEvent]:
        while True:
            while self._events:
                yield self._events.popleft()
            if self.result is not None:
                return
            self._news.clear()
            await self._news.wait()

    async def auth_url(self, url: str, instructions: str = "") -> None:
        self._emit(LoginUrl(**self._about, url=url, instructions=instructions))

    async def progress(self, message: str) -> None:
        self._emit(LoginProgress(**self._about, message=message))

    async def prompt(self, message: str, *, allow_empty: bool = False) -> str:
        for _ in range(MAX_EMPTY_ANSWERS):
            text = await self._ask(message, allow_empty)
            if text.strip() or allow_empty:
                return text
        raise AuthRequired("The question was not answered.", provider_id=self.provider_id)

    async def _ask(self, message: str, allow_empty: bool) -> str:
        self._prompt_count += 1
        prompt_id = f"prompt-{self._prompt_count}"
        waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._prompts[prompt_id] = waiting
        try:
            self._emit(LoginPrompt(**self._about, prompt_id=prompt_id, message=message, allow_empty=allow_empty))
            return await waiting
        finally:
            del self._prompts[prompt_id]

    def _emit(self, event: LoginEvent) -> None:
        if len(self._events) >= MAX_UNREAD:
            raise MakaiError("The events of this login are not being read.")
        self._events.append(event)
        self._news.set()

    async def _run(self, keep: Callable[[Account], Awaitable[None]]) -> None:
        failure: MakaiError | None
        try:
            await asyncio.wait({self._obtaining}, timeout=FLOW_S)
            if self._obtaining.done():
                failure = await self._kept(keep)
            else:
                message = f"The login was not finished within {FLOW_S / 60:g} minutes."
                failure = AuthRequired(message, provider_id=self.provider_id)
        finally:  # also when the event loop is being closed
            self._obtaining.cancel()
            await asyncio.gather(self._obtaining, return_exceptions=True)
        self._settle(failure)

    async def _kept(self, keep: Callable[[Account], Awaitable[None]]) -> MakaiError | None:
        """Store what was obtained; None when that worked."""
        try:
            await keep(self._obtaining.result())
        except asyncio.CancelledError:
            if not self._obtaining.cancelled():
                raise
            return Aborted("The login was cancelled.")
        except MakaiError as error:
            return error
        except Exception as error:
            # Neither its text nor its arguments: an unforeseen exception may quote a secret.
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("the login at %s failed with %s\n%s", self.provider_id, type(error).__name__, where)
            return MakaiError("The login failed because of an internal error.", hint="Please report this.")
        return None

    def _settle(self, failure: MakaiError | None) -> None:
        last: LoginSuccess | LoginFailed
        if failure is None:
            self.result, last = "success", LoginSuccess(**self._about)
        elif isinstance(failure, Aborted):
            self.result, last = "cancelled", LoginFailed(**self._about, code=CANCELLED, message=str(failure))
        else:
            self.result, last = "failed", LoginFailed(**self._about, code=failure.code, message=str(failure))
        self._on_end(self, str(failure) if failure else "")
        self._events.append(last)
        self._news.set()
