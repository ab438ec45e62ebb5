"""Which provider answers for which api id, and what it costs to know them all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest
from support.streams import ask, model

import makai
from makai.core.errors import NotSupported
from makai.core.messages import AssistantMessage
from makai.core.stream_events import Done, Start, StreamEvent
from makai.providers.base import ProviderRequest
from makai.providers.http import HttpClient, HttpProvider
from makai.providers.registry import BUILTIN_APIS, ProviderRegistry, builtin_api

SEVEN_APIS = [
    "anthropic-messages",
    "azure-openai-responses",
    "google-gemini-cli",
    "google-generative-ai",
    "ollama",
    "openai-completions",
    "openai-responses",
]
EMPTY = AssistantMessage(content=())
SHOW_ADAPTERS = """
import sys
from makai.providers.registry import BUILTIN_APIS, builtin_api
modules = [module for module, _ in BUILTIN_APIS.values()]
print(*[module for module in modules if module in sys.modules])
builtin_api("openai-completions")
print(*[module for module in modules if module in sys.modules])
"""


class _Custom:
    """A caller's own provider."""

    async def stream(self, request: ProviderRequest) -> AsyncGenerator[StreamEvent, None]:
        yield Start(EMPTY)
        yield Done("end_turn", EMPTY)


@pytest.fixture
async def registry() -> AsyncIterator[ProviderRegistry]:
    async with HttpClient() as client:
        yield ProviderRegistry(client)


@pytest.mark.req("MK-PROV-008")
async def test_the_seven_apis_of_the_document_are_built_in(registry: ProviderRegistry) -> None:
    assert registry.api_ids() == SEVEN_APIS


@pytest.mark.req("MK-PROV-008")
@pytest.mark.parametrize("api_id", SEVEN_APIS)
async def test_a_built_in_api_has_one_provider_and_the_adapter_of_its_name(
    registry: ProviderRegistry, api_id: str
) -> None:
    provider = registry.provider_for(model(api_id))

    assert isinstance(provider, HttpProvider)
    assert registry.provider_for(model(api_id, "another-vendor")) is provider
    assert builtin_api(api_id).id == api_id


@pytest.mark.req("MK-PROV-008")
@pytest.mark.parametrize("api_id", ["acme-chat", "openai-completions"])
async def test_a_caller_can_register_a_provider_for_a_new_api_or_instead_of_a_built_in_one(
    registry: ProviderRegistry, api_id: str
) -> None:
    custom = _Custom()

    registry.register(api_id, custom)

    target = model(api_id)
    assert registry.api_ids() == sorted({*SEVEN_APIS, api_id})
    assert registry.provider_for(target) is custom
    assert [event async for event in registry.provider_for(target).stream(ask(target))] == [
        Start(EMPTY),
        Done("end_turn", EMPTY),
    ]


async def test_a_provider_of_one_vendor_wins_over_that_of_its_api(registry: ProviderRegistry) -> None:
    for_api, for_vendor = _Custom(), _Custom()
    registry.register("acme-chat", for_api)
    registry.register_for("acme", for_vendor)

    assert registry.provider_for(model("acme-chat", "acme")) is for_vendor
    assert registry.provider_for(model("acme-chat", "other")) is for_api


async def test_an_unknown_api_is_not_supported_and_the_known_ones_are_named(registry: ProviderRegistry) -> None:
    registry.register("acme-chat", _Custom())

    with pytest.raises(NotSupported) as caught:
        registry.provider_for(model("acme-chat-v2"))

    assert (caught.value.message, caught.value.hint) == (
        "no adapter for the api 'acme-chat-v2'",
        f"Known: {', '.join(['acme-chat', *SEVEN_APIS])}.",
    )


def test_an_adapter_is_imported_when_it_is_first_used() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(makai.__file__).parents[1])}

    finished = subprocess.run(
        [sys.executable, "-c", SHOW_ADAPTERS], env=environment, capture_output=True, text=True, timeout=30, check=True
    )

    assert finished.stdout.splitlines() == ["", BUILTIN_APIS["openai-completions"][0]]
