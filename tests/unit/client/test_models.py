"""The cache and the wire of `client.models`, against a server played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.sdk import DEADLINE_S, JSON, FakeServer, failure_of, fake_server

from makai import ListModelsRequest, MakaiStreamError
from makai.client.connection import MakaiConnection
from makai.client.models import ModelsApi

MODEL: JSON = {
    "model_ref": "opaque, of any shape",
    "model_id": "m",
    "display_name": "M",
    "provider_id": "acme",
    "api": "x",
    "auth_status": "authenticated",
    "lifecycle": "stable",
    "capabilities": ["chat"],
    "source": "dynamic",
}


class Stage:
    def __init__(self) -> None:
        channel, self.server = fake_server()
        self.now_ms = 1_000
        self.connection = MakaiConnection(channel)
        self.models = ModelsApi(self.connection, now_ms=lambda: self.now_ms)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    async with asyncio.timeout(DEADLINE_S):
        yield stage
        await stage.connection.close()


async def answer(server: FakeServer, *models: JSON, **fields: int) -> JSON:
    request = await server.accept("models_request")
    await server.say(request, "models_response", {"models": list(models), "fetched_at_ms": 1_000} | fields)
    return request


@pytest.mark.req("MK-ENV-026")
async def test_answers_in_another_order_reach_the_right_callers(stage: Stage) -> None:
    names = ["one", "two", "three"]
    asking = [asyncio.ensure_future(stage.models.list(ListModelsRequest(provider_id=name))) for name in names]
    requests = [await stage.server.expect("models_request") for _ in names]
    for request in reversed(requests):
        await stage.server.ack(request)
    for request in (requests[1], requests[2], requests[0]):
        told = MODEL | {"provider_id": request["payload"]["provider_id"]}
        payload = {"models": [told], "fetched_at_ms": 1_000, "cache_max_age_ms": 5}
        await stage.server.say(request, "models_response", payload, in_reply_to=request["message_id"])

    assert [listed.models[0].provider_id for listed in await asyncio.gather(*asking)] == names


@pytest.mark.req("MK-SDK-016", "MK-SDK-005")
async def test_filters_travel_unchanged(stage: Stage) -> None:
    filters = ListModelsRequest(
        provider_id="acme", api="x", model_id="m", include_deprecated=True, include_login_required=False
    )
    listing = asyncio.ensure_future(stage.models.list(filters))
    request = await answer(stage.server, MODEL, cache_max_age_ms=5)

    listed = await listing

    assert request["payload"] == {
        "provider_id": "acme",
        "api": "x",
        "model_id": "m",
        "include_deprecated": True,
        "include_login_required": False,
    }
    assert (listed.models[0].model_id, listed.fetched_at_ms, listed.cache_max_age_ms) == ("m", 1_000, 5)


@pytest.mark.req("MK-SDK-019")
@pytest.mark.parametrize(("fields", "max_age"), [({"cache_max_age_ms": 50}, 50), ({}, 300_000)])
async def test_an_answer_is_stale_only_after_its_age(stage: Stage, fields: dict[str, int], max_age: int) -> None:
    listing = asyncio.ensure_future(stage.models.list(provider_id="acme"))
    await answer(stage.server, MODEL, **fields)
    first = await listing

    stage.now_ms = 1_000 + max_age
    assert await stage.models.list({"provider_id": "acme"}) is first
    stage.now_ms += 1
    again = asyncio.ensure_future(stage.models.list(provider_id="acme"))
    await answer(stage.server, MODEL, **fields)

    assert await again == first
    assert first.cache_max_age_ms == max_age


@pytest.mark.req("MK-SDK-019")
async def test_other_filters_are_another_question(stage: Stage) -> None:
    for provider_id in ("acme", "other"):
        listing = asyncio.ensure_future(stage.models.list(provider_id=provider_id))
        await answer(stage.server, MODEL)
        await listing

    assert [request["payload"] for request in stage.server.received] == [
        {"provider_id": "acme"},
        {"provider_id": "other"},
    ]


@pytest.mark.req("MK-SDK-017", "MK-SDK-019")
async def test_resolve_is_one_exact_models_request_and_cached(stage: Stage) -> None:
    resolving = asyncio.ensure_future(stage.models.resolve(provider_id="acme", model_id="m"))
    request = await answer(stage.server, MODEL)

    resolved = await resolving

    assert request["payload"] == {"provider_id": "acme", "model_id": "m"}
    assert resolved.model.model_ref == "opaque, of any shape"
    assert await stage.models.resolve({"provider_id": "acme", "model_id": "m"}) == resolved


@pytest.mark.req("MK-SDK-017")
async def test_resolve_names_the_api_when_given(stage: Stage) -> None:
    resolving = asyncio.ensure_future(stage.models.resolve(provider_id="acme", model_id="m", api="x"))
    request = await answer(stage.server, MODEL)
    await resolving

    assert request["payload"] == {"provider_id": "acme", "api": "x", "model_id": "m"}


@pytest.mark.req("MK-SDK-018")
@pytest.mark.parametrize(("count", "message"), [(0, "model not found"), (2, "ambiguous")])
async def test_resolve_wants_exactly_one_model(stage: Stage, count: int, message: str) -> None:
    resolving = asyncio.ensure_future(stage.models.resolve(provider_id="acme", model_id="m"))
    await answer(stage.server, *[MODEL] * count)

    with pytest.raises(MakaiStreamError, match=message) as raised:
        await resolving
    assert raised.value.code == "invalid_request"


@pytest.mark.req("MK-SDK-020")
async def test_a_server_without_models_requests_says_not_implemented(stage: Stage) -> None:
    listing = asyncio.ensure_future(stage.models.list())
    await stage.server.nack(await stage.server.expect("models_request"), "not_implemented")

    raised = await failure_of(listing, MakaiStreamError)
    assert (raised.kind, raised.code) == ("unknown", "not_implemented")


async def test_a_malformed_answer_is_a_broken_protocol(stage: Stage) -> None:
    listing = asyncio.ensure_future(stage.models.list())
    await answer(stage.server, {"model_ref": 7})

    raised = await failure_of(listing, MakaiStreamError, "models_response")
    assert raised.kind == "transport_error"
