"""Logins over the auth protocol, and what happens when a request needs one, against a server played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from support.sdk import DEADLINE_S, JSON, FakeServer, failure_of, fake_server

import makai

AUTO = makai.AuthOptions(auth_retry_policy="auto_once")


class Stage:
    """A client and the server the test plays."""

    def __init__(self) -> None:
        self.channel, self.server = fake_server()
        self.client: makai.MakaiClient

    def connect(self, auth: makai.AuthOptions | None = None) -> makai.MakaiClient:
        self.client = makai.MakaiClient(self.channel, auth)
        return self.client

    async def log_in(self, **handlers: Any) -> tuple[asyncio.Future[makai.LoginResult], JSON]:
        """A login that the server has accepted, and what started it."""
        login = asyncio.ensure_future(self.connect().auth.login("acme", makai.AuthFlowHandlers(**handlers)))
        return login, await begin(self.server)

    async def ask(self, auth: makai.AuthOptions = AUTO) -> asyncio.Future[makai.CompletionResponse]:
        """A request that the server has refused: it needs a login."""
        asked = asyncio.ensure_future(self.connect(auth).provider.complete(model_ref="m", messages="Hi"))
        await self.refuse()
        return asked

    async def refuse(self) -> None:
        await self.server.nack(await self.server.expect("complete_request"), "auth_required", provider_id="acme")


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    async with asyncio.timeout(DEADLINE_S):
        yield stage
        await stage.client.close()


async def event(server: FakeServer, start: JSON, kind: str, **fields: Any) -> None:
    payload = {kind: {"flow_id": start["stream_id"], "provider_id": "acme", **fields}}
    await server.say(start, "auth_event", payload)


async def finish(server: FakeServer, start: JSON, status: str = "success") -> None:
    payload = {"flow_id": start["stream_id"], "provider_id": "acme", "status": status}
    await server.say(start, "auth_login_result", payload)


async def begin(server: FakeServer) -> JSON:
    start = await server.expect("auth_login_start")
    assert start["payload"] == {"provider_id": "acme"}
    await server.ack(start)
    return start


@pytest.mark.req("MK-SDK-007", "MK-SDK-005")
async def test_providers_are_listed_without_what_is_not_documented(stage: Stage) -> None:
    client = stage.connect()
    listing = asyncio.ensure_future(client.auth.list_providers())
    request = await stage.server.accept("auth_providers_request")
    entry = {"id": "acme", "name": "Acme", "auth_status": "failed", "last_error": "no", "access_token": "leak"}
    await stage.server.say(request, "auth_providers_response", {"providers": [entry]})

    listed = await listing

    assert request["payload"] == {}
    assert listed == (
        makai.ProviderAuthInfo(id="acme", name="Acme", auth_status=makai.AuthStatus.FAILED, last_error="no"),
    )
    assert "leak" not in repr(listed)


@pytest.mark.req("MK-SDK-011")
async def test_every_field_of_every_event_reaches_the_handler_and_an_error_too(stage: Stage) -> None:
    told: list[JSON] = []

    def on_event(event: makai.MakaiAuthEvent) -> None:
        told.append({"type": event.type, **msgspec.structs.asdict(event)})

    login, start = await stage.log_in(on_event=on_event, on_prompt=lambda prompt: "")
    flow = {"flow_id": start["stream_id"], "provider_id": "acme"}
    sent: list[JSON] = [
        {"type": "progress", "message": "Starting"},
        {"type": "auth_url", "url": "https://acme.example/login", "instructions": "Open this page."},
        {"type": "prompt", "prompt_id": "code", "message": "Code?", "allow_empty": True},
        {"type": "progress", "message": "Checking"},
        {"type": "error", "message": "That was wrong.", "code": "provider_error"},
    ]
    for fields in sent:
        await event(stage.server, start, fields["type"], **{name: fields[name] for name in fields if name != "type"})
        if fields["type"] == "prompt":
            await stage.server.accept("auth_prompt_response")
    await finish(stage.server, start, "failed")

    failure = await failure_of(login, makai.MakaiAuthError, match="That was wrong")
    assert failure.code == "provider_error"
    assert told == [{**flow, **fields} for fields in sent]


@pytest.mark.req("MK-SDK-008", "MK-SDK-011", "MK-SDK-012")
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_login_publishes_its_events_in_order_and_sends_the_answers(stage: Stage, is_async: bool) -> None:
    events: list[makai.MakaiAuthEvent] = []

    async def answer_later(prompt: makai.AuthPromptEvent) -> str:
        await asyncio.sleep(0)
        return "1234"

    on_prompt = answer_later if is_async else lambda prompt: "1234"
    login, start = await stage.log_in(on_event=events.append, on_prompt=on_prompt)
    flow = start["stream_id"]
    await event(stage.server, start, "auth_url", url="https://acme.example/login")
    await event(stage.server, start, "prompt", prompt_id="code", message="Code?")
    response = await stage.server.accept("auth_prompt_response")
    await event(stage.server, start, "progress", message="Checking")
    await event(stage.server, start, "success")
    await finish(stage.server, start)

    assert await login == makai.LoginResult(status="success")
    assert response["payload"] == {"flow_id": flow, "prompt_id": "code", "answer": "1234"}
    assert (response["stream_id"], response["sequence"]) == (flow, 2)
    assert events == [
        makai.AuthUrlEvent(flow_id=flow, provider_id="acme", url="https://acme.example/login"),
        makai.AuthPromptEvent(flow_id=flow, prompt_id="code", provider_id="acme", message="Code?"),
        makai.AuthProgressEvent(flow_id=flow, provider_id="acme", message="Checking"),
        makai.AuthSuccessEvent(flow_id=flow, provider_id="acme"),
    ]
    assert [item.type for item in events] == ["auth_url", "prompt", "progress", "success"]


async def test_a_login_that_ends_elsewhere_does_not_wait_for_its_prompt(stage: Stage) -> None:
    cancelled = asyncio.Event()

    async def never(prompt: makai.AuthPromptEvent) -> str:
        try:
            await asyncio.Event().wait()
            return ""
        finally:
            cancelled.set()

    login, start = await stage.log_in(on_prompt=never)
    await event(stage.server, start, "prompt", prompt_id="code", message="Paste the code, or finish in the browser")
    await event(stage.server, start, "success")
    await finish(stage.server, start)

    assert await login == makai.LoginResult()
    assert cancelled.is_set()


@pytest.mark.req("MK-SDK-008")
async def test_a_cancelled_login_raises_that(stage: Stage) -> None:
    login, start = await stage.log_in()
    await event(stage.server, start, "error", code="cancelled", message="cancelled")
    await finish(stage.server, start, "cancelled")

    raised = await failure_of(login, makai.MakaiAuthError)
    assert (raised.kind, raised.provider_id) == ("cancelled", "acme")


@pytest.mark.req("MK-SDK-009")
async def test_a_failed_login_raises_what_its_last_event_said(stage: Stage) -> None:
    events: list[makai.MakaiAuthEvent] = []
    login, start = await stage.log_in(on_event=events.append)
    await event(stage.server, start, "error", code="access_denied", message="You said no.")
    await finish(stage.server, start, "failed")

    raised = await failure_of(login, makai.MakaiAuthError, "You said no")
    assert (raised.kind, raised.code) == ("provider_error", "access_denied")
    flow = start["stream_id"]
    assert events == [
        makai.AuthErrorEvent(flow_id=flow, provider_id="acme", code="access_denied", message="You said no.")
    ]


@pytest.mark.req("MK-SDK-010")
async def test_losing_the_connection_during_a_login_is_a_transport_error(stage: Stage) -> None:
    login, _ = await stage.log_in()
    await stage.server.channel.close()

    raised = await failure_of(login, makai.MakaiAuthError)
    assert raised.kind == "transport_error"


@pytest.mark.req("MK-SDK-013")
async def test_handlers_of_the_call_win_over_those_of_the_client(stage: Stage) -> None:
    seen: list[str] = []
    defaults = makai.AuthFlowHandlers(
        on_event=lambda event: seen.append(f"client {event.type}"), on_prompt=lambda prompt: "from the client"
    )
    client = stage.connect(makai.AuthOptions(handlers=defaults))
    own = makai.AuthFlowHandlers(on_event=lambda event: seen.append(f"call {event.type}"))
    login = asyncio.ensure_future(client.auth.login("acme", own))
    start = await begin(stage.server)
    await event(stage.server, start, "prompt", prompt_id="p", message="?")
    response = await stage.server.expect("auth_prompt_response")
    await finish(stage.server, start)

    await login
    assert (seen, response["payload"]["answer"]) == (["call prompt"], "from the client")


@pytest.mark.req("MK-SDK-014")
async def test_a_second_login_waits_for_the_first(stage: Stage) -> None:
    client = stage.connect()
    first = asyncio.ensure_future(client.auth.login("acme"))
    start = await begin(stage.server)
    second = asyncio.ensure_future(client.auth.login("acme"))
    asking = asyncio.ensure_future(client.auth.list_providers())
    question = await stage.server.accept("auth_providers_request")  # what is sent next: no second login before it
    await stage.server.say(question, "auth_providers_response", {"providers": []})
    await asking
    await finish(stage.server, start)
    await first

    again = await begin(stage.server)
    await finish(stage.server, again)

    assert await second == makai.LoginResult()
    assert again["stream_id"] != start["stream_id"]


@pytest.mark.req("MK-SDK-015")
@pytest.mark.parametrize("kind", ["prompt", "auth_url"])
async def test_a_login_that_needs_a_person_without_any_handler_is_cancelled(stage: Stage, kind: str) -> None:
    login, start = await stage.log_in()
    await event(stage.server, start, kind, prompt_id="p", message="?", url="https://acme.example")
    cancel = await stage.server.accept("auth_cancel")
    await finish(stage.server, start, "cancelled")

    raised = await failure_of(login, makai.MakaiAuthError, "needs a person")
    assert cancel["payload"] == {"flow_id": start["stream_id"]}
    assert (raised.kind, raised.code) == ("cancelled", "interaction_required")


async def test_an_optional_prompt_beside_an_open_page_needs_no_handler(stage: Stage) -> None:
    seen: list[makai.MakaiAuthEvent] = []
    login, start = await stage.log_in(on_event=seen.append)
    await event(stage.server, start, "auth_url", url="https://acme.example")
    await event(stage.server, start, "prompt", prompt_id="p", message="Or paste it:", allow_empty=True)
    await event(stage.server, start, "success")
    await finish(stage.server, start)

    assert await login == makai.LoginResult()
    assert [each.type for each in seen] == ["auth_url", "prompt", "success"]


@pytest.mark.parametrize("name", ["on_event", "on_prompt"])
async def test_a_handler_that_fails_cancels_the_login(stage: Stage, name: str) -> None:
    def fail(event: makai.MakaiAuthEvent) -> str:
        raise ValueError("oops")

    login, start = await stage.log_in(**{name: fail})
    await event(stage.server, start, "prompt", prompt_id="p", message="?")
    await stage.server.accept("auth_cancel")
    await finish(stage.server, start, "cancelled")

    raised = await failure_of(login, makai.MakaiAuthError, f"{name} handler failed: oops")
    assert isinstance(raised.__cause__, ValueError)


async def test_a_caller_who_is_cancelled_cancels_the_login(stage: Stage) -> None:
    login, start = await stage.log_in()

    login.cancel()
    cancel = await stage.server.expect("auth_cancel")

    assert cancel["payload"] == {"flow_id": start["stream_id"]}
    assert (await asyncio.gather(login, return_exceptions=True))[0].__class__ is asyncio.CancelledError


@pytest.mark.req("MK-SDK-028")
async def test_by_default_a_needed_login_is_raised_and_not_attempted(stage: Stage) -> None:
    asked = await stage.ask(makai.AuthOptions())

    raised = await failure_of(asked, makai.MakaiAuthError)
    error = raised
    assert (error.kind, error.code, error.provider_id) == ("provider_error", "auth_required", "acme")
    assert len(stage.server.received) == 1


@pytest.mark.req("MK-SDK-029", "MK-SDK-031")
@pytest.mark.parametrize("accepted_first", [False, True])
async def test_auto_once_logs_in_and_asks_again(stage: Stage, accepted_first: bool) -> None:
    """Also when the vendor refuses the credential only after the server has accepted the request."""
    client = stage.connect(AUTO)

    async def collect() -> list[object]:
        return [event async for event in client.provider.stream(model_ref="m", messages="Hi")]

    asked = asyncio.ensure_future(collect())
    request = await stage.server.expect("stream_request")
    if accepted_first:
        await stage.server.ack(request)
        await stage.server.say(request, "start", {})
        failure = {"error_code": "auth_required", "error_message": "no", "provider_id": "acme"}
        await stage.server.say(request, "error", {"reason": "error"})
        await stage.server.say(request, "stream_error", failure)
    else:
        await stage.server.nack(request, "auth_required", provider_id="acme")
    await finish(stage.server, await begin(stage.server))
    again = await stage.server.expect("stream_request")
    await stage.server.answer(again)

    events = await asked
    assert again["payload"] == request["payload"]
    assert again["stream_id"] != request["stream_id"]
    assert [event for event in events if isinstance(event, makai.MessageStartEvent)] == [makai.MessageStartEvent()]
    assert len(events) == 3


@pytest.mark.req("MK-SDK-029")
async def test_a_second_auth_required_is_raised(stage: Stage) -> None:
    asked = await stage.ask()
    await finish(stage.server, await begin(stage.server))
    await stage.refuse()

    raised = await failure_of(asked, makai.MakaiAuthError)
    assert (raised.code, len(stage.server.received)) == ("auth_required", 3)


@pytest.mark.req("MK-SDK-029")
async def test_a_second_auth_required_of_a_stream_is_raised(stage: Stage) -> None:
    stream = aiter(stage.connect(AUTO).provider.stream(model_ref="m", messages="Hi"))
    first = asyncio.ensure_future(anext(stream))
    for _ in range(2):
        await stage.server.nack(await stage.server.expect("stream_request"), "auth_required", provider_id="acme")
        if len(stage.server.received) == 1:
            await finish(stage.server, await begin(stage.server))

    raised = await failure_of(first, makai.MakaiAuthError)
    assert (raised.code, len(stage.server.received)) == ("auth_required", 3)


@pytest.mark.req("MK-SDK-029")
async def test_auto_once_uses_the_handlers_of_the_client(stage: Stage) -> None:
    handlers = makai.AuthFlowHandlers(on_prompt=lambda prompt: "1234")
    asked = await stage.ask(makai.AuthOptions(auth_retry_policy="auto_once", handlers=handlers))
    start = await begin(stage.server)
    await event(stage.server, start, "prompt", prompt_id="p", message="?")
    response = await stage.server.expect("auth_prompt_response")
    await finish(stage.server, start)
    await stage.server.answer(await stage.server.expect("complete_request"))

    assert (await asked).text == "Hi"
    assert response["payload"]["answer"] == "1234"


@pytest.mark.req("MK-SDK-030")
@pytest.mark.parametrize("kind", ["prompt", "auth_url"])
async def test_auto_once_without_handlers_fails_fast_when_a_person_is_needed(stage: Stage, kind: str) -> None:
    asked = await stage.ask()
    start = await begin(stage.server)
    await event(stage.server, start, kind, prompt_id="p", message="?", url="https://acme.example")
    await stage.server.expect("auth_cancel")
    await finish(stage.server, start, "cancelled")

    raised = await failure_of(asked, makai.MakaiAuthError)
    assert (raised.code, raised.provider_id) == ("auth_required", "acme")


async def test_auto_once_on_a_server_without_logins_raises_auth_required(stage: Stage) -> None:
    asked = await stage.ask()
    await stage.server.nack(await stage.server.expect("auth_login_start"), "not_implemented")

    raised = await failure_of(asked, makai.MakaiAuthError)
    assert raised.code == "auth_required"


async def test_requests_that_fail_together_share_one_login(stage: Stage) -> None:
    client = stage.connect(AUTO)
    asked = [asyncio.ensure_future(client.provider.complete(model_ref="m", messages="Hi")) for _ in range(3)]
    for _ in asked:
        await stage.refuse()
    await finish(stage.server, await begin(stage.server))
    for _ in asked:
        await stage.server.answer(await stage.server.expect("complete_request"))

    assert [(await each).text for each in asked] == ["Hi"] * 3


@pytest.mark.req("MK-SDK-032")
@pytest.mark.parametrize(("of_client", "of_request"), [("manual", "auto_once"), ("auto_once", "manual")])
async def test_the_policy_of_the_request_wins_and_stays_here(stage: Stage, of_client: Any, of_request: str) -> None:
    client = stage.connect(makai.AuthOptions(auth_retry_policy=of_client))
    options = {"auth_retry_policy": of_request, "max_tokens": 7}
    asked = asyncio.ensure_future(client.provider.complete(model_ref="m", messages="Hi", options=options))
    request = await stage.server.expect("complete_request")
    await stage.server.nack(request, "auth_required", provider_id="acme")
    if of_request == "auto_once":
        await finish(stage.server, await begin(stage.server))
        await stage.server.answer(await stage.server.expect("complete_request"))
        assert (await asked).text == "Hi"
    else:
        with pytest.raises(makai.MakaiAuthError):
            await asked
    assert request["payload"]["options"] == {"max_tokens": 7}
