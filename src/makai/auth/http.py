"""The I/O shell of logins: small requests to token endpoints and the like.

In: a URL, a form or a JSON object whose secrets are `Secret`, a deadline. Out: `HttpAnswer`, whatever its status, or
one typed error that names the server by its origin and nothing else. It must not know OAuth or any vendor.

Nothing that was sent or received ever reaches an error: failures of the HTTP library are described here and then
dropped, not chained, because its exceptions and frames hold requests.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from makai.auth.exchange import Fields, HttpAnswer, safe_origin
from makai.auth.proxies import proxy_for
from makai.core.errors import ProviderError
from makai.core.secret import Secret
from makai.core.version import __version__

if TYPE_CHECKING:
    import aiohttp

DEADLINE_S: Final = 30.0
MAX_BODY: Final = 256 * 1024
MAX_CONNECTIONS: Final = 16


class AuthHttp:
    """A client for token endpoints: never follows redirects, never keeps cookies, reads at most `MAX_BODY`."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. A later request opens new ones."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def get(self, url: str, headers: Fields | None = None, *, deadline_s: float = DEADLINE_S) -> HttpAnswer:
        """GET a small document."""
        return await self._request("GET", url, headers, None, None, deadline_s)

    async def post_form(
        self, url: str, form: Fields, headers: Fields | None = None, *, deadline_s: float = DEADLINE_S
    ) -> HttpAnswer:
        """POST a form, as RFC 6749 section 4.1.3 wants it."""
        return await self._request("POST", url, headers, form, None, deadline_s)

    async def post_json(
        self, url: str, body: Mapping[str, Any], headers: Fields | None = None, *, deadline_s: float = DEADLINE_S
    ) -> HttpAnswer:
        """POST a JSON object; its `Secret`s are revealed on the way out."""
        return await self._request("POST", url, headers, None, body, deadline_s)

    async def _request(
        self,
        method: str,
        url: str,
        headers: Fields | None,
        form: Fields | None,
        body: Mapping[str, Any] | None,
        deadline_s: float,
    ) -> HttpAnswer:
        """Send and read. The failure is raised outside of the handler, so that it carries no frame of the library."""
        import aiohttp  # 0.2 s that a process without logins does not pay

        server = safe_origin(url)
        failure: str | None = None
        try:
            async with (
                asyncio.timeout(deadline_s),
                self._pool().request(
                    method,
                    url,
                    data=_encoded(form, body),
                    headers=_headers(headers or {}, form, body),
                    proxy=proxy_for(url),
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None),
                ) as response,
            ):
                content = await response.content.read(MAX_BODY + 1)
                while len(content) <= MAX_BODY and (more := await response.content.read(MAX_BODY + 1 - len(content))):
                    content += more
                if len(content) <= MAX_BODY:
                    return HttpAnswer(response.status, {k.lower(): v for k, v in response.headers.items()}, content)
                failure = f"the answer is longer than {MAX_BODY} bytes"
        except TimeoutError:
            failure = f"no answer within {deadline_s:g} s"
        except aiohttp.ClientSSLError:
            failure = "its TLS certificate cannot be trusted"
        except aiohttp.ClientConnectorError as error:
            failure = error.os_error.strerror or "no connection"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = f"the connection failed ({type(error).__name__})"
        raise ProviderError(
            f"Cannot reach {server}: {failure}.", hint="Check the network and the proxy settings, then log in again."
        )

    def _pool(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": f"makai/{__version__}"},
            )
        return self._session


def _headers(headers: Fields, form: Fields | None, body: Mapping[str, Any] | None) -> dict[str, str]:
    shown = {"Accept": "application/json", **{name: _revealed(value) for name, value in headers.items()}}
    if form is not None:
        shown["Content-Type"] = "application/x-www-form-urlencoded"
    elif body is not None:
        shown["Content-Type"] = "application/json"
    return shown


def _encoded(form: Fields | None, body: Mapping[str, Any] | None) -> bytes | None:
    if form is not None:
        return urllib.parse.urlencode({name: _revealed(value) for name, value in form.items()}).encode()
    if body is not None:
        return msgspec.json.encode(body, enc_hook=_revealed)
    return None


def _revealed(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value
