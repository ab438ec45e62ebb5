"""The tool `fetch`: reads a page of the public internet.

A host's name is resolved first, every address of it is checked, and the connection goes to those very addresses: a name
that changes in between gains nothing. A redirect to another host is reported to the model, not followed: rules and
people approved the first one.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from makai.aio.http_body import read_http_body
from makai.core.content import Image
from makai.core.errors import InvalidRequest
from makai.core.version import __version__
from makai.tools import addresses, base
from makai.tools.base import Arguments, CallDescription, ToolContext, ToolOutcome, text_outcome
from makai.tools.file_errors import printable
from makai.tools.html_text import html_to_text

if TYPE_CHECKING:
    import aiohttp
    import yarl

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

MAX_BYTES = 5 * 1024 * 1024
MAX_HTML = 1_000_000
MAX_TEXT = 100_000
DEADLINE_S = 30.0
_MAX_REDIRECTS = 5
_HEADERS = {"User-Agent": f"makai/{__version__}", "Accept": "text/html,text/*;q=0.9,*/*;q=0.5"}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_TEXTS = ("json", "xml", "javascript", "yaml", "toml", "csv", "x-www-form-urlencoded")


class FetchArguments(Arguments, frozen=True, kw_only=True):
    url: Annotated[str, msgspec.Meta(min_length=1, max_length=4_000, description="An http or https URL.")]


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    status: int
    content_type: str
    charset: str
    body: bytes
    cut: bool
    location: str = ""


class FetchTool(base.ArgumentsTool[FetchArguments]):
    shape = FetchArguments
    definition = base.definition(
        "fetch",
        "Get a page or file by HTTP(S). HTML is turned into text; images are shown. Only the public internet can be "
        "reached. A redirect to another host is reported, so that you can fetch that.",
        FetchArguments,
    )

    def __init__(
        self, *, allowed_hosts: Collection[str] = (), resolve: Resolve | None = None, deadline_s: float = DEADLINE_S
    ) -> None:
        """`allowed_hosts` are `host:port` the user lets models reach although they are not public."""
        self._allowed = frozenset(allowed_hosts)
        self._resolve = resolve or addresses.resolve
        self._deadline_s = deadline_s

    async def _describe(self, wanted: FetchArguments) -> CallDescription:
        url = str(_checked_url(wanted.url))
        return CallDescription(kind="fetch", title=f"Fetch {printable(url)}", subject=url)

    async def _run(self, wanted: FetchArguments, context: ToolContext) -> ToolOutcome:
        url = _checked_url(wanted.url)
        try:
            async with asyncio.timeout(self._deadline_s):
                page = await self._followed(url)
        except TimeoutError:
            return text_outcome(f"There was no complete answer within {self._deadline_s:g} s.", is_error=True)
        # In a thread: a long page takes its time to be read, and others are waiting.
        return await asyncio.to_thread(_outcome, page)

    async def _followed(self, url: yarl.URL) -> _Page:
        for _ in range(_MAX_REDIRECTS + 1):
            page = await self._get(url)
            if not page.location:
                return page
            target = _checked_url(page.location, base=url)
            if target.host != url.host:
                raise InvalidRequest(f"The page has moved to another host: {target}", hint="Fetch that URL instead.")
            url = target
        raise InvalidRequest(f"The page redirects more than {_MAX_REDIRECTS} times.")

    async def _get(self, url: yarl.URL) -> _Page:
        import aiohttp

        checked = await self._checked_addresses(url)
        connector = aiohttp.TCPConnector(resolver=_pinned(checked), use_dns_cache=False, force_close=True)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, headers=_HEADERS
                ) as session,
                session.get(url, allow_redirects=False) as response,
            ):
                body = await read_http_body(response.content, MAX_BYTES)
                return _Page(
                    url=str(url),
                    status=response.status,
                    content_type=response.content_type,
                    charset=response.charset or "utf-8",
                    body=body.complete(),
                    cut=body.is_cut,
                    location=response.headers.get("Location", "") if response.status in _REDIRECTS else "",
                )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = error or type(error).__name__
            raise InvalidRequest(f"{printable(str(url))} could not be fetched: {why}.") from None

    async def _checked_addresses(self, url: yarl.URL) -> Sequence[str]:
        host, port = url.host or "", url.port or 0
        try:
            found = [str(ipaddress.ip_address(host))]
        except ValueError:
            try:
                found = list(await self._resolve(host, port))
            except (OSError, UnicodeError) as error:
                raise InvalidRequest(f"The host {printable(host)} is not known: {error}.") from None
        if f"{host}:{port}" not in self._allowed and not (found and all(map(addresses.may_be_reached, found))):
            hint = "Models may reach this machine and local networks only where the user allowed it."
            raise InvalidRequest(f"{printable(host)} is not on the public internet.", hint=hint)
        return found


def _checked_url(text: str, base: yarl.URL | None = None) -> yarl.URL:
    """The URL as it will be requested; refused when it is not plain http(s) or carries a password."""
    import yarl

    try:
        url = base.join(yarl.URL(text)) if base else yarl.URL(text)
        host = url.host
    except ValueError as error:
        raise InvalidRequest(f"This is not a URL: {error}.") from None
    if url.scheme not in ("http", "https") or not host:
        raise InvalidRequest("Only http:// and https:// URLs can be fetched.")
    if url.user is not None or url.password is not None:
        raise InvalidRequest("A URL with a user name or password is not fetched.")
    return url.with_fragment(None)


def _pinned(checked: Sequence[str]) -> aiohttp.abc.AbstractResolver:
    """A resolver that knows one answer: the addresses that were checked."""
    import aiohttp

    class Pinned(aiohttp.abc.AbstractResolver):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[aiohttp.abc.ResolveResult]:
            return [
                aiohttp.abc.ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                    proto=0,
                    flags=socket.AI_NUMERICHOST,
                )
                for address in checked
            ]

        async def close(self) -> None:
            """Nothing is held."""

    return Pinned()


def _outcome(page: _Page) -> ToolOutcome:
    failed = page.status >= 400
    if page.content_type in _IMAGES and not failed:
        if page.cut:
            return text_outcome(f"The image is larger than {MAX_BYTES:,} bytes.", is_error=True)
        data = base64.b64encode(page.body).decode("ascii")
        return ToolOutcome(content=(Image(data=data, mime_type=page.content_type),))
    if not page.content_type.startswith("text/") and not page.content_type.endswith(_TEXTS):
        return text_outcome(f"{printable(page.url)} is {page.content_type}, which cannot be shown.", is_error=True)
    text = _decoded(page)
    too_long = len(text) > MAX_HTML
    if page.content_type in ("text/html", "application/xhtml+xml"):
        text = html_to_text(text[:MAX_HTML])
    notes = [f"[HTTP status {page.status}]"] if failed else []
    if page.cut or len(text) > MAX_TEXT or too_long:
        notes.append("[cut: the page is longer]")
    return text_outcome("\n".join([*notes, text[:MAX_TEXT]]) or "[empty]", is_error=failed)


def _decoded(page: _Page) -> str:
    try:
        return page.body.decode(page.charset, "replace")
    except LookupError:
        return page.body.decode("utf-8", "replace")
