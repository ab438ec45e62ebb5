"""The HTTP shell against an upstream that misbehaves in every way the issue lists."""

import asyncio
import contextlib
import ssl
from contextlib import aclosing

import pytest
import trustme
from support.streams import ask, model
from support.upstream import (
    Request,
    Script,
    Upstream,
    answers,
    chat_stream,
    dies_after,
    head,
    refuses,
    starts_then_hangs,
    upstream,
)

from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.messages import UserMessage
from makai.core.model import Model
from makai.core.request import Context, StreamOptions, ToolDefinition
from makai.core.stream_events import Done, Failed, Start, StreamEvent, TextDelta
from makai.providers.http import HttpClient, HttpProvider
from makai.providers.openai_completions import OpenAICompletions

FAST = StreamOptions(max_retries=0, stall_timeout_s=5.0, connect_timeout_s=2.0)
RETRYING = StreamOptions(max_retries=2, stall_timeout_s=5.0)
HELLO = chat_stream("Hel", "lo")


def chat_model(url: str) -> Model:
    return model("openai-completions", base_url=url)


async def events_of(url: str, options: StreamOptions = FAST, client: HttpClient | None = None) -> list[StreamEvent]:
    async with asyncio.timeout(60), client or HttpClient() as http:
        provider = HttpProvider(OpenAICompletions(), http)
        return [event async for event in provider.stream(ask(chat_model(url), options=options))]


async def outcome(*scripts: Script, options: StreamOptions = FAST) -> tuple[StreamEvent, Upstream]:
    """The terminal event, after checking that the stream kept the law."""
    async with upstream(*scripts) as server:
        events = await events_of(server.url, options)
    assert isinstance(events[0], Start)
    assert sum(isinstance(event, Done | Failed) for event in events) == 1
    assert isinstance(events[-1], Done | Failed)
    return events[-1], server


async def failure(*scripts: Script, options: StreamOptions = FAST) -> tuple[Failed, Upstream]:
    event, server = await outcome(*scripts, options=options)
    assert isinstance(event, Failed)
    assert "acme" in event.error_message
    return event, server


@pytest.mark.parametrize("done", [True, False], ids=["with its done marker", "without it"])
async def test_an_answer_arrives_whole_and_the_credential_goes_in_a_header(done: bool) -> None:
    event, server = await outcome(answers(chat_stream("Hel", "lo", done=done)))
    assert isinstance(event, Done)
    assert event.message.content == (Text(text="Hello"),)
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/chat/completions")
    assert request.headers["authorization"] == "Bearer test-key"
    assert request.headers["user-agent"].startswith("makai/")


async def test_a_gateway_that_answers_plain_json_is_understood() -> None:
    body = b'{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}],"usage":{"completion_tokens":2}}'
    event, _ = await outcome(answers(body, content_type="application/json"))
    assert isinstance(event, Done)
    assert (event.message.text(), event.message.usage.output) == ("Hello", 2)


REFUSALS = [
    (401, b'{"error":{"message":"bad key"}}', "auth_required"),
    (400, b'{"error":{"message":"bad temperature"}}', "provider_error"),
    (404, b'{"error":{"message":"no such model"}}', "provider_error"),
    (429, b'{"error":{"message":"slow down"}}', "rate_limited"),
    (500, b"", "provider_error"),
    (529, b'{"error":{"message":"overloaded"}}', "overloaded"),
    (400, b'{"error":{"message":"maximum context length is 8192"}}', "context_overflow"),
    (302, b"", "provider_error"),
]


@pytest.mark.parametrize(("status", "body", "code"), REFUSALS)
async def test_a_refusal_ends_in_one_error_with_its_code(status: int, body: bytes, code: str) -> None:
    event, server = await failure(refuses(status, body))
    assert event.error_code == code
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_a_passing_fault_is_retried_until_it_passes(status: int) -> None:
    event, server = await outcome(refuses(status, retry_after="0"), answers(HELLO), options=RETRYING)
    assert isinstance(event, Done)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("header", "wait_ms", "requests"),
    [
        pytest.param({"retry_after_ms": "20"}, 20, 3, id="retries end, and the last refusal is told"),
        pytest.param({"Retry_After": "3600"}, 3_600_000, 1, id="more than a minute is not waited for"),
    ],
)
async def test_the_wait_of_a_refusal_is_told(header: dict[str, str], wait_ms: int, requests: int) -> None:
    event, server = await failure(refuses(429, b"{}", **header), options=RETRYING)
    assert (event.error_code, event.retry_after_ms) == ("rate_limited", wait_ms)
    assert len(server.requests) == requests


async def test_nobody_listening_is_a_clear_error_that_names_the_address() -> None:
    async with upstream(answers(b"")) as server:
        url = server.url
    event = (await events_of(url))[-1]
    assert isinstance(event, Failed)
    assert event.error_message.startswith(f"cannot reach acme at {url}")
    assert event.hint is not None


