"""Google Code Assist: the Gemini API inside an envelope, for accounts that log in instead of paying by key. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from makai.providers.base import HttpRequest, ProviderRequest, bearer, json_post
from makai.providers.google_generative_ai import GeminiChunk, GoogleDecoder, generate_content
from makai.providers.parts import Parts


class GoogleGeminiCli:
    """The codec of `POST {base_url}/v1internal:streamGenerateContent`."""

    id = "google-gemini-cli"

    def request(self, request: ProviderRequest) -> HttpRequest:
        model, options = request.model, request.options
        inner = generate_content(request)
        if options.session_id:
            inner["session_id"] = options.session_id
        envelope: dict[str, Any] = {"model": model.id, "request": inner}
        # Accounts without a project of their own get one from Google, so it may be missing.
        if project := model.options.get("project"):
            envelope["project"] = project
        url = f"{model.base_url.rstrip('/')}/v1internal:streamGenerateContent?alt=sse"
        return json_post(url, envelope, bearer(request.secret))

    def decoder(self, request: ProviderRequest, parts: Parts) -> GoogleDecoder:
        return GoogleDecoder(request, parts, _unwrap)


class _Envelope(msgspec.Struct, frozen=True, rename="camel", gc=False):
    response: GeminiChunk | None = None
    trace_id: str | None = None
    error: Any = None


_envelope_decoder = msgspec.json.Decoder(_Envelope)


def _unwrap(payload: bytes) -> GeminiChunk:
    envelope = _envelope_decoder.decode(payload)
    if envelope.error is not None:
        return GeminiChunk(error=envelope.error)
    chunk = envelope.response or GeminiChunk()
    if chunk.response_id is None and envelope.trace_id is not None:
        return msgspec.structs.replace(chunk, response_id=envelope.trace_id)
    return chunk
