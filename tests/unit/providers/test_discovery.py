"""`ModelRuntime.models`: vendors' own lists beside the built-in one, whatever the vendors do."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.upstream import Request, Script, Upstream, answers, refuses, starts_then_hangs, upstream

from makai.catalog import models as catalog
from makai.catalog.models import AuthStatus, ModelDescriptor, ModelSource, ModelsRequest, ModelsResponse
from makai.catalog.resolver import Resolver
from makai.catalog.vendor_table import builtin_vendors
from makai.catalog.vendors import ASSUMED_CAPABILITIES
from makai.core.errors import ModelNotFound, ProviderError
from makai.core.model import ModelCapability
from makai.core.usage import Price
from makai.providers import discovery
from makai.providers.discovery import ModelDiscovery
from makai.providers.http import HttpClient
from makai.providers.runtime import ModelRuntime

NOWHERE = {
    "OLLAMA_HOST": "http://127.0.0.1:9",
    "VLLM_BASE_URL": "http://127.0.0.1:9/v1",
    "LLAMA_CPP_BASE_URL": "http://127.0.0.1:9/v1",
    "LMSTUDIO_BASE_URL": "http://127.0.0.1:9/v1",
}
"""The servers that need no key, on ports without a server: what runs on the developer's machine must not be found."""
EVERYTHING = ModelsRequest()


