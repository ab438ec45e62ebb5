"""The contracts of a provider. `Api` is one vendor wire format, pure; `Provider` is anything that turns a
`ProviderRequest` into stream events; `providers.http.HttpProvider` makes one out of an `Api`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Hashable, Mapping
from typing import Any, Final, Protocol

import msgspec

from makai.catalog.vendors import Vendor
from makai.core.errors import InvalidRequest, ProviderError
from makai.core.messages import StopReason
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.core.secret import Secret
from makai.core.stream_events import StreamEvent
from makai.providers.failure import MAX_MESSAGE, Target, stream_failure
from makai.providers.parts import Parts
from makai.providers.retries import is_transient

TRANSIENT_ENDS: Final = frozenset(
    {"abort", "aborted", "error", "incomplete", "insufficient_system_resource", "network_error", "other"}
)
"""Finish reasons, in lower case, of answers that the server did not complete and might complete the next time."""


class ProviderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One model call: who, what, how, and with which credential."""

    model: Model
    context: Context
    options: StreamOptions = StreamOptions()
    secret: Secret | None = None
    vendor: Vendor | None = None
    """Where the model is served, for what failures advise; None for a place that only the caller knows."""
    proxies: Mapping[str, str] | None = None
    """The environment that names the proxy; None for that of this process."""

    @property
    def target(self) -> Target:
        return Target(provider_id=self.model.provider, secret=self.secret, vendor=self.vendor, model=self.model)


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A POST that is ready to send. Secrets stay `Secret` until the bytes leave."""

    url: str
    headers: dict[str, str | Secret]
    body: bytes


def json_post(
    url: str, body: Any, credential: dict[str, str | Secret], *, accept: str = "text/event-stream"
) -> HttpRequest:
    """A JSON body with its headers; `InvalidRequest` when it holds text that is not valid Unicode."""
    headers: dict[str, str | Secret] = {"Content-Type": "application/json", "Accept": accept}
    try:
        return HttpRequest(url=url, headers=headers | credential, body=msgspec.json.encode(body))
    except UnicodeEncodeError as error:
        raise InvalidRequest("the conversation holds text that is not valid Unicode (a lone surrogate)") from error


def bearer(secret: Secret | None) -> dict[str, str | Secret]:
    return {"Authorization": Secret(f"Bearer {secret.reveal()}")} if secret else {}


END_MARK: Final = b"[DONE]"
"""The end mark of chat completions, which some gateways add to the streams of other APIs."""


def arguments_json(given: bytes | msgspec.Raw) -> str:
    """The arguments of a call as JSON text, "" for none. Some servers write them as text where their API has an object,
    or as an object where it has text."""
    written = str(given, "utf-8")
    if written.startswith('"'):
        return msgspec.json.decode(given, type=str)
    return "" if written == "null" else written


class Decoder(Protocol):
    """Reads one answer, sans-IO. Everything it learns goes into the `Parts` it was made with. It may raise `MakaiError`
    on bytes that are not what the API promises; the caller turns that into the one terminal `error` event."""

    def feed(self, data: bytes) -> None:
        """Some bytes of a streamed answer, cut anywhere."""

    def whole(self, body: bytes) -> None:
        """An answer that came as one JSON document although a stream was asked for."""

    def close(self) -> None:
        """The body ended. Finish the parts if what was seen is a complete answer; else leave them unfinished."""


class AnswerDecoder:
    """What the decoders of all APIs share: where the parts go, and how failures are reported."""

    __slots__ = ("_parts", "_provider", "_target")

    def __init__(self, request: ProviderRequest, parts: Parts) -> None:
        self._provider = request.model.provider
        self._target = request.target
        self._parts = parts

    def _fail(self, value: Any) -> None:
        """End the answer with an error object that arrived inside it."""
        error = stream_failure(self._target, value)
        self._parts.fail(error, retryable=is_transient(error))

    def _fail_with(self, payload: bytes) -> None:
        """The same for its JSON, all of it: some servers put the status beside the error, not into it."""
        self._fail(msgspec.json.decode(payload))

    def _end(self, said: str, known: Mapping[str, StopReason], response_id: str | None = None) -> None:
        """End the answer for the reason that the vendor gives. An unknown one is no `end_turn`: the answer may be
        incomplete, and what it is must not be guessed."""
        # Some gateways write "STOP" for "stop", and the reverse.
        reason = known.get(said) or known.get(said.lower()) or known.get(said.upper())
        if reason is not None:
            self._parts.done(reason, response_id=response_id)
            return
        error = ProviderError(
            f"{self._provider} ended the answer early ({said[:MAX_MESSAGE]})",
            provider_id=self._provider,
            vendor_code=said[:MAX_MESSAGE],
            hint="The answer may be incomplete: try again, or use another model.",
        )
        self._parts.fail(error, retryable=said.lower() in TRANSIENT_ENDS)

    def _whole_call(
        self, key: Hashable, call_id: str | None, name: str, arguments: msgspec.Raw, signature: str | None = None
    ) -> None:
        """A tool call that comes in one piece."""
        self._parts.tool(key, call_id, name)
        self._parts.arguments(key, arguments_json(arguments))
        if signature:
            self._parts.sign(key, signature)
        self._parts.end(key)

    def _malformed(self, error: Exception, expected: str = "valid JSON") -> ProviderError:
        return ProviderError(
            f"{self._provider} sent an event that is not {expected}: {error}", provider_id=self._provider
        )


class Api(Protocol):
    """One model API as a pure codec."""

    id: str

    def request(self, request: ProviderRequest) -> HttpRequest:
        """The HTTP request; raises `InvalidRequest` or `NotSupported` for what this API cannot express."""

    def decoder(self, request: ProviderRequest, parts: Parts) -> Decoder:
        """A decoder for the answer to that request."""


class Provider(Protocol):
    """A source of model answers. `stream` may raise before its first event, for what can be checked locally. After
    `start` it never raises: it ends in exactly one `done` or `error` (MK-PROV-014). Closing the generator cancels the
    upstream request at once."""

    def stream(self, request: ProviderRequest) -> AsyncGenerator[StreamEvent, None]:
        """Ask the model and yield its answer as it arrives."""
