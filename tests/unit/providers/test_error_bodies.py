"""What a vendor says in a refusal is read to its end, however the network cuts it."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
import pytest
from support.streams import ask, model
from support.upstream import Request, Script, head, in_segments, upstream

from makai.aio.http_body import HttpBody, read_http_body
from makai.auth.http import AuthHttp
from makai.core.errors import ContextOverflow, ProviderError
from makai.core.request import StreamOptions
from makai.core.stream_events import Done, Failed, StreamEvent
from makai.providers.failure import Target
from makai.providers.http import MAX_ERROR_BODY, HttpClient, HttpProvider
from makai.providers.registry import builtin_api

ACME = Target(provider_id="acme")
ONCE = StreamOptions(max_retries=0, stall_timeout_s=5.0)
RETRYING = StreamOptions(max_retries=2, stall_timeout_s=5.0)
APIS = ("anthropic-messages", "openai-responses", "openai-completions", "google-generative-ai", "ollama")
ECHO = "You sent: " + "x" * 3_000
OVERFLOW = msgspec.json.encode({"error": {"param": ECHO, "message": "No.", "code": "context_length_exceeded"}})
QUOTA = msgspec.json.encode({"error": {"param": ECHO, "message": "No.", "code": "insufficient_quota"}})


async def failure_of(
    script: Script, api: str = "openai-completions", options: StreamOptions = ONCE
) -> tuple[Failed, int]:
    """The failure, and how often the vendor was asked."""
    async with asyncio.timeout(60), upstream(script) as server, HttpClient() as http:
        provider = HttpProvider(builtin_api(api), http)
        events: list[StreamEvent] = [
            event async for event in provider.stream(ask(model(api, base_url=server.url), options=options))
        ]
    assert isinstance(events[-1], Failed)
    return events[-1], len(server.requests)


@pytest.mark.parametrize("segments", [1, 2, 3, 40])
@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("encoding", ["", "gzip", "deflate"])
async def test_a_refusal_in_several_segments_keeps_its_code(
    segments: int, framing: Literal["length", "chunked", "close"], encoding: Literal["", "gzip", "deflate"]
) -> None:
    overflow, _ = await failure_of(in_segments(OVERFLOW, segments, 400, framing=framing, encoding=encoding))
    quota, asked = await failure_of(
        in_segments(QUOTA, segments, 429, framing=framing, encoding=encoding), options=RETRYING
    )

    assert (overflow.error_code, overflow.error_message) == (
        "context_overflow",
        "acme refused the request (HTTP 400): No.",
    )
    assert (quota.error_code, quota.hint, asked) == (
        "rate_limited",
        "The account has no credit left: check its billing page.",
        1,
    )


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream", "text/plain"])
async def test_every_api_reads_a_refusal_to_its_end(api: str, content_type: str) -> None:
    failure, _ = await failure_of(in_segments(OVERFLOW, 5, 400, content_type, framing="chunked"), api)

    assert failure.error_code == "context_overflow"


async def test_what_has_arrived_counts_when_the_rest_never_comes() -> None:
    body = b'{"error":{"message":"This model\'s maximum context length is 8192 tokens.' + b" " * 500
    impatient = StreamOptions(max_retries=0, connect_timeout_s=0.3)
    failure, _ = await failure_of(in_segments(body, 10, 400, sent=0.5), options=impatient)

    assert failure.error_code == "context_overflow"


async def test_what_has_arrived_counts_when_the_connection_breaks() -> None:
    async def breaks(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(400, "application/json", Content_Length="9000") + b"prompt is too long")

    failure, _ = await failure_of(breaks)

    assert failure.error_code == "context_overflow"


async def test_a_refusal_without_an_end_is_read_up_to_a_bound() -> None:
    async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head(400, "text/plain") + b"prompt is too long ")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    failure, _ = await failure_of(endless, options=StreamOptions(max_retries=0, connect_timeout_s=30.0))

    assert failure.error_code == "context_overflow"
    assert len(failure.error_message) < 1_000


@pytest.mark.parametrize("segments", [1, 7])
async def test_a_whole_answer_and_a_list_of_models_are_read_to_their_end(segments: int) -> None:
    said: dict[str, Any] = {"choices": [{"message": {"content": ECHO}, "finish_reason": "stop"}]}
    body = msgspec.json.encode(said)
    async with upstream(in_segments(body, segments, framing="chunked")) as server, HttpClient() as http:
        provider = HttpProvider(builtin_api("openai-completions"), http)
        request = ask(model("openai-completions", base_url=server.url), options=ONCE)
        *_, last = [event async for event in provider.stream(request)]
        listed = await http.get(ACME, server.url, {}, deadline_s=30.0)
    assert isinstance(last, Done)
    assert (last.message.text(), listed) == (ECHO, body)


async def test_a_refused_list_of_models_and_a_token_endpoint_are_read_to_their_end() -> None:
    async with upstream(in_segments(OVERFLOW, 3, 400)) as server, HttpClient() as http, AuthHttp() as logins:
        with pytest.raises(ContextOverflow):
            await http.get(ACME, server.url, {}, deadline_s=30.0)
        answer = await logins.get(server.url)
    assert (answer.status, answer.body) == (400, OVERFLOW)


@pytest.mark.parametrize(("limit", "expected"), [(9, b"x" * 9), (10, b"x" * 10), (11, b"x" * 10)])
async def test_a_body_ends_at_its_limit_and_says_so(limit: int, expected: bytes) -> None:
    async with (
        upstream(in_segments(b"x" * 10, 3)) as server,
        HttpClient() as http,
        http.session().get(server.url) as response,
    ):
        body = await read_http_body(response.content, limit, 30.0)
    assert body == HttpBody(expected, is_cut=limit < 10)


async def test_a_body_that_stops_is_given_up_after_its_deadline() -> None:
    async with (
        upstream(in_segments(b"x" * 10, 10, sent=0.5)) as server,
        HttpClient() as http,
        http.session().get(server.url) as response,
    ):
        body = await read_http_body(response.content, MAX_ERROR_BODY, 0.3)
    assert (body.data, type(body.failure)) == (b"xxxxx", TimeoutError)
    with pytest.raises(TimeoutError):
        body.complete()


async def test_an_answer_longer_than_allowed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makai.providers.http.MAX_DOCUMENT", 100)
    async with upstream(in_segments(b"[" + b" " * 100, 3)) as server, HttpClient() as http:
        with pytest.raises(ProviderError, match="acme sent an answer of more than 100 bytes"):
            await http.get(ACME, server.url, {}, deadline_s=30.0)