@pytest.fixture(autouse=True)
def _a_machine_that_may_be_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test servers are all on this machine: one second is not enough for every machine that runs tests."""
    monkeypatch.setattr(discovery, "LOOPBACK_DEADLINE_S", 10.0)


@asynccontextmanager
async def runtime(environ: Mapping[str, str], home: Path = Path("/nonexistent")) -> AsyncIterator[ModelRuntime]:
    async with ModelRuntime({**NOWHERE, **environ}, home=home) as made:
        yield made


def openai_at(url: str, key: str = "test-key") -> dict[str, str]:
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": key}


def lists(*entries: Any, field: str = "data", **more: Any) -> Script:
    """A server that has these models; an entry that is only a text is an id."""
    models = [{"id": entry} if isinstance(entry, str) else entry for entry in entries]
    return answers(msgspec.json.encode({field: models, **more}), content_type="application/json")


OPENAI = ModelsRequest(provider_id="openai")
VLLM = ModelsRequest(provider_id="vllm")


@asynccontextmanager
async def listing(
    *scripts: Script, environ: Callable[[str], dict[str, str]] = openai_at
) -> AsyncIterator[tuple[Upstream, ModelRuntime]]:
    """A vendor that answers so, OpenAI when nothing else is said, and a runtime that has a key for it."""
    async with upstream(*scripts) as server, runtime(environ(server.url)) as models:
        yield server, models


def vllm_at(url: str) -> dict[str, str]:
    return {"VLLM_BASE_URL": f"{url}/v1"}


def anthropic_at(url: str) -> dict[str, str]:
    return {"ANTHROPIC_API_KEY": "test-key", "ANTHROPIC_BASE_URL": url}


def of(response: ModelsResponse, provider_id: str) -> list[ModelDescriptor]:
    return [model for model in response.models if model.provider_id == provider_id]


def ids(models: list[ModelDescriptor]) -> list[str]:
    return [model.model_id for model in models]


def built_in(provider_id: str) -> list[str]:
    return [
        row.id
        for row in catalog.builtin().models
        if row.provider == provider_id and not row.retired and row.lifecycle is not catalog.ModelLifecycle.DEPRECATED
    ]


@pytest.mark.req("MK-MODEL-014", "MK-MODEL-021")
async def test_a_vendor_with_a_credential_is_asked_and_the_others_keep_their_built_in_models() -> None:
    async with listing(lists("gpt-6.1-sol", "ft:gpt:acme/ü:1", "whisper-1")) as (server, models):
        response = await models.models(EVERYTHING)

    known, unknown = of(response, "openai")
    assert (known.model_id, known.source, known.auth_status) == ("gpt-6.1-sol", ModelSource.DYNAMIC, "authenticated")
    assert known.display_name == "GPT-6.1 Sol"
    assert "price_input_usd_per_mtok" in known.metadata
    assert unknown == ModelDescriptor(
        model_ref="openai/openai-responses@ft%3Agpt%3Aacme%2F%C3%BC%3A1",
        model_id="ft:gpt:acme/ü:1",
        display_name="ft:gpt:acme/ü:1",
        provider_id="openai",
        api="openai-responses",
        auth_status=AuthStatus.AUTHENTICATED,
        lifecycle=catalog.ModelLifecycle.STABLE,
        capabilities=ASSUMED_CAPABILITIES,
        source=ModelSource.DYNAMIC,
        base_url=f"{server.url}/v1",
    )
    assert ids(of(response, "anthropic")) == built_in("anthropic")
    assert {model.source for model in of(response, "anthropic")} == {ModelSource.STATIC_FALLBACK}
    assert {model.auth_status for model in of(response, "anthropic")} == {AuthStatus.LOGIN_REQUIRED}
    assert [(request.method, request.path) for request in server.requests] == [("GET", "/v1/models")]
    assert server.requests[0].headers["authorization"] == "Bearer test-key"


@pytest.mark.req("MK-MODEL-014")
async def test_without_a_credential_a_vendor_is_not_asked() -> None:
    async with upstream(lists("gpt-9")) as server, runtime({"OPENAI_BASE_URL": f"{server.url}/v1"}) as models:
        response = await models.models(OPENAI)

    assert server.requests == []
    assert {(model.source, model.auth_status) for model in response.models} == {
        (ModelSource.STATIC_FALLBACK, AuthStatus.LOGIN_REQUIRED)
    }


@pytest.mark.req("MK-MODEL-014")
@pytest.mark.parametrize(
    ("provider_id", "variable", "suffix", "script", "path"),
    [
        ("vllm", "VLLM_BASE_URL", "/v1", lists("acme/one"), "/v1/models"),
        ("llama.cpp", "LLAMA_CPP_BASE_URL", "/v1", lists("acme/one"), "/v1/models"),
        ("ollama", "OLLAMA_HOST", "", lists({"name": "acme/one"}, field="models"), "/api/tags"),
    ],
)
async def test_a_server_on_this_machine_is_asked_without_a_key(
    provider_id: str, variable: str, suffix: str, script: Script, path: str
) -> None:
    async with upstream(script) as server, runtime({variable: server.url + suffix}) as models:
        response = await models.models(ModelsRequest(provider_id=provider_id))

    assert [(model.model_id, model.source) for model in response.models] == [("acme/one", ModelSource.DYNAMIC)]
    assert [(request.path, request.headers.get("authorization")) for request in server.requests] == [(path, None)]


async def test_pages_are_followed_to_the_last_one() -> None:
    first = lists({"id": "claude-x"}, has_more=True, last_id="claude-x")
    last = lists({"id": "claude-y"}, has_more=False)
    async with listing(first, last, environ=anthropic_at) as (server, models):
        response = await models.models(ModelsRequest(provider_id="anthropic"))

    assert ids(of(response, "anthropic")) == ["claude-x", "claude-y"]
    assert [request.path for request in server.requests] == [
        "/v1/models?limit=1000",
        "/v1/models?limit=1000&after_id=claude-x",
    ]
    assert server.requests[1].headers["x-api-key"] == "test-key"


async def test_a_list_without_an_end_is_cut_off() -> None:
    endless = lists({"id": "claude-x"}, has_more=True, last_id="claude-x")
    async with listing(endless, environ=anthropic_at) as (server, models):
        response = await models.models(ModelsRequest(provider_id="anthropic"))

    assert ids(of(response, "anthropic")) == ["claude-x"]
    assert len(server.requests) == discovery.MAX_PAGES


@pytest.mark.req("MK-MODEL-015")
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (401, AuthStatus.FAILED),
        pytest.param(403, AuthStatus.AUTHENTICATED, id="a key that may not list models may still ask them"),
    ],
)
async def test_a_refused_key_marks_the_built_in_models_as_failed_beside_working_providers(
    status: int, expected: AuthStatus
) -> None:
    async with upstream(refuses(status)) as strict, upstream(lists("grok-9")) as kind:
        environ = openai_at(strict.url) | {"XAI_API_KEY": "k", "XAI_BASE_URL": f"{kind.url}/v1"}
        async with runtime(environ) as models:
            response = await models.models(EVERYTHING)

    assert ids(of(response, "openai")) == built_in("openai")
    assert {(model.source, model.auth_status) for model in of(response, "openai")} == {
        (ModelSource.STATIC_FALLBACK, expected)
    }
    assert [(model.model_id, model.source, model.auth_status) for model in of(response, "xai")] == [
        ("grok-9", ModelSource.DYNAMIC, AuthStatus.AUTHENTICATED)
    ]


@pytest.mark.req("MK-MODEL-015")
@pytest.mark.parametrize("key", ["", "two\nlines"])
async def test_a_missing_or_unusable_key_fails_no_listing(key: str) -> None:
    async with runtime({"OPENAI_API_KEY": key}) as models:
        response = await models.models(EVERYTHING)

    status = AuthStatus.FAILED if key else AuthStatus.LOGIN_REQUIRED
    assert {model.auth_status for model in of(response, "openai")} == {status}
    assert {model.auth_status for model in of(response, "local")} == {AuthStatus.AUTHENTICATED}


@pytest.mark.req("MK-MODEL-014")
@pytest.mark.parametrize(
    "script",
    [
        refuses(500),
        refuses(404, b"<html>nginx</html>"),
        refuses(301, Location="http://127.0.0.1:9/"),
        answers(b"<html>"),
        answers(b'{"data": 7}'),
        answers(b" " * (9 * 1024 * 1024)),
    ],
    ids=["500", "404", "301", "html", "no list", "too long"],
)
async def test_any_other_failure_leaves_the_built_in_models_as_they_are(script: Script) -> None:
    async with listing(script) as (_, models):
        response = await models.models(OPENAI)

    assert ids(of(response, "openai")) == built_in("openai")
    assert {(model.source, model.auth_status) for model in response.models} == {
        (ModelSource.STATIC_FALLBACK, AuthStatus.AUTHENTICATED)
    }


async def test_a_vendor_that_never_ends_its_list_is_given_up_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "LOOPBACK_DEADLINE_S", 0.5)
    async with upstream(starts_then_hangs(b'{"data": [')) as slow, upstream(lists("grok-9")) as quick:
        environ = openai_at(slow.url) | {"XAI_API_KEY": "k", "XAI_BASE_URL": f"{quick.url}/v1"}
        async with runtime(environ) as models:
            response = await models.models(EVERYTHING)
            async with asyncio.timeout(60):
                await slow.closed_by_client.wait()

    assert ids(of(response, "openai")) == built_in("openai")
    assert ids(of(response, "xai")) == ["grok-9"]


async def test_a_person_who_asks_for_a_new_list_waits_longer_for_a_server_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "LOOPBACK_DEADLINE_S", 0.0)
    async with listing(lists("gpt-9")) as (_, models):
        shown = await models.models(OPENAI)
        asked_for = await models.models(OPENAI, refresh=True)

    assert ids(of(shown, "openai")) == built_in("openai")
    assert ids(of(asked_for, "openai")) == ["gpt-9"]


async def test_an_internal_error_in_reading_one_list_does_not_fail_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(discovery, "read_listing", broken)
    async with listing(lists("gpt-9")) as (_, models):
        response = await models.models(OPENAI)

    assert ids(of(response, "openai")) == built_in("openai")
    assert "reading the list of models of openai failed" in caplog.text


@pytest.mark.req("MK-MODEL-013")
@pytest.mark.parametrize("script", [refuses(500), refuses(401), answers(b"<html>")], ids=["500", "401", "html"])
async def test_a_failure_without_built_in_models_is_a_provider_error_when_the_request_names_the_provider(
    script: Script,
) -> None:
    """The half of MK-MODEL-013 that is decided here; that a runtime without listing nacks is the server's."""
    async with listing(script, environ=vllm_at) as (_, models):
        with pytest.raises(ProviderError) as caught:
            await models.models(VLLM)
        everything = await models.models(EVERYTHING)

    assert (caught.value.code, caught.value.provider_id) == ("provider_error", "vllm")
    assert caught.value.message.startswith("vllm does not tell its models and none are built in: ")
    assert of(everything, "vllm") == []
    assert of(everything, "openai") != []


