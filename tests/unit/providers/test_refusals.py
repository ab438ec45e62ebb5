"""What a person reads when a vendor refuses: every status in every shape of body, for every wire format."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from support.streams import ask, model
from support.upstream import Script, answers, chat_stream, refuses, upstream

from makai.catalog.vendor_table import VENDORS, builtin_vendors
from makai.catalog.vendors import Vendor
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.core.stream_events import Done, Failed, StreamEvent
from makai.providers.base import ProviderRequest
from makai.providers.http import HttpClient, HttpProvider
from makai.providers.registry import builtin_api
from makai.providers.runtime import ModelRuntime

KEY = "test-key"
ONCE = StreamOptions(max_retries=0, stall_timeout_s=5.0)
APIS = sorted({api for vendor in VENDORS for api in vendor.paths} - {"scripted"})
VENDOR = {api: next(vendor for vendor in VENDORS if api in vendor.paths) for api in APIS}


async def last_events(
    scripts: Sequence[Script], api: str, *, secret: str | None = KEY, vendor: Vendor | None = None
) -> list[StreamEvent]:
    """The last event of one request per script."""
    last = []
    async with asyncio.timeout(60), upstream(*scripts) as server, HttpClient() as http:
        request = msgspec.structs.replace(
            ask(model(api, base_url=server.url), options=ONCE, secret=secret), vendor=vendor
        )
        for _ in scripts:
            events = [event async for event in HttpProvider(builtin_api(api), http).stream(request)]
            last.append(events[-1])
    return last


async def failed(script: Script, api: str, *, secret: str | None = KEY, vendor: Vendor | None = None) -> Failed:
    (last,) = await last_events([script], api, secret=secret, vendor=vendor)
    assert isinstance(last, Failed)
    return last


def shapes(message: str, code: str, status: int) -> dict[str, tuple[str, bytes]]:
    """Content type and body of one refusal, in the ways that vendors and gateways write it."""
    error = {"message": message, "type": code, "code": status}
    encode = msgspec.json.encode
    nested = encode({"error": error})
    laid_out = msgspec.json.format(nested, indent=2)
    text_code = encode({"error": {"message": message, "type": code, "code": str(status)}})
    anthropic = {"type": "error", "error": {"type": code, "message": message}}
    return {
        "JSON": ("application/json", nested),
        "JSON as text": ("text/plain; charset=utf-8", nested),
        "JSON as bytes": ("application/octet-stream", nested),
        "JSON as a stream": ("text/event-stream", nested),
        "JSON as HTML": ("text/html", nested),
        "JSON with a byte order mark": ("application/json", b"\xef\xbb\xbf" + nested),
        "JSON over several lines": ("text/plain", laid_out),
        "a problem document": ("application/problem+json", nested),
        "its status as text": ("application/json", text_code),
        "an error in an event": ("text/event-stream", b"data: " + nested + b"\n\n"),
        "an event that is not ended": ("text/event-stream", b": hi\nevent: error\ndata: " + nested),
        "an event of the name error": (
            "text/event-stream",
            b"event: error\ndata: " + encode(error) + b"\n\n",
        ),
        "a field of the name error": ("text/event-stream", b"error: " + nested + b"\n\n"),
        "an event over several lines": (
            "text/event-stream",
            b"".join(b"data: " + line + b"\r\n" for line in msgspec.json.format(nested, indent=2).split(b"\n"))
            + b"\r\n",
        ),
        "an event and an end mark": (
            "text/event-stream",
            b"data: " + encode({"detail": message, "status": status}) + b"\n\ndata: [DONE]\n\n",
        ),
        "a line": ("application/x-ndjson", nested + b"\n"),
        "Anthropic's": ("application/json", encode(anthropic | {"status": status})),
        "Google's list": ("application/json", encode([{"error": error | {"status": code}}])),
        "a flat object": ("application/json", encode({"object": "error"} | error)),
        "a detail": ("application/json", encode({"detail": message, "status": status})),
        "a detail with an error": (
            "application/json",
            encode({"detail": {"error": error}, "status": status}),
        ),
        "a list of errors": ("application/json", encode({"errors": [error], "status": status})),
        "an error as text": ("application/json", encode({"error": message, "code": status})),
    }


REFUSALS = {
    400: ("This model's maximum context length is 8192 tokens.", "context_length_exceeded", "context_overflow"),
    401: ("Who are you?", "who", "auth_required"),
    403: ("Not in your country.", "unsupported_country", "provider_error"),
    404: ("No such place.", "no_place", "provider_error"),
    429: ("Slow down.", "slow", "rate_limited"),
    500: ("Oops.", "oops", "provider_error"),
    503: ("Too much to do.", "much", "overloaded"),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("is_success", [False, True], ids=["with its status", "after HTTP 200"])
async def test_a_refusal_is_read_in_every_shape(api: str, status: int, is_success: bool) -> None:
    message, vendor_code, code = REFUSALS[status]
    bodies = shapes(message, vendor_code, status)
    scripts = [answers(body, 200 if is_success else status, content_type) for content_type, body in bodies.values()]
    for shape, event in zip(bodies, await last_events(scripts, api), strict=True):
        assert isinstance(event, Failed), shape
        assert (shape, event.error_code) == (shape, code)
        assert event.error_message.endswith(f": {message}"), shape
        assert is_success or f"(HTTP {status})" in event.error_message, shape


async def test_an_error_of_any_shape_after_the_first_words_is_read() -> None:
    said = chat_stream("Hel", finish=None, done=False)
    for shape in ("an event that is not ended", "an event of the name error", "a field of the name error", "a line"):
        body = said + shapes("Slow down.", "slow", 429)[shape][1]
        event = await failed(answers(body), "openai-completions")

        assert (shape, event.error_code, event.message.text()) == (shape, "rate_limited", "Hel")


async def test_a_whole_answer_under_any_content_type_is_an_answer() -> None:
    body = b'{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}'
    for content_type in ("text/plain", "text/event-stream", "application/octet-stream"):
        (event,) = await last_events([answers(body, 200, content_type)], "openai-completions")
        assert isinstance(event, Done)
        assert event.message.text() == "Hello"


@pytest.mark.parametrize("api", APIS)
async def test_text_instead_of_an_answer_is_repeated(api: str) -> None:
    event = await failed(answers(b"no healthy upstream\n", 200, "text/plain"), api)

    assert (event.error_code, event.error_message) == (
        "provider_error",
        "acme refused the request: no healthy upstream",
    )


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("status", [401, 403])
async def test_without_a_key_the_variable_to_set_is_named(api: str, status: int) -> None:
    vendor = VENDOR[api]
    event = await failed(refuses(status, b'{"error":"no"}'), api, secret=None, vendor=vendor)

    assert event.error_code == "auth_required"
    assert event.error_message == f"acme asks for a credential and none was sent (HTTP {status}): no"
    variables = " or ".join(vendor.key_variables)
    named = f"Run `makai auth login {vendor.id}`" + (f", or set {variables}." if variables else ".")
    assert event.hint == named


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("said", ["Country, region, or territory not supported", "IP not allowed", "Access blocked"])
async def test_a_place_that_is_refused_is_no_missing_login(api: str, said: str) -> None:
    vendor = VENDOR[api]
    event = await failed(refuses(403, b'{"error":"%s"}' % said.encode()), api, secret=None, vendor=vendor)

    assert (event.error_code, event.error_message) == (
        "provider_error",
        f"acme refused the request (HTTP 403): {said}",
    )
    assert event.hint is not None
    assert event.hint.startswith(f"No credential was sent. If the server wants one: Run `makai auth login {vendor.id}`")


BAD_KEY = "Check the key: `makai doctor` shows which one is used."
NOT_ALLOWED = "The credential is known but may not do this: check which models, projects and regions it is allowed."
NO_CREDIT = "The account has no credit left: check its billing page."
FIREWALL = "A firewall or proxy may have refused it: check the base URL, the proxy settings and the network."
HINTS = [
    (401, b'{"error":{"message":"Incorrect API key provided"}}', "auth_required", BAD_KEY),
    (403, b'{"error":{"message":"The token is expired"}}', "auth_required", BAD_KEY),
    (403, b'{"error":{"code":"invalid_api_key","message":"no"}}', "auth_required", BAD_KEY),
    (403, b'{"error":{"message":"Country, region, or territory not supported"}}', "provider_error", NOT_ALLOWED),
    (403, b'{"error":{"status":"PERMISSION_DENIED","message":"Enable the API first."}}', "provider_error", NOT_ALLOWED),
    (403, b"", "provider_error", NOT_ALLOWED),
    (403, b'{"error":{"code":"insufficient_quota","message":"no"}}', "provider_error", NO_CREDIT),
    (403, b"<!DOCTYPE html><title>Just a moment</title>", "provider_error", FIREWALL),
]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("status", "body", "code", "hint"), HINTS)
async def test_a_refusal_blames_the_key_only_when_it_is_the_key(
    api: str, status: int, body: bytes, code: str, hint: str
) -> None:
    event = await failed(refuses(status, body), api)

    assert (event.error_code, event.hint) == (code, hint)


CHECK_MODEL = "Check the model name (`makai models list`) and the base URL."
NO_PLACE = (b'{"detail":"Not Found"}', b"404 page not found", b'{"error":{"message":"Not found","code":404}}', b"")
NO_MODEL = (
    b'{"error":{"message":"The model `test-model` does not exist","code":"model_not_found"}}',
    b'{"error":"model \'test-model\' not found"}',
)


@pytest.mark.parametrize("body", NO_PLACE)
async def test_a_server_without_responses_is_asked_by_the_chat_reference(body: bytes) -> None:
    """The reference that is advised resolves, and the same server answers it."""

    async def old_server(request, writer):  # type: ignore[no-untyped-def]
        is_chat = request.path.endswith("/chat/completions")
        await (answers(chat_stream("Hello")) if is_chat else refuses(404, body))(request, writer)

    async with upstream(old_server) as server:
        environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{server.url}/v1"}
        async with ModelRuntime(environ) as models:
            context = ask(model("openai-responses")).context
            *_, event = [one async for one in models.stream("openai/my-model", context, ONCE)]
            assert isinstance(event, Failed)
            reference = "openai/openai-completions@my-model"
            assert event.hint == (
                f"If this server has no Responses API, use Chat Completions: `{reference}`. Else check the base URL."
            )
            assert (await models.complete(reference, context, ONCE)).text() == "Hello"


@pytest.mark.parametrize("body", NO_PLACE)
async def test_a_configured_server_without_responses_is_answered_by_the_setting_to_change(
    body: bytes, tmp_path: Path
) -> None:
    async with upstream(refuses(404, body)) as server:
        (tmp_path / "config.toml").write_text(
            f'[providers.corp]\nbase_url = "{server.url}/v1"\napi = "openai-responses"\n'
        )
        async with ModelRuntime({"MAKAI_HOME": str(tmp_path)}) as models:
            context = ask(model("openai-responses")).context
            *_, event = [one async for one in models.stream("corp/my-model", context, ONCE)]

    assert isinstance(event, Failed)
    assert event.hint == (
        'If this server has no Responses API, set `api = "openai-completions"` in `[providers.corp]` of config.toml. '
        "Else check the base URL."
    )


@pytest.mark.parametrize("body", NO_MODEL)
async def test_a_model_that_does_not_exist_is_not_blamed_on_the_api(body: bytes) -> None:
    event = await failed(refuses(404, body), "openai-responses", vendor=builtin_vendors()["openai"])

    assert event.hint == CHECK_MODEL


@pytest.mark.parametrize("api", [api for api in APIS if api != "openai-responses"])
async def test_only_responses_has_another_api_to_advise(api: str) -> None:
    event = await failed(refuses(404, b""), api, vendor=VENDOR[api])

    assert event.hint == CHECK_MODEL


async def asked(target: Model, http: HttpClient) -> Failed:
    request = ProviderRequest(model=target, context=Context(messages=()), options=ONCE)
    *_, last = [event async for event in HttpProvider(builtin_api(target.api), http).stream(request)]
    assert isinstance(last, Failed)
    return last


async def test_a_dead_address_and_a_dead_proxy_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(answers(b"")) as server:
        dead = server.url
    async with asyncio.timeout(60), HttpClient() as http:
        direct = await asked(model("openai-completions", base_url=f"{dead}/v1"), http)
        monkeypatch.setenv("http_proxy", dead.replace("//", "//user:hunter2@"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        through = await asked(model("openai-completions", base_url="http://model.example/v1"), http)
    assert direct.error_message.startswith(f"cannot reach acme at {dead}: ")
    place = dead.removeprefix("http://")
    expected = f"cannot reach the proxy {place} on the way to acme at http://model.example: "
    assert through.error_message.startswith(expected)
    assert "hunter2" not in through.error_message
    assert through.hint == "Check HTTP_PROXY, HTTPS_PROXY and NO_PROXY."