async def test_a_connection_that_fails_at_first_is_tried_again() -> None:
    async def hangs_up(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    event, server = await outcome(hangs_up, answers(HELLO), options=RETRYING)
    assert isinstance(event, Done)
    assert len(server.requests) == 2


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_a_certificate_has_to_be_trusted_and_a_refusal_names_it(is_trusted: bool) -> None:
    authority = trustme.CA()
    server_tls, client_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server_tls)
    if is_trusted:
        authority.configure_trust(client_tls)
    async with upstream(answers(HELLO), tls=server_tls) as server:
        event = (await events_of(server.url, RETRYING, HttpClient(ssl_context=client_tls)))[-1]
    assert isinstance(event, Done) == is_trusted
    assert is_trusted or (server.requests == [] and "certificate" in getattr(event, "error_message", ""))


HEL = chat_stream("Hel", finish=None, done=False)
PAGE = b"<html><title>Sign in</title></html>"
A_PAGE = 'an HTML page titled "Sign in" instead of JSON (is the base URL right?)'
ENDED = "acme ended the answer before it was complete"
BROKE_OFF = "the connection to acme broke in the middle of the answer: the connection was closed too early"
NO_CHUNK = "acme sent an event that is not a chat completion chunk"
BROKEN = {
    "an upstream that dies in the middle": (dies_after(HEL), "provider_error", BROKE_OFF),
    "a stream without its last event": (answers(HEL), "provider_error", ENDED),
    "an empty body": (answers(b""), "provider_error", ENDED),
    "an error after 200": (answers(HEL + b'data: {"error":{"message":"boom","code":503}}\n\n'), "overloaded", "boom"),
    "an endless line": (answers(b"data: " + b"x" * 17_000_000), "provider_error", "exceeds the limit"),
    "an event that is cut": (answers(b"data: {\n\n"), "provider_error", NO_CHUNK),
    "an event that is no text": (answers(b"data: \xff\xfe\n\n"), "provider_error", NO_CHUNK),
    "an event that is no object": (answers(b"data: 7\n\n"), "provider_error", NO_CHUNK),
    "an event that is too deep": (answers(b"data: " + b"[" * 9000 + b"\n\n"), "provider_error", NO_CHUNK),
    "a page": (answers(PAGE, 200, "text/html"), "provider_error", A_PAGE),
    "a page that refuses": (answers(PAGE, 403, "text/html"), "provider_error", A_PAGE),
}


