"""The I/O shell of every HTTP model API, and the only file that uses aiohttp for model calls.

In: an `Api` (pure codec) and a `ProviderRequest`. Out: stream events by the provider law. Owns the connection pool,
retries, time-outs, the stall watchdog and cancellation; knows nothing of any vendor's JSON.
"""

from __future__ import annotations

import asyncio
import io
import logging
import ssl
import time
import urllib.parse
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from makai.auth.origins import proxy_for
from makai.core.errors import MakaiError, ParseError, ProviderError
from makai.core.model import Model
from makai.core.secret import Secret
from makai.core.stream_events import Keepalive, StreamEvent
from makai.core.version import __version__
from makai.providers.base import Api, Decoder, HttpRequest, ProviderRequest
from makai.providers.failure import http_failure
from makai.providers.parts import Parts
from makai.providers.retry import retry_delay

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1_000
MAX_FEED = 16 * 1024
"""Bytes decoded at a time: uvloop reads up to 256 kB, and the first delta of a read must not wait for its last."""
MAX_ERROR_BODY = 256 * 1024
LARGE_BODY = 1024 * 1024
LAST_BYTES_S = 0.02
MAX_WHOLE_BODY = 64 * 1024 * 1024
MAX_DOCUMENT = 8 * 1024 * 1024
"""Longest answer to a `get`, such as one page of a list of models."""


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
                headers={"User-Agent": f"makai/{__version__}"},
            )
        return self._session

    async def post(
        self, model: Model, request: HttpRequest, connect_s: float, answer_s: float
    ) -> aiohttp.ClientResponse:
        """Send the request and wait for the answer's headers.

        Raises `ProviderError` when it cannot be sent, `TimeoutError` when nobody answers it.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s)
        # aiohttp writes a large body in pieces only when it comes as a file.
        body = io.BytesIO(request.body) if len(request.body) > LARGE_BODY else request.body
        try:
            async with asyncio.timeout(answer_s):
                return await self.session().post(
                    request.url,
                    data=body,
                    headers=_revealed(request.headers),
                    timeout=timeout,
                    proxy=proxy_for(request.url),
                    allow_redirects=False,
                )
        except aiohttp.ServerTimeoutError as error:
            raise _unreachable(model.provider, model.base_url, f"no connection within {connect_s:g} s") from error
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _connect_failure(model.provider, model.base_url, error) from error

    async def get(
        self,
        provider_id: str,
        url: str,
        headers: Mapping[str, str | Secret],
        *,
        secret: Secret | None,
        deadline_s: float,
    ) -> bytes:
        """A small document of a vendor; raises the error that says why it cannot be had."""
        try:
            async with (
                asyncio.timeout(deadline_s),
                self.session().get(
                    url,
                    headers=_revealed(headers),
                    timeout=aiohttp.ClientTimeout(total=None),
                    proxy=proxy_for(url),
                    allow_redirects=False,
                ) as response,
            ):
                body = await _bounded_body(response, provider_id, MAX_DOCUMENT)
        except TimeoutError as error:
            raise _unreachable(provider_id, url, f"no answer within {deadline_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _connect_failure(provider_id, url, error) from error
        if response.status != 200:
            raise http_failure(provider_id, response.status, response.headers, body[:MAX_ERROR_BODY], secret)
        return body


class HttpProvider:
    """A `Provider` made of an `Api` and a connection pool."""

    def __init__(self, api: Api, client: HttpClient) -> None:
        self._api = api
        self._client = client

    async def stream(self, request: ProviderRequest) -> AsyncGenerator[StreamEvent, None]:
        """Ask the model and yield its answer as it arrives (the law is in `providers.base.Provider`)."""
        prepared = _addressed(self._api.request(request), request)
        parts = Parts(request.model, time.time_ns() // 1_000_000)
        parts.start()
        for event in parts.take():
            yield event
        try:
            response: aiohttp.ClientResponse | None = None
            async with aclosing(self._attempts(request, prepared)) as attempts:
                async for step in attempts:
                    if isinstance(step, Keepalive):
                        yield step
                    else:
                        response = step
            assert response is not None, "the last attempt answers or raises"
            # Leaving the block closes the connection at once, unless the answer was read to its end: then it is reused.
            async with response:
                decoder = self._api.decoder(request, parts)
                async for batch in _batches(response, decoder, parts, request):
                    for event in batch:
                        yield event
                decoder.close()
                if not parts.finished:
                    raise _cut_short(request.model)
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

    async def _attempts(
        self, request: ProviderRequest, prepared: HttpRequest
    ) -> AsyncGenerator[Keepalive | aiohttp.ClientResponse, None]:
        """The first successful answer, after as many retries as the policy allows; each wait is told first."""
        attempt = 0
        options = request.options
        while True:
            try:
                response = await self._client.post(
                    request.model, prepared, options.connect_timeout_s, options.stall_timeout_s
                )
                if response.status < 300:
                    yield response
                    return
                failure = await _refusal(response, request)
            except ProviderError as error:
                failure = error
            except TimeoutError as error:
                # Not tried again: a server that was silent for so long once would be silent as long again.
                why = f"no answer within {options.stall_timeout_s:g} s"
                raise _unreachable(request.model.provider, request.model.base_url, why) from error
            if not isinstance(failure, ProviderError):
                raise failure
            delay = retry_delay(failure, attempt, options.max_retries)
            if delay is None:
                raise failure
            attempt += 1
            number = f"{attempt} of {options.max_retries}"
            note = f"{failure.message} Asking again in {delay:.1f} s ({number})."
            yield Keepalive(code=failure.code, note=note)
            await asyncio.sleep(delay)


def _addressed(prepared: HttpRequest, request: ProviderRequest) -> HttpRequest:
    """The request with what this model's place wants: extra headers, and the token in a header of its own choice."""
    headers = {**request.model.headers, **prepared.headers}
    if (send_as := request.model.options.get("send_as")) and request.secret:
        headers.pop("Authorization", None)
        headers[send_as] = request.secret
    return msgspec.structs.replace(prepared, headers=headers)


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


