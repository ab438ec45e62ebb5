"""What a caller gives is what the vendor's server receives: every field, over every transport, in every dialect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.peers import TRANSPORTS, open_peer
from support.sdk import DEADLINE_S, KINDS, serving
from support.whole_requests import (
    ALL_DIALECTS,
    ASKED,
    OPTIONS,
    Vendor,
    agent_request,
    asked,
    expected,
    provider_request,
    send_agent_request,
    send_provider_request,
    unset_fields,
    vendor,
    wire_request,
)

import makai
from makai.auth.credentials import Account, ApiKey, origin_of
from makai.auth.store import CredentialStore
from makai.core.secret import Secret
from makai.protocols.makai.payloads import StreamRequest

pytestmark = pytest.mark.req("MK-PROV-001", "MK-PROV-004", "MK-PROV-005", "MK-PROV-007")

OPENAI, MISTRAL = (next(d for d in ALL_DIALECTS if d.provider == provider) for provider in ("openai", "mistral"))
NO_FIELD_OF_THE_VENDOR = {
    "StreamRequest.model",
    "RequestOptions.account",
    "ToolDefinition.permission",
    "ToolDefinition.read_only",
}
"""Given instead of `model_ref`, and which login to use: both have tests of their own below. And what a session needs to
know about a tool (`test_function_tools.py`)."""


@pytest.fixture
async def seen() -> AsyncIterator[Vendor]:
    async with asyncio.timeout(DEADLINE_S), vendor() as opened:
        yield opened


@pytest.fixture
def environ(seen: Vendor, tmp_path: Path) -> dict[str, str]:
    return {**seen.environ, "MAKAI_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}


def test_the_requests_of_these_tests_set_every_field_there_is() -> None:
    requests = [
        msgspec.convert(wire_request(dialect, variant, system_prompt="Be kind."), StreamRequest)
        for dialect in ALL_DIALECTS
        for variant in OPTIONS
    ]

    assert unset_fields(requests) == NO_FIELD_OF_THE_VENDOR


def test_the_requests_that_other_languages_read_are_these() -> None:
    assert msgspec.json.decode(ASKED.read_bytes()) == asked()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_request_on_the_wire_reaches_the_vendor_whole(
    transport: str, seen: Vendor, environ: Mapping[str, str]
) -> None:
    async with open_peer(transport, environ) as peer:
        for dialect in ALL_DIALECTS:
            for variant in OPTIONS:
                for kind in ("stream_request", "complete_request"):
                    await send_provider_request(peer, wire_request(dialect, variant), kind)
                    assert seen.received() == expected(dialect, variant), (dialect.api, variant, kind)


async def test_a_system_prompt_beside_the_messages_reaches_the_vendor(seen: Vendor, environ: Mapping[str, str]) -> None:
    async with open_peer("memory", environ) as peer:
        for dialect in ALL_DIALECTS:
            await send_provider_request(peer, wire_request(dialect, "thinking", system_prompt="Be kind."))
            assert seen.received() == expected(dialect, "system prompt"), dialect.api


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_to_the_python_sdk_reaches_the_vendor_whole(
    kind: str, seen: Vendor, environ: Mapping[str, str]
) -> None:
    async with serving(kind, environ) as options, makai.create_makai_client(options) as client:
        for dialect in ALL_DIALECTS:
            for variant in OPTIONS:
                request = provider_request(dialect, variant)
                await client.provider.complete(request)
                got = seen.received()
                assert got == expected(dialect, variant), (dialect.api, variant, "complete")
                async for event in client.provider.stream(**request):
                    assert event.type != "error", event
                assert seen.received() == got, (dialect.api, variant, "stream")


async def test_a_request_to_the_synchronous_sdk_reaches_the_vendor_whole(
    seen: Vendor, environ: Mapping[str, str]
) -> None:
    def ask_all() -> list[Any]:
        received = []
        with makai.connect_sync(environ=environ) as client:
            for dialect in ALL_DIALECTS:
                client.provider.complete(provider_request(dialect, "thinking"))
                received.append(seen.received())
        return received

    for dialect, got in zip(ALL_DIALECTS, await asyncio.to_thread(ask_all), strict=True):
        assert got == expected(dialect, "thinking"), dialect.api


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_run_on_the_wire_reaches_the_vendor_whole(
    transport: str, seen: Vendor, environ: Mapping[str, str]
) -> None:
    async with open_peer(transport, environ) as peer:
        for dialect in ALL_DIALECTS:
            for variant in OPTIONS:
                session_id = await send_agent_request(peer, agent_request(dialect, variant))
                got = seen.received(session_id)
                assert got == expected(dialect, f"agent: {variant}"), (dialect.api, variant)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_of_the_python_sdk_reaches_the_vendor_whole(
    kind: str, seen: Vendor, environ: Mapping[str, str]
) -> None:
    async with serving(kind, environ) as options, makai.create_makai_client(options) as client:
        for dialect in ALL_DIALECTS:
            for variant in OPTIONS:
                request = agent_request(dialect, variant)
                answer = await client.agent.run(request)
                assert answer.session_id is not None
                got = seen.received(answer.session_id)
                assert got == expected(dialect, f"agent: {variant}"), (dialect.api, variant)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_named_account_is_the_one_whose_key_the_vendor_sees(
    transport: str, seen: Vendor, environ: dict[str, str]
) -> None:
    store = CredentialStore(Path(environ["MAKAI_HOME"]))
    origin = origin_of(environ["OPENAI_BASE_URL"])
    for name in ("home", "work"):
        store.save("openai", Account(name=name, credential=ApiKey(key=Secret(f"key-of-{name}")), origins=(origin,)))
    del environ["OPENAI_API_KEY"]
    request = wire_request(OPENAI, "thinking")
    async with open_peer(transport, environ) as peer:
        for name in ("home", "work"):
            request["options"] = {**request["options"], "account": name}
            await send_provider_request(peer, request)
            assert seen.received()["headers"]["authorization"] == f"Bearer key-of-{name}"


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_what_a_caller_says_about_its_own_model_is_kept(
    transport: str, seen: Vendor, environ: Mapping[str, str]
) -> None:
    request = wire_request(MISTRAL, "thinking")
    del request["model_ref"]
    request["model"] = {
        "id": "own-model",
        "api": "openai-completions",
        "provider": "own",
        "base_url": environ["MISTRAL_BASE_URL"],
        "capabilities": ["chat", "streaming", "tools", "vision", "reasoning"],
        "headers": {"x-team": "red"},
        "quirks": {"max_tokens_field": "max_completion_tokens", "reasoning": "effort", "stream_usage": False},
    }
    async with open_peer(transport, environ) as peer:
        await send_provider_request(peer, request)
    got = seen.received()
    assert got["headers"]["x-team"] == "red"
    assert "authorization" not in got["headers"]
    body = expected(MISTRAL, "thinking")["body"]
    changed = {"model", "messages", "max_tokens", "max_completion_tokens", "prompt_cache_key"}
    assert {name: value for name, value in got["body"].items() if name not in changed} == {
        name: value for name, value in body.items() if name not in changed
    }
    assert (got["body"]["model"], got["body"]["max_completion_tokens"]) == ("own-model", 4321)
