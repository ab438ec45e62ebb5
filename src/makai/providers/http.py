"""The I/O shell of every HTTP model API: turns an `Api` (a pure codec) and a request into stream events. It owns the
connection pool, retries, time-outs, the stall watchdog and cancellation, and knows no vendor's JSON.

aiohttp is imported by the functions that use it: it is a quarter of what a chat loads, and only a request needs it."""

from __future__ import annotations

import asyncio
import codecs
import io
import logging
import ssl
import time
import urllib.parse
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import msgspec

from makai.aio.http_body import HttpBody, read_http_body
from makai.auth.credentials import is_loopback, proxy_for
from makai.auth.http import HttpPool, revealed
from makai.core.errors import MakaiError, ParseError, ProviderError
from makai.core.model import Model
from makai.core.secret import Secret
from makai.core.stream_events import Keepalive, StreamEvent, one_by_one
from makai.providers.base import Api, HttpRequest, ProviderRequest
from makai.providers.failure import Target, http_failure, unread_failure
from makai.providers.ignored_options import ignored_options, notice_of
from makai.providers.parts import Parts
from makai.providers.retries import UNREACHABLE_PATIENCE_S, Retries, is_transient
from makai.wire.json_repair import JSONRepair, repaired

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1_000
MAX_FEED = 16 * 1024
"""Bytes decoded at a time: uvloop reads up to 256 kB, and the first delta of a read must not wait for its last."""
MAX_ERROR_BODY = 256 * 1024
LARGE_BODY = 1024 * 1024
LAST_BYTES_S = 0.02
MAX_WHOLE_BODY = 64 * 1024 * 1024
MAX_DOCUMENT = 8 * 1024 * 1024
"""The limit of an answer to `get`, such as one page of a list of models."""


def load() -> None:
    """Import what requests need before the first one, which takes a moment."""
    import aiohttp  # noqa: F401


