"""The person at the other end of a login, for tests of flows."""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable

import aiohttp

OpenPage = Callable[[str], Awaitable[object]]


class Person:
    """A `LoginIO` that answers from a list, and opens pages with `opens` in the background."""

    def __init__(self, answers: Iterable[str] = (), opens: OpenPage | None = None) -> None:
        self._answers = list(answers)
        self._opens = opens
        self._pages: set[asyncio.Future[object]] = set()
        self.said: list[str] = []
        self.prompts: list[str] = []
        self.urls: list[str] = []
        self.instructions: list[str] = []

    async def auth_url(self, url: str, instructions: str = "") -> None:
        self.urls.append(url)
        self.instructions.append(instructions)
        if self._opens is not None:
            self._pages.add(asyncio.ensure_future(self._opens(url)))

    async def progress(self, message: str) -> None:
        self.said.append(message)

    async def prompt(self, message: str, *, allow_empty: bool = False) -> str:
        self.prompts.append(message)
        while self._answers:
            answer = self._answers.pop(0)
            if answer or allow_empty:
                return answer
        await asyncio.Event().wait()  # no user: only a cancellation ends this
        raise AssertionError("unreachable")

    async def pages(self) -> list[object]:
        return await asyncio.gather(*self._pages)


def query_of(url: str) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))


def redirected(code: str = "c0de", parameter: str = "redirect_uri", **more: str) -> OpenPage:
    """The user logs in at once: the page sends the browser back with this code and the page's state."""

    async def open_page(url: str) -> int:
        asked = query_of(url)
        answer = {"code": code, **({"state": asked["state"]} if "state" in asked else {}), **more}
        async with aiohttp.ClientSession() as session, session.get(asked[parameter], params=answer) as response:
            return response.status

    return open_page