async def test_an_unreachable_server_without_built_in_models_is_a_provider_error_that_says_where() -> None:
    async with runtime({}) as models:
        with pytest.raises(ProviderError, match=r"cannot reach vllm at http://127\.0\.0\.1:9"):
            await models.models(VLLM)


async def test_a_key_that_a_vendor_repeats_is_not_in_the_error() -> None:
    refusal = refuses(400, b'{"error": {"message": "no such key: tok-of-the-user"}}')
    with_key = {"VLLM_API_KEY": "tok-of-the-user"}
    async with listing(refusal, environ=lambda url: vllm_at(url) | with_key) as (server, models):
        with pytest.raises(ProviderError) as caught:
            await models.models(VLLM)

    assert server.requests[0].headers["authorization"] == "Bearer tok-of-the-user"
    assert "no such key: [secret]" in caught.value.message


async def test_filters_decide_who_is_asked() -> None:
    async with upstream(lists("gpt-9")) as one, upstream(lists("claude-9")) as two:
        environ = openai_at(one.url) | {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": two.url}
        async with runtime(environ) as models:
            by_provider = await models.models(ModelsRequest(provider_id="anthropic"))
            by_api = await models.models(ModelsRequest(api="anthropic-messages"))
            unknown = await models.models(ModelsRequest(provider_id="unknown"))

    assert (len(one.requests), len(two.requests)) == (0, 1)
    assert ids(list(by_provider.models)) == ids(list(by_api.models)) == ["claude-9"]
    assert unknown.models == ()


async def test_a_model_id_is_resolved_among_what_the_vendors_list() -> None:
    async with listing(lists("gpt-9")) as (_, models):
        found = await models.models(ModelsRequest(model_id="gpt-9"))
        with pytest.raises(ModelNotFound, match="model not found"):
            await models.models(ModelsRequest(provider_id="openai", model_id=built_in("openai")[0]))

    assert [model.model_ref for model in found.models] == ["openai/openai-responses@gpt-9"]


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.req("MK-MODEL-016", "MK-MODEL-017")
async def test_a_list_is_kept_for_five_minutes_while_each_response_has_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = _Clock()
    monkeypatch.setattr(time, "time_ns", lambda: round(clock.now * 1_000) * 1_000_000)
    async with listing(lists("gpt-9"), lists("gpt-10")) as (server, models):
        models._discovery = ModelDiscovery(models._client, models.resolver, monotonic=clock)
        first = await models.models(OPENAI)
        clock.now += 299.9
        cached = await models.models(OPENAI)
        asked = len(server.requests)
        clock.now += 0.2
        fresh = await models.models(OPENAI)

    assert (asked, len(server.requests)) == (1, 2)
    assert (first.models, ids(list(fresh.models))) == (cached.models, ["gpt-10"])
    assert [one.fetched_at_ms for one in (first, cached, fresh)] == [1_000_000, 1_299_900, 1_300_100]
    assert first.cache_max_age_ms == cached.cache_max_age_ms == 300_000


@pytest.mark.req("MK-MODEL-017")
async def test_an_empty_list_of_a_vendor_is_news_and_a_built_in_list_is_not() -> None:
    async with listing(lists(), environ=vllm_at) as (_, models):
        empty = await models.models(VLLM)
        static = await models.models(OPENAI)

    assert (empty.models, empty.cache_max_age_ms) == ((), 300_000)
    assert static.cache_max_age_ms == 3_600_000


async def test_refresh_asks_again_and_a_failure_is_not_kept() -> None:
    async with listing(refuses(500), lists("gpt-9"), lists("gpt-10")) as (server, models):
        refreshes = (False, False, False, True)
        seen = [ids(list((await models.models(OPENAI, refresh=refresh)).models)) for refresh in refreshes]

    assert seen == [built_in("openai"), ["gpt-9"], ["gpt-9"], ["gpt-10"]]
    assert len(server.requests) == 3


async def test_another_key_is_another_cache_entry() -> None:
    async def by_key(request: Request, writer: asyncio.StreamWriter) -> None:
        await lists("model-of-" + request.headers["authorization"].removeprefix("Bearer "))(request, writer)

    async with upstream(by_key) as server:
        environ = NOWHERE | openai_at(server.url, "one")
        async with ModelRuntime(environ, home=Path("/nonexistent")) as models:
            seen = []
            for key in ("one", "two", "one"):
                environ["OPENAI_API_KEY"] = key
                seen += ids(list((await models.models(OPENAI)).models))

    assert seen == ["model-of-one", "model-of-two", "model-of-one"]
    assert len(server.requests) == 2


async def test_callers_who_come_together_share_one_question_and_one_who_leaves_does_not_end_it() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def waits(request: Request, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await go_on.wait()
        await lists("gpt-9")(request, writer)

    async with listing(waits) as (server, models):
        leaver = asyncio.ensure_future(models.models(OPENAI))
        stayers = [asyncio.ensure_future(models.models(OPENAI)) for _ in range(3)]
        async with asyncio.timeout(60):
            await asked.wait()
            leaver.cancel()
            await asyncio.gather(leaver, return_exceptions=True)
            go_on.set()
            responses = await asyncio.gather(*stayers)

    assert leaver.cancelled()
    assert [ids(list(response.models)) for response in responses] == [["gpt-9"]] * 3
    assert len(server.requests) == 1


async def test_closing_ends_a_question_that_is_under_way() -> None:
    asked = asyncio.Event()

    async def hangs(request: Request, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with upstream(hangs) as server, asyncio.timeout(60):
        async with runtime(openai_at(server.url)) as models:
            caller = asyncio.ensure_future(models.models(OPENAI))
            await asked.wait()
        await server.closed_by_client.wait()
        await asyncio.gather(caller, return_exceptions=True)

    assert caller.cancelled()


async def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "MAX_CACHED", 2)
    async with upstream(lists("gpt-9")) as server, HttpClient() as client:
        environ = NOWHERE | openai_at(server.url)
        lists_of = ModelDiscovery(client, Resolver(environ))
        for key in ("a", "b", "c", "c", "b", "a"):
            environ["OPENAI_API_KEY"] = key
            await lists_of.listings(ModelsRequest(provider_id="openai"))
        await lists_of.close()

    keys = Counter(request.headers["authorization"].removeprefix("Bearer ") for request in server.requests)
    assert keys == {"a": 2, "b": 1, "c": 1}


@pytest.mark.req("MK-MODEL-022")
async def test_every_ref_once_emitted_is_accepted_after_a_refresh_that_drops_it_and_after_a_restart() -> None:
    strange = ["qwen:7b", "a/b@c%d e", "ü-模型", "x" * 512]
    async with upstream(lists(*strange), lists("only-this-one")) as server:
        environ = NOWHERE | openai_at(server.url)
        async with runtime(environ) as models:
            emitted = (await models.models(EVERYTHING)).models
            await models.models(EVERYTHING, refresh=True)
            after_refresh = [models.resolve(model.model_ref) for model in emitted]
        async with runtime(environ) as restarted:
            after_restart = [restarted.resolver.resolve(model.model_ref) for model in emitted]

    named = [(model.provider_id, model.api, model.model_id) for model in emitted]
    assert set(strange) < {model.model_id for model in emitted}
    assert [(model.provider, model.api, model.id) for model in after_refresh] == named
    assert [(model.provider, model.api, model.id) for model in after_restart] == named


@pytest.mark.req("MK-MODEL-022")
def test_every_vendor_that_can_be_asked_accepts_ids_without_a_row() -> None:
    assert [
        vendor.id for vendor in builtin_vendors().values() if vendor.listing != "none" and not vendor.open_ended
    ] == []


async def test_what_a_vendor_told_is_used_when_the_model_is_run() -> None:
    entry = {
        "id": "acme/one",
        "context_length": 1000,
        "supported_parameters": ["tools"],
        "architecture": {"input_modalities": ["text"]},
        "pricing": {"prompt": "0.000001", "completion": "0.000002"},
    }
    async with upstream(lists(entry)) as server:
        environ = {"OPENROUTER_API_KEY": "k", "OPENROUTER_BASE_URL": f"{server.url}/v1"}
        async with runtime(environ) as models:
            await models.models(ModelsRequest(provider_id="openrouter"))
            model = models.resolve("openrouter/acme/one")

    assert (model.context_window, model.price) == (1000, Price(input=1.0, output=2.0))
    assert model.capabilities == (ModelCapability.CHAT, ModelCapability.STREAMING, ModelCapability.TOOLS)


async def test_a_listed_model_can_be_named_by_its_id_alone_and_makes_no_other_name_ambiguous() -> None:
    async with listing(lists("my-own-model", "gpt-6.1-sol"), environ=vllm_at) as (_, models):
        before = models.resolve("gpt-6.1-sol")
        await models.models(VLLM)
        own, after = models.resolve("my-own-model"), models.resolve("gpt-6.1-sol")

    assert (own.provider, own.id) == ("vllm", "my-own-model")
    assert (before.provider, after) == ("openai", before)
