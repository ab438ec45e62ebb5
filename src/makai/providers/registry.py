"""Which provider answers for which api id. Adapters are imported when first used, so knowing seven APIs costs nothing
at start-up. A caller can register a provider under any api id (MK-PROV-008), and one provider id can be given its own
(the local model starts its server first)."""

from __future__ import annotations

import importlib

from makai.core.errors import NotSupported
from makai.core.model import Model
from makai.providers.base import Api, Provider
from makai.providers.http import HttpClient, HttpProvider

BUILTIN_APIS: dict[str, tuple[str, str]] = {
    "anthropic-messages": ("makai.providers.anthropic_messages", "AnthropicMessages"),
    "openai-completions": ("makai.providers.openai_completions", "OpenAICompletions"),
    "openai-responses": ("makai.providers.openai_responses", "OpenAIResponses"),
    "azure-openai-responses": ("makai.providers.openai_responses", "AzureOpenAIResponses"),
    "google-generative-ai": ("makai.providers.google_generative_ai", "GoogleGenerativeAI"),
    "google-gemini-cli": ("makai.providers.google_gemini_cli", "GoogleGeminiCli"),
    "ollama": ("makai.providers.ollama", "Ollama"),
}
"""api id -> module and class. Adding an API is one file and one line here."""


def builtin_api(api_id: str) -> Api:
    module, name = BUILTIN_APIS[api_id]
    api: Api = getattr(importlib.import_module(module), name)()
    return api


class ProviderRegistry:
    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._by_api: dict[str, Provider] = {}
        self._by_provider_id: dict[str, Provider] = {}

    def register(self, api_id: str, provider: Provider) -> None:
        self._by_api[api_id] = provider

    def register_for(self, provider_id: str, provider: Provider) -> None:
        """Answer for every model of one provider id, whatever its api."""
        self._by_provider_id[provider_id] = provider

    def api_ids(self) -> list[str]:
        return sorted(BUILTIN_APIS.keys() | self._by_api.keys())

    def provider_for(self, model: Model) -> Provider:
        """The provider that talks to this model; `NotSupported` naming the known api ids otherwise."""
        if provider := self._by_provider_id.get(model.provider) or self._by_api.get(model.api):
            return provider
        if model.api not in BUILTIN_APIS:
            known = ", ".join(self.api_ids())
            raise NotSupported(f"no adapter for the api {model.api!r}", hint=f"Known: {known}.")
        provider = HttpProvider(builtin_api(model.api), self._client)
        self._by_api[model.api] = provider
        return provider