class HttpClient(HttpPool):
    """The connection pool of one runtime and event loop."""

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None) -> None:
        super().__init__(MAX_CONNECTIONS, ssl_context)

    async def post(
        self,
        model: Model,
        request: HttpRequest,
        connect_s: float,
        answer_s: float,
        proxies: Mapping[str, str] | None = None,
    ) -> aiohttp.ClientResponse:
        """Send the request and wait for the answer's headers. Raises `ProviderError` when it cannot be sent,
        `TimeoutError` when no answer comes."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s)
        # aiohttp writes a large body in pieces only when it comes as a file.
        body = io.BytesIO(request.body) if len(request.body) > LARGE_BODY else request.body
        try:
            async with asyncio.timeout(answer_s):
                return await self.session().post(
                    request.url,
                    data=body,
                    headers=revealed(request.headers),
                    timeout=timeout,
                    proxy=proxy_for(request.url, proxies),
                    allow_redirects=False,
                )
        except aiohttp.ServerTimeoutError as error:
            raise _unreachable(model.provider, model.base_url, f"no connection within {connect_s:g} s") from error
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _connect_failure(model.provider, model.base_url, error) from error

    async def get(self, target: Target, url: str, headers: Mapping[str, str | Secret], *, deadline_s: float) -> bytes:
        """A small document of a vendor; raises a `MakaiError` when it cannot be had."""
        import aiohttp

        provider_id = target.provider_id
        try:
            async with (
                asyncio.timeout(deadline_s),
                self.session().get(
                    url,
                    headers=revealed(headers),
                    timeout=aiohttp.ClientTimeout(total=None),
                    proxy=proxy_for(url),
                    allow_redirects=False,
                ) as response,
            ):
                body = await read_http_body(response.content, MAX_DOCUMENT)
                if response.status != 200:
                    raise http_failure(target, response.status, response.headers, body.data[:MAX_ERROR_BODY])
                return _uncut(body, provider_id)
        except TimeoutError as error:
            raise _unreachable(provider_id, url, f"no answer within {deadline_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _connect_failure(provider_id, url, error) from error


class HttpProvider:
    """A `Provider` made of an `Api` and a connection pool."""

    def __init__(
        self,
        api: Api,
        client: HttpClient,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`clock` and `sleep` measure and carry out the waits between attempts."""
        self._api = api
        self._client = client
        self._clock = clock
        self._sleep = sleep

    def stream(self, request: ProviderRequest) -> AsyncGenerator[StreamEvent, None]:
        return one_by_one(self.batches(request))

    async def batches(self, request: ProviderRequest) -> AsyncGenerator[list[StreamEvent], None]:
        """The events of `stream`, those of one read together: a generator costs its reader a read, not an event."""
        prepared = _addressed(self._api.request(request), request)
        parts = Parts(request.model, time.time_ns() // 1_000_000)
        parts.start()
        yield parts.take()
        if ignored := ignored_options(self._api, request):
            yield [notice_of(request.model, ignored)]
        watchdog: _StallWatchdog | None = None
        unread = _Unread()
        has_begun = False
        try:
            retries = Retries(request.options, self._clock)
            while isinstance(response := await self._attempt(request, prepared), ProviderError):
                retry = retries.next_wait(response, _patience(request.model, response))
                if retry is None:
                    raise response
                yield [Keepalive(response.code, retry.note, retry=retry)]
                await self._sleep(retry.wait_ms / 1000)
            has_begun = True
            # Leaving the block closes the connection at once, unless the answer was read to its end: then it is reused.
            async with response:
                decoder = self._api.decoder(request, parts)
                if response.content_type in ("text/html", "application/json"):
                    decoder.whole(repaired(unread.keep(await _whole_body(response, request))))
                else:
                    with closing(_StallWatchdog(response, request.options.stall_timeout_s)) as watchdog:
                        read, repair = response.content.readany, JSONRepair()
                        while not parts.finished and (data := await read()):
                            for start in range(0, len(data), MAX_FEED):
                                decoder.feed(repair.feed(unread.keep(data[start : start + MAX_FEED])))
                                if parts.finished:
                                    await _read_to_end(response)
                                if batch := parts.take():
                                    unread.was_read()
                                    watchdog.waiting = False
                                    yield batch
                                    watchdog.news()
                decoder.close()
                if not parts.finished and watchdog is not None and unread.is_document():
                    decoder.whole(bytes(unread.data))
                    decoder.close()
            if not parts.finished:
                raise _cut_short(request.model)
        except Exception as error:
            failure = self._failure(error, request, watchdog, unread)
            parts.fail(failure, retryable=has_begun and is_transient(failure))
        if batch := parts.take():
            yield batch

    async def _attempt(self, request: ProviderRequest, prepared: HttpRequest) -> aiohttp.ClientResponse | ProviderError:
        """A successful answer, or a failure that the retry policy decides about. Other failures are raised."""
        options = request.options
        try:
            response = await self._client.post(
                request.model, prepared, options.connect_timeout_s, options.stall_timeout_s, request.proxies
            )
            failure = None if response.status < 300 else await _refusal(response, request)
        except ProviderError as error:
            return error
        except TimeoutError as error:
            # Not tried again: a server that was silent for so long once would be silent as long again.
            why = f"no answer within {options.stall_timeout_s:g} s"
            raise _unreachable(request.model.provider, request.model.base_url, why) from error
        if failure is None or isinstance(failure, ProviderError):
            return failure or response
        raise failure

    def _failure(
        self, error: Exception, request: ProviderRequest, watchdog: _StallWatchdog | None, unread: _Unread
    ) -> MakaiError:
        """What the terminal event says about an exception."""
        import aiohttp

        who = request.model.provider
        if not isinstance(error, MakaiError | aiohttp.ClientError | OSError):
            log.error("the %s adapter failed", self._api.id, exc_info=error)
            return MakaiError(f"internal error in the {self._api.id} adapter", hint="Please report this.")
        if said := unread_failure(request.target, bytes(unread.data), is_whole=unread.is_whole):
            return said
        if isinstance(error, ParseError):
            return ProviderError(f"{who} sent an answer that cannot be read: {error.message}", provider_id=who)
        if isinstance(error, MakaiError):
            return error
        return _broken(request.model, watchdog, error)


def _patience(model: Model, error: ProviderError) -> float | None:
    """Less patience for a server that cannot be reached, and none for one on this machine, which stays off."""
    if error.status is not None:
        return None
    return 0.0 if is_loopback(urllib.parse.urlsplit(model.base_url).hostname or "") else UNREACHABLE_PATIENCE_S


def _addressed(prepared: HttpRequest, request: ProviderRequest) -> HttpRequest:
    """The request with what this model's place wants: extra headers, and the token in a header of its own choice."""
    headers = {**request.model.headers, **prepared.headers}
    if (send_as := request.model.options.get("send_as")) and request.secret:
        headers.pop("Authorization", None)
        headers[send_as] = request.secret
    return msgspec.structs.replace(prepared, headers=headers)


class _Unread:
    """The end of a body, from the last bytes on that became an event: an answer that does not come to its end may say
    why in a shape that its API does not know."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_whole = True
        """Nothing of the body became an event, and nothing was dropped."""
        self._was_read = False

    def keep(self, data: bytes) -> bytes:
        """Remember `data`, and return it."""
        if self._was_read:
            self.data.clear()
            self._was_read = False
        self.data += data
        if len(self.data) > 2 * MAX_ERROR_BODY:
            self.is_whole = False
            del self.data[:-MAX_ERROR_BODY]
        return data

    def was_read(self) -> None:
        """What came last became an event. It is still kept: an error may follow the event in the same read."""
        self.is_whole = False
        self._was_read = True

    def is_document(self) -> bool:
        return self.is_whole and self.data.lstrip().startswith((b"{", b"["))


class _StallWatchdog:
    """Closes the response when upstream has said nothing new for too long. One timer per stream that looks at a time
    stamp, not one timer per read: a timer per read would cost more than decoding the event. Time the consumer spends
    between events does not count."""

    def __init__(self, response: aiohttp.ClientResponse, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._response = response
        self.seconds = seconds
        self.fired = False
        self.waiting = True
        self._last_news = self._loop.time()
        self._timer = self._loop.call_later(seconds, self._check)

    def close(self) -> None:
        self._timer.cancel()

    def news(self) -> None:
        """The events of a read were consumed: wait for the next read."""
        self.waiting = True
        self._last_news = self._loop.time()

    def _check(self) -> None:
        left = self._last_news + self.seconds - self._loop.time() if self.waiting else self.seconds
        if left <= 0:
            self.fired = True
            self._response.close()
        else:
            self._timer = self._loop.call_later(left, self._check)


async def _read_to_end(response: aiohttp.ClientResponse) -> None:
    """The answer is complete; a moment for the last bytes of its body, so that the connection can be used again."""
    import aiohttp

    if response.content.at_eof():
        return
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(LAST_BYTES_S):
            while await response.content.readany():
                pass


async def _refusal(response: aiohttp.ClientResponse, request: ProviderRequest) -> MakaiError:
    async with response:
        body = await read_http_body(response.content, MAX_ERROR_BODY, request.options.connect_timeout_s)
        return http_failure(request.target, response.status, response.headers, body.data)


async def _whole_body(response: aiohttp.ClientResponse, request: ProviderRequest) -> bytes:
    """Some gateways answer a stream request with one JSON document. A web page is a refusal."""
    import aiohttp

    model = request.model
    body = await read_http_body(response.content, MAX_WHOLE_BODY, request.options.stall_timeout_s)
    if response.content_type == "text/html" and not body.data.lstrip().startswith((b"{", b"[")):
        raise http_failure(request.target, response.status, response.headers, body.data[:MAX_ERROR_BODY])
    try:
        document = _uncut(body, model.provider).removeprefix(codecs.BOM_UTF8)
        if not document.strip():
            raise _cut_short(model)
        return document
    except TimeoutError as error:
        raise _unreachable(model.provider, model.base_url, "the answer did not end in time") from error
    except (aiohttp.ClientError, OSError) as error:
        raise _cut_short(model) from error


def _uncut(body: HttpBody, provider_id: str) -> bytes:
    if body.is_cut:
        raise ProviderError(
            f"{provider_id} sent an answer of more than {len(body.data)} bytes", provider_id=provider_id
        )
    return body.complete()


def _connect_failure(provider_id: str, url: str, error: Exception) -> ProviderError:
    import aiohttp

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
    if isinstance(error, aiohttp.ClientResponseError):
        said = next(filter(None, map(str.strip, error.message.splitlines())), "no reason given").rstrip(":.")
        return ProviderError(
            f"{provider_id} at {origin(url)} did not answer with HTTP that can be read: {said[:300]}",
            provider_id=provider_id,
            hint="Check the base URL, and a proxy or gateway on the way.",
        )
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return _unreachable(provider_id, url, "it closed the connection without an answer")
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return ProviderError(
            f"cannot reach the proxy {error.host}:{error.port} on the way to {provider_id} at {origin(url)}: "
            f"{_reason(error)}",
            provider_id=provider_id,
            hint="Check HTTP_PROXY, HTTPS_PROXY and NO_PROXY.",
        )
    return _unreachable(provider_id, url, _reason(error))


def _unreachable(provider_id: str, url: str, why: str) -> ProviderError:
    return ProviderError(
        f"cannot reach {provider_id} at {origin(url)}: {why}",
        provider_id=provider_id,
        hint="Check the network, the base URL and that the server is running (`makai doctor`).",
    )


def _broken(model: Model, watchdog: _StallWatchdog | None, error: Exception) -> ProviderError:
    if watchdog is not None and watchdog.fired:
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
    import aiohttp

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
