"""The I/O shell of logins: small requests to token endpoints and the like; and the connection pool it shares with
`providers.http`.

Nothing that was sent or received ever reaches an error: failures of the HTTP library are described here and then
dropped, not chained, because its exceptions and frames hold requests. An error names the server by its origin only.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import msgspec

from makai.aio.http_body import read_http_body
from makai.auth.credentials import proxy_for, safe_origin
from makai.core.errors import ProviderError
from makai.core.secret import Secret
from makai.core.version import __version__

if TYPE_CHECKING:
    import ssl

    import aiohttp

DEADLINE_S: Final = 30.0
MAX_BODY: Final = 256 * 1024
MAX_CONNECTIONS: Final = 16

Fields: TypeAlias = Mapping[str, str | Secret]
"""Headers or form fields; secrets are revealed when they are sent."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """A whole HTTP response. The body may hold tokens, so `repr` shows only the status."""

    status: int
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes

    def __repr__(self) -> str:
        return f"HttpAnswer(status={self.status})"


class HttpPool:
    """A connection pool of one event loop that keeps no cookies. It opens with the first request."""

    def __init__(self, max_connections: int, ssl_context: ssl.SSLContext | None = None) -> None:
        self._max_connections = max_connections
        self._ssl = ssl_context
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. A later request opens new ones."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def session(self) -> aiohttp.ClientSession:
        import aiohttp  # 0.2 s that a process without HTTP requests does not pay

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._max_connections, ssl=self._ssl or True),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": f"makai/{__version__}"},
            )
        return self._session


class AuthHttp(HttpPool):
    """A client for token endpoints: never follows redirects, never keeps cookies, reads at most `MAX_BODY`."""

    def __init__(self) -> None:
        super().__init__(MAX_CONNECTIONS)

    async def get(self, url: str, headers: Fields | None = None, *, deadline_s: float = DEADLINE_S) -> HttpAnswer:
        return await self._request("GET", url, headers or {}, None, deadline_s)

    async def post_form(self, url: str, form: Fields, *, deadline_s: float = DEADLINE_S) -> HttpAnswer:
        """POST a form (RFC 6749 section 4.1.3)."""
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return await self._request("POST", url, headers, urllib.parse.urlencode(revealed(form)).encode(), deadline_s)

    async def post_json(
        self, url: str, body: Mapping[str, Any], headers: Fields | None = None, *, deadline_s: float = DEADLINE_S
    ) -> HttpAnswer:
        """POST a JSON object, at any depth of which values may be `Secret`."""
        headers = {**(headers or {}), "Content-Type": "application/json"}
        return await self._request("POST", url, headers, msgspec.json.encode(body, enc_hook=Secret.reveal), deadline_s)

    async def _request(
        self, method: str, url: str, headers: Fields, body: bytes | None, deadline_s: float
    ) -> HttpAnswer:
        """Send and read. The failure is raised outside of the handler, so that it carries no frame of the library."""
        import aiohttp

        server = safe_origin(url)
        failure: str | None = None
        try:
            async with (
                asyncio.timeout(deadline_s),
                self.session().request(
                    method,
                    url,
                    data=body,
                    headers={"Accept": "application/json", **revealed(headers)},
                    proxy=proxy_for(url),
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None),
                ) as response,
            ):
                received = await read_http_body(response.content, MAX_BODY)
                if not received.is_cut:
                    by_name = {name.lower(): value for name, value in response.headers.items()}
                    return HttpAnswer(response.status, by_name, received.complete())
                failure = f"the answer is longer than {MAX_BODY} bytes"
        except TimeoutError:
            failure = f"no answer within {deadline_s:g} s"
        except aiohttp.ClientSSLError:
            failure = "its TLS certificate cannot be trusted"
        except aiohttp.ClientProxyConnectionError as error:
            failure = f"the proxy {error.host}:{error.port} cannot be reached"
        except aiohttp.ClientConnectorError as error:
            failure = error.os_error.strerror or "no connection"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = f"the connection failed ({type(error).__name__})"
        raise ProviderError(
            f"Cannot reach {server}: {failure}.", hint="Check the network and the proxy settings, then log in again."
        )


def revealed(fields: Fields) -> dict[str, str]:
    """The fields as they are sent, secrets included. Call it only while sending."""
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in fields.items()}