@pytest.mark.proof("S4")
@pytest.mark.parametrize(("script", "code", "message"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_answer_is_one_clear_error(script: Script, code: str, message: str) -> None:
    event, _ = await failure(script)
    assert event.error_code == code
    assert message in event.error_message


async def test_an_answer_that_broke_off_keeps_what_had_arrived() -> None:
    event, _ = await failure(dies_after(HEL))
    assert event.message.content == (Text(text="Hel"),)


async def test_five_megabytes_in_one_line_are_taken() -> None:
    big = "x" * 5_000_000
    event, _ = await outcome(answers(chat_stream(big)))
    assert isinstance(event, Done)
    assert event.message.text() == big


@pytest.mark.proof("S4")
async def test_an_upstream_that_stalls_is_given_up() -> None:
    options = StreamOptions(max_retries=0, stall_timeout_s=0.2)
    event, _ = await failure(starts_then_hangs(HEL), options=options)
    assert event.error_message == "acme sent nothing new for 0.2 s"
    assert event.message.text() == "Hel"


async def test_an_upstream_that_never_answers_is_given_up() -> None:
    async def silent(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    event, _ = await failure(silent, options=StreamOptions(max_retries=0, stall_timeout_s=0.2))
    assert "no answer within 0.2 s" in event.error_message


async def test_comments_keep_a_connection_open_but_do_not_count_as_news() -> None:
    async def chatters(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head())
        while True:
            writer.write(b": still here\n\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    event, _ = await failure(chatters, options=StreamOptions(max_retries=0, stall_timeout_s=0.2))
    assert "sent nothing new" in event.error_message


async def test_a_slow_consumer_is_not_an_upstream_stall() -> None:
    options = StreamOptions(max_retries=0, stall_timeout_s=0.1)
    async with upstream(answers(HELLO)) as server, HttpClient() as http:
        provider = HttpProvider(OpenAICompletions(), http)
        events = []
        async for event in provider.stream(ask(chat_model(server.url), options=options)):
            if isinstance(event, TextDelta):
                await asyncio.sleep(0.3)
            events.append(event)
    assert isinstance(events[-1], Done)


@pytest.mark.req("MK-PROV-032")
async def test_closing_the_stream_closes_the_upstream_connection_at_once() -> None:
    async with upstream(starts_then_hangs(HEL)) as server, HttpClient() as http:
        provider = HttpProvider(OpenAICompletions(), http)
        async with aclosing(provider.stream(ask(chat_model(server.url)))) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
        async with asyncio.timeout(5):
            await server.closed_by_client.wait()


async def test_cancelling_the_reader_closes_the_upstream_connection_at_once() -> None:
    async with upstream(starts_then_hangs(HEL)) as server:
        seen = asyncio.Event()

        async def read() -> None:
            async with HttpClient() as http:
                stream = HttpProvider(OpenAICompletions(), http).stream(ask(chat_model(server.url)))
                async with aclosing(stream):
                    async for event in stream:
                        if isinstance(event, TextDelta):
                            seen.set()

        async with asyncio.TaskGroup() as group, asyncio.timeout(60):
            task = group.create_task(read())
            await seen.wait()
            task.cancel()
            await server.closed_by_client.wait()


async def test_what_can_be_checked_locally_raises_before_anything_is_sent() -> None:
    broken = ToolDefinition(name="t", description="", parameters_schema_json="not json")
    context = Context(messages=(UserMessage(content="Hi"),), tools=(broken,))
    async with upstream(answers(HELLO)) as server, HttpClient() as http:
        stream = HttpProvider(OpenAICompletions(), http).stream(ask(chat_model(server.url), context=context))
        with pytest.raises(InvalidRequest, match="the schema of tool 't'"):
            await anext(stream)
        assert server.requests == []


async def test_a_connection_is_used_again_after_a_whole_answer() -> None:
    connections: set[object] = set()
    chunked = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                writer.write(chunked + f"{len(HELLO):x}\r\n".encode() + HELLO + b"\r\n")
                await writer.drain()
                writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(60), HttpClient() as http:
        provider = HttpProvider(OpenAICompletions(), http)
        for _ in range(3):
            async for event in provider.stream(ask(chat_model(url), options=FAST)):
                last = event
            assert isinstance(last, Done)
    server.close()
    assert len(connections) == 1


async def test_a_large_request_is_sent_whole() -> None:
    prompt = "x" * 3_000_000
    async with upstream(answers(HELLO)) as server, HttpClient() as http:
        provider = HttpProvider(OpenAICompletions(), http)
        async for event in provider.stream(ask(chat_model(server.url), prompt, options=FAST)):
            last = event
        assert isinstance(last, Done)
        assert server.requests[0].json()["messages"][0]["content"] == prompt


async def test_a_proxy_from_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(answers(HELLO)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        event = (await events_of("http://model.example"))[-1]
        assert isinstance(event, Done)
        assert proxy.requests[0].path == "http://model.example/chat/completions"
        async with upstream(answers(HELLO)) as here:
            assert isinstance((await events_of(here.url))[-1], Done)
            assert len(here.requests) == 1


def says(answer: bytes) -> Script:
    """Whatever these bytes are, and then the connection closes."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    return script


@pytest.mark.parametrize(
    "answer",
    [b"HTP/1.1 what\r\n\r\n", head(transfer_encoding="chunked") + b"ZZ\r\nabc\r\n", head(x="a" * 100_000)],
    ids=["no status", "no chunk", "a long header"],
)
async def test_an_answer_that_is_no_http_is_not_called_unreachable(answer: bytes) -> None:
    event, server = await failure(says(answer))

    told, _, why = event.error_message.partition(" can be read: ")
    assert told == f"acme at {server.url} did not answer with HTTP that"
    assert why.isprintable()
    assert 0 < len(why) <= 300
    assert event.hint == "Check the base URL, and a proxy or gateway on the way."


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n"], ids=["nothing", "half a head"])
async def test_a_connection_that_is_closed_without_an_answer_is_told_in_words(answer: bytes) -> None:
    event, server = await failure(says(answer))

    why = "it closed the connection without an answer"
    assert event.error_message == f"cannot reach acme at {server.url}: {why}"


@pytest.mark.parametrize("body", [b"", b" \n"], ids=["empty", "blank"])
async def test_a_json_answer_without_a_body_is_incomplete(body: bytes) -> None:
    event, _ = await failure(answers(body, content_type="application/json"))

    assert event.error_message == "acme ended the answer before it was complete"


async def test_a_byte_order_mark_before_a_json_answer_is_passed_over() -> None:
    body = b'\xef\xbb\xbf{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}'
    event, _ = await outcome(answers(body, content_type="application/json"))

    assert isinstance(event, Done)
    assert event.message.text() == "Hello"


async def test_a_redirect_is_named_without_what_is_secret_in_it() -> None:
    event, _ = await failure(refuses(308, b"", Location="https://me:pass@api.example/v2/chat?key=abc#d"))

    refused = (
        "acme refused the request (HTTP 308): it redirects to https://api.example/v2/chat, and makai does not follow"
    )
    assert event.error_message == refused
    assert event.hint == "Set the base URL to the address that the server redirects to, if that is the right one."