async def _batches(
    response: aiohttp.ClientResponse, decoder: Decoder, parts: Parts, request: ProviderRequest
) -> AsyncGenerator[list[StreamEvent], None]:
    """The answer's events, batch by batch, whatever form it came in."""
    if response.content_type == "text/html":
        raise await _refusal(response, request)
    if response.content_type == "application/json":
        # Some gateways answer a stream request with a plain JSON document; every other type is read as a stream.
        decoder.whole(await _whole_body(response, request))
        return
    watchdog = _StallWatchdog(response, request.options.stall_timeout_s)
    try:
        async for batch in _read(response, decoder, parts, watchdog):
            yield batch
    except (aiohttp.ClientError, OSError) as error:
        raise _broken(request.model, watchdog, error) from error
    finally:
        watchdog.stop()


async def _read(
    response: aiohttp.ClientResponse, decoder: Decoder, parts: Parts, watchdog: _StallWatchdog
) -> AsyncGenerator[list[StreamEvent], None]:
    """Batches of events, small ones; ends with the body or with the terminal event."""
    read = response.content.readany
    while not parts.finished:
        data = await read()
        if not data:
            return
        for start in range(0, len(data), MAX_FEED):
            decoder.feed(data[start : start + MAX_FEED])
            if parts.finished:
                await _read_to_end(response)
            batch = parts.take()
            if batch:
                watchdog.waiting = False
                yield batch
                watchdog.waiting = True
                watchdog.news()


async def _read_to_end(response: aiohttp.ClientResponse) -> None:
    """The answer is complete; a moment for the last bytes of its body, so that the connection can be used again."""
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(LAST_BYTES_S):
            while await response.content.readany():
                pass


async def _refusal(response: aiohttp.ClientResponse, request: ProviderRequest) -> MakaiError:
    async with response:
        try:
            async with asyncio.timeout(request.options.connect_timeout_s):
                body = await response.content.read(MAX_ERROR_BODY)
        except (TimeoutError, aiohttp.ClientError, OSError):
            body = b""
        return http_failure(request.model.provider, response.status, response.headers, body, request.secret)


async def _whole_body(response: aiohttp.ClientResponse, request: ProviderRequest) -> bytes:
    model = request.model
    try:
        async with asyncio.timeout(request.options.stall_timeout_s):
            return await _bounded_body(response, model.provider, MAX_WHOLE_BODY)
    except TimeoutError as error:
        raise _unreachable(model.provider, model.base_url, "the answer did not end in time") from error
    except (aiohttp.ClientError, OSError) as error:
        raise _cut_short(model) from error


async def _bounded_body(response: aiohttp.ClientResponse, provider_id: str, most: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            raise ProviderError(f"{provider_id} sent an answer of more than {most} bytes", provider_id=provider_id)
    return bytes(body)


def _revealed(headers: Mapping[str, str | Secret]) -> dict[str, str]:
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in headers.items()}


def _connect_failure(provider_id: str, url: str, error: Exception) -> ProviderError:
    if isinstance(error, aiohttp.ClientSSLError):
        return ProviderError(
            f"the TLS certificate of {provider_id} at {origin(url)} cannot be trusted: {_reason(error)}",
            provider_id=provider_id,
            status=495,
            hint="Check the base URL and the clock; behind a company proxy set SSL_CERT_FILE to its CA.",
        )
    if isinstance(error, aiohttp.InvalidURL | ValueError):
        return ProviderError(
            f"the base URL of {provider_id} is not a URL we can use: {origin(url)}",
            provider_id=provider_id,
            status=400,
            hint="Check the *_BASE_URL variable of this provider.",
        )
    return _unreachable(provider_id, url, _reason(error))


def _unreachable(provider_id: str, url: str, why: str) -> ProviderError:
    return ProviderError(
        f"cannot reach {provider_id} at {origin(url)}: {why}",
        provider_id=provider_id,
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
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the connection was closed too early"
    cause = getattr(error, "os_error", None) or error
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return str(text)[:300]


def origin(url: str) -> str:
    """Scheme, host and port of a URL: the part that may be shown (no path, query or userinfo)."""
    parsed = urllib.parse.urlsplit(url)
    host = parsed.hostname or "?"
    return f"{parsed.scheme}://{host}:{parsed.port}" if parsed.port else f"{parsed.scheme}://{host}"
