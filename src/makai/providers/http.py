"""The I/O shell of every HTTP model API, and the only file that uses aiohttp for model calls.

In: an `Api` (pure codec) and a `ProviderRequest`. Out: stream events by the provider law. Owns the connection pool,
retries, time-outs, the stall watchdog and cancellation; knows nothing of any vendor's JSON.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Self

import aiohttp

import makai
from makai.core.errors import MakaiError, ParseError, ProviderError
from makai.core.model import Model
from makai.core.secret import Secret
from makai.core.stream_events import StreamEvent
from makai.providers.base import Api, Decoder, HttpRequest, ProviderRequest
from makai.providers.failure import http_failure
from makai.providers.parts import Parts
from makai.providers.retry import retry_delay

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1_000
MAX_ERROR_BODY = 256 * 1024
MAX_WHOLE_BODY = 64 * 1024 * 1024


class HttpClient:
    """A connection pool. Made once per runtime and event loop; the pool itself opens with the first request."""

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self._ssl = ssl_context
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def session(self) -> aiohttp.ClientSession:
        """The pool, opened on first use."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, ssl=self._ssl or True),
                auto_decompress=True,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": f"makai/{makai.__version__}"},
            )
        return self._session

    async def post(
        self, model: Model, request: HttpRequest, connect_s: float, answer_s: float
    ) -> aiohttp.ClientResponse:
        """Send the request and wait for the answer's headers. Raises `ProviderError` when there is no answer."""
        headers = {
            name: value.reveal() if isinstance(value, Secret) else value for name, value in request.headers.items()
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s)
        try:
            async with asyncio.timeout(answer_s):
                return await self.session().post(
                    request.url,
                    data=request.body,
                    headers=headers,
                    timeout=timeout,
                    proxy=_proxy_for(request.url),
                    allow_redirects=False,
                )
        except TimeoutError as error:
            raise _unreachable(model, f"no answer within {answer_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _connect_failure(model, error) from error


class HttpProvider:
    """A `Provider` made of an `Api` and a connection pool."""

    def __init__(self, api: Api, client: HttpClient) -> None:
        self._api = api
        self._client = client

    async def stream(self, request: ProviderRequest) -> AsyncGenerator[StreamEvent, None]:
        """Ask the model and yield its answer as it arrives (the law is in `providers.base.Provider`)."""
        prepared = self._api.request(request)
        parts = Parts(request.model, time.time_ns() // 1_000_000)
        parts.start()
        for event in parts.take():
            yield event
        try:
            response = await self._answer(request, prepared)
            try:
                decoder = self._api.decoder(request, parts)
                if _is_stream(response):
                    watchdog = _StallWatchdog(response, request.options.stall_timeout_s)
                    try:
                        async for batch in _read(response, decoder, parts, watchdog):
                            for event in batch:
                                yield event
                    except (aiohttp.ClientError, OSError) as error:
                        raise _broken(request.model, watchdog, error) from error
                    finally:
                        watchdog.stop()
                else:
                    decoder.whole(await _whole_body(response, request))
                decoder.close()
                if not parts.finished:
                    raise _cut_short(request.model)
            finally:
                # Not `release`: whatever upstream still wants to send, nobody is listening any more.
                response.close() if not response.content.at_eof() else response.release()
        except ParseError as error:
            who = request.model.provider
            parts.fail(ProviderError(f"{who} sent an answer that cannot be read: {error.message}", provider_id=who))
        except MakaiError as error:
            parts.fail(error)
        except Exception:
            log.exception("the %s adapter failed", self._api.id)
            parts.fail(MakaiError(f"internal error in the {self._api.id} adapter", hint="Please report this."))
        for event in parts.take():
            yield event

    async def _answer(self, request: ProviderRequest, prepared: HttpRequest) -> aiohttp.ClientResponse:
        """The first successful answer, after as many retries as the policy allows."""
        attempt = 0
        options = request.options
        while True:
            try:
                response = await self._client.post(
                    request.model, prepared, options.connect_timeout_s, options.stall_timeout_s
                )
                if response.status < 300:
                    return response
                failure = await _refusal(response, request)
            except ProviderError as error:
                failure = error
            if not isinstance(failure, ProviderError):
                raise failure
            delay = retry_delay(failure, attempt, options.max_retries)
            if delay is None:
                raise failure
            attempt += 1
            await asyncio.sleep(delay)


class _StallWatchdog:
    """Closes the response when upstream has said nothing new for too long.

    One timer per stream that looks at a time stamp, not one timer per read: a timer per read would cost more than
    decoding the event. Time the consumer spends between events does not count.
    """

    def __init__(self, response: aiohttp.ClientResponse, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._response = response
        self.seconds = seconds
        self.fired = False
        self.waiting = True
        self.last_news = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._check)

    def stop(self) -> None:
        self._timer.cancel()

    def news(self) -> None:
        self.last_news = self._loop.time()

    def _check(self) -> None:
        left = self.last_news + self.seconds - self._loop.time() if self.waiting else self.seconds
        if left <= 0:
            self.fired = True
            self._response.close()
        else:
            self._timer = self._loop.call_later(left, self._check)


async def _read(
    response: aiohttp.ClientResponse, decoder: Decoder, parts: Parts, watchdog: _StallWatchdog
) -> AsyncGenerator[list[StreamEvent], None]:
    """Batches of events, one per read; ends with the body or with the terminal event."""
    read = response.content.readany
    while not parts.finished:
        data = await read()
        if not data:
            return
        decoder.feed(data)
        batch = parts.take()
        if not batch:
            continue
        watchdog.waiting = False
        yield batch
        watchdog.waiting = True
        watchdog.news()


async def _refusal(response: aiohttp.ClientResponse, request: ProviderRequest) -> MakaiError:
    async with response:
        try:
            async with asyncio.timeout(request.options.connect_timeout_s):
                body = await response.content.read(MAX_ERROR_BODY)
        except (TimeoutError, aiohttp.ClientError, OSError):
            body = b""
        return http_failure(request.model.provider, response.status, response.headers, body, request.secret)


async def _whole_body(response: aiohttp.ClientResponse, request: ProviderRequest) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(request.options.stall_timeout_s):
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_WHOLE_BODY:
                    raise ProviderError(
                        f"{request.model.provider} sent an answer of more than {MAX_WHOLE_BODY} bytes",
                        provider_id=request.model.provider,
                    )
    except TimeoutError as error:
        raise _unreachable(request.model, "the answer did not end in time") from error
    except (aiohttp.ClientError, OSError) as error:
        raise _cut_short(request.model) from error
    return bytes(body)


def _is_stream(response: aiohttp.ClientResponse) -> bool:
    # Some gateways answer a stream request with a plain JSON document; every other type is read as a stream.
    return response.content_type != "application/json"


def _proxy_for(url: str) -> str | None:
    """The proxy the environment names for this URL (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), read per request."""
    parsed = urllib.parse.urlsplit(url)
    proxy = urllib.request.getproxies().get(parsed.scheme)
    return None if proxy is None or urllib.request.proxy_bypass(parsed.netloc) else proxy


def _connect_failure(model: Model, error: Exception) -> ProviderError:
    if isinstance(error, aiohttp.ClientSSLError):
        return ProviderError(
            f"the TLS certificate of {model.provider} at {origin(model.base_url)} cannot be trusted: {_reason(error)}",
            provider_id=model.provider,
            status=495,
            hint="Check the base URL and the clock; behind a company proxy set SSL_CERT_FILE to its CA.",
        )
    if isinstance(error, aiohttp.InvalidURL | ValueError):
        return ProviderError(
            f"the base URL of {model.provider} is not a URL we can use: {origin(model.base_url)}",
            provider_id=model.provider,
            status=400,
            hint="Check the *_BASE_URL variable of this provider.",
        )
    return _unreachable(model, _reason(error))


def _unreachable(model: Model, why: str) -> ProviderError:
    return ProviderError(
        f"cannot reach {model.provider} at {origin(model.base_url)}: {why}",
        provider_id=model.provider,
        hint="Check the network, the base URL and that the server is running (`makai doctor`).",
    )


def _broken(model: Model, watchdog: _StallWatchdog, error: Exception) -> ProviderError:
    if watchdog.fired:
        return ProviderError(
            f"{model.provider} sent nothing new for {watchdog.seconds:g} s",
            provider_id=model.provider,
            hint="The request was cancelled: try again.",
        )
    return ProviderError(
        f"the connection to {model.provider} broke in the middle of the answer: {_reason(error)}",
        provider_id=model.provider,
        hint="Try again.",
    )


def _cut_short(model: Model) -> ProviderError:
    return ProviderError(
        f"{model.provider} ended the answer before it was complete", provider_id=model.provider, hint="Try again."
    )


def _reason(error: Exception) -> str:
    cause = getattr(error, "os_error", None) or error
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return str(text)[:300]


def origin(url: str) -> str:
    """Scheme, host and port of a URL: the part that may be shown (no path, query or userinfo)."""
    parsed = urllib.parse.urlsplit(url)
    host = parsed.hostname or "?"
    return f"{parsed.scheme}://{host}:{parsed.port}" if parsed.port else f"{parsed.scheme}://{host}"
